"""Signals, places and order of candidates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.embedding.calibration import Calibration
from skep.errors import ConfigError
from skep.retrieval import score as score_module
from skep.retrieval.candidates import Columns, rated
from skep.retrieval.recall_config import RecallConfig

NAN, INFINITY = float("nan"), float("inf")
FEW = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0, 3.0])
COSINES = st.one_of(FEW, st.just(NAN), st.just(-INFINITY), st.floats(-2, 2))


def test_signals_are_left_out_where_nothing_has_them() -> None:
    nothing, somewhere = np.array([0.0, -1.0]), np.array([NAN, NAN])

    def measured(words: Any, cosine: Any) -> dict[str, list[float]]:
        return {name: values.tolist() for name, values in score_module.by_query(words, cosine)[0].items()}

    assert measured(nothing, somewhere) == {}
    assert measured(np.array([0.0, 2.0]), somewhere) == {"lexical": [0.0, 1.0]}
    assert measured(nothing, np.array([NAN, 2.0])) == {"semantic": [0.0, 1.0]}
    assert score_module.stretched(np.array([NAN, 2.0, 2.0])).tolist() == [0.0, 0.0, 0.0]


def test_what_is_no_number_shares_the_last_place() -> None:
    assert score_module.ranks([NAN, 2.0, -INFINITY, 2.0, 1.0, NAN]).tolist() == [4, 1, 4, 1, 3, 4]


@given(st.lists(st.tuples(FEW, FEW, FEW), max_size=60), st.randoms(use_true_random=False))
def test_ties_go_to_importance_then_to_the_newer_then_to_the_smaller_row(
    each: list[tuple[float, float, float]], draw: Any
) -> None:
    score = np.array([one for one, _, _ in each])
    importance, created_at = np.array([one for _, one, _ in each]), np.array([one for _, _, one in each])
    rows, at = (np.array(draw.sample(range(len(each)), len(each)), dtype=np.int64) for _ in range(2))

    ordered, scores = score_module.best_first(score, at, importance, created_at, rows)

    of = dict(zip(at.tolist(), score.tolist(), strict=True))
    wanted = sorted(at.tolist(), key=lambda i: (-of[i], -importance[i], -created_at[i], rows[i]))
    assert ordered.tolist() == wanted
    assert scores.tolist() == [of[i] for i in wanted]


@given(
    st.lists(st.one_of(COSINES, st.floats(-1, 1)), max_size=60), st.lists(st.floats(-0.99, 0.99), max_size=5)
)
def test_many_cosines_are_calibrated_as_each_is(cosines: list[float], knots: list[float]) -> None:
    scale = Calibration([(knot, knot / 2) for knot in sorted({round(knot, 3) for knot in knots})])
    given = np.array([each for each in cosines if not np.isnan(each)], dtype=np.float32)

    np.testing.assert_allclose(scale.many(given), [scale(each) for each in given.tolist()], atol=1e-6)


@pytest.mark.parametrize("weights", [{"lexical": -1.0}, {"semantic": NAN}, {"semantic": INFINITY}, {}])
def test_weights_that_cannot_rank_are_refused(weights: dict[str, float]) -> None:
    columns = Columns(*(np.ones(2) for _ in range(7)), np.full(2, -1), np.full(2, -1))
    config = RecallConfig(fusion="weighted")
    config.weights.clear()  # none is built like that
    config.weights.update(weights)
    call: Any = SimpleNamespace(config=config, trace=None, shown=True)
    with pytest.raises(ConfigError):
        rated(columns, call)
