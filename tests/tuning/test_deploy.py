from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from skep.bank.bank import Bank
from skep.tuning import deploy as deploy_module
from skep.tuning.deploy import Judgement, check_active, deploy, judge, rollback
from skep.tuning.evaluate import Searcher
from skep.tuning.findings import RefusedError
from skep.tuning.workspace import Workspace, load

from .conftest import Write


@pytest.fixture
def verdict(workspace: Workspace, indexed: Bank, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    def ask(name: str) -> Judgement:
        return judge(workspace, indexed, workspace.config(name), workspace.eval_set(), rng=rng)

    return ask


def refused(caught: pytest.ExceptionInfo[RefusedError]) -> list[str]:
    return [finding.code for finding in caught.value.findings]


def test_a_better_config_is_deployed_and_recorded(workspace: Workspace, indexed: Bank, verdict) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("naive"), author="ana", reason="to start with")
    deploy(workspace, indexed, verdict("filtered"), author="bo", reason="no FAQ")
    first, second = deploy_module.history(indexed)

    assert [(v.number, v.config.name, v.author, v.reason) for v in (first, second) if v.config] == [
        (1, "naive", "ana", "to start with"),
        (2, "filtered", "bo", "no FAQ"),
    ]
    assert second.results
    assert first.results
    assert second.baseline
    assert first.results.nudcg == second.baseline.nudcg < second.results.nudcg
    assert deploy_module.active(indexed) == second


def test_a_deployed_config_is_what_recall_uses(workspace: Workspace, indexed: Bank, verdict) -> None:  # type: ignore[no-untyped-def]
    before = [hit.memory.source for hit in indexed.recall("sign in with a key", limit=5)]
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    after = [hit.memory.source for hit in indexed.recall("sign in with a key")]
    measured = Searcher(indexed).search("sign in with a key", workspace.config("filtered"))

    assert any(source and source.startswith("faq/") for source in before)
    assert after == [hit.memory.source for hit in measured.hits]
    assert not any(source and source.startswith("faq/") for source in after)


def test_a_worse_config_is_refused_and_nothing_changes(workspace: Workspace, indexed: Bank, verdict) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    before = indexed.setting(deploy_module.RECALL_CONFIG)

    with pytest.raises(RefusedError) as caught:
        deploy(workspace, indexed, verdict("faq-only"), author="bo")

    assert {"nudcg-lower", "distractors-higher"} <= set(refused(caught))
    assert indexed.setting(deploy_module.RECALL_CONFIG) == before
    assert len(deploy_module.history(indexed)) == 1


def test_force_needs_a_reason_and_is_recorded_with_what_it_overrode(
    workspace: Workspace, indexed: Bank, verdict
) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    with pytest.raises(RefusedError) as caught:
        deploy(workspace, indexed, verdict("faq-only"), author="bo", force=True)
    assert "reason-needed" in refused(caught)

    version = deploy(workspace, indexed, verdict("faq-only"), author="bo", force=True, reason="an experiment")

    assert version.forced
    assert any("nudcg-lower" in line for line in version.overridden)
    assert deploy_module.active(indexed) == version


def test_force_never_overrides_validation(
    folder: Path, indexed: Bank, write: Write, rng: np.random.Generator
) -> None:
    write("configs/odd.json", {"name": "odd", "filters": {"category": ["nonsense"]}})
    workspace = load(folder)

    with pytest.raises(RefusedError) as caught:
        judge(workspace, indexed, workspace.config("odd"), workspace.eval_set(), rng=rng)
    assert refused(caught) == ["filter-value-unknown"]


def test_the_same_config_is_not_deployed_twice(workspace: Workspace, indexed: Bank, verdict) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("filtered"), author="ana")

    with pytest.raises(RefusedError) as caught:
        deploy(workspace, indexed, verdict("filtered"), author="ana")
    assert refused(caught) == ["no-change"]


