"""The doctor: findings about a bank, from the cheapest check to a replay of the whole log, mending, and counts.

`Bank.doctor`, `Bank.mend` and `Bank.status` call this. A check never raises because of damage: it names a finding.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Literal

import apsw
import msgspec

from skep.clock import AHEAD_SECONDS, LOGICAL_BITS, pack
from skep.errors import CorruptBankError, StorageError
from skep.model import Memory
from skep.storage.fold import fold, fold_links, fold_setting, stays_here
from skep.storage.schema import VERSION
from skep.storage.sqlite_connection import Connection
from skep.storage.sqlite_file import free_bytes
from skep.storage.sqlite_store import SqliteStore

Level = Literal["ok", "warning", "error"]
LOW_DISK = 64 << 20
RESTORE = (
    "`skep backup --restore COPY` puts the newest copy in its place; without one, `skep export --salvage FILE` saves"
    " what can be read, and `skep import FILE` takes it into a new bank"
)
"""The way out for a file that is damaged."""


MEND = "skep doctor --mend"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    level: Level
    message: str
    fix: str = ""


def _result(check: str, problem: str, sound: str, fix: str, level: Level = "error") -> Finding:
    """The finding of a check that found a problem, or none."""
    if not problem:
        return Finding(check=check, level="ok", message=sound)
    return Finding(check=check, level=level, message=problem, fix=fix)


def examine(store: SqliteStore, *, deep: bool = False) -> Iterator[Finding]:
    """Every finding, cheapest checks first. `deep` replays the whole log and compares."""
    checks: list[Callable[[SqliteStore], Iterator[Finding]]] = [
        *(_versions, _file, _integrity, _log, _words, _queue, _held, _ahead, _erasing)
    ]
    for check in [*checks, _replay] if deep else checks:
        try:
            yield from check(store)
        except (StorageError, apsw.Error, UnicodeDecodeError, ValueError, TypeError, LookupError) as error:
            yield Finding(
                check=check.__name__.removeprefix("_"),
                level="error",
                message=f"this could not be looked at: {error}",
                fix=RESTORE,
            )


def _versions(store: SqliteStore) -> Iterator[Finding]:
    from skep import runtime

    schema = store.connection.one("PRAGMA user_version")
    yield Finding(
        check="versions",
        level="ok",
        message=f"schema {schema} of {VERSION}, SQLite {apsw.sqlite_lib_version()},"
        f" vectors scanned by {'numpy' if runtime.native is None else 'the compiled core'}",
    )


def _file(store: SqliteStore) -> Iterator[Finding]:
    path = store.path
    if path is None:
        return
    beside = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", ".index"))]
    modes = {name: stat.S_IMODE(name.stat().st_mode) for name in beside if name.exists()}
    open_ = {name: mode for name, mode in modes.items() if mode & 0o077}
    for name, mode in open_.items():
        yield Finding(
            check="permissions",
            level="warning",
            message=f"others may read {name.name} (mode {mode:o})",
            fix=f"chmod {'700' if name.is_dir() else '600'} {name}",
        )
    if not open_:
        yield Finding(check="permissions", level="ok", message=f"mode {modes[path]:o}")
    for name in modes:
        if not name.is_dir() and not os.access(name, os.W_OK):
            yield Finding(
                check="file",
                level="warning",
                message=f"{name.name} cannot be written, so nothing can be remembered",
                fix=f"chmod u+w {name}",
            )
    if not os.access(path.parent, os.W_OK):
        yield Finding(
            check="folder",
            level="warning",
            message="the folder cannot be written, so nothing can be remembered",
            fix=f"chmod u+w {path.parent}",
        )
    free = free_bytes(path)
    said = f"{free / 1e6:,.0f} MB free"
    low = said if free < max(LOW_DISK, 2 * path.stat().st_size) else ""
    fix = "free some space: a migration or a rebuild needs about twice the bank's size"
    yield _result("disk", low, said, fix, "warning")


def _integrity(store: SqliteStore) -> Iterator[Finding]:
    problems = _unsound(store.connection)
    if problems and store.path is not None:
        # The full-text index of a handle that others have written beside may remember pages that are no more: asked
        # again on a handle of its own, a file that is sound says so.
        other = Connection(store.connection.where, busy_seconds=0.0, read_only=True)
        try:
            problems = _unsound(other)
        finally:
            other.close()
    yield _result("integrity", "; ".join(problems), "every page is sound", RESTORE)


def _unsound(connection: Connection) -> list[str]:
    """The problems that SQLite finds in the file."""
    return [row[0] for row in connection.rows("PRAGMA quick_check(10)") if row[0] != "ok"]


def _log(store: SqliteStore) -> Iterator[Finding]:
    """Is every event here up to the counter that its actor has reached?"""
    rows = store.connection.rows(
        "SELECT actor FROM actors a WHERE a.counter >"
        " (SELECT count(*) FROM event_log e WHERE e.actor = a.actor AND e.counter <= a.counter) ORDER BY actor"
    )
    lost = ", ".join(actor for (actor,) in rows)
    fix = "restore a backup, or sync with a replica that has them"
    yield _result("log", lost and f"events are missing for {lost}", "no event is missing", fix)


def _words(store: SqliteStore) -> Iterator[Finding]:
    try:
        if not store.read_only:
            with store.connection.lock, contextlib.suppress(apsw.ReadOnlyError):  # said of the file already
                store.connection.execute("INSERT INTO words(words) VALUES('integrity-check')")
        rows = store.connection.one("SELECT count(*) FROM memories WHERE forgotten = 0")
        missing = store.tables.full_text.missing() if not store.connection.older else 0
        said = f"{rows - missing} of {rows} memories are found by their words"
        yield _result("words", said if missing else "", said, MEND)
    except (apsw.CorruptError, CorruptBankError) as error:
        yield _result("words", f"the full-text index is damaged ({error})", "", MEND)


def _queue(store: SqliteStore) -> Iterator[Finding]:
    for space in store.vectors.spaces():
        waiting = store.vectors.waiting(space.number)
        error = store.vectors.last_error(space.number)
        if waiting:
            yield Finding(
                check="embedding",
                level="warning" if error else "ok",
                message=f"{waiting} memories wait for {space.fingerprint}"
                + (f"; last error: {error}" if error else ""),
                fix="skep reembed" if error else "",
            )
        else:
            yield Finding(check="embedding", level="ok", message=f"complete for {space.fingerprint}")


def _held(store: SqliteStore) -> Iterator[Finding]:
    held = len(store.log.held())
    if held:
        yield Finding(
            check="sync",
            level="warning",
            message=f"{held} events of other replicas wait for earlier ones or for their time",
            fix="sync with the replica they came from",
        )


def _ahead(store: SqliteStore) -> Iterator[Finding]:
    """Was a clock ahead when something was written here?"""
    late = store.now() + AHEAD_SECONDS
    if not isfinite(late):  # a store that was opened without a clock
        return
    newest = store.connection.one("SELECT max(hlc) FROM event_log") or 0
    if newest > pack(late):
        hours = ((newest >> LOGICAL_BITS) / 1000 - store.now()) / 3600
        yield Finding(
            check="clock",
            level="warning",
            message=f"the newest event is stamped {hours:.0f} hours ahead: a clock was wrong. Until then other replicas"
            " hold back what is written here; new memories are dated by the clock as it is now",
            fix="see that the clock is right now; nothing is lost, and what is held back is taken when its time comes",
        )
    dated = store.connection.rows(
        "SELECT id FROM memories WHERE created_at > ? AND forgotten = 0 ORDER BY row LIMIT 4", (late,)
    )
    if dated:
        some = ", ".join(memory_id for (memory_id,) in dated[:3]) + (", ..." if len(dated) > 3 else "")
        yield Finding(
            check="dates",
            level="warning",
            message=f"memories are dated in the future and count as new until then: {some}",
            fix="if a clock was wrong, remember them again with `created_at`, and retract these",
        )


def _erasing(store: SqliteStore) -> Iterator[Finding]:
    if store.leftover() and not store.truncate_wal():
        yield Finding(
            check="forgotten",
            level="warning",
            message="what was forgotten still stands in the write-ahead log: another program is reading the bank",
            fix="close the programs that use this bank, then run `skep doctor` again",
        )


def _replay(store: SqliteStore) -> Iterator[Finding]:
    different: list[str] = []
    for (memory_id,) in store.connection.rows("SELECT id FROM memories WHERE forgotten = 0"):
        state = fold(memory_id, store.log.of(memory_id))
        memory = _read(store, memory_id)
        if state is None or memory is None or not _alike(state.memory, memory):
            different.append(memory_id)
    for subject in store.log.subjects():
        if not _rest_agrees(store, subject):
            different.append(subject)
    different += store.tables.staleness.wrong()
    first = (
        f"memories, links or settings differ from what the log says, first {different[0]}"
        if different
        else ""
    )
    yield _result("replay", first and f"{len(different)} {first}", "log and tables agree", MEND)


def _read(store: SqliteStore, memory_id: str) -> Memory | None:
    """A memory as it is stored; None where that is damaged."""
    try:
        return store.get(memory_id)
    except CorruptBankError:
        return None


def _rest_agrees(store: SqliteStore, subject: str) -> bool:
    """True if the links of a memory, or the value of a setting, are what the log says."""
    key = subject.removeprefix("setting:")
    events = store.log.of(subject)
    if key != subject:
        there, value = store.tables.local_setting(key) if stays_here(key) else fold_setting(events)
        return store.setting(key) == (value if there else None)
    links = [] if store.is_forgotten(subject) else fold_links(subject, events)
    stored = store.connection.rows("SELECT dst, rel, strength FROM links WHERE src = ?", (subject,))
    return sorted(stored) == sorted((link.dst, link.rel, link.strength) for link in links)


def _alike(folded: Memory, stored: Memory) -> bool:
    skip = {"status", "superseded_by", "merged_into", "stale", "uses", "last_used_at", "embedder"}
    return all(
        getattr(folded, field) == getattr(stored, field)
        for field in Memory.__struct_fields__
        if field not in skip
    )


def mend(store: SqliteStore) -> list[str]:
    """Rebuild from the log everything that follows from it; the list of what was done."""
    with store.writing():
        store.connection.execute("REINDEX")
        store.log.newest.look()
        subjects = store.log.subjects()
        store.tables.rebuild(subjects)
        store.tables.full_text.rebuild()
    return [f"recomputed {len(subjects)} memories and settings from the log", "rebuilt the full-text index"]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one moment."""

    by_status: dict[str, int]
    by_kind: dict[str, int]
    events: int
    links: int
    held: int
    schema: int
    size_bytes: int
    index_bytes: int


