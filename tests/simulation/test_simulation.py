"""A few histories on every run, and every seed that ever failed. `make simulate` runs a thousand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skep.replication.exchange import Replica as AnyReplica
from skep.replication.exchange import Transfer
from skep.storage.event_log import Log

from . import replicas
from .__main__ import kept
from .history import SOMETIMES, lived

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(12))
def test_a_history_full_of_faults_ends_in_agreement(seed: int) -> None:
    lived(seed)


@pytest.mark.parametrize("seed", kept())
def test_a_seed_that_failed_once_does_not_fail_again(seed: int) -> None:
    lived(seed)


@pytest.mark.slow
def test_many_histories_keep_every_promise_and_meet_every_fault() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "300", "--first", "5000"], cwd=ROOT, check=False
    )
    assert done.returncode == 0


def test_a_seed_tells_the_same_story_in_another_process() -> None:
    script = "from tests.simulation.history import lived; print(lived(7).digest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONHASHSEED": hashes,
                "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            },
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hashes in ("1", "2")
    }
    assert digests == {lived(7).digest()}
    assert lived(8).digest() not in digests


def broken(seeds: range) -> str:
    """The first promise that one of some histories finds broken."""
    for seed in seeds:
        try:
            lived(seed)
        except AssertionError as error:
            return str(error)
    return ""


def test_a_replica_that_answers_before_it_has_committed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze = replicas.Disk.freeze

    def late(disk: replicas.Disk, wal_size: int | None = None) -> None:
        """A disk that has not written the last kilobytes, although it said so."""
        freeze(disk, max(0, (disk.wal_bytes() if wal_size is None else wal_size) - 60_000))

    monkeypatch.setattr(replicas.Disk, "freeze", late)
    assert "acknowledged" in broken(range(40))


def test_a_replica_that_drops_what_it_took_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    take: Callable[..., Transfer] = replicas.take

    def careless(replica: AnyReplica, events: Any, *rest: Any) -> Transfer:
        return take(replica, [event for event in events if event.counter % 11 != 10], *rest)

    monkeypatch.setattr(replicas, "take", careless)
    assert "still lacks" in broken(range(10))


def test_a_log_that_keeps_the_text_of_what_is_forgotten_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "scrub", lambda log, memory_id: 0)
    assert "still holds" in broken(range(30))


def test_the_list_of_what_must_happen_names_nothing_twice() -> None:
    assert len(set(SOMETIMES)) == len(SOMETIMES)
