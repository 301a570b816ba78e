"""The calls of a hub as messages: what is asked, what is answered, and the client that asks.

`skep serve` and `skep sync serve` answer with `answer`; `https` and `ssh` ask through `CallingHub`. Messages are JSON.
A snapshot travels in parts.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec

from skep.errors import InvalidInputError, NotFoundError, SyncError
from skep.hub.bank_hub import BankHub
from skep.hub.hub import BATCH, START, Batch, HubStatus, encode
from skep.model import Event
from skep.replication.version_vectors import Versions

PART = 1 << 22
"""Bytes of a snapshot in one message."""
FULL = 8 << 20
"""Bytes of events in one message, about."""
WAIT_SECONDS = 25.0
"""The longest wait in one call; whoever waits longer asks again."""
READING = frozenset({"status", "held", "read", "wait", "get_part"})
"""Calls that change nothing."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of a call."""

    after: str = START
    limit: int = BATCH
    timeout: float = 0.0
    events: tuple[Event, ...] = ()
    bank: str = ""
    seen: Versions = Versions()
    position: str = ""
    name: str = ""
    offset: int = 0
    content: bytes = b""


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a call."""

    status: HubStatus | None = None
    batch: Batch | None = None
    held: Versions = Versions()
    bank: str = ""
    more: bool = False
    position: str | None = None
    content: bytes = b""


def read_asked(body: bytes) -> Asked:
    """The arguments in a message."""
    try:
        return msgspec.json.decode(body, type=Asked)
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"the message to the hub cannot be read ({error})") from error


def answer(hub: BankHub, call: str, asked: Asked) -> Answered:
    """Carry out a call."""
    match call:
        case "status":
            return Answered(status=hub.status())
        case "claim":
            return Answered(bank=hub.claim(asked.bank))
        case "append":
            hub.append(asked.events)
        case "read":
            return Answered(batch=hub.read(asked.after, max(1, asked.limit)))
        case "wait":
            return Answered(more=hub.wait(asked.after, min(asked.timeout, WAIT_SECONDS)))
        case "held":
            return Answered(held=hub.held())
        case "erase":
            hub.erase(asked.events)
        case "put_part":
            with hub.upload(asked.name).open("r+b" if asked.offset else "wb") as file:
                file.seek(asked.offset)
                file.write(asked.content)
        case "put_snapshot":
            source = hub.upload(asked.name)
            try:
                hub.put_snapshot(source, asked.seen, asked.position)
            finally:
                source.unlink(missing_ok=True)
        case "get_part":
            position, content = hub.snapshot_part(asked.offset, PART)
            return Answered(position=position, content=content)
        case _:
            raise NotFoundError(f"a hub has no call {call!r}; is the other skep a newer one?")
    return Answered()


class CallingHub(ABC):
    """A hub that is asked by messages. See `Hub` for the promises."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._closed = threading.Event()

    @abstractmethod
    def ask(self, call: str, asked: Asked) -> Answered:
        """Send a call, and wait for its answer."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds, and end what waits."""

    def append(self, events: Sequence[Event]) -> None:
        """Store events; they are on the disk there when this returns."""
        for group in _messages(events):
            self.ask("append", Asked(events=group))

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position."""
        batch = self.ask("read", Asked(after=after, limit=limit)).batch
        if batch is None:
            raise SyncError(f"{self.url} answered without events; is it a skep of another version?")
        return batch

    def wait(self, after: str, timeout: float) -> bool:
        """Wait there, in one call or several."""
        while True:
            step = min(timeout, WAIT_SECONDS)
            if self.ask("wait", Asked(after=after, timeout=step)).more:
                return True
            timeout -= step
            if timeout <= 0 or self._closed.is_set():
                return False

    def held(self) -> Versions:
        """The events that it has."""
        return self.ask("held", Asked()).held

    def status(self) -> HubStatus:
        """The bank it belongs to, its size and its snapshot."""
        found = self.ask("status", Asked()).status
        if found is None:
            raise SyncError(f"{self.url} does not say what it holds; is it a skep of another version?")
        return msgspec.structs.replace(found, url=self.url)

    def claim(self, bank: str) -> str:
        """Say which bank this log belongs to, if nobody has."""
        return self.ask("claim", Asked(bank=bank)).bank

    def erase(self, events: Sequence[Event]) -> None:
        """Put events without text in the place of the stored ones."""
        self.ask("erase", Asked(events=tuple(events)))

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Send a file in parts, then name it."""
        name = uuid4().hex
        with source.open("rb") as file:
            offset = 0
            while (content := file.read(PART)) or not offset:
                self.ask("put_part", Asked(name=name, offset=offset, content=content))
                offset += len(content)
                if not content:
                    break
        self.ask("put_snapshot", Asked(name=name, seen=seen, position=position))

    def get_snapshot(self, target: Path) -> str | None:
        """Fetch the parts; from the start again if the snapshot was replaced meanwhile."""
        position: str | None = None
        with target.open("wb") as file:
            while True:
                part = self.ask("get_part", Asked(offset=file.tell()))
                if part.position is None:
                    return None
                if file.tell() and part.position != position:
                    file.seek(0)
                    file.truncate()
                    continue
                position = part.position
                file.write(part.content)
                if len(part.content) < PART:
                    return position


def _messages(events: Sequence[Event]) -> Iterator[tuple[Event, ...]]:
    """Events in groups that one message holds."""
    group: list[Event] = []
    size = 0
    for event in events:
        length = len(encode(event))
        if group and size + length > FULL:
            yield tuple(group)
            group, size = [], 0
        group.append(event)
        size += length
    if group:
        yield tuple(group)
