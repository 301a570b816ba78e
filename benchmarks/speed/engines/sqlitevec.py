"""SQLite with FTS5 for words and sqlite-vec for vectors, through apsw."""

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
    row INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, text TEXT NOT NULL,
    importance REAL NOT NULL DEFAULT 0.5, uses INTEGER NOT NULL DEFAULT 0);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='memory', content_rowid='row');
CREATE VIRTUAL TABLE IF NOT EXISTS vectors USING vec0(
    row INTEGER PRIMARY KEY, team TEXT, project TEXT, embedding FLOAT[{dim}] distance_metric=cosine);
"""


class SqliteVec(SqliteRows):
    """The plain recipe: a table, an FTS5 table and a vec0 table in one file."""

    durability: str = "one transaction per write, WAL, synchronous=FULL: survives power loss"
    notes: tuple[str, ...] = (
        "vec0 scans every vector exactly; the filter fields are vec0 metadata columns. With the project as partition"
        " key its filter took a sixteenth (20,000 rows: 0.52 instead of 8.6 ms), searches without it three times as"
        " much (35 instead of 11 ms), and the file was five times as large.",
        "Exact vectors. As its guide to binary quantization says (signs are scanned, eight times as many as are wanted"
        " are scored again), ten of 100,000 took 9 ms instead of 45 with r .86, fifty 51 with r .85 and 180 with r .99;"
        " under the filter of 1 % fifty took 8 instead of 25 with r .99.",
        "SQLite's settings as shipped. With `PRAGMA mmap_size` its scans took a third less (50,000 rows: 18 instead of"
        " 25 ms, filtered 9.5 instead of 16), and the mapped file counted as its memory.",
    )

    def open(self, path: str, dim: int) -> None:
        """Open the file with the extension loaded."""
        apsw: Any = import_module("apsw")
        sqlite_vec: Any = import_module("sqlite_vec")
        self.db = apsw.Connection(os.path.join(path, "vec.db"))
        self.db.enable_load_extension(True)
        self.db.load_extension(sqlite_vec.loadable_path())
        self.db.enable_load_extension(False)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.synced = True
        self.db.execute(SCHEMA.format(dim=dim))
        self.count = int(self.db.execute("SELECT coalesce(max(row), 0) FROM memory").get)

    def _insert(self, row: Row) -> None:
        self.count += 1
        key = self.count
        self.db.execute("INSERT INTO memory(row, id, text) VALUES (?,?,?)", (key, row.id, row.text))
        self.db.execute("INSERT INTO words(rowid, text) VALUES (?,?)", (key, row.text))
        self.db.execute(
            "INSERT INTO vectors(row, team, project, embedding) VALUES (?,?,?,?)",
            (key, row.team, row.project, row.vector.tobytes()),
        )

    def load(self, rows: Sequence[Row]) -> None:
        """One transaction for the batch."""
        with self.db:
            for row in rows:
                self._insert(row)

    def settle(self) -> None:
        """Merge the full-text index."""
        self.db.execute("INSERT INTO words(words) VALUES ('optimize')")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _sync(self, synced: bool) -> None:
        """Whether a commit waits for the disk; asked of SQLite only when it changes."""
        if synced != self.synced:
            self.db.pragma("synchronous", "full" if synced else "normal")
            self.synced = synced

    def write(self, row: Row, how: How = "synced") -> None:
        """Row, words and vector in one transaction."""
        refuse(how, "synced", "unsynced")
        self._sync(how == "synced")
        with self.db:
            self._insert(row)

    def touch(self, row: Row) -> None:
        """One statement, not synced."""
        self._sync(False)
        self.db.execute("UPDATE memory SET uses = uses + 1 WHERE id = ?", (row.id,))

    def update(self, row: Row, importance: float) -> None:
        """One durable statement."""
        self._sync(True)
        self.db.execute("UPDATE memory SET importance = ? WHERE id = ?", (importance, row.id))

    def _by_vector(self, query: Query, k: int, where: Where) -> list[int]:
        sql = "SELECT row FROM vectors WHERE embedding MATCH ? AND k = ?"
        values: list[object] = [query.vector.tobytes(), k]
        if where is not None:
            sql += f" AND {where[0]} = ?"
            values.append(where[1])
        return [row for (row,) in self.db.execute(sql, values)]


ENGINE = SqliteVec
