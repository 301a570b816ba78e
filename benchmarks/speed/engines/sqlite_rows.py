"""What engines on one SQLite file share: a row per memory, words in FTS5, answers by the numbers of rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from benchmarks.speed.engines.values import CANDIDATES, Answer, Id, Plain, Query, Where, any_word, fuse


class SqliteRows(Plain):
    """Tables `memory(row, id, text, ...)` and `words`; how vectors are searched is the engine's own."""

    db: Any

    @abstractmethod
    def _by_vector(self, query: Query, k: int, where: Where) -> list[int]: ...

    def _by_words(self, text: str, k: int) -> list[int]:
        found = self.db.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (any_word(text), k)
        )
        return [row for (row,) in found]

    def row_id(self, id: Id) -> str:
        """The id that was given, where only the number of the row was asked for."""
        return (
            id if isinstance(id, str) else self.db.execute("SELECT id FROM memory WHERE row = ?", (id,)).get
        )

    def _answer(self, rows: list[int], ids_only: bool) -> Answer:
        if ids_only:
            return [(row, "") for row in rows]
        marks = ",".join("?" * len(rows))
        found = {
            row: (id, text)
            for row, id, text in self.db.execute(
                f"SELECT row, id, text FROM memory WHERE row IN ({marks})", rows
            )
        }
        return [found[row] for row in rows if row in found]

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """FTS5, any word, ranked by its own BM25."""
        del query
        return self._answer(self._by_words(text, k), ids_only)

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """The nearest, as the engine finds them."""
        return self._answer(self._by_vector(query, k, where), ids_only)

    def hybrid(self, query: Query, k: int) -> Answer:
        """Fifty of each, fused by rank."""
        words = [str(row) for row in self._by_words(query.text, CANDIDATES)]
        vectors = [str(row) for row in self._by_vector(query, CANDIDATES, None)]
        return self._answer([int(row) for row in fuse(words, vectors)[:k]], False)

    def has(self, id: str) -> bool:
        """Whether the row is stored."""
        return self.db.execute("SELECT 1 FROM memory WHERE id = ?", (id,)).get is not None

    def close(self) -> None:
        """Close the file."""
        self.db.close()
