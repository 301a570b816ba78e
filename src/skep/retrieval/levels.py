"""The level of a hit: how likely it answers the question.

A score says how well a hit fits the question, and the distance to the next one whether it stands out. Whether the
question has an answer at all no score can tell. `training/fit_levels.py` fits the weights on questions that the encoder
has not seen; training/LEVELS.md says how often hits of each level are right. The pipeline calls `of`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.candidates import Candidates

    Floats = NDArray[np.float64]

RIVAL = "rival"
"""Signal: how likely a newer candidate updates this one. It is not shown."""
NAMES = ("weak", "likely", "strong")
WEIGHTS = (4.772, 3.265, -9.097, -0.843)
BIAS = -2.076
LIKELY, STRONG = 0.45, 0.85
"""The probabilities from which a hit is likely and strong."""


def of(found: Candidates) -> Floats:
    """The level of each candidate as its place in `NAMES`; candidates come best first."""
    rival = found.signals.get(RIVAL, np.zeros(len(found)))
    probability = 1.0 / (1.0 + np.exp(-(features(found.score, rival) @ np.array(WEIGHTS) + BIAS)))
    return (probability >= LIKELY).astype(np.float64) + (probability >= STRONG)


def features(score: Floats, rival: Floats) -> Floats:
    """One row per hit, best first: its score, how far it stands above the next one and how far below the best, and how
    likely a newer memory updates it."""
    if not len(score):
        return np.zeros((0, len(WEIGHTS)))
    above = score - np.append(score[1:], 0.0)
    return np.stack([score, np.maximum(above, 0.0), score[0] - score, rival], axis=1)
