"""What SQLite says when it fails, in our own words.

Holding a connection from the beginning to the end of a block, whatever interrupts it.

What the system says about the file of a bank.

One connection to one file: pragmas, transactions, and errors in our own words.

Many rows by one statement, which takes a third less time than a statement for each.
"""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from typing import Protocol

    from skep.storage.schema import StandIns


FAILED = (apsw.Error, UnicodeDecodeError)
"""What reading a file may raise; the second is text that is none, which only damage leaves."""


class translated:
    """SQLite's errors, in words that say what to do."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FAILED):
            raise explained(error, self._path) from error


def explained(error: apsw.Error | UnicodeDecodeError, path: str) -> StorageError:
    """One of SQLite's errors, in words that say what to do."""
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
        case apsw.SQLError() if "no such table" in str(error):
            return StorageError(
                f"the form of {path} is no longer the one that it was opened in ({error}): a newer skep has changed it;"
                " open the bank again"
            )
        case _:
            return StorageError(f"{path}: {error}")


class Held(ABC):
    """What holds the connection from the beginning to the end of a block; a generator would cost twice as much."""

    __slots__ = ("_begun", "_c", "_outermost")
    _begun: bool | None
    _c: Connection
    _outermost: bool

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupt = error
        try:
            self._end(failed=error is not None)
        except BaseException as problem:
            interrupt = problem
            if isinstance(problem, apsw.Error):
                raise explained(problem, self._c.path) from problem
            raise
        finally:
            if interrupt is None or isinstance(interrupt, Exception):
                self._c.lock.release()
            else:
                self._left()
        if isinstance(error, FAILED):
            raise explained(error, self._c.path) from error

    def _left(self, error: BaseException | None = None) -> None:
        """After an interrupt, which may come right after the lock was taken, or right after SQLite has begun.

        Who came first leaves nothing open and nothing locked.
        """
        if self._outermost and self._c.mine and not isinstance(error, apsw.Error | StorageError):
            self._c.abandon()
        while self._c.mine:
            self._c.lock.release()
            if not self._outermost:
                break

    @abstractmethod
    def _end(self, *, failed: bool) -> None: ...


class Transaction(Held):
    """See `Connection.transaction`; every write goes through one."""

    __slots__ = ("_apart",)

    def __init__(self, connection: Connection, *, apart: bool) -> None:
        self._c, self._apart, self._begun = connection, apart, None

    def __enter__(self) -> None:
        connection = self._c
        outermost = self._outermost = not connection.mine
        try:
            connection.lock.acquire()
            if connection.db.in_transaction and outermost:
                connection.abandon()
            self._begun = connection.begin(apart=self._apart)
        except BaseException as error:
            self._left(error)
            if isinstance(error, apsw.Error):
                raise explained(error, connection.path) from error
            raise

    def _end(self, *, failed: bool) -> None:
        self._c.finish(self._begun, failed=failed)


class Impatient(Held):
    """See `Connection.impatient`; counting uses goes through one."""

    __slots__ = ("_milliseconds",)

    def __init__(self, connection: Connection, milliseconds: int) -> None:
        self._c, self._milliseconds = connection, milliseconds

    def __enter__(self) -> None:
        self._outermost = not self._c.mine
        try:
            self._c.lock.acquire()
            self._c.wait_for(self._milliseconds)
        except BaseException:
            self._left()
            raise

    def _end(self, *, failed: bool) -> None:
        del failed
        self._c.wait_for()


class Snapshot(Held):
    """See `Connection.snapshot`; every recall goes through one."""

    __slots__ = ()

    def __init__(self, connection: Connection) -> None:
        self._c, self._begun = connection, False

    def __enter__(self) -> None:
        self._outermost = not self._c.mine
        try:
            self._c.lock.acquire()
            self._begun = self._c.begin_reading(outermost=self._outermost)
        except BaseException as error:
            self._left(error)
            if isinstance(error, FAILED):
                raise explained(error, self._c.path) from error
            raise

    def _end(self, *, failed: bool) -> None:
        del failed
        if self._begun:
            self._c.finish_reading()


