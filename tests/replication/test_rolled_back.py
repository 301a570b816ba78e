"""A file that went back in time is found out, and nobody takes the numbers of another."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.config import Settings
from skep.errors import SyncError
from skep.events import Event
from skep.replication.exchange import sync


def written(bank: Bank, *texts: str) -> None:
    for text in texts:
        bank.remember(text, on_conflict="ignore")


def test_a_file_that_went_back_in_time_and_was_written_to_does_not_pass_for_equal(
    tmp_path: Path, clock: Clock
) -> None:
    here, snapshot = tmp_path / "bank.skep", tmp_path / "snapshot"
    with Bank.open(tmp_path / "peer.skep", now=clock) as peer:
        with Bank.open(here, now=clock) as bank:
            written(bank, "first", "second")
            bank.engine.store.truncate_wal()
            shutil.copyfile(here, snapshot)
            written(bank, "third as it was")
            assert sync(bank, peer).equal
        with here.open("r+b") as file:  # the same file, with what it held before
            file.truncate(0)
            file.write(snapshot.read_bytes())
        with Bank.open(here, now=clock) as bank:
            clock.pass_seconds(1)
            written(bank, "third as it is now")
            name = bank.actor
            found = sync(bank, peer)
            assert (found.forked, found.equal) == ((name,), False)
            assert bank.actor != name
            written(bank, "fourth")
            sync(bank, peer)
            assert "fourth" in {memory.text for memory in peer.find()}


def test_a_file_that_went_back_and_was_not_written_to_gets_its_events_back_and_a_new_name(
    tmp_path: Path, clock: Clock
) -> None:
    here, snapshot = tmp_path / "bank.skep", tmp_path / "snapshot"
    with Bank.open(tmp_path / "peer.skep", now=clock) as peer:
        with Bank.open(here, now=clock) as bank:
            written(bank, "first")
            bank.engine.store.truncate_wal()
            shutil.copyfile(here, snapshot)
            written(bank, "second")
            sync(bank, peer)
        with here.open("r+b") as file:
            file.truncate(0)
            file.write(snapshot.read_bytes())
        with Bank.open(here, now=clock) as bank, Bank.open(here, now=clock) as other:
            name = bank.actor
            assert other.actor == name
            assert sync(bank, peer).equal
            written(bank, "third")
            written(other, "fourth")
            assert sync(bank, peer).equal
            assert {memory.text for memory in peer.find()} == {"first", "second", "third", "fourth"}
            assert {event.actor for event in bank.engine.log.after(0)} == {name, bank.actor}
            assert bank.actor != name


def test_a_stranger_who_takes_numbers_of_ours_takes_no_number_that_we_use(bank: Bank) -> None:
    written(bank, "ours")
    name, last = bank.actor, bank.versions()[bank.actor]
    body = {"text": "not ours", "kind": "fact"}
    bank.apply([Event(actor=name, counter=last + 1, hlc=1, kind="remember", body=body)])
    stored = bank.remember("ours as well", on_conflict="ignore").memory
    assert not stored.id.startswith(name)
    assert {memory.text for memory in bank.find()} == {"ours", "ours as well", "not ours"}
    assert not [finding for finding in bank.doctor(deep=True) if finding.level == "error"]


def test_events_that_wait_are_bounded_and_asked_for_again(clock: Clock) -> None:
    body = {"text": "x", "kind": "fact"}
    events = [
        Event(actor="peer", counter=number, hlc=1 << 20, kind="remember", body=body)
        for number in range(2, 40)
    ]
    with Bank.open(":memory:", now=clock, settings=Settings(held_limit=10)) as bank:
        assert len(bank.apply(events).held) == 38
        assert [event.counter for event in bank.engine.log.held()] == list(range(2, 12))
        first = Event(actor="peer", counter=1, hlc=1 << 20, kind="remember", body=body)
        assert bank.apply([first]).new == 11
        assert bank.apply(events).new == 28
        assert bank.versions()["peer"] == 39


@pytest.mark.parametrize(
    "body",
    [
        {"text": "x" * 70_000},
        {"text": "x", "title": "t" * 10_000},
        {"text": "x", "tags": [f"t{number}" for number in range(1000)]},
        {"text": "x", "metadata": {"a": "m" * 100_000}},
        {"text": "x", "agent": "a" * 5_000},
    ],
    ids=["text", "title", "tags", "metadata", "agent"],
)
@pytest.mark.parametrize("kind", ["remember", "revise"])
def test_what_remember_would_refuse_is_refused_from_a_peer(
    bank: Bank, kind: str, body: dict[str, object]
) -> None:
    whole = {**body, "kind": "fact"} if kind == "remember" else {"memory": "peer-9", "changes": body}
    with pytest.raises(SyncError, match="nothing of this batch"):
        bank.apply([Event(actor="peer", counter=1, hlc=1 << 20, kind=kind, body=whole)])
    assert bank.status().events == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "said\udfff"},
        {"kind": "k" * 201},
        {"kind": ""},
        {"signature": b"x" * 2000},
        {"signature": "text"},
    ],
)
def test_an_event_with_a_kind_or_signature_that_no_file_can_hold_is_refused_in_words(
    bank: Bank, wrong: dict[str, Any]
) -> None:
    event = Event(actor="peer", counter=5, hlc=1 << 60, kind="mine", body={})

    with pytest.raises(SyncError, match="malformed"):
        bank.apply([msgspec.structs.replace(event, **wrong)])
