"""Signals, places and order of candidates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skep.embedding.embedder import Calibration
from skep.filters import Filter
from skep.retrieval import score as score_module
from skep.retrieval.pipeline import Call, Candidates, rated
from skep.retrieval.query import plain
from skep.retrieval.recall_config import RecallConfig

NAN, INFINITY = float("nan"), float("inf")
FEW = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0, 3.0])
COSINES = st.one_of(FEW, st.just(NAN), st.just(-INFINITY), st.floats(-2, 2))


def candidates(count: int, **fields: Any) -> Candidates:
    none = np.zeros(count)
    given: dict[str, Any] = {
        "rows": np.arange(count),
        **dict.fromkeys(
            ("words", "cosine", "created_at", "importance", "confidence", "last_evidence_at"), none
        ),
        "former": np.full(count, -1),
        "spoken": np.zeros(count, bool),
        "score": none,
    }
    return Candidates(**(given | fields))


def test_ties_break_by_importance_then_newer_then_row() -> None:
    found = candidates(
        5,
        rows=np.array([4, 3, 2, 1, 5]),
        score=np.array([1.0, 1.0, 1.0, 1.0, 2.0]),
        importance=np.array([0.5, 0.9, 0.5, 0.5, 0.0]),
        created_at=np.array([10.0, 10.0, 20.0, 10.0, 0.0]),
    )

    assert found.ordered().rows.tolist() == [5, 3, 2, 1, 4]


def call_of(config: RecallConfig, idf: float = 1.0) -> Call:
    sources: Any = SimpleNamespace(idf=lambda terms: np.full(len(terms), idf))  # pyright: ignore
    return Call(plain("cache"), config, sources, Filter(), 0.0, np.ones(2, np.float32))


def test_signals_are_left_out_where_nothing_has_them() -> None:
    nothing, somewhere = np.array([0.0, -1.0]), np.array([NAN, NAN])
    by_both = RecallConfig(weights={"lexical": 1.0, "semantic": 1.0})

    def measured(words: Any, cosine: Any) -> dict[str, list[float]]:
        found = rated(candidates(2, words=words, cosine=cosine), call_of(by_both))
        return {
            name: values[np.argsort(found.rows)].tolist()  # as given
            for name, values in found.signals.items()
        }

    assert measured(nothing, somewhere) == {}
    assert measured(np.array([0.0, 2.0]), somewhere) == {"lexical": [0.0, 1.0]}
    assert measured(nothing, np.array([NAN, 2.0])) == {"semantic": [0.0, 1.0]}


def test_the_share_of_the_best_and_the_share_of_the_most_are_two_signals() -> None:
    config = RecallConfig(weights={"words": 1.0, "semantic": 1.0})
    found = rated(candidates(2, words=np.array([1.1, 2.2])), call_of(config, idf=2.0))

    assert {name: values.tolist() for name, values in found.signals.items()} == {
        "words": [0.5, 0.25],
        "semantic": [0.0, 0.0],
    }
    assert found.score.tolist() == [0.25, 0.125]


def test_what_is_no_number_shares_the_last_place() -> None:
    assert score_module.ranks([NAN, 2.0, -INFINITY, 2.0, 1.0, NAN]).tolist() == [4, 1, 4, 1, 3, 4]


@given(st.lists(st.tuples(FEW, FEW, FEW), max_size=60), st.randoms(use_true_random=False))
def test_ties_go_to_importance_then_to_the_newer_then_to_the_smaller_row(
    each: list[tuple[float, float, float]], draw: Any
) -> None:
    score = np.array([one for one, _, _ in each])
    importance, created_at = np.array([one for _, one, _ in each]), np.array([one for _, _, one in each])
    rows = np.array(draw.sample(range(len(each)), len(each)), dtype=np.int64)

    ordered = candidates(
        len(each), rows=rows, score=score, importance=importance, created_at=created_at
    ).ordered()

    at = sorted(range(len(each)), key=lambda i: (-score[i], -importance[i], -created_at[i], rows[i]))
    assert ordered.rows.tolist() == rows[at].tolist()
    assert ordered.score.tolist() == score[at].tolist()


@given(
    st.lists(st.one_of(COSINES, st.floats(-1, 1)), max_size=60), st.lists(st.floats(-0.99, 0.99), max_size=5)
)
def test_many_cosines_are_calibrated_as_each_is(cosines: list[float], knots: list[float]) -> None:
    scale = Calibration([(knot, knot / 2) for knot in sorted({round(knot, 3) for knot in knots})])
    given = np.array([each for each in cosines if not np.isnan(each)], dtype=np.float32)

    np.testing.assert_allclose(scale.many(given), [scale(each) for each in given.tolist()], atol=1e-6)