def from_anywhere(path: str) -> str:
    """A path that means the same file from whatever folder; as it is written, for `..` after a link leads elsewhere."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


class Place:
    """The file that a name led to, and whether it still does. Every write and every recall asks."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = _file_at(path)

    def holds(self) -> bool:
        """Whether the name leads there still. Who may not look there, or not now, has not seen it go."""
        file = self._file
        if file is None:
            return True
        try:
            return _file_at(self._path) == file
        except OSError:
            return True


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file a name leads to; None if it leads nowhere, and where an open file keeps its name anyway."""
    if os.name == "nt":
        return None
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def unchanging(path: str) -> bool:
    """Whether a file lies where nobody can write, and is complete: SQLite then needs no shared memory beside it."""
    try:
        closed = os.statvfs(path).f_flag & os.ST_RDONLY
        return bool(closed) and not (os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"))
    except (OSError, AttributeError):  # not there, or a system without such flags
        return False


if TYPE_CHECKING:

    class Counted(Protocol):
        """Called with every statement that is run; used to count work in tests."""

        def __call__(self, sql: str, bindings: Any, /) -> None:
            """One statement, about to run."""


MEMORY = ":memory:"
PREPARED = 512
"""Statements that stay prepared. They make room in the order in which they were last run, so what a write runs is still
there after fifty recalls; with the usual hundred it would be prepared again after ten."""
LOOK = "SELECT 1 FROM sqlite_schema LIMIT 0"
"""A read, of nothing: SQLite takes a look at the file."""
UNSHARED = apsw.SQLITE_OPEN_NOMUTEX
"""SQLite takes no lock of its own for a connection: it would do so several times for every value that is read, and
whoever uses the handle holds `Connection.lock` anyway. To look whether a transaction is open needs neither."""


class Connection:
    """A connection that is safe to share between threads and notices a fork."""

    def __init__(
        self, path: str, *, busy_seconds: float, read_only: bool = False, cut_short: bool = False
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._cut = cut_short and read_only
        """Whether the file may be shorter than it says and is read as far as it goes; never where it is written."""
        self._busy_ms = int(busy_seconds * 1000)
        self.lock = threading.RLock()
        self._came_along = False
        """Whether the handle is a parent's, that came with a fork."""
        self.trace: Counted | None = None
        self._ahead = False
        self.moment = 0
        """The number of the snapshot that is being read, 0 outside of one: while it stands, nothing changes."""
        self._moments = 0
        self._turns = 0
        """How often what was read may have become untrue: somebody else wrote, a part was rolled back, a fork."""
        self._noticed = -1
        """SQLite's number of the file's content when that was last looked at, or last changed by a commit here."""
        self.version: int | None = None
        """What others had written when this transaction began: it cannot change while that lasts."""
        self._left = False
        """Whether the handle that came with a fork was let go."""
        self._closed = False
        self._stand_ins: StandIns | None = None
        self.where = path if path == MEMORY else from_anywhere(path)
        """The path from whatever folder."""
        self._place: Place | None = None
        """Which file was opened, where the system says so."""
        self._db: Any = self._connect()
        self._cursor: Any = self._db.cursor()
        """For statements that are over when they return; a new one for each costs as much as a small statement."""
        runtime.hold(self.lock)
        runtime.watch(self)

    @property
    def db(self) -> Any:
        """The handle, which is this process's own."""
        if self._came_along:
            self._after_fork()
        return self._db

    def forked(self) -> None:
        """In a child: let go of the parent's handle.

        As long as it is open, SQLite believes that this process has the parent's locks and takes none for itself; the
        parent would then find itself alone on leaving, and delete the log that the child writes to.
        """
        self._came_along = True
        if self._closed or self._left or self.path == MEMORY:
            return
        if runtime.missed(self.lock) or self._db.in_transaction:
            return  # closing what is in use would harm the parent
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the log is the parent's to empty
        self._db.close(True)
        self._left = True

    def _connect(self) -> Any:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | UNSHARED
        with translated(self.path):
            db: Any = (
                self._connect_to_read()
                if self.read_only
                else apsw.Connection(self.where, flags=flags, statementcachesize=PREPARED)
            )
            db.set_busy_timeout(self._busy_ms)
            # Statements stay prepared whatever is bound to them; otherwise many are prepared again at every call.
            db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # Read to the end: a pragma that answers with a row keeps those after it from being run.
            db.execute(
                "PRAGMA secure_delete=ON; PRAGMA foreign_keys=OFF; PRAGMA temp_store=MEMORY"
            ).fetchall()
            # Not memory-mapped: a file cut short by somebody else would end the process instead of raising an error.
            db.execute("PRAGMA cache_size=-16384; PRAGMA mmap_size=0").fetchall()
            if self._stand_ins is not None:
                self._stand_ins.begin(db)
        with contextlib.suppress(OSError):
            self._place = None if self.path == MEMORY else Place(self.where)
        return db

    @property
    def moved(self) -> bool:
        """Whether the file that was opened is no longer the one under its name: nobody else would see a write to it."""
        try:
            self._stay()
        except MovedError:
            return True
        return False

    def _stay(self) -> None:
        if self._stand_ins is not None and self.mine and not self._left and self._stand_ins.follow(self._db):
            self._turn()
        if self._place is None or self._place.holds():
            return
        raise MovedError(
            f"{self.path} was moved, deleted or replaced while it was open, and nothing was written to it; open the"
            " bank again"
        )

    def _connect_to_read(self) -> Any:
        """For reading: as it is, or where nobody can write and SQLite may not make its files, as one that stays."""
        db: Any = apsw.Connection(
            self.where, flags=apsw.SQLITE_OPEN_READONLY | UNSHARED, statementcachesize=PREPARED
        )
        try:
            self._look(db)
        except apsw.CantOpenError:
            if not unchanging(self.where):
                raise
            from urllib.parse import quote

            db.close(True)
            name = f"file:{quote(self.where)}?immutable=1"
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | UNSHARED
            db = apsw.Connection(name, flags=flags, statementcachesize=PREPARED)
            self._look(db)
        return db

    def _look(self, db: Any) -> None:
        """Have SQLite look at a file that is only read. Of one that is too short it refuses all, unless told not to."""
        if self._cut:
            db.execute("PRAGMA writable_schema=ON").fetchall()
        db.execute("PRAGMA schema_version").fetchall()

    def read_as_it_is(self, stand_ins: StandIns) -> None:
        """Read through views, now and on every later handle of this connection, such as one that a child opens."""
        stand_ins.begin(self.db)
        self._stand_ins = stand_ins

    def log_ahead(self) -> None:
        """Switch to write-ahead logging, synced to disk at every commit."""
        self._ahead = self.path != MEMORY
        if self._ahead:
            with translated(self.path):
                self.db.execute(
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864"
                ).fetchall()

    def execute(self, sql: str, bindings: Any = ()) -> Any:
        """Run one statement."""
        if self.trace is not None:
            self.trace(sql, bindings)
        return self.db.execute(sql, bindings)

    def run(self, sql: str, bindings: Any = ()) -> None:
        """Run one statement that answers nothing; the caller holds the lock."""
        if self.trace is not None:
            self.trace(sql, bindings)
        if self._came_along:
            self._after_fork()
        self._cursor.execute(sql, bindings)

    def insert_each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows by the statement for one, which ends with its values. The caller holds the lock."""
        if len(rows) == 1:  # as most writes have it
            self.run(sql, rows[0])
            return

        for statement, some in together(sql, rows):
            if self.trace is not None:
                for each in some:
                    self.trace(statement, each)
            if self._came_along:
                self._after_fork()
            self._cursor.executemany(statement, some)

    def rows(self, sql: str, bindings: Any = ()) -> list[tuple[Any, ...]]:
        """All rows of a query, under the lock, with errors translated."""
        try:
            with self.lock:
                if not self.moment and not self.db.in_transaction:
                    self._stay()
                return self._all(sql, bindings)
        except FAILED as error:
            raise explained(error, self.path) from error

    def one(self, sql: str, bindings: Any = ()) -> Any:
        """The first column of the only row, or None."""
        try:
            with self.lock:
                if not self.moment and not self.db.in_transaction:
                    self._stay()
                found = self._all(sql, bindings)
                return found[0][0] if found else None
        except FAILED as error:
            raise explained(error, self.path) from error

    def _all(self, sql: str, bindings: Any) -> list[tuple[Any, ...]]:
        if self.trace is not None:
            self.trace(sql, bindings)
        if self._came_along:
            self._after_fork()
        return self._cursor.execute(sql, bindings).fetchall()

    def transaction(self, *, apart: bool = False) -> contextlib.AbstractContextManager[None]:
        """Everything inside is written, or nothing is. Nested use joins the outer one.

        Args:
            apart: Nested, it can fail alone, whatever the outer one does. In a snapshot it always can.
        """
        return Transaction(self, apart=apart)

    def begin(self, *, apart: bool) -> bool | None:
        """Begin a transaction (True), a part that can fail alone (False), or join what is under way (None).

        Whoever asks has asked for the handle, which is this process's own then.
        """
        if not self._db.in_transaction:
            self._stay()
            self.run("BEGIN IMMEDIATE")
            self._notice()
            return True
        if apart or self.moment:
            self.run("SAVEPOINT part")
            return False
        return None

    def finish(self, begun: bool | None, *, failed: bool) -> None:
        """End what was begun. A part that fails leaves nothing behind, whatever the whole does."""
        if begun is None:
            return
        if begun and failed:
            self._undo()
        elif begun:
            self.commit()
            self._noticed = self._db.data_version()  # what has changed since it began is our own
        elif failed:
            self._turn()
            if self.db.in_transaction:  # SQLite itself ends it when the disk is full
                self.run("ROLLBACK TO part")
                self.run("RELEASE part")
        else:
            self.run("RELEASE part")

    def commit(self) -> None:
        """End what was begun well; where that fails, nothing of it is left."""
        try:
            self.run("COMMIT")
        except apsw.Error:
            self._undo()
            raise

    def _notice(self) -> int:
        """What others have written, as of what is being read; to be asked after something was read."""
        number = self._db.data_version()
        if number != self._noticed:
            self._noticed = number
            self._turns += 1
        self.version = self._turns
        return self._turns

    def _undo(self) -> None:
        self._turn()
        if self.db.in_transaction:
            self.run("ROLLBACK")

    def _turn(self) -> None:
        self._turns += 1
        self.version = None

    @property
    def mine(self) -> bool:
        """Whether this thread is inside a transaction or a snapshot already."""
        return self.lock._is_owned()  # type: ignore[attr-defined]  # pyright: ignore

    def abandon(self) -> None:
        """Roll back a transaction that an interrupt left open; what is written later must not become a part of it."""
        if self.db.in_transaction:
            self.moment = 0
            self._undo()

    def let_go(self) -> None:
        """After an interrupt in the outermost transaction of this thread: nothing stays open, nothing stays locked."""
        with self.lock:  # it may have been let go already, and what is open now may be another thread's
            self.abandon()
        while self.mine:
            self.lock.release()

    def snapshot(self) -> contextlib.AbstractContextManager[None]:
        """Every read inside sees the same moment."""
        return Snapshot(self)

    def begin_reading(self, *, outermost: bool) -> bool:
        """Begin a snapshot; False where what is under way serves as one."""
        if self.db.in_transaction:
            if not outermost:
                return False
            self.abandon()
        self._stay()
        self.run("BEGIN")
        self.version = None
        self._moments += 1
        self.moment = self._moments
        return True

    def finish_reading(self) -> None:
        """End the snapshot."""
        self.moment = 0
        self.commit()

    def impatient(self, seconds: float = 0.0) -> contextlib.AbstractContextManager[None]:
        """Inside, a lock that somebody holds is not waited for, or for so long at most."""
        return Impatient(self, min(self._busy_ms, int(seconds * 1000)))

    def wait_for(self, milliseconds: int | None = None) -> None:
        """Wait for a lock that somebody holds so long at most; as long as was asked for at first if not said."""
        self.db.set_busy_timeout(self._busy_ms if milliseconds is None else milliseconds)

    @property
    def writing(self) -> bool:
        """Whether a write is under way, so that what is read may not be true in the end."""
        return not self.moment and self.db.in_transaction

    def limit_memory(self, kib: int) -> None:
        """Keep no more of the file in memory than this; for processes that hold many banks."""
        with self.lock:
            self.db.execute(f"PRAGMA cache_size=-{int(kib)}")

    def data_version(self) -> int:
        """Changes when another connection has written, and when something read here may not be true any more."""
        try:
            with self.lock:
                if self.db.in_transaction and self.version is not None:
                    return self.version
                self._cursor.execute(LOOK)
                return self._notice()
        except apsw.Error as error:
            raise explained(error, self.path) from error

    def unmoved(self, version: int) -> bool:
        """Whether nobody had written since that version when something was last read. Asks SQLite nothing."""
        return self._turns == version and self._db.data_version() == self._noticed

    def close(self) -> None:
        """Release the file."""
        with self.lock:
            self._closed = True
            self._db.close(True)

    def _after_fork(self) -> None:
        """A child must not use its parent's connection: SQLite's locks do not survive a fork."""
        if self._closed:
            return
        if self.path == MEMORY:
            raise StorageError("an in-memory bank cannot be used after a fork; open a new one in the child")
        if not self._left:
            raise StorageError(
                f"{self.path} was in use at the moment of the fork, so a child cannot use it; fork between calls"
            )
        self._stay()  # opening it would make an empty one in its place
        self._came_along = False
        self._left = False
        self._turn()
        self.moment = 0
        self._db = self._connect()
        self._cursor = self._db.cursor()
        if self._ahead:
            self.log_ahead()


TOGETHER = 25
"""Rows that one statement inserts; with more nothing is gained."""


def together(sql: str, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, Sequence[Sequence[Any]]]]:
    """The statements that insert rows, each with its bindings.

    Not for full-text tables: at every statement with several rows they write out what they hold back until the commit.

    Args:
        sql: The statement for one row; it ends with its values.
        rows: The bindings of each.
    """
    whole = len(rows) - len(rows) % TOGETHER
    if whole:
        starts = range(0, whole, TOGETHER)
        yield _many(sql), [tuple(chain.from_iterable(rows[start : start + TOGETHER])) for start in starts]
    if whole < len(rows):
        yield sql, rows[whole:]


@lru_cache(maxsize=64)
def _many(sql: str) -> str:
    """The statement for one row, for many."""
    into, values, one = sql.rpartition(" VALUES")
    return f"{into}{values}{','.join([one] * TOGETHER)}"
