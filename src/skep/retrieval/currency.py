"""Currency: of memories that answer for the same thing the newest comes first, the others are marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

NEAR = 0.6
"""Calibrated cosine from which two memories that match the same words speak of the same thing."""
REACH = 20
"""How many of the first hits are looked at."""


class Renewed(NamedTuple):
    """An order in which newer values come first, and which candidates are outdated by one above them."""

    order: Ints
    outdated: Bools


def renew(matched: Bools, near: Floats, created_at: Floats, *, threshold: float = NEAR) -> Renewed:
    """Put the newest of each group of rival memories in the place of the group's best.

    Rivals match the same words of the query and are close in meaning. Members of a group keep the places
    the group holds; only who stands in which of them changes. Equal times keep their order.

    Args:
        matched: Which query words (columns) each candidate (rows, best first) holds.
        near: Calibrated cosines between the candidates.
        created_at: When each was written.
        threshold: How close rivals are.
    """
    count = len(created_at)
    order = np.arange(count)
    outdated = np.zeros(count, dtype=bool)
    free = np.ones(count, dtype=bool)
    for leader in range(count):
        if not free[leader] or not matched[leader].any():
            continue
        rivals = free & (near[leader] >= threshold) & (matched == matched[leader]).all(axis=1)
        rivals[leader] = True
        free &= ~rivals
        places = np.flatnonzero(rivals)
        if len(places) < 2:
            continue
        newest_first = places[np.argsort(-created_at[places], kind="stable")]
        order[places] = newest_first
        outdated[newest_first] = created_at[newest_first] < created_at[newest_first[0]]
    return Renewed(order, outdated)
