"""Which rows hold a term, and how often, in little memory: most terms are in one row, and that costs one number."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Entry: TypeAlias = "int | array[int]"
MOST = 65_535


class Postings:
    """Rows and counts per term. An entry is `row << 16 | count`, alone or in an array."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, term: str, row: int, count: int) -> None:
        """Note that a row holds a term so many times."""
        code = row << 16 | min(count, MOST)
        known = self._entries.get(term)
        if known is None:
            self._entries[term] = code
        elif isinstance(known, int):
            self._entries[term] = array("Q", (known, code))
        else:
            known.append(code)

    def drop(self, term: str, row: int) -> None:
        """Forget that a row holds a term."""
        known = self._entries.get(term)
        left = [code for code in _codes(known) if code >> 16 != row]
        if len(left) > 1:
            self._entries[term] = array("Q", left)
        elif left:
            self._entries[term] = left[0]
        elif known is not None:
            del self._entries[term]

    def of(self, term: str) -> Iterator[tuple[int, int]]:
        """Rows and counts of a term."""
        for code in _codes(self._entries.get(term)):
            yield code >> 16, code & MOST

    def fill(self, term: str, column: NDArray[np.uint16]) -> None:
        """Write the counts of a term into a column of all rows."""
        known = self._entries.get(term)
        if isinstance(known, int):
            column[known >> 16] = known & MOST
        elif known is not None:
            codes = np.frombuffer(known, np.uint64)
            column[(codes >> np.uint64(16)).astype(np.int64)] = (codes & np.uint64(MOST)).astype(np.uint16)


def _codes(entry: Entry | None) -> Iterator[int]:
    if isinstance(entry, int):
        yield entry
    elif entry is not None:
        yield from entry
