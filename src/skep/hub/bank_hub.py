"""BankHub: a bank as the hub of others. What `skep serve` offers over HTTP, and `skep sync serve` over ssh.

`hub_calls` answers through it. The bank's own log is the log that is shared; it takes events as from any replica.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from uuid import uuid4

import msgspec

from skep.bank.bank import Bank
from skep.errors import InvalidInputError, SyncError
from skep.hub.hub import BATCH, Batch, HubStatus, PollingHub, SnapshotNote, outlived, place_of, position_of
from skep.model import Event
from skep.replication.exchange import seen, take, without_position
from skep.replication.version_vectors import Versions


class BankHub(PollingHub):
    """A bank as a log that others share. See `Hub` for the promises."""

    def __init__(self, bank: Bank) -> None:
        super().__init__()
        self._bank = bank
        self._engine = bank.engine
        self.url = f"file://{bank.file}" if bank.file else ":memory:"

    @property
    def log(self) -> str:
        """The name of the log. A file that was put back, or copied, is another one."""
        return f"{self._engine.identity()}.{self._bank.actor}"

    def append(self, events: Sequence[Event]) -> None:
        """Take events in; they are on the disk when this returns."""
        take(self._bank, events)

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, in the order in which they came."""
        log, start = self.log, self.number(after)
        found = list(islice(self._engine.log.after(start, min(limit, BATCH)), limit))
        position = position_of(log, found[-1].seq if found else start)
        return Batch(events=tuple(map(without_position, found)), position=position, log=log)

    def number(self, position: str) -> int:
        """The place in the log that a position names; 0 if it is of another log."""
        number = place_of(position, self.log, 0)
        return number if 0 <= number <= self._engine.log.last_seq() else 0

    def has_more(self, after: str) -> bool:
        """True if the log has become longer."""
        return self._engine.log.last_seq() > self.number(after)

    def held(self) -> Versions:
        """The events of the bank."""
        return seen(self._bank)

    def status(self) -> HubStatus:
        """The bank, its size and its snapshot."""
        note = self._note()
        return HubStatus(
            url=self.url,
            bank=self._engine.note("claimed") or (self._engine.identity() if self._bank.versions() else None),
            log=self.log,
            events=self._engine.log.last_seq(),
            snapshot=note and note.seen,
        )

    def claim(self, bank: str) -> str:
        """An empty bank becomes a replica of the one that is named; any other is what it is."""
        with self._engine.transaction():
            known = self.status().bank
            if known is None:
                self._engine.set_note("claimed", bank)
        return known or bank

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Keep a file beside the bank."""
        there = self.snapshot_file()
        beside = there.with_name(f"{there.name}.{uuid4().hex}.partial")
        try:
            shutil.copyfile(source, beside)
            with self._engine.transaction():
                os.replace(beside, there)
                note = SnapshotNote(seen=seen, position=position)
                self._engine.set_note("snapshot", msgspec.json.encode(note).decode())
        finally:
            beside.unlink(missing_ok=True)

    def get_snapshot(self, target: Path) -> str | None:
        """Copy the file."""
        with self._engine.transaction():
            note = self._note()
            if note is not None:
                shutil.copyfile(self.snapshot_file(), target)
        return note and note.position

    def snapshot_part(self, offset: int, size: int) -> tuple[str | None, bytes]:
        """A part of the snapshot, and the position that belongs to it; None if there is none."""
        with self._engine.transaction():
            note = self._note()
            if note is None:
                return None, b""
            with self.snapshot_file().open("rb") as file:
                file.seek(offset)
                return note.position, file.read(size)

    def upload(self, name: str) -> Path:
        """Where the parts of a snapshot are gathered that is being sent."""
        if not (len(name) == 32 and name.isascii() and name.isalnum()):
            raise InvalidInputError("a part of a snapshot needs the name of its upload", field="name")
        there = self.snapshot_file()
        return there.with_name(f"{there.name}.{name}.partial")

    def erase(self, events: Sequence[Event]) -> None:
        """The bank has carried out each `forget` when it took it; what is left is the snapshot."""
        note = self._note()
        if note is not None and not outlived(note.seen, events):
            with self._engine.transaction():
                self._engine.set_note("snapshot", "")
                self.snapshot_file().unlink(missing_ok=True)
        if self._bank.file is not None:
            for begun in self._bank.file.parent.glob(f"{self.snapshot_file().name}.*.partial"):
                begun.unlink(missing_ok=True)  # whoever sends it has to begin anew

    def snapshot_file(self) -> Path:
        """Where the snapshot lies."""
        if self._bank.file is None:
            raise SyncError("a bank in memory keeps no snapshot; serve one in a file")
        return self._bank.file.with_name(f"{self._bank.file.name}.snapshot")

    def _note(self) -> SnapshotNote | None:
        kept = self._engine.note("snapshot")
        there = kept and self._bank.file is not None and self.snapshot_file().exists()
        return msgspec.json.decode(kept, type=SnapshotNote) if kept and there else None
