"""Calibration: a monotone map from the raw cosines of one embedder to the scale on which thresholds are written.

On the common scale random pairs lie around 0, close paraphrases around 0.80, near-identical texts around 0.95 and equal
texts at 1. A map is a handful of knots with straight lines between them. Embedders hold one; the engine asks them.
`measure` makes one for an embedder that nobody has calibrated, from `PROBES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from skep.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    class Embeds(Protocol):
        """The part of an embedder that makes vectors."""

        def embed(self, texts: Sequence[str], /) -> NDArray[np.float32]:
            """One row per text."""
            ...


Knot = tuple[float, float]


class Calibration:
    """A monotone, piecewise linear map of [-1, 1] into itself; its ends stay where they are unless a knot moves them.

    >>> Calibration([(0.4, 0.0), (0.9, 0.8)])(0.65)
    0.4
    """

    def __init__(self, knots: Iterable[Sequence[float]] = ()) -> None:
        given = {float(raw): float(common) for raw, common in knots if -1 <= raw <= 1}
        self.knots: tuple[Knot, ...] = tuple(sorted(({-1.0: -1.0, 1.0: 1.0} | given).items()))
        for (raw, common), (next_raw, next_common) in zip(self.knots, self.knots[1:], strict=False):
            if not (raw < next_raw and common <= next_common):
                raise ConfigError(
                    f"calibration knots must rise; {(raw, common)} is followed by {(next_raw, next_common)}"
                )
        self._raw = [raw for raw, _ in self.knots]

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both sides of the knots, once many are asked for."""
        import numpy as np

        return np.array(self._raw), np.array([common for _, common in self.knots])

    def __call__(self, cosine: float) -> float:
        """The common-scale value of one raw cosine."""
        from bisect import bisect_right

        right = min(max(bisect_right(self._raw, cosine), 1), len(self.knots) - 1)
        (x0, y0), (x1, y1) = self.knots[right - 1], self.knots[right]
        return min(max(y0 + (cosine - x0) * (y1 - y0) / (x1 - x0), -1.0), 1.0)

    def many(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """The common-scale values of an array of raw cosines."""
        import numpy as np

        return np.interp(cosines, *self._arrays).astype(np.float32)

    def inverse(self, common: float) -> float:
        """The smallest raw cosine that reaches a value on the common scale."""
        for (x0, y0), (x1, y1) in zip(self.knots, self.knots[1:], strict=False):
            if common <= y1:
                return x1 if y1 == y0 else min(max(x0 + (common - y0) * (x1 - x0) / (y1 - y0), -1.0), 1.0)
        return 1.0


IDENTITY = Calibration()
"""Raw cosines as they are: for embedders whose scale is the common one, or unknown."""


SAMPLES = 1001


def sampled(calibrate: Callable[[float], float]) -> Calibration:
    """A map that is read off a function at evenly spaced cosines, and follows straight lines between them."""
    points = [-1 + 2 * step / (SAMPLES - 1) for step in range(SAMPLES)]
    return Calibration(zip(points, accumulate(map(calibrate, points), max), strict=True))


def knots_from(
    unrelated: Sequence[float], paraphrased: Sequence[float], retyped: Sequence[float]
) -> list[Knot]:
    """The knots of an embedder from its raw cosines for three kinds of pairs.

    Half of the unrelated pairs come to lie below 0, three quarters of the paraphrases above 0.80, and three
    quarters of the retyped texts above 0.95.
    """
    import numpy as np

    raw = [
        float(np.median(unrelated)),
        float(np.quantile(paraphrased, 0.25)),
        float(np.quantile(retyped, 0.25)),
    ]
    raw = [max(-0.9, min(value, limit)) for value, limit in zip(raw, (0.90, 0.95, 0.995), strict=True)]
    for place in (1, 2):
        raw[place] = max(raw[place], raw[place - 1] + 0.004)
    return list(zip(raw, (0.0, 0.80, 0.95), strict=True))


def measure(embedder: Embeds) -> Calibration:
    """A map for an embedder nobody has calibrated yet, from how it sees some fifty short texts."""
    import numpy as np

    count = len(PROBES)
    rows = embedder.embed([text for triple in PROBES for text in triple]).reshape(count, 3, -1)
    said, paraphrased, retyped = rows[:, 0], rows[:, 1], rows[:, 2]
    unrelated = (said @ paraphrased.T)[~np.eye(count, dtype=bool)]
    same = [(said * other).sum(axis=1).tolist() for other in (paraphrased, retyped)]
    return Calibration(knots_from(unrelated.tolist(), *same))


PROBES: tuple[tuple[str, str, str], ...] = (
    (
        "The deploy failed on Tuesday night.",
        "On Tuesday night the deployment broke.",
        "the deploy failed on tuesday night",
    ),
    (
        "Anna is allergic to peanuts.",
        "Anna can't eat peanuts because of an allergy.",
        "Anna is allergic to peanuts!",
    ),
    (
        "We store sessions in Redis.",
        "Redis is where our sessions are kept.",
        "We store the sessions in Redis.",
    ),
    (
        "The meeting was moved to Friday.",
        "They rescheduled the meeting for Friday.",
        "The meeting has moved to Friday.",
    ),
    (
        "He grew up in a small fishing village.",
        "His childhood was spent in a little village of fishermen.",
        "He grew up in a small fishing village",
    ),
    (
        "How do I reset my password?",
        "What is the way to change a forgotten password?",
        "How do I reset my password",
    ),
    (
        "The tests take ten minutes to run.",
        "Running the test suite needs ten minutes.",
        "The tests take ten minutes to run!",
    ),
    (
        "She bought a used bicycle last spring.",
        "Last spring she purchased a second-hand bike.",
        "She bought a used bicycle last spring.",
    ),
    (
        "Never push directly to the main branch.",
        "Direct pushes to main are forbidden.",
        "Never push directly to main branch.",
    ),
    (
        "The restaurant closes at nine in the evening.",
        "At 9 pm the restaurant shuts.",
        "The restaurant closes at nine in the evenings.",
    ),
    (
        "Their daughter plays the violin.",
        "The violin is played by their daughter.",
        "Their daughter plays violin.",
    ),
    (
        "Memory use grows until the worker is killed.",
        "The worker leaks memory and dies in the end.",
        "Memory use grows until the worker gets killed.",
    ),
    (
        "The invoice for March is still unpaid.",
        "Nobody has paid the March invoice yet.",
        "The invoice for March is still not paid.",
    ),
    (
        "It rained for the whole holiday.",
        "We had rain during our entire vacation.",
        "It rained the whole holiday.",
    ),
    (
        "Use four spaces to indent Python code.",
        "Python files are indented with four spaces.",
        "Use four spaces to indent python code",
    ),
    (
        "The old bridge was repaired in 1987.",
        "In 1987 they fixed the old bridge.",
        "The old bridge was repaired in 1987!",
    ),
)
"""Short texts that show how an embedder spreads its cosines: a statement, its paraphrase, and the statement retyped."""
