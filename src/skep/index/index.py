"""SegmentIndex: the words and vectors of one bank, searched under exact filters.

The engine opens one per bank; recall and maintenance ask it. It reads the store through `IndexSource` and touches
nothing but its own folder. Whatever it holds can be deleted: it is built again from the store.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from skep import runtime
from skep.errors import EmbedderMismatchError
from skep.index.bm25 import best_matches, look_up, score_words, term_parts
from skep.index.catch_up import FAILURES, Upkeep
from skep.index.filter_masks import Masks
from skep.index.quantisation import packed, turned
from skep.index.vector_search import Scanner, cosines_of, vectors_of

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from skep.filters import Filter, IndexSource
    from skep.index.columns import Timelines
    from skep.index.filter_masks import Admitted
    from skep.index.row_table import Table

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

Answer = TypeVar("Answer")
CARRIED = ("created_at", "confidence", "last_evidence_at", "importance", "session")
"""Columns of every candidate."""


class Pool(NamedTuple):
    """The candidates of one search, one entry per row in every array."""

    rows: Ints
    words: Floats
    """BM25 over the whole bank; 0 where no term matches."""
    cosine: Singles
    """Raw cosine; nan where the row, or the query, has no vector."""
    created_at: Floats
    confidence: Floats
    last_evidence_at: Floats
    importance: Floats
    spoken: NDArray[np.bool_]
    """Said in a session: turns of conversations."""
    words_total: int
    """Admitted rows that hold at least one of the terms."""
    vectors_total: int
    """Admitted rows that have a vector; 0 without a query vector."""


class Best(NamedTuple):
    """The slots that a search found, in the order of their rows."""

    slots: Ints
    words: Singles
    cosine: Singles
    words_total: int


class Neighbours(NamedTuple):
    """Pairs of rows that are near, one entry per pair in every array; per row asked for, nearest first."""

    asked: Ints
    rows: Ints
    cosine: Singles


class IndexStats(NamedTuple):
    """Sizes and position of an index."""

    segments: int
    tail: int
    """Rows in memory, newer than the segments."""
    rows: int
    dead: int
    """Replaced or forgotten rows that still take room in segments."""
    bytes: int
    """On disk."""
    position: int
    drift: int
    """Events that the position lies behind the store."""


class SegmentIndex:
    """Words and vectors of a bank, searched under exact filters.

    Any number of processes may share the folder; threads may share the object. Nothing in it is the truth: a
    folder that is missing, damaged or foreign is built again from the source.

    Args:
        folder: Where segments are kept; None keeps them in memory.
        source: The store the index is derived from.
        tail_limit: Rows kept in memory before they become a segment.
        read_only: Use what the folder holds, write nothing.
        lock: Shared with whoever holds the store while asking, so that two locks are never taken in two orders.
    """

    def __init__(
        self,
        folder: str | PathLike[str] | None,
        source: IndexSource,
        *,
        tail_limit: int = 4096,
        read_only: bool = False,
        lock: threading.RLock | None = None,
    ) -> None:
        self._source = source
        self._lock = lock or threading.RLock()
        self._upkeep = Upkeep(folder, source, tail_limit=tail_limit, read_only=read_only)
        self._masks = Masks(self._upkeep.table, self._source)
        self._scanner = Scanner()
        self._timelines: Timelines | None = None
        self._turn: int | None = None
        """Up to which turn of the store everything is there."""

    def refresh(self, turn: int | None = None) -> int:
        """Catch up with the store, cheaply when nothing changed; returns the position reached.

        Args:
            turn: A number that is another one whenever the store may have changed, where the caller knows it; asked
                with the same one again, it is not looked what changed.
        """
        with self._lock:
            if (
                turn is None
                or turn != self._turn
                or not all(file.whole for file in self._upkeep.shelf.files.values())
            ):
                self._upkeep.refresh()
                self._renew()
                self._turn = turn if self._upkeep.position == self._source.head() else None
            return self._upkeep.position

    def search(
        self,
        terms: Sequence[str],
        vector: Singles | None,
        where: Filter,
        k_words: int,
        k_vectors: int,
    ) -> Pool:
        """The best `k_words` by words and the best `k_vectors` by meaning, under one filter.

        Both scores are filled in for every member of the pool. Ties go to the smaller row; rows ascend.

        Args:
            terms: As `words.query_terms` gives them; repetitions count once.
            vector: The query's vector; None searches by words alone.
            where: Exact conditions, applied before scoring.
            k_words: How many to take by words.
            k_vectors: How many to take by meaning.
        """

        def answer() -> Pool:
            table, admitted = self._upkeep.table, self._masks.admitted(where)
            measured = self._measured(vector)
            best = self._best(table, terms, measured, admitted, k_words, k_vectors)
            with_vectors = 0 if measured is None else _having_vectors(table, admitted)
            return _pool(table, table.rows[best.slots], best, with_vectors)

        return self._trusting(answer)

    def admits(self, where: Filter) -> bool:
        """True if a filter admits anything."""
        return self._trusting(lambda: self._masks.admitted(where).count > 0)

    def similar(self, vector: Singles, where: Filter, k: int) -> Pool:
        """The `k` nearest rows by meaning alone."""
        return self.search((), vector, where, k_words=0, k_vectors=k)

    def near_pairs(self, rows: Ints, where: Filter, *, least: float, most: int) -> Neighbours:
        """The neighbours of many rows in one pass: at most `most` for each with a cosine of at least `least`."""

        from skep.index.neighbour_join import near_pairs

        def answer() -> Neighbours:
            table = self._upkeep.table
            if not table.dim or not len(rows):
                none = np.zeros(0, dtype=np.int64)
                return Neighbours(none, none, np.zeros(0, dtype=np.float32))
            slots = self._masks.admitted(where).slots
            if not table.all_vectors:
                slots = slots[table.has_vector[slots]]
            found = near_pairs(table, table.slots_of(rows), slots, least=least, most=most)
            return Neighbours(rows[found.asked], table.rows[found.slots], found.cosine)

        return self._trusting(answer)

    def best_by_words(self, queries: Sequence[Sequence[str]], where: Filter, k: int) -> list[Ints]:
        """The `k` best rows by words alone for each of many queries, best first, under one filter."""

        def answer() -> list[Ints]:
            table, admitted = self._upkeep.table, self._masks.admitted(where)
            return [_best_first(table, self._best(table, terms, None, admitted, k, 0)) for terms in queries]

        return self._trusting(answer)

    def rows_where(self, where: Filter, unless: Filter) -> Ints:
        """The rows that one filter admits and another does not."""

        def answer() -> Ints:
            mask = self._masks.admitted(where).mask & ~self._masks.admitted(unless).mask
            return self._upkeep.table.rows[np.flatnonzero(mask)]

        return self._trusting(answer)

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> Pool:
        """These very rows as a pool, in this order. Rows that the index does not know score nothing."""

        def answer() -> Pool:
            table = self._upkeep.table
            slots = table.slots_of(rows)
            words = term_parts(table, list(dict.fromkeys(terms)), slots).sum(axis=1)
            cosine = np.full(len(rows), np.nan, dtype=np.float32)
            measured = self._measured(vector)
            if measured is not None:
                order = np.argsort(slots, kind="stable")
                order = order[slots[order] >= 0]
                cosine[order] = cosines_of(table, slots[order], turned(*measured))
            return _pool(table, rows, Best(slots, words, cosine, 0), 0)

        return self._trusting(answer)

    def vectors(self, rows: Ints) -> Singles:
        """The unit vectors of some rows, nearly exact; zeros where there is none."""

        def answer() -> Singles:
            table = self._upkeep.table
            slots = table.slots_of(rows)
            order = np.argsort(slots, kind="stable")
            out = np.empty((len(rows), table.dim), dtype=np.float32)
            out[order] = vectors_of(table, slots[order])
            return out

        return self._trusting(answer)

    def columns(self, names: Sequence[str], rows: Ints) -> list[NDArray[Any]]:
        """Columns of some rows; the default of each where the index does not know a row."""

        def answer() -> list[NDArray[Any]]:
            table = self._upkeep.table
            slots = table.slots_of(rows)
            return table.many_values(names, slots)

        return self._trusting(answer)

    def idf(self, terms: Sequence[str]) -> Floats:
        """Inverse document frequency of each term in the whole bank."""

        def answer() -> Floats:
            return look_up(self._upkeep.table, terms).rarity

        return self._trusting(answer)

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of the BM25 score that each term (column) gives to each row; unknown rows give zeros."""
        return self._trusting(
            lambda: term_parts(self._upkeep.table, terms, self._upkeep.table.slots_of(rows))
        )

    def around(self, rows: Ints, window: int, pause: float, where: Filter) -> Ints | None:
        """The rows around each row in the time of its scope that a filter admits; see `Timelines.around`."""

        def answer() -> Ints | None:
            table = self._upkeep.table
            if self._timelines is None:
                from skep.index.columns import Timelines

                self._timelines = Timelines()
            slots = self._timelines.around(table, table.slots_of(rows), window, pause)
            if slots is None or not (slots >= 0).any():
                return slots
            admitted = (slots >= 0) & self._masks.admitted(where).mask[slots]
            return np.where(admitted, table.rows[slots], -1)

        return self._trusting(answer)

    def stats(self) -> IndexStats:
        """Sizes of the index, and how far it lies behind the store."""
        with self._lock:
            table = self._upkeep.table
            return IndexStats(
                segments=len(table.segments),
                tail=len(table.tail.entries),
                rows=table.live,
                dead=table.dead,
                bytes=sum(segment.size for segment in table.segments),
                position=self._upkeep.position,
                drift=self._source.head() - self._upkeep.position,
            )

    def damaged(self) -> list[str]:
        """Read every byte on disk; the names of the files that are not as they were written."""
        with self._lock:
            return self._upkeep.shelf.damaged()

    def erase(self, rows: Sequence[int]) -> int:
        """Leave no byte of the words and vectors of these rows on disk; returns the segments rewritten.

        Raises:
            BusyError: Another process has been building the index for a minute.
        """
        with self._lock:
            self._turn = None
            rewritten = self._upkeep.erase(rows)
            self._renew()
            return rewritten

    def drop(self) -> None:
        """Delete everything; it is built again on the next refresh."""
        with self._lock:
            self._turn = None
            self._upkeep.drop()
            self._renew()

    def _renew(self) -> None:
        """Let go of what was derived from segments that are no longer there."""
        if self._masks.table is not self._upkeep.table:
            self._masks = Masks(self._upkeep.table, self._source)
            self._scanner.forget()
            self._timelines = None

    def _trusting(self, answer: Callable[[], Answer]) -> Answer:
        """Answer; if that fails because a file is damaged, build the index again and answer then."""
        with self._lock:
            try:
                return answer()
            except FAILURES:
                if not self._built_again():
                    raise
                return answer()

    def _built_again(self) -> bool:
        """After a failure: start anew if a file is damaged. If none is, the failure has another cause."""
        if not self._upkeep.shelf.damaged():
            return False
        self.drop()
        self.refresh()
        return True

    def _measured(self, vector: Singles | None) -> tuple[Singles, float] | None:
        """A query vector and its length; None if it has no direction."""
        dim = self._upkeep.table.dim
        if vector is None or not dim:
            return None
        query = np.ascontiguousarray(vector, dtype=np.float32)
        if query.ndim != 1:
            query = query.reshape(-1)
        if len(query) != dim:
            raise EmbedderMismatchError(
                f"the query has {len(query)} dimensions and the bank {dim}; embed it with the bank's embedder"
            )
        norm = math.sqrt(query.dot(query))
        return (query, norm) if math.isfinite(norm) and norm > 0 else None

    def _best(
        self,
        table: Table,
        terms: Sequence[str],
        measured: tuple[Singles, float] | None,
        admitted: Admitted,
        k_words: int,
        k_vectors: int,
    ) -> Best:
        """The best admitted slots by words and by meaning; compiled where the core is there."""
        terms = list(dict.fromkeys(terms))
        k_words, k_vectors = min(k_words, table.count), min(k_vectors, table.count)
        if runtime.native is None:
            scores = score_words(table, terms)
            slots, words_total = best_matches(scores, table.rows, admitted.mask, k_words)
            cosine = np.full(len(slots), np.nan, dtype=np.float32)
            if measured is not None:
                slots, cosine = self._scanner.pool(table, turned(*measured), admitted, slots, k_vectors)
            return Best(slots, scores[slots], cosine, words_total)
        near, room = None, k_words
        if measured is not None:
            near = self._scanner.near(table, packed(*measured), admitted, k_vectors)
            room += k_vectors
        mask = None if admitted.all else admitted.mask
        slots, words = np.empty(room, np.int64), np.empty(room, np.float32)
        cosine = np.empty(room, np.float32)
        asked = look_up(table, terms)
        found, words_total = table.compiled.pool(
            asked.keys, None, asked.newest, mask, k_words, near, slots, words, cosine
        )
        return Best(slots[:found], words[:found], cosine[:found], words_total)


def _best_first(table: Table, best: Best) -> Ints:
    """The rows of a search by words, best first; ties go to the smaller row."""
    rows = table.rows[best.slots]
    return rows[np.lexsort((rows, -best.words))]


def _having_vectors(table: Table, admitted: Admitted) -> int:
    """The number of admitted slots that have a vector."""
    if table.all_vectors:
        return admitted.count
    return int(np.count_nonzero(table.has_vector[admitted.slots]))


def _pool(table: Table, rows: Ints, best: Best, vectors_total: int) -> Pool:
    """Slots with their scores and the columns that every candidate carries."""
    created_at, confidence, last_evidence_at, importance, session = table.many_values(CARRIED, best.slots)
    return Pool(
        rows=rows,
        words=best.words.astype(np.float64),
        cosine=best.cosine,
        created_at=created_at,
        confidence=confidence,
        last_evidence_at=last_evidence_at,
        importance=importance,
        spoken=session > 0,
        words_total=best.words_total,
        vectors_total=vectors_total,
    )
