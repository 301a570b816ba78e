"""Vectors in their spaces, one per embedder; the queue of what still has to be embedded; what models read in pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from skep.storage.memory_rows import searched_text
from skep.storage.sqlite_connection import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Singles = NDArray[np.float32]

SHIFT = 40
NEAR_UNIT = 0.5
"""The square of a length may be this far from 1 for a vector to be stored as it is."""


def packed(vectors: Singles) -> list[bytes]:
    """Rows as they are stored: of length 1, in half precision, little-endian. The index keeps no more digits."""
    import numpy as np

    off = np.abs(np.vecdot(vectors, vectors) - 1.0).max(initial=0.0)
    if off > NEAR_UNIT:  # numbers far from 1 would be lost
        lengths = np.sqrt(np.vecdot(vectors, vectors, dtype=np.float64))
        vectors = np.divide(vectors, lengths[:, None], where=lengths[:, None] > 0, out=np.zeros_like(vectors))
    whole, size = vectors.astype("<f2").tobytes(), 2 * vectors.shape[1]
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def unpacked(vectors: Sequence[bytes | None], dim: int) -> Singles:
    """Stored vectors as rows; what is missing or of another length becomes a row of zeros."""
    import numpy as np

    empty, old = bytes(2 * dim), 4 * dim
    halves = b"".join([v if v is not None and len(v) == 2 * dim else empty for v in vectors])
    rows = np.frombuffer(halves, "<f2").reshape(len(vectors), dim).astype(np.float32)
    for at, vector in enumerate(vectors):
        if vector is not None and len(vector) == old:  # in single precision: from before halves were stored
            rows[at] = np.frombuffer(vector, "<f4")
    return rows


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """The vectors of one embedder. Exactly one space is active: recall uses it, and no other."""

    number: int
    fingerprint: str
    dim: int
    spec: str | None
    state: str

    @property
    def name(self) -> str:
        """The embedder as a reader knows it."""
        return self.spec or self.fingerprint


class Made(NamedTuple):
    """The vectors of the texts of one write in one space."""

    vectors: Sequence[bytes]
    drafts: bool = False
    """True where they only stand in until the texts, which are queued, are embedded."""


class Vectors:
    """The vector tables of one bank."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def spaces(self) -> list[Space]:
        """Every space, oldest first."""
        rows = self._c.rows("SELECT space, fingerprint, dim, spec, state FROM spaces ORDER BY space")
        return [Space(number=n, fingerprint=f, dim=d, spec=s, state=state) for n, f, d, s, state in rows]

    def create(self, fingerprint: str, dim: int, spec: str | None, state: str) -> Space:
        """A new space. Call inside a transaction."""
        self._c.execute(
            "INSERT INTO spaces(fingerprint, dim, spec, state) VALUES(?,?,?,?)",
            (fingerprint, dim, spec, state),
        )
        number = self._c.db.last_insert_rowid()
        return Space(number=number, fingerprint=fingerprint, dim=dim, spec=spec, state=state)

    def queue_all(self, space: int) -> None:
        """Queue every memory that has no vector in a space."""
        self._c.execute(
            "INSERT OR IGNORE INTO pending(space, row) SELECT :space, row FROM memories WHERE forgotten = 0 AND"
            " NOT EXISTS (SELECT 1 FROM halves WHERE key = (:space << 40) | memories.row)",
            {"space": space},
        )

    def put(self, space: int, rows: Sequence[int], vectors: Iterable[bytes]) -> None:
        """Store vectors, and take their rows out of the queue."""
        self._c.execute_many(
            "INSERT OR REPLACE INTO halves(key, vector) VALUES(?,?)",
            [((space << SHIFT) | row, vector) for row, vector in zip(rows, vectors, strict=True)],
        )
        self._c.execute_many(
            "DELETE FROM pending WHERE space = ? AND row = ?", [(space, row) for row in rows]
        )

    def queue(self, space: int, rows: Iterable[int], drafts: Sequence[bytes] | None = None) -> None:
        """Queue rows; their outdated vectors in this space go, or make way for drafts until they are embedded."""
        rows = list(rows)
        if drafts is None:
            self._c.execute_many(
                "DELETE FROM halves WHERE key = ?", [((space << SHIFT) | row,) for row in rows]
            )
        else:
            self._c.execute_many(
                "INSERT OR REPLACE INTO halves(key, vector) VALUES(?,?)",
                [((space << SHIFT) | row, vector) for row, vector in zip(rows, drafts, strict=True)],
            )
        self._c.execute_many(
            "INSERT OR REPLACE INTO pending(space, row) VALUES(?,?)", [(space, row) for row in rows]
        )

    def due(self, space: int, now: float) -> bool:
        """True if any row may be embedded now."""
        found = self._c.one("SELECT 1 FROM pending WHERE space = ? AND retry_at <= ? LIMIT 1", (space, now))
        return found is not None

    def claim(
        self, space: int, limit: int, now: float, lease: float, *, after: int = -1, which: str = "due"
    ) -> list[tuple[int, str, int]]:
        """Rows that may be embedded now, with their text and past attempts; nobody else gets them for a while.

        Args:
            space: Whose queue.
            limit: How many at most.
            now: The time.
            lease: For how many seconds they are kept from the others.
            after: Only rows behind this one.
            which: `due`, or `due or failed` (whatever the time to try those again), or `not failed` (also what
                somebody else has been given).
        """
        conditions = {
            "due": "p.retry_at <= :now",
            "due or failed": "(p.retry_at <= :now OR p.error IS NOT NULL)",
            "not failed": "p.error IS NULL",
        }
        rows = self._c.rows(
            "SELECT p.row, m.title, m.text, p.attempts FROM pending p JOIN memories m ON m.row = p.row"
            f" WHERE p.space = :space AND p.row > :after AND {conditions[which]} ORDER BY p.row LIMIT :limit",
            {"space": space, "now": now, "after": after, "limit": limit},
        )
        self._c.execute_many(
            "UPDATE pending SET retry_at = ? WHERE space = ? AND row = ?",
            [(now + lease, space, row) for row, *_ in rows],
        )
        return [(row, searched_text(title, text), attempts) for row, title, text, attempts in rows]

    def release(self, space: int, rows: Iterable[int], lease_end: float) -> None:
        """Give back rows that were claimed, as far as the claim still stands."""
        self._c.execute_many(
            "UPDATE pending SET retry_at = 0 WHERE space = ? AND row = ? AND retry_at = ?",
            [(space, row, lease_end) for row in rows],
        )

    def failed(self, space: int, rows: Iterable[int], error: str, retry_at: float) -> None:
        """Note that embedding failed, and when to try again."""
        self._c.execute_many(
            "UPDATE pending SET attempts = attempts + 1, error = ?, retry_at = ? WHERE space = ? AND row = ?",
            [(error, retry_at, space, row) for row in rows],
        )

    def waiting(self, space: int) -> int:
        """The number of rows that wait in a space."""
        return self._c.one("SELECT count(*) FROM pending WHERE space = ?", (space,)) or 0

    def last_error(self, space: int) -> str | None:
        """The newest failure of the queue."""
        return self._c.one(
            "SELECT error FROM pending WHERE space = ? AND error IS NOT NULL ORDER BY retry_at DESC LIMIT 1",
            (space,),
        )

    def activate(self, space: int) -> None:
        """Make a complete space the active one and drop the vectors of the others. Call inside a transaction."""
        self._c.execute(
            "DELETE FROM halves WHERE key < ? OR key >= ?", (space << SHIFT, (space + 1) << SHIFT)
        )
        self._c.execute("DELETE FROM pending WHERE space != ?", (space,))
        self._c.execute("DELETE FROM spaces WHERE space != ?", (space,))
        self._c.execute("UPDATE spaces SET state = 'active' WHERE space = ?", (space,))

    def drop(self, space: int) -> None:
        """Give up a space that was being built."""
        self._c.execute(
            "DELETE FROM halves WHERE key >= ? AND key < ?", (space << SHIFT, (space + 1) << SHIFT)
        )
        self._c.execute("DELETE FROM pending WHERE space = ?", (space,))
        self._c.execute("DELETE FROM spaces WHERE space = ?", (space,))

    def erase(self, row: int) -> int:
        """Delete the vectors of a row in every space."""
        erased = 0
        for space in self.spaces():
            self._c.execute("DELETE FROM halves WHERE key = ?", ((space.number << SHIFT) | row,))
            erased += self._c.db.changes()
        self._c.execute("DELETE FROM pending WHERE row = ?", (row,))
        return erased

    def get(self, space: int, rows: Iterable[int]) -> dict[int, bytes]:
        """The stored vectors of rows."""
        keys = str([(space << SHIFT) | int(row) for row in rows])
        sql = "SELECT key, vector FROM halves WHERE key IN (SELECT value FROM json_each(?))"
        return {key & ((1 << SHIFT) - 1): vector for key, vector in self._c.rows(sql, (keys,))}


class PairReadings:
    """The outputs of the reader of pairs for one bank, by a number that is made of both texts.

    They are derived and hold no text: the table may be emptied at any time, and is filled again when that is wanted.
    """

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def get(self, pairs: Sequence[int]) -> dict[int, bytes]:
        """The outputs of those pairs that were read."""
        found = self._c.rows(
            "SELECT pair, outputs FROM pair_readings WHERE pair IN (SELECT value FROM json_each(?))",
            (str(list(pairs)),),
        )
        return dict(found)

    def put(self, outputs: Mapping[int, bytes]) -> None:
        """Keep outputs; called inside a transaction."""
        self._c.execute_many(
            "INSERT OR REPLACE INTO pair_readings(pair, outputs) VALUES(?, ?)", list(outputs.items())
        )
