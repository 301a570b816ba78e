"""Replicas: whatever is exchanged, in whatever order, the same events show the same state."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.bank.bank import Bank
from skep.errors import ForgottenError, NotFoundError, SyncError
from skep.replication.change_files import apply_changes, export_changes, read_changes
from skep.replication.exchange import lacking, pull, seen, sync, take
from skep.replication.signatures import Keyring, Signer
from skep.replication.version_vectors import Versions

from .conftest import EMBEDDER

Make = Callable[[], Bank]


def state(bank: Bank) -> dict[str, Any]:
    """Everything two replicas must agree on."""
    return {
        memory.id: msgspec.structs.replace(memory, uses=0, last_used_at=None)
        for memory in bank.find(status=None, limit=10_000)
    }


def test_after_a_sync_both_show_the_same(banks: Make) -> None:
    a, b = banks(), banks()
    a.remember("The cat sleeps on the mat.")
    kept = b.remember("The dog sleeps in the hall.").memory
    b.revise(kept.id, text="The dog sleeps in the garden.")
    done = sync(a, b)

    assert state(a) == state(b)
    assert (done.sent.events, done.received.events) == (1, 2)
    assert done.equal


def test_a_second_sync_sends_nothing(banks: Make) -> None:
    a, b = banks(), banks()
    a.remember_many([f"Fact number {n} is here." for n in range(20)])
    sync(a, b)
    again = sync(a, b)

    assert again.sent.events == again.received.events == 0
    assert again.sent.bytes == again.received.bytes == 0


def test_the_cost_follows_the_difference_and_not_the_size(banks: Make) -> None:
    costs: list[int] = []
    for size in (100, 2000):
        a, b = banks(), banks()
        a.remember_many([f"Fact number {n} is here." for n in range(size)])
        sync(a, b)
        a.remember_many([f"News number {n} is here." for n in range(20)])
        costs.append(sync(a, b).sent.bytes)

    assert costs[1] <= costs[0] * 1.1


def test_an_exchange_that_breaks_off_is_resumed(banks: Make) -> None:
    a, b = banks(), banks()
    a.remember_many([f"Fact number {n} is here." for n in range(50)])
    first = pull(b, a, batch=10, limit=30)
    rest = pull(b, a, batch=10)

    assert (first.events, rest.events) == (30, 20)
    assert state(a) == state(b)


def test_partial_replicas_exchange_only_what_is_missing(banks: Make) -> None:
    a, b, c = banks(), banks(), banks()
    a.remember_many([f"Fact number {n} is here." for n in range(10)])
    events = list(a.events())
    take(b, [events[2], events[7]])
    take(c, [events[7], events[4]])

    assert seen(b) == Versions.of([(a.actor, 3), (a.actor, 8)])
    assert [e.counter for e in lacking(b, seen(c))] == [3]
    sync(b, c)
    assert set(state(b)) == set(state(c)) == {events[n].id for n in (2, 4, 7)}
    sync(b, a)
    assert b.versions() == {a.actor: 10}
    assert state(a) == state(b)


def test_replayed_and_reordered_events_change_nothing(banks: Make) -> None:
    a, b = banks(), banks()
    one = a.remember("The cat sleeps on the mat.").memory
    a.revise(one.id, text="The cat sleeps in the sun.")
    a.retract(one.id)
    a.restore(one.id)
    events = list(a.events())
    for order in (events[::-1], events, events[1:] + events[:1]):
        take(b, order)

    assert state(a) == state(b)


def test_a_forget_is_never_resurrected(banks: Make) -> None:
    a, b, c = banks(), banks(), banks()
    one = a.remember("The password is swordfish.").memory
    sync(a, b)
    sync(a, c)
    stale = list(c.events())
    a.forget(one.id)
    b.revise(one.id, text="The password is still swordfish.")
    sync(a, b)
    take(a, stale)
    take(b, stale)
    sync(b, c)
    sync(a, c)

    for bank in (a, b, c):
        with pytest.raises(ForgottenError):
            bank.get(one.id)
        assert all("swordfish" not in str(event.body) for event in bank.events())


def test_a_clock_days_ahead_is_held_back_and_taken_when_its_time_comes(clock: Any) -> None:
    ahead = Bank.open(":memory:", embedder=EMBEDDER, now=lambda: clock() + 3 * 86_400)
    here = Bank.open(":memory:", embedder=EMBEDDER, now=clock)
    one = ahead.remember("The future is here.").memory
    done = sync(here, ahead)

    assert done.received.held == (one.id,)
    assert not done.equal
    with pytest.raises(NotFoundError):
        here.get(one.id)
    clock.pass_days(3)
    sync(here, ahead)
    assert here.get(one.id).text == "The future is here."
    ahead.close()
    here.close()


def test_a_clock_half_an_hour_behind_loses_no_updates(clock: Any) -> None:
    behind = Bank.open(":memory:", embedder=EMBEDDER, now=lambda: clock() - 1800)
    here = Bank.open(":memory:", embedder=EMBEDDER, now=clock)
    one = here.remember("The port is 1.").memory
    sync(behind, here)
    behind.revise(one.id, text="The port is 2.")
    sync(behind, here)

    assert here.get(one.id).text == behind.get(one.id).text == "The port is 2."
    behind.close()
    here.close()


def test_a_replica_days_behind_is_heard_at_once_and_hears_when_its_clock_is_right(clock: Any) -> None:
    late = [5 * 86_400.0]
    behind = Bank.open(":memory:", embedder=EMBEDDER, now=lambda: clock() - late[0])
    here = Bank.open(":memory:", embedder=EMBEDDER, now=clock)
    mine, theirs = behind.remember("The port is 1.").memory, here.remember("The host is a.").memory
    done = sync(here, behind)

    assert here.get(mine.id).text == "The port is 1."
    assert done.sent.held == (theirs.id,)
    late[0] = 0.0
    sync(here, behind)
    assert state(here) == state(behind)
    behind.close()
    here.close()


# Signatures


def test_forged_events_are_refused_and_the_rest_is_taken(banks: Make) -> None:
    pytest.importorskip("nacl")
    signer = Signer(b"s" * 32)
    a, b = banks(), banks()
    a.engine.sign = signer.sign
    ring = Keyring()
    ring.add(a.actor, signer.public)
    good = a.remember("The cat sleeps on the mat.").memory
    events = list(a.events())
    forged = msgspec.structs.replace(
        events[0], counter=2, body={**events[0].body, "text": "The cat is a dog."}
    )
    done = take(b, [*events, forged], ring)

    assert done.events == 1
    assert [(r.event, r.fault) for r in done.refused] == [(f"{a.actor}-2", "forged")]
    assert list(state(b)) == [good.id]


def test_signatures_survive_relays_and_forgetting(banks: Make) -> None:
    pytest.importorskip("nacl")
    signer = Signer(b"s" * 32)
    a, b, c, d = banks(), banks(), banks(), banks()
    a.engine.sign = signer.sign
    ring = Keyring()
    ring.add(a.actor, signer.public)
    kept = a.remember("The cat sleeps on the mat.").memory
    gone = a.remember("The password is swordfish.").memory
    sync(b, a, keyring=ring)
    assert sync(c, b, keyring=ring).received.refused == ()
    a.forget(gone.id)
    sync(b, a, keyring=ring)
    done = sync(d, b, keyring=ring)

    assert done.received.refused == ()
    assert set(state(d)) == {kept.id}


# Files


def test_changes_travel_in_a_file_and_back(banks: Make, tmp_path: Path) -> None:
    a, b = banks(), banks()
    a.remember("The cat sleeps on the mat.")
    b.remember("The dog sleeps in the hall.")
    export_changes(a, tmp_path / "a.changes")
    taken, they_lack = apply_changes(b, tmp_path / "a.changes")
    header, _ = read_changes(tmp_path / "a.changes")
    written = export_changes(b, tmp_path / "b.changes", since=header.seen)
    apply_changes(a, tmp_path / "b.changes")

    assert taken.events == 1
    assert they_lack.count() == written.events == 1
    assert state(a) == state(b)


@pytest.mark.parametrize("damage", ["cut", "flip", "drop", "empty", "other"])
def test_a_damaged_file_changes_nothing(banks: Make, tmp_path: Path, damage: str) -> None:
    a, b = banks(), banks()
    a.remember_many([f"Fact number {n} is here." for n in range(5)])
    path = tmp_path / "a.changes"
    export_changes(a, path)
    lines = path.read_bytes().splitlines(keepends=True)
    broken = {
        "cut": b"".join(lines)[:-30],
        "flip": b"".join(lines).replace(b"number 3", b"number 4"),
        "drop": b"".join(lines[:2] + lines[3:]),
        "empty": b"",
        "other": b'{"format": "something"}\n{"events": 0, "checksum": ""}\n',
    }[damage]
    path.write_bytes(broken)

    with pytest.raises(SyncError):
        apply_changes(b, path)
    assert state(b) == {}


def test_a_missing_file_says_how_to_make_one(banks: Make, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="skep sync export"):
        apply_changes(banks(), tmp_path / "nothing")


def test_many_replicas_in_random_pairs_end_up_equal(banks: Make) -> None:
    rng = random.Random(7)
    replicas = [banks() for _ in range(6)]
    for number, bank in enumerate(replicas):
        bank.remember_many([f"Fact {n} of {number} is here." for n in range(3)])
    for _ in range(60):
        a, b = rng.sample(replicas, 2)
        sync(a, b)

    assert all(state(bank) == state(replicas[0]) for bank in replicas)
    assert len(state(replicas[0])) == 18
