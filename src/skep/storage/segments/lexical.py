"""BM25 over the whole bank, whatever its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from skep import kernels
from skep.storage.segments.hashing import key_of
from skep.storage.segments.postings import idf
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.storage.segments.admitted import Admitted
    from skep.storage.segments.table import Table

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]
    Mask = NDArray[np.bool_]


NOTHING: Ints = np.zeros(0, dtype=np.int64)
NOTHING.flags.writeable = False
SPARSE = 12
"""Where the postings of a query are fewer than one row in so many, only their rows are looked at."""


class Lookup(NamedTuple):
    """The terms of a query as the index knows them."""

    keys: list[int]
    asked: NDArray[np.uint64]
    """The same as an array."""
    starts: list[Ints]
    """Per segment, per term: where its postings begin."""
    sizes: list[Ints]
    """Per segment, per term: how many postings it has."""
    found: Ints
    """In how many live rows each term stands."""
    rarity: NDArray[np.float64]
    """How rare each term is."""

    def some(self, places: Sequence[int]) -> Lookup:
        """Some of the terms, in another order."""
        at = np.array(places, dtype=np.int64)
        return Lookup(
            [self.keys[place] for place in places],
            self.asked[at],
            [starts[at] for starts in self.starts],
            [sizes[at] for sizes in self.sizes],
            self.found[at],
            self.rarity[at],
        )


def look_up(table: Table, terms: Sequence[str]) -> Lookup:
    """Find terms in every segment and in the tail; a recall asks for the same ones several times."""
    asked = (table.version, tuple(terms))
    if table.lookup is None or table.lookup[0] != asked:
        table.lookup = (asked, _look_up(table, terms))
    return table.lookup[1]


def _look_up(table: Table, terms: Sequence[str]) -> Lookup:
    keys = [key_of(term) for term in terms]
    newest = [table.tail.found_in(key) for key in keys] if table.tail.entries else None
    if kernels.native is not None:
        asked, rarity = np.empty(len(keys), np.uint64), np.empty(len(keys))
        held = np.empty((2 * len(table.segments) + 1, len(keys)), np.int64)
        kernels.native.find(table.keys, keys, newest, table.live, asked, held, rarity)
        *lines, found = held
        return Lookup(keys, asked, lines[::2], lines[1::2], found, rarity)
    asked = np.array(keys, dtype=np.uint64)
    found = np.zeros(len(keys), np.int64) if newest is None else np.array(newest, dtype=np.int64)
    starts: list[Ints] = []
    sizes: list[Ints] = []
    for segment in table.segments:
        start, size, live = segment.find(asked)
        found = found + live
        starts.append(start)
        sizes.append(size)
    return Lookup(keys, asked, starts, sizes, found, idf(table.live, found))


def asked_for(
    table: Table, terms: Sequence[str], weights: Mapping[str, float] | None
) -> tuple[list[int], list[float] | None, tuple[Any, ...] | None]:
    """The terms of a search as a compiled table takes them: keys, factors, and their postings in the tail."""
    if weights is None:
        keys, factors = list(map(key_of, dict.fromkeys(terms))), None
    else:
        terms = [term for term in dict.fromkeys(terms) if weights.get(term, 1.0) > 0]
        keys, factors = list(map(key_of, terms)), [weights.get(term, 1.0) for term in terms]
    tail = table.tail.many_postings(keys, table.mean_length) if keys and table.tail.entries else None
    return keys, factors, tail


def scores_of(table: Table, terms: Sequence[str], slots: Ints) -> Floats:
    """What some slots score by words; only with compiled loops."""
    out = np.empty(len(slots), dtype=np.float32)
    table.compiled[0].words(*asked_for(table, terms, None), slots, out)
    return out


class WordScores:
    """The BM25 score of every slot for one query at a time, in a buffer that is used again: the way of numpy."""

    def __init__(self) -> None:
        self.scores: Floats = np.zeros(0, dtype=np.float32)
        """By slot, dead ones included; 0 where no term matches."""
        self._lists: list[tuple[int, NDArray[np.uint32]]] = []
        """The rows of each term in each part, with where the part begins; rarest terms first."""

    def score(
        self,
        table: Table,
        terms: Sequence[str],
        weights: Mapping[str, float] | None = None,
    ) -> Floats:
        """Score every slot."""
        if len(self.scores) < table.count:
            self.scores = np.zeros(len(table.rows), dtype=np.float32)
            self._lists = []
        self._clear()
        distinct = list(dict.fromkeys(terms))
        if weights is not None:
            distinct = [term for term in distinct if weights.get(term, 1.0) > 0]
        if not distinct or not table.live:
            return self.scores[: table.count]
        lookup = look_up(table, distinct)
        worth = lookup.rarity
        if weights is not None:
            worth = worth * np.array([weights.get(term, 1.0) for term in distinct])
        single = worth.astype(np.float32)
        each = single.tolist()
        for term in sorted(range(len(distinct)), key=lambda i: (-each[i], lookup.keys[i])):
            self._add(table, lookup, term, single[term])
        return self.scores[: table.count]

    def _clear(self) -> None:
        """Take back what the last query added."""
        if sum(len(docs) for _, docs in self._lists) * 8 < len(self.scores):
            for base, docs in self._lists:
                self.scores[base:][docs] = 0
        else:
            self.scores.fill(0)
        self._lists = []

    def _add(self, table: Table, lookup: Lookup, term: int, worth: np.float32) -> None:
        mean = table.mean_length
        for number, segment in enumerate(table.segments):
            size = int(lookup.sizes[number][term])
            if size:
                docs, impacts = segment.postings(int(lookup.starts[number][term]), size, mean)
                self._put(table.bases[number], docs, impacts, worth)
        held = table.tail.postings(lookup.keys[term], mean)
        if held is not None:
            self._put(table.base, *held, worth)

    def _put(self, base: int, docs: NDArray[np.uint32], impacts: Floats, worth: np.float32) -> None:
        impacts *= worth
        np.add.at(self.scores[base:], docs, impacts)
        self._lists.append((base, docs))

    def best(self, rows: Ints, admitted: Admitted, k: int) -> tuple[Ints, int]:
        """The `k` best of the admitted slots in the order of their rows, ties broken by row; and how many match."""
        if not self._lists:
            return NOTHING, 0
        mask = admitted.mask
        scores = self.scores[: len(mask)]
        if sum(len(docs) for _, docs in self._lists) * SPARSE < len(mask):
            slots = distinct_sorted(np.concatenate([docs + np.int64(base) for base, docs in self._lists]))
            slots = slots[mask[slots] & (scores[slots] > 0)]
            total = len(slots)
        else:
            matching = scores > 0
            matching &= mask
            total = int(np.count_nonzero(matching))
            np.greater_equal(scores, self._floor(mask, k), out=matching)
            matching &= mask
            slots = np.flatnonzero(matching)
        best = best_of(scores[slots], rows, slots, k)
        return best[rows[best].argsort()], total

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
    worth = lookup.rarity.astype(np.float32)
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
                *(lookup.starts[number], lookup.sizes[number]),
                *(worth, ordered[part], table.bases[number], mine),
            )
            out[order[part]] = mine
            continue
        mine = ordered[part] - table.bases[number]
        for term in range(len(terms)):
            if number < len(table.segments):
                start, size = int(lookup.starts[number][term]), int(lookup.sizes[number][term])
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
        kernels.native.best(values, slots, rows, k, out)
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
