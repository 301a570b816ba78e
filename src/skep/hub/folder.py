"""FolderHub (`file://`): a log in a plain folder on a disk or a network share, or in one that a service copies.

Opened by `hub_urls`. Each machine appends to a file of its own, so that services that copy folders (Syncthing, Dropbox)
never have two versions of one file; should they make a second copy all the same, it is read like any other.

::

    hub.json         the name of the log, and the bank it belongs to
    log/HOST.jsonl   a first line with the number of the writing, then one event per line
    snapshot.json    what is in the snapshot, and the name of its file
    lock             held while something is written
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import msgspec

from skep.errors import DiskFullError, HubAwayError, ReadOnlyError, SkepError
from skep.hub.hub import (
    AWAY_SECONDS,
    BATCH,
    Batch,
    Heading,
    HubStatus,
    PollingHub,
    SnapshotNote,
    alone,
    encode,
    outlived,
    place_of,
    position_of,
    read_heading,
)
from skep.index.segment_files import sync_folder
from skep.model import Event
from skep.replication.version_vectors import Versions

Positions = dict[str, tuple[str, int]]
"""Per file the number of its writing, and the bytes that were read."""


class FileSnapshot(SnapshotNote, frozen=True, kw_only=True):
    """The content of `snapshot.json`."""

    file: str


class _Dot(msgspec.Struct):
    actor: str
    counter: int


_EVENT = msgspec.json.Decoder(Event)
_DOT = msgspec.json.Decoder(_Dot)


class FolderHub(PollingHub):
    """A log in a folder. See `Hub` for the promises."""

    def __init__(self, folder: Path, *, writer: str = "") -> None:
        """Open a hub, creating it where its folder is empty or missing.

        Args:
            folder: The folder; the one above it must be there.
            writer: The name of the file that this machine appends to; by default its host name.
        """
        super().__init__()
        self._folder = folder
        self._log = folder / "log"
        self._own = self._log / f"{re.sub(r'[^A-Za-z0-9-]', '-', writer or socket.gethostname())}.jsonl"
        with self._errors():
            if not (folder / "hub.json").exists():
                self._create()
        self._heading()

    @classmethod
    def open(cls, url: str) -> FolderHub:
        """From `file:///path`."""
        from skep.hub.hub_urls import path_of

        return cls(Path(path_of(url)))

    @property
    def url(self) -> str:
        """The address."""
        return f"file://{self._folder}"

    # The log

    def append(self, events: Sequence[Event]) -> None:
        """Store events; they are on the disk when this returns."""
        if not events:
            return
        with self._errors(), alone(self._folder, AWAY_SECONDS):
            self._heading()
            whole = self._own.exists() and self._own.stat().st_size > 0
            with self._own.open("ab") as file:
                lines = [] if whole else [_first_line()]
                if whole and not _ends_with_a_line(
                    self._own
                ):  # an append that was cut off, never acknowledged
                    lines.append(b"\n")
                file.write(b"".join([*lines, *(encode(event) + b"\n" for event in events)]))
                file.flush()
                os.fsync(file.fileno())
            if not whole:
                sync_folder(str(self._log))

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, file by file."""
        with self._errors():
            heading = self._heading()
            places = dict(place_of(after, heading.log, Positions(), Positions))
            found: list[Event] = []
            for path in self._files():
                with path.open("rb") as file:
                    writing, offset = _begin(file, places.get(path.name))
                    for line in _lines(file):
                        if len(found) == limit:
                            break
                        offset += len(line)
                        with contextlib.suppress(msgspec.DecodeError):  # `status` tells of it
                            found.append(_EVENT.decode(line))
                    places[path.name] = (writing, offset)
                if len(found) == limit:
                    break
        position = position_of(heading.log, places)
        return Batch(events=tuple(found), position=position, log=heading.log)

    def has_more(self, after: str) -> bool:
        """True if a file has become longer, or was written anew."""
        with self._errors():
            places = place_of(after, self._heading().log, Positions(), Positions)
            for path in self._files():
                place = places.get(path.name)
                if place is not None and path.stat().st_size == place[1]:
                    continue
                with path.open("rb") as file:
                    _begin(file, place)
                    if next(_lines(file), None) is not None:
                        return True
        return False

    def held(self) -> Versions:
        """The events of every file."""
        with self._errors():
            return Versions.of((dot.actor, dot.counter) for dot in self._dots() if dot is not None)

    # The bank and its snapshot

    def status(self) -> HubStatus:
        """The bank it belongs to, its size and its snapshot."""
        with self._errors():
            heading = self._heading()
            stored = list(self._dots())
            snapshot = self._snapshot()
        damaged = stored.count(None)
        return HubStatus(
            url=self.url,
            bank=heading.bank,
            log=heading.log,
            events=len(stored) - damaged,
            snapshot=None if snapshot is None else snapshot.seen,
            note=f"{damaged} damaged lines were passed over; the replicas offer again what is missing"
            if damaged
            else "",
        )

    def claim(self, bank: str) -> str:
        """Say which bank this log belongs to, if nobody has."""
        with self._errors(), alone(self._folder, AWAY_SECONDS):
            heading = self._heading()
            if heading.bank is None:
                heading = msgspec.structs.replace(heading, bank=bank)
                self._put("hub.json", msgspec.json.encode(heading))
        return heading.bank or bank

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Copy a file beside the log, then name it."""
        with self._errors(), alone(self._folder, AWAY_SECONDS):
            before = self._snapshot()
            name = f"snapshot-{uuid4().hex}.bin"
            shutil.copyfile(source, self._folder / name)
            _sync(self._folder / name)
            note = FileSnapshot(seen=seen, position=position, file=name)
            self._put("snapshot.json", msgspec.json.encode(note))
            if before is not None:
                (self._folder / before.file).unlink(missing_ok=True)

    def get_snapshot(self, target: Path) -> str | None:
        """Copy the snapshot to a file."""
        with self._errors():
            while (note := self._snapshot()) is not None:
                try:
                    shutil.copyfile(self._folder / note.file, target)
                except FileNotFoundError:  # replaced meanwhile
                    if self._snapshot() == note:
                        return None
                    continue
                return note.position
        return None

    def erase(self, events: Sequence[Event]) -> None:
        """Write every file that holds one of the events anew."""
        instead = {(event.actor, event.counter): event for event in events}
        with self._errors(), alone(self._folder, AWAY_SECONDS):
            snapshot = self._snapshot()
            if snapshot is not None and not outlived(snapshot.seen, events):
                (self._folder / "snapshot.json").unlink()
                sync_folder(str(self._folder))
                (self._folder / snapshot.file).unlink(missing_ok=True)
            for path in self._files():
                self._rewrite(path, instead)

    # Files

    def _create(self) -> None:
        self._folder.mkdir(exist_ok=True)
        with alone(self._folder, AWAY_SECONDS):
            self._log.mkdir(exist_ok=True)
            if not (self._folder / "hub.json").exists():
                self._put("hub.json", msgspec.json.encode(Heading(log=uuid4().hex)))

    def _heading(self) -> Heading:
        try:
            return read_heading((self._folder / "hub.json").read_bytes(), Heading, str(self._folder))
        except FileNotFoundError:
            raise HubAwayError(
                f"there is no hub in {self._folder} any more; is the disk or share mounted?"
            ) from None

    def _files(self) -> list[Path]:
        return sorted(self._log.glob("*.jsonl"))

    def _dots(self) -> Iterator[_Dot | None]:
        for path in self._files():
            with path.open("rb") as file:
                _begin(file, None)
                for line in _lines(file):
                    try:
                        yield _DOT.decode(line)
                    except msgspec.DecodeError:
                        yield None

    def _snapshot(self) -> FileSnapshot | None:
        try:
            return msgspec.json.decode((self._folder / "snapshot.json").read_bytes(), type=FileSnapshot)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _rewrite(self, path: Path, instead: dict[tuple[str, int], Event]) -> None:
        kept: list[bytes] = []
        changed = False
        with path.open("rb") as file:
            _begin(file, None)
            for line in _lines(file):
                try:
                    dot = _DOT.decode(line)
                except msgspec.DecodeError:  # it may hold a part of the text
                    changed = True
                    continue
                event = instead.get((dot.actor, dot.counter))
                new = line if event is None else encode(event) + b"\n"
                changed = changed or new != line
                kept.append(new)
        if changed:
            self._put(f"log/{path.name}", b"".join([_first_line(), *kept]))

    def _put(self, name: str, content: bytes) -> None:
        """Write a file whole, in the place of the one before."""
        target = self._folder / name
        beside = target.with_name(f"{target.name}.{uuid4().hex}.partial")
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        sync_folder(str(target.parent))

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except SkepError:
            raise
        except OSError as error:
            why = f"the hub in {self._folder} cannot be used ({error.strerror or error})"
            if error.errno == errno.ENOSPC:
                raise DiskFullError(
                    f"{why}; free some space there and sync again: nothing was lost"
                ) from error
            if isinstance(error, PermissionError):
                raise ReadOnlyError(f"{why}; check the permissions of the folder") from error
            raise HubAwayError(f"{why}; is the disk or share mounted?") from error


def _first_line() -> bytes:
    """Before the events of a file: another number each time the file is written anew."""
    return msgspec.json.encode({"writing": uuid4().hex}) + b"\n"


def _begin(file: BinaryIO, place: tuple[str, int] | None) -> tuple[str, int]:
    """Go to a place in a file, or to its first event if it was written anew or cut since; the place it then is at."""
    first = file.readline()
    try:
        writing = str(msgspec.json.decode(first, type=dict[str, str])["writing"])
    except (msgspec.DecodeError, KeyError):
        writing = ""
    offset = len(first) if first.endswith(b"\n") else 0
    if place is not None and place[0] == writing and offset <= place[1] <= os.fstat(file.fileno()).st_size:
        offset = place[1]
    file.seek(offset)
    return writing, offset


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The whole lines from here on; a last one without an end is being written."""
    for line in file:
        if not line.endswith(b"\n"):
            return
        yield line


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
