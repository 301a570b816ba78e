"""The sources of a recall over a list of memories in RAM: for tests, measurements and small snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.embedding.static import word_table
from skep.model import REPLACED
from skep.retrieval.sources import Counters, Scopes, Tokens
from skep.storage.base import Filter
from skep.words import terms as terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.embedding.base import Embedder
    from skep.model import Link, Memory

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

K1, B = 1.2, 0.75
HOUR = 3600.0
DAY = 86_400.0


class ArrayPool(NamedTuple):
    """A pool as plain arrays."""

    lines = scale = None
    rows: Ints
    words: Floats
    cosine: Singles
    created_at: Floats
    confidence: Floats
    last_evidence_at: Floats
    importance: Floats
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
        """Who came just before and just after, within one scope and within an hour."""
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

    @property
    def tokens(self) -> Tokens | None:
        """The table for late interaction: the embedder's own, or the bundled one."""
        return None if self.embedder is None else word_table(self.embedder)

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
        """What stands in place of each replaced row now."""
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
        """How rare each term is."""
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

    def scopes(self, rows: Ints) -> Scopes:
        """The scope of each row as keys."""
        listed = [memory.scope for memory in self.memories(rows)]
        known: dict[tuple[str | None, ...], int] = {}

        def keys(parts: Sequence[tuple[str | None, ...]]) -> NDArray[np.uint64]:
            found = [
                0 if part[-2:] == (None, None) else known.setdefault(part, len(known) + 1) for part in parts
            ]
            return np.array(found, dtype=np.uint64)

        return Scopes(
            place=keys([(scope.user, scope.project) for scope in listed]),
            talk=keys([(s.user, s.project, s.session) if s.session else (None, None) for s in listed]),
        )

    def authors(self, rows: Ints) -> list[str]:
        """The agent that wrote each row."""
        return [memory.agent or "" for memory in self.memories(rows)]

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
        """Which memories the filter admits."""
        if where not in self._masks:
            self._masks[where] = np.array([admits(where, memory) for memory in self.all], dtype=bool)
        return self._masks[where]


def _best(scores: NDArray[np.floating], among: Ints, count: int) -> Ints:
    if len(among) <= count:
        return among
    return among[np.argsort(-scores[among], kind="stable")[:count]]


def admits(where: Filter, memory: Memory) -> bool:
    """Whether a memory passes a filter."""
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
        and (at is None or _valid(memory, at))
    )


def _valid(memory: Memory, at: float) -> bool:
    return (
        (memory.valid_from is None or memory.valid_from <= at)
        and (memory.valid_to is None or at < memory.valid_to)
        and (memory.expires_at is None or at < memory.expires_at)
    )
