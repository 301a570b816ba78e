"""Many processes on one bank at the same time, with no daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

BODY = """
import sys
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
    for number in range(count):
        text = f"process {name} says thing{number} of topic{number % 3}"
        mine = bank.remember(text, on_conflict="ignore").memory
        found = {hit.memory.id for hit in bank.recall(text, limit=20)}
        assert mine.id in found, "a reader did not see its own write"
        if number % 4 == 3:
            bank.revise(mine.id, importance=0.8)
print("done")
"""


def run_together(path: Path, processes: int, writes: int) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", BODY, str(path), f"p{number}", str(writes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    for process in started:
        out, err = process.communicate()
        assert out.strip() == "done", err[-2000:]


def check(path: Path, processes: int, writes: int) -> None:
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        texts = {memory.text for memory in bank.find(limit=10_000)}
        assert len(texts) == processes * writes
        assert [f for f in bank.doctor(deep=True) if f.level == "error"] == []
        counters = [event.counter for event in bank.events()]
        assert counters == list(range(1, len(counters) + 1))


def test_processes_that_open_a_new_bank_at_once_lose_nothing(bank_path: Path) -> None:
    run_together(bank_path, processes=6, writes=6)
    check(bank_path, 6, 6)


@pytest.mark.slow
def test_twenty_processes_write_and_read_at_once(bank_path: Path) -> None:
    run_together(bank_path, processes=20, writes=25)
    check(bank_path, 20, 25)


def test_a_reader_is_not_blocked_by_a_writer_in_the_middle_of_a_transaction(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(64)) as writer:
        writer.remember("already there")
        with (
            Bank.open(bank_path, embedder=HashingEmbedder(64)) as reader,
            writer.engine.store.connection.transaction(),
        ):
            assert [hit.memory.text for hit in reader.recall("already there")] == ["already there"]


def test_a_reader_sees_what_another_process_wrote_since(bank_path: Path) -> None:
    with Bank.open(bank_path) as one, Bank.open(bank_path) as two:
        one.remember("the first thing")
        assert len(two.recall("thing")) == 1
        one.remember("the second thing")
        assert len(two.recall("thing")) == 2
