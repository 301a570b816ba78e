"""What waits for a judge is counted once; a run after which nothing has changed does not read it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.engine.engine import Engine
from skep.lifecycle import judgement_queue
from skep.lifecycle.maintain import MaintainConfig

WAITING = 40


class Reads:
    """How often the queue of a bank was read whole."""

    def __init__(self, bank: Bank) -> None:
        self.whole = self.statements = 0
        bank.engine.store.connection.trace = self._statement

    def _statement(self, sql: str, bindings: object) -> None:
        self.statements += 1
        self.whole += "settings WHERE key >=" in sql and judgement_queue.PREFIX in str(bindings)


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


def test_a_run_with_nothing_new_reads_none_of_what_waits_however_much_it_is(bank: Bank) -> None:
    waiting(bank)
    assert bank.maintain().queued == WAITING
    reads = Reads(bank)
    report = bank.maintain()
    few = reads.statements
    assert (report.queued, report.events, reads.whole) == (WAITING, 0, 0)
    assert [step.note for step in report.steps if step.step == "judge"] == [f"{WAITING} wait for a judge"]

    waiting(bank)
    assert bank.maintain().queued == 2 * WAITING
    reads.statements = reads.whole = 0
    assert bank.maintain().queued == 2 * WAITING
    assert (reads.whole, reads.statements) == (0, few)


def test_what_leaves_the_queue_alone_does_not_have_it_counted_again(bank: Bank) -> None:
    one, other, *_ = waiting(bank)
    bank.maintain()
    bank.recall("lamp")
    bank.confirm(one, "ann")
    bank.link(one, other)
    bank.set_setting("mine", 1)
    reads = Reads(bank)
    assert bank.maintain(MaintainConfig(steps=("judge", "expire", "prune"))).queued == WAITING
    assert reads.whole == 0


@pytest.mark.parametrize("act", ["retract", "resolve", "forget", "mark", "supersede", "expire"])
def test_whatever_changes_it_does(bank: Bank, clock: Clock, act: str) -> None:
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
    config = MaintainConfig(judgement_days=30, decay_per_day=0.0)
    bank.maintain(config)
    assert judgement_queue.key_of(one, other) in judgement_queue.judgements(bank.engine)
    bank.maintain(config)
    clock.pass_seconds(31 * 86_400)
    bank.maintain(config)
    assert judgement_queue.key_of(one, other) not in judgement_queue.judgements(bank.engine)


def test_after_very_many_events_counting_again_is_cheaper(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(bank)
    bank.maintain()
    monkeypatch.setattr(judgement_queue, "MANY", 3)
    assert judgement_queue.counted(bank.engine) is not None
    bank.remember_many([f"note {n} of {n * n}" for n in range(4)])
    assert judgement_queue.counted(bank.engine) is None


def test_what_others_queue_while_it_is_counted_is_counted_next_time(
    bank: Bank, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(bank)
    with Bank.open(tmp_path / "bank.skep", now=clock) as other:
        read = judgement_queue.Kept.__init__

        def slowly(kept: judgement_queue.Kept, engine: Engine) -> None:
            read(kept, engine)
            monkeypatch.undo()
            waiting(other, 1)

        steps = MaintainConfig(steps=("expire", "prune"))
        monkeypatch.setattr(judgement_queue.Kept, "__init__", slowly)
        assert bank.maintain(steps).queued == WAITING
        assert bank.maintain(steps).queued == WAITING + 1
