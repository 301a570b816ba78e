"""Every example in the documentation runs.

Python blocks of one page run in order in one namespace, in an empty folder, and a second time on what the first left
there, as a reader who begins again does. Console blocks run their `$ skep ...`
lines; a line of expected output must appear in what the command printed (`...` stands for anything).
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import skep
from skep.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEED_EMPTY_FOLDER = {"hive.md", "tune.md", "tune-as-an-agent.md"}
"""Pages that lay out files, which refuses to write over what is there."""
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def needed(page: Path) -> str | None:
    """The package that a page is about, if it says so in its first line."""
    found = re.match(r"<!-- needs: (\S+) -->", page.read_text(encoding="utf-8"))
    return found and found[1]


def there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (package := needed(page)) and not there(package):
        pytest.skip(f"{package} is not installed; `make test-adapters` runs this page")
    monkeypatch.setenv("HOME", str(tmp_path))
    for attempt in ("first", "second"):
        folder = tmp_path / (attempt if page.name in NEED_EMPTY_FOLDER else "work")
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("SKEP_BANK", str(folder / "bank.skep"))
        namespace: dict[str, object] = {"__name__": "__main__"}
        for language, code in blocks(page):
            if language == "python":
                exec(compile(code, str(page), "exec"), namespace)
            else:
                run_console(code)


def run_console(code: str) -> None:
    output = ""
    pattern = re.compile(r"^\$ ")
    for line in re.sub(r"\\\n\s*", "", code).splitlines():
        if pattern.match(line):
            command = line[2:]
            text, _, piped = (
                command.partition(" | ") if command.startswith(("echo ", "printf ")) else ("", "", command)
            )
            stdin = shlex.split(text)[-1].replace("\\n", "\n") if text else None
            words = shlex.split(piped, comments=True)
            assert words[0] == "skep", f"only skep can be shown: {line}"
            result = CliRunner().invoke(app, words[1:], input=stdin)
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            assert result.exit_code == 0, result.output
            output = result.output
        elif line.strip():
            expected = ".*".join(re.escape(part.strip()) for part in line.split("..."))
            assert re.search(expected, output), f"{line!r} is not in {output!r}"


def modules_with_doctests() -> list[str]:
    found = []
    for module in pkgutil.walk_packages(skep.__path__, "skep."):
        spec = module.module_finder.find_spec(module.name, None)  # type: ignore[call-arg]
        origin = getattr(spec, "origin", None)
        if origin and origin.endswith(".py") and ">>> " in Path(origin).read_text(encoding="utf-8"):
            found.append(module.name)
    return ["skep", *found]


@pytest.mark.parametrize("name", modules_with_doctests())
def test_the_examples_in_a_module_run(name: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0


def test_every_public_name_is_sorted_and_importable() -> None:
    assert skep.__all__ == sorted(skep.__all__)
    for name in skep.__all__:
        assert getattr(skep, name) is not None


def test_every_command_is_in_the_reference() -> None:
    from skep.cli.app import COMMANDS

    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`skep {name}" not in page] == []


def test_every_method_of_a_bank_is_in_the_reference() -> None:
    from skep.bank.bank import Bank

    page = (ROOT / "docs" / "reference" / "bank.md").read_text(encoding="utf-8")
    methods = [name for name in dir(Bank) if not name.startswith("_")]
    assert [name for name in methods if f"`{name}" not in page] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_the_reference_is_up_to_date() -> None:
    import runpy

    made = runpy.run_path(str(ROOT / "scripts" / "build_reference.py"), run_name="reference")
    reference = ROOT / "docs" / "reference"
    assert (reference / "bank.md").read_text(encoding="utf-8") == made["bank_page"](), "run `make docs`"
    assert (reference / "cli.md").read_text(encoding="utf-8") == made["cli_page"](), "run `make docs`"
