"""The gate never lets a worse config through."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.tuning.deploy import TOLERANCE, gate
from skep.tuning.evaluate import Circumstances, Evaluation, intervals, score_queries
from skep.tuning.findings import RefusedError
from skep.tuning.metrics import overall
from skep.tuning.search_config import SearchConfig
from skep.tuning.workspace import EvalQuery

DOCUMENTS = "abcdefgh"
ON = Circumstances(evals="golden:1", split="holdout", data="d", embedder="e")
Answers = dict[str, list[str]]


def measured(
    name: str, queries: list[EvalQuery], answers: Answers, *, milliseconds: float = 1.0
) -> Evaluation:
    """What `evaluate` would return for a config that gives these answers, each in so many milliseconds."""
    ticks = iter(np.arange(2 * len(queries)) * milliseconds / 1000)
    scores = score_queries(
        lambda query, _config: answers.get(query, []),
        SearchConfig(name=name),
        queries,
        k=5,
        timer=lambda: float(next(ticks)),
    )
    return Evaluation(
        config=name,
        hash=name,
        on=ON,
        k=5,
        overall=overall(scores),
        intervals=intervals(scores, np.random.default_rng(0)),
        scores=scores,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[EvalQuery], list[Answers]]:
    """A random eval set and the random answers of several configs to it."""
    queries: list[EvalQuery] = []
    for number in range(draw(st.integers(1, 8))):
        relevant = draw(st.lists(st.sampled_from(DOCUMENTS), max_size=3, unique=True))
        rest = [document for document in DOCUMENTS if document not in relevant]
        distractors = draw(st.lists(st.sampled_from(rest), max_size=3, unique=True))
        queries.append(
            EvalQuery(
                id=f"q{number}", query=f"q{number}", relevant=tuple(relevant), distractors=tuple(distractors)
            )
        )
    ranked = st.lists(st.sampled_from(DOCUMENTS), max_size=6)
    answers = st.fixed_dictionaries({query.id: ranked for query in queries})
    return queries, draw(st.lists(answers, min_size=2, max_size=6))


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(0, 2**32))
def test_the_gate_never_lets_a_worse_config_through(
    case: tuple[list[EvalQuery], list[Answers]], seed: int
) -> None:
    """One deployment after another: whatever passes is no worse than what it replaces, nor than the best before."""
    queries, configs = case
    rng = np.random.default_rng(seed)
    deployed: Evaluation | None = None
    mark: float | None = None
    for number, answers in enumerate(configs):
        candidate = measured(f"c{number}", queries, answers)
        findings = gate(candidate, deployed, latency_budget_ms=10, mark=mark, rng=rng)
        if findings:
            continue
        now = candidate.overall
        if deployed is not None:
            assert mark is not None
            assert now.distractors <= deployed.overall.distractors
            assert now.abstained_right >= deployed.overall.abstained_right
            assert now.nudcg >= deployed.overall.nudcg - TOLERANCE - 1e-9
            assert now.nudcg >= mark - TOLERANCE - 1e-9
        mark = max(now.nudcg, mark if mark is not None else now.nudcg)
        deployed = candidate


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**32))
def test_the_gate_never_refuses_a_config_that_is_better_everywhere(
    case: tuple[list[EvalQuery], list[Answers]], seed: int
) -> None:
    queries, (answers, *_) = case
    better = {query.id: [d for d in answers[query.id] if d in query.relevant] for query in queries}
    deployed, candidate = measured("a", queries, answers), measured("b", queries, better)

    assert gate(candidate, deployed, latency_budget_ms=10, mark=None, rng=np.random.default_rng(seed)) == ()


QUERIES = [EvalQuery(id=f"q{n}", query=f"q{n}", relevant=("a",), distractors=("d",)) for n in range(20)]
PERFECT: Answers = {query.id: ["a"] for query in QUERIES}


def codes(candidate: Evaluation, deployed: Evaluation | None, mark: float | None = None) -> list[str]:
    found = gate(candidate, deployed, latency_budget_ms=10, mark=mark, rng=np.random.default_rng(1))
    return [finding.code for finding in found]


def test_equal_is_good_enough() -> None:
    assert codes(measured("b", QUERIES, PERFECT), measured("a", QUERIES, PERFECT)) == []


def test_one_more_distractor_is_refused_even_if_nudcg_rises() -> None:
    poor = {**PERFECT, **{f"q{n}": ["x", "x2", "a"] for n in range(10)}}
    bold = {**PERFECT, "q19": ["a", "x", "y", "z", "d"]}
    found = measured("b", QUERIES, bold), measured("a", QUERIES, poor)

    assert found[0].overall.nudcg > found[1].overall.nudcg
    assert codes(*found) == ["distractors-higher"]


def test_a_drop_beyond_tolerance_is_refused_however_noisy() -> None:
    assert codes(measured("b", QUERIES, {**PERFECT, "q0": ["x", "a"]}), measured("a", QUERIES, PERFECT)) == [
        "nudcg-lower"
    ]


def test_a_small_drop_that_every_query_shares_is_no_noise() -> None:
    """0.004 lower on every query: within tolerance, but the interval of the difference does not reach 0."""
    fine = [
        EvalQuery(id=f"q{n}", query=f"q{n}", relevant=("a", "b"), grades={"a": 100, "b": 99})
        for n in range(20)
    ]
    right = {query.id: ["a", "b"] for query in fine}
    swapped = {query.id: ["b", "a"] for query in fine}
    deployed, candidate = measured("a", fine, right), measured("b", fine, swapped)

    assert 0 < deployed.overall.nudcg - candidate.overall.nudcg < TOLERANCE
    assert codes(candidate, deployed) == ["nudcg-lower"]


def test_small_drops_do_not_add_up() -> None:
    candidate = measured("b", QUERIES, PERFECT)

    assert codes(candidate, candidate, mark=1.0 + TOLERANCE / 2) == []
    assert codes(candidate, candidate, mark=1.0 + TOLERANCE * 2) == ["nudcg-lower"]


def test_answering_what_has_no_answer_is_refused() -> None:
    queries = [*QUERIES, EvalQuery(id="none", query="none", relevant=())]
    silent, talkative = measured("a", queries, PERFECT), measured("b", queries, {**PERFECT, "none": ["x"]})

    assert codes(talkative, silent) == ["abstention-worse"]


def test_the_latency_budget_holds_even_for_the_first_deployment() -> None:
    assert codes(measured("slow", QUERIES, PERFECT, milliseconds=11), None) == ["latency-over-budget"]
    assert codes(measured("fast", QUERIES, PERFECT, milliseconds=9), None) == []


def test_results_of_other_circumstances_are_not_judged() -> None:
    deployed = measured("a", QUERIES, PERFECT)
    elsewhere = msgspec.structs.replace(deployed, on=msgspec.structs.replace(ON, data="other"))

    with pytest.raises(RefusedError):
        gate(elsewhere, deployed, latency_budget_ms=10, rng=np.random.default_rng(1))
