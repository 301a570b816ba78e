"""The measurement of everyday questions counts what it says, and its figures are those that the pages give."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.quality.everyday import (
    FIRST,
    FIVE,
    RESULTS,
    SILENT,
    SILENT_RIGHTLY,
    WRONG,
    World,
    judged,
    load,
    main,
    mean,
    renewed,
)

WORLD = {
    "world": "tiny",
    "memories": [
        {"id": "old", "text": "The standup is at 9:30", "at": "2026-01-05T09:00:00Z", "kind": "fact"},
        {"id": "tea", "text": "Ana drinks green tea", "at": "2026-01-06T09:00:00Z", "kind": "fact"},
        {"id": "new", "text": "The standup moved to 10:15", "at": "2026-02-05T09:00:00Z", "kind": "fact"},
    ],
    "questions": [
        {"id": "q1", "text": "When is the standup?", "type": "current", "answers": ["new"], "wrong": ["old"]},
        {"id": "q2", "text": "What does Ana drink?", "type": "direct", "answers": ["tea"]},
        {"id": "q3", "text": "What does Bo drink?", "type": "none", "answers": [], "wrong": ["tea"]},
    ],
}


def tiny(folder: Path) -> World:
    path = folder / "world.json"
    path.write_text(json.dumps(WORLD), encoding="utf-8")
    return load(path)


def test_an_outdated_memory_above_the_right_one_is_counted_against_a_ranker(tmp_path: Path) -> None:
    rows = list(judged(tiny(tmp_path), lambda question: ["old", "new"] if question.id == "q1" else []))

    assert [kind for kind, _ in rows] == ["current", "direct", "none"]
    assert {figure: mean(rows, figure) for figure in (FIRST, FIVE, WRONG, SILENT, SILENT_RIGHTLY)} == {
        FIRST: 0.0,
        FIVE: 0.5,
        WRONG: 1.0,
        SILENT: 0.5,
        SILENT_RIGHTLY: 1.0,
    }


def test_a_world_is_asked_through_a_bank_and_by_peers(tmp_path: Path) -> None:
    tiny(tmp_path)
    out = tmp_path / "out.json"

    assert main([str(tmp_path / "world.json"), "--out", str(out)]) == 0

    rankers = json.loads(out.read_text(encoding="utf-8"))["rankers"]
    assert set(rankers) == {"skep", "bm25", "vectors"}
    assert rankers["skep"][FIRST] == 1.0
    assert rankers["skep"]["questions"] == 2


def test_committed_figures_cover_every_peer() -> None:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert set(found["rankers"]) == {"skep", "bm25", "vectors", "mem0", "chroma"}
    assert {each["questions"] for each in found["rankers"].values()} == {164}


def test_the_pages_show_the_committed_figures() -> None:
    for page, text in renewed().items():
        assert page.read_text(encoding="utf-8") == text, "run `python -m benchmarks.quality.everyday`"
