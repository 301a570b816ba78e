"""The demos: each shows what it says, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.cli.app import app


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[str, Any]:
    """What a demo prints for people, and for programs."""
    monkeypatch.chdir(tmp_path)
    told, data = (CliRunner().invoke(app, [*words, *more]) for more in ((), ("--json",)))
    assert (told.exit_code, data.exit_code, list(tmp_path.iterdir())) == (0, 0, [])
    return told.stdout, json.loads(data.stdout)


def test_three_agents_pass_an_update_hold_a_stranger_back_and_know_who_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKEP_EMBEDDER", raising=False)  # the bundled transformer sees which value is outdated
    told, data = run(tmp_path, monkeypatch, "hive", "demo")
    first, updated, kept = data["answers"]

    assert ("5433" in first, "6543" in updated, "6543" in kept) == (True, True, True)
    assert ["9999" in text for text in data["held_back"]] == [True]
    assert list(data["experts"].values()) == [["ana"], ["bob"]]
    assert "5433.  [ana] (outdated" in told
    assert "quarantined: trust 0.20 is below 0.3" in told


def test_search_is_tuned_in_two_steps_that_the_gate_lets_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, data = run(tmp_path, monkeypatch, "tune", "demo")
    naive, filtered, cut = data

    assert naive["nudcg"] < filtered["nudcg"] < cut["nudcg"]
    assert naive["distractors"] > filtered["distractors"] > cut["distractors"]
    assert [row["version"] for row in data] == [1, 2, 3]
    assert told.index("naive") < told.index("filtered") < told.index("dynamic-k")
