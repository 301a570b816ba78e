"""The best rows by words for many queries in one go: each term is looked up and read once for all of them.

What the terms of a query give is added by numpy or, where there are compiled loops, by `native/matching.c`: the same
sums in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from skep import kernels
from skep.storage.segments.lexical import Lookup, best_of, distinct_sorted, look_up
from skep.storage.segments.postings import impact
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.storage.segments.table import Table

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]
    Mask = NDArray[np.bool_]


READ = 4_000_000
"""Postings that are read at once; one query may have more."""

MANY_TIMES = 8
"""Postings of at most so many times the rows that are wanted, once for each term, are not thinned out."""


class Terms(NamedTuple):
    """Distinct terms, what each is worth, the order in which they count, and in how many rows they stand."""

    words: list[str]
    number: dict[str, int]
    worth: Floats
    rank: list[int]
    found: list[int]


def best_by_words(table: Table, mask: Mask, queries: Sequence[Sequence[str]], k: int) -> list[Ints]:
    """For each query the `k` best slots that the mask admits, best first, ties broken by row.

    Scores are those of `WordScores`: BM25, the rarest term added first.
    """
    words = list(dict.fromkeys(term for query in queries for term in query))
    if not words or not table.live:
        return [np.zeros(0, dtype=np.int64) for _ in queries]
    lookup = _looked_up(table, words)
    worth: Floats = lookup.rarity.astype(np.float32)
    order = np.lexsort((np.array(lookup.keys, dtype=np.uint64), -worth))
    if k and kernels.native is not None:
        return _best_compiled(table, mask, lookup, worth, order, _ranked(words, order, queries), k)
    number = {word: place for place, word in enumerate(words)}
    terms = Terms(words, number, worth, np.argsort(order).tolist(), lookup.found.tolist())
    scores = np.zeros(table.count, dtype=np.float32)
    out: list[Ints] = []
    for part in _parts(terms, queries):
        held = _Held(table, mask, terms, part)
        out += (_best(table, held.of(query), scores, k) for query in part)
    return out


def _looked_up(table: Table, words: Sequence[str]) -> Lookup:
    """Terms as the index knows them: whoever asks for many queries has often asked how rare all the words are."""
    if table.lookup is not None and table.lookup[0][0] == table.version:
        place = {word: number for number, word in enumerate(table.lookup[0][1])}
        if all(map(place.__contains__, words)):
            return table.lookup[1].some([place[word] for word in words])
    return look_up(table, words)


def _ranked(words: Sequence[str], order: Ints, queries: Sequence[Sequence[str]]) -> list[list[int]]:
    """The terms of each query as places in the order in which they count."""
    place = dict(zip([words[number] for number in order.tolist()], range(len(words)), strict=True))
    return [sorted({place[term] for term in query}) for query in queries]


def _best_compiled(
    table: Table, mask: Mask, lookup: Lookup, worth: Floats, order: Ints, queries: Sequence[list[int]], k: int
) -> list[Ints]:
    """The best of all queries, source by source: no slot is in two of them."""
    terms = np.array([term for query in queries for term in query], dtype=np.int64)
    edges = np.cumsum([0, *map(len, queries)], dtype=np.int64)
    out, found = np.empty((len(queries), k), dtype=np.int64), np.zeros(len(queries), dtype=np.int64)
    scores, reached = np.zeros(table.count, dtype=np.float32), np.empty((len(queries), k), dtype=np.float32)
    common = worth[order], terms, edges, mask, table.rows, scores, out, reached, found
    mean = table.mean_length
    for number, segment in enumerate(table.segments):
        words = segment.words
        impacts = impact(words.class_count, words.class_length, mean)
        starts = np.array(lookup.starts[number], dtype=np.int64)[order]
        sizes = np.array(lookup.sizes[number], dtype=np.int64)[order]
        _match(words.docs, words.classes, impacts, starts, sizes, table.bases[number], *common)
    ranked: list[int] = order.tolist()
    held, docs, impacts = table.tail.many_postings([lookup.keys[place] for place in ranked], mean)
    sizes = np.array(held, dtype=np.int64)
    _match(docs, None, impacts, np.cumsum(sizes) - sizes, sizes, table.base, *common)
    return [best[:count] for best, count in zip(out, found.tolist(), strict=True)]


def _match(
    docs: Any, classes: Any, impacts: Floats, starts: Ints, sizes: Ints, base: int, worth: Floats, *rest: Any
) -> None:
    kernels.native.match(docs, classes, impacts, starts, sizes, worth, base, *rest)


def _parts(terms: Terms, queries: Sequence[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Queries in their order, as many at once as can be read at once."""
    part: list[Sequence[str]] = []
    seen: set[str] = set()
    size = 0
    for query in queries:
        fresh = set(query) - seen
        more = sum(terms.found[terms.number[term]] for term in fresh)
        if part and size + more > READ:
            yield part
            part, seen, size = [], set[str](), 0
            fresh = set(query)
            more = sum(terms.found[terms.number[term]] for term in fresh)
        part.append(query)
        seen |= fresh
        size += more
    yield part


