"""A writing process is killed at random moments; what it acknowledged is there, whole, and found."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skep.bank import Bank
from skep.embedding.hashing import HashingEmbedder

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
