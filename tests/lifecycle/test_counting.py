"""Pairs that wait for a judge: what takes one off the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.lifecycle import judgement_queue
from skep.lifecycle.maintain import MaintainConfig

WAITING = 40


@pytest.fixture
def bank(tmp_path: Path, clock: Clock) -> Iterator[Bank]:
    with Bank.open(tmp_path / "bank.skep", now=clock) as opened:
        yield opened


def waiting(bank: Bank, count: int = WAITING) -> list[str]:
    """Pairs of memories that wait for a judge; of a kind that no rule compares by itself."""
    made = bank.remember_many({"text": f"lamp number {n}", "kind": "document"} for n in range(2 * count))
    ids = [done.memory.id for done in made]
    for older, newer in zip(ids[::2], ids[1::2], strict=True):
        case = judgement_queue.Case(
            older=bank.get(older), newer=bank.get(newer), kind="update", similarity=0.9, confidence=0.5
        )
        bank.engine.write([judgement_queue.queue_plan(case)])
    return ids


@pytest.mark.parametrize("act", ["retract", "resolve", "forget", "mark", "supersede", "expire"])
def test_a_pair_waits_as_long_as_both_sides_stand_and_nobody_decides(
    bank: Bank, clock: Clock, act: str
) -> None:
    one, other, third, *_ = waiting(bank)
    bank.maintain()
    match act:
        case "resolve":
            bank.resolve_judgement(one, other, "KEEP_BOTH")
        case "mark":
            bank.mark(one, "deprecated")
        case "supersede":
            bank.supersede(one, third)
        case "expire":
            bank.revise(one, ttl=60)
            bank.maintain()
            clock.pass_seconds(61)
        case _:
            getattr(bank, act)(one)
    assert bank.maintain().queued == WAITING - 1
    assert len(bank.pending_judgements()) == WAITING - 1


def test_decisions_are_let_go_in_time_though_nothing_happens(bank: Bank, clock: Clock) -> None:
    one, other, *_ = waiting(bank)
    bank.resolve_judgement(one, other, "KEEP_BOTH")
    config = MaintainConfig(judgement_days=30)
    bank.maintain(config)
    assert judgement_queue.key_of(one, other) in judgement_queue.judgements(bank.engine)
    bank.maintain(config)
    clock.pass_seconds(31 * 86_400)
    bank.maintain(config)
    assert judgement_queue.key_of(one, other) not in judgement_queue.judgements(bank.engine)
