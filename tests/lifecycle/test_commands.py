"""Maintenance from the shell."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from skep.bank import Bank
from skep.cli import app


def call(path: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["--bank", str(path), *args])


def test_pairs_that_wait_are_shown_and_decided_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember_many(["I like tea", "I like coffee"])
    assert "1 pair waits for a judge" in call(path, "maintain").output
    assert "I like coffee" in call(path, "judge").output
    (case,) = json.loads(call(path, "judge", "--json").output)
    older, newer = case["older"]["id"], case["newer"]["id"]

    assert call(path, "judge", older, newer).exit_code == 2
    assert call(path, "judge", older, newer, "superseded").output.strip() == "SUPERSEDED: done"

    assert json.loads(call(path, "judge", "--json").output) == []
    with Bank.open(path) as bank:
        assert bank.get(older).superseded_by == newer


def test_steps_are_chosen_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember_many(["The build takes nine minutes", "Note: the build takes 9 minutes"])
    plan = json.loads(call(path, "maintain", "--dry-run", "--step", "merge", "--json").output)
    assert [(step["step"], len(step["actions"])) for step in plan["steps"]] == [("merge", 1)]
    done = json.loads(call(path, "maintain", "--skip", "merge", "--json").output)
    assert "merge" not in [step["step"] for step in done["steps"]]
    assert "1 copy of" in call(path, "maintain").output


def test_what_was_written_later_at_the_same_moment_replaces(tmp_path: Path) -> None:
    with Bank.open(tmp_path / "bank.skep", now=lambda: 1_750_000_000.0) as bank:
        texts = [f"Filler number {n} about nothing in particular {'abcdefghijkl'[n] * 4}" for n in range(12)]
        stored = bank.remember_many(
            ["Ada was born in the city of London", *texts, "Ada was born in the city of Paris"]
        )
        bank.maintain()
        first, last = stored[0].memory.id, stored[-1].memory.id
        assert (bank.get(first).superseded_by, bank.get(last).status) == (last, "active")
