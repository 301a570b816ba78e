"""Postings: for every term the rows that hold it, and for every row its terms.

A posting carries a small number, its *class*, instead of a score: rows of one length with one count of a term
share a class, so a table of a few hundred numbers turns classes into BM25 parts for whatever the mean length
of the bank is at that moment. Scores therefore do not depend on how the bank is cut into segments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

K1 = 1.2
B = 0.75

Array = NDArray[Any]
Ints = NDArray[np.int64]


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
    return np.log1p((total - there + 0.5) / (there + 0.5))


def count_terms(terms: NDArray[np.uint32], docs: Ints, room: int) -> tuple[Ints, Ints, Ints]:
    """Distinct (term, row) pairs in that order, with how often each occurs; rows are below `room`."""
    packed = terms.astype(np.int64)
    packed *= room
    packed += docs
    packed.sort()
    starts = np.flatnonzero(np.concatenate(([True], packed[1:] != packed[:-1]))) if len(packed) else packed
    pairs = packed[starts]
    counts = np.diff(np.append(starts, len(packed)))
    return pairs // room, pairs % room, counts


def sort_pairs(terms: Ints, docs: Ints, counts: Ints, room: int) -> tuple[Ints, Ints, Ints]:
    """Distinct (term, row) pairs with counts, put in order."""
    top = int(counts.max(initial=0)) + 1
    span = int(terms.max(initial=0)) + 1
    if span * room * top < 1 << 62:
        packed = np.sort((terms * room + docs) * top + counts)
        pairs = packed // top
        return pairs // room, pairs % room, packed % top
    order = np.lexsort((docs, terms))
    return terms[order], docs[order], counts[order]


def make_postings(keys: NDArray[np.uint64], terms: Ints, docs: Ints, counts: Ints, lengths: Ints) -> Postings:
    """Postings from ordered (term, row) pairs; terms that no row has are left out."""
    rows = len(lengths)
    found = np.bincount(terms, minlength=len(keys))
    used = np.flatnonzero(found)
    place = np.zeros(len(keys), dtype=np.int64)
    place[used] = np.arange(len(used))
    terms = place[terms]
    classes, class_count, class_length = _classes(counts, lengths[docs] if rows else counts)
    by_doc = np.sort(docs * max(len(used), 1) + terms)
    return Postings(
        keys=keys[used],
        offsets=_offsets(found[used]),
        docs=docs.astype(np.uint32),
        classes=classes,
        class_count=class_count,
        class_length=class_length,
        doc_offsets=_offsets(np.bincount(docs, minlength=rows)),
        doc_terms=(by_doc % max(len(used), 1)).astype(np.uint32),
    )


def _offsets(sizes: Array) -> Ints:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _classes(counts: Ints, lengths: Ints) -> tuple[Array, NDArray[np.uint32], NDArray[np.uint32]]:
    """Number the distinct (count, length) pairs."""
    span = int(lengths.max(initial=0)) + 1
    packed = counts * span + lengths
    room = int(packed.max(initial=0)) + 1
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
