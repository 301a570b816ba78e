"""One connection to one file: pragmas, transactions, and errors in our own words."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw

from skep import forking
from skep.errors import MovedError, StorageError
from skep.storage.failures import FAILED, explained, translated
from skep.storage.holding import Impatient, Snapshot, Transaction
from skep.storage.places import Place, from_anywhere, unchanging

if TYPE_CHECKING:
    from typing import Protocol

    from skep.storage.standing_in import StandIns

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
        forking.hold(self.lock)
        forking.watch(self)

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
        if forking.missed(self.lock) or self._db.in_transaction:
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
        from skep.storage.together import together

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
