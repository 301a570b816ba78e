"""`langgraph.store.sqlite` with skep's store in it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.store.sqlite as package
import numpy as np
from langgraph.store.sqlite import aio

from skep.adapters.langgraph import SkepStore
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder


class Given:
    """The embeddings of a test as an embedder of skep."""

    instant = True

    def __init__(self, embeddings: Any, dim: int) -> None:
        self.embeddings, self.dim, self.fingerprint = embeddings, dim, f"given-{dim}"

    def embed(self, texts: Sequence[str]) -> Any:
        return np.array(self.embeddings.embed_documents(list(texts)), dtype=np.float32)

    def calibrate(self, cosine: float) -> float:
        return cosine


class SqliteStore(SkepStore):
    """What the tests ask of theirs beside the store itself."""

    MIGRATIONS: Sequence[str] = ()
    index_config: Any = None
    embeddings: Any = None

    @classmethod
    @contextmanager
    def from_conn_string(cls, path: str, *, index: Any = None, ttl: Any = None) -> Iterator[Any]:
        where = path if path == ":memory:" else f"{path}.skep"
        embedder = HashingEmbedder(64) if index is None else Given(index["embed"], index["dims"])
        with Bank.open(where, embedder=embedder) as bank:
            fields = None if index is None else index.get("text_fields")
            store = cls(bank, ttl=ttl, fields=fields)
            store.index_config = index
            store.embeddings = None if index is None else index["embed"]
            yield store

    def setup(self) -> None:
        self._stopped = threading.Event()

    def start_ttl_sweeper(self) -> None:
        def work() -> None:
            while not self._stopped.wait(0.5):
                self.sweep_ttl()

        self._sweeper = threading.Thread(target=work, daemon=True)
        self._sweeper.start()

    def stop_ttl_sweeper(self) -> None:
        self._stopped.set()
        self._sweeper.join()


class AsyncSqliteStore(SqliteStore):
    """The same, awaited."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, path: str, **options: Any) -> AsyncIterator[Any]:
        opened = SqliteStore.from_conn_string.__func__(cls, path, **options)
        with opened as store:
            yield store

    async def setup(self) -> None:
        super().setup()

    async def sweep_ttl(self) -> int:
        return SkepStore.sweep_ttl(self)

    async def start_ttl_sweeper(self) -> None:
        pass

    async def stop_ttl_sweeper(self) -> None:
        pass


package.SqliteStore = SqliteStore
package.AsyncSqliteStore = aio.AsyncSqliteStore = AsyncSqliteStore
