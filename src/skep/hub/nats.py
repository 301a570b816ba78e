"""NatsHub (`nats://`): a log in a stream of a NATS server with JetStream.

Opened by `hub_urls`. Every event has a subject of its own, and is stored only if nothing is stored there yet. So it is
stored once, however often and late it is sent again; the server's window for duplicates is not relied on. Reading asks
for messages by their number and needs no consumer, so no consumer can fall silent or be left behind. The leader of the
stream says how far a reader must come, so a replica of the stream that lags hides nothing.

::

    nats://ana:password@host:4222/team?replicas=3      the stream SKEP-team, on three servers
    nats://leaf:4222/team?domain=hq                    the same in the domain `hq`, through a leaf of it
    skep.team.events.ACTOR.COUNTER                     one event
    skep.team.bank                                     the bank it belongs to: the first message counts
    skep.team.snapshot                                 the newest message names the stream that holds the snapshot
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from uuid import uuid4

import msgspec

from skep.errors import ConfigError, DiskFullError, HubAwayError, SyncError
from skep.hub.hub import (
    AWAY_SECONDS,
    BATCH,
    START,
    Batch,
    HubStatus,
    SnapshotNote,
    decode,
    encode,
    outlived,
    place_of,
    position_of,
)
from skep.hub.nats_connection import END_OF_BATCH, NatsConnection, StreamError, Told
from skep.model import Event
from skep.replication.version_vectors import Versions

NOT_THERE = 10059
TAKEN = 10071
"""Something is stored on the subject already."""
NO_MESSAGE = 10037
NO_SPACE = (10023, 10047, 10077)
"""Refusals for want of room: memory, storage, the limit of the stream."""
CHUNK = 256 * 1024
AT_ONCE = 256
"""Events that are on their way to the server at the same time."""
PAGE = 100_000
"""Subjects that the server lists in one answer."""
SNAPSHOT_TRIES = 3


class NatsSnapshot(SnapshotNote, frozen=True, kw_only=True):
    """What the newest message on the snapshot's subject says; without a stream there is none."""

    stream: str = ""
    size: int = 0