def test_a_deployment_made_after_the_judgement_is_not_overwritten(
    workspace: Workspace, indexed: Bank, verdict
) -> None:  # type: ignore[no-untyped-def]
    mine, theirs = verdict("naive"), verdict("filtered")
    deploy(workspace, indexed, theirs, author="bo")
    before = indexed.setting(deploy_module.RECALL_CONFIG)

    with pytest.raises(RefusedError) as caught:
        deploy(workspace, indexed, mine, author="ana")

    assert refused(caught) == ["deployed-meanwhile"]
    assert indexed.setting(deploy_module.RECALL_CONFIG) == before
    assert [version.author for version in deploy_module.history(indexed)] == ["bo"]


def test_documents_that_are_not_indexed_are_not_judged(
    folder: Path, indexed: Bank, write: Write, rng: np.random.Generator
) -> None:
    write("documents/api/new.md", "# New\n\nNew text.")
    workspace = load(folder)

    with pytest.raises(RefusedError) as caught:
        judge(workspace, indexed, workspace.config("naive"), workspace.eval_set(), rng=rng)
    assert refused(caught) == ["not-indexed"]


def test_rollback_returns_to_any_version_and_to_the_default(
    workspace: Workspace, indexed: Bank, verdict
) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("naive"), author="ana")
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    back = rollback(workspace, indexed, 1, author="bo")

    assert (back.number, back.action, back.of) == (3, "rollback", 1)
    assert back.config == workspace.config("naive")
    assert deploy_module.active(indexed) == back

    rollback(workspace, indexed, 0, author="bo")
    assert indexed.setting(deploy_module.RECALL_CONFIG) is None
    assert not (workspace.root / "configs/active.json").exists()


def test_rolling_back_to_a_version_that_never_was_is_refused(workspace: Workspace, indexed: Bank) -> None:
    with pytest.raises(RefusedError) as caught:
        rollback(workspace, indexed, 7, author="bo")
    assert refused(caught) == ["unknown-version"]


def test_after_a_rollback_the_gate_asks_for_what_that_version_reached(
    workspace: Workspace, indexed: Bank, verdict
) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("naive"), author="ana")
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    rollback(workspace, indexed, 1, author="ana")

    assert verdict("filtered").passed


def test_active_json_is_a_copy_that_is_checked(
    workspace: Workspace, indexed: Bank, verdict, write: Write
) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    fresh = load(workspace.root)

    assert check_active(fresh, indexed) == ()
    write("configs/active.json", {"name": "filtered", "retrieval": {"top_k": 3}})
    assert [finding.code for finding in check_active(load(workspace.root), indexed)] == ["active-differs"]


def test_a_deployment_is_one_transaction(workspace: Workspace, indexed: Bank, verdict) -> None:  # type: ignore[no-untyped-def]
    """Readers see the old config or the new one: both registers are written by events that follow each other."""
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    written = [event for event in indexed.history(limit=10) if event.kind == "setting"]
    by_key = {str(event.body["key"]): event for event in written}

    assert by_key["recall/config"].counter == by_key["tuning/version/000001"].counter + 1


def test_a_version_with_keys_of_an_earlier_ranking_is_still_read(
    workspace: Workspace, indexed: Bank, verdict
) -> None:  # type: ignore[no-untyped-def]
    deploy(workspace, indexed, verdict("filtered"), author="ana")
    key = f"{deploy_module.KEY}000001"
    record = indexed.setting(key)
    assert isinstance(record, dict)
    config = record["config"]
    config["retrieval"] |= {"late": 0.5, "fusion": "minmax"}
    config["abstention"] = {"enabled": True, "floor": 0.2, "relative_floor": 0.5}
    indexed.set_setting(key, record)
    [version] = deploy_module.history(indexed)

    assert version.config is not None
    assert version.config.retrieval.fusion == "weighted"
    assert version.config.abstention.bar == "likely"
