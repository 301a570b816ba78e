"""What was read of a bank and is kept for as long as the bank stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from skep.storage.rows import searched_text

FEW = 1024
"""Whoever asks for more texts than this reads the bank from end to end; they are not kept."""
KEPT_CHARS = 1 << 21
"""Characters of texts that are kept; when there are more, all are let go."""

Rows = Iterable[tuple[Any, ...]]


def texts(found: Rows) -> dict[int, str]:
    """Texts as indexed, by row, from rows of (row, title, text)."""
    return {row: text if title is None else searched_text(title, text) for row, title, text in found}


class Texts:
    """Texts by row, within bounds."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._at: tuple[int, int] | None = None
        self._size = 0

    def of(
        self, rows: Sequence[int], at: tuple[int, int], read: Callable[[Sequence[int]], Rows]
    ) -> dict[int, str]:
        """The texts of rows.

        Args:
            rows: Those of interest; what no text belongs to is left out.
            at: Where the bank stands; what was read at another place is read again.
            read: Reads (row, title, text) of some rows.
        """
        known = self._known
        if self._at != at or self._size > KEPT_CHARS:
            known.clear()
            self._at, self._size = at, 0
        missing = [row for row in rows if row not in known]
        if missing:
            more = texts(read(missing))
            known.update(more)
            self._size += sum(map(len, more.values()))
        return {row: known[row] for row in rows if row in known}
