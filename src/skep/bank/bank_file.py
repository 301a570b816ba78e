"""Verbs about the bank as a whole: settings, replication, export, backup, status, doctor."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.bank.open_bank import BULK, OpenBank, file_errors
from skep.engine.embeddings import Progress
from skep.engine.engine import Engine
from skep.errors import (
    BankNotFoundError,
    CorruptBankError,
    InvalidInputError,
    NotABankError,
    NotFoundError,
    StorageError,
    WrongTypeError,
)
from skep.events import SettingChanged
from skep.model import Event
from skep.storage.store import Applied
from skep.validation import (
    check_setting,
    clean_call,
    clean_count,
    clean_flag,
    clean_id,
    clean_json,
    clean_mapping,
    clean_path,
    clean_text,
    is_blank,
    listed,
)

if TYPE_CHECKING:
    from pathlib import Path

    from skep.storage.doctor import Finding


SETTING_LIMIT = 1 << 20
"""Bytes of one setting as JSON."""


class BankStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, sizes and the embedder of a bank at one moment."""

    path: str | None
    memories: int
    """Active and pending ones. A recall leaves out those whose time is over, which count here until maintenance."""
    pending: int
    by_status: dict[str, int]
    by_kind: dict[str, int]
    events: int
    links: int
    actor: str
    embedder: str
    reembedding: int
    """The number of memories that still have to be embedded by a new model; recall uses the old one until then."""
    embed_error: str | None
    size_bytes: int
    index_bytes: int
    versions: dict[str, int]
    schema: int
    held: int


