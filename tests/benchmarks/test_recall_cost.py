"""The measurement of a recall: every engine is asked for the same, and its figures are those of the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.recall_cost import PAGE, RESULTS, main, milliseconds, renewed, told


def test_skep_and_the_scoring_of_mem0_are_asked_people_s_questions(tmp_path: Path) -> None:
    out = tmp_path / "cost.json"

    assert main(["--sizes", "40", "--questions", "2", "--out", str(out)]) == 0

    spent = json.loads(out.read_text(encoding="utf-8"))["ms"]["40"]
    assert set(spent) == {"skep", "mem0's scoring"}
    assert all(each > 0 for each in spent.values())


def test_notes_of_people_come_first_and_made_up_ones_fill_up() -> None:
    few, many = told(40, 20), told(6_000, 20)

    assert (len(few.memories), len(set(many.memories))) == (40, 6_000)
    assert set(few.memories) < set(many.memories)
    assert len(few.questions) == len(many.questions) == 20


def test_an_engine_that_gives_fewer_texts_is_refused() -> None:
    with pytest.raises(SystemExit, match="idle gave 0 texts instead of 10"):
        milliseconds({"idle": lambda _question: []}, ["Where is the key?"])


def test_the_page_shows_the_committed_figures() -> None:
    assert set(json.loads(RESULTS.read_text(encoding="utf-8"))["ms"]) == {"1000", "100000"}
    assert PAGE.read_text(encoding="utf-8") == renewed(), "run `python -m benchmarks.recall_cost`"
