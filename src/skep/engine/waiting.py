"""What waits to be embedded in one space, as the worker of the queue sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skep.embedding.queue import Pending
from skep.errors import BusyError, EmbedderMismatchError, EmbeddingError, StorageError
from skep.storage.sqlite import SqliteStore
from skep.storage.vectors import Space, packed

LEASE_SECONDS = 120.0
"""For how long rows handed to one process are kept from the others; a crash costs this much delay."""


class Waiting:
    """The queue of one space.

    Args:
        store: The bank.
        space: The space.
        stored: Called after vectors were stored, with whether nothing waits any more.
    """

    def __init__(self, store: SqliteStore, space: Space, stored: Callable[[bool], None]) -> None:
        self._store = store
        self._space = space
        self._stored = stored
        self._claimed: dict[int, str] = {}
        self._lease_end = 0.0

    def pending(self, limit: int, now: float) -> list[Pending] | None:
        """See `Source`. Looking costs no write; a space that was given up has nothing any more."""
        if self._store.vectors.due(self._space.number, now):
            return self._claim(limit, now)
        space = next((space for space in self._store.spaces() if space.number == self._space.number), None)
        if space is None:
            return None
        if space.state == "building" and not self._store.vectors.waiting(space.number):
            self._stored(True)  # whoever made the last vector did not live to say so
        return []

    def _claim(self, limit: int, now: float, *, after: int = -1, which: str = "due") -> list[Pending]:
        with self._store.connection.transaction():
            claimed = self._store.vectors.claim(
                self._space.number, limit, now, LEASE_SECONDS, after=after, which=which
            )
        self._claimed = {row: text for row, text, _attempts in claimed}
        self._lease_end = now + LEASE_SECONDS
        return claimed

    def release(self) -> None:
        """Give back what was handed out and not done, so that the next one need not wait for it."""
        try:
            with self._store.connection.impatient(), self._store.connection.transaction():
                self._store.vectors.release(self._space.number, self._claimed, self._lease_end)
        except (BusyError, StorageError):
            return  # somebody writes, or nobody can: it comes free by itself when the lease ends

    def store_vectors(self, rows: Sequence[int], vectors: Any, fingerprint: str) -> None:
        """See `Source`."""
        if fingerprint != self._space.fingerprint:
            raise EmbedderMismatchError(
                f"vectors of {fingerprint!r} do not belong in {self._space.fingerprint!r}"
            )
        if vectors.shape[1] != self._space.dim:
            raise EmbeddingError(f"expected {self._space.dim} dimensions, got {vectors.shape[1]}")
        self._store.put_vectors(
            self._space.number, rows, packed(vectors), [self._claimed[row] for row in rows]
        )
        self._stored(not self._store.vectors.waiting(self._space.number))

    def record_failure(self, rows: Sequence[int], error: str, retry_at: float) -> None:
        """See `Source`."""
        with self._store.connection.transaction():
            self._store.vectors.failed(self._space.number, rows, error, retry_at)


class Insisting(Waiting):
    """The same for somebody who waits for it: each row once, whatever the time it was to be tried again.

    First what is nobody's, or failed before; then what another process was given, which may be dead by now. If it is
    not, those rows are embedded twice, to the same vectors.
    """

    def __init__(self, store: SqliteStore, space: Space, stored: Callable[[bool], None]) -> None:
        super().__init__(store, space, stored)
        self._passes = ["due or failed", "not failed"]
        self._last = -1

    def pending(self, limit: int, now: float) -> list[Pending]:
        """See `Source`."""
        while self._passes:
            claimed = self._claim(limit, now, after=self._last, which=self._passes[0])
            if claimed:
                self._last = claimed[-1][0]
                return claimed
            self._passes.pop(0)
            self._last = -1
        return []
