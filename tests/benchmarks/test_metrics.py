"""The arithmetic of the harness, on numbers small enough to check by hand."""

from __future__ import annotations

import pytest
from benchmarks.speed.engines.values import fuse
from benchmarks.speed.metrics import growth, mean_recall, percentile, recall, summarise


def test_percentiles_interpolate() -> None:
    assert percentile([4, 1, 3, 2], 0.5) == 2.5
    assert percentile([10], 0.95) == 10.0


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_recall_counts_the_true_best_that_were_found() -> None:
    assert recall(["b", "x", "a"], ["a", "b", "c"], 3) == pytest.approx(2 / 3)
    assert recall(["b", "x", "a"], ["a", "b", "c"], 2) == 0.5


def test_questions_without_an_answer_do_not_count() -> None:
    assert recall(["a"], [], 10) is None
    assert mean_recall([["a"], ["b"]], [["a"], []], 10) == 1.0
    assert mean_recall([], [], 10) is None


def test_growth_of_a_square_is_two() -> None:
    assert growth({10: 1.0, 100: 100.0, 1000: 10_000.0}) == pytest.approx(2.0)
    assert growth({10: 1.0}) is None


def test_rounds_are_summarised_by_the_median_of_their_medians() -> None:
    rounds = [
        {"wall_ns": [1_000_000, 3_000_000, 2_000_000], "cpu_ns": [1_000_000] * 3},
        {"wall_ns": [9_000_000], "cpu_ns": [2_000_000]},
        {"wall_ns": [4_000_000], "cpu_ns": [3_000_000]},
    ]

    found = summarise(rounds)

    assert (found["wall_p50"], found["cpu_p50"], found["n"]) == (4.0, 2.0, 5)
    assert found["wall_range"] == [2.0, 9.0]


def test_no_samples_give_no_figures() -> None:
    assert summarise([{"wall_ns": [], "cpu_ns": []}]) == {}


def test_fusion_prefers_what_both_rankings_hold() -> None:
    assert fuse(["a", "b"], ["b", "c"])[0] == "b"
