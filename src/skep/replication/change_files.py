"""Changes in a file, for replicas that never meet.

A file of JSON lines: a header with what the writer has seen, one event per line, and a last line with the count and a
checksum. It is checked as a whole before anything is taken, so a damaged or cut file changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from skep.errors import NotFoundError, SyncError
from skep.model import Event
from skep.replication.exchange import (
    BATCH,
    Replica,
    Transfer,
    forgets_first,
    lacking,
    seen,
    take,
    without_position,
)
from skep.replication.signatures import Keyring
from skep.replication.version_vectors import Versions
from skep.storage.bank_export import write_lines

FORMAT = "skep-changes"
VERSION = 1
Progress = Callable[[int, int], None]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str = FORMAT
    version: int = VERSION
    actor: str
    seen: Versions
    """Events that the writer has seen; the reader can answer with exactly what the writer lacks."""
    since: Versions = Versions()


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """The last line."""

    events: int
    checksum: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

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
    target, known, mine = Path(path), since or Versions(), seen(replica)
    total = mine.minus(known).count()

    def lines() -> Iterator[bytes]:
        digest, count = blake2b(digest_size=16), -1
        for count, line in enumerate(_lines(replica, mine, known, sign)):
            digest.update(line + b"\n")
            yield line
            if progress is not None and count and count % 1000 == 0:
                progress(min(count, total), total)
        yield msgspec.json.encode(Footer(events=count, checksum=digest.hexdigest()))

    count = write_lines(target, lines()) - 2
    return Written(path=str(target), events=count, bytes=target.stat().st_size)


def _lines(
    replica: Replica, mine: Versions, known: Versions, sign: Callable[[Event], Event] | None
) -> Iterator[bytes]:
    yield msgspec.json.encode(Header(actor=replica.actor, seen=mine, since=known))
    for event in lacking(replica, known):
        bare = without_position(event)
        own = sign is not None and bare.actor == replica.actor and bare.signature is None
        yield msgspec.json.encode(sign(bare) if own and sign is not None else bare)


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
