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
LIKELY, STRONG = 0.45, 0.8
"""The probabilities from which a hit is likely and strong."""


RIVALLED = 0.15
"""A hit that a newer memory updates with this probability is not strong, however well it fits."""


def of(found: Candidates) -> Floats:
    """The level of each candidate as its place in `NAMES`; candidates come best first.

    The weights are for the scale of `default`. Other presets are judged by their cosines, which lie close to it.
    """
    rival = found.signals.get(RIVAL, np.zeros(len(found)))
    fit = found.score if "words" in found.signals else found.signals.get("semantic", np.zeros(len(found)))
    probability = 1.0 / (1.0 + np.exp(-(features(fit, rival) @ np.array(WEIGHTS) + BIAS)))
    return (probability >= LIKELY).astype(np.float64) + ((probability >= STRONG) & (rival < RIVALLED))


def features(score: Floats, rival: Floats) -> Floats:
    """One row per hit, best first: its score, how far it stands above the next one and how far below the best, and how
    likely a newer memory updates it."""
    if not len(score):
        return np.zeros((0, len(WEIGHTS)))
    above = np.maximum(score - np.append(score[1:], 0.0), 0.0)
    return np.stack([score, above, score.max() - score, rival], axis=1)
