"""The trees of the conflict model."""

from __future__ import annotations

import numpy as np
import pytest

from skep.semantics.pair_features import NAMES
from skep.semantics.pair_model import Scorer

EVERY = (1 << 64) - 1


def model(names: tuple[str, ...] = NAMES) -> Scorer:
    """One tree of a node, that asks for more than 0.5 of the first feature, and one that asks that second."""
    return Scorer(
        {
            "names": np.frombuffer(" ".join(names).encode(), np.uint8),
            "feature": np.array([0, 1], np.uint8),
            "threshold": np.array([0.5, 0.0], np.float32),
            "ends": np.array([2, 3], np.uint16),
            "tree": np.array([0, 1, 1], np.uint16),
            "stays": np.array(
                [EVERY ^ ((1 << 32) - 1), EVERY ^ (((1 << 16) - 1) << 32), EVERY ^ ((1 << 32) - 1)], np.uint64
            ),
            "leaves": np.array([[1] * 32 + [2] * 32, [3] * 32 + [4] * 16 + [5] * 16], np.float32),
            "bounds": np.array([0, 1], np.uint16),
            "calibration": np.zeros((4, 3), np.float32),
        }
    )


def test_a_row_ends_in_one_leaf_of_every_tree() -> None:
    rows = [[first, second, *[0.0] * (len(NAMES) - 2)] for first in (0.5, 0.6) for second in (0.0, 0.1)]

    assert model().scores(rows).tolist() == [[1, 3], [1, 4], [2, 3], [2, 5]]


def test_a_model_of_other_features_is_refused() -> None:
    with pytest.raises(ValueError, match="trained with other features"):
        model(NAMES[1:])
