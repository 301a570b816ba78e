from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from skep.bank.bank import Bank
from skep.retrieval.recall_config import from_dict
from skep.tuning.deploy import compare
from skep.tuning.evaluate import Searcher, evaluate, look, save, saved
from skep.tuning.findings import RefusedError
from skep.tuning.search_config import (
    OUTSIDE_RECALL_CONFIG,
    SearchConfig,
    config_hash,
    difference,
    from_raw,
    recall_settings,
    to_raw,
)
from skep.tuning.workspace import Workspace, load

from .conftest import EVALS, Write


def test_the_filter_keeps_the_distractors_out_and_nudcg_rises(
    indexed: Bank, workspace: Workspace, rng: np.random.Generator
) -> None:
    evals = workspace.eval_set()
    naive = evaluate(indexed, workspace.config("naive"), evals, rng=rng)
    filtered = evaluate(indexed, workspace.config("filtered"), evals, rng=rng)

    assert naive.overall.distractors > 0
    assert (filtered.overall.distractors, filtered.overall.recall) == (0, 1.0)
    assert filtered.overall.nudcg > naive.overall.nudcg
    assert filtered.intervals["nudcg"].low <= filtered.overall.nudcg <= filtered.intervals["nudcg"].high


def test_measuring_leaves_no_trace_in_the_bank(
    indexed: Bank, workspace: Workspace, rng: np.random.Generator
) -> None:
    events = indexed.status().events
    evaluate(indexed, workspace.config("naive"), workspace.eval_set(), rng=rng)
    indexed.engine.flush_uses()

    assert indexed.status().events == events


def test_a_saved_result_carries_its_circumstances_and_is_replaced_by_its_like(
    indexed: Bank, workspace: Workspace, rng: np.random.Generator
) -> None:
    evals = workspace.eval_set()
    for name in ("naive", "naive", "filtered"):
        save(indexed, evaluate(indexed, workspace.config(name), evals, split="tune", rng=rng))
    kept = saved(indexed)

    assert sorted(result.config for result in kept) == ["filtered", "naive"]
    assert kept[0].like(kept[1])
    assert kept[0].on.embedder == indexed.status().embedder
    assert kept[0].hash == config_hash(workspace.config(kept[0].config))


def test_results_on_other_data_other_labels_or_another_split_are_not_comparable(
    indexed: Bank, folder: Path, workspace: Workspace, write: Write, rng: np.random.Generator
) -> None:
    evals = workspace.eval_set()
    first = evaluate(indexed, workspace.config("naive"), evals, split="tune", rng=rng)
    other_split = evaluate(indexed, workspace.config("naive"), evals, split="holdout", rng=rng)
    write("evals/golden.json", {**EVALS, "queries": [*EVALS["queries"][:-1]]})
    other_labels = evaluate(
        indexed, workspace.config("naive"), load(folder).eval_set(), split="tune", rng=rng
    )

    for other in (other_split, other_labels):
        with pytest.raises(RefusedError) as caught:
            compare(first, other, rng=rng)
        assert [finding.code for finding in caught.value.findings] == ["not-comparable"]


def test_a_split_without_queries_is_refused(
    indexed: Bank, workspace: Workspace, rng: np.random.Generator
) -> None:
    evals = msgspec.structs.replace(workspace.eval_set(), queries=workspace.eval_set().of("tune"))

    with pytest.raises(RefusedError) as caught:
        evaluate(indexed, workspace.config("naive"), evals, split="holdout", rng=rng)
    assert [finding.code for finding in caught.value.findings] == ["no-holdout"]


def test_a_comparison_names_every_distractor_that_left_and_every_setting_that_changed(
    indexed: Bank, workspace: Workspace, rng: np.random.Generator
) -> None:
    configs = (workspace.config("naive"), workspace.config("filtered"))
    results = [evaluate(indexed, config, workspace.eval_set(), rng=rng) for config in configs]
    compared = compare(results[0], results[1], configs=configs, rng=rng)
    left = {document for item in compared.deltas for document in item.left}

    assert [change.line() for change in compared.changes] == ["filters.category: – → [api]"]
    assert left == {document for score in results[0].scores for document in score.distractors}
    assert not any(item.appeared for item in compared.deltas)
    assert (compared.losses, compared.mean_delta > 0) == (0, True)
    assert "better" in compared.verdict()


def test_a_config_compared_with_itself_wins_and_loses_nothing(
    indexed: Bank, workspace: Workspace, rng: np.random.Generator
) -> None:
    result = evaluate(indexed, workspace.config("naive"), workspace.eval_set(), rng=rng)
    compared = compare(result, result, rng=rng)

    assert (compared.wins, compared.losses, compared.p_value) == (0, 0, 1.0)
    assert compared.verdict() == "the two answer every query alike"


def test_a_config_survives_the_way_through_its_file() -> None:
    config = SearchConfig(name="x", collection="kb", filters={"category": ("a", 2, True)})

    assert from_raw(to_raw(config)) == config


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid"])
def test_every_method_becomes_a_config_that_the_pipeline_takes(method: str) -> None:
    settings = recall_settings(from_raw({"name": "x", "collection": "kb", "retrieval": {"method": method}}))
    config = from_dict({key: value for key, value in settings.items() if key not in OUTSIDE_RECALL_CONFIG})

    assert (config.k_words > 0, config.k_vectors > 0) == (method != "vector", method != "keyword")
    assert settings["tags"] == [["collection:kb"]]


def test_the_hash_sees_what_is_searched_and_not_what_it_is_called() -> None:
    one = from_raw({"name": "one", "collection": "kb", "note": "first"})
    two = from_raw({"name": "two", "collection": "kb"})
    three = from_raw({"name": "two", "collection": "kb", "retrieval": {"top_k": 9}})

    assert config_hash(one) == config_hash(two) != config_hash(three)
    assert [change.key for change in difference(one, three)] == ["retrieval.top_k"]


def test_everything_in_the_bank_can_be_searched_without_a_collection(indexed: Bank) -> None:
    kept = indexed.remember("Revoke means to take back a key").memory
    config = from_raw({"name": "all", "collection": "*"})

    assert f"memory:{kept.id}" in dict(Searcher(indexed).ask("revoke a key", config))


def test_a_query_shows_ranks_per_signal_flags_and_the_whole_curve(
    indexed: Bank, workspace: Workspace
) -> None:
    config = msgspec.structs.replace(
        workspace.config("naive"), dynamic_k=from_raw({"name": "x", "dynamic_k": {"enabled": True}}).dynamic_k
    )
    found = look(Searcher(indexed), "revoke a key", config)

    assert found.results[0].chunk == "api/keys.md#revoke"
    assert set(found.results[0].ranks) >= {"lexical", "semantic"}
    assert len(found.curve) == 5
    assert len(found.results) < 5
    assert "times the mean of the others" in found.stages[-1]
