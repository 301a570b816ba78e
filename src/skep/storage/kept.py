"""What was read of a bank and is kept for as long as the bank stays as it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skep.storage.rows import searched_text

KEPT_CHARS = 1 << 21
"""Characters of texts that are kept; when there are more, all are let go."""


class Texts:
    """Texts by row, for as long as a bank stays as it was, and up to so many characters."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._of: tuple[int, int] | None = None
        self._size = 0

    def of(self, head: int, version: int) -> dict[int, str]:
        """Those that are known of a bank at a position, as seen in a version of the file."""
        if self._of != (head, version) or self._size > KEPT_CHARS:
            self._known.clear()
            self._of, self._size = (head, version), 0
        return self._known

    def add(self, found: Iterable[tuple[Any, ...]]) -> None:
        """More of the same."""
        for row, title, text in found:
            self._known[row] = said = searched_text(title, text)
            self._size += len(said)
