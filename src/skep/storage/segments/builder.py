"""Rows to the arrays of a segment, and several segments to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.codes import FineCodes, Frame, encode, join, sketch
from skep.storage.segments.columns import COLUMNS, column_of, defaults, worth_storing
from skep.storage.segments.hashing import key_of, keys_of
from skep.storage.segments.postings import (
    Postings,
    count_terms,
    make_postings,
    sort_pairs,
)
from skep.words import terms as terms_of

if TYPE_CHECKING:
    from skep.storage.base import IndexRow
    from skep.storage.segments.reader import Segment

Array = NDArray[Any]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


class Content(NamedTuple):
    """What a segment holds, before it is sketched and written. Rows are sorted by their key."""

    rows: Ints
    gone: Ints
    """Rows that older segments must no longer show."""
    columns: dict[str, Array]
    lengths: Ints
    words: Postings
    tag_keys: Keys
    tag_offsets: Ints
    tag_docs: NDArray[np.uint32]
    codes: FineCodes | None


class _Numbering(dict[str, int]):
    """Strings numbered in order of appearance."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Builder:
    """Collects rows, the newest version of each, and turns them into the content of a segment."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._rows: list[Ints] = []
        self._gone: list[NDArray[np.bool_]] = []
        self._columns: dict[str, list[Array]] = {name: [] for name in COLUMNS}
        self._lengths: list[Ints] = []
        self._words: list[Ints] = []
        self._numbers = _Numbering()
        self._tags: list[Keys] = []
        self._tag_counts: list[Ints] = []
        self._codes: list[FineCodes] = []
        self.count = 0

    def add(self, rows: Sequence[IndexRow], tokens: Sequence[Sequence[str]] | None = None) -> None:
        """Take in rows in order of their `seq`, with their terms if they are known already."""
        if not rows:
            return
        self.count += len(rows)
        self._rows.append(np.array([row.row for row in rows], dtype=np.int64))
        self._gone.append(np.array([row.gone for row in rows], dtype=bool))
        for name, parts in self._columns.items():
            parts.append(column_of(name, rows))
        self._add_words(tokens or [[] if row.gone else terms_of(row.text) for row in rows])
        tags = [[] if row.gone else list(dict.fromkeys(row.tags)) for row in rows]
        self._tags.append(np.array([key_of(tag) for group in tags for tag in group], dtype=np.uint64))
        self._tag_counts.append(np.array([len(group) for group in tags], dtype=np.int64))
        if self._dim:
            self._codes.append(
                encode(unpack_vectors([None if r.gone else r.vector for r in rows], self._dim))
            )

    def _add_words(self, tokens: Sequence[Sequence[str]]) -> None:
        numbers = self._numbers
        self._lengths.append(np.array([len(each) for each in tokens], dtype=np.int64))
        self._words.append(np.array([numbers[term] for each in tokens for term in each], dtype=np.int64))

    def finish(self) -> Content:
        """The content of a segment with the last version of every row that was added."""
        given = _joined(self._rows, np.int64)
        gone = _joined(self._gone, np.bool_)
        rows, last = np.unique(given[::-1], return_index=True)
        order = len(given) - 1 - last
        kept = order[~gone[order]]
        place = np.full(len(given), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        lengths = _joined(self._lengths, np.int64)
        tag_docs = place[np.repeat(np.arange(len(given)), _joined(self._tag_counts, np.int64))]
        tag_keys, tag_offsets, tag_order = _group(_joined(self._tags, np.uint64), tag_docs)
        codes = join(self._codes) if self._codes else None
        return Content(
            rows=given[kept],
            gone=rows[gone[order]],
            columns=worth_storing(
                {name: np.concatenate(parts)[kept] for name, parts in self._columns.items()}
            )
            if len(kept)
            else {},
            lengths=lengths[kept],
            words=self._postings(place[np.repeat(np.arange(len(given)), lengths)], lengths[kept]),
            tag_keys=tag_keys,
            tag_offsets=tag_offsets,
            tag_docs=tag_order,
            codes=codes.pick(kept) if codes and len(kept) else None,
        )

    def _postings(self, docs: Ints, lengths: Ints) -> Postings:
        keys, rank = np.unique(
            np.frombuffer(keys_of(list(self._numbers)), dtype="<u8").astype(np.uint64),
            return_inverse=True,
        )
        words = rank[_joined(self._words, np.int64)] if len(rank) else np.zeros(0, dtype=np.int64)
        there = docs >= 0
        if not there.all():
            words, docs = words[there], docs[there]
        room = max(len(lengths), 1)
        return make_postings(keys, *count_terms(words.astype(np.int64), docs, room), lengths)


def merge(segments: Sequence[Segment], keep: Sequence[NDArray[np.bool_]], *, oldest: bool) -> Content:
    """One content from several segments, of which `keep` says which rows are still shown.

    Args:
        segments: Oldest first.
        keep: Per segment, one flag per row. No row may be kept twice.
        oldest: Nothing older lies beneath, so there is nothing left for `gone` rows to hide.
    """
    rows = np.concatenate([segment.rows[flags] for segment, flags in zip(segments, keep, strict=True)])
    order = np.argsort(rows, kind="stable")
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows))
    maps: list[Ints] = []
    start = 0
    for flags in keep:
        local = np.full(len(flags), -1, dtype=np.int64)
        count = int(flags.sum())
        local[flags] = place[start : start + count]
        maps.append(local)
        start += count

    def gather(name: str) -> Array:
        parts = [segment.column(name)[flags] for segment, flags in zip(segments, keep, strict=True)]
        return np.concatenate(parts)[order]

    lengths = np.concatenate([s.lengths[f] for s, f in zip(segments, keep, strict=True)])[order].astype(
        np.int64
    )
    hidden = np.concatenate([segment.gone for segment in segments])
    tag_keys, tag_offsets, tag_docs = _group(
        np.concatenate([np.repeat(s.tag_keys, np.diff(s.tag_offsets)) for s in segments]),
        np.concatenate([local[s.tag_docs] for s, local in zip(segments, maps, strict=True)]),
    )
    return Content(
        rows=rows[order],
        gone=np.zeros(0, dtype=np.int64) if oldest else np.setdiff1d(hidden, rows),
        columns=worth_storing({name: gather(name) for name in COLUMNS}) if len(rows) else {},
        lengths=lengths,
        words=_merge_words(segments, maps, lengths),
        tag_keys=tag_keys,
        tag_offsets=tag_offsets,
        tag_docs=tag_docs,
        codes=_merge_codes(segments, keep, order) if len(rows) else None,
    )


def _merge_words(segments: Sequence[Segment], maps: Sequence[Ints], lengths: Ints) -> Postings:
    keys, rank = np.unique(np.concatenate([s.words.keys for s in segments]), return_inverse=True)
    terms: list[Ints] = []
    docs: list[Ints] = []
    counts: list[Ints] = []
    start = 0
    for segment, local in zip(segments, maps, strict=True):
        words = segment.words
        mine = rank[start : start + len(words.keys)]
        start += len(words.keys)
        moved = local[words.docs]
        there = moved >= 0
        terms.append(np.repeat(mine, np.diff(words.offsets))[there])
        docs.append(moved[there])
        counts.append(words.class_count[words.classes[there]].astype(np.int64))
    room = max(len(lengths), 1)
    ordered = sort_pairs(np.concatenate(terms), np.concatenate(docs), np.concatenate(counts), room)
    return make_postings(keys, *ordered, lengths)


def _merge_codes(
    segments: Sequence[Segment], keep: Sequence[NDArray[np.bool_]], order: Ints
) -> FineCodes | None:
    dims = {segment.codes.high.shape[1] for segment in segments if segment.codes is not None}
    if not dims:
        return None
    (dim,) = dims
    parts: list[FineCodes] = []
    for segment, flags in zip(segments, keep, strict=True):
        if segment.codes is None:
            parts.append(_no_codes(int(flags.sum()), dim))
        else:
            parts.append(segment.codes.pick(np.flatnonzero(flags)))
    return join(parts).pick(order)


def segment_arrays(content: Content, frame: Frame | None) -> dict[str, Array]:
    """Every array of a segment, by the name it has in the file."""
    arrays: dict[str, Array] = {
        "rows": content.rows,
        "gone": content.gone,
        "lengths": content.lengths.astype(np.uint32),
        "tag_keys": content.tag_keys,
        "tag_offsets": content.tag_offsets,
        "tag_docs": content.tag_docs,
    }
    arrays |= {f"words.{name}": array for name, array in content.words._asdict().items()}
    arrays |= {f"column.{name}": array for name, array in content.columns.items()}
    if content.codes is not None and (content.codes.scale > 0).any():
        arrays |= {f"codes.{name}": array for name, array in content.codes._asdict().items()}
        if frame is not None:
            arrays |= {f"sketch.{n}": array for n, array in sketch(content.codes, frame)._asdict().items()}
    return arrays


def unpack_vectors(vectors: Sequence[bytes | None], dim: int) -> NDArray[np.float32]:
    """Vectors as rows; what is missing or of another length becomes a row of zeros."""
    empty = bytes(4 * dim)
    joined = b"".join(v if v is not None and len(v) == 4 * dim else empty for v in vectors)
    return np.frombuffer(joined, dtype="<f4").reshape(len(vectors), dim).astype(np.float32)


def _no_codes(count: int, dim: int) -> FineCodes:
    return FineCodes(
        np.zeros((count, dim), dtype=np.int8),
        np.zeros((count, -(-dim // 2)), dtype=np.uint8),
        np.zeros(count, dtype=np.float32),
    )


def _group(keys: Keys, docs: Ints) -> tuple[Keys, Ints, NDArray[np.uint32]]:
    """Rows grouped by key, both ascending; rows below zero are left out."""
    there = docs >= 0
    keys, docs = keys[there], docs[there]
    order = np.lexsort((docs, keys))
    distinct, counts = np.unique(keys, return_counts=True)
    return (
        distinct,
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        docs[order].astype(np.uint32),
    )


def _joined(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


__all__ = [
    "Builder",
    "Content",
    "defaults",
    "merge",
    "segment_arrays",
    "unpack_vectors",
]
