"""What a verdict does to two memories, and what it must never do."""

from __future__ import annotations

import random

import pytest
from tests.conftest import Clock

from skep.bank import Bank
from skep.lifecycle.maintain import MaintainConfig
from skep.model import STATUSES, Memory

PASSES = "The test suite passes on Windows"
FAILS = "The test suite does not pass on Windows"


def told(bank: Bank, clock: Clock, *texts: str, **options: object) -> list[str]:
    """The ids of texts that are stored one after another, unlooked at."""
    ids: list[str] = []
    for text in texts:
        ids.append(bank.remember(text, on_conflict="ignore", **options).memory.id)  # type: ignore[arg-type]
        clock.pass_seconds(10)
    return ids


def everything(bank: Bank) -> dict[str, Memory]:
    return {memory.id: memory for memory in bank.find(status=STATUSES, limit=10_000)}


def replayed(bank: Bank, clock: Clock, seed: int = 1) -> dict[str, Memory]:
    """The same bank from its events, in another order."""
    events = list(bank.events())
    random.Random(seed).shuffle(events)
    with Bank.open(":memory:", now=clock) as other:
        for event in events:
            other.apply([event])
        return everything(other)


@pytest.mark.parametrize(
    ("decision", "older", "newer"),
    [
        ("KEEP_BOTH", ("active", 0.8), ("active", 0.8)),
        ("SUPERSEDED", ("superseded", 0.4), ("active", 0.8)),
        ("MERGE", ("active", 0.8), ("merged", 0.8)),
        ("CONTRADICTION", ("active", 0.4), ("active", 0.4)),
    ],
)
def test_who_is_found_to_hold_gets_back_what_the_contradiction_took(
    bank: Bank, clock: Clock, decision: str, older: tuple[str, float], newer: tuple[str, float]
) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain()
    assert [bank.get(i).confidence for i in (a, b)] == [0.4, 0.4]

    bank.maintain(judge=lambda cases: [decision] * len(cases))

    assert [(bank.get(i).status, bank.get(i).confidence) for i in (a, b)] == [older, newer]
    linked = bank.neighbors(b, "contradicts").links
    assert bool(linked) is (decision in ("CONTRADICTION", "SUPERSEDED"))
    assert replayed(bank, clock) == everything(bank)
    clock.pass_days(40)
    bank.maintain()
    kept = [("deprecated" if decision == "CONTRADICTION" else side[0]) for side in (older, newer)]
    assert [bank.get(i).status for i in (a, b)] == kept


def test_every_dispute_of_a_pair_is_taken_back_and_no_other(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain()
    bank.dispute(a, by=b)
    bank.dispute(a, by="ana")
    bank.maintain(judge=lambda cases: ["KEEP_BOTH"] * len(cases))
    assert (bank.get(a).disputes, bank.get(a).confidence) == (1, 0.4)
    assert (bank.get(b).disputes, bank.get(b).confidence) == (0, 0.8)


def test_a_verdict_by_hand_gives_it_back_too(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain()
    bank.resolve_judgement(a, b, "superseded")
    assert (bank.get(b).confidence, bank.get(b).disputes) == (0.8, 0)


def test_a_pair_that_waits_sets_nothing_aside(bank: Bank, clock: Clock) -> None:
    ids = told(bank, clock, PASSES, FAILS, "The test suite never passes on Windows")
    report = bank.maintain()
    assert bank.get(ids[0]).confidence == pytest.approx(0.2)
    assert report.queued
    clock.pass_days(20)
    again = bank.maintain()
    assert [bank.get(i).status for i in ids] == ["active"] * 3
    assert again.queued == report.queued

    clock.pass_days(100)  # what nothing supports fades, with or without a judge
    bank.maintain()
    assert [bank.get(i).status for i in ids] == ["deprecated"] * 3


def test_what_no_longer_waits_costs_nothing(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain()
    bank.retract(b)
    bank.maintain()
    assert bank.pending_judgements() == []
    assert (bank.get(a).confidence, bank.get(a).disputes) == (0.8, 0)
    assert bank.maintain(MaintainConfig(steps=("prune",))).events == 0
