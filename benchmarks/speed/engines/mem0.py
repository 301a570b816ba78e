"""mem0 with `infer=False`: no language model, local Qdrant, the given vectors in place of an embedder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.speed.engines.values import Answer, How, NotOfferedError, Plain, Query, Row, Where, refuse

USER = "bench"


class GivenVectors:
    """Stands in for the embedder: returns the vector that belongs to a text."""

    def __init__(self) -> None:
        self.known: dict[str, list[float]] = {}

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The vector of `text`."""
        del memory_action
        return self.known[text]


class Mem0(Plain):
    """One memory per `add`, as its interface offers without a model; there is no bulk call."""

    durability: str = (
        "local Qdrant commits to SQLite per write, then the history table commits (settings as shipped)"
    )
    notes: tuple[str, ...] = (
        "Its BM25 part needs an encoder that is downloaded at run time, so keyword search is not offered "
        "here and hybrid is what `search` does without it: vectors only.",
        "Every search carries a user filter, which mem0 demands.",
    )

    def open(self, path: str, dim: int) -> None:
        """Build it from a config with every remote part turned off."""
        os.environ.update(
            MEM0_TELEMETRY="False", MEM0_DIR=os.path.join(path, "home"), OPENAI_API_KEY="not-used"
        )
        mem0: Any = import_module("mem0")
        self.memory: Any = mem0.Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": os.path.join(path, "qdrant"),
                        "embedding_model_dims": dim,
                        "on_disk": True,
                        "collection_name": "memory",
                    },
                },
                "history_db_path": os.path.join(path, "history.db"),
            }
        )
        self.vectors = GivenVectors()
        self.memory.embedding_model = self.vectors
        self.own: dict[str, str] = {}

    def load(self, rows: Sequence[Row]) -> None:
        """One at a time."""
        for row in rows:
            self.write(row)

    def settle(self) -> None:
        """Nothing to build: local Qdrant scans."""

    def write(self, row: Row, how: How = "synced") -> None:
        """Add the text as it stands."""
        refuse(how, "synced")
        self.vectors.known = {row.text: row.vector.tolist()}
        added: Any = self.memory.add(
            row.text,
            user_id=USER,
            infer=False,
            metadata={"key": row.id, "team": row.team, "project": row.project, "importance": 0.5},
        )
        self.own[row.id] = added["results"][0]["id"]

    def touch(self, row: Row) -> None:
        """An update: there is no cheaper kind."""
        self.update(row, 0.6)

    def update(self, row: Row, importance: float) -> None:
        """Rewrite the memory with the same text and new metadata."""
        self.vectors.known = {row.text: row.vector.tolist()}
        fields = {"key": row.id, "team": row.team, "project": row.project, "importance": importance}
        self.memory.update(self.own[row.id], data=row.text, metadata=fields)

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """Not offered without its encoder."""
        del query, text, k, ids_only
        raise NotOfferedError("keyword search needs an encoder that is downloaded at run time")

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """Its search."""
        del ids_only
        self.vectors.known = {query.text: query.vector.tolist()}
        filters = {"user_id": USER} if where is None else {"user_id": USER, where[0]: where[1]}
        found: Any = self.memory.search(query.text, filters=filters, top_k=k, threshold=0.0)
        return [(hit["metadata"]["key"], hit["memory"]) for hit in found["results"]]

    def hybrid(self, query: Query, k: int) -> Answer:
        """The same search: it fuses what parts it has."""
        return self.vector(query, k, None, False)

    def has(self, id: str) -> bool:
        """Whether the row is stored."""
        condition = {"user_id": USER, "key": id}
        return bool(self.memory.get_all(filters=condition, top_k=1)["results"])

    def close(self) -> None:
        """Close its stores."""
        self.memory.vector_store.client.close()
        self.memory.close()


ENGINE = Mem0
