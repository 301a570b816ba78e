"""The file of a bank: created, checked, migrated and copied. Also other programs' SQLite files, which are only read.

`SqliteStore.open` and `backup` call this. Another program's file is never written to, not even by a lock file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import apsw

from skep.errors import (
    BankNotFoundError,
    BusyError,
    CorruptBankError,
    InvalidInputError,
    NewerVersionError,
    NotABankError,
    ReadOnlyError,
    StorageError,
)
from skep.storage.schema import (
    APPLICATION_ID,
    AS_IT_IS,
    OF_OLDER_BANKS,
    OLDEST,
    STEPS,
    TABLES,
    VERSION,
    StandIns,
)
from skep.storage.sqlite_connection import MEMORY, Connection, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
FIRST_SECONDS = 2.0
"""Seconds that a file may stay empty while another process makes a bank of it."""
LAST_COUNTER = 1 << 53
"""No event has a greater number."""
READING_SECONDS = 5.0
_ALPHABET = "abcdefghjkmnpqrstvwxyz0123456789"
"""Thirty-two, so that the rest of a byte is as likely to be any of them."""


def new_actor() -> str:
    """A name for a replica that nobody else will draw."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(10))


def prepare(path: str | os.PathLike[str], *, create: bool) -> str:
    """Make sure there is a file to open, private to its owner."""
    path = os.fspath(path)
    if path == MEMORY:
        return MEMORY
    try:
        path.encode()
        mode = _mode(path)
    except (UnicodeEncodeError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8"
        raise NotABankError(f"{path!r:.200} cannot be a bank ({why}); choose another path") from error
    if stat.S_ISDIR(mode):
        raise NotABankError(f"{path} is a folder; give the path of the bank file inside it")
    if mode and not os.path.getsize(path):
        _refuse_emptied(path, create=create)
    if not mode:
        if not create:
            raise BankNotFoundError(f"there is no bank at {path}; create one with `skep init`")
        try:
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except (PermissionError, OSError) as error:
            raise ReadOnlyError(
                f"{path} cannot be created ({error.strerror}); choose a folder you may write"
            ) from error
    return path


def _refuse_emptied(path: str, *, create: bool) -> None:
    """Refuse an empty file, unless a bank is to be made of it and nothing shows that it was one before."""
    if not create:
        deadline = time.monotonic() + FIRST_SECONDS
        while not os.path.getsize(path):  # another process may be making it at this moment
            if time.monotonic() > deadline:
                raise NotABankError(
                    f"{path} is empty; put a backup in its place with `skep backup --restore`, or delete the file"
                )
            time.sleep(0.02)
    beside = [name for name in (f"{path}.index", f"{path}-wal") if os.path.exists(name)]
    if beside and not os.path.getsize(path) and any(os.path.isdir(n) or os.path.getsize(n) for n in beside):
        raise NotABankError(
            f"{path} is empty, but {' and '.join(beside)} beside it shows that it held memories; put a backup in its"
            " place with `skep backup --restore`, or delete all of them to begin anew"
        )


def _mode(path: str) -> int:
    """The mode of the file at a path; 0 if there is none."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in NOT_THERE:
            return 0
        raise


def connect(path: str, *, busy_seconds: float, read_only: bool = False, copies: bool = True) -> Connection:
    """A connection to a bank whose schema is current; with `copies`, a copy is kept of one that was not.

    Switching a new file to write-ahead logging needs it alone for a moment, and SQLite does not wait for that by
    itself; when many processes open a new bank at once, all but one try again.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            return _connected(path, busy_seconds=busy_seconds, read_only=read_only, copies=copies)
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _connected(path: str, *, busy_seconds: float, read_only: bool, copies: bool) -> Connection:
    if not read_only:
        _open_up(path)
    connection = Connection(path, busy_seconds=busy_seconds, read_only=read_only)
    try:
        _check(connection)  # before anything is written: what is not a bank stays as it is, to the byte
        if read_only:
            _read_as_it_is(connection)
        elif path != MEMORY and connection.db.readonly("main"):  # SQLite says so when it is too late
            raise ReadOnlyError(f"{path} cannot be written; check its permissions")
        else:
            connection.write_ahead()
            migrate(connection, copies=copies, busy_seconds=busy_seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_up(path: str) -> None:
    """Make the files beside a bank writable again: a reader leaves them read-only where the bank was at that time."""
    for beside in (f"{path}-wal", f"{path}-shm"):
        if os.path.exists(beside) and not os.access(beside, os.W_OK) and os.access(path, os.W_OK):
            with contextlib.suppress(OSError):  # not ours; the next write says so
                os.chmod(beside, stat.S_IMODE(os.stat(path).st_mode))


def _check(connection: Connection) -> None:
    """Refuse what is no bank, or one of a newer version; read at one moment, for another process may be making it."""
    with translated(connection.path), connection.snapshot():
        application = connection.db.pragma("application_id")
        version = connection.db.pragma("user_version")
        if application == APPLICATION_ID:
            _refuse_unknown(connection.path, version)
            _refuse_foreign_schema(connection)
            return
        tables = connection.one("SELECT count(*) FROM sqlite_schema")
        if tables or application:
            raise NotABankError(
                f"{connection.path} is an SQLite file, but not a skep bank; choose another path"
            )
        if connection.read_only:
            raise NotABankError(f"{connection.path} is empty; there is nothing to read")


def _refuse_foreign_schema(connection: Connection) -> None:
    """Refuse a bank that holds a view, a trigger or a virtual table that no skep makes: reading it would run that."""
    own = " ".join((TABLES + OF_OLDER_BANKS).split())
    sql = (
        "SELECT name, sql FROM sqlite_schema WHERE type IN ('view', 'trigger') OR sql LIKE 'create virtual%'"
    )
    strange = [name for name, made in connection.rows(sql) if " ".join(str(made).split()) not in own]
    if strange:
        raise NotABankError(
            f"{connection.path} holds {', '.join(strange[:3])}, which no skep makes, and reading the bank could run it;"
            " export the memories with the program that made this file, or save the log with `skep export --salvage`"
        )


def _refuse_unknown(path: str, version: int) -> None:
    """Refuse a bank of a newer skep, or of one from before the first release."""
    if 0 < version < OLDEST:
        raise NotABankError(
            f"{path} has schema {version}, of a skep before its first release; this one reads {OLDEST} to {VERSION}."
            " Save the log with `skep export --salvage FILE`, and import that into a new bank"
        )
    if version > VERSION:
        raise NewerVersionError(
            f"{path} was written by a newer skep (schema {version}, this one knows {VERSION});"
            " upgrade skep to open it"
        )


def _read_as_it_is(connection: Connection) -> None:
    """Have views stand in for what a file of an older version lacks; another process may migrate it meanwhile."""

    def views(version: int) -> str:
        _refuse_unknown(connection.path, version)
        return "".join(view for last, view in AS_IT_IS.items() if version <= last)

    with translated(connection.path):
        if connection.db.pragma("user_version") < VERSION:
            connection.read_as_it_is(StandIns(views))


def migrate(connection: Connection, *, copies: bool, busy_seconds: float = 0.0) -> None:
    """Bring a file to this version's schema, after a copy where those are wanted."""
    version = connection.db.pragma("user_version")
    if version == VERSION:
        return
    copy = _kept(connection, busy_seconds) if version and copies else None
    with connection.transaction():
        version = connection.db.pragma("user_version")
        for sql in [TABLES] if not version else [STEPS[step] for step in range(version + 1, VERSION + 1)]:
            connection.db.execute(sql).fetchall()  # to the end: what answers keeps the rest from running
        if version == OLDEST:  # whose newest rows were indexed later, many at a time
            from skep.storage.full_text import FullText

            FullText(connection).catch_up()
        if version == 0:
            connection.execute("INSERT INTO meta(key, value) VALUES('bank', ?)", (os.urandom(16).hex(),))
            connection.execute("INSERT INTO meta(key, value) VALUES('actor', ?)", (new_actor(),))
            if connection.path != MEMORY:
                connection.execute("INSERT INTO meta(key, value) VALUES('place', ?)", (_place(connection),))
        if copy is not None:  # `forget` has to reach it
            connection.execute(
                "INSERT OR REPLACE INTO backups(path, made_at) VALUES(?, ?)",
                (str(copy.resolve()), copy.stat().st_mtime),
            )
        connection.db.pragma("user_version", VERSION)
        connection.db.pragma("application_id", APPLICATION_ID)


def _kept(connection: Connection, busy_seconds: float) -> Path | None:
    """A copy of a file as it is before it is migrated; None if another process has migrated it by now.

    Several may come at once: one makes the copy, the others wait for it at the write lock.
    """
    guard = Connection(connection.where, busy_seconds=busy_seconds)
    try:
        with guard.transaction():
            if connection.db.pragma("user_version") == VERSION:
                return None
            copy = _place_for(connection)
            if not copy.exists():
                copy_file(connection, copy)
            return copy
    finally:
        guard.close()


def _place_for(connection: Connection) -> Path:
    """The path of the copy: a free name, or that of the same copy by an interrupted migration."""

    first = copy = Path(f"{connection.where}.before-v{VERSION}")
    number = 1
    while copy.exists() and _standing(copy) != _standing(connection):
        number += 1
        copy = first.with_name(f"{first.name}-{number}")
    return copy


def _standing(bank: Connection | Path) -> tuple[Any, ...] | None:
    """Values that differ between two states of a bank; None for a file that is no bank."""
    if not isinstance(bank, Connection):
        try:
            opened = Connection(str(bank), busy_seconds=1.0, read_only=True)
        except StorageError:
            return None
        try:
            return _standing(opened)
        except StorageError:
            return None
        finally:
            opened.close()
    return (
        bank.one("PRAGMA user_version"),
        bank.one("SELECT value FROM meta WHERE key = 'bank'"),
        *bank.rows("SELECT actor, counter FROM actors ORDER BY actor"),
    )


def actor_of(connection: Connection) -> tuple[str, bool]:
    """The name in the file, and whether it may be written under.

    A file that was copied would otherwise go on under the name of the original, and two replicas would give
    different events the same id; so a file that is no longer where its name was drawn draws a new one, by
    `claim_actor`, before it writes or says who it is. Reading alone leaves it as it is.
    """
    names = "SELECT key, value FROM meta WHERE key IN ('actor', 'bank', 'place')"
    found: dict[str, str] = dict(connection.rows(names))  # type: ignore[arg-type]
    if not ("actor" in found and "bank" in found):
        raise CorruptBankError(
            f"{connection.path} is damaged (its name is lost); put a backup in its place with `skep backup --restore`,"
            " or save what can be read with `skep export --salvage`"
        )
    ours = connection.path == MEMORY or connection.read_only or found.get("place") == _place(connection)
    return found["actor"], ours


def claim_actor(connection: Connection) -> str:
    """The name under which this file writes; drawn here if the one in the file is not its own."""
    with connection.transaction():
        actor, ours = actor_of(connection)
        if not ours:
            if connection.one("SELECT 1 FROM meta WHERE key = 'place'"):
                written = connection.one("SELECT counter FROM actors WHERE actor = ?", (actor,)) or 0
                actor = rename(connection, actor, written)
            connection.execute(
                "INSERT OR REPLACE INTO meta(key, value) VALUES('place', ?)", (_place(connection),)
            )
    return actor


def rename(connection: Connection, actor: str, last: int) -> str:
    """Draw a new name for a file that can no longer write under its own. Call inside a transaction.

    `last` is the counter of the last event that it wrote under the old one.
    """
    new = new_actor()
    names = {name: counter for name, counter in names_of(connection).items() if name != actor} | {actor: last}
    connection.execute("UPDATE meta SET value = ? WHERE key = 'actor'", (new,))
    connection.execute("INSERT OR REPLACE INTO meta(key, value) VALUES('names', ?)", (json.dumps(names),))
    return new


def names_of(connection: Connection) -> dict[str, int]:
    """The names under which this file and those it was copied from have written, and up to which event."""
    rows = dict(connection.rows("SELECT key, value FROM meta WHERE key IN ('actor', 'names')"))
    return {**json.loads(str(rows.get("names", "{}"))), str(rows["actor"]): LAST_COUNTER}


def _place(connection: Connection) -> str:
    found = os.stat(connection.where)
    return f"{found.st_dev}:{found.st_ino}"


def copy_file(
    connection: Connection,
    target: Path,
    alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """An online, consistent copy, complete or not there at all.

    A file is read through a handle of its own, at one moment: whoever writes meanwhile is not in the way, and does not
    make SQLite begin anew, which it would without end.
    """
    from skep.storage.bank_export import unfinished

    with (
        unfinished(target, partial(_instead, target, alone)) as begun,
        _at_one_moment(connection) as source,
        translated(str(target)),
    ):
        copy: Any = apsw.Connection(str(begun))
        try:
            with copy.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(2048)
            copy.execute("PRAGMA journal_mode=DELETE")
            copy.execute(
                "UPDATE meta SET value = 'copy' WHERE key = 'place'"
            )  # wherever it is opened, a new name
        finally:
            copy.close(True)


@contextlib.contextmanager
def _instead(target: Path, alone: Callable[[], contextlib.AbstractContextManager[None]]) -> Generator[None]:
    """Without what SQLite left beside a copy when its process was killed: that would ruin the one in its place."""
    with alone():
        for ending in ("-wal", "-shm", "-journal"):
            target.with_name(target.name + ending).unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def _at_one_moment(connection: Connection) -> Generator[Any]:
    if connection.path == MEMORY:  # which nobody else can open
        with connection.lock:
            yield connection.db
        return
    reader = Connection(connection.where, busy_seconds=READING_SECONDS, read_only=True)
    try:
        with reader.snapshot():
            reader.one("SELECT count(*) FROM sqlite_schema")  # the moment is that of the first look
            yield reader.db
    finally:
        reader.close()


def free_bytes(path: Path) -> int:
    """Space left on the disk of a file."""
    import shutil

    return shutil.disk_usage(path.parent).free


MAGIC = b"SQLite format 3\0"


def is_sqlite(path: Path) -> bool:
    """True if a file is a SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class ForeignFile:
    """One database of another program, open for reading."""

    def __init__(self, path: Path) -> None:
        log = path.with_name(path.name + "-wal")
        busy = log.exists() and log.stat().st_size > 0
        mode = "mode=ro" if busy else "immutable=1"
        try:
            self._db: Any = apsw.Connection(
                f"file:{quote(str(path.resolve()))}?{mode}",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
            self._db.execute("PRAGMA trusted_schema=OFF").fetchall()
            self.tables = {str(name): self._columns(str(name)) for (name,) in self._names()}
        except apsw.Error as error:
            raise InvalidInputError(f"{path} is not a readable SQLite file: {error}") from error
        self._path = path

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """The rows of a table in the order in which they were written; columns it lacks are None."""
        present = [column for column in columns if column in self.tables.get(table, ())]
        if not present:
            return
        wanted = ", ".join(f'"{column}"' for column in present)
        absent = dict.fromkeys(columns)
        try:
            for row in self._db.execute(f'SELECT {wanted} FROM "{table}" ORDER BY rowid'):
                yield {**absent, **dict(zip(present, row, strict=True))}
        except apsw.Error as error:
            raise InvalidInputError(f"{self._path} is damaged: {error}") from error

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> ForeignFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _names(self) -> list[tuple[Any, ...]]:
        return list(self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"))

    def _columns(self, table: str) -> tuple[str, ...]:
        quoted = table.replace('"', '""')
        return tuple(str(row[1]) for row in self._db.execute(f'PRAGMA table_info("{quoted}")'))
