"""What is derived from a memory that a link says is contradicted is stale, for as long as that holds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from skep.bank.bank import Bank
from skep.config import Settings
from skep.storage.doctor import examine
from skep.storage.sqlite_store import SqliteStore


def stored(bank: Bank, *texts: str) -> list[str]:
    return [bank.remember(text, on_conflict="ignore").memory.id for text in texts]


@pytest.fixture
def world(plain_bank: Bank) -> tuple[str, str, str, str]:
    """A source, what contradicts it (in words that no rule sees), what is derived from it, and what from that."""
    source, other, derived, above = stored(
        plain_bank,
        "the printer is on floor two",
        "jobs are never printed here",
        "print on two",
        "visitors too",
    )
    plain_bank.link(derived, source, "derived_from")
    plain_bank.link(above, derived, "derived_from")
    return source, other, derived, above


@pytest.mark.parametrize("turned", [False, True])
def test_a_link_that_contradicts_a_source_makes_what_is_derived_from_it_stale(
    plain_bank: Bank, world: tuple[str, str, str, str], turned: bool
) -> None:
    source, other, derived, above = world
    ends = (source, other) if turned else (other, source)
    plain_bank.link(*ends, "contradicts")
    assert [plain_bank.get(each).stale for each in world] == [False, False, True, True]
    assert all(
        "stale" in hit.flags
        for hit in plain_bank.recall("visitors print")
        if hit.memory.id in (derived, above)
    )
    plain_bank.unlink(*ends, "contradicts")
    assert not any(plain_bank.get(each).stale for each in world)


def test_a_link_of_another_relation_says_nothing_against_a_source(
    plain_bank: Bank, world: tuple[str, str, str, str]
) -> None:
    plain_bank.link(world[1], world[0], "related")
    assert not any(plain_bank.get(each).stale for each in world)


def test_undoing_the_link_takes_it_back(plain_bank: Bank, world: tuple[str, str, str, str]) -> None:
    source, other, derived, _ = world
    plain_bank.link(other, source, "contradicts")
    event = next(e for e in plain_bank.history(source) if e.kind == "link" and e.body["rel"] == "contradicts")
    plain_bank.undo(event.id)
    assert not plain_bank.get(derived).stale
    plain_bank.undo(plain_bank.history(source)[-1].id)
    assert plain_bank.get(derived).stale


ENDS: dict[str, Callable[[Bank, str, str], object]] = {
    "retract": lambda bank, other, source: bank.retract(other),
    "forget": lambda bank, other, source: bank.forget(other),
    "supersede": lambda bank, other, source: bank.supersede(other, source),
    "merge": lambda bank, other, source: bank.merge(other, source),
    "deprecate": lambda bank, other, source: bank.mark(other, "deprecated"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("turned", [False, True])
def test_what_no_longer_stands_contradicts_nothing(
    plain_bank: Bank, world: tuple[str, str, str, str], end: str, turned: bool
) -> None:
    source, other, derived, _ = world
    plain_bank.link(*((source, other) if turned else (other, source)), "contradicts")
    ENDS[end](plain_bank, other, source)
    assert not plain_bank.get(derived).stale
    if end != "forget":
        plain_bank.restore(other)
        assert plain_bank.get(derived).stale


def test_a_pinned_memory_is_not_put_in_doubt_by_a_link(
    plain_bank: Bank, world: tuple[str, str, str, str]
) -> None:
    source, other, derived, _ = world
    plain_bank.revise(source, pinned=True)
    plain_bank.link(other, source, "contradicts")
    assert not plain_bank.get(derived).stale
    plain_bank.revise(source, pinned=False)
    assert plain_bank.get(derived).stale


def test_maintenance_says_again_what_hangs_on_a_contradicted_source_and_is_then_at_rest(bank: Bank) -> None:
    texts = [f"The nightly build failed because the disk was full on day {day}" for day in range(3)]
    told = [bank.remember(text, kind="episode", on_conflict="ignore").memory.id for text in texts]
    bank.maintain()
    (fact,) = bank.find(kind="fact")
    (other,) = stored(bank, "Nobody has ever started a job after midnight")
    bank.link(other, told[1], "contradicts")
    assert bank.get(fact.id).stale
    bank.maintain()
    again = bank.get(fact.id)
    assert (again.status, again.stale) == ("active", False)
    assert told[1] not in {link.dst for link in bank.neighbors(fact.id, "derived_from").links}
    assert bank.maintain().changed == 0


def test_what_a_merged_copy_contradicted_the_kept_one_contradicts(bank: Bank) -> None:
    first, copy, other, derived = stored(
        bank,
        "Use ruff for linting",
        "Use ruff for linting.",
        "The house style is what flake8 says",
        "flake8 in CI",
    )
    bank.link(derived, other, "derived_from")
    bank.link(copy, other, "contradicts")
    bank.maintain()
    assert {bank.get(first).status, bank.get(copy).status} == {"active", "merged"}
    assert bank.get(derived).stale


def test_replicas_agree_whatever_order_the_link_arrives_in() -> None:
    with Bank.open(":memory:") as bank:
        source, other, derived, above = stored(bank, "on two", "never here", "print on two", "visitors too")
        bank.link(derived, source, "derived_from")
        bank.link(above, derived, "derived_from")
        bank.link(other, source, "contradicts")
        bank.link(source, other, "contradicts")
        bank.unlink(source, other, "contradicts")
        events = list(bank.events())
    rng = random.Random(7)
    for _ in range(20):
        rng.shuffle(events)
        store = SqliteStore.open(":memory:", Settings())
        for start in range(0, len(events), 3):
            store.apply(events[start : start + 3], now=1e10)
        found = [store.get(each) for each in (source, other, derived, above)]
        assert [memory.stale for memory in found if memory] == [False, False, True, True]
        store.close()


def test_the_doctor_sees_and_mends_what_is_marked_wrongly(
    plain_bank: Bank, world: tuple[str, str, str, str]
) -> None:
    source, other, _, above = world
    plain_bank.link(other, source, "contradicts")
    store = plain_bank.engine.store
    store.connection.execute("UPDATE memories SET stale = 0 WHERE id = ?", (above,))
    (finding,) = [f for f in examine(store, deep=True) if f.level != "ok"]
    assert (finding.check, above in finding.message) == ("replay", True)
    plain_bank.mend()
    assert plain_bank.get(above).stale
    assert [f for f in examine(store, deep=True) if f.level != "ok"] == []


@pytest.fixture
def merged(plain_bank: Bank, world: tuple[str, str, str, str]) -> tuple[str, str, str]:
    """What a source was merged into, something else, and what is derived from the source."""
    source, other, derived, _ = world
    (kept,) = stored(plain_bank, "on the second floor stands a printer")
    plain_bank.merge(source, kept)
    assert not plain_bank.get(derived).stale
    return kept, other, derived


@pytest.mark.parametrize("end", ["supersede", "retract", "dispute", "contradict", "merge"])
def test_what_is_derived_from_a_copy_falls_with_what_it_was_merged_into(
    plain_bank: Bank, world: tuple[str, str, str, str], merged: tuple[str, str, str], end: str
) -> None:
    kept, other, derived = merged
    match end:
        case "supersede":
            plain_bank.supersede(kept, other)
        case "retract":
            plain_bank.retract(kept)
        case "dispute":
            plain_bank.dispute(kept, by="somebody")
        case "contradict":
            plain_bank.link(other, kept, "contradicts")
        case _:
            plain_bank.merge(kept, other)
            plain_bank.retract(other)
    assert [plain_bank.get(each).stale for each in (derived, world[3])] == [True, True]
    assert not [found for found in plain_bank.doctor() if found.level != "ok"]


def test_and_stands_again_with_it(
    plain_bank: Bank, world: tuple[str, str, str, str], merged: tuple[str, str, str]
) -> None:
    kept, other, derived = merged
    plain_bank.supersede(kept, other)
    plain_bank.restore(kept)
    assert not plain_bank.get(derived).stale
    plain_bank.retract(kept)
    assert plain_bank.get(derived).stale
    plain_bank.restore(world[0])
    assert not plain_bank.get(derived).stale, "the copy stands by itself again"


def test_what_was_derived_from_a_copy_of_itself_is_not_its_own_source(
    plain_bank: Bank, world: tuple[str, str, str, str]
) -> None:
    source, _, derived, _ = world
    plain_bank.merge(source, derived)
    plain_bank.retract(derived)
    assert not plain_bank.get(derived).stale


def test_a_summary_linked_late_lifts_the_doubt_from_what_else_was_derived(
    plain_bank: Bank, world: tuple[str, str, str, str]
) -> None:
    source, summary, derived, above = world
    plain_bank.supersede(source, summary)
    assert [plain_bank.get(each).stale for each in (derived, above)] == [True, True]
    plain_bank.link(summary, source, "derived_from")
    assert [plain_bank.get(each).stale for each in (derived, above)] == [False, False]
    plain_bank.unlink(summary, source, "derived_from")
    assert [plain_bank.get(each).stale for each in (derived, above)] == [True, True]
