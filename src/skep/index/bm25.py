"""BM25 over posting lists: the format of a segment's words, and the scores of a query.

A posting carries a small number, its *class*, instead of a score: rows of one length with one count of a term share
a class, so a table of a few hundred numbers turns classes into BM25 parts for the mean length that the bank has at
that moment. Scores therefore do not depend on how the bank is cut into segments.

`segment_builder` makes postings, `index` asks for scores. The compiled core (`core/bm25.c`) finds the best rows in
the same way; the numpy code here is its oracle, and serves where the core is not built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.row_table import Table

    Array = NDArray[Any]
    Ints = NDArray[np.int64]
    Small = NDArray[np.uint32]
    Pairs = NDArray[np.uint64]
    Floats = NDArray[np.float32]
    Mask = NDArray[np.bool_]

K1 = 1.2
B = 0.75


@lru_cache(maxsize=1 << 14)
def key_of(text: str) -> int:
    """The key of a string, the same in every process and on every machine."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def keys_of(texts: Iterable[str]) -> bytearray:
    """The keys of many strings as little-endian words; quicker than one by one, and it fills no cache."""
    keys = bytearray()
    for text in texts:
        keys += blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return keys


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
    """Rarity of terms (inverse document frequency), from how many of `total` rows hold each."""
    there = np.asarray(found, dtype=np.float64)
    odds = (total - there + 0.5) / (there + 0.5)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log1p(odds)


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
    """Postings from pairs that are in order by row (`doc_terms`, up to `doc_ends`) and by term (`docs`)."""
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
    """The start of each of some groups, and the end of the last."""
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


class Lookup(NamedTuple):
    """The terms of a query as the index knows them."""

    keys: list[int]
    starts: list[Ints]
    """Per segment, per term: where its postings begin."""
    sizes: list[Ints]
    """Per segment, per term: how many postings it has."""
    newest: tuple[list[int], Small, Floats] | None
    """The postings in the tail, term after term, and how many each has."""
    rarity: NDArray[np.float64]
    """Inverse document frequency of each term."""

    def in_tail(self, term: int) -> tuple[Small, Floats]:
        """The slots of the tail that hold a term, and the impact of each."""
        if self.newest is None:
            return np.zeros(0, np.uint32), np.zeros(0, np.float32)
        sizes, slots, impacts = self.newest
        start = sum(sizes[:term])
        return slots[start : start + sizes[term]], impacts[start : start + sizes[term]]


def look_up(table: Table, terms: Sequence[str]) -> Lookup:
    """Find terms in every segment and in the tail; a recall asks for the same ones several times."""
    asked = (table.version, tuple(terms))
    if table.lookup is None or table.lookup[0] != asked:
        table.lookup = (asked, _look_up(table, terms))
    return table.lookup[1]


def _look_up(table: Table, terms: Sequence[str]) -> Lookup:
    keys = [key_of(term) for term in terms]
    asked = np.array(keys, dtype=np.uint64)
    newest = table.newest(keys) if keys and table.tail.entries else None
    found = np.zeros(len(keys), np.int64) if newest is None else np.array(newest[0], dtype=np.int64)
    starts: list[Ints] = []
    sizes: list[Ints] = []
    for segment in table.segments:
        start, size, live = segment.find(asked)
        found = found + live
        starts.append(start)
        sizes.append(size)
    return Lookup(keys, starts, sizes, newest, idf(table.live, found))


def score_words(table: Table, terms: Sequence[str]) -> Floats:
    """The BM25 score of every slot, dead ones included; 0 where no term matches.

    The rarest term is added first, so that sums are rounded alike however the bank is cut into segments.
    """
    scores = np.zeros(table.count, dtype=np.float32)
    if not len(terms) or not table.live:
        return scores
    lookup, mean = look_up(table, terms), table.mean_length
    worth = lookup.rarity.astype(np.float32)
    order: list[int] = np.lexsort((np.array(lookup.keys, dtype=np.uint64), -worth)).tolist()
    for term in order:
        for number, segment in enumerate(table.segments):
            size = int(lookup.sizes[number][term])
            if size:
                docs, impacts = segment.postings(int(lookup.starts[number][term]), size, mean)
                np.add.at(scores[table.bases[number] :], docs, impacts * worth[term])
        docs, impacts = lookup.in_tail(term)
        np.add.at(scores[table.base :], docs, impacts * worth[term])
    return scores


def best_matches(scores: Floats, rows: Ints, mask: Mask, k: int) -> tuple[Ints, int]:
    """The `k` best of the admitted slots that match, in the order of their rows, and how many match."""
    slots = np.flatnonzero((scores > 0) & mask)
    best = best_of(scores[slots], rows, slots, k)
    return best[rows[best].argsort()], len(slots)


def term_parts(table: Table, terms: Sequence[str], slots: Ints) -> Floats:
    """The BM25 part of each term (column) for each slot (row); slot -1 gives zeros."""
    out = np.zeros((len(slots), len(terms)), dtype=np.float32)
    if not len(terms) or not len(slots) or not table.live:
        return out
    lookup = look_up(table, terms)
    worth = lookup.rarity.astype(np.float32)
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    for number, part in table.parts(ordered):
        mine = ordered[part] - table.bases[number]
        for term in range(len(terms)):
            if number < len(table.segments):
                start, size = int(lookup.starts[number][term]), int(lookup.sizes[number][term])
                docs, impacts = table.segments[number].postings(start, size, table.mean_length)
            else:
                docs, impacts = lookup.in_tail(term)
            if len(docs):
                at = np.minimum(np.searchsorted(docs, mine), len(docs) - 1)
                hit: Mask = docs[at] == mine
                out[order[part][hit], term] = impacts[at[hit]] * worth[term]
    return out


def best_of(values: Floats, rows: Ints, slots: Ints, k: int) -> Ints:
    """Those of some slots with the `k` largest values, best first, ties broken by row."""
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
