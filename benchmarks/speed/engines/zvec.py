"""zvec: an embedded engine with HNSW, inverted and full-text indexes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.speed.engines.values import (
    CANDIDATES,
    RRF_K,
    Answer,
    How,
    Plain,
    Query,
    Row,
    Where,
    refuse,
)


class Zvec(Plain):
    """One collection in one folder."""

    durability: str = "write-ahead log; `flush` after every single write as asked here"
    notes: tuple[str, ...] = (
        "One process at a time may open a collection.",
        "Its own settings: m 50, ef_construction 500, ef 300. A smaller `ef` trades agreement for time.",
        "After a few hundred flushed writes and updates it stopped answering in several runs here, also when it was"
        " never halted; not flushed, the same writes went through.",
    )

    def open(self, path: str, dim: int) -> None:
        """Open the collection or create it."""
        z: Any = import_module("zvec")
        self.z = z
        folder = os.path.join(path, "collection")
        if os.path.exists(folder):
            self.rows: Any = z.open(folder)
            return
        text = z.DataType.STRING
        self.rows = z.create_and_open(
            folder,
            z.CollectionSchema(
                name="memory",
                fields=[
                    z.FieldSchema("text", text, index_param=z.FtsIndexParam()),
                    z.FieldSchema("team", text, index_param=z.InvertIndexParam()),
                    z.FieldSchema("project", text, index_param=z.InvertIndexParam()),
                    z.FieldSchema("importance", z.DataType.FLOAT),
                ],
                vectors=[
                    z.VectorSchema(
                        "vector",
                        z.DataType.VECTOR_FP32,
                        dim,
                        index_param=z.HnswIndexParam(metric_type=z.MetricType.COSINE),
                    )
                ],
            ),
        )

    def _docs(self, rows: Sequence[Row]) -> list[Any]:
        return [
            self.z.Doc(
                id=row.id,
                vectors={"vector": row.vector.tolist()},
                fields={"text": row.text, "team": row.team, "project": row.project, "importance": 0.5},
            )
            for row in rows
        ]

    def load(self, rows: Sequence[Row]) -> None:
        """Insert in batches of its largest size."""
        for start in range(0, len(rows), 1000):
            self.rows.insert(self._docs(rows[start : start + 1000]))

    def settle(self) -> None:
        """Build the graph."""
        self.rows.optimize()
        self.rows.flush()

    def write(self, row: Row, how: How = "synced") -> None:
        """Insert one; flush to be sure."""
        refuse(how, "synced", "unsynced")
        self.rows.insert(self._docs([row])[0])
        if how == "synced":
            self.rows.flush()

    def touch(self, row: Row) -> None:
        """A field update, not flushed."""
        self.rows.update(self.z.Doc(id=row.id, fields={"importance": 0.6}))

    def update(self, row: Row, importance: float) -> None:
        """A field update, flushed."""
        self.rows.update(self.z.Doc(id=row.id, fields={"importance": importance}))
        self.rows.flush()

    def _answer(self, queries: Any, k: int, where: Where, ids_only: bool, fusion: Any = None) -> Answer:
        found: Any = self.rows.query(
            queries=queries,
            topk=k,
            filter=None if where is None else f"{where[0]} = '{where[1]}'",
            output_fields=[] if ids_only else ["text"],
            reranker=fusion,
        )
        return [(doc.id, doc.fields.get("text", "")) for doc in found]

    def _by_words(self, text: str) -> Any:
        return self.z.Query(field_name="text", fts=self.z.Fts(match_string=text))

    def _by_vector(self, query: Query) -> Any:
        return self.z.Query(field_name="vector", vector=query.vector.tolist())

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """Its full-text index, any word."""
        del query
        return self._answer(self._by_words(text), k, None, ids_only)

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """HNSW, filtered inside."""
        return self._answer(self._by_vector(query), k, where, ids_only)

    def hybrid(self, query: Query, k: int) -> Answer:
        """Both queries, fused by its own RRF."""
        fusion = self.z.RrfReRanker(rank_constant=RRF_K)
        both = [self._by_words(query.text), self._by_vector(query)]
        return self._answer(both, CANDIDATES, None, False, fusion)[:k]

    def has(self, id: str) -> bool:
        """Whether the row is stored."""
        return bool(self.rows.fetch(id, output_fields=[], include_vector=False))

    def close(self) -> None:
        """Close the collection."""
        self.rows.flush()
        self.rows.close()


ENGINE = Zvec
