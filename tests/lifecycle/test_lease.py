"""One run of maintenance at a time, whatever happens to the process that runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.errors import LeaseHeldError, MovedError
from skep.lifecycle.judge import Case, Verdicts
from skep.lifecycle.maintain import MaintainConfig
from skep.lifecycle.maintenance_run import JOB, SECONDS, Held

EPISODES = [
    "The customer asked for invoices in PDF format",
    "Again the customer asked for invoices in PDF format",
    "Deploying on Friday broke the login page",
    "Deploying on Friday broke the login page again",
]
HOLD = """
import sys
from skep.bank.bank import Bank

def distil(groups):
    print("at work", flush=True)
    sys.stdin.readline()
    return [group[0] for group in groups]

with Bank.open(sys.argv[1]) as bank:
    bank.maintain(distil=distil)
"""
"""A run that stops in the middle, with its lease held, until a line arrives."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "bank.skep"
    with Bank.open(where) as bank:
        bank.remember_many([{"text": text, "kind": "episode"} for text in EPISODES])
    return where


def at_work(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "at work"
    return process


def test_two_processes_never_extract_the_same_facts_twice(path: Path) -> None:
    first = at_work(path)
    with Bank.open(path) as bank:
        before = bank.status().events
        with pytest.raises(LeaseHeldError, match=rf"another run \({first.pid}@"):
            bank.maintain()
        assert bank.status().events == before
        assert bank.maintain(dry_run=True).dry_run
    first.communicate("go on\n")
    assert first.returncode == 0

    with Bank.open(path) as bank:
        bank.maintain()
        assert len(list(bank.find(kind="fact"))) == 2


def test_the_command_says_so_and_exits_with_75(path: Path) -> None:
    first = at_work(path)
    again = subprocess.run(
        [sys.executable, "-m", "skep", "--bank", str(path), "maintain"],
        capture_output=True,
        text=True,
        check=False,
    )
    first.communicate("go on\n")
    assert again.returncode == 75
    assert "is maintaining this bank; nothing was done" in again.stderr


def test_a_run_that_was_killed_blocks_the_next_one_only_until_its_lease_ends(path: Path) -> None:
    first = at_work(path)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()

    clock = Clock()
    with Bank.open(path) as bank:
        clock.now = bank.engine.now()
    with Bank.open(path, now=clock) as bank:
        with pytest.raises(LeaseHeldError, match="its lease ends in"):
            bank.maintain()
        clock.pass_seconds(SECONDS + 1)
        bank.maintain()
        assert len(list(bank.find(kind="fact"))) == 2


def test_a_service_goes_on_once_the_lease_of_a_crashed_run_ends(path: Path) -> None:
    with Bank.open(path) as bank:
        bank.engine.leases.claim(JOB, "1@gone/0", now=bank.engine.now(), seconds=6.0)
    service = subprocess.Popen(
        [sys.executable, "-m", "skep", "--bank", str(path), "maintain", "--every", "1h"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watch = threading.Timer(60, service.kill)
    watch.start()
    assert service.stdout is not None
    assert "looked at" in service.stdout.readline()
    service.terminate()
    _, told = service.communicate()
    watch.cancel()
    assert told.count("is maintaining this bank") == 1
    assert service.returncode == 0


def test_a_run_that_was_overtaken_writes_nothing_more(bank: Bank, clock: Clock) -> None:
    bank.remember_many([{"text": text, "kind": "episode"} for text in EPISODES[:2]])

    def slow(groups: list[list[str]]) -> list[str]:
        clock.pass_seconds(SECONDS + 1)
        Held(bank.engine).__enter__()
        return [group[0] for group in groups]

    with pytest.raises(LeaseHeldError, match="another one took over"):
        bank.maintain(distil=slow)  # type: ignore[arg-type]
    assert list(bank.find(kind="fact")) == []


def test_the_lease_is_given_back_even_when_a_step_fails(bank: Bank) -> None:
    bank.remember_many([{"text": text, "kind": "episode"} for text in EPISODES[:2]])

    def broken(groups: list[list[str]]) -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bank.maintain(distil=broken)  # type: ignore[arg-type]
    bank.maintain()
    assert len(list(bank.find(kind="fact"))) == 1


class Priced:
    """A judge that keeps everything and costs what it says."""

    name = "priced"
    price_per_million = 10_000.0

    def __init__(self) -> None:
        self.batches: list[int] = []

    def decide(self, cases: list[Case]) -> Verdicts:
        self.batches.append(len(cases))
        return Verdicts(decisions=("KEEP_BOTH",) * len(cases), tokens=50 * len(cases), money=0.5 * len(cases))


def doubtful(bank: Bank, count: int) -> None:
    from skep.lifecycle.judgement_queue import queue_plan

    for number in range(count):
        a = bank.remember(f"the code of door {number} is {number}", on_conflict="ignore").memory
        b = bank.remember(f"door {number} may have another code", on_conflict="ignore").memory
        case = Case(older=a, newer=b, kind="update", similarity=0.9, confidence=0.5 + number / 100)
        bank.engine.write([queue_plan(case)])


def test_the_batch_is_cut_to_what_the_money_is_expected_to_be_enough_for(bank: Bank) -> None:
    doubtful(bank, 6)
    judge = Priced()
    only = MaintainConfig(steps=("judge",), max_money=5.0)

    report = bank.maintain(only, judge=judge)  # type: ignore[arg-type]

    assert len(judge.batches) == 1
    assert 0 < judge.batches[0] < 6
    assert report.queued == 6 - judge.batches[0]
    assert "the others wait" in report.steps[-1].note
    assert report.spent_money <= 5.0


def test_decisions_that_can_no_longer_matter_are_let_go(bank: Bank, clock: Clock) -> None:
    doubtful(bank, 5)
    judge = Priced()
    judge.price_per_million = 0.0
    few = MaintainConfig(steps=("judge", "prune"), kept_judgements=3, max_money=100.0)
    bank.maintain(few, judge=judge)  # type: ignore[arg-type]
    assert judge.batches == [5]
    assert len(bank.engine.store.settings_under("judgement/")) == 3

    bank.retract(next(iter(bank.engine.store.settings_under("judgement/").values()))["older"])
    bank.maintain(few)
    assert len(bank.engine.store.settings_under("judgement/")) == 2

    clock.pass_days(400)
    bank.maintain(few)
    assert bank.engine.store.settings_under("judgement/") == {}
    with Bank.open(":memory:", now=clock) as other:
        other.apply(bank.events())
        assert other.engine.store.settings_under("judgement/") == {}


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_a_beat_after_the_file_has_gone_ends_quietly_and_the_run_is_told(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    with Bank.open(bank_path) as bank:
        held = Held(bank.engine, seconds=0.03)
        held.__enter__()
        bank_path.unlink()
        thread = held._thread  # pyright: ignore[reportPrivateUsage]
        assert thread is not None
        thread.join(20)
        assert not thread.is_alive()
        with pytest.raises(MovedError):
            held.__exit__(None, None, None)
    assert not said
