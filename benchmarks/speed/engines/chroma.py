"""Chroma, embedded: a persistent client and one collection."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.speed.engines.values import (
    CANDIDATES,
    Answer,
    How,
    Plain,
    Query,
    Row,
    Where,
    fuse,
    refuse,
)

BATCH = 2000
"""Below the largest batch its SQLite accepts."""


class Chroma(Plain):
    """A cosine collection; words through `where_document`, which matches but does not rank."""

    durability: str = (
        "acknowledged when its SQLite log has committed (settings as shipped); vectors are indexed from it"
    )
    notes: tuple[str, ...] = (
        "Keyword search is `$contains` on each word, joined by `$or`: a match test without ranking, so its "
        "agreement with BM25 is low by design. Ranking by sparse vectors (`Search`) is offered by its cloud alone.",
        "Hybrid is fused by the caller: vectors and the first fifty documents that contain a word.",
    )

    def open(self, path: str, dim: int) -> None:
        """Open the client with telemetry off."""
        del dim
        chromadb: Any = import_module("chromadb")
        config: Any = import_module("chromadb.config")
        self.client: Any = chromadb.PersistentClient(
            path=path, settings=config.Settings(anonymized_telemetry=False)
        )
        self.rows: Any = self.client.get_or_create_collection(
            "memory", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        self.np: Any = import_module("numpy")

    def _vector(self, values: Any) -> Any:
        return self.np.frombuffer(values, dtype=self.np.float32)

    def load(self, rows: Sequence[Row]) -> None:
        """Add in batches."""
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            self.rows.add(
                ids=[row.id for row in part],
                documents=[row.text for row in part],
                embeddings=[self._vector(row.vector) for row in part],
                metadatas=[{"team": row.team, "project": row.project, "importance": 0.5} for row in part],
            )

    def settle(self) -> None:
        """Nothing to ask for: the index is built while loading."""

    def write(self, row: Row, how: How = "synced") -> None:
        """Add one."""
        refuse(how, "synced")
        self.load([row])

    def touch(self, row: Row) -> None:
        """A metadata update: there is no cheaper kind."""
        self.rows.update(ids=[row.id], metadatas=[{"uses": 1}])

    def update(self, row: Row, importance: float) -> None:
        """A metadata update."""
        self.rows.update(ids=[row.id], metadatas=[{"importance": importance}])

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """Documents that contain any of the words, in no order of merit."""
        del query
        tests: list[Any] = [{"$contains": word} for word in dict.fromkeys(text.split())]
        where: Any = tests[0] if len(tests) == 1 else {"$or": tests}
        found: Any = self.rows.get(where_document=where, limit=k, include=[] if ids_only else ["documents"])
        return list(zip(found["ids"], found.get("documents") or [""] * len(found["ids"]), strict=True))

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """An HNSW query."""
        found: Any = self.rows.query(
            query_embeddings=[self._vector(query.vector)],
            n_results=k,
            where=None if where is None else {where[0]: where[1]},
            include=[] if ids_only else ["documents"],
        )
        ids = found["ids"][0]
        return list(
            zip(ids, found["documents"][0] if found.get("documents") else [""] * len(ids), strict=True)
        )

    def hybrid(self, query: Query, k: int) -> Answer:
        """Two searches, fused by rank, and the winners' texts."""
        words = [id for id, _ in self.keyword(query, query.text, CANDIDATES, True)]
        vectors = [id for id, _ in self.vector(query, CANDIDATES, None, True)]
        best = fuse(words, vectors)[:k]
        found: Any = self.rows.get(ids=best, include=["documents"])
        texts = dict(zip(found["ids"], found["documents"], strict=True))
        return [(id, texts[id]) for id in best]

    def has(self, id: str) -> bool:
        """Whether the row is stored."""
        return bool(self.rows.get(ids=[id], include=[])["ids"])

    def close(self) -> None:
        """Nothing to close by hand."""


ENGINE = Chroma