class FileVerbs(OpenBank):
    """Settings, versions, events, apply, status, export, import_, backup(s), reembed, doctor, mend."""

    @property
    def file(self) -> Path | None:
        """The path of the file; None for a bank in memory."""
        return self._engine.path

    def setting(self, key: str) -> Any:
        """A setting kept in the bank; None if it is not set."""
        return self._engine.setting(clean_text("key", key, 500))

    def settings(self, prefix: str = "") -> dict[str, Any]:
        """Every setting whose key starts with a prefix."""
        return self._engine.settings_under("" if is_blank(prefix) else clean_text("prefix", prefix, 500))

    def set_setting(self, key: str, value: Any) -> Event:
        """Keep a value in the bank, in the log like everything else; the last writer wins. None removes it.

        Of the names that skep reads (`conflict/policy`, `recall/config`, `redact/kinds` …) a wrong one is refused; a
        name that begins otherwise is yours.
        """
        key = clean_text("key", key, 500)
        check_setting(key, value)
        return self._write(SettingChanged(key=key, value=clean_json("value", value, SETTING_LIMIT)))

    def versions(self) -> dict[str, int]:
        """Per actor, the counter up to which every event is here."""
        return self._engine.log.versions()

    def events(self, since: Mapping[str, int] | None = None) -> Iterator[Event]:
        """The events that a replica with these versions lacks."""
        have: Mapping[str, Any] = {} if since is None else clean_mapping("since", since)
        versions = {actor: clean_count("since", counter, 0, 1 << 53) for actor, counter in have.items()}
        return self._engine.log.lacking(versions)

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, the counters of events that are here although some before them are not."""
        return self._engine.log.scattered()

    def events_in(self, ranges: Mapping[str, Sequence[tuple[int, int]]]) -> Iterator[Event]:
        """The events whose counters lie in the ranges (both ends included), per actor in order."""
        return self._engine.log.ranges(_clean_ranges(ranges))

    def approve(self, memory_id: str) -> Event:
        """Say, as a person, that a memory that addresses the model may go into prompts unasked, as it reads now.

        Without this, what says "ignore all previous instructions" is found when it is asked for, with a warning, and
        goes into no prompt by itself. The approval ends when the memory says something else, and does not travel.
        """
        from skep.text.model_instructions import APPROVED, digest_of

        memory = self._engine.memory(clean_id(memory_id))
        digest = digest_of(f"{memory.title or ''}\n{memory.text}")
        return self.set_setting(APPROVED + memory.id, digest)

    def apply(self, events: Iterable[Event], *, partial: bool = False) -> Applied:
        """Take events of another replica; each counts once, whatever the order.

        Events with a gap before them wait until it is filled; with `partial`, for copies of single memories,
        they count at once.
        """
        clean_flag("partial", partial)
        events = clean_events(events)
        self._engine.embeddings.adopt()
        applied = self._engine.apply(
            events, now=self._engine.now(), embed=self._engine.embeddings.in_place, partial=partial
        )
        from skep.engine.engine import clean_derived, forget_in_backups

        clean_derived(self._engine, applied.forgotten_rows)
        if applied.forgotten:
            forget_in_backups(self._engine, applied.forgotten)
        self._engine.embeddings.work()
        return applied

    def status(self) -> BankStatus:
        """Counts, sizes, the embedder and its backlog."""
        return _status(self._engine)

    def export(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
        """Write everything to a file of JSON lines, links and history included; the number of events.

        An earlier export is replaced, a bank never.
        """
        from skep.storage.bank_export import write_lines

        target = clean_path("path", path)
        clean_call("progress", progress)
        total = self._engine.log.last_seq()

        def lines() -> Iterator[bytes]:
            for count, line in enumerate(self._engine.export_lines()):
                yield line
                if progress is not None and count % 1000 == 0:
                    progress(count, total)

        with file_errors(target):
            refuse_database(target, self.file)
            return write_lines(target, lines()) - 1

    def export_lines(self) -> Iterator[bytes]:
        """The lines of an export."""
        return self._engine.export_lines()

    def import_preview(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """The numbers of new and known events that importing a file would bring, without doing it."""
        mine = self.versions()
        events = _exported(path)
        new = sum(event.counter > mine.get(event.actor, 0) for event in events)
        return {"new": new, "known": len(events) - new}

    def import_(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Applied:
        """Take in an export; what is already here is left as it is. A damaged file changes nothing."""
        from skep.storage.bank_export import batches

        clean_call("progress", progress)
        self.versions()
        events = _exported(path)
        gaps = _salvaged(path)
        done = Applied()
        for number, group in enumerate(batches(events, BULK)):
            applied = self.apply(group, partial=gaps)
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
        """Copy the bank to a file while it is in use; `forget` reaches the copy too.

        A bank that is open for reading alone cannot note where its copies are, so `forget` does not reach those.
        """
        target = clean_path("path", path)
        with file_errors(target):
            if self._engine.frozen:
                raise InvalidInputError(
                    "a view of the past cannot be backed up, because `forget` would not reach the copy; back up the"
                    " bank, or export the view"
                )
            if self.file is not None and _same_file(target, self.file):
                raise InvalidInputError(
                    "a bank cannot be backed up onto itself; choose another path", field="path"
                )
            if target.exists():
                self._refuse_foreign(target)
            known = target.resolve() in self._engine.backups()
            try:
                self._engine.backup(target, self._engine.now())
            except BaseException:
                if not (known or self._engine.read_only or target.exists()):
                    # nothing is there that `forget` would have to reach
                    with contextlib.suppress(StorageError):  # such as a disk that is full
                        self._engine.drop_backup(target.resolve())
                raise
            from skep.engine.engine import forget_meanwhile

            forget_meanwhile(self._engine, target)
        return target

    def backups(self) -> list[Path]:
        """The paths of copies that `forget` looks for."""
        return self._engine.backups()

    def drop_backup(self, path: str | os.PathLike[str]) -> None:
        """Say that a copy was deleted: `forget` looks for it no longer. A copy that is still there stays known."""
        target = clean_path("path", path)
        known = {target.resolve(), target} & set(self.backups())
        if not known:
            raise NotFoundError(f"{target} is no copy that this bank knows of; nothing to strike out")
        if target.exists():
            raise InvalidInputError(
                f"{target} is still there, and `forget` has to reach it; delete it first", field="path"
            )
        for copy in known:
            self._engine.drop_backup(copy)

    def _refuse_foreign(self, target: Path) -> None:
        """Raise unless what a backup would replace is one that this bank has made, and nobody has written to since."""
        from skep.storage.backup import lacking

        try:
            ours = target.resolve() in self._engine.backups()
            with self._engine.alone_with_copies():
                written = ours and lacking(target, self._engine.store)
        except (
            CorruptBankError,
            BankNotFoundError,
        ):  # a sound copy in the place of a damaged one, or of none
            return
        except NotABankError:
            ours = written = False
        if not ours:
            raise InvalidInputError(
                f"{target} exists and is no backup this bank has made; choose another path or move it",
                field="path",
            )
        if written:
            raise InvalidInputError(
                f"{target} was a backup of this bank, but holds by now what this bank does not, which a backup would"
                " destroy; choose another path, or take it in first: export it from there and import it here",
                field="path",
            )

    def reembed(self, progress: Progress | None = None) -> int:
        """Embed everything that waits, with a new model or after failures; how many were embedded.

        It does not wait for the time at which what failed is to be tried again. What is left then, and why, `status`
        says: `pending`, `reembedding` and `embed_error`.
        """
        return self._engine.embeddings.drain(clean_call("progress", progress), insist=True)

    def doctor(self, *, deep: bool = False) -> list[Finding]:
        """The findings of every check: all that was looked at, what is wrong, and how to mend it.

        Args:
            deep: Also replay the whole log and compare, and read every byte of the index.
        """
        deep = clean_flag("deep", deep)
        from skep.storage.doctor import Finding

        found = [*self._engine.examine(deep=deep), *_index_findings(self._engine, deep=deep)]
        if broken := self._recall.unusable():
            found.append(
                Finding(
                    check="recall config",
                    level="error",
                    message=f"the setting recall/config cannot be used, and recall goes without it: {broken}",
                    fix="deploy another with `skep tune deploy`, or bank.set_setting('recall/config', None)",
                )
            )
        return found

    def mend(self) -> list[str]:
        """Rebuild from the log what can be rebuilt; what was done."""
        done = self._engine.mend()
        self._engine.index.drop()
        self._engine.index.refresh()
        return [*done, "rebuilt the index of words and vectors"]


def clean_events(events: Any) -> list[Event]:
    """Events of a bank."""
    if isinstance(events, str | bytes) or not isinstance(events, Iterable):
        kind = type(events).__name__  # pyright: ignore
        raise WrongTypeError(f"events must be a list of events, got {kind}", field="events")
    found = list(listed("events", events))
    for event in found:
        if not isinstance(event, Event):
            raise WrongTypeError(
                f"events must hold events of a bank, got {type(event).__name__}", field="events"
            )
    return found


def refuse_database(target: Path, bank: Path | None) -> None:
    """Raise if an export would replace a folder, a bank or another database."""
    from skep.storage.sqlite_file import is_sqlite

    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if (target.is_file() and is_sqlite(target)) or (bank is not None and _same_file(target, bank)):
        raise InvalidInputError(
            f"{target} is a bank or another database, which an export would destroy; choose another path",
            field="path",
        )


def _same_file(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _exported(path: str | os.PathLike[str]) -> list[Event]:
    """The events in a file that `export` wrote."""
    from skep.events import checked
    from skep.storage.bank_export import read_lines

    source = clean_path("path", path)
    with file_errors(source):
        if not source.is_file():
            raise NotFoundError(f"there is no file {source}; give the path of an export")
        with source.open("rb") as file:
            return [checked(event) for event in read_lines(file, where=source.name)]


def _salvaged(path: str | os.PathLike[str]) -> bool:
    from skep.storage.bank_export import was_salvaged

    with open(path, "rb") as file:
        return was_salvaged(file.readline())


def _clean_ranges(ranges: Mapping[str, Any]) -> dict[str, list[tuple[int, int]]]:
    """Per actor, pairs of counters."""
    found: dict[str, list[tuple[int, int]]] = {}
    for actor, pairs in clean_mapping("ranges", ranges).items():
        try:
            found[actor] = [(low, high) for low, high in pairs]
        except (TypeError, ValueError):
            raise WrongTypeError(
                f"ranges must map an actor to pairs of counters, got {type(pairs).__name__}", field="ranges"
            ) from None
        for pair in found[actor]:
            for counter in pair:
                clean_count("ranges", counter, 0, 1 << 53)
    return found


def _index_findings(engine: Engine, *, deep: bool) -> list[Finding]:
    from skep.storage.doctor import Finding

    try:
        with engine.snapshot():  # others may write while this is compared
            engine.index.refresh()
            stats, rows = engine.index.stats(), engine.size()
    except CorruptBankError as error:
        return [
            Finding(
                check="index",
                level="error",
                message=f"the index of words and vectors cannot be brought up to date: {error}",
                fix="skep doctor --mend writes every memory anew from the log",
            )
        ]
    damaged = engine.index.damaged() if deep else []
    if damaged:
        return [
            Finding(
                check="index",
                level="error",
                message=f"{', '.join(damaged)} in the index of words and vectors is not as it was written",
                fix="skep doctor --mend builds the index anew; nothing is lost",
            )
        ]
    if stats.rows == rows:
        return [
            Finding(
                check="index",
                level="ok",
                message=f"{rows} memories in {stats.segments} segment{'s' * (stats.segments != 1)} and the tail",
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
    found = engine.counts()
    space = engine.active_space()
    building = engine.building_space()
    return BankStatus(
        path=str(engine.path) if engine.path else None,
        memories=found.by_status.get("active", 0) + found.by_status.get("pending", 0),
        pending=found.by_status.get("pending", 0),
        by_status=found.by_status,
        by_kind=found.by_kind,
        events=found.events,
        links=found.links,
        actor=engine.name,
        embedder=space.fingerprint
        if space
        else engine.embeddings.name or engine.embeddings.spec or "unknown",
        reembedding=engine.waiting(building.number) if building else 0,
        embed_error=engine.embeddings.last_error(),
        size_bytes=found.size_bytes,
        index_bytes=found.index_bytes,
        versions=engine.log.versions(),
        schema=found.schema,
        held=found.held,
    )
