"""Qdrant Edge: Qdrant's storage and search inside the process."""

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
    Id,
    Plain,
    Query,
    Row,
    Where,
    refuse,
)

AVERAGE_WORDS = 12.0
"""Its BM25 wants the average document length, without stop words, in advance."""


def number_of(id: str) -> int:
    """Points are numbered: rows get even numbers, later writes odd ones."""
    return int(id[1:]) * 2 + (id[0] == "w")


def id_of(number: int) -> str:
    """The row of a point, so that ids alone are answered without reading a payload.

    >>> id_of(number_of("r0000012")), id_of(number_of("w0000003"))
    ('r0000012', 'w0000003')
    """
    return f"{'w' if number % 2 else 'r'}{number // 2:07d}"


class Qdrant(Plain):
    """A shard with a dense vector, a BM25 sparse vector and keyword payload indexes."""

    durability: str = "write-ahead log, flushed after every single write as asked here"
    lengths: str = "content"
    drops_function_words: bool = True
    notes: tuple[str, ...] = (
        "BM25 by its own encoder as a sparse vector with the IDF modifier; hybrid by its own RRF.",
        "Points are numbered after the rows, so that ids alone are answered without reading a payload.",
        "One search thread, as one caller asks one question at a time. With its own choice, a thread per core, those"
        " without work look for some meanwhile: 10,000 rows on two idle cores took by words 0.24 instead of 0.05 ms of"
        " CPU, by vectors 0.38 instead of 0.17, hybrid 0.60 instead of 0.30, and no less wall time.",
        "One process at a time may open a shard.",
    )

    def open(self, path: str, dim: int) -> None:
        """Load the shard, or create it with its payload indexes."""
        q: Any = import_module("qdrant_edge")
        self.q = q
        self.words: Any = q.Bm25(q.Bm25Config(avg_len=AVERAGE_WORDS))
        folder = os.path.join(path, "shard")
        if os.path.exists(folder):
            self.shard: Any = q.EdgeShard.load(folder)
            return
        os.makedirs(folder)
        self.shard = q.EdgeShard.create(
            folder,
            q.EdgeConfig(
                vectors={"dense": q.EdgeVectorParams(size=dim, distance=q.Distance.Cosine)},
                sparse_vectors={"words": q.EdgeSparseVectorParams(modifier=q.Modifier.Idf)},
                max_search_threads=1,  # kept with the shard; `notes` says why
            ),
        )
        for field in ("team", "project"):
            self.shard.update(q.UpdateOperation.create_field_index(field, q.PayloadSchemaType.Keyword))

    def _points(self, rows: Sequence[Row]) -> list[Any]:
        return [
            self.q.Point(
                number_of(row.id),
                {"dense": row.vector.tolist(), "words": self.words.embed_document(row.text)},
                {"text": row.text, "team": row.team, "project": row.project, "importance": 0.5},
            )
            for row in rows
        ]

    def load(self, rows: Sequence[Row]) -> None:
        """Upsert the batch."""
        self.shard.update(self.q.UpdateOperation.upsert_points(self._points(rows)))

    def settle(self) -> None:
        """Run the optimizers until there is nothing left to build."""
        self.shard.optimize()
        self.shard.flush()

    def write(self, row: Row, how: How = "synced") -> None:
        """Upsert one; flush to be sure."""
        refuse(how, "synced", "unsynced")
        self.load([row])
        if how == "synced":
            self.shard.flush()

    def touch(self, row: Row) -> None:
        """A payload update, not flushed."""
        self.shard.update(self.q.UpdateOperation.set_payload([number_of(row.id)], {"uses": 1}))

    def update(self, row: Row, importance: float) -> None:
        """A payload update, flushed."""
        self.shard.update(self.q.UpdateOperation.set_payload([number_of(row.id)], {"importance": importance}))
        self.shard.flush()

    def _answer(self, query: Any, k: int, where: Where, ids_only: bool, prefetches: Any = None) -> Answer:
        q = self.q
        condition = None
        if where is not None:
            condition = q.Filter(must=[q.FieldCondition(where[0], match=q.MatchValue(where[1]))])
        wanted = False if ids_only else ["text"]
        found: Any = self.shard.query(
            q.QueryRequest(limit=k, query=query, filter=condition, prefetches=prefetches, with_payload=wanted)
        )
        if ids_only:
            return [(point.id, "") for point in found]
        return [(point.id, point.payload["text"]) for point in found]

    def row_id(self, id: Id) -> str:
        """Points are numbered."""
        return id_of(int(id))

    def _by_words(self, text: str) -> Any:
        return self.q.Query.Nearest(self.words.embed_query(text), using="words")

    def _by_vector(self, query: Query) -> Any:
        return self.q.Query.Nearest(query.vector.tolist(), using="dense")

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """The sparse vector."""
        del query
        return self._answer(self._by_words(text), k, None, ids_only)

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """The dense vector, filtered inside."""
        return self._answer(self._by_vector(query), k, where, ids_only)

    def hybrid(self, query: Query, k: int) -> Answer:
        """Both as prefetches, fused inside."""
        q = self.q
        prefetches = [
            q.Prefetch(limit=CANDIDATES, query=self._by_words(query.text)),
            q.Prefetch(limit=CANDIDATES, query=self._by_vector(query)),
        ]
        return self._answer(q.Fusion.Rrf(k=RRF_K), k, None, False, prefetches)

    def has(self, id: str) -> bool:
        """Whether the row is stored."""
        return bool(self.shard.retrieve([number_of(id)], False, False))

    def close(self) -> None:
        """Close the shard."""
        self.shard.close()


ENGINE = Qdrant
