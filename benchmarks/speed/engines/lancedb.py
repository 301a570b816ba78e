"""LanceDB, embedded: one table with a full-text, two bitmap and (from 100,000 rows) a vector index."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.speed.engines.values import CANDIDATES, Answer, How, Plain, Query, Row, Where, refuse

INDEX_FROM = 100_000
"""Its documentation advises a vector index from about this many rows; below, an exact scan."""


class LanceDb(Plain):
    """Columnar files; every write is a new version of the table."""

    durability: str = "each write is a new table version in new files; no fsync is asked of the file system"
    lengths: str = "content"
    drops_function_words: bool = True
    notes: tuple[str, ...] = (
        "Vector index IVF_HNSW_SQ from 100,000 rows on, refine factor 2; an exact scan below.",
        "Single writes leave small fragments; `optimize` is run after the bulk load only.",
    )

    def open(self, path: str, dim: int) -> None:
        """Open the table or create it empty."""
        lancedb: Any = import_module("lancedb")
        self.pa: Any = import_module("pyarrow")
        self.np: Any = import_module("numpy")
        pa = self.pa
        self.dim = dim
        self.db: Any = lancedb.connect(path)
        self.schema = pa.schema(
            [
                pa.field("id", pa.string()),
                pa.field("text", pa.string()),
                pa.field("vector", pa.list_(pa.float32(), dim)),
                pa.field("team", pa.string()),
                pa.field("project", pa.string()),
                pa.field("importance", pa.float32()),
            ]
        )
        self.table: Any = self.db.create_table("memory", schema=self.schema, exist_ok=True)
        self.indexed = any("vector" in index.columns for index in self.table.list_indices())
        reranking: Any = import_module("lancedb.rerankers")
        self.reranker: Any = reranking.RRFReranker(K=60)

    def load(self, rows: Sequence[Row]) -> None:
        """Add one Arrow batch."""
        pa, np = self.pa, self.np
        flat = np.concatenate([np.frombuffer(row.vector, dtype=np.float32) for row in rows])
        columns = [
            pa.array([row.id for row in rows]),
            pa.array([row.text for row in rows]),
            pa.FixedSizeListArray.from_arrays(pa.array(flat), self.dim),
            pa.array([row.team for row in rows]),
            pa.array([row.project for row in rows]),
            pa.array([0.5] * len(rows), pa.float32()),
        ]
        self.table.add(pa.Table.from_arrays(columns, schema=self.schema))

    def settle(self) -> None:
        """Compact, then build the indexes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.table.optimize()
            self.table.create_fts_index("text", replace=True, with_position=False)
            for field in ("team", "project"):
                self.table.create_scalar_index(field, index_type="BITMAP", replace=True)
            self.table.create_scalar_index("id", replace=True)
            if self.table.count_rows() >= INDEX_FROM:
                self.table.create_index(metric="cosine", index_type="IVF_HNSW_SQ")
                self.indexed = True

    def write(self, row: Row, how: How = "synced") -> None:
        """Add one."""
        refuse(how, "synced")
        self.load([row])

    def touch(self, row: Row) -> None:
        """An update: there is no cheaper kind."""
        self.update(row, 0.6)

    def update(self, row: Row, importance: float) -> None:
        """Rewrite the row with the new value."""
        self.table.update(where=f"id = '{row.id}'", values={"importance": importance})

    def _answer(self, search: Any, score: str, ids_only: bool) -> Answer:
        found: Any = search.select(["id", score] if ids_only else ["id", "text", score]).to_arrow()
        ids = found.column("id").to_pylist()
        texts = [""] * len(ids) if ids_only else found.column("text").to_pylist()
        return list(zip(ids, texts, strict=True))

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """Its own full-text index, BM25."""
        del query
        return self._answer(self.table.search(text, query_type="fts").limit(k), "_score", ids_only)

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """Nearest by cosine, filtered before scoring."""
        probe = self.np.frombuffer(query.vector, dtype=self.np.float32)
        search = self.table.search(probe, vector_column_name="vector").distance_type("cosine").limit(k)
        if self.indexed:
            search = search.nprobes(20).refine_factor(2)
        if where is not None:
            search = search.where(f"{where[0]} = '{where[1]}'", prefilter=True)
        return self._answer(search, "_distance", ids_only)

    def hybrid(self, query: Query, k: int) -> Answer:
        """Its own hybrid query with its RRF reranker, fifty candidates each."""
        probe = self.np.frombuffer(query.vector, dtype=self.np.float32)
        search = self.table.search(query_type="hybrid", vector_column_name="vector").vector(probe)
        search = search.text(query.text).distance_type("cosine").limit(CANDIDATES)
        if self.indexed:
            search = search.nprobes(20).refine_factor(2)
        found: Any = search.rerank(self.reranker).to_arrow().slice(0, k)
        return list(zip(found.column("id").to_pylist(), found.column("text").to_pylist(), strict=True))

    def has(self, id: str) -> bool:
        """Whether the row is stored."""
        return self.table.count_rows(f"id = '{id}'") > 0

    def close(self) -> None:
        """Nothing to close by hand."""


ENGINE = LanceDb
