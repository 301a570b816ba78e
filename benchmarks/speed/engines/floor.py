"""The floor: what a careful afternoon gives. SQLite FTS5 for words, one numpy product for vectors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.speed.engines.sqlite_rows import SqliteRows
from benchmarks.speed.engines.values import (
    How,
    Query,
    Row,
    Where,
    refuse,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS memory(
    row INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, text TEXT NOT NULL, vector BLOB NOT NULL,
    team TEXT NOT NULL, project TEXT NOT NULL, importance REAL NOT NULL DEFAULT 0.5);
CREATE INDEX IF NOT EXISTS memory_team ON memory(team);
CREATE INDEX IF NOT EXISTS memory_project ON memory(project);
CREATE TABLE IF NOT EXISTS used(row INTEGER PRIMARY KEY, uses INTEGER NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='memory', content_rowid='row');
"""


class Floor(SqliteRows):
    """Rows, words and vectors in one SQLite file; the vectors are copied into one matrix on first use."""

    durability: str = "one transaction per write, WAL, synchronous=FULL: survives power loss"
    notes: tuple[str, ...] = (
        "No engine: a transaction, FTS5 and an exact scan of a float32 matrix held in memory.",
        "Filters select rows in SQLite, then only those vectors are scored.",
    )

    def open(self, path: str, dim: int) -> None:
        """Open the file and create what is missing."""
        apsw: Any = import_module("apsw")
        self.dim = dim
        self.db = apsw.Connection(os.path.join(path, "floor.db"))
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.synced = True
        self.db.execute(SCHEMA)
        self.count = int(self.db.execute("SELECT coalesce(max(row), 0) FROM memory").get)
        self.matrix: Any = None
        self.loaded: Any = None

    @property
    def np(self) -> Any:
        """numpy, from the first search on."""
        self.loaded = self.loaded or import_module("numpy")
        return self.loaded

    def _insert(self, row: Row) -> int:
        self.count += 1
        values = (self.count, row.id, row.text, row.vector.tobytes(), row.team, row.project)
        self.db.execute(
            "INSERT INTO memory(row, id, text, vector, team, project) VALUES (?,?,?,?,?,?)", values
        )
        self.db.execute("INSERT INTO words(rowid, text) VALUES (?, ?)", (self.count, row.text))
        return self.count

    def load(self, rows: Sequence[Row]) -> None:
        """One transaction for the batch."""
        with self.db:
            for row in rows:
                self._insert(row)

    def settle(self) -> None:
        """Merge the full-text index and read the vectors."""
        self.db.execute("INSERT INTO words(words) VALUES ('optimize')")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._vectors()

    def _vectors(self) -> Any:
        """The matrix, one row of it per row of the table, grown by doubling."""
        if self.matrix is not None:
            return self.matrix[: self.count]
        np = self.np
        self.matrix = np.empty((max(1024, self.count + 1024), self.dim), dtype=np.float32)
        for row, blob in self.db.execute("SELECT row, vector FROM memory"):
            self.matrix[row - 1] = np.frombuffer(blob, dtype=np.float32)
        return self.matrix[: self.count]

    def _sync(self, synced: bool) -> None:
        """Whether a commit waits for the disk; asked of SQLite only when it changes."""
        if synced != self.synced:
            self.db.pragma("synchronous", "full" if synced else "normal")
            self.synced = synced

    def write(self, row: Row, how: How = "synced") -> None:
        """Row and words in one transaction, then the matrix."""
        refuse(how, "synced", "unsynced")
        self._sync(how == "synced")
        with self.db:
            position = self._insert(row)
        if self.matrix is not None:
            np = self.np
            if position > len(self.matrix):
                self.matrix = np.concatenate([self.matrix, np.empty_like(self.matrix)])
            self.matrix[position - 1] = np.frombuffer(row.vector, dtype=np.float32)

    def touch(self, row: Row) -> None:
        """One upsert into a narrow table, not synced."""
        self._sync(False)
        self.db.execute(
            "INSERT INTO used SELECT row, 1 FROM memory WHERE id = ?"
            " ON CONFLICT(row) DO UPDATE SET uses = uses + 1",
            (row.id,),
        )

    def update(self, row: Row, importance: float) -> None:
        """One durable statement."""
        self._sync(True)
        self.db.execute("UPDATE memory SET importance = ? WHERE id = ?", (importance, row.id))

    def _by_vector(self, query: Query, k: int, where: Where) -> list[int]:
        np = self.np
        matrix = self._vectors()
        probe = np.frombuffer(query.vector, dtype=np.float32)
        if where is None:
            rows = None
            scores = matrix @ probe
        else:
            field, value = where
            chosen = self.db.execute(f"SELECT row FROM memory WHERE {field} = ?", (value,))
            rows = np.fromiter((row for (row,) in chosen), dtype=np.int64)
            scores = matrix[rows - 1] @ probe
        k = min(k, len(scores))
        best = np.argpartition(-scores, k - 1)[:k] if k < len(scores) else np.arange(k)
        best = best[np.argsort(-scores[best])]
        return (best + 1).tolist() if rows is None else rows[best].tolist()


ENGINE = Floor
