"""The examples to copy run, and print what they promise; those that agents carry are in tests/agent."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def said(script: Path, *words: str) -> str:
    """What a script prints in an environment that sets nothing of skep, as a reader's does."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    command = [sys.executable, str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(notebook: Path) -> list[str]:
    """What its cells printed, without the figures behind a level."""
    cells = [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    texts = ["".join(line for out in cell["outputs"] for line in out["text"]) for cell in cells]
    return [re.sub(r"\d\.\d\d", "0", text) for text in texts]


def test_every_example_is_named_in_the_overview() -> None:
    overview = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb"}]
    assert [name for name in files if f"`{name}`" not in overview] == []


def test_the_notebook_prints_what_its_cells_show(tmp_path: Path) -> None:
    shown, run = EXAMPLES / "first_steps.ipynb", tmp_path / "run.ipynb"
    shutil.copy(shown, run)
    said(ROOT / "scripts" / "run_notebook.py", str(run))
    assert printed(run) == printed(shown), "run scripts/run_notebook.py examples/first_steps.ipynb"


def test_a_team_of_three_learns_from_each_other() -> None:
    text = said(EXAMPLES / "team_of_three.py")
    for told in (
        "Leipzig",
        "reached in 2 steps",
        "reached in 1 step",
        "refused: sam may not",
        "Halle",
        "('otto',)",
    ):
        assert told in text


@pytest.mark.parametrize("name", ["migrate_from_mem0.py", "migrate_from_chroma.py"])
def test_a_migration_brings_everything_over_and_a_second_run_nothing(name: str, tmp_path: Path) -> None:
    first, second = said(EXAMPLES / name, str(tmp_path)), said(EXAMPLES / name, str(tmp_path))
    assert "new 3" in first
    assert "new 0" in second
    assert "light roast" in first
