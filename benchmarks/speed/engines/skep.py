"""skep through its public `Bank`, with an embedder that hands over the given vectors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from itertools import dropwhile, islice, repeat
from typing import IO, TYPE_CHECKING, Any

from benchmarks.speed.engines.values import CANDIDATES, Answer, How, Id, Query, Row, Where, refuse

if TYPE_CHECKING:
    from array import array

    from skep import Bank

KEYWORD: dict[str, Any] = {
    "fusion": "weighted",
    "weights": {"lexical": 1.0},
    "k_words": CANDIDATES,
    "k_vectors": 0,
}
VECTOR: dict[str, Any] = {
    "fusion": "weighted",
    "weights": {"semantic": 1.0},
    "k_words": 0,
    "k_vectors": CANDIDATES,
}
HYBRID: dict[str, Any] = {"k_words": CANDIDATES, "k_vectors": CANDIDATES}


class GivenVectors:
    """An embedder that knows the vectors of the texts at hand."""

    instant = True

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.fingerprint = f"given-{dim}"
        self.known: dict[str, array[float]] = {}
        self.calibration = import_module("skep.embedding.embedder").IDENTITY

    def embed(self, texts: Sequence[str]) -> Any:
        """The vector of each text."""
        if len(texts) == 1:
            return memoryview(self.known[texts[0]]).cast("B").cast("f", (1, self.dim))
        np: Any = import_module("numpy")
        return np.frombuffer(b"".join(self.known[text] for text in texts), dtype=np.float32).reshape(
            -1, self.dim
        )

    def calibrate(self, cosine: float) -> float:
        """Cosines as they are."""
        return self.calibration(cosine)


class Skep:
    """One bank in one file. The row's own id is kept as the memory's source."""

    durability: str = (
        "event, row, words and vector in one transaction, WAL, synchronous=FULL: survives power loss"
    )
    fusion: str = "pooled"
    lengths: str = "all"
    drops_function_words: bool = True
    notes: tuple[str, ...] = (
        "Through `Bank.remember`, `remember_many`, `recall` and `revise`; the filter fields are tags. Where ids alone "
        "are asked for, through `rank`, which gives those of `recall` in its order.",
        "With the compiled core, built in the source tree (`make core`); without it searches of the index cost five to"
        " seven times as much.",
        "A vector is handed over as a view of the memory in which it lies, not as an array of numpy's, which most"
        " embedders give and which takes two microseconds more to make.",
        "Synced writes do not look for conflicts, as no peer does; the line with conflicts is what `remember` "
        "does by default.",
    )

    def open(self, path: str, dim: int) -> None:
        """Open the bank."""
        skep: Any = import_module("skep")
        self.vectors = GivenVectors(dim)
        self.bank: Bank = skep.Bank.open(os.path.join(path, "bank.db"), embedder=self.vectors)
        self.ids: IO[str] | None = None
        self.own: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.stored: set[str] | None = None
        self.ask: _Asked | None = None

    def _fields(self, row: Row) -> dict[str, Any]:
        return {"text": row.text, "tags": (f"team:{row.team}", f"project:{row.project}"), "source": row.id}

    def load(self, rows: Sequence[Row]) -> None:
        """One bulk call."""
        self.vectors.known = {row.text: row.vector for row in rows}
        done = self.bank.remember_many(map(self._fields, rows))
        ids = self.ids = self.ids or import_module("tempfile").TemporaryFile("w+")
        ids.writelines(f"{row.id} {one.memory.id}\n" for row, one in zip(rows, done, strict=True))

    def settle(self) -> None:
        """Bring the derived index up to date."""
        self.bank.engine.index.refresh()

    def write(self, row: Row, how: How = "synced") -> None:
        """Remember one."""
        refuse(how, "synced", "checked")
        self.vectors.known = {row.text: row.vector}
        done = self.bank.remember(**self._fields(row), on_conflict="ignore" if how == "synced" else "warn")
        self.own[row.id] = done.memory.id
        self.written[done.memory.id] = row.id

    def _id(self, row: Row) -> str:
        """The id that the bank gave a row. Those of the load lie in a file, and are read a thousand at a time."""
        if row.id not in self.own and self.ids is not None:
            self.ids.seek(0)
            after = dropwhile(lambda line: not line.startswith(f"{row.id} "), self.ids)
            self.own |= dict(line.split() for line in islice(after, 1000))
            self.ids.seek(0, os.SEEK_END)
        return self.own[row.id]

    def touch(self, row: Row) -> None:
        """Count a use; written to the log in batches."""
        self.bank.engine.note_uses([self._id(row)])

    def flush(self) -> None:
        """Write the counted uses, all in one event."""
        self.bank.engine.flush_uses()

    def update(self, row: Row, importance: float) -> None:
        """Revise one field."""
        self.bank.revise(self._id(row), importance=importance)

    def _recall(self, query: Query, text: str, k: int, **how: Any) -> Answer:
        self.vectors.known = {text: query.vector}
        found = self.bank.recall(text, limit=k, **how)
        return [(hit.memory.source or "", hit.memory.text) for hit in found.hits]

    def _rank(self, query: Query, text: str, k: int, **how: Any) -> Answer:
        self.vectors.known = {text: query.vector}
        return list(zip(self.bank.rank(text, limit=k, **how).ids, repeat("")))

    def row_id(self, id: Id) -> str:
        """The bank numbers its memories from 1 in the order of the load; a source is the row's own id."""
        if isinstance(id, int):
            return f"r{id - 1:07d}"
        name, dash, counter = id.rpartition("-")
        return self.written.get(id) or (f"r{int(counter) - 1:07d}" if name and dash else id)

    def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> Answer:
        """Words alone."""
        ask = self._rank if ids_only else self._recall
        return ask(query, text, k, preset="semantic", config=KEYWORD)

    def vector(self, query: Query, k: int, where: Where, ids_only: bool) -> Answer:
        """Vectors alone, under a tag."""
        tags = () if where is None else (f"{where[0]}:{where[1]}",)
        ask = self._rank if ids_only else self._recall
        return ask(query, query.text, k, preset="semantic", config=VECTOR, tags=tags)

    def hybrid(self, query: Query, k: int) -> Answer:
        """The preset `rrf`, fifty candidates each."""
        return self._recall(query, query.text, k, preset="rrf", config=HYBRID)

    def default(self, query: Query, k: int) -> Answer:
        """Recall as it comes."""
        return self._recall(query, query.text, k)

    def index(self, kind: str, query: Query) -> Answer:
        """What `recall` asks of the index, without memories. Rows are numbered from 1 in the order of the load."""
        if self.ask is None:
            self.ask = _Asked(self.bank)
        return [(row, "") for row in self.ask.rows(kind, query)]

    def has(self, id: str) -> bool:
        """Whether the row is stored; the first call reads the list of all."""
        if self.stored is None:
            self.stored, cursor = set(), None
            while True:
                page = self.bank.find(limit=1000, cursor=cursor)
                self.stored.update(memory.source or "" for memory in page)
                cursor = page.cursor
                if cursor is None:
                    break
        return id in self.stored

    def close(self) -> None:
        """Close the bank."""
        self.bank.close()
        if self.ids is not None:
            self.ids.close()


