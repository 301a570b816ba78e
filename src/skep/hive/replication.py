"""Replicas exchange the events the other lacks, and nothing else.

What each side has seen is a few ranges of counters, so the cost of an exchange follows the difference.
Every batch is applied in one transaction; an exchange that breaks off is resumed by doing it again. There
are three ways: bank to bank, through a file (for machines that never meet), and over a bus.

Changes in a file, for replicas that never meet.

A file of JSON lines: a header with what the writer has seen, one event per line, and a last line with the
count and a checksum. It is checked as a whole before anything is taken, so a damaged or cut file changes
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from skep.errors import NotFoundError, SyncError
from skep.hive.bus.bus import Bus, Subscription, safe_part
from skep.hive.messages import Envelope, Failed, Frame, SyncEvents, SyncRequest, without_position
from skep.hive.signatures import Fault, Keyring, Refused
from skep.hive.traces import tracer
from skep.hive.version_vectors import Ranges, Versions, normalise
from skep.model import Event

BATCH = 1000


class Taken(Protocol):
    """What a bank says about events it was given."""

    @property
    def new(self) -> int:
        """How many were new."""
        ...

    @property
    def held(self) -> tuple[str, ...]:
        """Which wait for their time to come."""
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
    """What one side got from the other."""

    events: int = 0
    known: int = 0
    """How many were there already, where that was counted."""
    bytes: int = 0
    held: tuple[str, ...] = ()
    """Stamped too far in the future; taken when their time comes."""
    refused: tuple[Refused, ...] = ()

    @property
    def new(self) -> int:
        """How many events were new."""
        return self.events

    @property
    def erased(self) -> dict[str, int]:
        """What was erased is counted by banks alone."""
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
    """What an exchange did, seen from the first replica."""

    sent: Transfer = Transfer()
    received: Transfer = Transfer()

    @property
    def equal(self) -> bool:
        """Whether both now show the same; not while events are held back or were refused."""
        return not (self.sent.held or self.received.held or self.sent.refused or self.received.refused)


@runtime_checkable
class SeenByMembers(Protocol):
    """A replica that is made of several, some of which may be elsewhere."""

    def seen_by_members(self) -> Versions:
        """Which events any of them has."""
        ...


def seen(replica: Replica) -> Versions:
    """Which events a replica has, as ranges of counters."""
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
    """Whether a replica knows that a memory was forgotten."""
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
    for group in _groups(missing, batch):
        total = total.plus(take(target, group, keyring))
    return total


def forgets_first(events: Iterable[Event]) -> list[Event]:
    """Erased events are believed only where their `forget` is known, so it goes ahead of them."""
    return sorted(events, key=lambda event: event.kind != "forget")


def sync(a: Replica, b: Replica, *, keyring: Keyring | None = None, batch: int = BATCH) -> Synced:
    """Exchange what each lacks; afterwards both have seen the same events."""
    with tracer.span("hive.sync") as span:
        received = pull(a, b, keyring=keyring, batch=batch)
        sent = pull(b, a, keyring=keyring, batch=batch)
        span.note(sent=sent.events, received=received.events, bytes=sent.bytes + received.bytes)
    return Synced(sent=sent, received=received)


def _groups(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    stream = iter(events)
    while group := list(islice(stream, size)):
        yield group


# Over a bus


class SyncServer:
    """Answers sync requests for one replica on a bus."""

    def __init__(
        self, replica: Replica, bus: Bus, *, hive: str, member: str, keyring: Keyring | None = None
    ) -> None:
        self._replica = replica
        self._keyring = keyring
        self._subscription: Subscription = bus.as_member(member).subscribe(
            sync_subject(hive, member), self._handle
        )

    def _handle(self, envelope: Envelope) -> Frame | None:
        frame = envelope.frame
        if isinstance(frame, SyncRequest):
            return answer(self._replica, frame)
        if isinstance(frame, SyncEvents):
            done = take(self._replica, frame.events, self._keyring)
            faults: dict[str, Fault] = {refused.event: refused.fault for refused in done.refused}
            return SyncEvents(events=(), seen=seen(self._replica), refused=faults, held=done.held)
        return None

    def close(self) -> None:
        """Answer no more."""
        self._subscription.close()


def sync_subject(hive: str, member: str) -> str:
    """Where a member of a hive is asked for events."""
    return f"hive.{safe_part(hive)}.sync.{safe_part(member)}"


def answer(replica: Replica, request: SyncRequest) -> SyncEvents:
    """The events a request asks for, as many as it wants at a time."""
    mine = seen(replica)
    missing = mine.minus(request.seen)
    events = tuple(
        without_position(event) for event in islice(replica.events_in(missing.ranges), max(1, request.limit))
    )
    return SyncEvents(events=events, seen=mine, left=missing.count() - len(events))


def sync_over(
    bus: Bus,
    replica: Replica,
    *,
    hive: str,
    member: str,
    keyring: Keyring | None = None,
    batch: int = BATCH,
    deadline: float = 10.0,
) -> Synced:
    """Exchange with a member behind a bus; each message must be answered within `deadline` seconds."""
    subject = sync_subject(hive, member)
    received, sent = Transfer(), Transfer()
    with tracer.span("hive.sync", member=member):
        passed = Versions()
        while True:
            known = seen(replica).merged(passed)
            reply = _ask(bus, subject, SyncRequest(seen=known, limit=batch), deadline)
            fresh = [event for event in reply.events if (event.actor, event.counter) not in known]
            if fresh:
                received = received.plus(take(replica, fresh, keyring))
                passed = passed.merged(Versions.of((e.actor, e.counter) for e in fresh))
            if not fresh or not reply.left:
                break
        theirs = reply.seen
        for group in _groups(lacking(replica, theirs), batch):
            frame = SyncEvents(events=tuple(without_position(e) for e in group), seen=Versions())
            told = _ask(bus, subject, frame, deadline)
            gained = Transfer(
                events=told.seen.minus(theirs).count(),
                bytes=len(msgspec.msgpack.encode(frame)),
                held=told.held,
                refused=tuple(Refused(event=e, fault=fault) for e, fault in told.refused.items()),
            )
            sent = sent.plus(gained)
            theirs = told.seen
    return Synced(sent=sent, received=received)


def _ask(bus: Bus, subject: str, frame: Frame, deadline: float) -> SyncEvents:
    with bus.inbox() as inbox:
        if not inbox.ask(subject, frame):
            raise SyncError(f"nobody answers at {subject}; is the member online?")
        replies = inbox.take(1, wait=deadline)
    if not replies:
        raise SyncError(f"no answer from {subject} within {deadline:g} s; nothing is lost, try again")
    reply = replies[0].frame
    if isinstance(reply, SyncEvents):
        return reply
    reason = reply.error if isinstance(reply, Failed) else f"unexpected {type(reply).__name__}"
    raise SyncError(f"{subject} could not answer: {reason}")


FORMAT = "skep-changes"
VERSION = 1
Progress = Callable[[int, int], None]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str = FORMAT
    version: int = VERSION
    actor: str
    seen: Versions
    """What the writer has seen; the reader can answer with exactly what the writer lacks."""
    since: Versions = Versions()


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """The last line."""

    events: int
    checksum: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What was exported."""

    path: str
    events: int
    bytes: int


