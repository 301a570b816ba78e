"""Replicas exchange the events the other lacks, and nothing else.

What each side has seen is a few ranges of counters, so the cost of an exchange follows the difference. Every batch
is applied in one transaction; an exchange that breaks off is resumed by doing it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol, runtime_checkable

import msgspec

from skep.model import Event
from skep.replication.signatures import Keyring, Refused
from skep.replication.version_vectors import Ranges, Versions, normalise
from skep.storage.bank_export import batches

BATCH = 1000


class Taken(Protocol):
    """The answer of a bank to events it was given."""

    @property
    def new(self) -> int:
        """The number of events that were new."""
        ...

    @property
    def held(self) -> tuple[str, ...]:
        """The events that wait for their time to come."""
        ...


class Replica(Protocol):
    """The part of a bank that replication needs."""

    @property
    def actor(self) -> str:
        """The name it writes under."""
        ...

    def versions(self) -> dict[str, int]:
        """Per actor, up to where nothing is missing."""
        ...

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, events beyond a gap."""
        ...

    def events_in(self, ranges: dict[str, Ranges]) -> Iterator[Event]:
        """Events by ranges of counters."""
        ...

    def apply(self, events: Iterable[Event], *, partial: bool = False) -> Taken:
        """Take events."""
        ...


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Events that one side got from the other."""

    events: int = 0
    known: int = 0
    """The number of events that were there already, where that was counted."""
    bytes: int = 0
    held: tuple[str, ...] = ()
    """Stamped too far in the future; taken when their time comes."""
    refused: tuple[Refused, ...] = ()

    @property
    def new(self) -> int:
        """The number of events were new."""
        return self.events

    @property
    def erased(self) -> dict[str, int]:
        """Erased memories, which banks alone count."""
        return {}

    def plus(self, other: Transfer) -> Transfer:
        """Both together."""
        return Transfer(
            events=self.events + other.events,
            known=self.known + other.known,
            bytes=self.bytes + other.bytes,
            held=tuple(dict.fromkeys(self.held + other.held)),
            refused=self.refused + other.refused,
        )


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an exchange, seen from the first replica."""

    sent: Transfer = Transfer()
    received: Transfer = Transfer()
    forked: tuple[str, ...] = ()
    """Actors of which the two hold different events under the same numbers: one of the files went back in time and was
    written to. What was written then is in that file alone; it writes under a new name from now on."""

    @property
    def equal(self) -> bool:
        """True if both now show the same; not while events are held back or were refused, nor after a fork."""
        return not (
            self.forked or self.sent.held or self.received.held or self.sent.refused or self.received.refused
        )


@runtime_checkable
class SeenByMembers(Protocol):
    """A replica that is made of several, some of which may be elsewhere."""

    def seen_by_members(self) -> Versions:
        """The events that any of them has."""
        ...


def seen(replica: Replica) -> Versions:
    """The events of a replica, as ranges of counters."""
    if isinstance(replica, SeenByMembers):
        return replica.seen_by_members()
    whole = Versions.contiguous(replica.versions())
    scattered = {
        actor: normalise((counter, counter) for counter in counters)
        for actor, counters in replica.scattered().items()
    }
    return whole.merged(Versions(scattered)) if scattered else whole


def lacking(replica: Replica, theirs: Versions) -> Iterator[Event]:
    """The events of a replica that somebody who has seen `theirs` does not have."""
    return replica.events_in(seen(replica).minus(theirs).ranges)


def take(
    replica: Replica, events: Iterable[Event], keyring: Keyring | None = None, *, inside: bool = False
) -> Transfer:
    """Hand events to a replica, in one transaction; with a keyring only those that may be believed.

    Args:
        replica: Who takes them.
        events: As they arrived.
        keyring: Whom to believe.
        inside: Whether they came from a member of the same hive, so that what the keyring vouches for counts.
    """
    batch = [without_position(event) for event in events]
    size = len(msgspec.msgpack.encode(batch))
    refused: list[Refused] = []
    if keyring is not None:
        batch, refused = keyring.screen(
            batch, forgotten=lambda memory: is_forgotten(replica, memory), inside=inside
        )
    taken = replica.apply(batch, partial=True) if batch else None
    return Transfer(
        events=taken.new if taken else 0,
        bytes=size,
        held=_of_batch(taken, batch),
        refused=(*refused, *getattr(taken, "refused", ())),
    )


def _of_batch(taken: Taken | None, batch: list[Event]) -> tuple[str, ...]:
    names = {event.id for event in batch}
    return tuple(event for event in taken.held if event in names) if taken else ()


def is_forgotten(replica: Replica, memory_id: str) -> bool:
    """True if a replica knows that a memory was forgotten."""
    engine = getattr(replica, "engine", None)
    return bool(engine is not None and engine.is_forgotten(memory_id))


def pull(
    target: Replica,
    source: Replica,
    *,
    keyring: Keyring | None = None,
    batch: int = BATCH,
    limit: int | None = None,
) -> Transfer:
    """Bring `target` what it lacks of `source`, at most `limit` events."""
    total = Transfer()
    missing: Iterable[Event] = islice(lacking(source, seen(target)), limit)
    if keyring is not None:
        missing = forgets_first(missing)
    for group in batches(missing, batch):
        total = total.plus(take(target, group, keyring))
    return total


def forgets_first(events: Iterable[Event]) -> list[Event]:
    """Erased events are believed only where their `forget` is known, so it goes ahead of them."""
    return sorted(events, key=lambda event: event.kind != "forget")


def sync(a: Replica, b: Replica, *, keyring: Keyring | None = None, batch: int = BATCH) -> Synced:
    """Exchange what each lacks; afterwards both have seen the same events.

    What both have seen is compared by a digest, so that a file that went back in time does not pass for equal.
    """
    forked = _forked(a, b)
    received = pull(a, b, keyring=keyring, batch=batch)
    return Synced(sent=pull(b, a, keyring=keyring, batch=batch), received=received, forked=forked)


def _forked(a: Replica, b: Replica) -> tuple[str, ...]:
    """The actors of which two banks hold different events; one that is among them takes a new name."""
    engines = getattr(a, "engine", None), getattr(b, "engine", None)
    if not all(hasattr(engine, "digest") for engine in engines):
        return ()  # a hive has a log per member
    one, other = a.versions(), b.versions()
    forked: list[str] = []
    for actor in sorted(one.keys() & other.keys()):
        both = min(one[actor], other[actor])
        if both and len({engine.digest(actor, both) for engine in engines}) > 1:  # type: ignore[union-attr]
            forked.append(actor)
    for replica, engine in zip((a, b), engines, strict=True):
        if replica.actor in forked:
            engine.renew_name()  # type: ignore[union-attr]
    return tuple(forked)


def without_position(event: Event) -> Event:
    """The event as it travels: its place in the sender's log stays at home."""
    return event if event.seq == 0 else msgspec.structs.replace(event, seq=0)
