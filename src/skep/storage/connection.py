"""One connection to one file: pragmas, transactions, and errors in our own words."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

import apsw

from skep.errors import (
    BusyError,
    CorruptBankError,
    DiskFullError,
    NotABankError,
    ReadOnlyError,
    StorageError,
)

MEMORY = ":memory:"


class Counted(Protocol):
    """Called with every statement that is run; used to count work in tests."""

    def __call__(self, sql: str, bindings: Any, /) -> None:
        """One statement, about to run."""
        ...


class Connection:
    """A connection that is safe to share between threads and notices a fork."""

    def __init__(self, path: Path | str, *, busy_seconds: float, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._busy_ms = int(busy_seconds * 1000)
        self.lock = threading.RLock()
        self._pid = os.getpid()
        self.trace: Counted | None = None
        self._ahead = False
        self.db: Any = self._connect()

    def _connect(self) -> Any:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if self.read_only:
            flags = apsw.SQLITE_OPEN_READONLY
        with translated(self.path):
            db: Any = apsw.Connection(str(self.path), flags=flags)
            db.set_busy_timeout(self._busy_ms)
            db.execute("PRAGMA secure_delete=ON; PRAGMA foreign_keys=OFF; PRAGMA temp_store=MEMORY;")
            db.execute("PRAGMA cache_size=-16384; PRAGMA mmap_size=268435456")
        return db

    def log_ahead(self) -> None:
        """Switch to write-ahead logging, synced to disk at every commit."""
        self._ahead = str(self.path) != MEMORY
        if self._ahead:
            with translated(self.path):
                self.db.execute(
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864"
                )

    def execute(self, sql: str, bindings: Any = ()) -> Any:
        """Run one statement."""
        if self._pid != os.getpid():
            self._after_fork()
        if self.trace is not None:
            self.trace(sql, bindings)
        return self.db.execute(sql, bindings)

    def rows(self, sql: str, bindings: Any = ()) -> list[tuple[Any, ...]]:
        """All rows of a query, under the lock, with errors translated."""
        with self.lock, translated(self.path):
            return self.execute(sql, bindings).fetchall()

    def one(self, sql: str, bindings: Any = ()) -> Any:
        """The first column of the first row, or None."""
        with self.lock, translated(self.path):
            for row in self.execute(sql, bindings):
                return row[0]
        return None

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        """Everything inside is written, or nothing is. Nested use joins the outer one."""
        with self.lock, translated(self.path):
            if self._pid != os.getpid():
                self._after_fork()
            if self.db.in_transaction:
                yield
                return
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self.db.in_transaction:
                    self.execute("ROLLBACK")
                raise
            try:
                self.execute("COMMIT")
            except apsw.Error:
                if self.db.in_transaction:
                    self.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def snapshot(self) -> Generator[None]:
        """Every read inside sees the same moment."""
        with self.lock, translated(self.path):
            if self.db.in_transaction:
                yield
                return
            self.execute("BEGIN")
            try:
                yield
            finally:
                self.execute("COMMIT")

    @contextlib.contextmanager
    def impatient(self) -> Generator[None]:
        """Inside, a lock that somebody holds is not waited for."""
        with self.lock:
            self.db.set_busy_timeout(0)
            try:
                yield
            finally:
                self.db.set_busy_timeout(self._busy_ms)

    def limit_memory(self, kib: int) -> None:
        """Keep no more of the file in memory than this; for processes that hold many banks."""
        with self.lock:
            self.db.execute(f"PRAGMA cache_size=-{int(kib)}; PRAGMA mmap_size=0")

    def data_version(self) -> int:
        """Changes when another connection has written."""
        with self.lock, translated(self.path):
            return self.db.pragma("data_version")

    def close(self) -> None:
        """Release the file."""
        with self.lock:
            self.db.close(True)

    def _after_fork(self) -> None:
        """A child must not use its parent's connection: SQLite's locks do not survive a fork."""
        if str(self.path) == MEMORY:
            raise StorageError("an in-memory bank cannot be used after a fork; open a new one in the child")
        self._pid = os.getpid()
        self.lock = threading.RLock()
        self._orphan = self.db  # closing it here would drop the parent's locks
        self.db = self._connect()
        if self._ahead:
            self.log_ahead()


@contextlib.contextmanager
def translated(path: Path | str) -> Generator[None]:
    """SQLite's errors, in words that say what to do."""
    try:
        yield
    except apsw.BusyError as error:
        raise BusyError(
            f"another process kept {path} locked for too long; try again, or look for a stuck process"
        ) from error
    except apsw.FullError as error:
        raise DiskFullError(
            f"no space left while writing {path}; free some and try again, nothing was lost"
        ) from error
    except apsw.ReadOnlyError as error:
        raise ReadOnlyError(
            f"{path} cannot be written; check its permissions and those of its folder"
        ) from error
    except apsw.NotADBError as error:
        raise NotABankError(f"{path} is not a skep bank; choose another path or restore a backup") from error
    except apsw.CorruptError as error:
        raise CorruptBankError(
            f"{path} is damaged ({error}); run `skep doctor`, then restore a backup or `skep export` what can be read"
        ) from error
    except apsw.CantOpenError as error:
        raise ReadOnlyError(
            f"{path} cannot be opened; check that its folder exists and may be written"
        ) from error
    except apsw.IOError as error:
        raise StorageError(
            f"reading or writing {path} failed ({error}); check the disk with `skep doctor`"
        ) from error
    except apsw.PermissionsError as error:
        raise ReadOnlyError(f"access to {path} was refused; check its permissions") from error