def export_changes(
    replica: Replica,
    path: str | os.PathLike[str],
    *,
    since: Versions | None = None,
    sign: Callable[[Event], Event] | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write the events that somebody who has seen `since` lacks. The file appears complete or not at all."""
    target = Path(path)
    known = since or Versions()
    mine = seen(replica)
    total = mine.minus(known).count()
    digest = blake2b(digest_size=16)
    partial = target.with_name(target.name + ".partial")
    count = 0
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        for line in _lines(replica, mine, known, sign):
            digest.update(line)
            file.write(line)
            count += 1
            if progress is not None and count % 1000 == 0:
                progress(min(count, total), total)
        file.write(_line(Footer(events=count - 1, checksum=digest.hexdigest())))
        size = file.tell()
    os.replace(partial, target)
    return Written(path=str(target), events=count - 1, bytes=size)


def _lines(
    replica: Replica, mine: Versions, known: Versions, sign: Callable[[Event], Event] | None
) -> Iterator[bytes]:
    yield _line(Header(actor=replica.actor, seen=mine, since=known))
    for event in lacking(replica, known):
        bare = without_position(event)
        own = sign is not None and bare.actor == replica.actor and bare.signature is None
        yield _line(sign(bare) if own and sign is not None else bare)


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def read_changes(path: str | os.PathLike[str]) -> tuple[Header, list[Event]]:
    """Read and check a file of changes."""
    source = Path(path)
    if not source.is_file():
        raise NotFoundError(f"there is no file {source}; `skep sync export` writes one")
    lines = source.read_bytes().splitlines(keepends=True)
    if len(lines) < 2:
        raise SyncError(f"{source} is not a file of changes, or it was cut off; export it again")
    digest = blake2b(b"".join(lines[:-1]), digest_size=16).hexdigest()
    try:
        header = msgspec.json.decode(lines[0], type=Header)
        footer = msgspec.json.decode(lines[-1], type=Footer)
        if header.format != FORMAT:
            raise SyncError(f"{source} is {header.format!r}, not a file of changes")
        if header.version > VERSION:
            raise SyncError(f"{source} was written by a newer skep; update to read it")
        if footer.checksum != digest or footer.events != len(lines) - 2:
            raise SyncError(f"{source} is damaged or incomplete; nothing was taken, export it again")
        events = [msgspec.json.decode(line, type=Event) for line in lines[1:-1]]
    except msgspec.DecodeError as error:
        raise SyncError(f"{source} is not a file of changes ({error}); nothing was taken") from error
    return header, events


def apply_changes(
    replica: Replica,
    path: str | os.PathLike[str],
    *,
    keyring: Keyring | None = None,
    progress: Progress | None = None,
) -> tuple[Transfer, Versions]:
    """Take in a file; returns what was new, and what the writer of the file still lacks."""
    header, events = read_changes(path)
    total = Transfer()
    if keyring is not None:
        events = forgets_first(events)
    for start in range(0, len(events), BATCH):
        total = total.plus(take(replica, events[start : start + BATCH], keyring))
        if progress is not None:
            progress(min(len(events), start + BATCH), len(events))
    return total, seen(replica).minus(header.seen)
