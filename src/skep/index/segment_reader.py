"""Segment: immutable rows with their words, tags, columns and vectors, mapped from a file or held in memory.

`catch_up` opens segments; a table reads them. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from skep.index.bm25 import Postings, impact
from skep.index.columns import defaults, spread
from skep.index.quantisation import FineCodes, Sketches
from skep.index.segment_files import BadFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.segment_files import Arrays

    Array = NDArray[Any]
    Ints = NDArray[np.int64]
    Keys = NDArray[np.uint64]


class Segment:
    """Immutable rows with their words, tags, columns and vectors. Only the count of dead rows changes."""

    def __init__(
        self,
        name: str,
        arrays: Arrays,
        size: int = 0,
    ) -> None:
        self.name = name
        self.size = size
        """Bytes on disk; 0 for a segment that is held in memory."""
        self._arrays = arrays
        try:
            self.rows: Ints = arrays["rows"]
            self.gone: Ints = arrays["gone"]
            self.lengths: NDArray[np.uint32] = arrays["lengths"]
            self.tag_keys: Keys = arrays["tag_keys"]
            self.tag_offsets: Ints = arrays["tag_offsets"]
            self.tag_docs: NDArray[np.uint32] = arrays["tag_docs"]
            self.words = Postings(*(arrays[f"words.{field}"] for field in Postings._fields))
            self.codes: FineCodes | None = None
            self.sketches: Sketches | None = None
            if "codes.high" in arrays:
                self.codes = FineCodes(*(arrays[f"codes.{field}"] for field in FineCodes._fields))
            if "sketch.planes" in arrays:
                self.sketches = Sketches(*(arrays[f"sketch.{field}"] for field in Sketches._fields))
        except KeyError as error:
            raise BadFileError(f"{name}: no {error}") from error
        self.count = len(self.rows)
        self.order: NDArray[np.uint32] | None = arrays.get("order")
        """The places in the order of their rows, where that is not their own."""
        self._first, self._last = 0, -1
        if self.count:
            ends = (0, -1) if self.order is None else (self.order[0], self.order[-1])
            self._first, self._last = (int(self.rows[end]) for end in ends)
        self._dense = self._last - self._first + 1 == self.count
        """True if no row between the first and the last is missing, so that a place can be told from its row."""
        self._columns: dict[str, Array] = {}
        self.dead: NDArray[np.int64] | None = None
        """Per term, how many of its postings are of dead rows; None where no row is dead."""
        self._mean_length = -1.0
        self._impacts: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    def column(self, name: str) -> Array:
        """A column of every row."""
        found = self._columns.get(name)
        if found is None:
            stored = self._arrays.get(f"column.{name}")
            found = defaults(name, self.count) if stored is None else spread(stored, self.count)
            self._columns[name] = found
        return found

    def place(self, row: int) -> int:
        """The place of a row in this segment; -1 if it is not here."""
        if not self._first <= row <= self._last:
            return -1
        at = row - self._first
        if not self._dense:
            at = int(self._ascending.searchsorted(row))
            if self._ascending[at] != row:
                return -1
        return at if self.order is None else int(self.order[at])

    def places(self, rows: Ints) -> Ints:
        """The places of those of some rows that are here."""
        if not self.count or not len(rows):
            return np.zeros(0, dtype=np.int64)
        found = self.located(rows)
        return found[found >= 0]

    def located(self, rows: Ints) -> Ints:
        """The place of each of some rows; -1 where it is not here."""
        if not self.count:
            return np.full(len(rows), -1, dtype=np.int64)
        if self._dense:
            at = rows - self._first
            there = (at >= 0) & (at < self.count)
        else:
            at = np.minimum(self._ascending.searchsorted(rows), self.count - 1)
            there = self._ascending[at] == rows
        if self.order is not None:
            at = self.order.take(at, mode="clip").astype(np.int64)
        return np.where(there, at, -1)

    @cached_property
    def _ascending(self) -> Ints:
        return self.rows if self.order is None else self.rows[self.order]

    def raise_all(self) -> None:
        """Count every row as live again: a new table begins, and buries for itself."""
        self.dead = None

    def bury(self, places: Ints) -> int:
        """Take dead rows out of the statistics; returns how many terms they had."""
        if self.dead is None:
            self.dead = np.zeros(len(self.words.keys), dtype=np.int64)
        starts = self.words.doc_offsets[places]
        sizes = self.words.doc_offsets[places + 1] - starts
        steps: Ints = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        np.add.at(self.dead, self.words.doc_terms[np.repeat(starts, sizes) + steps], 1)
        return int(self.lengths[places].sum())

    def find(self, keys: Keys) -> tuple[Ints, Ints, Ints]:
        """Per term: where its postings begin, how many there are, and how many of them are of live rows."""
        known, offsets = self.words.keys, self.words.offsets
        if not len(known):
            nothing = np.zeros(len(keys), dtype=np.int64)
            return nothing, nothing, nothing
        at = known.searchsorted(keys)
        np.minimum(at, len(known) - 1, out=at)
        there = known.take(at) == keys
        starts = offsets.take(at)
        sizes = offsets.take(at + 1)
        sizes -= starts
        sizes *= there
        live = sizes if self.dead is None else sizes - self.dead.take(at) * there
        return starts, sizes, live

    def postings(
        self, start: int, size: int, mean_length: float
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """The rows of a term and what each gives to BM25 before the weight of the term."""
        classes = self.words.classes[start : start + size]
        return self.words.docs[start : start + size], self.impacts(mean_length).take(classes)

    def impacts(self, mean_length: float) -> NDArray[np.float32]:
        """The BM25 part of a posting of each class, before the weight of the term."""
        if mean_length != self._mean_length:
            self._impacts = impact(self.words.class_count, self.words.class_length, mean_length)
            self._mean_length = mean_length  # last: an interrupt in between must not pass for a result
        return self._impacts

    def tagged(self, key: int) -> NDArray[np.uint32]:
        """The rows that carry a tag."""
        at = int(self.tag_keys.searchsorted(np.uint64(key)))
        if at == len(self.tag_keys) or int(self.tag_keys[at]) != key:
            return self.tag_docs[:0]
        return self.tag_docs[self.tag_offsets[at] : self.tag_offsets[at + 1]]


def shown(segments: Sequence[Segment]) -> list[NDArray[np.bool_]]:
    """Per segment, oldest first, one flag per row: whether no newer segment replaced or forgot it."""
    flags = [np.ones(segment.count, dtype=bool) for segment in segments]
    for number, newer in enumerate(segments):
        for older, mine in zip(segments[:number], flags, strict=False):
            mine[older.places(newer.rows)] = False
            mine[older.places(newer.gone)] = False
    return flags
