"""Table: every row that an index knows, under one numbering. Tail: the rows that are newer than the segments.

A *slot* is a place in that numbering: the segments first, oldest to newest, then the tail, which lies in memory and
is searched exactly. A row that was changed or forgotten leaves a dead slot behind. The statistics (rows, lengths,
rows per term) count live slots only, so they are those of the bank. `catch_up` changes a table, searches read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from skep import runtime
from skep.index.bm25 import impact, key_of
from skep.index.columns import COLUMNS, column_of
from skep.index.quantisation import FineCodes, encode
from skep.index.segment_reader import Segment, shown
from skep.storage.vectors import unpacked
from skep.text.terms import terms as terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.filters import IndexRow
    from skep.index.bm25 import Lookup
    from skep.index.quantisation import Frame

    Floats = NDArray[np.float32]
    Array = NDArray[Any]
    Ints = NDArray[np.int64]

Number = TypeVar("Number", np.float32, np.uint8, np.int8)


class Entry(NamedTuple):
    """A row of the tail with its terms."""

    row: IndexRow
    counts: dict[int, int]
    """Occurrences of each term, by key."""


class Tail:
    """Rows in order of arrival; a slot is never reused. Rows that were replaced leave no trace but an empty slot."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.count = 0
        """Slots given out, dead ones included."""
        self.entries: dict[int, Entry] = {}
        """The live rows by slot, oldest first."""
        self.slots: dict[int, int] = {}
        self.gone: dict[int, IndexRow] = {}
        """Forgotten rows, as the store reported them."""
        self.lengths = array("I")
        self._words: dict[int, tuple[array[int], array[int]]] = {}
        self._tags: dict[int, set[int]] = {}
        self._high = np.zeros((0, dim), dtype=np.int8)
        self._low = np.zeros((0, -(-dim // 2)), dtype=np.uint8)
        self._scale: Floats = np.zeros(0, dtype=np.float32)

    def put(self, row: IndexRow) -> int:
        """Take in a row that is not in the tail; returns its slot. Its vector comes with `put_vectors`."""
        slot = self.count
        found = terms_of(row.text)
        counts: dict[int, int] = {}
        for key in map(key_of, found):
            counts[key] = counts.get(key, 0) + 1
        self.count += 1
        self.entries[slot] = Entry(row, counts)
        self.slots[row.row] = slot
        self.lengths.append(len(found))
        for key, count in counts.items():
            held = self._words.get(key)
            if held is None:
                held = self._words[key] = (array("I"), array("I"))
            held[0].append(slot)
            held[1].append(count)
        for tag in row.tags:
            self._tags.setdefault(key_of(tag), set()).add(slot)
        return slot

    def put_vectors(self, first: int, vectors: Sequence[bytes | None]) -> Floats:
        """Code the vectors of the slots from `first` on; returns the scale of each, 0 where there is none."""
        end = first + len(vectors)
        if end > len(self._scale):
            room = max(64, 2 * len(self._scale), end)
            self._high = _grown(self._high, room)
            self._low = _grown(self._low, room)
            self._scale = _grown(self._scale, room)
        if any(vectors):
            codes = encode(unpacked(vectors, self.dim))
            self._high[first:end], self._low[first:end], self._scale[first:end] = codes
        return self._scale[first:end]

    def remove(self, row: int) -> int:
        """Drop a live row; returns the slot that is now empty."""
        slot = self.slots.pop(row)
        entry = self.entries.pop(slot)
        for key in entry.counts:
            slots, counts = self._words[key]
            at = slots.index(slot)
            del slots[at], counts[at]
            if not slots:
                del self._words[key]
        for tag in entry.row.tags:
            self._tags[key_of(tag)].discard(slot)
        if self.dim:
            self._high[slot], self._low[slot], self._scale[slot] = 0, 0, 0
        return slot

    @property
    def scale(self) -> Floats:
        """Per slot; 0 where there is no vector."""
        return self._scale[: self.count]

    @property
    def codes(self) -> FineCodes:
        """The fine codes of every slot."""
        return FineCodes(self._high[: self.count], self._low[: self.count], self.scale)

    def postings(
        self, keys: Sequence[int], mean_length: float
    ) -> tuple[list[int], NDArray[np.uint32], Floats]:
        """The postings of several terms, one after the other; and how many each has."""
        none: tuple[array[int], array[int]] = array("I"), array("I")
        held = [self._words.get(key, none) for key in keys]
        slots, counts = array("I"), array("I")
        for mine in held:
            slots.extend(mine[0])
            counts.extend(mine[1])
        where = np.array(slots, dtype=np.uint32)
        lengths = np.frombuffer(self.lengths, dtype=np.uint32)[where] if len(where) else where
        return [len(mine[0]) for mine in held], where, impact(np.array(counts), lengths, mean_length)

    def tagged(self, key: int) -> list[int]:
        """The slots that carry a tag."""
        return sorted(self._tags.get(key, ()))


def _grown(old: NDArray[Number], room: int) -> NDArray[Number]:
    new = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old
    return new


ROOM = 1024


class Table:
    """The rows of some segments and a tail."""

    def __init__(self, segments: Sequence[Segment], frame: Frame | None, dim: int) -> None:
        self.segments = list(segments)
        self.frame = frame
        self.dim = dim
        self.bases: list[int] = np.cumsum([0, *(segment.count for segment in segments)]).tolist()
        self.base: int = self.bases[-1]
        """The first slot of the tail."""
        self.tail = Tail(dim)
        self.count = self.base
        self.version = 0
        """Differs after every change."""
        self.lookup: tuple[tuple[int, tuple[str, ...]], Lookup] | None = None
        """The terms that were looked up last, and at which version."""
        self._compiled: tuple[int, Any] | None = None
        """The table as compiled searches read it, and its version then."""
        self._columns: dict[str, Array] = {}
        """Columns that were put together, with room for more."""
        self.rows: Array
        """By slot; where there is one segment alone, its own array, until a row is put after it."""
        if len(segments) == 1 and self.base:
            self.rows = self.segments[0].rows
        else:
            self.rows = self._gathered([segment.rows for segment in segments], "i8")
        self.alive = np.zeros(len(self.rows), dtype=bool)
        self.alive[: self.base] = True
        self.has_vector = np.zeros(len(self.rows), dtype=bool)
        for base, segment in zip(self.bases, self.segments, strict=False):
            if segment.codes is not None:
                np.greater(
                    segment.codes.scale,
                    0,
                    out=self.has_vector[base : base + segment.count],
                )
        self.all_vectors = bool(self.has_vector[: self.base].all())
        """True if every slot has a vector; dead slots count."""
        self.live = self.base
        self.length = sum(int(segment.lengths.sum(dtype=np.int64)) for segment in segments)
        self.dead = 0
        self._overlay()

    def _overlay(self) -> None:
        """Hide what newer segments replaced or forgot, whatever an earlier table of the same segments hid."""
        for segment in self.segments:
            segment.raise_all()
        for number, flags in enumerate(shown(self.segments)):
            if not flags.all():
                self._bury(number, np.flatnonzero(~flags))

    def _bury(self, number: int, places: Ints) -> None:
        """Hide some rows of a segment, unless they are hidden already."""
        if not len(places):
            return
        slots = places + self.bases[number]
        places = places[self.alive[slots]]
        if len(places):
            self.alive[places + self.bases[number]] = False
            self.length -= self.segments[number].bury(places)
            self.live -= len(places)
            self.dead += len(places)

    @property
    def compiled(self) -> Any:
        """The table as compiled searches read it; one object serves for as long as nothing changes.

        It holds the arrays that it reads, and takes over the working memory of the one before it.
        """
        if self._compiled is None or self._compiled[0] != self.version:
            former = None if self._compiled is None else self._compiled[1]
            made = runtime.native.Table(
                *(
                    self.count,
                    self.base,
                    self.live,
                    self.rows,
                    self._worded(),
                    self._placed(),
                    self.dim,
                    former,
                )
            )
            self._compiled = (self.version, made)
        return self._compiled[1]

    def _worded(self) -> tuple[tuple[Any, ...], ...]:
        """The words of every segment: where it begins, its terms, its postings, and the impact of each class."""
        mean = self.mean_length
        return tuple(
            (
                base,
                (words.keys, words.offsets, segment.dead),
                words.docs,
                words.classes,
                segment.impacts(mean),
            )
            for base, segment in zip(self.bases, self.segments, strict=False)
            for words in (segment.words,)
        )

    def _placed(self) -> tuple[tuple[Any, ...], ...]:
        """The vectors of every part."""
        if not self.dim:
            return ()
        parts = [*((s.count, s.sketches, s.codes) for s in self.segments)]
        if self.count > self.base:
            parts.append((self.count - self.base, None, self.tail.codes))
        none = (None, None, None)
        return tuple(
            (base, count, *(sketches or none), *(codes or none))
            for base, (count, sketches, codes) in zip(self.bases, parts, strict=False)
        )

    @property
    def mean_length(self) -> float:
        """The mean number of terms of a live row."""
        return self.length / self.live if self.live else 0.0

    def newest(self, keys: Sequence[int]) -> tuple[list[int], NDArray[np.uint32], Floats]:
        """The postings of terms in the tail, term after term, and how many each has."""
        return self.tail.postings(keys, self.mean_length)

    def codes(self, number: int) -> FineCodes | None:
        """The fine codes of a part: of a segment or, last, of the tail; None where it has no vectors."""
        if number < len(self.segments):
            return self.segments[number].codes
        return self.tail.codes if self.dim else None

    def apply(self, rows: Iterable[IndexRow]) -> int:
        """Take in changed rows; returns the last event seen, 0 if there was none."""
        self.version += 1
        seen = 0
        first = self.tail.count
        vectors: list[bytes | None] = []
        for row in rows:
            seen = max(seen, row.seq)
            self._hide(row.row)
            self.tail.gone.pop(row.row, None)
            if row.gone:
                self.tail.gone[row.row] = row
            else:
                self._append(row)
                vectors.append(row.vector)
        if vectors:
            self._append_vectors(first, vectors)
        return seen

    def hide(self, rows: Sequence[int]) -> None:
        """Show these rows no more."""
        self.version += 1
        for row in rows:
            self._hide(int(row))

    def _hide(self, row: int) -> None:
        if row in self.tail.slots:
            slot = self.tail.remove(row)
            self.alive[self.base + slot] = False
            self.live -= 1
            self.length -= self.tail.lengths[slot]
            return
        for number, segment in enumerate(self.segments):
            place = segment.place(row)
            if place >= 0:
                self._bury(number, np.array([place], dtype=np.int64))

    def _append(self, row: IndexRow) -> None:
        slot = self.base + self.tail.put(row)
        if slot >= len(self.rows):
            self._grow()
        self.rows[slot] = row.row
        self.alive[slot] = True
        for name, values in self._columns.items():
            values[slot] = COLUMNS[name].value(row)
        self.count = slot + 1
        self.live += 1
        self.length += self.tail.lengths[-1]

    def _append_vectors(self, first: int, vectors: Sequence[bytes | None]) -> None:
        """Code the vectors of the newest slots of the tail, all at once."""
        there = np.zeros(len(vectors), dtype=bool)
        if self.dim:
            np.greater(self.tail.put_vectors(first, vectors), 0, out=there)
        self.has_vector[self.base + first : self.count] = there
        self.all_vectors = self.all_vectors and bool(there.all())

    def column(self, name: str) -> Array:
        """A column over every slot. What stands in dead slots means nothing."""
        held = self._columns.get(name)
        if held is None:
            if len(self.segments) == 1 and self.count == self.base:
                return self.segments[0].column(name)
            held = self._gathered([s.column(name) for s in self.segments], COLUMNS[name].dtype)
            slots = [self.base + slot for slot in self.tail.entries]
            held[slots] = column_of(name, [entry.row for entry in self.tail.entries.values()])
            self._columns[name] = held
        return held[: self.count]

    def values(self, name: str, slots: Ints) -> Array:
        """A column of some slots; its default where a slot is -1."""
        return self.many_values((name,), slots)[0]

    def many_values(self, names: Sequence[str], slots: Ints) -> list[Array]:
        """Columns of some slots; the default of each where a slot is -1."""
        columns = [self.column(name) for name in names]
        unknown = slots < 0 if slots.min(initial=0) < 0 else None
        found: list[Array] = []
        for name, held in zip(names, columns, strict=True):
            default = COLUMNS[name].default
            out = held[slots] if len(held) else np.full(len(slots), default, dtype=held.dtype)
            if unknown is not None:
                out[unknown] = default
            found.append(out)
        return found

    def slots_of(self, rows: Ints) -> Ints:
        """The live slot of each row; -1 where there is none."""
        found = np.full(len(rows), -1, dtype=np.int64)
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        for base, segment in zip(self.bases, self.segments, strict=False):
            if segment.count:
                at = segment.located(rows)
                here = (at >= 0) & self.alive[base + at]
                found[here] = base + at[here]
        if self.tail.slots:
            for i, row in enumerate(rows.tolist()):
                slot = self.tail.slots.get(row)
                if slot is not None:
                    found[i] = self.base + slot
        return found

    def as_they_came(self) -> Ints:
        """Every slot, those of each segment in the order of their rows."""
        slots = np.arange(self.count)
        for base, segment in zip(self.bases, self.segments, strict=False):
            if segment.order is not None:
                slots[base : base + segment.count] = segment.order
                slots[base : base + segment.count] += base
        return slots

    def parts(self, slots: Ints) -> list[tuple[int, slice]]:
        """The parts that sorted slots fall into: number of the segment (the tail is last), stretch of `slots`."""
        if len(self.segments) == 1 and len(slots) and slots[0] >= 0 and slots[-1] < self.base:
            return [(0, slice(0, len(slots)))]
        edges = np.searchsorted(slots, [*self.bases, self.count + 1]).tolist()
        ends = enumerate(pairwise(edges))
        return [(number, slice(start, end)) for number, (start, end) in ends if start < end]

    def _gathered(self, parts: Sequence[Array], dtype: str) -> Array:
        room = max(self.count + ROOM, len(getattr(self, "rows", ())))
        out = np.zeros(room, dtype=dtype)
        for base, part in zip(self.bases, parts, strict=False):
            out[base : base + len(part)] = part
        return out

    def _grow(self) -> None:
        more = max(ROOM, len(self.rows) - self.base)
        self.rows, self.alive, self.has_vector = (
            np.concatenate([old, np.zeros(more, dtype=old.dtype)])
            for old in (self.rows, self.alive, self.has_vector)
        )
        self._columns = {
            name: np.concatenate([old, np.zeros(more, dtype=old.dtype)])
            for name, old in self._columns.items()
        }
