"""Hub: the contract of a log that several machines share, the values that cross it, and how events are written in it.

A hub keeps the events of one bank where several machines reach them. It does not know what an event means: each machine
keeps a replica (`skep.hub.replica`) that folds them. One file of this room implements each kind of hub, and
`tests/hub/congruence.py` holds all of them to these promises on the same random histories:

1. **Durable.** `append` returns when the hub has every event of the batch, wherever the hub keeps them safe. When it
   raises, any part of the batch may be there; the caller appends the same events again.
2. **Nothing is skipped.** Reading on from a position that `read` gave delivers every event that was
   appended and not delivered before it, also one whose append began earlier and ended later. An `append` that has
   returned is in every `read` that begins afterwards.
3. **Twice is harmless.** An event may be appended twice and delivered twice. A reader counts it by its id.
4. **A position belongs to one log.** `Batch.log` names the log. When the log was lost and begun anew, or a position is
   none that it can read from, `read` begins at the start: it delivers too much, never too little.
5. **Erased is gone.** `erase` puts events whose text was taken out in the place of the stored ones with the same ids,
   and removes the snapshot unless it was made after all of them; when it returns, no call gives the text back.
6. **A snapshot is whole or absent.** `put_snapshot` replaces the one before it in one step.
7. **Errors say what to do.** A hub that cannot be reached is a `HubAwayError`, which may be tried again. A wrong
   address, password, schema or bank is a `SyncError`. Nobody waits without end.
8. **Safe to share.** Several threads and any number of processes may use the same hub at once. `close` ends a `wait` of
   another thread within a second.

A hub must not read, change or drop events by what they say, must not need the order of counters, and may lose what it
acknowledged (a disk, a broker): `held` says what it has, and each replica offers again what is missing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from skep.errors import CorruptBankError, HubAwayError, SyncError
from skep.index.segment_files import Holding
from skep.model import Event
from skep.replication.version_vectors import Versions

if TYPE_CHECKING:
    from pathlib import Path

START = ""
"""The position before the first event."""
BATCH = 1000
"""Events that are sent or read at once."""
AWAY_SECONDS = 10.0
"""Seconds after which a hub that does not answer counts as away."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Events that a hub delivers."""

    events: tuple[Event, ...] = ()
    position: str = START
    """Read on from here."""
    log: str
    """The name of the log: drawn when it was begun, another one when it was begun anew."""


class HubStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A hub at one moment."""

    url: str
    """Without any password."""
    bank: str | None
    """The id of the bank whose log this is; None while nobody has claimed it."""
    log: str
    events: int
    """The number of stored events; one that was appended twice may count twice."""
    snapshot: Versions | None = None
    """The events that are in the snapshot; None where there is none."""
    note: str = ""
    """What a person should know, such as a damaged line that was passed over."""


class Hub(Protocol):
    """A log that several machines share."""

    @property
    def url(self) -> str:
        """The address, without any password."""
        ...

    def status(self) -> HubStatus:
        """The bank it belongs to, its size and its snapshot."""
        ...

    def claim(self, bank: str) -> str:
        """Say which bank this log belongs to, if nobody has; the id of the bank it belongs to."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Store events; they are durable when this returns."""
        ...

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, in the order of this hub, at most `limit`.

        Fewer than `limit` do not mean the end; no event at all does.
        """
        ...

    def wait(self, after: str, timeout: float) -> bool:
        """Wait until there may be an event after a position; False when `timeout` seconds have passed without one."""
        ...

    def held(self) -> Versions:
        """The events that the hub has, looked up anew."""
        ...

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Store a file for new replicas to start from, in the place of the one before.

        Args:
            source: The file.
            seen: The events that are in it.
            position: Where a replica that starts from it reads on.
        """
        ...

    def get_snapshot(self, target: Path) -> str | None:
        """Write the snapshot to a file; the position to read on from, None if there is no snapshot."""
        ...

    def erase(self, events: Sequence[Event]) -> None:
        """Put events without text in the place of the stored ones, and remove a snapshot that may hold the text.

        Args:
            events: The events as they are to stand: those that forgot something, and those that lost their text.
        """
        ...

    def close(self) -> None:
        """Release what it holds. Closing twice is no error."""
        ...


class PollingHub(ABC):
    """What hubs share that are looked at again and again while somebody waits."""

    PAUSES = (0.1, 0.1)
    """Seconds between two looks: at first, at most."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    @abstractmethod
    def has_more(self, after: str) -> bool:
        """True if there may be an event after a position."""

    def wait(self, after: str, timeout: float) -> bool:
        """Look at it, less and less often."""
        deadline = time.monotonic() + timeout
        pause, most = self.PAUSES
        while not self.has_more(after):
            left = deadline - time.monotonic()
            if left <= 0 or self._closed.wait(min(pause, left)):
                return False
            pause = min(1.4 * pause, most)
        return True

    def close(self) -> None:
        """End what waits; nothing else is held open."""
        self._closed.set()


FORMAT = "skep-hub"


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub that is made of files says of its log."""

    format: str = FORMAT
    version: int = 1
    log: str
    bank: str | None = None


T = TypeVar("T")
H = TypeVar("H", bound=Heading)


def read_heading(content: bytes, kind: type[H], where: str) -> H:
    """The heading of a hub."""
    try:
        found = msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise SyncError(f"{where} holds no hub of skep ({error}); choose another place") from error
    if found.format != FORMAT:
        raise SyncError(f"{where} holds no hub of skep; choose another place")
    if found.version > 1:
        raise SyncError(f"the hub at {where} was made by a newer skep; update to use it")
    return found


def position_of(log: str, place: object) -> str:
    """A place in a log, as a position."""
    return msgspec.json.encode((log, place)).decode()


def place_of(position: str, log: str, start: T, kind: Any = int) -> T:
    """The place of some kind that a position names; `start` if it names none, or belongs to another log."""
    try:
        name, place = msgspec.json.decode(position, type=tuple[str, kind])
    except msgspec.DecodeError:
        return start
    return place if name == log else start


@contextlib.contextmanager
def alone(folder: Path, seconds: float) -> Generator[None]:
    """The lock of a folder; a `HubAwayError` if it is not had in time."""
    with Holding(str(folder), seconds) as lock:
        if not lock.held:
            raise HubAwayError(f"another program keeps {folder} locked; look for a stuck process")
        yield


class SnapshotNote(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub keeps beside a snapshot."""

    seen: Versions
    position: str


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """An event as one line of JSON, without its place in the sender's log."""
    return _ENCODER.encode(event if event.seq == 0 else msgspec.structs.replace(event, seq=0))


def decode(line: bytes | str) -> Event:
    """An event from its line of JSON."""
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError as error:
        raise CorruptBankError(f"a hub holds an event that cannot be read ({error})") from error


def dots(events: Iterable[Event]) -> Versions:
    """The events as ranges of counters per actor."""
    return Versions.of((event.actor, event.counter) for event in events)


def outlived(snapshot: Versions | None, erasing: Iterable[Event]) -> bool:
    """True if there is no snapshot, or one that was made after all that erases, so that it cannot hold the text."""
    return snapshot is None or all(
        (event.actor, event.counter) in snapshot for event in erasing if event.kind == "forget"
    )
