"""Segment builder: rows to the arrays of a segment, and several segments to one.

Words repeat, so a text is cut into chunks, every chunk is a number, and the terms of a chunk are found once. Rows
with like vectors are put near each other: what a search looks at closely is alike, so it lies in fewer pages of the
file, of which the system keeps in memory those that were touched. `catch_up` calls it; nothing here touches a file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import astuple

from skep import runtime
from skep.filters import IndexRow
from skep.index.bm25 import (
    Postings,
    count_terms,
    key_of,
    keys_of,
    make_postings,
    pack_pairs,
    postings_of,
    sort_pairs,
)
from skep.index.columns import COLUMNS, worth_storing
from skep.index.quantisation import (
    AXES_SAMPLE,
    FineCodes,
    Frame,
    Sketches,
    encode,
    foremost,
    join,
    no_codes,
    sketch,
)
from skep.runtime import alone
from skep.storage.vectors import unpacked
from skep.text.terms import numbering

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.segment_reader import Segment

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]
    Small = NDArray[np.uint32]
    Keys = NDArray[np.uint64]
    Array = NDArray[Any]

FEW = 8192
"""Fewer rows are left in the order of their keys: there is little to gain, and looking a row up is a little quicker."""
AXES = 16
"""Axes along which rows are parted: the foremost."""
LEAF = 512
"""So few rows are not parted any more."""
SEEN = 256
"""Rows from which the axis is chosen along which some are parted."""
BLOCK = 2048


def arranged(codes: FineCodes | None) -> Ints | None:
    """The places of rows in an order in which like ones are neighbours; None where they may stay as they are."""
    if codes is None or len(codes.scale) < FEW or not (codes.scale > 0).any():
        return None
    along = _along(codes)
    order = np.arange(len(along))
    waiting = [(0, len(order))]
    while waiting:
        start, stop = waiting.pop()
        if stop - start <= LEAF:
            continue
        here = order[start:stop]
        axis = int(along[here[:: -(-len(here) // SEEN)]].var(axis=0).argmax())
        half = len(here) // 2
        order[start:stop] = here[np.argpartition(along[here, axis], half)]
        waiting += [(start, start + half), (start + half, stop)]
    return order


def _along(codes: FineCodes) -> Floats:
    """Coordinates of each row along the foremost axes, from the coarse half of its code."""
    count = len(codes.scale)
    sample = _some(codes, slice(None, None, -(-count // AXES_SAMPLE)))
    axes = np.ascontiguousarray(foremost(sample - sample.mean(axis=0), AXES).T)
    out = np.empty((count, axes.shape[1]), dtype=np.float32)
    for start in range(0, count, BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = alone(_some(codes, part), axes)
    return out


def _some(codes: FineCodes, part: slice) -> Floats:
    return codes.high[part] * codes.scale[part, None]


CHUNKS = 1 << 18
"""Distinct chunks that are remembered at a time."""
SIGNS = 1 << 28
"""Signs of all texts whose chunks are remembered at a time; a table of chunks holds two gigabytes, terms included."""


class Occurrences(NamedTuple):
    """Every term of some texts, in order."""

    keys: Keys
    """The distinct terms, sorted."""
    terms: Small
    """Places in `keys`, text after text."""
    lengths: Ints
    """Terms of each text, counted."""


class Counter:
    """Takes in texts and gives their terms."""

    def __init__(self) -> None:
        self._numbers = numbering()
        self._blocks: list[Small] = [np.zeros(0, dtype=np.uint32)]
        self._sizes: list[int] = []
        """Per text, how many chunks it has."""
        self._signs = 0
        self._parts: list[Occurrences] = []

    def add(self, texts: Sequence[str]) -> None:
        """Take in some texts."""
        signs = sum(map(len, texts))
        if self._signs + signs > SIGNS:
            self._seal()
        self._signs += signs
        _, sizes, numbers = self._numbers.cut(texts, joined=False)
        self._sizes.extend(sizes)
        self._blocks.append(np.frombuffer(numbers, dtype=np.uint32))
        if len(self._numbers) > CHUNKS:
            self._seal()

    def finish(self) -> Occurrences:
        """The terms of all texts so far; it begins anew."""
        self._seal()
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            return parts[0]
        keys, rank = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
        places = rank.astype(np.uint32)
        terms: list[Small] = []
        start = 0
        for part in parts:
            terms.append(places[start : start + len(part.keys)][part.terms])
            start += len(part.keys)
        return Occurrences(keys, np.concatenate(terms), np.concatenate([part.lengths for part in parts]))

    def _seal(self) -> None:
        """Turn chunks into terms, and forget the chunks."""
        keys, terms, sizes = _terms_of(self._numbers.terms())
        blocks, counts = self._blocks[::-1], np.array(self._sizes, dtype=np.int64)
        self._numbers = numbering()
        self._signs = 0
        self._blocks, self._sizes = [np.zeros(0, dtype=np.uint32)], []
        single = bool((sizes == 1).all())
        if single:
            lengths, total = counts, int(counts.sum())
        else:
            ends = np.cumsum(
                np.concatenate([np.zeros(1, dtype=np.int64), *(sizes[block] for block in reversed(blocks))])
            )
            last = np.cumsum(counts)
            lengths, total = ends[last] - ends[last - counts], int(ends[-1])
            del ends
        starts: Ints = np.cumsum(sizes) - sizes
        found, at = np.empty(total, dtype=np.uint32), 0
        while blocks:  # each is let go of as soon as it is taken in
            block = blocks.pop()
            some = terms[block if single else _stretches(starts[block], sizes[block])]
            found[at : at + len(some)] = some
            at += len(some)
        self._parts.append(Occurrences(keys, found, lengths))


def _stretches(starts: Ints, sizes: Ints) -> Ints:
    """The numbers from each start on, so many of each."""
    before: Ints = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


def _terms_of(joined: Iterable[str]) -> tuple[Keys, Small, Ints]:
    """The keys of the terms of some chunks, the terms chunk after chunk as places in them, and how many each has."""
    keys, counts = bytearray(), array("I")
    for terms_here in joined:
        found = terms_here.split()
        counts.append(len(found))
        keys += keys_of(found)
    distinct, places = np.unique(np.frombuffer(keys, dtype="<u8").astype(np.uint64), return_inverse=True)
    return distinct, places.astype(np.uint32), np.array(counts, dtype=np.int64)


BUILD_BLOCK = 256
"""Vectors encoded at a time: few enough to stay in the processor's cache."""
GROUPS = 1 << 14
"""Sets of tags whose keys are remembered at a time."""
_FIELDS = IndexRow.__struct_fields__


