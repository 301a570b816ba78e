"""One scale for every embedder: a monotone map from its raw cosines to the scale thresholds are written on.

On the common scale random pairs lie around 0, close paraphrases around 0.80, near-identical texts around
0.95, and equal texts at 1. A map is a handful of knots with straight lines between them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from skep import kernels
from skep.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.base import Embeds

Knot = tuple[float, float]


class Calibration:
    """A monotone, piecewise linear map of [-1, 1] onto itself.

    >>> Calibration([(0.4, 0.0), (0.9, 0.8)])(0.65)
    0.4
    """

    def __init__(self, knots: Iterable[Sequence[float]] = ()) -> None:
        inner = sorted((float(raw), float(common)) for raw, common in knots)
        inner = [knot for knot in inner if -1 < knot[0] < 1]
        self.knots: tuple[Knot, ...] = ((-1.0, -1.0), *inner, (1.0, 1.0))
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

    @cached_property
    def lines(self) -> tuple[array[float], array[float]]:
        """Both sides of the knots, as compiled loops take them: that costs less than with arrays of numpy."""
        return array("d", self._raw), array("d", (common for _, common in self.knots))

    def __call__(self, cosine: float) -> float:
        """The common-scale value of one raw cosine."""
        from bisect import bisect_right

        right = min(max(bisect_right(self._raw, cosine), 1), len(self.knots) - 1)
        (x0, y0), (x1, y1) = self.knots[right - 1], self.knots[right]
        return min(max(y0 + (cosine - x0) * (y1 - y0) / (x1 - x0), -1.0), 1.0)

    def many(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """The common-scale values of an array of raw cosines."""
        plain = cosines.strides == (4,) and cosines.dtype.char == "f" and cosines.dtype.isnative
        if plain and kernels.native is not None:
            out = cosines.copy()
            kernels.native.between(cosines, *self.lines, out)
            return out
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

    from skep.embedding.probes import PROBES

    count = len(PROBES)
    rows = embedder.embed([text for triple in PROBES for text in triple]).reshape(count, 3, -1)
    said, paraphrased, retyped = rows[:, 0], rows[:, 1], rows[:, 2]
    unrelated = (said @ paraphrased.T)[~np.eye(count, dtype=bool)]
    same = [(said * other).sum(axis=1).tolist() for other in (paraphrased, retyped)]
    return Calibration(knots_from(unrelated.tolist(), *same))
