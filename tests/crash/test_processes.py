"""Many processes on one bank at the same time, with no daemon."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.storage.write_queue import WriteQueue

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


QUEUE = """
import sys
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

with Bank.open(sys.argv[1], embedder=HashingEmbedder(64)) as bank:
    bank.remember("warm " + sys.argv[2], on_conflict="ignore")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(40):
        bank.remember(f"writer {sys.argv[2]} {number}", on_conflict="ignore")
"""


def test_whoever_waits_for_the_write_lock_gets_its_turn(
    bank_path: Path,
) -> None:
    names = [f"p{number}" for number in range(8)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", QUEUE, str(bank_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate()
        assert process.returncode == 0

    with Bank.open(bank_path, embedder=HashingEmbedder(64)) as bank:
        said = [str(event.body["text"]).split() for event in bank.events() if event.kind == "remember"]
    order = [words[1] for words in said if words[0] == "writer"]
    again = sum(one == next_ for one, next_ in pairwise(order)) / len(order)
    assert again < 0.3, "whoever has just written writes again, while others wait"


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


def test_a_killed_waiter_holds_nobody_up(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(64)) as bank:
        queue = WriteQueue(f"{bank_path}-queue")
        with bank.engine.store.connection.transaction():
            waiter = subprocess.Popen([sys.executable, "-c", WAITER, str(bank_path)], stdout=subprocess.PIPE)
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == b"begins\n"
            while not queue.somebody_waits():
                assert waiter.poll() is None
            waiter.kill()
            waiter.communicate()
        assert not queue.somebody_waits()
        queue.close()
        assert bank.remember("after it").memory.status == "active"


WAITER = """
import sys
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

with Bank.open(sys.argv[1], embedder=HashingEmbedder(64)) as bank:
    print("begins", flush=True)
    bank.remember("never")
"""
