"""Holding a connection from the beginning to the end of a block, whatever interrupts it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

import apsw

from skep.errors import StorageError
from skep.storage.failures import FAILED, explained

if TYPE_CHECKING:
    from skep.storage.connection import Connection


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
