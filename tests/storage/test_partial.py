"""Copies of single memories: what has a gap before it can be seen, and the gap is still known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.config import Settings
from skep.model import Event
from skep.storage.sqlite_store import SqliteStore

NOW = 1_000.0


@pytest.fixture
def stores() -> Iterator[tuple[SqliteStore, SqliteStore]]:
    a, b = SqliteStore.open(":memory:", Settings()), SqliteStore.open(":memory:", Settings())
    yield a, b
    a.close()
    b.close()


def written(store: SqliteStore, count: int = 6) -> list[Event]:
    for number in range(count):
        store.write([("remember", {"text": f"fact {number}", "kind": "fact"})], now=100.0 + number)
    return list(store.log.after(0))


def test_a_partial_copy_is_visible_although_earlier_events_are_missing(
    stores: tuple[SqliteStore, SqliteStore],
) -> None:
    a, b = stores
    events = written(a)
    b.apply([events[3]], now=NOW, partial=True)
    copied = b.get(events[3].id)

    assert copied is not None
    assert copied.text == "fact 3"
    assert b.log.versions() == {a.actor: 0}
    assert b.log.scattered() == {a.actor: [4]}


def test_taking_the_same_copy_twice_changes_nothing(stores: tuple[SqliteStore, SqliteStore]) -> None:
    a, b = stores
    events = written(a)
    b.apply([events[3]], now=NOW, partial=True)

    assert b.apply([events[3]], now=NOW, partial=True).known == 1
    assert b.apply([events[3]], now=NOW).known == 1


def test_when_the_gap_is_filled_the_version_moves_past_the_copies(
    stores: tuple[SqliteStore, SqliteStore],
) -> None:
    a, b = stores
    events = written(a)
    b.apply([events[3]], now=NOW, partial=True)
    applied = b.apply([events[0], events[1], events[2], events[4]], now=NOW)

    assert applied.new == 4
    assert applied.held == ()
    assert b.log.versions() == {a.actor: 5}
    assert b.log.scattered() == {}


def test_without_partial_events_behind_a_gap_still_wait(stores: tuple[SqliteStore, SqliteStore]) -> None:
    a, b = stores
    events = written(a)
    applied = b.apply([events[2]], now=NOW)

    assert applied.new == 0
    assert applied.held == (events[2].id,)


def test_events_are_found_by_ranges_of_counters(stores: tuple[SqliteStore, SqliteStore]) -> None:
    a, _ = stores
    written(a)

    assert [e.counter for e in a.log.ranges({a.actor: [(2, 3), (5, 9)]}, batch=1)] == [2, 3, 5, 6]


def test_events_after_a_lost_first_one_are_still_listed_and_sent_on(
    stores: tuple[SqliteStore, SqliteStore],
) -> None:
    a, b = stores
    events = written(a)
    b.apply(events[2:4], now=NOW, partial=True)

    assert [event.id for event in b.log.lacking({})] == [event.id for event in events[2:4]]
    assert list(b.log.lacking({a.actor: events[3].counter})) == []
