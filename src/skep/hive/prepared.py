"""What does not depend on the query, prepared once per filter.

A shelf whose rows all fit into an answer sends the same rows for every query with the same filter; only the
word counts and the cosines differ. So everything else is made once and kept until a row or an owner
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from skep.hive.pool import Ask, Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skep.hive.postings import Postings


class Prepared:
    """The rows a shelf sends under one filter, and the answer without what depends on the query."""

    __slots__ = ("_changes", "_owned", "_places", "_slice", "_vectors")

    def __init__(
        self,
        base: Slice,
        rows: Sequence[int],
        vectors: NDArray[np.float32],
        owned: frozenset[int],
        changes: int,
    ) -> None:
        self._slice = base
        self._places = {row: place for place, row in enumerate(rows)}
        self._vectors = vectors
        self._owned = owned
        self._changes = changes

    def fresh(self, changes: int) -> bool:
        """Whether nothing has changed since."""
        return self._changes == changes

    def answer(self, ask: Ask, postings: Postings) -> Slice:
        """The answer to one query."""
        places, owned = self._places, self._owned
        counts = np.zeros((len(places), len(ask.terms)), np.uint16)
        having: list[int] = []
        matched: set[int] = set()
        for column, term in enumerate(ask.terms):
            number = 0
            for row, count in postings.of(term):
                if row in owned:
                    number += 1
                    place = places.get(row)
                    if place is not None:
                        counts[place, column] = count
                        matched.add(place)
            having.append(number)
        cosine = self._vectors @ np.frombuffer(ask.vector or b"", "<f4")
        return msgspec.structs.replace(
            self._slice,
            counts=counts.tobytes(),
            cosine=cosine.tobytes(),
            having=tuple(having),
            matched=len(matched),
        )
