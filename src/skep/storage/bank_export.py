"""Export and import as JSON lines that carry everything, and files that appear complete or not at all.

The bank's verbs write exports and backups through `unfinished`: several processes may make the same file at a time.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from skep.errors import InvalidInputError
from skep.model import Event
from skep.storage.sqlite_store import SqliteStore

ENDING = ".partial"


@contextlib.contextmanager
def unfinished(
    target: Path, alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
) -> Generator[Path]:
    """An empty file beside the target, private to its owner, that takes the target's place when the block is over.

    That happens within `alone`, which keeps off whoever might open the old one. Each maker has one of its own, and
    holds its lock. Those without a maker were left by one that was killed; they may hold texts, and go with the next.
    """
    clear(target)
    descriptor, partial = _begun(target)
    try:
        yield partial
        os.fsync(descriptor)
        if os.name == "nt":  # where what is open cannot be renamed
            os.close(descriptor)
            descriptor = -1
        with alone():
            os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def clear(target: Path) -> None:
    """Remove unfinished files of a target whose makers are gone."""
    for name in glob.glob(glob.escape(str(target)) + ENDING + "-????????"):
        with contextlib.suppress(OSError):  # gone meanwhile, or, where there are no such locks, in use
            descriptor = os.open(name, os.O_RDWR)
            try:
                if _locked(descriptor):
                    os.unlink(name)
                    os.unlink(f"{name}-journal")  # where SQLite was at work
            finally:
                os.close(descriptor)


def _begun(target: Path) -> tuple[int, Path]:
    while True:
        partial = target.with_name(f"{target.name}{ENDING}-{secrets.token_hex(4)}")
        descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        if _locked(descriptor) and partial.exists():
            return descriptor, partial
        os.close(descriptor)  # somebody cleared it away before it was locked


def _locked(descriptor: int) -> bool:
    """Take the lock of a file; False if another holds it. The system gives it back when the process dies."""
    if os.name == "nt":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


FORMAT = "skep-bank"
VERSION = 1


class Header(msgspec.Struct, kw_only=True):
    """The first line of an export."""

    format: str
    version: int
    bank: str
    events: int
    salvaged: bool = False
    """Saved from a damaged bank: events may be missing among those that are there."""


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One event, as it stands in an export."""

    actor: str
    counter: int
    hlc: int
    kind: str
    body: dict[str, Any]
    signature: bytes | None = None


def export_lines(store: SqliteStore) -> Iterator[bytes]:
    """The bank as lines of JSON: a header, then every event in order of arrival."""
    with store.connection.snapshot():
        total = store.connection.one("SELECT count(*) FROM event_log")
    yield msgspec.json.encode(Header(format=FORMAT, version=VERSION, bank=store.bank_id, events=total))
    for event in store.log.after(0):
        yield encode_event(event)


def write_lines(target: Path, lines: Iterable[bytes]) -> int:
    """Write lines to a file that is complete or not there; how many. A pipe or a device is written to as it is."""
    target = target.resolve()  # where a link leads to, not the link, is what is replaced
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            return _written(file, lines)
    with unfinished(target) as partial, partial.open("wb") as file:
        return _written(file, lines)


def _written(file: IO[bytes], lines: Iterable[bytes]) -> int:
    count = 0
    for line in lines:
        file.write(line + b"\n")
        count += 1
    return count


def encode_event(event: Event) -> bytes:
    """One event as a line."""
    return msgspec.json.encode(msgspec.convert(event, Line, from_attributes=True))


def was_salvaged(line: bytes) -> bool:
    """True if an export that begins with this line was saved from a damaged bank."""
    try:
        return msgspec.json.decode(line, type=Header).salvaged
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def read_lines(lines: Iterable[bytes], *, where: str) -> Iterator[Event]:
    """Events from the lines of an export; the first bad line is named, and nothing after it is read."""
    header: Header | None = None
    read = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if header is None:
                header = msgspec.json.decode(line, type=Header)
                if header.format != FORMAT or header.version > VERSION:
                    raise InvalidInputError(
                        f"{where} is {header.format} version {header.version}; this skep reads {FORMAT} up to {VERSION}"
                    )
                continue
            event = msgspec.convert(msgspec.json.decode(line, type=Line), Event, from_attributes=True)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInputError(
                f"{where}, line {number}, is not part of a skep export ({error}); export it again, or import plain"
                " texts with `skep add` or `skep import`"
            ) from error
        read += 1
        yield event
    if header is None:
        raise InvalidInputError(f"{where} is empty; it should begin with a header line")
    if read < header.events:
        raise InvalidInputError(
            f"{where} is cut short: {read} of {header.events} events; nothing was imported"
        )


def batches(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    """Events in groups."""
    stream = iter(events)
    while group := list(islice(stream, size)):
        yield group


Progress = Callable[[int, int], None]
