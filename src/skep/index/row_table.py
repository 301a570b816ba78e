"""The tail: rows newer than the segments, in memory, searched exactly.

Every row an index knows, under one numbering: the segments first, oldest to newest, then the tail.

A *slot* is a place in that numbering. A row that was changed or forgotten leaves a dead slot behind; the
statistics (rows, lengths, how many rows hold a term) count live slots only, so they are those of the bank.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from skep import runtime
from skep.index.bm25 import impact
from skep.index.columns import COLUMNS, column_of, key_of, repeated
from skep.index.quantisation import FineCodes, encode
from skep.index.segment_reader import Segment, shown
from skep.storage.vectors import unpacked
from skep.text.terms import terms as terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.filters import IndexRow
    from skep.index.bm25 import Lookup
    from skep.index.quantisation import Frame


if TYPE_CHECKING:
    Floats = NDArray[np.float32]

Number = TypeVar("Number", np.float32, np.uint8, np.int8)


class Entry(NamedTuple):
    """A row of the tail with its terms."""

    row: IndexRow
    counts: dict[int, int]
    """How often each term, by key, stands in it."""


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
    def high(self) -> NDArray[np.int8]:
        """The coarse half of the fine codes."""
        return self._high[: self.count]

    @property
    def codes(self) -> FineCodes:
        """The fine codes of every slot."""
        return FineCodes(self.high, self._low[: self.count], self.scale)

    def found_in(self, key: int) -> int:
        """In how many rows a term stands."""
        held = self._words.get(key)
        return len(held[0]) if held else 0

    def postings(self, key: int, mean_length: float) -> tuple[NDArray[np.uint32], Floats] | None:
        """The slots of a term and what each gives to BM25 before the weight of the term."""
        held = self._words.get(key)
        if held is None:
            return None
        slots = np.array(held[0], dtype=np.uint32)
        lengths = np.frombuffer(self.lengths, dtype=np.uint32)[slots]
        return slots, impact(np.array(held[1]), lengths, mean_length)

    def many_postings(
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


if TYPE_CHECKING:
    Array = NDArray[Any]
    Ints = NDArray[np.int64]

ROOM = 1024
RANKED = ("created_at", "confidence", "last_evidence_at", "importance")
"""The columns that come with every candidate."""
PICKS = 8
"""So often values of a column are picked from where they lie; after that, one array serves quicker."""


class Table:
    """The rows of some segments and a tail."""

    def __init__(self, segments: Sequence[Segment], frame: Frame | None, dim: int) -> None:
        self.segments = list(segments)
        self.frame = frame
        self.dim = dim
        self.bases: list[int] = np.cumsum([0, *(segment.count for segment in segments)]).tolist()
        self.base: int = self.bases[-1]
        """Where the tail begins."""
        self.tail = Tail(dim)
        self.count = self.base
        self.version = 0
        """Differs after every change."""
        self.lookup: tuple[tuple[int, tuple[str, ...]], Lookup] | None = None
        """The terms that were looked up last, and at which version."""
        self._compiled: tuple[int, tuple[Any, bool]] | None = None
        """The table as compiled searches read it, and at which version; -1 where columns came since."""
        self._keys: tuple[int, tuple[tuple[Any, ...], ...]] | None = None
        """The terms of every segment as compiled calls take them, and at which version."""
        self._names: tuple[int, tuple[tuple[Any, ...], ...]] | None = None
        """The ids of every segment as compiled calls take them, and at which version."""
        self._columns: dict[str, Array] = {}
        """Columns that were put together, with room for more."""
        self._same: dict[str, Array | None] = {}
        """Columns that were looked at: the value that all slots share, if they do."""
        self._picks: dict[str, int] = {}
        """How often values of a column were picked from the segments."""
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
        """Whether every slot has a vector; dead slots count."""
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
    def compiled(self) -> tuple[Any, bool]:
        """The table as compiled searches read it, and whether they tell the columns of `RANKED`.

        One object serves for as long as nothing changes. It holds the arrays that it reads, and takes over the memory
        that the one before it searched in.
        """
        held = self._compiled
        if held is None or held[0] != self.version:
            ranked, former = self._ranked(), None if held is None else held[1][0]
            made = runtime.native.Table(
                *(self.count, self.base, self.live, self.rows, self._worded(), self._placed(), self.dim),
                *(ranked, former),
            )
            held = self._compiled = (self.version, (made, ranked is not None))
        return held[1]

    def _worded(self) -> tuple[tuple[Any, ...], ...]:
        """Where every segment begins, its terms, and its postings with what a class of them gives to BM25."""
        mean = self.mean_length
        return tuple(
            (base, terms, segment.words.docs, segment.words.classes, segment.impacts(mean))
            for base, terms, segment in zip(self.bases, self.keys, self.segments, strict=False)
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

    def _ranked(self) -> tuple[Array, ...] | None:
        """The columns of `RANKED`, one value where all slots share it; None while they are picked from segments."""
        alone = len(self.segments) == 1 and self.count == self.base
        for name in RANKED:
            if not (alone or name in self._columns) and self._same_throughout(name) is None:
                return None
        columns = map(self.column, RANKED)
        return tuple(column[:1] if column.strides == (0,) else column for column in columns)

    @property
    def keys(self) -> tuple[tuple[Any, ...], ...]:
        """The terms of every segment: keys, where the postings of each begin, how many of those are of dead rows."""
        if self._keys is None or self._keys[0] != self.version:
            listed = tuple((s.words.keys, s.words.offsets, s.dead) for s in self.segments)
            self._keys = (self.version, listed)
        return self._keys[1]

    @cached_property
    def tags(self) -> tuple[tuple[Any, ...], ...]:
        """Where every segment begins, and the tags of its rows as compiled calls take them."""
        return tuple(
            (base, segment.tag_keys, segment.tag_offsets, segment.tag_docs)
            for base, segment in zip(self.bases, self.segments, strict=False)
        )

    @property
    def _named(self) -> tuple[tuple[Any, ...], ...]:
        """The rows of every segment, those alive among them, and their ids as compiled calls take them."""
        if self._names is None or self._names[0] != self.version:
            listed: list[tuple[Any, ...]] = []
            for base, segment in zip(self.bases, self.segments, strict=False):
                names, whose, counters = segment.ids
                alive = self.alive[base : base + segment.count]
                shared = None if len(names) == 1 else whose
                listed.append((segment.rows, segment.order, alive, names, shared, counters))
            self._names = (self.version, tuple(listed))
        return self._names[1]

    @property
    def mean_length(self) -> float:
        """The mean number of terms of a live row."""
        return self.length / self.live if self.live else 0.0

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
        for name, same in self._same.items():
            if same is not None and COLUMNS[name].value(row) != same:
                self._same[name] = None
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
            same = self._same_throughout(name)
            if same is not None:
                return repeated(same, self.count)
            held = self._gathered([s.column(name) for s in self.segments], COLUMNS[name].dtype)
            slots = [self.base + slot for slot in self.tail.entries]
            held[slots] = column_of(name, [entry.row for entry in self.tail.entries.values()])
            self._columns[name] = held
            if self._compiled is not None:  # it knows nothing of this column
                self._compiled = (-1, self._compiled[1])
        return held[: self.count]

    def _same_throughout(self, name: str) -> Array | None:
        """The one value that a column has in every segment and in the tail, if that is known without looking at all."""
        if name not in self._same:
            parts = [segment.column(name) for segment in self.segments if segment.count]
            same = parts[0][:1].reshape(()) if parts else None
            if any(part.strides != (0,) or part[0] != same for part in parts):
                same = None
            elif same is not None and self.tail.entries:
                here = column_of(name, [entry.row for entry in self.tail.entries.values()])
                same = same if (here == same).all() else None
            self._same[name] = same
        return self._same[name]

    def least(self, name: str, part: slice) -> float:
        """The least value of a column in a stretch of slots, dead ones included; without putting it together."""
        if name in self._columns:
            return float(self._columns[name][part].min(initial=inf))
        least = inf
        for base, segment in zip(self.bases, self.segments, strict=False):
            start, stop = max(part.start - base, 0), min(part.stop - base, segment.count)
            if start < stop:
                values = segment.column(name)[start:stop]
                least = min(least, float(values[0] if values.strides == (0,) else values.min()))
        number = COLUMNS[name].value
        for slot in range(max(part.start - self.base, 0), part.stop - self.base):
            entry = self.tail.entries.get(slot)
            if entry is not None:
                least = min(least, number(entry.row))
        return least

    def values(self, name: str, slots: Ints) -> Array:
        """A column of some slots; its default where a slot is -1.

        A column that is one value over and over is not asked to give some: numpy would write all of it out first. Nor
        is one put together from several segments for the first few questions.
        """
        if (
            name not in self._columns
            and (len(self.segments) != 1 or self.count != self.base)
            and self._picks.get(name, 0) < PICKS
            and self._same_throughout(name) is None
        ):
            self._picks[name] = self._picks.get(name, 0) + 1
            return self._picked(name, slots)
        held = self.column(name)
        if not len(held):
            return np.full(len(slots), COLUMNS[name].default, dtype=held.dtype)
        out = np.full(len(slots), held[0]) if held.strides == (0,) else held.take(slots, mode="clip")
        if (slots < 0).any():
            out[slots < 0] = COLUMNS[name].default
        return out

    def _picked(self, name: str, slots: Ints) -> Array:
        """A column of some slots, from where each of them lies."""
        column = COLUMNS[name]
        out = np.full(len(slots), column.default, dtype=column.dtype)
        for base, segment in zip(self.bases, self.segments, strict=False):
            here = np.flatnonzero((slots >= base) & (slots < base + segment.count))
            if len(here):
                out[here] = segment.column(name)[slots[here] - base]
        for i in np.flatnonzero(slots >= self.base).tolist():
            entry = self.tail.entries.get(int(slots[i]) - self.base)
            if entry is not None:
                out[i] = column.value(entry.row)
        return out

    def ids(self, rows: Ints) -> list[str]:
        """The id of the memory in each row; empty where no live slot has it."""
        if runtime.native is None:
            return self._told(self.slots_of(rows))
        found: list[str] = runtime.native.named(self._named, np.ascontiguousarray(rows, dtype=np.int64))
        if self.tail.slots:
            for i, row in enumerate(rows.tolist()):
                slot = self.tail.slots.get(row)
                if slot is not None:
                    found[i] = self.tail.entries[slot].row.id
        return found

    def _told(self, slots: Ints) -> list[str]:
        """The id of the memory in each slot; empty where a slot is -1."""
        found = [""] * len(slots)
        for base, segment in zip(self.bases, self.segments, strict=False):
            here = np.flatnonzero((slots >= base) & (slots < base + segment.count))
            if len(here):
                for i, memory_id in zip(here.tolist(), segment.ids.told(slots[here] - base), strict=True):
                    found[i] = memory_id
        for i in np.flatnonzero(slots >= self.base).tolist():
            found[i] = self.tail.entries[int(slots[i]) - self.base].row.id
        return found

    def slots_of(self, rows: Ints) -> Ints:
        """The live slot of each row; -1 where there is none."""
        found = np.full(len(rows), -1, dtype=np.int64)
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        for base, segment in zip(self.bases, self.segments, strict=False):
            if runtime.native is not None:
                alive = self.alive[base : base + segment.count]
                runtime.native.locate(segment.rows, segment.order, alive, rows, base, found)
            elif segment.count:
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

    def parts(self, slots: Ints) -> Iterable[tuple[int, slice]]:
        """Where sorted slots fall: the number of the segment (the tail is last) and the stretch of `slots`."""
        if len(self.segments) == 1 and len(slots) and slots[0] >= 0 and slots[-1] < self.base:
            yield 0, slice(0, len(slots))
            return
        edges = np.searchsorted(slots, [*self.bases, self.count + 1]).tolist()
        for number in range(len(edges) - 1):
            if edges[number] < edges[number + 1]:
                yield number, slice(edges[number], edges[number + 1])

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
