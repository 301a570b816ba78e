"""One connection to one SQLite file: settings, transactions, snapshots, forks, and SQLite's errors in plain words.

`SqliteStore` and the other modules of this room run all SQL through `Connection`. Threads may share a connection:
whoever uses it holds `Connection.lock`. This module knows nothing of events or memories.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Iterable, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import apsw

from skep import runtime
from skep.errors import (
    BusyError,
    ClosedError,
    CorruptBankError,
    DiskFullError,
    MovedError,
    NotABankError,
    ReadOnlyError,
    StorageError,
)
from skep.storage.memory_rows import metadata_meets
from skep.storage.write_queue import WriteQueue

if TYPE_CHECKING:
    from typing import Protocol

    from skep.storage.schema import StandIns

    class Trace(Protocol):
        """Called with every statement that is run; used to count work in tests."""

        def __call__(self, sql: str, bindings: Any, /) -> None:
            """One statement, about to run."""


FAILED = (apsw.Error, UnicodeDecodeError)
"""Errors that reading a file may raise; the second comes from text that damage has left undecodable."""
MEMORY = ":memory:"


@contextlib.contextmanager
def translated(path: str) -> Generator[None]:
    """Turn SQLite's errors into errors that say what to do."""
    try:
        yield
    except FAILED as error:
        raise explained(error, path) from error


def explained(error: apsw.Error | UnicodeDecodeError, path: str) -> StorageError:
    """One of SQLite's errors, as an error that says what to do."""
    match error:
        case apsw.BusyError():
            return BusyError(
                f"another process kept {path} locked for too long; try again, or look for a stuck process"
            )
        case apsw.FullError():
            return DiskFullError(
                f"no space left while writing {path}; free some and try again, nothing was lost"
            )
        case apsw.ReadOnlyError():
            return ReadOnlyError(f"{path} cannot be written; check its permissions and those of its folder")
        case apsw.NotADBError():
            return NotABankError(f"{path} is not a skep bank; choose another path or restore a backup")
        case apsw.CorruptError() | UnicodeDecodeError():
            return CorruptBankError(
                f"{path} is damaged ({error}); run `skep doctor`, then put a backup in its place with `skep backup"
                " --restore`, or save what can be read with `skep export --salvage`"
            )
        case apsw.CantOpenError():
            return ReadOnlyError(f"{path} cannot be opened; check that its folder exists and may be written")
        case apsw.IOError():
            return StorageError(
                f"reading or writing {path} failed ({error}); check the disk with `skep doctor`"
            )
        case apsw.PermissionsError():
            return ReadOnlyError(f"access to {path} was refused; check its permissions")
        case apsw.ConnectionClosedError() | apsw.CursorClosedError():
            return ClosedError(f"{path} was closed; open the bank again with `Bank.open`")
        case apsw.ConstraintError():
            return StorageError(f"{path} holds this already ({error}); nothing was written")
        case apsw.SQLError() if "no such table" in str(error):
            return StorageError(
                f"the form of {path} is no longer the one that it was opened in ({error}): a newer skep has changed it;"
                " open the bank again"
            )
        case _:
            return StorageError(f"{path}: {error}")


