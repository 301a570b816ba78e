"""Events are found by their name whatever the order in which they came, and none is stored twice."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import apsw
import pytest
from tests.storage.older import make_older

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.errors import StorageError
from skep.model import Event
from skep.storage.backup import lacking
from skep.storage.doctor import examine
from skep.storage.sqlite_store import SqliteStore

NOW = 1_800_000_000.0


def opened(path: Path) -> SqliteStore:
    return SqliteStore.open(path, Settings())


def event(actor: str, counter: int, text: str = "a note") -> Event:
    return Event(actor=actor, counter=counter, hlc=counter << 20, kind="remember", body={"text": text})


def agrees(store: SqliteStore) -> None:
    """Whatever is asked for, the answer is that of a look at every event."""
    log = store.log
    every = {(e.actor, e.counter): e for e in log.after(0)}
    assert len(every) == store.connection.one("SELECT count(*) FROM event_log")
    actors = sorted({actor for actor, _ in every})
    versions = log.versions()
    scattered: dict[str, list[int]] = {}
    for actor in actors:
        counters = sorted(counter for whose, counter in every if whose == actor)
        reached = next(n for n in range(1, len(counters) + 2) if (actor, n) not in every) - 1
        assert versions[actor] == reached
        if counters[reached:]:
            scattered[actor] = counters[reached:]
        for counter in range(max(counters) + 3):
            assert log.has(actor, counter) == ((actor, counter) in every)
            assert log.get(f"{actor}-{counter}") == every.get((actor, counter))
            born = [every[actor, counter]] if (actor, counter) in every else []
            assert log.of(f"{actor}-{counter}")[:1] == born
        for low in range(0, max(counters) + 2, 2):
            for high in (low, low + 3, max(counters) + 9):
                within = [every[actor, c] for c in counters if low <= c <= high]
                assert list(log.ranges({actor: [(low, high)]}, batch=2)) == within
        have = {actor: 2}
        beyond = [every[actor, c] for c in counters if c > 2]
        assert [e for e in log.lacking(have, batch=1000) if e.actor == actor] == beyond
    assert log.scattered() == scattered


def errors(store: SqliteStore) -> list[str]:
    return [found.check for found in examine(store) if found.level == "error"]


@pytest.mark.parametrize("seed", range(8))
def test_events_are_found_in_whatever_order_they_came(bank_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    store = opened(bank_path)
    for _ in range(25):
        if draw.random() < 0.4:
            store.write([("remember", {"text": f"own {n}"}) for n in range(draw.randint(1, 3))], now=NOW)
        else:
            first, actor = draw.randint(1, 12), draw.choice("abc")
            some = [event(actor, first + n) for n in range(draw.randint(1, 4))]
            some += [event("b", draw.randint(1, 12))] if draw.random() < 0.3 else []
            store.apply(some, now=NOW, partial=draw.random() < 0.5)
    agrees(store)
    assert errors(store) == []
    store.close()

    make_older(bank_path, draw.choice((7, 8)))
    store = SqliteStore.open(bank_path, Settings(), read_only=True)
    agrees(store)
    store.close()

    store = opened(bank_path)
    agrees(store)
    store.write([("remember", {"text": "own again"})], now=NOW)
    store.apply([event(actor, n) for actor in "abc" for n in range(1, 17)], now=NOW)
    agrees(store)
    assert errors(store) == []
    assert store.connection.rows("PRAGMA integrity_check") == [("ok",)]
    past = store.copy_to_memory()
    past.rewind(6 << 20)
    assert {(e.actor, e.counter) for e in past.log.after(0)} == {(a, n) for a in "abc" for n in range(1, 7)}
    for actor in "abc":
        assert list(past.log.ranges({actor: [(1, 99)]})) == [
            past.log.get(f"{actor}-{n}") for n in range(1, 7)
        ]
    past.close()
    store.close()


@pytest.mark.parametrize(
    "again",
    [
        [event("a", 2)],
        [event("a", 3)],
        [event("b", 1), event("a", 2)],
        [event("a", 4), event("a", 5), event("a", 6)],
        [event("a", 4), event("b", 2), event("a", 4)],
        [event("a", 9), event("a", 10), event("b", 2), event("a", 10)],
    ],
)
def test_no_event_is_stored_twice(bank_path: Path, again: Iterable[Event]) -> None:
    store = opened(bank_path)
    store.apply([event("a", 1), event("a", 2), event("a", 3)], now=NOW)
    store.apply([event("b", 1)], now=NOW)
    store.apply([event("a", 6)], now=NOW, partial=True)
    before = list(store.log.after(0))
    for _ in range(2):
        with pytest.raises((StorageError, apsw.ConstraintError)), store.writing():
            store.log.insert(list(again), gaps=True)
        assert list(store.log.after(0)) == before
    agrees(store)
    store.write([("remember", {"text": "and on"})], now=NOW)
    agrees(store)
    store.close()


def test_a_name_that_was_given_already_is_not_given_again(bank_path: Path) -> None:
    """Events of the bank itself may come back to it, where an older state of it was put in its place."""
    store = opened(bank_path)
    store.write([("remember", {"text": "the first"})], now=NOW)
    first = store.actor
    store.apply([event(store.name, 3, "came back")], now=NOW, partial=True)
    store.write([("remember", {"text": "the second"})], now=NOW)
    store.write([("remember", {"text": "another third"})], now=NOW)
    assert [e.body["text"] for e in store.log.after(0)] == [
        "the first",
        "came back",
        "the second",
        "another third",
    ]
    assert len({e.id for e in store.log.after(0)}) == 4
    assert store.actor != first
    assert errors(store) == []
    store.close()


def test_what_a_copy_holds_beyond_a_bank_is_seen(bank_path: Path, tmp_path: Path) -> None:
    store = opened(bank_path)
    store.write([("remember", {"text": "the first"})], now=NOW)
    store.apply([event("a", 1), event("a", 4)], now=NOW, partial=True)
    store.backup(tmp_path / "copy.skep", NOW)
    assert not lacking(tmp_path / "copy.skep", store)
    copy = opened(tmp_path / "copy.skep")
    copy.apply([event("a", 5)], now=NOW, partial=True)
    copy.close_as_one_file()
    assert lacking(tmp_path / "copy.skep", store)
    store.close()


def test_the_doctor_sees_events_that_are_missing(bank_path: Path) -> None:
    store = opened(bank_path)
    store.apply([event("a", n) for n in range(1, 6)], now=NOW)
    with store.writing():
        store.connection.execute("DELETE FROM event_log WHERE counter = 4")
    found = [finding.message for finding in examine(store) if finding.check == "log"]
    assert found == ["events are missing for a"]
    store.close()


BUSY = """
import sys
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.model import Event
with Bank.open(sys.argv[1], embedder=HashingEmbedder(8)) as bank:
    for n in range(1, 10_000):
        bank.remember(f"note {n}", on_conflict="ignore")
        bank.apply([Event(actor="zz", counter=n, hlc=n << 20, kind="remember", body={"text": f"x {n}"})])
        print(n, flush=True)
"""


def test_a_bank_that_others_write_to_is_found_sound(tmp_path: Path) -> None:
    path = tmp_path / "a.skep"
    with Bank.open(path, embedder=HashingEmbedder(8)) as bank:
        bank.remember_many(f"note number {i}" for i in range(300))
        with subprocess.Popen([sys.executable, "-c", BUSY, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            before = 0
            try:
                for _ in range(25):
                    before = int(writer.stdout.readline())
                    wrong = [found for found in bank.doctor() if found.level == "error"]
                    assert not wrong
                assert bank.status().memories > 300 + before
            finally:
                writer.kill()
