"""Postings: for every term the rows that hold it, and for every row its terms.

A posting carries a small number, its *class*, instead of a score: rows of one length with one count of a term
share a class, so a table of a few hundred numbers turns classes into BM25 parts for whatever the mean length
of the bank is at that moment. Scores therefore do not depend on how the bank is cut into segments.

BM25 over the whole bank, whatever its segments.

The best rows by words for many queries in one go: each term is looked up and read once for all of them.

What the terms of a query give is added by numpy or, where there are compiled loops, by `core/matching.c`: the same
sums in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log1p, nan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skep import runtime
from skep.index.columns import key_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.filter_masks import Admitted
    from skep.index.row_table import Table


if TYPE_CHECKING:
    Array = NDArray[Any]
    Ints = NDArray[np.int64]
    Small = NDArray[np.uint32]
    Pairs = NDArray[np.uint64]

K1 = 1.2
B = 0.75


class Postings(NamedTuple):
    """Terms sorted by key; `docs` and `classes` of term i stand at `offsets[i]:offsets[i + 1]`."""

    keys: NDArray[np.uint64]
    offsets: Ints
    docs: NDArray[np.uint32]
    classes: NDArray[np.uint32] | NDArray[np.uint16]
    class_count: NDArray[np.uint32]
    """Per class: how often the term stands in the row."""
    class_length: NDArray[np.uint32]
    """Per class: how many terms the row has."""
    doc_offsets: Ints
    doc_terms: NDArray[np.uint32]
    """The distinct terms of row d, as places in `keys`, stand at `doc_offsets[d]:doc_offsets[d + 1]`."""


def impact(count: Array, length: Array, mean_length: float) -> NDArray[np.float32]:
    """The part of BM25 that does not depend on how rare the term is."""
    counts = np.asarray(count, dtype=np.float64)
    norm = np.asarray(length, dtype=np.float64) * (B / mean_length if mean_length else 0.0)
    norm += 1.0 - B
    norm *= K1
    norm += counts
    return (counts * (K1 + 1.0) / norm).astype(np.float32)


def idf(total: int, found: Array) -> NDArray[np.float64]:
    """How rare terms are, given in how many of `total` rows each was found."""
    there = np.asarray(found, dtype=np.float64)
    odds = (total - there + 0.5) / (there + 0.5)
    # Not by numpy: on some processors it rounds otherwise than on others, and than compiled loops do.
    return np.array([log1p(each) if each > -1 else nan for each in odds.tolist()])


def count_terms(packed: Pairs) -> tuple[Small, Small, Small]:
    """The distinct ones of (term, row) pairs, in order, with how often each occurs. The pairs are sorted in place."""
    packed.sort()
    fresh = np.ones(len(packed), dtype=bool)
    np.not_equal(packed[1:], packed[:-1], out=fresh[1:])
    starts = np.flatnonzero(fresh).astype(np.uint32)
    counts = np.diff(starts, append=np.uint32(len(packed)))
    packed = packed[fresh]
    docs = packed.astype(np.uint32)
    packed >>= np.uint64(32)
    return packed.astype(np.uint32), docs, counts


def sort_pairs(terms: Small, docs: Small, counts: Small) -> tuple[Small, Small, Small]:
    """Distinct (term, row) pairs with counts, put in order."""
    order = pack_pairs(terms, docs).argsort(kind="stable")
    return terms[order], docs[order], counts[order]


def pack_pairs(high: Small, low: Small) -> Pairs:
    """Pairs of numbers as one number each, in the same order."""
    packed = high.astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= low
    return packed


def make_postings(
    keys: NDArray[np.uint64], terms: Small, docs: Small, counts: Small, lengths: Ints
) -> Postings:
    """Postings from ordered (term, row) pairs; terms that no row has are left out."""
    by_doc = pack_pairs(docs, terms)
    by_doc.sort()
    ends = np.cumsum(np.bincount(docs, minlength=len(lengths)))
    found = np.bincount(terms, minlength=len(keys))
    return postings_of(keys, by_doc.astype(np.uint32), ends, docs, counts, found, lengths)


def postings_of(
    keys: NDArray[np.uint64],
    doc_terms: Small,
    doc_ends: Ints,
    docs: Small,
    counts: Small,
    found: Ints,
    lengths: Ints,
) -> Postings:
    """The same, from pairs that are in order both by row (`doc_terms`, up to `doc_ends`) and by term (`docs`)."""
    used = np.flatnonzero(found)
    if len(used) < len(keys):
        place = np.zeros(len(keys), dtype=np.uint32)
        place[used] = np.arange(len(used), dtype=np.uint32)
        keys, found, doc_terms = keys[used], found[used], place[doc_terms]
    classes, class_count, class_length = _classes(counts, lengths, docs)
    return Postings(
        keys=keys,
        offsets=offsets(found),
        docs=docs,
        classes=classes,
        class_count=class_count,
        class_length=class_length,
        doc_offsets=np.concatenate(([0], doc_ends)).astype(np.int64),
        doc_terms=doc_terms,
    )


def offsets(sizes: Array) -> Ints:
    """Where each of some groups begins, and where the last ends."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _classes(counts: Small, lengths: Ints, docs: Small) -> tuple[Array, Small, Small]:
    """Number the distinct pairs of a count and the length of its row."""
    span = int(lengths.max(initial=0)) + 1
    room = (int(counts.max(initial=0)) + 1) * span
    packed = counts.astype(np.uint32 if room <= 1 << 24 else np.int64)
    packed *= span
    packed += lengths.astype(packed.dtype).take(docs)
    if room <= 1 << 24:
        seen = np.zeros(room, dtype=bool)
        seen[packed] = True
        distinct = np.flatnonzero(seen)
        place = np.zeros(room, dtype=np.uint32)
        place[distinct] = np.arange(len(distinct), dtype=np.uint32)
        classes: Array = place[packed]
    else:
        distinct, classes = np.unique(packed, return_inverse=True)
    small = np.uint16 if len(distinct) <= 1 << 16 else np.uint32
    class_count, class_length = np.divmod(distinct, span)
    return (
        classes.astype(small),
        class_count.astype(np.uint32),
        class_length.astype(np.uint32),
    )


if TYPE_CHECKING:
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
    if runtime.native is not None:
        asked, rarity = np.empty(len(keys), np.uint64), np.empty(len(keys))
        held = np.empty((2 * len(table.segments) + 1, len(keys)), np.int64)
        runtime.native.find(table.keys, keys, newest, table.live, asked, held, rarity)
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
        if runtime.native is not None and number < len(table.segments):
            words, mine = (
                table.segments[number].words,
                np.empty((part.stop - part.start, len(terms)), np.float32),
            )
            runtime.native.gains(
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
    if runtime.native is not None:
        out = np.empty(min(k, len(slots)), dtype=np.int64)
        runtime.native.best(values, slots, rows, k, out)
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
    if k and runtime.native is not None:
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
    runtime.native.match(docs, classes, impacts, starts, sizes, worth, base, *rest)


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
