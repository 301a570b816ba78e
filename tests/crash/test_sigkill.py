"""A writing process is killed at random moments; what it acknowledged is there, whole, and found."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.storage.older import make_older

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.storage.schema import VERSION

WRITER = Path(__file__).with_name("writer.py")


def kill_once(path: Path, name: str, acknowledged_before_kill: int) -> dict[str, str]:
    """Run a writer, kill it after some acknowledgements, and return what it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, str(WRITER), str(path), name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(acknowledged_before_kill)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    lines += rest.splitlines(keepends=True)
    whole = [line.decode().rstrip("\n").split("\t") for line in lines if line.endswith(b"\n")]
    return dict(whole)  # type: ignore[arg-type]


def check(path: Path, acknowledged: dict[str, str]) -> None:
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        for memory_id, text in acknowledged.items():
            assert bank.get(memory_id).text == text
            assert memory_id in {memory.id for memory in bank.find(text=text, limit=100).memories}
        stored = list(bank.find(limit=10_000))
        assert all(memory.text and memory.embedder for memory in stored)
        assert [f for f in bank.doctor(deep=True) if f.level == "error"] == []
        memory_id, text = random.Random(len(stored)).choice(sorted(acknowledged.items()))
        by_words = bank.recall(text, limit=5, preset="hybrid", config={"k_vectors": 0})
        by_meaning = bank.recall(text, limit=5, preset="semantic")
        assert memory_id in {hit.memory.id for hit in by_words}
        assert memory_id in {hit.memory.id for hit in by_meaning}


def kill_many(path: Path, times: int, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged: dict[str, str] = {}
    for number in range(times):
        acknowledged |= kill_once(path, f"w{number}", rng.randint(1, 12))
        if number % 5 == 4:
            check(path, acknowledged)
    check(path, acknowledged)


def test_what_was_acknowledged_survives_being_killed(bank_path: Path) -> None:
    kill_many(bank_path, times=10, seed=1)


@pytest.mark.slow
def test_what_was_acknowledged_survives_being_killed_two_hundred_times(bank_path: Path) -> None:
    kill_many(bank_path, times=200, seed=2)


def test_a_killed_writer_leaves_the_bank_free_for_the_next(bank_path: Path) -> None:
    kill_once(bank_path, "first", 3)
    with Bank.open(bank_path, embedder=HashingEmbedder(64)) as bank:
        assert bank.remember("after the crash").memory.status == "active"


OPENER = """
import sys
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
embedder = HashingEmbedder(64)
print("ready", flush=True)
Bank.open(sys.argv[1], embedder=embedder)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_bank_that_was_being_brought_to_this_version_when_its_process_was_killed_is_whole(
    bank_path: Path,
) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(64)) as bank:
        done = bank.remember_many(f"note {n} on the ledger of the harbour" for n in range(3000))
        acknowledged = {each.memory.id: each.memory.text for each in done[::100]}
        for memory_id in list(acknowledged)[:10]:
            bank.revise(memory_id, importance=0.9)
    make_older(bank_path, 7)
    older = bank_path.read_bytes()
    began: list[float] = []
    for number in range(12):
        for beside in bank_path.parent.glob(f"{bank_path.name}*"):
            if beside.is_file():
                beside.unlink()
        bank_path.write_bytes(older)
        opener = subprocess.Popen(
            [sys.executable, "-c", OPENER, str(bank_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert opener.stdout is not None
        assert opener.stdout.readline() == b"ready\n"
        start = time.monotonic()
        if number < 2:  # how long it takes
            assert opener.stdout.readline() == b"open\n"
            began.append(time.monotonic() - start)
        else:
            time.sleep(min(began) * number / 12)
        opener.send_signal(signal.SIGKILL)
        opener.communicate()
        check(bank_path, acknowledged)
        with Bank.open(bank_path, embedder=HashingEmbedder(64)) as bank:
            assert bank.status().schema == VERSION
            assert len(list(bank.find(limit=10_000))) == 3000
            assert len(bank.history(next(iter(acknowledged)))) == 2
