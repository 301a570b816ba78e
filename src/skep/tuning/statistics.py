"""How far a mean over a few dozen queries can be trusted.

Randomness is an argument: the same generator gives the same interval and the same p-value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.95
RESAMPLES = 2000
EXACT_UP_TO = 12
"""With so few differing pairs every sign pattern is tried; above it, a sample of them."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A confidence interval of a mean."""

    low: float
    high: float
    level: float = LEVEL

    @property
    def half_width(self) -> float:
        """Half the distance between its ends."""
        return (self.high - self.low) / 2


def bootstrap_interval(
    values: Sequence[float], rng: np.random.Generator, *, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """The percentile bootstrap interval of the mean of `values`; 0 to 0 of nothing."""
    import numpy as np

    if not values:
        return Interval(low=0.0, high=0.0, level=level)
    data = np.asarray(values, dtype=np.float64)
    picks = rng.integers(0, len(data), size=(resamples, len(data)))
    means = data[picks].mean(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high), level=level)


def paired_p_value(
    before: Sequence[float], after: Sequence[float], rng: np.random.Generator, *, resamples: int = 10_000
) -> float:
    """Two-sided sign-flip test: how often chance alone gives a mean difference as large as the one seen.

    Pairs are the same query under two configs. Pairs without a difference say nothing and are left out;
    with none left, the p-value is 1. Up to `EXACT_UP_TO` differing pairs the test is exact.
    """
    import numpy as np

    if len(before) != len(after):
        raise ValueError(f"the sides have {len(before)} and {len(after)} values; pair them first")
    deltas = np.asarray([b - a for a, b in zip(before, after, strict=True) if a != b], dtype=np.float64)
    if not len(deltas):
        return 1.0
    seen = abs(float(deltas.sum())) - 1e-12
    if len(deltas) <= EXACT_UP_TO:
        signs = np.array(list(product((1.0, -1.0), repeat=len(deltas))))
        return float(np.mean(np.abs(signs @ deltas) >= seen))
    signs = rng.choice(np.array([1.0, -1.0]), size=(resamples, len(deltas)))
    extreme = int(np.sum(np.abs(signs @ deltas) >= seen))
    return (extreme + 1) / (resamples + 1)
