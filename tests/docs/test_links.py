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
FIGURE = re.compile(r"(?<![\d(])\.\d+")


def targets(page: Path) -> set[Path]:
    return {
        (page.parent / link).resolve()
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in link and not link.startswith("mailto:")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    assert [str(target) for target in targets(page) if not target.exists()] == []


def test_every_page_can_be_reached_from_the_first() -> None:
    seen, waiting = set[Path](), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        waiting += [t for t in targets(page) if t.suffix == ".md" and t not in seen and t.exists()]
    assert {page for page in PAGES if "docs" in page.relative_to(ROOT).parts} - seen == set()


def test_the_readme_gives_the_figures_of_the_page_on_ranking() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quality = readme.partition("**Quality**")[2].partition("**Speed**")[0]
    page = (ROOT / "docs/explanation/ranking.md").read_text(encoding="utf-8")
    known = {line.split(" |")[0]: set(FIGURE.findall(line)) for line in page.splitlines()}
    told = {line.split(" |")[0]: set(FIGURE.findall(line)) for line in quality.splitlines() if "| " in line}

    figures = {name: some for name, some in told.items() if some}
    assert len(figures) > 8
    assert {name: some - known.get(name, set()) for name, some in figures.items()} == {
        name: set() for name in figures
    }
