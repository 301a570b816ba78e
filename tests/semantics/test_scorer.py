"""The trees of the conflict model, put in order once per process."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skep.semantics.scorer import packed

THRESHOLDS = st.floats(width=32, allow_nan=False)


@given(
    st.integers(1, 40).flatmap(
        lambda size: st.tuples(arrays(np.uint8, size), arrays(np.float32, size, elements=THRESHOLDS))
    )
)
def test_packed_conditions_have_the_order_of_their_features_and_thresholds(
    pairs: tuple[np.ndarray, np.ndarray],
) -> None:
    features, thresholds = pairs[0], pairs[1] + np.float32(0)
    keys = packed(features, thresholds).tolist()
    plain = list(zip(features.tolist(), thresholds.tolist(), strict=True))
    assert sorted(range(len(keys)), key=keys.__getitem__) == sorted(range(len(keys)), key=plain.__getitem__)
    assert len(set(keys)) == len(set(plain))
