"""Disagreement: what its words and its meaning place far apart may be a distractor. It flags, nothing
more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

THRESHOLD = 0.7
SURE = 3
"""Both ranks within this many: never flagged."""


def disagreement(lexical: int, semantic: int) -> float:
    """|r_lex - r_sem| / max(r_lex, r_sem), for ranks from 1.

    >>> disagreement(1, 2), disagreement(2, 20)
    (0.5, 0.9)
    """
    return abs(lexical - semantic) / max(lexical, semantic)


def disagreeing(
    lexical: NDArray[np.int64], semantic: NDArray[np.int64], *, threshold: float = THRESHOLD
) -> NDArray[np.bool_]:
    """Which candidates are flagged; those in the top 3 of both rankings never are."""
    high = np.maximum(lexical, semantic)
    apart = np.abs(lexical - semantic) / high
    return (apart > threshold) & (high > SURE)