class _Held:
    """The postings of the terms of some queries, source by source: admitted slots, and what a term gives to each."""

    def __init__(self, table: Table, mask: Mask, terms: Terms, queries: Sequence[Sequence[str]]) -> None:
        self._terms = terms
        used = list(dict.fromkeys(term for query in queries for term in query))
        self._place = {term: place for place, term in enumerate(used)}
        worth = terms.worth[[terms.number[word] for word in used]]
        lookup = look_up(table, used)
        self._sources: list[tuple[Ints, Floats, list[int]]] = []
        """Slots, gains, and where those of each term begin."""
        for number, segment in enumerate(table.segments):
            sizes = np.array(lookup.sizes[number], dtype=np.int64)
            starts = np.array(lookup.starts[number], dtype=np.int64)
            docs, impacts = segment.many_postings(starts, sizes, table.mean_length)
            self._take(docs + np.int64(table.bases[number]), impacts, sizes, worth, mask)
        held, docs, impacts = table.tail.many_postings(lookup.keys, table.mean_length)
        self._take(docs + np.int64(table.base), impacts, np.array(held, dtype=np.int64), worth, mask)

    def _take(self, slots: Ints, impacts: Floats, sizes: Ints, worth: Floats, mask: Mask) -> None:
        if not len(slots):
            return
        gains = impacts * np.repeat(worth, sizes)
        edges = np.concatenate([[0], np.cumsum(sizes)])
        admitted = mask.take(slots)
        if not admitted.all():
            edges = np.concatenate([[0], np.cumsum(admitted)])[edges]
            slots, gains = slots[admitted], gains[admitted]
        self._sources.append((slots, gains, edges.tolist()))

    def of(self, query: Sequence[str]) -> list[tuple[Ints, Floats]]:
        """The postings of a query's terms, rarest first."""
        rank, number = self._terms.rank, self._terms.number
        places = [self._place[term] for term in sorted(set(query), key=lambda term: rank[number[term]])]
        return [
            (slots[edges[place] : edges[place + 1]], gains[edges[place] : edges[place + 1]])
            for place in places
            for slots, gains, edges in self._sources
            if edges[place] < edges[place + 1]
        ]


def _best(table: Table, lists: list[tuple[Ints, Floats]], scores: Floats, k: int) -> Ints:
    """One query; `scores` is all zeros before and after."""
    if not lists:
        return np.zeros(0, dtype=np.int64)
    slots = np.concatenate([each for each, _ in lists])
    np.add.at(scores, slots, np.concatenate([gains for _, gains in lists]))  # in the order of the lists
    found = distinct_sorted(slots[_reaching(scores.take(slots), k * len(lists))])
    best = best_of(scores.take(found), table.rows, found, k)
    scores[slots] = 0
    return best


def _reaching(values: Floats, k: int) -> Mask:
    """Which of some values are among the `k` best; all where there are few, as finding out would cost more."""
    if len(values) <= MANY_TIMES * k:
        return np.ones(len(values), dtype=bool)
    at = len(values) - k
    return values >= np.partition(values, at)[at]
