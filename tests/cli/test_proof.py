"""Proof and consent: questions as tests, the event that is to blame, a person's yes, and erasing by subject."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.integrations.capture import capture
from skep.integrations.hooks import Payload

SUITE = """
questions:
  - ask: Which port does the staging database use?
    expect: "5433"
    within: 1
    never: "5432"
  - ask: What is the capital of Mongolia?
    silent: true
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "memories.yaml"
    path.write_text(SUITE)
    return path


def test_questions_that_are_answered_as_they_must_be_pass(run: Any, suite: Path) -> None:
    run("add", "The staging database listens on port 5433")
    assert "2 of 2 passed" in run("test", str(suite)).stdout


def test_a_question_that_is_answered_otherwise_fails_and_says_by_what(run: Any, suite: Path) -> None:
    run("add", "The staging database listens on port 5432")
    failed = run("test", str(suite), code=1).stdout
    assert "no '5433' among the first 1" in failed
    assert "'5432' is among the first 1" in failed
    assert "listens on port 5432" in failed
    told = json.loads(run("test", str(suite), "--json", code=1).stdout)
    assert (told["passed"], told["failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("questions: [{ask: x}]", "silent: true"),
        ("questions: [{ask: x, expect: a, silent: true}]", "either silent"),
        ("questions: [{ask: x, expected: a}]", "expected"),
        ("questions: {", "no valid YAML"),
        ("[]", "must hold `questions:`"),
    ],
)
def test_a_file_that_is_no_suite_is_refused_in_words(
    tmp_path: Path, run: Any, text: str, message: str
) -> None:
    from skep.errors import InvalidInputError
    from skep.tuning.memory_tests import read_suite

    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_suite(path)


WRONG = "The staging database listens on port 6000, not on 5433"


def test_the_event_that_made_it_go_wrong_is_found_and_undone(run: Any, bank_path: Path) -> None:
    for number in range(5):
        run("add", f"Note {number} of the house")
    bad = run("add", WRONG).stdout.strip()
    with Bank.open(bank_path) as bank:
        lesson = bank.remember("Tunnels go to 6000").memory
        bank.link(lesson.id, bad, "derived_from")
    run("add", "The kettle is blue")
    oracle = f"{sys.executable} -m skep list 'port 6000'; test $? -eq 3"

    found = run("bisect", "--bad", oracle)
    assert WRONG in found.stdout
    assert f"derived  {lesson.id}" in found.stdout
    assert "8 of" not in found.stdout
    event = found.stdout.split()[0]
    assert event == bad
    run("bisect", "--bad", oracle, "--undo")
    run("list", "port 6000", code=3)
    assert "kettle" in run("list", "kettle").stdout


def test_a_command_that_does_not_fail_or_always_fails_accuses_nothing(bank_path: Path) -> None:
    from skep.embedding.embedder import open_embedder
    from skep.errors import InvalidInputError
    from skep.tuning.event_bisect import bisect

    with Bank.open(bank_path) as bank:
        bank.remember("The kettle is blue")
        for code, message in ((0, "does not fail"), (125, "does not fail"), (1, "empty bank")):
            with pytest.raises(InvalidInputError, match=message):
                bisect(bank, lambda _path, code=code: code, opener=open_embedder, told=lambda _line: None)


def test_events_that_the_command_cannot_tell_of_are_all_named(bank_path: Path) -> None:
    from skep.embedding.embedder import open_embedder
    from skep.tuning.event_bisect import CANNOT_TELL, bisect

    with Bank.open(bank_path, embedder="hash:32") as bank:
        ids = [bank.remember(f"note {number}", on_conflict="ignore").memory.id for number in range(8)]

        def judge(path: Path) -> int:
            with Bank.open(path, create=False) as copy:
                count = copy.status().memories
            return {5: CANNOT_TELL}.get(count, int(count > 4))

        found = bisect(bank, judge, opener=open_embedder, told=lambda _line: None)
    assert found.suspects == (ids[4], ids[5])


def test_everything_about_a_subject_is_shown_and_erased(run: Any) -> None:
    run("add", "Ana Lopez lives in Lisbon")
    run("add", "The salary is 7100", "--user", "Ana Lopez")
    run("add", "The kettle is blue")
    assert "--dry-run" in run("forget", "--about", "Ana Lopez", code=2).output
    planned = run("forget", "--about", "Ana Lopez", "--dry-run")
    assert "Lisbon" in planned.stderr
    assert "7100" in planned.stderr
    run("forget", "--about", "Ana Lopez", "--yes")
    left = run("list").stdout
    assert "kettle" in left
    assert "Lisbon" not in left
    assert "7100" not in left
    run("forget", "--about", "Ana Lopez", "--yes", code=3)
    assert "ids" in run("forget", code=2).output


def transcript(folder: Path) -> Path:
    lines = [
        {
            "type": "user",
            "uuid": "u1",
            "message": {"role": "user", "content": "Why does the login loop on staging?"},
        },
        {
            "type": "assistant",
            "uuid": "a1",
            "message": {"role": "assistant", "content": "The cookie had no path."},
        },
    ]
    path = folder / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def in_a_terminal(bank: Path, *words: str, typed: str) -> str:
    """What a command prints when a person types."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "skep", *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "SKEP_BANK": str(bank)},
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    told, _ = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == 0, told
    return told.decode()


def test_what_hooks_keep_waits_for_a_person_where_that_is_asked_for(
    run: Any, bank_path: Path, tmp_path: Path
) -> None:
    run("add", "The kettle is blue")
    run("review", "--ask", "hooks")
    with Bank.open(bank_path) as bank:
        assert (
            capture(
                bank, "claude-code", Payload(session_id="s", transcript_path=str(transcript(tmp_path)))
            ).turns
            == 1
        )
    run("search", "login loop", "--kind", "episode", code=3)
    waiting = json.loads(run("review", "--json").stdout)["waiting"]
    assert "cookie" in waiting[0]["text"]
    assert "a person" in run("review", "--accept", waiting[0]["id"], code=2).output, (
        "no agent says yes for a person"
    )
    run("search", "login loop", "--kind", "episode", code=3)

    assert "cookie" in in_a_terminal(bank_path, "review", typed="y\n")
    assert "cookie" in run("search", "login loop", "--kind", "episode").stdout
    assert "nothing waits" in run("review").stderr


def test_what_a_person_refuses_is_taken_back(run: Any, bank_path: Path) -> None:
    memory_id = run("add", "The kettle is green").stdout.strip()
    with Bank.open(bank_path) as bank:
        bank.mark(memory_id, "quarantined")
    in_a_terminal(bank_path, "review", "--reject", memory_id, typed="y\n")
    assert json.loads(run("get", memory_id, "--json").stdout)["status"] == "retracted"