class NatsHub:
    """A log in a JetStream stream. See `Hub` for the promises."""

    def __init__(self, url: str, *, timeout: float = AWAY_SECONDS) -> None:
        """Open a hub, making its stream where there is none."""
        parts = urlsplit(url)
        name = unquote(parts.path).strip("/")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name):
            raise ConfigError(
                f"the address must end in a name for the bank, letters, digits, '-' and '_': "
                f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/team"
            )
        options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if unknown := options.keys() - {"replicas", "creds", "domain"}:
            raise ConfigError(
                f"{sorted(unknown)[0]!r} is no option of a NATS hub; replicas, creds and domain are"
            )
        if options.get("replicas", "1") not in ("1", "3", "5"):
            raise ConfigError(f"replicas must be 1, 3 or 5, got {options['replicas']!r}")
        self._replicas = int(options.get("replicas", "1"))
        self._name = name
        self._stream = f"SKEP-{name}"
        self._root = f"skep.{name}"
        self._nats = NatsConnection(url, name=f"skep hub {name}", timeout=timeout)
        try:
            self._log()
        except BaseException:
            self._nats.close()
            raise

    @classmethod
    def open(cls, url: str) -> NatsHub:
        """From `nats://host/name` or `tls://host/name`."""
        return cls(url)

    @property
    def url(self) -> str:
        """The address, without any password."""
        return f"{self._nats.url}/{self._name}"

    # The log

    def append(self, events: Sequence[Event]) -> None:
        """Store events; the server has answered for each when this returns."""
        for start in range(0, len(events), AT_ONCE):
            self._store(events[start : start + AT_ONCE])

    def _store(self, events: Sequence[Event], *, instead: bool = False) -> list[int]:
        """Store events, each on its subject; their numbers. With `instead`, beside what is stored there."""
        questions: list[tuple[str, bytes, dict[str, str]]] = []
        for event in events:
            headers = {"Nats-Msg-Id": event.id, "Nats-Expected-Last-Subject-Sequence": "0"}
            if instead:
                headers = {"Nats-Msg-Id": f"{event.id} erased {uuid4().hex}"}
            questions.append((self._subject(event), encode(event), headers))
        numbers: list[int] = []
        for attempt in range(2):
            try:
                for told in self._nats.ask_all(questions):
                    numbers.append(self._acknowledged(told))
                return numbers
            except StreamError as error:
                if error.code != NOT_THERE or attempt:
                    raise
                self._log()  # the stream was lost while this hub was open: begin it anew
                numbers.clear()
        return numbers

    def _acknowledged(self, told: Told) -> int:
        """The number under which a message was stored; 0 if the event was there already."""
        if told.status:  # no stream listens
            raise StreamError(NOT_THERE, "the stream is gone")
        try:
            return int(self._answered(told)["seq"])
        except StreamError as error:
            if error.code == TAKEN:
                return 0
            raise

    def _answered(self, told: Told) -> dict[str, Any]:
        try:
            return self._nats.answered(told)
        except StreamError as error:
            if error.code in NO_SPACE:
                raise DiskFullError(
                    f"the NATS server at {self._nats.url} has no room ({error}); free some there, "
                    "then sync again: nothing was lost"
                ) from error
            raise

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, in the order in which they were stored."""
        log, last = self._log()
        position = place_of(after, log, 0)
        if position > last:  # of another log, or of one that was restored from an older copy
            position = 0
        found: list[Event] = []
        while len(found) < limit and position < last:
            batch = self._messages(self._stream, f"{self._root}.events.>", position + 1, limit - len(found))
            if not batch:  # whoever answered may lag behind the leader
                one = self._from_leader({"seq": position + 1, "next_by_subj": f"{self._root}.events.>"})
                if one is None:
                    position = last  # what was left is nothing of ours: erased, or notes of the hub
                    break
                batch = [one]
            for number, data in batch:
                position = number
                found.append(decode(data))
        return Batch(events=tuple(found), position=position_of(log, position), log=log)

    def _messages(
        self, stream: str, subject: str, first: int, limit: int, *, patience: float | None = None
    ) -> list[tuple[int, bytes]]:
        """Messages of a stream from a number on, each with its number; nothing if there are none."""
        wanted = {"seq": first, "batch": limit, "next_by_subj": subject}
        wait = self._nats.timeout if patience is None else patience
        told = self._nats.collect(
            f"{self._nats.api}.DIRECT.GET.{stream}",
            msgspec.json.encode(wanted),
            lambda one: one.status != 0,
            wait,
        )
        if not told or not told[-1].status:
            raise HubAwayError(f"the NATS server at {self._nats.url} stopped answering; try again")
        if told[-1].status not in (END_OF_BATCH, 404):
            raise HubAwayError(f"stream {stream} cannot be read ({told[-1].headers}); try again")
        return [(int(one.headers["Nats-Sequence"]), one.data) for one in told if not one.status]

    def wait(self, after: str, timeout: float) -> bool:
        """Listen to what is sent to the stream, and look whether it is stored."""
        stirred = threading.Event()
        end = self._nats.subscribe(f"{self._root}.events.>", lambda _told: stirred.set())
        until = time.monotonic() + timeout
        try:
            while True:
                stirred.clear()
                log, last = self._log()
                if last > (position := place_of(after, log, 0)) and self._more(position):
                    return True
                left = until - time.monotonic()
                if left <= 0:
                    return False
                stirred.wait(min(left, 1.0))
                if stirred.is_set():
                    time.sleep(0.002)  # it is told of before it is stored
        finally:
            end()

    def _more(self, position: int) -> bool:
        return bool(self._messages(self._stream, f"{self._root}.events.>", position + 1, 1))

    def held(self) -> Versions:
        """The events by their subjects."""
        return Versions.of(self._dots())

    def _dots(self) -> Iterator[tuple[str, int]]:
        offset = 0
        while True:
            info = self._info(subjects_filter=f"{self._root}.events.>", offset=offset)
            subjects: dict[str, int] = info["state"].get("subjects") or {}
            for subject in subjects:
                actor, counter = subject.split(".")[-2:]
                yield unquote(actor), int(counter)
            offset += len(subjects)
            if len(subjects) < PAGE or offset >= int(info.get("total", 0)):
                return

    # The bank and its snapshot

    def status(self) -> HubStatus:
        """The bank it belongs to, its size and its snapshot."""
        log, _ = self._log()
        note = self._snapshot()
        info = self._info(subjects_filter=f"{self._root}.events.>")
        events = int(info.get("total") or len(info["state"].get("subjects") or {}))
        behind = [peer["name"] for peer in info.get("cluster", {}).get("replicas", []) if not peer["current"]]
        return HubStatus(
            url=self.url,
            bank=self._first("bank"),
            log=log,
            events=events,
            snapshot=None if note is None else note.seen,
            note=f"replicas of the stream are behind: {', '.join(behind)}" if behind else "",
        )

    def claim(self, bank: str) -> str:
        """The first message on a subject counts; the server lets nobody write a second."""
        headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
        with contextlib.suppress(StreamError):
            told = self._nats.ask(f"{self._root}.bank", bank.encode(), headers=headers)
            self._answered(told)
        return self._first("bank") or bank

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Store a file in a stream of its own, then name that stream."""
        before = self._snapshot()
        name = f"{self._stream}-snapshot-{uuid4().hex[:12]}"
        self._make(name, [f"{self._root}.part.{name}"])
        try:
            with source.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                while part := file.read(CHUNK):
                    self._answered(self._nats.ask(f"{self._root}.part.{name}", part))
            note = NatsSnapshot(seen=seen, position=position, stream=name, size=size)
            self._note(note)
        except BaseException:
            self._drop(name)
            raise
        if before is not None:
            self._drop(before.stream)

    def get_snapshot(self, target: Path) -> str | None:
        """Write the snapshot to a file; one that is replaced meanwhile is begun again."""
        for _ in range(SNAPSHOT_TRIES):
            note = self._snapshot()
            if note is None:
                return None
            with contextlib.suppress(StreamError, HubAwayError), target.open("wb") as file:
                number = 0
                while file.tell() < note.size:
                    parts = self._messages(note.stream, ">", number + 1, 16, patience=5.0)
                    if not parts:
                        break
                    file.writelines(data for _, data in parts)
                    number = parts[-1][0]
                if file.tell() == note.size:
                    return note.position
        target.unlink(missing_ok=True)
        raise HubAwayError(f"the snapshot of {self.url} could not be read whole; try again")

    def _snapshot(self) -> NatsSnapshot | None:
        data = self._last("snapshot")
        note = None if data is None else msgspec.json.decode(data, type=NatsSnapshot)
        return note if note is not None and note.stream else None

    def _note(self, note: NatsSnapshot) -> None:
        told = self._nats.ask(f"{self._root}.snapshot", msgspec.json.encode(note))
        self._answered(told)

    def erase(self, events: Sequence[Event]) -> None:
        """Store events without text beside the stored ones, then have the server overwrite those."""
        note = self._snapshot()
        if note is not None and not outlived(note.seen, events):
            self._note(NatsSnapshot(seen=Versions(), position=START))
            self._drop(note.stream)
        for event in events:
            numbers = self._stored(event)
            kept = self._store([event], instead=True)
            for number in numbers:
                if number not in kept:
                    self._overwrite(number)

    def _stored(self, event: Event) -> list[int]:
        """The numbers under which an event is stored."""
        found: list[int] = []
        while batch := self._messages(
            self._stream, self._subject(event), (found[-1] if found else 0) + 1, BATCH
        ):
            found += [number for number, _ in batch]
        return found

    def _overwrite(self, number: int) -> None:
        try:
            self._nats.jetstream(f"STREAM.MSG.DELETE.{self._stream}", {"seq": number, "no_erase": False})
        except StreamError as error:
            if error.code not in (NO_MESSAGE, 10043, 10057):
                raise

    def close(self) -> None:
        """Release the connection."""
        self._nats.close()

    # The stream

    def _subject(self, event: Event) -> str:
        actor = quote(event.actor, safe="").replace(".", "%2E").replace("~", "%7E")
        return f"{self._root}.events.{actor}.{event.counter}"

    def _info(self, **given: Any) -> dict[str, Any]:
        return self._nats.jetstream(f"STREAM.INFO.{self._stream}", given)

    def _log(self) -> tuple[str, int]:
        """The name of the log and the number of its last message; the stream is made where it is missing."""
        try:
            info = self._info()
        except StreamError as error:
            if error.code != NOT_THERE:
                raise
            self._make(self._stream, [f"{self._root}.{part}" for part in ("events.>", "bank", "snapshot")])
            info = self._info()
        metadata: dict[str, str] = info["config"].get("metadata") or {}
        if "skep-log" not in metadata:
            raise SyncError(
                f"stream {self._stream} was not made by skep; choose another name than {self._name}"
            )
        return metadata["skep-log"], int(info["state"]["last_seq"])

    def _make(self, name: str, subjects: list[str]) -> None:
        self._nats.make_stream(
            name,
            subjects,
            num_replicas=self._replicas,
            discard="new",
            allow_direct=True,
            metadata={"skep-log": uuid4().hex},
        )

    def _drop(self, name: str) -> None:
        with contextlib.suppress(StreamError):
            self._nats.jetstream(f"STREAM.DELETE.{name}")

    def _first(self, subject: str) -> str | None:
        found = self._messages(self._stream, f"{self._root}.{subject}", 1, 1)
        return found[0][1].decode() if found else None

    def _last(self, subject: str) -> bytes | None:
        """The newest message on a subject."""
        found = self._from_leader({"last_by_subj": f"{self._root}.{subject}"})
        return None if found is None else found[1]

    def _from_leader(self, wanted: dict[str, Any]) -> tuple[int, bytes] | None:
        """One message and its number, as the leader of the stream has it."""
        try:
            message = self._nats.jetstream(f"STREAM.MSG.GET.{self._stream}", wanted)["message"]
        except StreamError as error:
            if error.code == NO_MESSAGE:
                return None
            raise
        return int(message["seq"]), base64.b64decode(message.get("data") or "")
