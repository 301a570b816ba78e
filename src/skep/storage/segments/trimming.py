"""One segment without some of its rows, which is what forgetting leaves of it.

What stays keeps its order and its sketch, so that nothing is sorted or sketched again; otherwise it is what
`builder.merge` would make of the one segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skep.storage.segments.builder import Content
from skep.storage.segments.columns import COLUMNS, worth_storing
from skep.storage.segments.postings import Postings, offsets, postings_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.storage.segments.reader import Segment

    Array = NDArray[Any]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


def trimmed(segment: Segment, keep: Flags, *, oldest: bool) -> Content:
    """What a segment holds of some rows of another.

    Args:
        segment: What is left whole.
        keep: One flag per row.
        oldest: Nothing older lies beneath, so there is nothing left for `gone` rows to hide.
    """
    places = np.flatnonzero(keep)
    number = np.cumsum(keep, dtype=np.int64) - 1
    lengths = segment.lengths[places].astype(np.int64)
    tag_keys, tag_offsets, tag_docs = _tags(segment, keep, number)
    return Content(
        rows=segment.rows[places],
        gone=segment.gone[:0] if oldest else segment.gone,
        columns=worth_storing({name: segment.column(name)[places] for name in COLUMNS})
        if len(places)
        else {},
        lengths=lengths,
        words=_words(segment.words, keep, number, lengths),
        tag_keys=tag_keys,
        tag_offsets=tag_offsets,
        tag_docs=tag_docs,
        codes=None if segment.codes is None else segment.codes.pick(places),
        ids=segment.ids.pick(places),
        sketches=None if segment.sketches is None else segment.sketches.pick(places),
    )


def _words(words: Postings, keep: Flags, number: Ints, lengths: Ints) -> Postings:
    """The postings of the rows that stay."""
    there = keep[words.docs]
    sizes = np.diff(words.doc_offsets)
    stay = np.repeat(keep, sizes)
    lost = np.bincount(words.doc_terms[~stay], minlength=len(words.keys))
    return postings_of(
        words.keys,
        words.doc_terms[stay],
        np.cumsum(sizes[keep]),
        number[words.docs[there]].astype(np.uint32),
        words.class_count[words.classes[there]],
        np.diff(words.offsets) - lost,
        lengths,
    )


def _tags(segment: Segment, keep: Flags, number: Ints) -> tuple[Array, Ints, Array]:
    """The tags of the rows that stay: keys, where the rows of each begin, and the rows."""
    there = keep[segment.tag_docs]
    whose = np.repeat(np.arange(len(segment.tag_keys)), np.diff(segment.tag_offsets))[there]
    sizes = np.bincount(whose, minlength=len(segment.tag_keys))
    used = np.flatnonzero(sizes)
    docs = number[segment.tag_docs[there]].astype(np.uint32)
    return segment.tag_keys[used], offsets(sizes[used]), docs
