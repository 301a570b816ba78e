"""Maintenance from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError
from skep.lifecycle.maintain import MaintainConfig


def call(path: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["--bank", str(path), *args])


def test_pairs_that_wait_are_shown_and_decided_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember_many(["The house drink is tea", "The house drink is coffee"])
    assert "1 pair waits for a judge" in call(path, "maintain").output
    assert "The house drink is coffee" in call(path, "judge").output
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
        bank.remember_many(["The build takes nine minutes", "the build takes nine minutes."])
    plan = json.loads(call(path, "maintain", "--dry-run", "--step", "merge", "--json").output)
    assert [(step["step"], len(step["actions"])) for step in plan["steps"]] == [("merge", 1)]
    done = json.loads(call(path, "maintain", "--skip", "merge", "--json").output)
    assert "merge" not in [step["step"] for step in done["steps"]]
    assert "1 copy of" in call(path, "maintain").output


def test_what_was_written_later_at_the_same_moment_is_the_newer_value(tmp_path: Path) -> None:
    with Bank.open(tmp_path / "bank.skep", now=lambda: 1_750_000_000.0) as bank:
        texts = [f"Filler number {n} about nothing in particular {'abcdefghijkl'[n] * 4}" for n in range(12)]
        stored = bank.remember_many(
            ["Ada was born in the city of London", *texts, "Ada was born in the city of Paris"]
        )
        bank.maintain()
        first, last = stored[0].memory.id, stored[-1].memory.id
        assert [(link.src, link.dst) for link in bank.neighbors(last, "updates").links] == [(last, first)]
        assert {bank.get(first).status, bank.get(last).status} == {"active"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--every", "0s"], "once a second is the most"),
        (["--gc-days", "-3"], "gc_days must be more than 0"),
        (["--gc-days", "nan"], "gc_days must be more than 0"),
        (["--max-tokens", "-1"], "max_tokens must be 0 or more"),
        (["--consolidate", "hard"], "add --reflect"),
        (["--judge-model", "m"], "belong to --judge-url"),
        (["--judge-price", "2"], "belong to --judge-url"),
        (["--judge-url", "http://localhost/v1"], "needs --judge-model"),
        (["--judge-rules", "--judge-command", "cat"], "one judge at a time"),
        (["--judge-command", "no-such-program -p"], "no program 'no-such-program'"),
        (["--judge-command", ""], "no program ''"),
        (["--step", "merge", "--skip", "merge"], "leaves no step"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_touched(
    tmp_path: Path, options: list[str], told: str
) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember("The build takes nine minutes")
    before = path.read_bytes()
    result = call(path, "maintain", *options)
    assert result.exit_code != 0
    assert told in result.output + str(result.exception)
    assert path.read_bytes() == before


def test_many_waiting_pairs_are_shown_surest_first_and_all_of_them_to_programs(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember_many(
            [f"The house drink is {thing}" for thing in ("tea", "coffee", "cocoa", "juice", "water")]
        )
        bank.maintain()
        waiting = len(bank.pending_judgements())
    assert waiting > 2
    shown = call(path, "judge", "--limit", "2")
    assert shown.output.count("older") == 2
    assert f"and {waiting - 2} more" in shown.output
    told = json.loads(call(path, "judge", "--json").output)
    assert len(told) == waiting
    assert [case["confidence"] for case in told] == sorted(
        (case["confidence"] for case in told), reverse=True
    )


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda cases: 1 / 0, "ZeroDivisionError"),  # type: ignore[misc]
        (lambda cases: None, "NoneType"),
        (lambda cases: "MERGE", "gave str"),
        (lambda cases: [], "1 pair was not decided"),
        (lambda cases: ["PERHAPS"], "1 pair was not decided"),
    ],
)
def test_a_judge_that_fails_keeps_both_and_is_told_of(bank: Bank, answer: object, told: str) -> None:
    bank.remember_many(["The house drink is tea", "The house drink is coffee"])
    report = bank.maintain(judge=answer)  # type: ignore[arg-type]
    (step,) = [step for step in report.steps if step.step == "judge"]
    assert told in step.note
    assert report.queued == 1
    assert len(list(bank.find())) == 2


def test_a_command_that_fails_as_a_judge_is_told_with_its_last_words(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember_many(["The house drink is tea", "The house drink is coffee"])
    script = tmp_path / "judge.sh"
    script.write_text("#!/bin/sh\necho 'first' >&2\necho 'log in first' >&2\nexit 3\n")
    script.chmod(0o755)
    output = call(path, "maintain", "--judge-command", str(script)).output
    assert "exit status 3: log in first" in output


def test_a_distiller_gives_one_text_per_group_or_none(bank: Bank) -> None:
    bank.remember_many(
        [{"text": f"The nightly build failed on node {n}", "kind": "episode"} for n in range(3)]
    )
    with pytest.raises(InvalidInputError, match="one text for each of the 1 groups"):
        bank.maintain(distil=lambda _groups: [])
    assert (
        bank.maintain(MaintainConfig(steps=("extract",)), distil=lambda groups: ["" for _ in groups]).changed
        == 0
    )