class _Asked:
    """The index by itself. What it needs is imported here, so that a cold start does not pay for it."""

    def __init__(self, bank: Bank) -> None:
        self.np: Any = import_module("numpy")
        self.filter: Any = import_module("skep.filters").Filter
        self.terms: Any = import_module("skep.text.terms").query_terms
        self.fusion: Any = import_module("skep.retrieval.score")
        self.index: Any = bank.engine.index
        self.now = bank.engine.now

    def rows(self, kind: str, query: Query) -> list[int]:
        """The rows that answer, best first."""
        np, now = self.np, self.now()
        tags = ((f"project:{query.project}",),) if kind == "filtered_1" else ()
        by_words, by_vector = kind in ("keyword", "hybrid"), kind != "keyword"
        pool = self.index.search(
            self.terms(query.text) if by_words else (),
            np.frombuffer(query.vector, dtype=np.float32) if by_vector else None,
            self.filter(tags=tags, valid_at=now, now=now),
            k_words=CANDIDATES if by_words else 0,
            k_vectors=CANDIDATES if by_vector else 0,
        )
        if kind != "hybrid":
            order = (-(pool.words if by_words else pool.cosine)).argsort(kind="stable")
            return pool.rows[order].tolist()
        places = np.arange(1, len(pool.rows) + 1)
        ranks = [np.empty_like(places) for _ in range(2)]
        for rank, values in zip(ranks, (pool.words, pool.cosine), strict=True):
            rank[(-values).argsort(kind="stable")] = places
        ranks[0][pool.words == 0] = (
            np.count_nonzero(pool.words) + 1
        )  # rows without a word share the last place
        order = (-self.fusion.reciprocal(ranks, (1.0, 1.0))).argsort(kind="stable")[:10]
        return pool.rows[order].tolist()


ENGINE = Skep
