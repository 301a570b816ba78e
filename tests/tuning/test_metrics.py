from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.tuning import metrics
from skep.tuning.metrics import Labels, bootstrap_interval, paired_p_value

RDRIR = ["r1", "d", "r2", "i", "r3"]
LABELS = Labels(relevant={"r1": 1.0, "r2": 1.0, "r3": 1.0}, distractors=frozenset({"d"}))


def test_udcg_reproduces_the_worked_example() -> None:
    assert metrics.udcg(RDRIR, LABELS) == pytest.approx(1.256, abs=5e-4)
    assert metrics.ideal(LABELS) == pytest.approx(2.131, abs=5e-4)
    assert metrics.nudcg(RDRIR, LABELS) == pytest.approx(0.589, abs=5e-4)


def test_removing_the_distractor_and_moving_up_reproduces_the_worked_example() -> None:
    without = [document for document in RDRIR if document != "d"]

    assert metrics.udcg(without, LABELS) == pytest.approx(2.062, abs=1e-3)
    assert metrics.nudcg(without, LABELS) == pytest.approx(0.967, abs=5e-4)


def test_ndcg_cannot_see_what_udcg_sees() -> None:
    distracted, irrelevant = ["r1", "d", "r2", "r3"], ["r1", "i", "r2", "r3"]

    assert metrics.ndcg(distracted, LABELS) == metrics.ndcg(irrelevant, LABELS)
    assert (metrics.nudcg(distracted, LABELS) or 0) < (metrics.nudcg(irrelevant, LABELS) or 0)


def test_later_chunks_of_a_document_are_removed_before_ranks_are_assigned() -> None:
    score = metrics.score_query("q", ["r1", "r1", "r1", "r2", "r3"], LABELS)

    assert score.nudcg == pytest.approx(1.0)
    assert score.returned == 3


def test_a_distractor_with_many_chunks_is_punished_once() -> None:
    once = metrics.score_query("q", ["r1", "d", "r2"], LABELS)
    often = metrics.score_query("q", ["r1", "d", "d", "d", "r2", "d"], LABELS)

    assert once == often
    assert once.distractors == ("d",)


def test_the_ideal_holds_no_more_documents_than_k() -> None:
    assert metrics.nudcg(["r1"], LABELS, k=1) == 1.0
    assert metrics.ideal(LABELS, k=2) == pytest.approx(1 + 1 / math.log2(3))


def test_grades_are_utilities_and_the_ideal_ranks_the_best_grade_first() -> None:
    labels = Labels(relevant={"good": 2.0, "fair": 1.0})

    assert metrics.nudcg(["good", "fair"], labels) == 1.0
    assert metrics.nudcg(["fair", "good"], labels) == pytest.approx(
        (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))
    )


def test_a_query_without_a_relevant_document_is_scored_by_abstention_alone() -> None:
    nothing = Labels(distractors=frozenset({"d"}))
    silent, tricked = metrics.score_query("s", [], nothing), metrics.score_query("t", ["d"], nothing)
    total = metrics.overall([silent, tricked, metrics.score_query("a", ["r1", "r2", "r3"], LABELS)])

    assert silent.nudcg is tricked.nudcg is None
    assert (total.abstained_right, total.unanswerable, total.distractors, total.nudcg) == (1, 2, 1, 1.0)


def test_an_empty_answer_to_an_answerable_query_is_a_wrong_abstention_with_zero_gain() -> None:
    total = metrics.overall([metrics.score_query("q", [], LABELS)])

    assert (total.nudcg, total.precision, total.recall, total.abstained_wrong) == (0.0, 0.0, 0.0, 1)


def test_overall_of_nothing_is_zero_everywhere() -> None:
    assert metrics.overall([]).nudcg == 0.0


documents = st.lists(st.sampled_from("abcdefghij"), max_size=20)
labelled = st.builds(
    lambda relevant, distractors: Labels(
        relevant=relevant, distractors=frozenset(distractors) - frozenset(relevant)
    ),
    st.dictionaries(st.sampled_from("abcdefghij"), st.sampled_from([1.0, 2.0, 3.0]), max_size=5),
    st.sets(st.sampled_from("abcdefghij"), max_size=5),
)


@given(documents, labelled, st.integers(1, 12))
def test_nudcg_never_exceeds_ndcg_and_neither_exceeds_one(chunks: list[str], labels: Labels, k: int) -> None:
    score = metrics.score_query("q", chunks, labels, k=k)

    if score.answerable:
        assert score.nudcg is not None
        assert score.ndcg is not None
        assert score.nudcg <= score.ndcg + 1e-12
        assert score.ndcg <= 1 + 1e-12
        assert (score.nudcg < score.ndcg) == bool(score.distractors)


@given(documents, labelled)
def test_dropping_a_distractor_never_lowers_nudcg_while_the_gain_is_positive(
    chunks: list[str], labels: Labels
) -> None:
    ranked = list(metrics.first_per_document(chunks))
    kept = [document for document in ranked if labels.utility(document) >= 0]
    before, after = metrics.nudcg(ranked, labels), metrics.nudcg(kept, labels)

    if before is not None:
        assert after is not None
        assert after >= before - 1e-12


@given(documents, labelled, st.integers(1, 12))
def test_figures_agree_with_ir_measures(chunks: list[str], labels: Labels, k: int) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    ranked = list(metrics.first_per_document(chunks))[:k]
    score = metrics.score_query("q", chunks, labels, k=k)
    if not score.answerable or not ranked:
        return
    qrels = {"q": {document: int(grade) for document, grade in labels.relevant.items()}}
    run = {"q": {document: float(len(ranked) - at) for at, document in enumerate(ranked)}}
    wanted = ir_measures.calc_aggregate(
        [ir_measures.nDCG @ k, ir_measures.R @ k, ir_measures.RR @ k, ir_measures.SetP], qrels, run
    )

    assert score.ndcg == pytest.approx(wanted[ir_measures.nDCG @ k])
    assert score.recall == pytest.approx(wanted[ir_measures.R @ k])
    assert score.mrr == pytest.approx(wanted[ir_measures.RR @ k])
    assert score.precision == pytest.approx(wanted[ir_measures.SetP])


def test_an_interval_repeats_with_the_same_generator_and_holds_the_mean() -> None:
    values = [0.1, 0.5, 0.9, 0.7, 0.3, 0.8]
    first = bootstrap_interval(values, np.random.default_rng(7))

    assert first == bootstrap_interval(values, np.random.default_rng(7))
    assert first.low < sum(values) / len(values) < first.high


def test_an_interval_of_equal_values_has_no_width() -> None:
    found = bootstrap_interval([0.4] * 9, np.random.default_rng(1))

    assert found.low == pytest.approx(found.high)


def test_the_paired_test_is_exact_for_few_pairs() -> None:
    """Five pairs that all rose by the same amount: two of the 32 sign patterns are as extreme."""
    assert paired_p_value([0.0] * 5, [0.2] * 5, np.random.default_rng(0)) == pytest.approx(2 / 32)


def test_the_paired_test_finds_a_steady_gain_and_no_gain_in_noise() -> None:
    rng = np.random.default_rng(3)
    base = rng.random(40).tolist()
    noise = rng.normal(0, 0.1, 40)

    assert paired_p_value(base, [b + 0.1 for b in base], rng) < 0.001
    assert paired_p_value(base, [b + n - noise.mean() for b, n in zip(base, noise, strict=True)], rng) > 0.5


def test_identical_results_have_a_p_value_of_one() -> None:
    assert paired_p_value([0.3, 0.4], [0.3, 0.4], np.random.default_rng(0)) == 1.0
