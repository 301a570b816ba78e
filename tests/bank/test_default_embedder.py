"""The model a bank uses unless told otherwise: found by meaning, nobody waits, and old banks move to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from skep import Bank
from skep.cli.app import app
from skep.config import Settings

QUIET = Settings(embed_when_read=False)
MANY = [{"text": f"The {thing} of house {at} is green."} for at in range(25) for thing in ("door", "roof")]
CAT = {"text": "The office cat sleeps on the printer."}


@pytest.fixture(autouse=True)
def as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of the product instead of the one of the suite."""
    monkeypatch.delenv("SKEP_EMBEDDER")


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is embedded in the background: the state before it began can be looked at."""
    monkeypatch.setattr("skep.embedding.embedding_queue.EmbedWorker.start", lambda self: None)


def made_before_the_model(path: Path) -> None:
    """A bank as it was when the table was all there was: nobody has chosen it."""
    with Bank.open(path, embedder="static") as bank:
        bank.remember_many([*MANY, CAT])
    with apsw.Connection(str(path)) as file:
        file.execute("DELETE FROM meta WHERE key = 'mark:static-chosen'")


def best(bank: Bank, question: str) -> str:
    return bank.recall(question).hits[0].memory.text


def test_a_memory_is_found_in_other_words() -> None:
    with Bank.open(":memory:") as bank:
        bank.remember("Anna is allergic to peanuts.")
        bank.remember("The deploy runs on Tuesday nights.")

        assert best(bank, "Which food makes her ill?") == "Anna is allergic to peanuts."
        assert bank.status().embedder.startswith("skep-minilm-")


def test_a_small_write_is_read_by_the_model_before_it_returns() -> None:
    with Bank.open(":memory:") as bank:
        kept = bank.remember("Anna is allergic to peanuts.").memory

        assert (kept.status, bank.status().pending) == ("active", 0)
        assert "not read" not in bank.recall("peanuts").reason


@pytest.mark.usefixtures("no_worker")
def test_a_large_write_is_found_at_once_by_words_and_by_meaning_and_answers_say_so() -> None:
    with Bank.open(":memory:") as bank:
        bank.remember_many([*MANY, CAT])

        assert bank.status().pending == 51
        assert best(bank, "printer") == CAT["text"]
        assert bank.recall("Where does our kitten nap?", preset="semantic").hits[0].memory.text == CAT["text"]
        answer = bank.recall("printer", explain=True)
        assert "51 memories not read by minilm yet" in answer.reason
        assert any("51 memories not read" in stage.note for stage in answer.trace)

        bank.reembed()

        assert bank.status().pending == 0
        assert "not read" not in bank.recall("printer").reason


def test_the_model_reads_a_large_write_in_the_background(bank_path: Path) -> None:
    with Bank.open(bank_path) as bank:
        bank.remember_many([*MANY, CAT])
        for worker in bank.engine.embeddings._workers.values():
            worker.stop(None)  # after the batch in hand
    with Bank.open(bank_path, settings=QUIET) as bank:
        assert bank.status().pending == 0


@pytest.mark.usefixtures("no_worker")
def test_a_large_write_into_a_bank_that_is_read_leaves_the_others_as_they_are() -> None:
    with Bank.open(":memory:") as bank:
        kept = bank.remember("Anna is allergic to peanuts.").memory
        bank.remember_many(MANY)

        assert bank.get(kept.id).status == "active"
        assert best(bank, "Which food makes her ill?") == kept.text


@pytest.mark.usefixtures("no_worker")
def test_a_bank_from_before_the_model_answers_as_ever_until_the_model_has_read_it(bank_path: Path) -> None:
    made_before_the_model(bank_path)

    with Bank.open(bank_path) as bank:
        answer = bank.recall("cat printer")
        assert answer.hits[0].memory.text == CAT["text"]
        assert "51 memories not read by minilm yet; static answers until then" in answer.reason
        assert bank.status().embedder.startswith("static-")
        assert bank.status().reembedding == 51

        bank.reembed()

        assert bank.status().embedder.startswith("skep-minilm-")
        assert best(bank, "Where does our kitten nap?") == CAT["text"]


def test_a_bank_whose_owner_chose_the_table_stays_with_it(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder="static") as bank:
        bank.remember("Anna is allergic to peanuts.")

    with Bank.open(bank_path) as bank:
        bank.remember("The deploy runs on Tuesday nights.")
        assert bank.status().embedder.startswith("static-")
        assert bank.status().reembedding == 0


def test_a_bank_of_the_model_can_be_opened_with_the_table(bank_path: Path) -> None:
    with Bank.open(bank_path) as bank:
        bank.remember("Anna is allergic to peanuts.")

    with Bank.open(bank_path, embedder="static") as bank:
        bank.reembed()
        assert bank.status().embedder.startswith("static-")
        assert best(bank, "peanuts") == "Anna is allergic to peanuts."


def test_a_bank_whose_change_to_another_model_is_under_way_goes_on_with_that(bank_path: Path) -> None:
    made_before_the_model(bank_path)
    with Bank.open(bank_path, embedder="hash:64", settings=QUIET) as bank:
        bank.recall("cat")

    with Bank.open(bank_path) as bank:
        bank.reembed()
        assert bank.status().embedder == "hash-64-v1"


def test_a_past_state_is_searched_with_the_model(bank_path: Path) -> None:
    times = iter([1_750_000_000.0 + 10 * step for step in range(1000)])
    with Bank.open(bank_path, now=lambda: next(times)) as bank:
        kept = bank.remember("Anna is allergic to peanuts.").memory
        bank.revise(kept.id, text="Anna is allergic to cats.")

        past = bank.as_of(kept.created_at + 1)

        assert past.recall("Which food makes her ill?").hits[0].memory.text == "Anna is allergic to peanuts."


KILLED = """
import os, signal, sys
from skep import Bank
from skep.cli.app import app
from skep.embedding import embedding_queue

step = embedding_queue.EmbedWorker.run_once
done = []

def once(self):
    if done:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(1)
    return step(self)

embedding_queue.EmbedWorker.run_once = once
embedding_queue.EmbedWorker.start = lambda self: None
bank = Bank.open(sys.argv[1])
bank.remember_many([{"text": f"The door of house {at} is green."} for at in range(150)])
bank.reembed()
"""


def test_a_kill_in_the_middle_of_reading_loses_nothing(bank_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED, str(bank_path)], check=False)
    assert process.returncode == -9

    with Bank.open(bank_path, settings=QUIET) as bank:
        assert bank.status().pending == 86
        bank.reembed()
        assert bank.status().pending == 0
        assert len(bank.find(limit=200).memories) == 150
        assert best(bank, "the door of house 149").startswith("The door of house")
        assert [finding for finding in bank.doctor(deep=True) if finding.level == "error"] == []


@pytest.mark.usefixtures("no_worker")
def test_ranking_knows_which_kind_of_vectors_answers_now(bank_path: Path) -> None:
    made_before_the_model(bank_path)

    with Bank.open(bank_path) as bank:
        bank.recall("cat")
        assert not bank.engine.embeddings.model
        bank.reembed()
        assert bank.engine.embeddings.model


@pytest.mark.usefixtures("no_worker")
def test_a_search_from_the_command_line_says_what_is_not_read_yet(bank_path: Path) -> None:
    with Bank.open(bank_path, settings=QUIET) as bank:
        bank.remember_many([*MANY, CAT])

    done = CliRunner().invoke(app, ["--bank", str(bank_path), "search", "printer"])

    assert CAT["text"] in done.stdout
    assert "51 memories not read by minilm yet" in done.stderr
