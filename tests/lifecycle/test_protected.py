"""What maintenance and learning must never do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.errors import InvalidInputError
from skep.lifecycle.maintain import DEFAULT_STEPS, MaintainConfig


@pytest.mark.parametrize("consolidate", ["soft", "hard"])
def test_a_summary_and_what_was_extracted_survive_the_run_that_made_them(
    bank: Bank, consolidate: str
) -> None:
    for day in range(4):
        text = f"The nightly build failed because the disk was full on day {day}"
        bank.remember(text, kind="episode", on_conflict="ignore")
    bank.maintain(MaintainConfig(steps=(*DEFAULT_STEPS, "reflect"), consolidate=consolidate))
    bank.maintain(MaintainConfig(steps=(*DEFAULT_STEPS, "reflect"), consolidate=consolidate))
    kinds = {memory.kind for memory in bank.find()}
    assert kinds == {"fact", "episode"}
    assert not any(memory.stale for memory in bank.find())
    assert bank.recall("why did the nightly build fail?")


def test_a_private_memory_never_changes_a_shared_one(bank: Bank, clock: Clock) -> None:
    shared = bank.remember("The deploy server is in Rome").memory
    clock.pass_seconds(5)
    mine = bank.remember("The deploy server is in Oslo", scope={"user": "ana"}, on_conflict="supersede")
    assert mine.conflicts
    assert mine.memory.scope.user == "ana"
    bank.maintain(judge=lambda cases: ["SUPERSEDED" for _ in cases])
    assert bank.get(shared.id).status == "active"
    assert bank.get(shared.id).confidence == shared.confidence


def test_repeating_a_shared_memory_privately_still_stores_it(bank: Bank) -> None:
    bank.remember("The deploy server is in Rome")
    bank.remember("The deploy server is in Rome", scope={"user": "ana"}, on_conflict="supersede")
    assert len(bank.recall("deploy server", scope={"user": "ana"})) == 1


def test_learning_keeps_private_text_private(bank: Bank) -> None:
    salary = bank.remember("Ana's salary is 91,000 euros", scope={"user": "ana"}).memory
    other = bank.remember("Payroll runs on the 25th", scope={"user": "bo"}).memory
    learned = bank.learn("prepare payroll", "success", used=[salary.id])
    assert learned.procedure is not None
    assert learned.procedure.scope.user == "ana"
    assert bank.learn("prepare payroll", "success", used=[salary.id, other.id]).procedure is None
    with pytest.raises(InvalidInputError, match="different scopes"):
        bank.learn("prepare payroll", "success", used=[salary.id, other.id], lesson="check twice")


def test_a_repeated_lesson_keeps_its_record(bank: Bank) -> None:
    lesson = "Take a snapshot before every migration"
    for _ in range(3):
        learned = bank.learn("migrate the database", "success", lesson=lesson)
    assert learned.procedure is not None
    for _ in range(2):
        bank.learn("migrate the database", "failure", used=[learned.procedure.id])
    bank.learn(
        "migrate the database", "failure", lesson=lesson
    )  # it teaches the same again, and is not charged
    again = bank.get(learned.procedure.id)
    assert (again.successes, again.failures) == (3, 2)


def test_a_lesson_from_a_failure_is_not_charged_with_it(bank: Bank) -> None:
    learned = bank.learn("ship it", "failure", lesson="Never ship on a Friday afternoon")
    assert learned.procedure is not None
    assert (learned.procedure.failures, learned.procedure.confidence) == (0, 0.8)


def test_memories_that_hold_at_different_times_are_not_merged(bank: Bank) -> None:
    text = "The canary runs for ten minutes in every region"
    bank.remember(text, ttl=3600, confidence=0.9, on_conflict="ignore")
    kept = bank.remember(text, on_conflict="ignore").memory
    bank.maintain()
    assert bank.get(kept.id).status == "active"


def test_a_merge_keeps_all_tags_and_an_undone_merge_stays_undone(bank: Bank) -> None:
    text = "The canary runs for ten minutes in every region"
    a = bank.remember(text, tags=["ops", "ci"], confidence=0.9, on_conflict="ignore").memory
    b = bank.remember(text, tags=["ops", "release"], on_conflict="ignore").memory
    bank.maintain()
    assert bank.get(a.id).tags == ("ops", "ci", "release")
    merge = next(event for event in bank.history(b.id) if event.kind == "merge")
    bank.undo(merge.id)
    bank.maintain()
    assert bank.get(b.id).status == "active"


def test_a_fact_that_was_taken_back_is_not_extracted_again(bank: Bank) -> None:
    say = "The customer asked for invoices in PDF format"
    bank.remember_many([{"text": say, "kind": "episode"}, {"text": say + " again", "kind": "episode"}])
    bank.maintain()
    (fact,) = bank.find(kind="fact")
    bank.retract(fact.id)
    bank.remember(say + " once more", kind="episode", on_conflict="ignore")
    bank.maintain()
    assert list(bank.find(kind="fact")) == []


def test_old_memories_that_are_imported_are_not_set_aside_at_once(bank: Bank, clock: Clock) -> None:
    memory = bank.remember("The office opened two years ago", created_at=clock.now - 700 * 86_400).memory
    bank.maintain()
    assert bank.get(memory.id).status == "active"


def test_a_restored_memory_does_not_expire_again(bank: Bank, clock: Clock) -> None:
    memory = bank.remember("The guest code is open sesame", ttl=60).memory
    clock.pass_seconds(120)
    bank.maintain()
    bank.restore(memory.id)
    bank.maintain()
    assert bank.recall("guest code")


@pytest.mark.parametrize("fields", [{"pinned": True}, {"kind": "procedure"}])
def test_a_ttl_holds_for_what_is_protected_otherwise(
    bank: Bank, clock: Clock, fields: dict[str, object]
) -> None:
    short = bank.remember("Say hello to the guest", ttl=60, **fields).memory  # type: ignore[arg-type]
    lasting = bank.remember("Lock the door at night", **fields).memory  # type: ignore[arg-type]
    clock.pass_days(400)
    bank.maintain(MaintainConfig(steps=(*DEFAULT_STEPS,), gc_days=30))
    assert (bank.get(short.id).status, bank.get(lasting.id).status) == ("expired", "active")


@pytest.mark.parametrize("when", [{"valid_from": 30.0}, {"valid_from": -60.0, "valid_to": -30.0}])
def test_what_is_not_of_the_present_neither_replaces_nor_weakens_what_is(
    bank: Bank, clock: Clock, when: dict[str, float]
) -> None:
    present = bank.remember("The gateway of the office is at 192.168.1.10", on_conflict="ignore").memory
    clock.pass_days(1)
    times: dict[str, Any] = {name: clock() + days * 86_400 for name, days in when.items()}
    bank.remember("The gateway of the office is at 192.168.1.11", on_conflict="ignore", **times)

    bank.maintain()

    assert bank.get(present.id) == present
