"""The terms of many texts as numbers.

Words repeat, so a text is cut into chunks, every chunk is a number, and the terms of a chunk are found once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from skep.storage.handover import Handover
from skep.storage.numbering import numbering
from skep.storage.segments.hashing import keys_of
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Small = NDArray[np.uint32]
    Keys = NDArray[np.uint64]


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
    """How many terms each text has."""


class Counter:
    """Takes in texts and gives their terms.

    Args:
        given: Texts that were cut up before, whose numbers are used for the others too.
    """

    def __init__(self, given: Handover | None = None) -> None:
        self._given = given
        self._numbers = numbering() if given is None else given.numbers
        self._blocks: list[Small] = [np.zeros(0, dtype=np.uint32)]
        self._sizes: list[int] = []
        """Per text, how many chunks it has."""
        self._signs = 0 if given is None else given.signs
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

    def add_given(self, rows: Sequence[int], changes: Sequence[int]) -> bool:
        """Take in the texts of these versions of rows, if they were cut up before."""
        pieces = None if self._given is None else self._given.pieces(rows, changes)
        if pieces is None:
            return False
        for batch, start, stop in pieces:
            sizes = np.frombuffer(batch.sizes, dtype=np.uint32)
            first = int(sizes[:start].sum())
            mine = sizes[start:stop]
            self._sizes.extend(mine.tolist())
            numbers = np.frombuffer(batch.chunks, dtype=np.uint32)
            self._blocks.append(numbers[first : first + int(mine.sum())])
        return True

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
        self._given = None
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
