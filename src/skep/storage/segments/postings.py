"""Postings: for every term the rows that hold it, and for every row its terms.

A posting carries a small number, its *class*, instead of a score: rows of one length with one count of a term
share a class, so a table of a few hundred numbers turns classes into BM25 parts for whatever the mean length
of the bank is at that moment. Scores therefore do not depend on how the bank is cut into segments.
"""

from __future__ import annotations

from math import log1p, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
