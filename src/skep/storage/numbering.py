"""Texts cut into chunks, each chunk a number, and the terms of each chunk found once.

Words repeat: a hundred thousand texts have twenty times as many chunks, and only half as many different ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

from skep import kernels
from skep.tuples import NamedTuple
from skep.words import STOP, analysed, chunks, joined_chunk


class Cut(NamedTuple):
    """Some texts, cut up."""

    terms: list[str]
    """Per text its terms, joined by blanks; empty where they were not asked for."""
    sizes: array[int]
    """Per text, how many chunks it has."""
    chunks: array[int]
    """The chunks of all texts, as numbers."""


class Numbering(Protocol):
    """Chunks numbered in order of appearance."""

    def __len__(self) -> int:
        """How many different ones there are."""
        ...

    def cut(self, texts: Sequence[str], *, joined: bool = True) -> Cut:
        """Cut up some texts; give their terms too, if they are to be `joined`."""
        ...

    def terms(self) -> Iterable[str]:
        """Per number the terms of the chunk, joined by blanks."""
        ...


class PlainNumbering(dict[str, int]):
    """In Python."""

    def __init__(self) -> None:
        super().__init__()
        self._terms: list[str] = []

    def __missing__(self, chunk: str) -> int:
        terms = joined_chunk(chunk)
        number = len(self)
        del self._terms[number:]  # what an interrupt has left between the two lines below
        self._terms.append(terms)
        self[chunk] = number
        return number

    def cut(self, texts: Sequence[str], *, joined: bool = True) -> Cut:
        """See `Numbering`."""
        done = Cut([], array("I"), array("I"))
        number, term = self.__getitem__, self._terms.__getitem__
        for text in texts:
            found = list(map(number, chunks(text)))
            if joined:
                done.terms.append(" ".join(map(term, found)))
            done.sizes.append(len(found))
            done.chunks.extend(found)
        return done

    def terms(self) -> list[str]:
        """See `Numbering`."""
        return self._terms[: len(self)]


class CompiledNumbering:
    """In C: the same numbers and the same terms. What is no plain word is asked of `skep.words`."""

    def __init__(self) -> None:
        # Python's own hash differs from process to process, so that nobody can choose words that collide.
        self._cutter = kernels.native.Cutter(analysed, chunks, STOP, hash("chunks"))

    def __len__(self) -> int:
        return len(self._cutter)

    def cut(self, texts: Sequence[str], *, joined: bool = True) -> Cut:
        """See `Numbering`."""
        terms, sizes, numbers = self._cutter.cut(list(texts), joined)
        return Cut(terms, array("I", sizes), array("I", numbers))

    def terms(self) -> Iterable[str]:
        """See `Numbering`; one at a time, as all of them together would take several megabytes."""
        return iter(self._cutter)


def numbering() -> Numbering:
    """None are known yet."""
    return PlainNumbering() if kernels.native is None else CompiledNumbering()
