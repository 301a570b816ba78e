"""The tail: rows newer than the segments, in memory, searched exactly."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from skep.storage.segments.codes import FineCodes, encode
from skep.storage.segments.hashing import key_of
from skep.storage.segments.postings import impact
from skep.storage.vectors import unpacked
from skep.tuples import NamedTuple
from skep.words import terms as terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.storage.base import IndexRow

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
