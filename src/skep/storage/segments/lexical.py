"""BM25 over the whole bank, whatever its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.hashing import key_of
from skep.storage.segments.postings import idf

if TYPE_CHECKING:
    from skep.storage.segments.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class Lookup(NamedTuple):
    """The terms of a query as the index knows them, rarest first."""

    keys: NDArray[np.uint64]
    places: NDArray[np.int64]
    """Per segment (rows) the place of each term (columns); -1 where it is not there."""
    found: Ints
    """In how many live rows each term stands."""


def look_up(table: Table, terms: Sequence[str]) -> Lookup:
    """Find terms in every segment and in the tail."""
    keys = np.array([key_of(term) for term in terms], dtype=np.uint64)
    places = np.empty((len(table.segments), len(keys)), dtype=np.int64)
    found = np.array([table.tail.found_in(int(key)) for key in keys], dtype=np.int64)
    for number, segment in enumerate(table.segments):
        places[number] = segment.find(keys)
        found += segment.found_in(places[number])
    return Lookup(keys, places, found)


class WordScores:
    """The BM25 score of every slot for one query, in a buffer that is used again."""

    def __init__(self) -> None:
        self._scores: Floats = np.zeros(0, dtype=np.float32)

    def score(self, table: Table, terms: Sequence[str], weights: Mapping[str, float] | None) -> Floats:
        """Scores over every slot, dead ones included; 0 where no term matches."""
        if len(self._scores) < table.count:
            self._scores = np.zeros(len(table.rows), dtype=np.float32)
        scores = self._scores[: table.count]
        scores.fill(0)
        distinct = [term for term in dict.fromkeys(terms) if weights is None or weights.get(term, 1.0) > 0]
        if not distinct or not table.live:
            return scores
        lookup = look_up(table, distinct)
        worth = idf(table.live, lookup.found)
        if weights is not None:
            worth = worth * np.array([weights.get(term, 1.0) for term in distinct])
        worth = worth.astype(np.float32)
        for column in np.lexsort((lookup.keys, -worth)).tolist():
            if lookup.found[column] > 0:
                _add_term(table, scores, lookup, column, worth[column])
        return scores


def _add_term(table: Table, scores: Floats, lookup: Lookup, column: int, worth: np.float32) -> None:
    mean = table.mean_length
    for number, segment in enumerate(table.segments):
        place = int(lookup.places[number, column])
        if place >= 0:
            docs, impacts = segment.postings(place, mean)
            base = table.bases[number]
            scores[base : base + segment.count][docs] += impacts * worth
    held = table.tail.postings(int(lookup.keys[column]), mean)
    if held is not None:
        slots, impacts = held
        scores[table.base :][slots] += impacts * worth


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
        base = table.bases[number]
        mine = ordered[part] - base
        for column in range(len(terms)):
            if number < len(table.segments):
                place = int(lookup.places[number, column])
                held = table.segments[number].postings(place, mean) if place >= 0 else None
            else:
                held = table.tail.postings(int(lookup.keys[column]), mean)
            if held is not None:
                docs, impacts = held
                at = np.minimum(docs.searchsorted(mine), len(docs) - 1)
                hit = docs[at] == mine
                out[order[part][hit], column] = impacts[at[hit]] * worth[column]
    return out


def best(scores: Floats, rows: Ints, slots: Ints, k: int) -> Ints:
    """The `k` best of some slots, ties broken by row; fewer if fewer are above zero."""
    values = scores[slots]
    slots = slots[values > 0]
    values = scores[slots]
    if len(slots) > k:
        bar = np.partition(values, len(values) - k)[len(values) - k]
        slots = slots[values >= bar]
        values = scores[slots]
    order = np.lexsort((rows[slots], -values))
    return slots[order[:k]]
