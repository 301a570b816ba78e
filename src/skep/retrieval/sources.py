"""`Sources`: everything that a recall asks of a bank, and its two implementations.

`BankSources` reads one open engine; `InMemorySources` a list of memories, for tests and measurements. Nothing else in
this room touches storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from skep.engine.engine import Engine
from skep.filters import Filter, meets
from skep.model import REPLACED, Link, Memory
from skep.text.terms import terms as terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.embedding.embedder import Embedder
    from skep.engine.embeddings import Asked
    from skep.index.index import Pool as Pool_index


if TYPE_CHECKING:
    Ints = NDArray[np.int64]
    Keys = NDArray[np.uint64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]
    Mask = NDArray[np.bool_]

Reranker = Callable[[str, Sequence[str]], Sequence[float]]
"""Scores texts for a query; larger is better. Any callable, a cross-encoder for example."""


class Pool(Protocol):
    """The candidates of one search, one entry per row in every array."""

    @property
    def rows(self) -> Ints:
        """Keys of the memories; distinct."""
        ...

    @property
    def words(self) -> Floats:
        """BM25 over the whole bank, for every row; 0 where no term matches."""
        ...

    @property
    def cosine(self) -> Singles:
        """Raw cosine for every row that has a vector; nan where it has none."""
        ...

    @property
    def created_at(self) -> Floats:
        """Seconds since the epoch."""
        ...

    @property
    def confidence(self) -> Floats:
        """As stored."""
        ...

    @property
    def last_evidence_at(self) -> Floats:
        """Seconds since the epoch."""
        ...

    @property
    def importance(self) -> Floats:
        """As stored."""
        ...

    @property
    def spoken(self) -> Mask:
        """Said in a session: turns of conversations."""
        ...

    @property
    def words_total(self) -> int:
        """The number of memories that matched a word, before the cut."""
        ...

    @property
    def vectors_total(self) -> int:
        """The number of memories with a vector, before the cut."""
        ...


class Counters(NamedTuple):
    """Fields that change with use, one entry per row asked for."""

    uses: Ints
    confirmations: Ints
    trust: Floats
    """Of the source, in [0, 2]."""
    last_used_at: Floats
    """nan where it never was."""


class Scopes(NamedTuple):
    """Scopes of memories as keys, one entry per row asked for. Equal keys mean the same; 0 means none."""

    place: Keys
    """User and project."""
    talk: Keys
    """User, project and session."""


class Sources(Protocol):
    """The bank as a recall sees it. Rows are the integer keys of the index."""

    def embed(self, text: str) -> Singles | None:
        """The unit vector of a query; None without an embedder, or for a text with nothing to embed."""
        ...

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale; nan stays nan."""
        ...

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> Pool:
        """The best `k_words` by words and the best `k_vectors` by meaning, under one filter."""
        ...

    def replaced(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, count: int
    ) -> Pool | None:
        """The best `count` by words and by meaning among what was superseded or merged, in the scope of a filter.

        None where there is nothing of the kind, or it cannot be searched.
        """
        ...

    def heirs(self, rows: Ints) -> list[str | None]:
        """The memory now in place of each replaced row, at the end of its chain; None where there is none."""
        ...

    def idf(self, terms: Sequence[str]) -> Floats:
        """ln(1 + (N - df + 0.5) / (df + 0.5)) of each term over the whole bank; unknown terms have df 0."""
        ...

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of the BM25 score that each term (column) gives to each row; row -1 gives zeros."""
        ...

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row: columns -window..-1, 1..window; -1 where there is none.

        Neighbours have the same scope, which is not the shared one, whoever wrote them, follow one
        another within an hour, and pass the filter.
        """
        ...

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> Pool:
        """These very rows as a pool, in this order; for candidates that no list brought."""
        ...

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row, as indexed."""
        ...

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row; zeros where there is none."""
        ...

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row."""
        ...

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows, in the same order."""
        ...

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id, or None where it is gone or the filter does not admit it."""
        ...

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that starts or ends at one of these memories."""
        ...


PAUSE_SECONDS = 3600.0
"""A longer silence than this separates one conversation from the next."""
DEFAULT_TRUST = 1.0
MIX = 0x9E3779B97F4A7C15
"""An odd number: two keys become one by multiplying and adding."""


