"""Copies are made one before conflicts are looked for, so that they do not take the places of others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.lifecycle.maintenance_run import Run
from skep.model import Event
from skep.storage.fold import fold


def office(bank: Bank, clock: Clock, copies: int, *towns: str) -> None:
    for town in towns:
        for number in range(copies):
            bank.remember(
                f"The office of the support team is in {town}" + "." * (number % 2), on_conflict="ignore"
            )
            clock.pass_seconds(10)


def outcome(bank: Bank) -> tuple[list[str], list[tuple[str, str]]]:
    """What is current, and what waits, in words."""
    waits = [(case.older.text.rstrip("."), case.newer.text.rstrip(".")) for case in bank.pending_judgements()]
    return sorted(memory.text.rstrip(".") for memory in bank.find()), sorted(waits)


@pytest.mark.parametrize("copies", [1, 10, 40])
def test_a_conflict_is_seen_however_many_copies_there_are(bank: Bank, clock: Clock, copies: int) -> None:
    office(bank, clock, copies, "Lisbon", "Madrid")
    bank.maintain()
    with Bank.open(":memory:", now=clock) as single:
        office(single, clock, 1, "Lisbon", "Madrid")
        single.maintain()
        assert outcome(bank) == outcome(single)
    assert bank.maintain().events == 0


def test_a_newcomer_meets_the_one_that_its_copies_became(bank: Bank, clock: Clock) -> None:
    office(bank, clock, 20, "Lisbon")
    office(bank, clock, 1, "Madrid")
    bank.maintain()
    with Bank.open(":memory:", now=clock) as single:
        office(single, clock, 1, "Lisbon", "Madrid")
        single.maintain()
        assert outcome(bank) == outcome(single)


class _CutError(Exception):
    pass


@pytest.mark.parametrize("after", range(1, 4))
def test_a_run_that_is_cut_short_ends_as_one_that_is_not(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    def filled(name: str) -> Bank:
        bank = Bank.open(tmp_path / name, now=clock)
        random.seed(1)
        office(bank, Clock(), 12, "Lisbon", "Madrid", "Vienna")
        return bank

    with filled("whole.skep") as whole, filled("cut.skep") as cut:
        whole.maintain()
        write, calls = Run.write, []

        def cutting(self: Run, *args: object, **how: object) -> None:
            write(self, *args, **how)  # type: ignore[arg-type]
            calls.append(1)
            if len(calls) == after:
                raise _CutError

        monkeypatch.setattr(Run, "write", cutting)
        with pytest.raises(_CutError):
            cut.maintain()
        monkeypatch.undo()
        cut.maintain()
        assert outcome(cut) == outcome(whole)


def test_a_merge_keeps_the_record_of_all_copies_and_undoing_it_gives_it_back(
    bank: Bank, clock: Clock
) -> None:
    kept = bank.remember("Clear the build cache before a release", kind="procedure").memory.id
    clock.pass_seconds(1)
    copy = bank.remember(
        "Clear the build cache before a release.", kind="procedure", on_conflict="ignore"
    ).memory.id
    for number in range(3):
        bank.learn(f"release {number}", True, used=[kept])
    for number in range(4):
        bank.learn(f"other release {number}", number < 2, used=[copy])
    bank.maintain()
    assert bank.get(copy).merged_into == kept
    assert (bank.get(kept).successes, bank.get(kept).failures) == (5, 2)
    best = bank.recommend("make a release")[0]
    assert (best.memory.id, best.record, best.parts["usage"]) == (kept, "5 of 7", 1.0)

    bank.learn("one more release", True, used=[copy])  # by an id that was recalled before the merge
    assert (bank.get(kept).successes, bank.get(copy).successes) == (6, 2)

    merge = next(event for event in bank.history(copy) if event.kind == "merge")
    bank.undo(merge.id)
    assert (bank.get(kept).successes, bank.get(kept).failures, bank.get(copy).successes) == (4, 0, 2)


def test_a_copy_that_two_replicas_merged_is_counted_once() -> None:
    kept = Event(kind="remember", body={"text": "x", "kind": "procedure"}, actor="a", counter=1, hlc=1)
    body = {"loser": "a-2", "winner": "a-1", "evidence": ["a-2"], "successes": 2, "failures": 1}
    merges = [Event(kind="merge", body=body, actor=actor, counter=9, hlc=9) for actor in ("a", "b")]
    state = fold("a-1", [kept, *merges])
    assert state is not None
    assert (state.memory.successes, state.memory.failures) == (2, 1)


def test_a_merge_loses_nothing_that_was_noted_of_a_copy(bank: Bank, clock: Clock) -> None:
    bank.remember(
        "The API listens on port 8080",
        importance=0.9,
        metadata={"a": 1, "b": 1},
        tags=["x"],
        title="Port",
        domain="net",
    )
    clock.pass_seconds(1)
    kept = bank.remember(
        "The API listens on port 8080.",
        confidence=0.9,
        metadata={"b": 2},
        tags=["x", "y"],
        on_conflict="ignore",
    ).memory.id
    bank.maintain()
    (found,) = bank.find(kind="fact")
    assert (found.id, found.importance, found.title, found.domain) == (kept, 0.9, "Port", "net")
    assert (found.metadata, found.tags) == ({"a": 1, "b": 2}, ("x", "y"))
    assert bank.maintain().events == 0


def test_forgetting_a_copy_leaves_its_record_with_the_one_that_was_kept(bank: Bank) -> None:
    kept = bank.remember("Clear the build cache before a release", kind="procedure").memory.id
    copy = bank.remember("Clear the build cache", kind="procedure", on_conflict="ignore").memory.id
    bank.learn("a release", True, used=[copy])
    bank.learn("another release", False, used=[copy])
    bank.merge(copy, kept)
    bank.forget(copy)
    assert [finding for finding in bank.doctor(deep=True) if finding.level != "ok"] == []
    bank.learn("one more release", True, used=[kept])
    assert (bank.get(kept).successes, bank.get(kept).failures) == (2, 1)
