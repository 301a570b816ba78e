"""Every statement of the source documents names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "seeds.md"


def rows() -> list[list[str]]:
    """The cells of each line of the tables, but for their heads."""
    lines = (line for line in PAGE.read_text().splitlines() if line.startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "statement" and set(row[0]) != {"-"}]


def test_every_row_names_a_test_that_is_there() -> None:
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert rows()
    for row in rows():
        assert len(row) == 3, row
        named = re.findall(r"`(test_\w+)`", row[2])
        assert named, f"{row[0]!r} names no test"
        assert set(named) <= known, f"{row[0]!r}: {set(named) - known} is not there"
