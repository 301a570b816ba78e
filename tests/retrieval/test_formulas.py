"""Each worked example of the formulas, and the laws around it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.retrieval import score, selection
from skep.retrieval.score import disagreement

NOW = 1_750_000_000.0
DAY = 86_400.0


def test_semantic_clips_at_zero_and_reads_a_missing_vector_as_zero() -> None:
    assert score.semantic([-0.3, 0.4, math.nan]).tolist() == [0.0, 0.4, 0.0]


def test_lexical_is_the_share_of_the_best_of_the_pool() -> None:
    assert score.lexical([8.0, 2.0, 0.0]).tolist() == [1.0, 0.25, 0.0]
    assert score.lexical([0.0, 0.0]).tolist() == [0.0, 0.0]


def test_words_are_the_share_of_the_most_that_a_text_could_score() -> None:
    assert score.words([2.2 * 3.0, 1.1 * 3.0, 0.0, 99.0], [2.0, 1.0]).tolist() == [1.0, 0.5, 0.0, 1.0]
    assert score.words([0.0, 0.0], []).tolist() == [0.0, 0.0]


def test_coverage_weighs_rare_words_more() -> None:
    held = score.coverage(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([3.0, 1.0]))

    assert held.tolist() == [0.75, 0.25]


def test_recency_falls_by_a_tenth_of_a_nat_per_day_and_never_exceeds_one() -> None:
    values = score.recency([NOW, NOW - 10 * DAY, NOW + 99 * DAY], NOW)

    assert [1.0, pytest.approx(math.exp(-1)), 1.0] == values.tolist()


def test_effective_confidence_after_thirty_days_is_0_593() -> None:
    assert round(float(score.confidence([0.8], [NOW - 30 * DAY], NOW, rate=0.01)[0]), 3) == 0.593


def test_confirmations_trust_and_usage_saturate_as_written() -> None:
    assert score.confirmations([0, 2, 9]).tolist() == [0.0, 0.4, 1.0]
    assert score.trust([1.0, 2.0]).tolist() == [0.5, 1.0]
    assert [0.0, pytest.approx(math.log(4) / math.log(10)), 1.0] == score.usage([0, 3, 9]).tolist()
    assert score.usage([0, 0]).tolist() == [0.0, 0.0]


def test_equal_values_share_a_rank_and_an_absent_one_comes_last() -> None:
    assert score.ranks([5, 5, 2, math.nan]).tolist() == [1, 1, 3, 4]


def test_rrf_sums_reciprocal_ranks_by_weight() -> None:
    fused = score.reciprocal([np.array([1, 2, 3]), np.array([2, 3, 1])], [1.0, 2.0])

    assert fused.tolist() == pytest.approx([1 / 61 + 2 / 62, 1 / 62 + 2 / 63, 1 / 63 + 2 / 61])


def test_a_missing_signal_leaves_the_other_weights_renormalised() -> None:
    only = score.weighted({"semantic": np.array([0.4, 0.8])}, {"semantic": 0.55, "lexical": 0.2})

    assert pytest.approx(only.tolist()) == [0.4, 0.8]


def test_mmr_prefers_a_less_relevant_stranger_to_a_near_copy() -> None:
    vectors = np.array([[1, 0], [0.99, 0.14], [0, 1]], dtype=np.float32)

    assert selection.mmr(np.array([0.9, 0.89, 0.6]), vectors, 3) == [0, 2, 1]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20, unique=True))
def test_mmr_with_full_balance_is_the_order_of_relevance(scores: list[float]) -> None:
    relevance = np.array(scores)
    vectors = np.ones((len(scores), 3), dtype=np.float32)

    picked = selection.mmr(relevance, vectors, len(scores), balance=1.0)

    assert np.argsort(-relevance).tolist() == picked


def test_diversity_keeps_the_surest_of_each_cluster_and_of_equals_the_best() -> None:
    vectors = np.array([[1, 0], [0.9, 0.436], [0, 1], [0.1, 0.995]], dtype=np.float32)

    assert selection.diverse(vectors, np.full(4, 0.5)) == [0, 2]
    assert selection.diverse(vectors, np.array([0.5, 0.9, 0.5, 0.5])) == [1, 2]


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([0.0328, 0.0318, 0.0307, 0.0295, 0.0281, 0.0266, 0.0198], 6),
        ([0.9, 0.2, 0.19, 0.18], 1),
        ([0.5, 0.4, 0.3, 0.2], 4),
        ([0.5], 1),
        ([], 0),
        ([0.3, 0.3, 0.3], 3),
    ],
)
def test_dynamic_k_stops_before_the_cliff(scores: list[float], kept: int) -> None:
    assert kept == selection.dynamic_k(scores)


def test_dynamic_k_never_returns_fewer_than_it_must() -> None:
    scores = [0.9, 0.8, 0.1, 0.05]

    assert (selection.dynamic_k(scores), selection.dynamic_k(scores, min_results=3)) == (2, 4)


def test_a_cliff_is_a_gap_beside_all_others_and_what_rises_again_is_level() -> None:
    assert selection.dynamic_k([0.9, 0.8, 0.2, 0.7, 0.1]) == 2
    assert selection.dynamic_k([0.9, 0.8, 0.7, 0.8, 0.6]) == 5


def test_a_text_that_shares_words_is_as_odd_as_it_lies_behind_the_nearest_in_meaning() -> None:
    words = np.array([0.0, 3.0, 2.0, 0.0, 1.0])
    cosines = np.array([0.8, 0.6, 0.2, 0.1, np.nan])

    assert disagreement(words, cosines).tolist() == pytest.approx([0.0, 0.25, 0.75, 0.0, 0.0])


def test_without_meaning_nothing_is_odd() -> None:
    assert not disagreement(np.array([1.0, 2.0]), np.array([np.nan, -0.2])).any()
