"""Every link in the documentation leads somewhere, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)#\s]+)")
FIGURE = re.compile(r"(?<![\w(,.])(?:\d[\d,]*)?\.?\d+")


def targets(page: Path) -> set[Path]:
    return {
        (page.parent / link).resolve()
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in link and not link.startswith("mailto:")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    assert [str(target) for target in targets(page) if not target.exists()] == []


def anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as the web makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_chapter_leads_to_a_heading(page: Path) -> None:
    links = re.findall(r"\]\((?![a-z]+:)([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    led = [((page.parent / target).resolve() if target else page, anchor) for target, anchor in links]
    assert [(at.name, anchor) for at, anchor in led if at.suffix == ".md" and anchor not in anchors(at)] == []


def test_every_page_can_be_reached_from_the_first() -> None:
    seen, waiting = set[Path](), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        waiting += [t for t in targets(page) if t.suffix == ".md" and t not in seen and t.exists()]
    assert {page for page in PAGES if "docs" in page.relative_to(ROOT).parts} - seen == set()


def rows(text: str) -> dict[str, list[str]]:
    """The figures of each row of the tables in a text, by the title of the row, units left out."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {
        row[0].removesuffix(", CPU ms"): [each for cell in row[1:] for each in FIGURE.findall(cell)]
        for row in found
    }


def test_the_page_of_benchmarks_gives_the_figures_of_the_page_on_ranking() -> None:
    explanation = ROOT / "docs" / "explanation"
    page = (explanation / "benchmarks.md").read_text(encoding="utf-8")
    sets = rows(page.partition("## Dialogues and other sets")[2].partition("\n## ")[0])
    ranking = rows((explanation / "ranking.md").read_text(encoding="utf-8"))
    found = {name: figures for name, figures in sets.items() if figures}
    assert len(found) == 9
    assert {name: set(each) - set(ranking[name]) for name, each in found.items()} == {
        name: set() for name in found
    }


def test_the_readme_gives_the_costs_of_the_page_of_benchmarks() -> None:
    readme = rows((ROOT / "README.md").read_text(encoding="utf-8").partition("What it costs")[2])
    page = rows((ROOT / "docs" / "explanation" / "benchmarks.md").read_text(encoding="utf-8"))
    costs = {name: figures for name, figures in readme.items() if figures}
    assert len(costs) == 5
    assert {name: set(figures) - set(page[name]) for name, figures in costs.items()} == {
        name: set() for name in costs
    }


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