def absolute(path: str) -> str:
    """A path that means the same file from whatever folder; `..` stays, for after a link it leads elsewhere."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def file_at(path: str) -> tuple[int, int] | None:
    """Device and inode of the file under a name; None if there is none, and where an open file keeps its name."""
    if os.name == "nt":
        return None
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def pause(waited: float) -> float:
    """Seconds until one who has waited so long for a lock looks again.

    SQLite's own pauses grow to .1 s, so that whoever comes last looks most often and gets the lock first. Here it is
    whoever has waited longest; what takes more than a second is a large write, for which all may look less often.
    """
    return max(0.0005, 0.008 / (1 + 50 * waited)) if waited < 1 else min(0.005, 0.0005 * waited)


class Connection:
    """A connection that threads may share, and that notices a fork and a file that was moved away."""

    def __init__(
        self, path: str, *, busy_seconds: float, read_only: bool = False, cut_short: bool = False
    ) -> None:
        self.path = path
        self.where = path if path == MEMORY else absolute(path)
        """The path from whatever folder."""
        self.read_only = read_only
        self.lock = threading.RLock()
        self.trace: Trace | None = None
        self._cut_short = cut_short and read_only
        """The file may be shorter than it says and is read as far as it goes; never where it is written."""
        self._patience = busy_seconds
        """Seconds that another's lock is waited for."""
        self._waits_since = 0.0
        self._queue = None if path == MEMORY or read_only else WriteQueue(f"{self.where}-queue")
        self._depth = 0
        """Transactions and snapshots that are open, one inside the other."""
        self._reading = False
        """The open transaction is a snapshot."""
        self._changes = 0
        """Rises whenever something that was read may not be true any more."""
        self._noticed = -1
        """SQLite's number of the content of the file when that was last looked at, or last changed here."""
        self._looked = False
        """Others' writes were asked for in the open transaction or snapshot: there are no more until it ends."""
        self._others = 0
        """Rises whenever another connection has written."""
        self._write_ahead = False
        self._stand_ins: StandIns | None = None
        self._immutable = False
        self._closed = self._came_along = self._left_behind = False
        self._file: tuple[int, int] | None = None
        """The file that was opened."""
        self._db: Any = self._connect()
        runtime.hold(self.lock)
        runtime.watch(self)

    # Opening and closing

    @property
    def db(self) -> Any:
        """The handle of SQLite, which is this process's own."""
        if self._came_along:
            self._reopen_after_fork()
        return self._db

    def _connect(self) -> Any:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        with translated(self.path):
            db: Any = self._connect_to_read() if self.read_only else apsw.Connection(self.where, flags=flags)
            db.set_busy_handler(self._wait_for_lock)
            # Statements stay prepared whatever is bound to them; otherwise SQLite prepares many anew at every call.
            db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # The schema of a file from elsewhere is not trusted: nothing in it may call functions with side effects.
            # Not memory-mapped: a file cut short by somebody else would end the process instead of raising an error.
            db.execute(
                "PRAGMA trusted_schema=OFF; PRAGMA foreign_keys=OFF; PRAGMA temp_store=MEMORY; PRAGMA secure_delete=ON"
            ).fetchall()
            db.execute("PRAGMA cache_size=-16384; PRAGMA mmap_size=0").fetchall()
            db.create_scalar_function("metadata_meets", metadata_meets, 2, deterministic=True)
            if self._stand_ins is not None:
                self._stand_ins.begin(db)
        with contextlib.suppress(OSError):
            self._file = None if self.path == MEMORY else file_at(self.where)
        return db

    def _connect_to_read(self) -> Any:
        """Open for reading. Where SQLite may not put its files beside a complete file, it is read as one that stays."""
        self._immutable = False
        db: Any = apsw.Connection(self.where, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            self._look(db)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            db.close(True)
            if self._write_ahead_log_is_used():
                raise
            name = f"file:{quote(self.where)}?immutable=1"
            db = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            self._look(db)
            self._immutable = True
        return db

    def _look(self, db: Any) -> None:
        """Have SQLite look at a file that is only read. It refuses one that is too short, unless told not to."""
        if self._cut_short:
            db.execute("PRAGMA writable_schema=ON").fetchall()
        db.execute("PRAGMA schema_version").fetchall()

    def _write_ahead_log_is_used(self) -> bool:
        """True if there is a write-ahead log with content: the file alone is then not complete."""
        log = f"{self.where}-wal"
        return os.path.exists(log) and os.path.getsize(log) > 0

    def _wait_for_lock(self, looks: int) -> bool:
        """Wait for a moment; False when this has taken too long. SQLite calls it each time it finds the file locked."""
        now = monotonic()
        if not looks:
            self._waits_since = now
        if self._queue is not None and self._patience:
            self._queue.join()
        waited = now - self._waits_since
        if waited >= self._patience:
            return False
        sleep(min(pause(waited), self._patience - waited))
        return True

    def _begin(self, begin: str) -> None:
        """Begin a transaction or a part of one. To write, whoever waits longer goes first."""
        queue = None if self._depth > 1 else self._queue
        if queue is not None and self._patience and queue.somebody_waits():
            sleep(min(pause(0), self._patience))
        try:
            self.execute(begin)
        finally:
            if queue is not None:
                queue.leave()

    def read_as_it_is(self, stand_ins: StandIns) -> None:
        """Read through views, now and on every later handle of this connection."""
        stand_ins.begin(self.db)
        self._stand_ins = stand_ins

    @property
    def older(self) -> bool:
        """True if the file has an older form and is read through views."""
        return self._stand_ins is not None

    def write_ahead(self) -> None:
        """Switch to write-ahead logging, synced to disk at every commit."""
        self._write_ahead = self.path != MEMORY
        if self._write_ahead:
            with translated(self.path):
                self.db.execute(
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864"
                ).fetchall()

    def close(self) -> None:
        """Release the file."""
        with self.lock:
            self._closed = True
            self._db.close(True)
            if self._queue is not None:
                self._queue.close()

    # Forks and moved files

    def forked(self) -> None:
        """In a child: let go of the parent's handle.

        As long as it is open, SQLite believes that this process has the parent's locks and takes none for itself; the
        parent would then find itself alone on leaving, and delete the log that the child writes to.
        """
        self._came_along = True
        if self._queue is not None:
            self._queue.close()
        if self._closed or self._left_behind or self.path == MEMORY:
            return
        if runtime.missed(self.lock) or self._db.in_transaction:
            return  # closing what is in use would harm the parent
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the log is the parent's to empty
        self._db.close(True)
        self._left_behind = True

    def _reopen_after_fork(self) -> None:
        """In a child, before the first statement: SQLite's locks do not survive a fork, so open the file anew."""
        if self._closed:
            return
        if self.path == MEMORY:
            raise StorageError("an in-memory bank cannot be used after a fork; open a new one in the child")
        if not self._left_behind:
            raise StorageError(
                f"{self.path} was in use at the moment of the fork, so a child cannot use it; fork between calls"
            )
        self._refuse_moved()  # opening it would make an empty one in its place
        self._came_along = self._left_behind = self._reading = False
        self._depth = 0
        self._changes += 1
        self._db = self._connect()
        if self._write_ahead:
            self.write_ahead()

    @property
    def moved(self) -> bool:
        """True if the file that was opened is no longer the one under its name: nobody else would see a write to it."""
        try:
            self._refuse_moved()
        except MovedError:
            return True
        return False

    def _refuse_moved(self) -> None:
        """Raise if the name leads to another file. Whoever may not look there has not seen it go."""
        if self._file is None or self._closed:
            return
        with contextlib.suppress(PermissionError):
            if file_at(self.where) != self._file:
                raise MovedError(
                    f"{self.path} was moved, deleted or replaced while it was open, and nothing was written to it;"
                    " open the bank again"
                )

    def _begin_to_read(self) -> None:
        """Before a read outside of every transaction: is it still this file, in this form, and complete?"""
        db = self.db
        self._refuse_moved()
        if self._stand_ins is not None and self._stand_ins.follow(db):
            self._changes += 1
        if (
            self._immutable and self._write_ahead_log_is_used()
        ):  # somebody with more rights has begun to write
            db.close(True)
            self._db = self._connect()
            self._changes += 1

    # Statements

    def execute(self, sql: str, bindings: Any = ()) -> Any:
        """Run one statement and return its cursor. The caller holds the lock."""
        if self.trace is not None:
            self.trace(sql, bindings)
        return self.db.execute(sql, bindings)

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each of some rows. The caller holds the lock."""
        if self.trace is not None:
            rows = list(rows)
            for row in rows:
                self.trace(sql, row)
        self.db.executemany(sql, rows)

    def rows(self, sql: str, bindings: Any = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            with self.lock:
                if not self._depth:
                    self._begin_to_read()
                return self.execute(sql, bindings).fetchall()
        except FAILED as error:
            raise explained(error, self.path) from error

    def one(self, sql: str, bindings: Any = ()) -> Any:
        """The first column of the first row, or None."""
        found = self.rows(sql, bindings)
        return found[0][0] if found else None

    # Transactions

    @contextlib.contextmanager
    def transaction(self, *, apart: bool = False) -> Generator[None]:
        """Everything inside is written, or nothing is. Nested use joins the outer one.

        Args:
            apart: Nested, it can fail alone, whatever the outer one does. In a snapshot it always can.
        """
        with self.lock, translated(self.path):
            if self._depth and not apart and not self._reading:
                yield
            elif self._depth:
                with self._opened("SAVEPOINT part", "RELEASE part", "ROLLBACK TO part; RELEASE part"):
                    yield
            else:
                self._roll_back_leftover()
                self._refuse_moved()
                with self._opened("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
                    yield

    @contextlib.contextmanager
    def _opened(self, begin: str, commit: str, roll_back: str) -> Generator[None]:
        """A transaction or a part of one; after a failure nothing of it is left."""
        was_reading, self._reading = self._reading, False
        self._depth += 1
        begun = False
        try:
            self._begin(begin)
            begun = True
            if self._depth == 1:
                self._looked = False
                self._notice_others()
            yield
            self.execute(commit)
            if self._depth == 1:
                self._noticed = self.db.data_version()  # what has changed since it began is our own
        except BaseException:
            if begun and self.db.in_transaction:  # SQLite itself ends it when the disk is full
                self.execute(roll_back)
            raise
        finally:
            self._depth -= 1
            self._reading = was_reading
            self._changes += 1

    @contextlib.contextmanager
    def snapshot(self) -> Generator[None]:
        """Every read inside sees the same moment."""
        with self.lock, translated(self.path):
            if self._depth:
                yield
                return
            self._roll_back_leftover()
            self._begin_to_read()
            self._depth, self._reading, self._looked = 1, True, False
            try:
                self.execute("BEGIN")
                yield
            finally:
                self._depth, self._reading = 0, False
                if self.db.in_transaction:
                    self.execute("COMMIT")

    def _roll_back_leftover(self) -> None:
        """Roll back what an interrupt left open; what is written later must not become a part of it."""
        if self.db.in_transaction:
            self._changes += 1
            self.execute("ROLLBACK")

    @contextlib.contextmanager
    def impatient(self, seconds: float = 0.0) -> Generator[None]:
        """Inside, wait no longer than this for a lock that another process holds."""
        with self.lock:
            patience, self._patience = self._patience, min(self._patience, seconds)
            try:
                yield
            finally:
                self._patience = patience

    @property
    def in_transaction(self) -> bool:
        """True inside a transaction or a snapshot."""
        return self._depth > 0

    @property
    def writing(self) -> bool:
        """True inside a transaction that writes: what is read may not be true in the end."""
        return self._depth > 0 and not self._reading

    def data_version(self) -> int:
        """A number that changes when another connection has written."""
        with self.lock, translated(self.path):
            if not self.writing:
                if not self._depth:
                    self._begin_to_read()
                self._notice_others()
            return self._others

    def state(self) -> int:
        """A number that changes when anybody has written, and when something read here may not be true any more."""
        with self.lock:
            self.data_version()
            if self.writing:
                self._changes += 1  # whatever is read now may be taken back
            return self._changes

    def _notice_others(self) -> None:
        """Ask SQLite if another connection has written since it was last asked; once in a transaction or snapshot."""
        if self._depth and self._looked:
            return
        self._looked = self._depth > 0
        db = self.db
        db.execute("SELECT 1 FROM sqlite_schema LIMIT 0").fetchall()  # SQLite takes a look at the file
        number = db.data_version()
        if number != self._noticed:
            self._noticed = number
            self._others += 1
            self._changes += 1

    def limit_memory(self, kib: int) -> None:
        """Keep no more of the file in memory than this; for processes that hold many banks."""
        with self.lock:
            self.db.execute(f"PRAGMA cache_size=-{int(kib)}")