class BankSources:
    """Implements `retrieval.sources.Sources` over one engine, for one recall."""

    def __init__(self, engine: Engine) -> None:
        self.index = index = engine.index
        self._engine = engine
        self._scale: Callable[[Singles], Singles] | None = None
        self.asked: Asked | None = None
        """What became of the question, where it was embedded here."""
        self.lookup, self.idf, self.impacts, self.vectors = (
            index.lookup,
            index.idf,
            index.impacts,
            index.vectors,
        )

    def embed(self, text: str) -> Singles | None:
        """The vector of a query in the active space."""
        self.asked = self._engine.embeddings.asked(text)
        vector = self.asked.vector
        return vector if vector is not None and vector.any() else None

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale; nan stays nan."""
        if self._scale is None:
            self._scale = self._engine.embeddings.scale()
        return self._scale(cosines)

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> Pool_index:
        """Candidates by words and by meaning under one filter."""
        return self.index.search(terms, vector, where, k_words, k_vectors)

    def replaced(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, count: int
    ) -> Pool_index | None:
        """The best among what was superseded or merged, in the scope of a filter."""
        former = Filter(scope=where.scope, include_shared=where.include_shared, statuses=REPLACED)
        if not self.index.admits(former):
            return None
        return self.index.search(terms, vector, former, count, count)

    def heirs(self, rows: Ints) -> list[str | None]:
        """The memory now in place of each replaced row."""
        found = self._engine.heirs(rows.tolist())
        return [found.get(row) for row in rows.tolist()]

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row."""
        found = self.index.around(rows, window, PAUSE_SECONDS, where)
        return self.around_in_store(rows, window, where) if found is None else found

    def around_in_store(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The same from the store: for candidates of many scopes in a large bank."""
        found = np.full((len(rows), 2 * window), -1, dtype=np.int64)
        near = self._engine.around(rows.tolist(), window, PAUSE_SECONDS)
        for i, row in enumerate(rows.tolist()):
            before, after = near.get(row, ((), ()))
            for step, there in enumerate(before, 1):
                found[i, window - step] = there
            for step, there in enumerate(after):
                found[i, window + step] = there
        there = found[found >= 0].tolist()
        if there:  # sets, not np.unique: that loads the masked arrays on first use, 20 ms of a first recall
            allowed = self._engine.admitted(sorted(set(there)), where)
            found[found >= 0] = [row if row in allowed else -1 for row in there]
        return found

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row; empty where it is gone."""
        asked = rows.tolist()
        found = self._engine.texts_of(asked)
        return [found.get(row, "") for row in asked]

    def scopes(self, rows: Ints) -> Scopes:
        """The scope of each row as keys."""

        user, project, session = self.index.columns(("user", "project", "session"), rows)
        place = user * np.uint64(MIX) + project
        return Scopes(place, np.where(session > 0, place * np.uint64(MIX) + session, 0))

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row."""

        found = self._engine.use_counts(rows.tolist())
        empty = (0, 0, None, None)
        entries = [found.get(row, empty) for row in rows.tolist()]
        trust = {agent: self._trust(agent) for agent in {entry[3] for entry in entries}}
        told = self._engine.trust_of([row for row, entry in found.items() if entry[3] is None])
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
        return list(map(self._engine.memories(asked).__getitem__, asked))

    def ids(self, rows: Ints) -> list[str]:
        """The id of each row."""
        asked = rows.tolist()
        return list(map(self._engine.ids_of(asked).__getitem__, asked))

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id that the filter admits."""
        rows = self._engine.rows_of(ids)
        allowed = self._engine.admitted(list(rows.values()), where)
        return [rows[i] if i in rows and rows[i] in allowed else None for i in ids]

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that starts or ends at one of these memories."""
        return [link for memory_id in ids for link in self._engine.links(memory_id)]


K1, B = 1.2, 0.75
HOUR = 3600.0
DAY = 86_400.0


class ArrayPool(NamedTuple):
    """A pool as plain arrays."""

    rows: Ints
    words: Floats
    cosine: Singles
    created_at: Floats
    confidence: Floats
    last_evidence_at: Floats
    importance: Floats
    spoken: Mask
    words_total: int
    vectors_total: int


class InMemorySources:
    """Everything a recall asks for, answered by arrays. Rows are positions in the list of memories."""

    def __init__(
        self, memories: Sequence[Memory], embedder: Embedder | None = None, links: Iterable[Link] = ()
    ) -> None:
        self.all: list[Memory] = list(memories)
        self.embedder = embedder
        self._links = list(links)
        self._texts = [f"{m.title}. {m.text}" if m.title else m.text for m in self.all]
        self._row = {memory.id: row for row, memory in enumerate(self.all)}
        self._index_words()
        count = len(self.all)
        self._created = np.array([m.created_at for m in self.all], dtype=np.float64)
        self._confidence = np.array([m.confidence for m in self.all], dtype=np.float32)
        self._evidence = np.array([m.last_evidence_at or m.created_at for m in self.all], dtype=np.float64)
        self._importance = np.array([m.importance for m in self.all], dtype=np.float32)
        self._spoken = np.array([bool(m.scope.session) for m in self.all], dtype=bool)
        width = 1 if embedder is None else embedder.dim
        self._matrix = np.zeros((count, width), np.float32)
        if embedder is not None and count:
            self._matrix = embedder.embed(self._texts)
        self._has = np.abs(self._matrix).sum(axis=1) > 0
        self._link_neighbours()
        self._grid = np.linspace(-1.0, 1.0, 401)
        self._scale = [embedder.calibrate(float(x)) if embedder is not None else x for x in self._grid]
        self._masks: dict[Filter, NDArray[np.bool_]] = {}

    def _index_words(self) -> None:
        counts = [Counter(terms_of(text)) for text in self._texts]
        lengths = np.array([sum(each.values()) for each in counts], dtype=np.float64)
        norm = K1 * (1 - B + B * lengths / max(float(lengths.mean()) if len(lengths) else 1.0, 1e-9))
        postings: dict[str, tuple[list[int], list[int]]] = {}
        for row, each in enumerate(counts):
            for term, times in each.items():
                rows, found = postings.setdefault(term, ([], []))
                rows.append(row)
                found.append(times)
        self._postings: dict[str, tuple[Ints, Singles]] = {}
        for term, (rows, found) in postings.items():
            at, times = np.array(rows, dtype=np.int64), np.array(found, dtype=np.float64)
            impact = self._idf(len(rows)) * times * (K1 + 1) / (times + norm[at])
            self._postings[term] = at, impact.astype(np.float32)

    def _idf(self, df: int) -> float:
        return float(np.log(1 + (len(self.all) - df + 0.5) / (df + 0.5)))

    def _link_neighbours(self) -> None:
        """The neighbours of each turn in time, within one scope and within an hour."""
        self._before = np.full(len(self.all), -1, dtype=np.int64)
        self._after = np.full(len(self.all), -1, dtype=np.int64)
        last: dict[tuple[object, ...], int] = {}
        for row in sorted(range(len(self.all)), key=lambda r: (self.all[r].created_at, r)):
            memory = self.all[row]
            if memory.scope.shared:
                continue
            key = (memory.scope.user, memory.scope.project, memory.scope.session)
            previous = last.get(key, -1)
            last[key] = row
            if previous >= 0 and memory.created_at - self.all[previous].created_at <= HOUR:
                self._before[row] = previous
                self._after[previous] = row

    def embed(self, text: str) -> Singles | None:
        """The unit vector of a query."""
        if self.embedder is None:
            return None
        vector = self.embedder.embed([text])[0]
        return vector if vector.any() else None

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale."""
        if self.embedder is None:
            return cosines
        return np.interp(cosines, self._grid, self._scale).astype(np.float32)

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> ArrayPool:
        """The best by words and the best by meaning, under one filter."""
        mask = self.mask(where)
        words = np.where(mask, self.scores(terms), 0.0)
        matching = np.flatnonzero(words > 0)
        found = _best(words, matching, k_words)
        placed = np.flatnonzero(mask & self._has) if vector is not None else np.zeros(0, dtype=np.int64)
        if vector is not None:
            found = np.union1d(found, _best(self._matrix @ vector, placed, k_vectors))
        pool = self.lookup(found, terms, vector)
        return pool._replace(words_total=len(matching), vectors_total=len(placed))

    def replaced(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, count: int
    ) -> ArrayPool | None:
        """The best among what was replaced, in the scope of a filter."""
        former = Filter(scope=where.scope, include_shared=where.include_shared, statuses=REPLACED)
        return self.search(terms, vector, former, count, count) if self.mask(former).any() else None

    def heirs(self, rows: Ints) -> list[str | None]:
        """The memory now in place of each replaced row."""
        return [self._heir(memory) for memory in self.memories(rows)]

    def _heir(self, memory: Memory) -> str | None:
        seen: set[str] = set()
        while memory.status in REPLACED and memory.id not in seen:
            seen.add(memory.id)
            after = memory.superseded_by if memory.status == "superseded" else memory.merged_into
            if after not in self._row:
                return None
            memory = self.all[self._row[after]]
        return None if memory.id in seen else memory.id

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> ArrayPool:
        """These very rows as a pool."""
        cosine = np.full(len(rows), np.nan, dtype=np.float32)
        if vector is not None:
            cosine = np.where(self._has[rows], self._matrix[rows] @ vector, np.nan).astype(np.float32)
        return ArrayPool(
            rows=rows.astype(np.int64),
            words=self.scores(terms)[rows].astype(np.float32).astype(np.float64),
            cosine=cosine,
            created_at=self._created[rows],
            confidence=self._confidence[rows].astype(np.float64),
            last_evidence_at=self._evidence[rows],
            importance=self._importance[rows].astype(np.float64),
            spoken=self._spoken[rows],
            words_total=len(rows),
            vectors_total=len(rows),
        )

    def scores(self, terms: Sequence[str]) -> Floats:
        """BM25 of every memory."""
        out = np.zeros(len(self.all), dtype=np.float64)
        for term in terms:
            posting = self._postings.get(term)
            if posting is not None:
                out[posting[0]] += posting[1]
        return out

    def idf(self, terms: Sequence[str]) -> Floats:
        """The idf of each term."""
        return np.array(
            [self._idf(len(self._postings[t][0]) if t in self._postings else 0) for t in terms],
            dtype=np.float64,
        )

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of the BM25 score that each term gives to each row."""
        out = np.zeros((len(rows), len(terms)), dtype=np.float32)
        for column, term in enumerate(terms):
            posting = self._postings.get(term)
            if posting is None:
                continue
            at = np.minimum(np.searchsorted(posting[0], rows), len(posting[0]) - 1)
            out[:, column] = np.where(posting[0][at] == rows, posting[1][at], 0.0)
        return out

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row."""
        out = np.full((len(rows), 2 * window), -1, dtype=np.int64)
        mask = self.mask(where)
        for step, column in (
            (self._before, range(window - 1, -1, -1)),
            (self._after, range(window, 2 * window)),
        ):
            here = rows
            for at in column:
                here = np.where(here >= 0, step[here], -1)
                out[:, at] = np.where((here >= 0) & mask[here], here, -1)
        return out

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        return [self._texts[row] for row in rows.tolist()]

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row."""
        return self._matrix[rows]

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row."""
        chosen = self.memories(rows)
        return Counters(
            uses=np.array([m.uses for m in chosen], dtype=np.int64),
            confirmations=np.array([m.confirmations for m in chosen], dtype=np.int64),
            trust=np.array([float(m.metadata.get("trust", 1.0)) for m in chosen], dtype=np.float64),
            last_used_at=np.array([np.nan if m.last_used_at is None else m.last_used_at for m in chosen]),
        )

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows."""
        return [self.all[row] for row in rows.tolist()]

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id that passes the filter."""
        mask = self.mask(where)
        rows = [self._row.get(each) for each in ids]
        return [row if row is not None and mask[row] else None for row in rows]

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that touches one of these memories."""
        chosen = set(ids)
        return [link for link in self._links if link.src in chosen or link.dst in chosen]

    def mask(self, where: Filter) -> NDArray[np.bool_]:
        """The memories that the filter admits, as a mask."""
        if where not in self._masks:
            self._masks[where] = np.array([admits(where, memory) for memory in self.all], dtype=bool)
        return self._masks[where]


def _best(scores: NDArray[np.floating], among: Ints, count: int) -> Ints:
    if len(among) <= count:
        return among
    return among[np.argsort(-scores[among], kind="stable")[:count]]


def admits(where: Filter, memory: Memory) -> bool:
    """True if a memory passes a filter."""
    outside = where.scope is not None and not where.scope.admits(memory.scope)
    if outside and not (where.include_shared and memory.scope.shared):
        return False
    days = max(0.0, (where.now - (memory.last_evidence_at or memory.created_at)) / DAY)
    effective = memory.confidence * float(np.exp(-where.decay_per_day * days))
    at = where.valid_at
    return (
        (not where.kinds or memory.kind in where.kinds)
        and memory.status in where.statuses
        and all(any(tag in memory.tags for tag in group) for group in where.tags)
        and (not where.domains or memory.domain in where.domains)
        and (not where.agents or memory.agent in where.agents)
        and (where.since is None or memory.created_at >= where.since)
        and (where.until is None or memory.created_at < where.until)
        and (where.min_confidence is None or effective >= where.min_confidence)
        and (where.min_importance is None or memory.importance >= where.min_importance)
        and (not where.keys or memory.key in where.keys)
        and meets(where.metadata, memory.metadata)
        and (at is None or _valid(memory, at))
    )


def _valid(memory: Memory, at: float) -> bool:
    return (
        (memory.valid_from is None or memory.valid_from <= at)
        and (memory.valid_to is None or at < memory.valid_to)
        and (memory.expires_at is None or at < memory.expires_at)
    )
