"""Methods about the bank as a whole: settings, replication, export, backup, status, doctor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skep.engine import Engine, Progress
from skep.engine.forgetting import clean_derived, forget_in_backups
from skep.errors import InvalidInputError, NotFoundError
from skep.facade.base import BULK, Base
from skep.model import Event
from skep.storage.counts import counts
from skep.storage.doctor import Finding, examine, mend
from skep.storage.sqlite import Applied
from skep.storage.transfer import batches, export_lines, read_lines
from skep.validation import clean_text


class BankStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a bank is doing."""

    path: str | None
    memories: int
    """Those a recall may return."""
    pending: int
    by_status: dict[str, int]
    by_kind: dict[str, int]
    events: int
    links: int
    actor: str
    embedder: str
    reembedding: int
    """How many memories still have to be embedded by a new model; recall uses the old one until then."""
    embed_error: str | None
    size_bytes: int
    index_bytes: int
    versions: dict[str, int]
    schema: int
    held: int


class Whole(Base):
    """Settings, versions, events, apply, status, export, import_, backup, reembed, doctor, mend."""

    @property
    def file(self) -> Path | None:
        """Where it is kept; None for a bank in memory."""
        return self._engine.store.path

    def setting(self, key: str) -> Any:
        """A setting kept in the bank; None if it is not set."""
        return self._engine.store.setting(key)

    def settings(self, prefix: str = "") -> dict[str, Any]:
        """Every setting whose key starts with a prefix."""
        return self._engine.store.settings_under(prefix)

    def set_setting(self, key: str, value: Any) -> Event:
        """Keep a value in the bank, in the log like everything else; the last writer wins. None removes it."""
        return self._write(
            "setting", {"key": clean_text("key", key, 500), "value": msgspec.to_builtins(value)}
        )

    def versions(self) -> dict[str, int]:
        """Per actor, the counter up to which every event is here."""
        return self._engine.store.log.versions()

    def events(self, since: Mapping[str, int] | None = None) -> Iterator[Event]:
        """The events that a replica with these versions lacks."""
        return self._engine.store.log.lacking(since or {})

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, the counters of events that are here although some before them are not."""
        return self._engine.store.log.scattered()

    def events_in(self, ranges: Mapping[str, Sequence[tuple[int, int]]]) -> Iterator[Event]:
        """The events whose counters lie in the ranges (both ends included), per actor in order."""
        return self._engine.store.log.ranges(ranges)

    def apply(self, events: Iterable[Event], *, partial: bool = False) -> Applied:
        """Take events of another replica; each counts once, whatever the order.

        Events with a gap before them wait until it is filled; with `partial`, for copies of single memories,
        they count at once.
        """
        self._engine.embeddings.adopt()
        applied = self._engine.store.apply(
            events, now=self._engine.now(), embed=self._engine.embeddings.in_place, partial=partial
        )
        clean_derived(self._engine, applied.forgotten_rows)
        if applied.forgotten:
            forget_in_backups(self._engine, applied.forgotten)
        self._engine.embeddings.work()
        return applied

    def status(self) -> BankStatus:
        """Counts, sizes, the embedder and its backlog."""
        return _status(self._engine)

    def export(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
        """Write everything to a file of JSON lines, links and history included; the number of events."""
        target = Path(path)
        partial = target.with_name(target.name + ".partial")
        total = self._engine.store.log.last_seq()
        count = -1
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            for line in export_lines(self._engine.store):
                file.write(line + b"\n")
                count += 1
                if progress is not None and count % 1000 == 0:
                    progress(max(0, count), total)
        os.replace(partial, target)
        return count

    def export_lines(self) -> Iterator[bytes]:
        """The lines of an export."""
        return export_lines(self._engine.store)

    def import_preview(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """What importing a file would bring, without doing it."""
        mine = self.versions()
        with Path(path).open("rb") as file:
            events = list(read_lines(file, where=Path(path).name))
        new = sum(event.counter > mine.get(event.actor, 0) for event in events)
        return {"new": new, "known": len(events) - new}

    def import_(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Applied:
        """Take in an export; what is already here is left as it is. A damaged file changes nothing."""
        source = Path(path)
        if not source.is_file():
            raise NotFoundError(f"there is no file {source}")
        with source.open("rb") as file:
            events = list(read_lines(file, where=source.name))
        done = Applied()
        for number, group in enumerate(batches(events, BULK)):
            applied = self.apply(group)
            done = Applied(
                new=done.new + applied.new,
                known=done.known + applied.known,
                held=applied.held,
                erased=applied.erased,
            )
            if progress is not None:
                progress(min(len(events), (number + 1) * BULK), len(events))
        return done

    def backup(self, path: str | os.PathLike[str]) -> Path:
        """Copy the bank to a file while it is in use; `forget` reaches the copy too."""
        target = Path(path)
        if self.file is not None and target.resolve() == self.file.resolve():
            raise InvalidInputError(
                "a bank cannot be backed up onto itself; choose another path", field="path"
            )
        if target.exists() and target.resolve() not in self._engine.store.backups():
            raise InvalidInputError(
                f"{target} exists and is no backup this bank has made; choose another path or move it",
                field="path",
            )
        self._engine.store.backup(target, self._engine.now())
        return target

    def reembed(self, progress: Progress | None = None) -> int:
        """Embed everything that waits, with a new model or after failures; how many were embedded."""
        return self._engine.embeddings.drain(progress)

    def doctor(self, *, deep: bool = False) -> list[Finding]:
        """What was looked at, what is wrong, and how to mend it."""
        return [*examine(self._engine.store, deep=deep), *_index_findings(self._engine)]

    def mend(self) -> list[str]:
        """Rebuild from the log what can be rebuilt; what was done."""
        done = mend(self._engine.store)
        self._engine.index.drop()
        self._engine.index.refresh()
        return [*done, "rebuilt the index of words and vectors"]


def _index_findings(engine: Engine) -> list[Finding]:
    engine.index.refresh()
    stats = engine.index.stats()
    rows = engine.store.size()
    if stats.rows == rows:
        return [
            Finding(
                check="index",
                level="ok",
                message=f"{rows} memories in {stats.segments} segments and the tail",
            )
        ]
    return [
        Finding(
            check="index",
            level="error",
            message=f"the index knows {stats.rows} of {rows} memories",
            fix="skep doctor --mend",
        )
    ]


def _status(engine: Engine) -> BankStatus:
    found = counts(engine.store)
    space = engine.store.active_space()
    building = engine.store.building_space()
    return BankStatus(
        path=str(engine.store.path) if engine.store.path else None,
        memories=found.by_status.get("active", 0) + found.by_status.get("pending", 0),
        pending=found.by_status.get("pending", 0),
        by_status=found.by_status,
        by_kind=found.by_kind,
        events=found.events,
        links=found.links,
        actor=engine.store.actor,
        embedder=space.fingerprint if space else engine.embeddings.embedder.fingerprint,
        reembedding=engine.store.vectors.waiting(building.number) if building else 0,
        embed_error=engine.embeddings.last_error(),
        size_bytes=found.size_bytes,
        index_bytes=found.index_bytes,
        versions=engine.store.log.versions(),
        schema=found.schema,
        held=found.held,
    )
