"""What every engine under test does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchmarks.speed.engines.values import Answer, How, Id, Query, Row, Where


class Engine(Protocol):
    """A store of memories, used as its documentation recommends."""

    durability: str
    """What an acknowledged single write survives, and by which setting."""
    notes: tuple[str, ...]
    """What a reader must know to judge its numbers."""

    fusion: str
    """`listed`: reciprocal ranks over the two lists, a row missing from one gets nothing for it. `pooled`: every
    candidate is ranked by both signals among all candidates."""
    lengths: str
    """How long a text is to its BM25: `all` words, or `content` words without those it takes for function words."""
    drops_function_words: bool
    """Whether it leaves function words out of a question."""

    def open(self, path: str, dim: int) -> None:
        """Open or create the store in the folder `path`."""
        ...

    def load(self, rows: Sequence[Row]) -> None:
        """Store a batch."""
        ...

    def settle(self) -> None:
        """Build or finish the indexes, so that every kind of search is at its best."""
        ...

    def write(self, row: Row, how: How = "synced") -> None:
        """Store one row; NotOfferedError for a kind of write that the engine does not know.

        `synced` is as durable as the engine can, and returns when that is so. `unsynced` returns when the
        engine acknowledges the row, without asking for the disk. `checked` is synced, and looks first for
        what the row contradicts or repeats.
        """
        ...

    def touch(self, row: Row) -> None:
        """Note that a row was used; durability is not asked for."""
        ...

    def flush(self) -> None:
        """Write down the touches that are only held in memory so far."""
        ...

    def update(self, row: Row, importance: float) -> None:
        """Change one field of a row, durably."""
        ...

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """The best `k` by words."""
        ...

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """The best `k` by vector, among the rows that `where` admits."""
        ...

    def hybrid(self, query: Query, k: int) -> Answer:
        """The best `k` by words and vector together."""
        ...

    def default(self, query: Query, k: int) -> Answer:
        """What the engine does by default when it is more than `hybrid`; else NotOfferedError."""
        ...

    def index(self, kind: str, query: Query) -> Answer:
        """What the index answers before the store is asked, where the engine has the two apart; else NotOfferedError.

        `keyword`, `vector` and `filtered_1` give fifty ids, `hybrid` the ten best of fifty each.
        """
        ...

    def row_id(self, id: Id) -> str:
        """The row that the engine calls so in an answer. Nobody but this harness asks, and it does not time it."""
        ...

    def has(self, id: str) -> bool:
        """Whether the row is stored."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
