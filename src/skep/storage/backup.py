"""Backups put back in the place of a bank, compared with it, and the readable part of a damaged bank.

`Bank.put_back`, `Bank.backup` and `Bank.salvage` call this. It opens files by itself and never the bank of a caller.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skep.errors import (
    BusyError,
    CorruptBankError,
    InvalidInputError,
    NotABankError,
    NotFoundError,
    StorageError,
    SyncError,
)
from skep.events import checked
from skep.model import Event
from skep.storage.bank_export import FORMAT, VERSION, Header, encode_event, write_lines
from skep.storage.event_log import COLUMNS
from skep.storage.memory_rows import event_of
from skep.storage.schema import APPLICATION_ID
from skep.storage.sqlite_connection import Connection
from skep.storage.sqlite_file import connect, copy_file, prepare
from skep.storage.store import Store

WAIT_SECONDS = 5.0
FORGETTING = {"forget", "supersede", "merge"}
"""Kinds of events that `forget` writes into a copy."""


def _reading(copy: Path) -> contextlib.closing[Connection]:
    """A copy, open for reading."""
    return contextlib.closing(
        connect(prepare(str(copy), create=False), busy_seconds=WAIT_SECONDS, read_only=True)
    )


def put_back(copy: Path, bank: Path, now: float) -> Path | None:
    """Put a copy that `backup` made in the place of a bank; where what stood there is kept now.

    A write-ahead log that belongs to the old file would be played onto the new one, so it goes with the old one. The
    new bank knows of the old file, of the copies that were made of that, and of the copy it comes from, so that
    `forget` reaches them all.
    """
    bank = bank.resolve()  # where a link leads to, not the link, is what is replaced
    if copy.resolve() == bank:
        raise InvalidInputError(f"{copy} is the bank itself; give the path of a copy", field="path")
    if not copy.is_file():
        raise NotFoundError(f"there is no file {copy}; give the path of a copy that `skep backup` made")
    with _reading(copy) as source:
        problems = [row[0] for row in source.rows("PRAGMA quick_check(3)") if row[0] != "ok"]
        if problems:
            raise CorruptBankError(f"{copy} is damaged too ({'; '.join(problems)}); try an older copy")
        bank.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = bank.with_name(bank.name + ".restoring")
        try:
            copy_file(source, beside)
            aside = _set_aside(bank)
            os.replace(beside, bank)
        finally:
            beside.unlink(missing_ok=True)
    copies = {str(copy.resolve()): now}
    if aside is not None:
        copies |= _copies_of(aside) | {str(aside.resolve()): now}
    _make_known(bank, copies)
    return aside


def _set_aside(bank: Path) -> Path | None:
    """Keep a bank under another name, and take away what belongs to it alone.

    Its file stays in place until the new one takes it, so that there is a bank at every moment.
    """
    shutil.rmtree(f"{bank}.index", ignore_errors=True)
    if not bank.exists():
        for end in ("-wal", "-shm"):
            Path(f"{bank}{end}").unlink(missing_ok=True)
        return None
    number = 1
    while (aside := bank.with_name(f"{bank.name}.replaced-{number}")).exists():
        number += 1
    try:
        os.link(bank, aside)
    except OSError:  # a file system without such names
        shutil.copy2(bank, aside)
    for end in ("-wal", "-shm"):
        if os.path.exists(f"{bank}{end}"):
            os.replace(f"{bank}{end}", f"{aside}{end}")
    return aside


def _copies_of(aside: Path) -> dict[str, float]:
    """The paths and times of copies of a bank; of a damaged one, those that can be read."""
    try:
        with contextlib.closing(
            Connection(str(aside), busy_seconds=WAIT_SECONDS, read_only=True)
        ) as connection:
            return dict(connection.rows("SELECT path, made_at FROM backups"))  # type: ignore[arg-type]
    except StorageError:
        return {}


def _make_known(bank: Path, copies: dict[str, float]) -> None:
    sql = "INSERT OR REPLACE INTO backups(path, made_at) VALUES(?, ?)"
    with (
        contextlib.closing(Connection(str(bank), busy_seconds=WAIT_SECONDS)) as connection,
        connection.transaction(),
    ):
        for copy in copies.items():
            connection.execute(sql, copy)


def lacking(copy: Path, store: Store) -> bool:
    """True if a copy of a bank holds events that the bank does not: it was written to as a bank of its own.

    Events that `forget` writes into a copy, and counts of uses, do not count.
    """
    with _reading(copy) as connection:
        if connection.one("SELECT value FROM meta WHERE key = 'bank'") != store.bank_id:
            return True
        versions, scattered = store.log.versions(), store.log.scattered()
        for (actor,) in connection.rows("SELECT actor FROM actors"):
            sql = "SELECT counter, kind FROM event_log WHERE actor = ? AND counter > ?"
            beyond = connection.rows(sql, (actor, versions.get(actor, 0)))
            here = set(scattered.get(actor, ()))  # what is here with a gap before it
            kinds = {kind for counter, kind in beyond if counter not in here}
            if kinds - {"use"} - (FORGETTING if "forget" in kinds else set()):
                return True
        return False


def forgotten_since(copy: Path, store: Store) -> list[str]:
    """The memories that a bank has forgotten and a copy still holds."""
    gone = store.forgotten()
    if not gone:
        return []
    with _reading(copy) as connection:
        sql = "SELECT id FROM memories WHERE forgotten = 0 AND id IN (SELECT value FROM json_each(?))"
        return [i for (i,) in connection.rows(sql, (msgspec.json.encode(gone).decode(),))]


STRETCH = 500
"""Events that are read together before they are tried one by one."""
LEAST_BYTES = 32
"""An event takes at least this much, so that damaged numbers cannot speak of more than a file may have held."""
DEEPEST = 20
"""More levels than a table of SQLite can have."""
_LEADS_ON = 5
"""The kind of a page that holds no rows of a table, but where they are."""


def salvage(bank: Path, target: Path) -> tuple[int, int]:
    """Write what can be read of a bank's log to a file; how many events that are, and how many at least cannot be read.

    Nothing but the log is looked at: it alone decides what a bank holds, and any other table may be damaged. The file
    may have been cut short.

    Raises:
        CorruptBankError: Nothing can be read; nothing is written then.
    """
    path = prepare(str(bank), create=False)
    try:
        name, lines, lost = _saved(path)
    except CorruptBankError as error:
        raise _nothing(path) from error
    if lost and not lines:
        raise _nothing(path)
    header = Header(format=FORMAT, version=VERSION, bank=name, events=len(lines), salvaged=True)
    write_lines(target, [msgspec.json.encode(header), *lines])
    return len(lines), lost


def _nothing(path: str) -> CorruptBankError:
    return CorruptBankError(
        f"nothing can be read of {path}; put a backup in its place with `skep backup --restore`, or sync a new bank"
        " with a replica"
    )


def _saved(path: str) -> tuple[str, list[bytes], int]:
    """The name of a bank, its events that can be read, as lines, and how many cannot be."""
    connection = Connection(path, busy_seconds=WAIT_SECONDS, read_only=True, cut_short=True)
    lines: dict[str, bytes] = {}  # by id: damage may lead to the same page twice
    lost = 0
    try:
        _refuse_other(connection)
        try:
            name = str(connection.one("SELECT value FROM meta WHERE key = 'bank'") or "")
        except StorageError:
            name = ""
        for event in _readable(connection):
            if event is None or not _sound(event):
                lost += 1
            else:
                lines[event.id] = encode_event(event)
    finally:
        connection.close()
    return name, list(lines.values()), lost


def _refuse_other(connection: Connection) -> None:
    """Refuse what is no bank, and a bank of which not even the list of its tables is left."""
    if _table(connection) is None:
        if connection.one("PRAGMA application_id") != APPLICATION_ID:
            raise NotABankError(
                f"{connection.path} is an SQLite file, but not a skep bank; choose another path"
            )
        raise _nothing(connection.path)


def _table(connection: Connection) -> int | None:
    """The page at which the table of events begins, as it is called now or was before."""
    return connection.one(
        "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name IN ('event_log', 'log', 'events')"
    )


def _sound(event: Event) -> bool:
    """True if an event that could be read is well-formed: damage may leave a row readable that no import would take."""
    try:
        checked(event)
    except SyncError:
        return False
    return True


def _readable(connection: Connection) -> Iterator[Event | None]:
    """Every event that can still be read, in order of arrival; None for each one that cannot."""
    last = _last(connection)
    for first in range(1, last + 1, STRETCH):
        final = min(first + STRETCH - 1, last)
        try:
            found = _events(connection, first, final)
        except CorruptBankError:
            for seq in range(first, final + 1):
                try:
                    yield from _events(connection, seq, seq) or [None]
                except CorruptBankError:
                    yield None
        else:
            yield from found
            missing = final + 1 - first - len(found)  # no number is left out, unless a page is blank
            yield from [None] * missing


def _last(connection: Connection) -> int:
    """The last event; where that cannot be read, the last one that anything else speaks of."""
    try:
        return connection.one(f"SELECT max(seq) FROM {_name(connection)}") or 0
    except CorruptBankError:
        pass
    known = 0
    for estimate in (_by_the_pages, _by_the_actors, _by_the_subjects, _by_the_memories):
        try:
            known = max(known, estimate(connection))
        except BusyError:
            raise
        except StorageError:
            continue
    return min(known, _bytes(connection.where) // LEAST_BYTES)


def _by_the_pages(connection: Connection) -> int:
    """The last one that the pages lead to which only lead on, and one more: the page after it holds one at least.

    Every event that can be reached comes before it. SQLite says nothing of such pages, so they are read by hand.
    """
    known = 0
    page = _table(connection) or 0
    with open(connection.where, "rb") as file:
        size = _page_size(file.read(18))
        for _ in range(DEEPEST):
            file.seek(max(page - 1, 0) * size)
            data = file.read(size)
            key = _last_key(data)
            if key is None:
                break
            known, page = key + 1, int.from_bytes(data[8:12])
    return known


def _page_size(header: bytes) -> int:
    size = int.from_bytes(header[16:18])
    return 65536 if size == 1 else size


def _last_key(page: bytes) -> int | None:
    """The last row that a page leads to, but for those at its very end; None if it does not lead on."""
    cells = int.from_bytes(page[3:5])
    if page[:1] != bytes([_LEADS_ON]) or not cells:
        return None
    start = int.from_bytes(page[10 + 2 * cells : 12 + 2 * cells])
    key = 0
    for byte in page[start + 4 : start + 12]:  # seven bits in each, the first ones first
        key = key << 7 | byte & 127
        if byte < 128:
            return key
    return None


def _by_the_actors(connection: Connection) -> int:
    """As many as the actors have written."""
    return connection.one("SELECT sum(counter) FROM actors") or 0


def _by_the_subjects(connection: Connection) -> int:
    """The last one that is known to speak of a memory."""
    return connection.one("SELECT max(seq) FROM subjects") or 0


def _by_the_memories(connection: Connection) -> int:
    """As many as there are rows: each was created by one."""
    return connection.one("SELECT max(row) FROM memories") or 0


def _bytes(path: str) -> int:
    """The size of a file, or the size that it states, with its write-ahead log."""
    with open(path, "rb") as file:
        header = file.read(32)
    said = int.from_bytes(header[28:32]) * _page_size(header)
    ahead = os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0
    return max(os.path.getsize(path), said) + ahead


def _name(connection: Connection) -> str:
    """The name of the table of events, as it is called now or was before."""
    return connection.one(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('event_log', 'log', 'events')"
    )


def _events(connection: Connection, first: int, last: int) -> list[Event]:
    sql = f"SELECT {COLUMNS} FROM {_name(connection)} WHERE seq BETWEEN ? AND ? ORDER BY seq"
    return [event_of(row) for row in connection.rows(sql, (first, last))]
