"""The bank as a recall sees it: the store, the index and the embedder behind one protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from skep.engine import Engine
from skep.model import REPLACED, Link, Memory
from skep.storage.base import Filter
from skep.storage.rows import searched_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.engine.embeddings import Asked
    from skep.retrieval.sources import Counters, Scopes, Tokens
    from skep.storage.segments import Pool

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

PAUSE_SECONDS = 3600.0
"""A longer silence than this separates one conversation from the next."""
DEFAULT_TRUST = 1.0
NOTHING = np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.float32)
MIX = 0x9E3779B97F4A7C15
"""An odd number: two keys become one by multiplying and adding."""
MOST_NAMES = 4096
"""Authors whose names are remembered; the memory is emptied when it is full."""
FEW = 16
"""So few texts are read as whole memories: the best candidates are likely to be the hits."""


class BankSources:
    """Implements `retrieval.sources.Sources` over one engine. One query at a time; see `Recaller`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: Asked | None = None
        """What became of the question that was last embedded here."""
        self._names: dict[int, str] = {0: ""}
        self._begin()

    def _begin(self) -> None:
        """Let go of what was read for the last query; stages ask again for what an earlier one has read."""
        self._texts: dict[int, str] = {}
        self._terms: tuple[str, ...] = ()
        self._rows: Ints = NOTHING[0]
        self._impacts: Singles = NOTHING[1]
        self._idf: dict[tuple[str, ...], Floats] = {}
        self._memories: dict[int, Memory] = {}

    @property
    def tokens(self) -> Tokens | None:
        """The table for late interaction: the embedder's own, or the bundled one."""
        from skep.embedding.static import word_table  # a recall that does not ask need not load it

        return word_table(self._engine.embeddings.embedder)

    def embed(self, text: str) -> Singles | None:
        """The vector of a query in the active space."""
        self.asked = self._engine.embeddings.asked(text)
        vector = self.asked.vector
        if vector is None or (
            vector.dot(vector) == 0.0 and not vector.any()
        ):  # the product is the quicker look
            return None
        return vector

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale; nan stays nan."""
        return self._engine.embeddings.calibrate_many(cosines)

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> Pool:
        """Candidates by words and by meaning under one filter. Every recall begins with it."""
        self._begin()
        pool = self._engine.index.search(terms, vector, where, k_words=k_words, k_vectors=k_vectors)
        if vector is not None:
            asked = self.asked
            if asked is not None and asked.vector is vector:
                pool.scale = asked.scale
            else:
                pool.scale = self._engine.embeddings.scale()
        return pool

    def replaced(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, count: int
    ) -> Pool | None:
        """The best among what was superseded or merged, in the scope of a filter."""
        index = self._engine.index
        former = Filter(scope=where.scope, include_shared=where.include_shared, statuses=REPLACED)
        if not index.admits(former):
            return None
        return index.search(terms, vector, former, k_words=count, k_vectors=count)

    def heirs(self, rows: Ints) -> list[str | None]:
        """What stands in place of each replaced row now."""
        found = self._engine.store.heirs(rows.tolist())
        return [found.get(row) for row in rows.tolist()]

    def idf(self, terms: Sequence[str]) -> Floats:
        """How rare each term is in the whole bank."""
        key = tuple(terms)
        found = self._idf.get(key)
        if found is None:
            found = self._idf[key] = self._engine.index.idf(terms)
        return found

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of BM25 that each term gives to each row."""
        if len(self._rows) and self._terms == tuple(terms):
            at = np.minimum(self._rows.searchsorted(rows), len(self._rows) - 1)
            if (self._rows[at] == rows).all():
                return self._impacts[at]
        found = self._engine.index.impacts(terms, rows)
        if len(rows) >= len(self._rows):  # what fewer rows are asked for is not asked for again
            order = np.argsort(rows, kind="stable")
            self._terms, self._rows, self._impacts = tuple(terms), rows[order], found[order]
        return found

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row."""
        found = self._engine.index.around(rows, window, PAUSE_SECONDS, where)
        return self.around_in_store(rows, window, where) if found is None else found

    def around_in_store(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The same from the store: for candidates of many scopes in a large bank."""
        found = np.full((len(rows), 2 * window), -1, dtype=np.int64)
        near = self._engine.store.around(rows.tolist(), window, PAUSE_SECONDS)
        for i, row in enumerate(rows.tolist()):
            before, after = near.get(row, ((), ()))
            for step, there in enumerate(before, 1):
                found[i, window - step] = there
            for step, there in enumerate(after):
                found[i, window + step] = there
        there = found[found >= 0].tolist()
        if there:  # sets, not np.unique: that loads the masked arrays on first use, 20 ms of a first recall
            allowed = self._engine.store.admitted(sorted(set(there)), where)
            found[found >= 0] = [row if row in allowed else -1 for row in there]
        return found

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> Pool:
        """These very rows as a pool."""
        return self._engine.index.lookup(rows, terms, vector)

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        asked = rows.tolist()
        known = self._texts
        missing = [row for row in asked if row not in known]
        if len(missing) > FEW:
            known.update(self._engine.store.texts_of(missing))
        elif missing:
            read = self._read(missing)
            known.update((row, searched_text(m.title, m.text)) for row in missing if (m := read.get(row)))
        try:
            return [known[row] for row in asked]
        except KeyError:  # somewhere a text is gone
            return [known.get(row, "") for row in asked]

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row."""
        return self._engine.index.vectors(rows)

    def scopes(self, rows: Ints) -> Scopes:
        """The scope of each row as keys."""
        from skep.retrieval.sources import Scopes

        user, project, session = self._engine.index.columns(("user", "project", "session"), rows)
        place = user * np.uint64(MIX) + project
        return Scopes(place, np.where(session > 0, place * np.uint64(MIX) + session, 0))

    def authors(self, rows: Ints) -> list[str]:
        """The agent that wrote each row. Of every agent one row is read, and only once."""
        (keys,) = self._engine.index.columns(("agent",), rows)
        if not keys.any():
            return [""] * len(rows)
        listed: list[int] = keys.tolist()
        if len(self._names) > MOST_NAMES:
            self._names = {0: ""}
        new = {key: row for key, row in zip(listed, rows.tolist(), strict=True) if key not in self._names}
        if new:
            found = self._engine.store.use_counts(list(new.values()))
            self._names.update((key, found[row][3] or "") for key, row in new.items() if row in found)
        return [self._names.get(key, "") for key in listed]

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row."""
        from skep.retrieval.sources import Counters

        found = self._engine.store.use_counts(rows.tolist())
        empty = (0, 0, None, None)
        entries = [found.get(row, empty) for row in rows.tolist()]
        trust = {agent: self._trust(agent) for agent in {entry[3] for entry in entries}}
        told = self._engine.store.trust_of([row for row, entry in found.items() if entry[3] is None])
        return Counters(
            uses=np.array([entry[0] for entry in entries], dtype=np.int64),
            confirmations=np.array([entry[1] for entry in entries], dtype=np.int64),
            trust=np.array(
                [told.get(row, trust[entry[3]]) for row, entry in zip(rows.tolist(), entries, strict=True)],
                dtype=np.float64,
            ),
            last_used_at=np.array([np.nan if e[2] is None else e[2] for e in entries], dtype=np.float64),
        )

    def _trust(self, agent: str | None) -> float:
        value = self._engine.setting(f"trust/{agent}") if agent is not None else None
        return DEFAULT_TRUST if value is None else float(value)

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows, in the same order."""
        asked = rows.tolist()
        return list(map(self._read(asked).__getitem__, asked))

    def ids(self, rows: Ints) -> list[str]:
        """The id of each row, from the index; what it does not know, it takes from the store."""
        found = self._engine.index.ids(rows)
        if not all(found):
            found = [memory.id for memory in self.memories(rows)]
        return found

    def _read(self, rows: Sequence[int]) -> dict[int, Memory]:
        """Memories by row, these among them; each is read once for a query."""
        known = self._memories
        if not known:
            known = self._memories = self._engine.store.memories(rows)
        elif missing := [row for row in rows if row not in known]:
            known.update(self._engine.store.memories(missing))
        return known

    def vectors_of(self, ids: Sequence[str]) -> Singles:
        """The unit vectors of memories that were read for this query."""
        rows = {memory.id: row for row, memory in self._memories.items()}
        return self.vectors(np.array([rows[memory_id] for memory_id in ids], dtype=np.int64))

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id that the filter admits."""
        rows = self._engine.store.rows_of(ids)
        allowed = self._engine.store.admitted(list(rows.values()), where)
        return [rows[i] if i in rows and rows[i] in allowed else None for i in ids]

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that starts or ends at one of these memories."""
        return [link for memory_id in ids for link in self._engine.store.links(memory_id)]
