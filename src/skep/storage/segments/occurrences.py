"""The terms of many texts as numbers.

Words repeat, so a text is cut into chunks, every chunk is a number, and the terms of a chunk are found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skep.storage.segments.hashing import keys_of
from skep.words import chunk_terms, chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Small = NDArray[np.uint32]
    Keys = NDArray[np.uint64]


CHUNKS = 1 << 18
"""Distinct chunks that are remembered at a time."""
BLOCK = 1 << 16


class Occurrences(NamedTuple):
    """Every term of some texts, in order."""

    keys: Keys
    """The distinct terms, sorted."""
    terms: Small
    """Places in `keys`, text after text."""
    lengths: Ints
    """How many terms each text has."""


class _Numbering(dict[str, int]):
    """Strings numbered in order of appearance."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Counter:
    """Takes in texts and gives their terms."""

    def __init__(self) -> None:
        self._numbers = _Numbering()
        self._blocks: list[Small] = [np.zeros(0, dtype=np.uint32)]
        self._sizes: list[int] = []
        """Per text, how many chunks it has."""
        self._parts: list[Occurrences] = []

    def add(self, texts: Iterable[str]) -> None:
        """Take in some texts."""
        number = self._numbers.__getitem__
        block: list[int] = []
        for text in texts:
            found = chunks(text)
            self._sizes.append(len(found))
            block.extend(map(number, found))
            if len(block) >= BLOCK:
                self._blocks.append(np.array(block, dtype=np.uint32))
                block.clear()
        self._blocks.append(np.array(block, dtype=np.uint32))
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
        keys, terms, sizes = _terms_of(list(self._numbers))
        blocks, counts = self._blocks, np.array(self._sizes, dtype=np.int64)
        self._numbers.clear()
        self._blocks, self._sizes = [np.zeros(0, dtype=np.uint32)], []
        if (sizes == 1).all():
            lengths = counts
            found = [terms[block] for block in blocks]
        else:
            ends = np.cumsum(
                np.concatenate([np.zeros(1, dtype=np.int64), *(sizes[block] for block in blocks)])
            )
            last = np.cumsum(counts)
            lengths = ends[last] - ends[last - counts]
            starts: Ints = np.cumsum(sizes) - sizes
            found = [terms[_stretches(starts[block], sizes[block])] for block in blocks]
        self._parts.append(Occurrences(keys, np.concatenate(found), lengths))


def _stretches(starts: Ints, sizes: Ints) -> Ints:
    """The numbers from each start on, so many of each."""
    before: Ints = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


def _terms_of(texts: Sequence[str]) -> tuple[Keys, Small, Ints]:
    """The keys of the terms of some chunks, the terms chunk after chunk as places in them, and how many each has."""
    found = [chunk_terms(chunk) for chunk in texts]
    sizes = _numbers(map(len, found), np.int64)
    numbers = _Numbering()
    terms = _numbers(map(numbers.__getitem__, chain.from_iterable(found)), np.uint32)
    keys, rank = np.unique(
        np.frombuffer(keys_of(list(numbers)), dtype="<u8").astype(np.uint64), return_inverse=True
    )
    return keys, rank.astype(np.uint32)[terms], sizes


def _numbers(values: Iterable[int], dtype: type[np.generic]) -> NDArray[Any]:
    return np.fromiter(values, dtype=dtype)
