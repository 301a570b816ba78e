from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import pytest

from skep.bank.bank import Bank
from skep.tuning.autotune import (
    Tried,
    autotune,
    cautious,
    neighbours,
    objective,
    starts,
    tune_workspace,
)
from skep.tuning.deploy import judge
from skep.tuning.evaluate import Searcher, SteadySearcher
from skep.tuning.findings import RefusedError
from skep.tuning.metrics import Labels, Overall, overall, score_query
from skep.tuning.schemas import RESERVED
from skep.tuning.search_config import SearchConfig, field_tag
from skep.tuning.validate import check_files, refused_by_pipeline
from skep.tuning.workspace import EvalQuery, EvalSet, Workspace, load

VALUES = {"category": ["api", "faq"]}
EVALS = EvalSet(
    name="golden",
    collection="kb",
    queries=(
        EvalQuery(id="a", query="a", relevant=("good",), distractors=("bad",)),
        EvalQuery(id="b", query="b", relevant=("good",), split="holdout"),
    ),
)


def simulated(query: str, config: SearchConfig) -> Sequence[str]:
    """A search whose only good setting is a filter on category."""
    assert query == "a", "the holdout must not be looked at"
    answer = ["good"] if config.filters.get("category") == ("api",) else ["bad", "good"]
    return answer[: config.retrieval.top_k]


def test_autotune_finds_the_filter_and_says_what_it_is_worth() -> None:
    found = autotune(simulated, SearchConfig(name="naive", collection="kb"), EVALS, VALUES, trials=40)

    assert found.config.filters == {"category": ("api",)}
    assert (found.before.distractors, found.after.distractors, found.after.nudcg) == (1, 0, 1.0)
    assert len(found.effects) == 1
    assert "filters.category: – → [api] (without it: nUDCG -0.369, 1 distractors)" in found.note()


def test_a_search_repeats_as_long_as_its_budget_is_in_trials() -> None:
    base = SearchConfig(name="naive", collection="kb")
    runs = [autotune(simulated, base, EVALS, VALUES, trials=25).config for _ in range(2)]

    assert runs[0] == runs[1]


def test_the_budget_in_seconds_ends_the_search() -> None:
    ticks = count()
    seen: list[int] = []
    found = autotune(
        simulated,
        SearchConfig(name="naive", collection="kb"),
        EVALS,
        VALUES,
        trials=10_000,
        seconds=200,
        clock=lambda: float(next(ticks)),
        progress=lambda number, _of: seen.append(number),
    )

    assert 0 < found.trials < 100
    assert seen == list(range(1, found.trials + 1))


@pytest.mark.parametrize(("trials", "seconds"), [(0, 10.0), (10, 0.0), (-1, -1.0), (10, float("nan"))])
def test_a_budget_without_a_trial_is_refused(trials: int, seconds: float) -> None:
    with pytest.raises(RefusedError) as caught:
        autotune(simulated, SearchConfig(name="x"), EVALS, VALUES, trials=trials, seconds=seconds)
    assert [finding.code for finding in caught.value.findings] == ["budget-empty"]


def test_evals_without_a_tune_split_are_refused() -> None:
    held = msgspec.structs.replace(EVALS, queries=EVALS.of("holdout"))

    with pytest.raises(RefusedError) as caught:
        autotune(simulated, SearchConfig(name="x"), held, VALUES)
    assert [finding.code for finding in caught.value.findings] == ["no-tune"]


def test_the_objective_prefers_silence_to_a_distractor_and_a_short_answer_to_a_long_one() -> None:
    labels = Labels(relevant={"a": 1.0}, distractors=frozenset({"d"}))
    best = objective([score_query("q", ["a"], labels)])

    assert (
        best > objective([score_query("q", ["a", "x"], labels)]) > objective([score_query("q", [], labels)])
    )
    assert objective([score_query("q", [], labels)]) > objective([score_query("q", ["d", "a"], labels)])
    assert objective([score_query("q", [], Labels())]) == 1.0


def _tried(name: str, value: float, precision: float, distractors: int = 0) -> Tried:
    total = msgspec.structs.replace(overall([]), precision=precision, distractors=distractors)
    return Tried(SearchConfig(name=name), value, total, 0.05)


def test_among_configs_that_cannot_be_told_apart_the_most_precise_is_taken() -> None:
    best = _tried("best", 0.90, 0.5)
    near, far, risky = (
        _tried("near", 0.87, 0.9),
        _tried("far", 0.80, 1.0),
        _tried("risky", 0.89, 1.0, distractors=1),
    )

    assert cautious([best, near, far, risky], best).config.name == "near"


def test_every_start_and_every_neighbour_is_a_config_the_pipeline_takes() -> None:
    config = SearchConfig(name="naive", collection="kb")
    around = list(neighbours(config, config, VALUES, k=10))

    begun = list(starts(config, VALUES, k=10))

    assert len(begun) > 10
    assert len(around) > 20
    assert not [refused for refused in map(refused_by_pipeline, [*begun, *around]) if refused]


def test_the_result_is_a_new_file_that_validates_and_goes_to_the_gate(
    folder: Path, workspace: Workspace, indexed: Bank, rng: np.random.Generator
) -> None:
    base, evals = workspace.config("naive"), workspace.eval_set()
    found = tune_workspace(workspace, indexed, base, evals, trials=30)
    fresh = load(folder)

    assert found.config.name == "auto-1"
    assert fresh.config("auto-1") == found.config
    assert not [finding for finding in check_files(fresh) if finding.severity == "error"]
    assert json.loads((folder / "configs/auto-1.json").read_text())["note"].startswith(
        "Found by autotune from naive"
    )
    assert judge(fresh, indexed, fresh.config("auto-1"), evals, rng=rng).passed
    assert tune_workspace(fresh, indexed, base, evals, trials=5).config.name == "auto-2"


@pytest.mark.parametrize("name", ["naive", "active", "../x", ""])
def test_no_file_is_overwritten_and_no_name_leaves_the_folder(
    workspace: Workspace, indexed: Bank, name: str
) -> None:
    with pytest.raises(RefusedError):
        tune_workspace(
            workspace, indexed, workspace.config("naive"), workspace.eval_set(), name=name, trials=5
        )


def test_the_result_is_never_worse_than_where_it_began_on_the_queries_it_saw() -> None:
    perfect = SearchConfig(name="filtered", collection="kb", filters={"category": ("api",)})
    found = autotune(simulated, perfect, EVALS, VALUES, trials=20)
    before: Overall = found.before

    assert found.after.nudcg >= before.nudcg
    assert found.after.distractors <= before.distractors


@pytest.mark.parametrize("name", ["naive", "filtered"])
def test_a_bank_that_holds_still_answers_as_the_bank_does(
    workspace: Workspace, indexed: Bank, name: str
) -> None:
    searcher, config = Searcher(indexed), workspace.config(name)
    told = field_tag(RESERVED, "kb"), field_tag("category", "api")
    indexed.remember("Always name the region when I ask about a key", kind="document", tags=told)
    steady = SteadySearcher(indexed)
    other = msgspec.structs.replace(
        config, retrieval=msgspec.structs.replace(config.retrieval, coverage=1.0, guidance=1.0)
    )

    for query in ("revoke a key", "create a job", "sea", "nothing of the kind"):
        for one in (config, other, config):
            assert steady.ask(query, one) == searcher.ask(query, one)
