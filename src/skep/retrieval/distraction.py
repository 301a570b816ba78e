"""Disagreement: what its words and its meaning place far apart may be a distractor. It flags, nothing
more."""

from __future__ import annotations

from collections.abc import Sequence

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
    lexical: Sequence[int], semantic: Sequence[int], *, threshold: float = THRESHOLD
) -> list[bool]:
    """Which candidates are flagged; those in the top 3 of both rankings never are."""
    return [
        (one > SURE and (one - other) / one > threshold)
        if one > other
        else (other > SURE and (other - one) / other > threshold)
        for one, other in zip(lexical, semantic, strict=True)
    ]
