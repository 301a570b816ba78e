"""What somebody decided by hand is not taken back by the next run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conftest import Clock
from tests.lifecycle.test_verdicts import FAILS, PASSES, Always, told

from skep.bank.bank import Bank
from skep.lifecycle.judge import RulesJudge
from skep.lifecycle.maintain import MaintainConfig


def restored(bank: Bank, memory_id: str) -> None:
    bank.restore(memory_id)


def undone(bank: Bank, memory_id: str) -> None:
    kinds = ("supersede", "merge", "mark")
    bank.undo(next(e.id for e in reversed(bank.history(memory_id)) if e.kind in kinds))


def marked(bank: Bank, memory_id: str) -> None:
    bank.mark(memory_id, "active")


FADING = MaintainConfig(decay="days")
BACK = pytest.mark.parametrize("back", [restored, undone])


@BACK
def test_what_was_replaced_and_is_brought_back_stays_until_something_new_is_told(
    bank: Bank, clock: Clock, back: Callable[[Bank, str], None]
) -> None:
    rome, oslo = told(bank, clock, "Ana lives in Rome", "Ana lives in Oslo")
    bank.maintain(judge=Always("SUPERSEDED"))
    assert bank.get(rome).superseded_by == oslo
    back(bank, rome)
    for _ in range(2):
        bank.maintain(judge=RulesJudge())
        assert [bank.get(i).status for i in (rome, oslo)] == ["active", "active"]
    assert bank.pending_judgements() == []

    (bern,) = told(bank, clock, "Ana lives in Bern")
    bank.maintain(judge=Always("SUPERSEDED"))
    assert bank.get(rome).superseded_by == bern


@BACK
def test_new_words_reopen_the_question(bank: Bank, clock: Clock, back: Callable[[Bank, str], None]) -> None:
    rome, oslo = told(bank, clock, "Ana lives in Rome", "Ana lives in Oslo")
    bank.maintain(judge=Always("SUPERSEDED"))
    back(bank, rome)
    bank.maintain()
    bank.revise(oslo, text="Ana lives in Oslo now")
    bank.maintain(judge=Always("SUPERSEDED"))
    assert bank.get(rome).superseded_by == oslo


@BACK
@pytest.mark.parametrize("decision", ["SUPERSEDED", "MERGE"])
def test_a_verdict_that_is_taken_back_is_not_asked_for_again(
    bank: Bank, clock: Clock, back: Callable[[Bank, str], None], decision: str
) -> None:
    ids = told(bank, clock, "The house drink is tea", "The house drink is coffee")
    asked: list[int] = []

    def judge(cases: object) -> list[str]:
        asked.append(len(cases))  # type: ignore[arg-type]
        return [decision] * len(cases)  # type: ignore[arg-type]

    bank.maintain(judge=judge)
    (gone,) = [i for i in ids if bank.get(i).status != "active"]
    back(bank, gone)
    bank.maintain(judge=judge)
    assert asked == [1]
    assert [bank.get(i).status for i in ids] == ["active", "active"]


@pytest.mark.parametrize("back", [restored, undone, marked])
def test_what_faded_and_is_brought_back_stays_until_something_speaks_against_it(
    bank: Bank, clock: Clock, back: Callable[[Bank, str], None]
) -> None:
    (fact,) = told(bank, clock, "The office closes at six", confidence=0.4)
    clock.pass_days(60)
    bank.maintain(FADING)
    assert bank.get(fact).status == "deprecated"
    back(bank, fact)
    clock.pass_days(60)
    bank.maintain(FADING)
    assert bank.get(fact).status == "active"
    bank.confirm(fact, by="ana")
    bank.maintain(FADING)
    assert bank.get(fact).status == "active"

    bank.dispute(fact, by="bo")
    bank.undo(bank.history(fact)[-1].id)
    bank.maintain(FADING)
    assert bank.get(fact).status == "active"

    bank.dispute(fact, by="bo")
    bank.maintain(FADING)
    assert bank.get(fact).status == "deprecated"


@pytest.mark.parametrize("back", [restored, undone, marked])
def test_what_was_pruned_and_is_brought_back_stays(
    bank: Bank, clock: Clock, back: Callable[[Bank, str], None]
) -> None:
    (old,) = told(bank, clock, "an old episode", kind="episode")
    clock.pass_days(40)
    prune = MaintainConfig(steps=("prune",), gc_days=30)
    bank.maintain(prune)
    assert bank.get(old).status == "deprecated"
    back(bank, old)
    bank.maintain(prune)
    assert bank.get(old).status == "active"


@pytest.mark.parametrize("back", [restored, undone, marked])
def test_what_expired_and_is_brought_back_stays_until_it_has_a_new_end(
    bank: Bank, clock: Clock, back: Callable[[Bank, str], None]
) -> None:
    (code,) = told(bank, clock, "The guest code is open sesame", ttl=60)
    clock.pass_seconds(120)
    bank.maintain()
    assert bank.get(code).status == "expired"
    back(bank, code)
    bank.maintain()
    assert bank.get(code).status == "active"

    bank.revise(code, ttl=60)
    clock.pass_seconds(120)
    bank.maintain()
    assert bank.get(code).status == "expired"


def test_what_was_retired_with_its_sources_and_is_brought_back_stays(bank: Bank) -> None:
    source = bank.remember("the printer is on floor two", kind="episode").memory.id
    made = bank.remember(
        "the printer is on floor two and it is old", source="maintenance: extracted"
    ).memory.id
    bank.link(made, source, "derived_from")
    bank.retract(source)
    bank.maintain()
    assert bank.get(made).status == "deprecated"
    bank.restore(made)
    bank.maintain()
    assert bank.get(made).status == "active"


def test_a_judge_s_own_undoing_keeps_nothing_apart(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain(MaintainConfig(halve=True))
    bank.maintain(judge=lambda cases: ["KEEP_BOTH"] * len(cases))
    assert any(event.kind == "undo" for event in bank.history(b))
    (copy,) = told(bank, clock, PASSES + ".", confidence=0.9)
    bank.maintain()
    assert bank.get(a).merged_into == copy