def counts(store: SqliteStore) -> Counts:
    """Count everything, in one snapshot."""
    space = store.active_space()
    number = space.number if space else -1
    c = store.connection
    with c.snapshot():
        by_status = dict(
            c.rows(
                "SELECT CASE WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END AS s,"
                " count(*) FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = ? WHERE m.forgotten = 0"
                " GROUP BY s ORDER BY s",
                (number,),
            )
        )
        _take_ended(store, by_status, number)
        by_kind = dict(
            c.rows("SELECT kind, count(*) FROM memories WHERE forgotten = 0 GROUP BY kind ORDER BY kind")
        )
        return Counts(
            by_status=by_status,
            by_kind=by_kind,
            events=c.one("SELECT count(*) FROM event_log"),
            links=c.one("SELECT count(*) FROM links"),
            held=c.one("SELECT count(*) FROM held"),
            schema=c.db.pragma("user_version"),
            size_bytes=_size(store),
            index_bytes=_index_size(store),
        )


def _take_ended(store: SqliteStore, by_status: dict[str, int], space: int) -> None:
    """Count memories that have reached their end as expired, marked or not. The index on ends finds them."""
    rows = store.connection.rows(
        "SELECT p.row IS NOT NULL AS waits, count(*) FROM memories m"
        " LEFT JOIN pending p ON p.row = m.row AND p.space = ?"
        " WHERE m.expires_at <= ? AND m.status = 'active' AND m.forgotten = 0 GROUP BY waits",
        (space, store.now()),
    )
    for waits, count in rows:
        shown = "pending" if waits else "active"
        by_status[shown] -= count
        by_status["expired"] = by_status.get("expired", 0) + count
        if not by_status[shown]:
            del by_status[shown]


def _size(store: SqliteStore) -> int:
    if store.path is None:
        db = store.connection.db
        return db.pragma("page_count") * db.pragma("page_size")
    wal = store.path.with_name(store.path.name + "-wal")
    return store.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


def _index_size(store: SqliteStore) -> int:
    if store.path is None:
        return 0
    folder = store.path.with_name(store.path.name + ".index")
    total = 0
    for file in folder.rglob("*") if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # another process may clear it away at this moment
            total += file.stat().st_size if file.is_file() else 0
    return total
