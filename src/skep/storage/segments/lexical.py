"""BM25 over the whole bank, whatever its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from skep import kernels
from skep.storage.segments.hashing import key_of
from skep.storage.segments.postings import idf
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.storage.segments.table import Table

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]
    Mask = NDArray[np.bool_]


SPARSE = 12
"""Where the postings of a query are fewer than one row in so many, only their rows are looked at."""


class Lookup(NamedTuple):
    """The terms of a query as the index knows them."""

    keys: list[int]
    starts: list[list[int]]
    """Per segment, per term: where its postings begin."""
    sizes: list[list[int]]
    """Per segment, per term: how many postings it has."""
    found: Ints
    """In how many live rows each term stands."""

    def some(self, places: Sequence[int]) -> Lookup:
        """Some of the terms, in another order."""
        return Lookup(
            [self.keys[place] for place in places],
            [[starts[place] for place in places] for starts in self.starts],
            [[sizes[place] for place in places] for sizes in self.sizes],
            self.found[places],
        )

    def stretches(self, number: int) -> NDArray[np.int64]:
        """Where the postings of each term begin in a segment, and how many there are: two rows."""
        return np.array([self.starts[number], self.sizes[number]], dtype=np.int64)


def look_up(table: Table, terms: Sequence[str]) -> Lookup:
    """Find terms in every segment and in the tail; a recall asks for the same ones several times."""
    asked = (table.version, tuple(terms))
    if table.lookup is None or table.lookup[0] != asked:
        table.lookup = (asked, _look_up(table, terms))
    return table.lookup[1]


def _look_up(table: Table, terms: Sequence[str]) -> Lookup:
    keys = [key_of(term) for term in terms]
    asked = np.array(keys, dtype=np.uint64)
    found = np.array([table.tail.found_in(key) for key in keys], dtype=np.int64)
    starts: list[list[int]] = []
    sizes: list[list[int]] = []
    for segment in table.segments:
        start, size, live = segment.find(asked)
        found += live
        starts.append(start.tolist())
        sizes.append(size.tolist())
    return Lookup(keys, starts, sizes, found)


class WordScores:
    """The BM25 score of every slot for one query at a time, in a buffer that is used again."""

    def __init__(self) -> None:
        self.scores: Floats = np.zeros(0, dtype=np.float32)
        """By slot, dead ones included; 0 where no term matches."""
        self._lists: list[tuple[int, NDArray[np.uint32]]] = []
        """The rows of each term in each part, with where the part begins; rarest terms first. Only with numpy."""
        self._touched: Ints = np.zeros(1, dtype=np.int64)
        """Only with compiled loops: the slots whose score is not 0, and room for one more than there are."""
        self._filled = 0
        """How many those are; -1 where that is not known."""

    def score(
        self,
        table: Table,
        terms: Sequence[str],
        weights: Mapping[str, float] | None = None,
    ) -> Floats:
        """Score every slot."""
        self._clear(table)
        scores = self.scores[: table.count]
        distinct = list(dict.fromkeys(terms))
        if weights is not None:
            distinct = [term for term in distinct if weights.get(term, 1.0) > 0]
        if not distinct or not table.live:
            return scores
        lookup = look_up(table, distinct)
        worth = idf(table.live, lookup.found)
        if weights is not None:
            worth = worth * np.array([weights.get(term, 1.0) for term in distinct])
        single = worth.astype(np.float32)
        each = single.tolist()
        order = sorted(range(len(distinct)), key=lambda i: (-each[i], lookup.keys[i]))
        if kernels.native is not None:
            self._add_compiled(table, lookup, order, single)
        else:
            for term in order:
                self._add(table, lookup, term, single[term])
        return scores

    def _clear(self, table: Table) -> None:
        noted = sum(len(docs) for _, docs in self._lists) + self._filled
        if len(self.scores) < table.count:
            self.scores = np.zeros(len(table.rows), dtype=np.float32)
            self._touched = np.empty(len(table.rows) + 1, dtype=np.int64)
        elif self._filled >= 0 and noted * 8 < len(self.scores):
            self.scores[self._touched[: self._filled]] = 0
            for base, docs in self._lists:
                self.scores[base:][docs] = 0
        else:
            self.scores.fill(0)
        self._lists = []
        self._filled = 0

    def _add(self, table: Table, lookup: Lookup, term: int, worth: np.float32) -> None:
        mean = table.mean_length
        for number, segment in enumerate(table.segments):
            size = lookup.sizes[number][term]
            if size:
                docs, impacts = segment.postings(lookup.starts[number][term], size, mean)
                self._put(table.bases[number], docs, impacts, worth)
        held = table.tail.postings(lookup.keys[term], mean)
        if held is not None:
            self._put(table.base, *held, worth)

    def _put(self, base: int, docs: NDArray[np.uint32], impacts: Floats, worth: np.float32) -> None:
        impacts *= worth
        np.add.at(self.scores[base:], docs, impacts)
        self._lists.append((base, docs))

    def _add_compiled(self, table: Table, lookup: Lookup, order: list[int], worth: Floats) -> None:
        """The same part by part: within a slot terms follow each other in the same order."""
        mean = table.mean_length
        filled, self._filled = 0, -1
        worths = worth.take(order)
        for number, segment in enumerate(table.segments):
            words = segment.words
            filled = kernels.native.score(
                *(self.scores, table.bases[number], words.docs, words.classes, segment.impacts(mean)),
                *lookup.stretches(number).take(order, axis=1),
                *(worths, self._touched, filled),
            )
        if table.tail.entries:
            sizes, docs, impacts = table.tail.many_postings([lookup.keys[term] for term in order], mean)
            counts = np.array(sizes, dtype=np.int64)
            filled = kernels.native.score(
                *(self.scores, table.base, docs, None, impacts, counts.cumsum() - counts, counts),
                *(worths, self._touched, filled),
            )
        self._filled = filled

    def best(self, rows: Ints, mask: Mask, k: int) -> tuple[Ints, int]:
        """The `k` best slots that the mask admits, ties broken by row; and how many it admits that match."""
        if self._filled:
            out = np.empty(min(k, self._filled), dtype=np.int64)
            touched = self._touched[: self._filled]
            found, total = kernels.native.best(self.scores, True, touched, mask, rows, k, out)
            return out[:found], total
        if not self._lists:
            return np.zeros(0, dtype=np.int64), 0
        scores = self.scores[: len(mask)]
        if sum(len(docs) for _, docs in self._lists) * SPARSE < len(mask):
            slots = distinct_sorted(np.concatenate([docs + np.int64(base) for base, docs in self._lists]))
            slots = slots[mask[slots] & (scores[slots] > 0)]
            total = len(slots)
        else:
            admitted = scores > 0
            admitted &= mask
            total = int(np.count_nonzero(admitted))
            np.greater_equal(scores, self._floor(mask, k), out=admitted)
            admitted &= mask
            slots = np.flatnonzero(admitted)
        return best_of(scores[slots], rows, slots, k), total

    def _floor(self, mask: Mask, k: int) -> float:
        """A score that at least `k` admitted slots reach, as high as is easily known."""
        floor = np.float32(1e-30)
        lists = [each for each in self._lists if len(each[1]) >= k]
        for base, docs in lists[:2]:
            values = self.scores[base:].take(docs)[mask[base:][docs]]
            if k and len(values) >= k:
                floor = max(floor, np.partition(values, len(values) - k)[len(values) - k])
        return float(floor)


def term_parts(table: Table, terms: Sequence[str], slots: Ints) -> Floats:
    """What each term (column) gives to each slot (row); slot -1 gives zeros."""
    out = np.zeros((len(slots), len(terms)), dtype=np.float32)
    if not len(terms) or not len(slots) or not table.live:
        return out
    lookup = look_up(table, terms)
    worth = idf(table.live, lookup.found).astype(np.float32)
    mean = table.mean_length
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    for number, part in table.parts(ordered):
        if kernels.native is not None and number < len(table.segments):
            words, mine = (
                table.segments[number].words,
                np.empty((part.stop - part.start, len(terms)), np.float32),
            )
            kernels.native.gains(
                *(words.docs, words.classes, table.segments[number].impacts(mean)),
                *lookup.stretches(number),
                *(worth, ordered[part], table.bases[number], mine),
            )
            out[order[part]] = mine
            continue
        mine = ordered[part] - table.bases[number]
        for term in range(len(terms)):
            if number < len(table.segments):
                start, size = lookup.starts[number][term], lookup.sizes[number][term]
                held = table.segments[number].postings(start, size, mean) if size else None
            else:
                held = table.tail.postings(lookup.keys[term], mean)
            if held is not None:
                docs, impacts = held
                at = np.minimum(np.searchsorted(docs, mine), len(docs) - 1)
                hit: Mask = docs[at] == mine
                out[order[part][hit], term] = impacts[at[hit]] * worth[term]
    return out


def best_of(values: Floats, rows: Ints, slots: Ints, k: int) -> Ints:
    """Those of some slots with the `k` largest values, best first, ties broken by row."""
    if kernels.native is not None:
        out = np.empty(min(k, len(slots)), dtype=np.int64)
        kernels.native.best(values, False, slots, None, rows, k, out)
        return out
    if len(slots) > k:
        if not k:
            return slots[:0]
        at = len(slots) - k
        good = values >= np.partition(values, at)[at]
        slots, values = slots[good], values[good]
    return slots[np.lexsort((rows[slots], -values))[:k]]


def distinct_sorted(values: Ints) -> Ints:
    """Distinct values in order; quicker than numpy's own for a few."""
    values.sort()
    if len(values) < 2:
        return values
    keep = np.empty(len(values), dtype=bool)
    keep[0] = True
    np.not_equal(values[1:], values[:-1], out=keep[1:])
    return values[keep]