class Content(NamedTuple):
    """The content of a segment before it is sketched and written. Rows stand in the order of keys, or `arranged`."""

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
    sketches: Sketches | None = None
    """Of the codes, where they have been made before."""


class _Codes:
    """Fine codes of more and more rows, in arrays that grow where they are."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._count = 0
        self._codes = no_codes(0, dim)

    def add(self, vectors: Sequence[bytes | None]) -> None:
        """Take in the vectors of some rows."""
        if not self._dim:
            return
        need = self._count + len(vectors)
        if need > len(self._codes.scale):
            self._resize(need + need // 8)
        for start in range(0, len(vectors), BUILD_BLOCK):
            made = encode(unpacked(vectors[start : start + BUILD_BLOCK], self._dim))
            end = self._count + len(made.scale)
            for mine, part in zip(self._codes, made, strict=True):
                mine[self._count : end] = part
            self._count = end

    def finish(self, kept: Ints) -> FineCodes | None:
        """The codes of the rows that are kept, in their order."""
        if not self._dim:
            return None
        self._resize(self._count)
        codes, self._codes = self._codes, no_codes(0, self._dim)
        if len(kept) == self._count and (np.diff(kept) > 0).all():
            return codes
        return codes.pick(kept)

    def _resize(self, rows: int) -> None:
        for codes in self._codes:
            codes.resize((rows, *codes.shape[1:]), refcheck=False)


class _TagKeys(dict[tuple[str, ...], tuple[int, ...]]):
    """The keys of tags that rows bear together, each once."""

    def __missing__(self, tags: tuple[str, ...]) -> tuple[int, ...]:
        found = self[tags] = tuple(map(key_of, dict.fromkeys(tags)))
        return found


class Builder:
    """Collects rows, the newest version of each, and turns them into the content of a segment."""

    def __init__(self, dim: int) -> None:
        self._rows: list[Ints] = []
        self._gone: list[NDArray[np.bool_]] = []
        self._columns: dict[str, list[Array]] = {name: [] for name in COLUMNS}
        self._words = Counter()
        self._tags: list[Keys] = []
        self._tag_keys = _TagKeys()
        self._tag_counts: list[Ints] = []
        self._codes = _Codes(dim)
        self.count = 0

    def add_next(self, rows: Iterator[IndexRow], most: int) -> int | None:
        """Take in the next rows, so many at most; the `seq` of the last of them, None if there are none."""
        some = list(islice(rows, most))
        self.add(some)
        return some[-1].seq if some else None

    def add(self, rows: Sequence[IndexRow]) -> None:
        """Take in rows in order of their `seq`."""
        if not rows:
            return
        self.count += len(rows)
        fields: dict[str, Sequence[Any]] = dict(
            zip(_FIELDS, zip(*map(astuple, rows), strict=True), strict=True)
        )
        gone = np.array(fields["gone"], dtype=bool)
        texts, tags, vectors = fields["text"], fields["tags"], fields["vector"]
        if gone.any():
            texts = ["" if row.gone else row.text for row in rows]
            tags = [() if row.gone else row.tags for row in rows]
            vectors = [None if row.gone else row.vector for row in rows]
        self._rows.append(np.array(fields["row"], dtype=np.int64))
        self._gone.append(gone)
        for name, parts in self._columns.items():
            column = COLUMNS[name]
            parts.append(column.values([fields[field] for field in column.fields]))
        self._words.add(texts)
        self._add_tags(tags)
        self._codes.add(vectors)

    def _add_tags(self, tags: Sequence[tuple[str, ...]]) -> None:
        if len(self._tag_keys) > GROUPS:
            self._tag_keys.clear()
        keys = list(map(self._tag_keys.__getitem__, tags))
        self._tags.append(np.fromiter(chain.from_iterable(keys), dtype=np.uint64))
        self._tag_counts.append(np.array(list(map(len, keys)), dtype=np.int64))

    def finish(self) -> Content:
        """The content of a segment with the last version of every row that was added. The builder is spent."""
        given = _joined(self._rows, np.int64)
        gone = _joined(self._gone, np.bool_)
        rows, last = np.unique(given[::-1], return_index=True)
        order = len(given) - 1 - last
        kept = order[~gone[order]]
        codes = self._codes.finish(kept) if len(kept) else None
        places = arranged(codes)
        if codes is not None and places is not None:
            kept, codes = kept[places], codes.pick(places)
        place = np.full(len(given), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        tag_docs = place[np.repeat(np.arange(len(given)), _joined(self._tag_counts, np.int64))]
        tag_keys, tag_offsets, tag_order = _group(_joined(self._tags, np.uint64), tag_docs)
        words, lengths = self._postings(place, kept)
        return Content(
            rows=given[kept],
            gone=rows[gone[order]],
            columns=worth_storing(
                {name: np.concatenate(parts)[kept] for name, parts in self._columns.items()}
            )
            if len(kept)
            else {},
            lengths=lengths,
            words=words,
            tag_keys=tag_keys,
            tag_offsets=tag_offsets,
            tag_docs=tag_order,
            codes=codes,
        )

    def _postings(self, place: Ints, kept: Ints) -> tuple[Postings, Ints]:
        if runtime.native is not None:
            return grouped(runtime.native.group, self._words.finish(), kept)
        keys, terms, lengths = self._words.finish()
        pairs = pack_pairs(terms, np.repeat(place.astype(np.uint32), lengths))
        del terms
        if len(kept) < len(place):
            pairs = pairs[np.repeat(place >= 0, lengths)]
        counted = count_terms(pairs)
        del pairs
        lengths = lengths[kept]
        return make_postings(keys, *counted, lengths), lengths


def grouped(group: Callable[..., int], words: Occurrences, kept: Ints) -> tuple[Postings, Ints]:
    """Postings of the kept texts, and their lengths, by a compiled loop that sorts nothing but the terms of each."""
    keys, terms, lengths = words
    del words
    ends: Ints = np.cumsum(lengths)
    lengths = lengths[kept]
    doc_terms, docs, counts = (np.empty(int(lengths.sum()), dtype=np.uint32) for _ in range(3))
    doc_ends, found = np.empty(len(kept), dtype=np.int64), np.empty(len(keys), dtype=np.int64)
    pairs = group(terms, ends, kept, doc_terms, doc_ends, docs, counts, found)
    del terms  # as large as each of the others, and needed no more
    return postings_of(
        keys, doc_terms[:pairs], doc_ends, docs[:pairs], counts[:pairs], found, lengths
    ), lengths


def merge(segments: Sequence[Segment], keep: Sequence[NDArray[np.bool_]], *, oldest: bool) -> Content:
    """One content from several segments, of which `keep` says which rows are still shown.

    Args:
        segments: Oldest first.
        keep: Per segment, one flag per row. No row may be kept twice.
        oldest: Nothing older lies beneath, so there is nothing left for `gone` rows to hide.
    """
    rows = np.concatenate([segment.rows[flags] for segment, flags in zip(segments, keep, strict=True)])
    codes = _merge_codes(segments, keep) if len(rows) else None
    order = np.arange(len(rows)) if len(segments) == 1 else arranged(codes)
    if order is None:
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
        codes=None if codes is None else codes.pick(order),
    )


def _merge_words(segments: Sequence[Segment], maps: Sequence[Ints], lengths: Ints) -> Postings:
    keys, rank = np.unique(np.concatenate([s.words.keys for s in segments]), return_inverse=True)
    rank = rank.astype(np.uint32)
    terms: list[Small] = []
    docs: list[Small] = []
    counts: list[Small] = []
    start = 0
    for segment, local in zip(segments, maps, strict=True):
        words = segment.words
        mine = rank[start : start + len(words.keys)]
        start += len(words.keys)
        moved = local[words.docs]
        there = moved >= 0
        terms.append(np.repeat(mine, np.diff(words.offsets))[there])
        docs.append(moved[there].astype(np.uint32))
        counts.append(words.class_count[words.classes[there]])
    ordered = sort_pairs(np.concatenate(terms), np.concatenate(docs), np.concatenate(counts))
    return make_postings(keys, *ordered, lengths)


def _merge_codes(segments: Sequence[Segment], keep: Sequence[NDArray[np.bool_]]) -> FineCodes | None:
    """The codes of all that is kept, segment after segment."""
    dims = {segment.codes.high.shape[1] for segment in segments if segment.codes is not None}
    if not dims:
        return None
    (dim,) = dims
    parts: list[FineCodes] = []
    for segment, flags in zip(segments, keep, strict=True):
        if segment.codes is None:
            parts.append(no_codes(int(flags.sum()), dim))
        else:
            parts.append(segment.codes.pick(np.flatnonzero(flags)))
    return join(parts)


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
    if (np.diff(content.rows) < 0).any():
        arrays["order"] = np.argsort(content.rows).astype(np.uint32)
    arrays |= {f"words.{name}": array for name, array in content.words._asdict().items()}
    arrays |= {f"column.{name}": array for name, array in content.columns.items()}
    if content.codes is not None and (content.codes.scale > 0).any():
        arrays |= {f"codes.{name}": array for name, array in content.codes._asdict().items()}
        sketches = content.sketches
        if sketches is None and frame is not None:
            sketches = sketch(content.codes, frame)
        if sketches is not None:
            arrays |= {f"sketch.{name}": array for name, array in sketches._asdict().items()}
    return arrays


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
