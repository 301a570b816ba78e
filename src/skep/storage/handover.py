"""Texts that were just written in bulk, cut up already, for whoever builds the index in the same process.

Writing cuts every text into chunks to find its terms, and so does building the index; looking up each word once more
took a quarter of the time that takes. What is handed over belongs to one version of a row (its number and that of its
last change), so whatever somebody wrote since is not mistaken for it. Nothing depends on it being there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from skep.storage.numbering import Numbering, numbering
from skep.tuples import NamedTuple
from skep.words import joined_terms

FEW = 256
"""Fewer rows at once are not worth it: they are not made into a segment of their own."""
ROWS = 1 << 17
"""Rows that are kept for the index at a time: about 100 bytes each."""
CHUNKS = 1 << 17
"""Distinct chunks that are kept at a time."""
SIGNS = 1 << 27
"""Signs of all texts that are kept at a time: of chunks as long as their texts, each is kept whole."""


class Batch(NamedTuple):
    """The texts of rows that were written together; rows and changes count up by one."""

    row: int
    change: int
    sizes: array[int]
    """Per row, how many chunks it has."""
    chunks: array[int]
    """The chunks of all rows, as numbers."""
    numbers: Numbering

    @property
    def end(self) -> int:
        """The change after the last of these."""
        return self.change + len(self.sizes)


class Piece(NamedTuple):
    """Some of the rows of a batch, one after the other."""

    batch: Batch
    start: int
    stop: int


class Handover:
    """What was written and not yet indexed. Every method is called with the lock of the connection held."""

    def __init__(self) -> None:
        self.numbers = numbering()
        self._batches: list[Batch] = []
        self._rows = 0
        self.signs = 0
        """How long all texts are that were cut up."""

    def cut(self, texts: Sequence[str], row: int, change: int) -> tuple[list[str], Batch | None]:
        """The terms of each text, joined by blanks; and their chunks, if there is room for them."""
        more = sum(map(len, texts))
        if not self._batches and (len(self.numbers) > CHUNKS or self.signs + more > SIGNS):
            self.numbers, self.signs = numbering(), 0  # of writes that were taken back
        signs = self.signs + more
        if self._rows + len(texts) > ROWS or len(self.numbers) > CHUNKS or signs > SIGNS:
            return list(map(joined_terms, texts)), None
        self.signs = signs
        terms, sizes, numbers = self.numbers.cut(texts)
        return terms, Batch(row, change, sizes, numbers, self.numbers)

    def keep(self, batch: Batch) -> None:
        """Take note of what is now on disk."""
        if batch.numbers is self.numbers:  # else somebody has taken what there was meanwhile
            self._batches.append(batch)
            self._rows += len(batch.sizes)

    def take(self) -> Handover | None:
        """All there is; none of it is kept here."""
        if not self._batches:
            return None
        taken = Handover()
        taken.numbers, taken._batches, taken.signs = self.numbers, self._batches, self.signs
        self.numbers, self._batches, self._rows, self.signs = numbering(), [], 0, 0
        return taken

    def pieces(self, rows: Sequence[int], changes: Sequence[int]) -> list[Piece] | None:
        """Where the chunks of these very versions of rows are; None unless all are here."""
        found: list[Piece] = []
        at = 0
        while at < len(rows):
            place = bisect_right(self._batches, changes[at], key=lambda batch: batch.change) - 1
            if place < 0 or changes[at] >= self._batches[place].end:
                return None
            batch = self._batches[place]
            start = changes[at] - batch.change
            count = min(len(rows) - at, len(batch.sizes) - start)
            if not _counts_up(changes[at : at + count], changes[at]) or not _counts_up(
                rows[at : at + count], batch.row + start
            ):
                return None
            found.append(Piece(batch, start, start + count))
            at += count
        return found


def _counts_up(numbers: Iterable[int], first: int) -> bool:
    """Whether these are all the numbers from the first on."""
    return all(map(int.__eq__, numbers, range(first, first + (1 << 62))))


def handed_over(source: object) -> Handover | None:
    """What a store, or anything else that an index is derived from, has to hand over."""
    give = getattr(source, "hand_over", None)
    return None if give is None else give()
