"""What the shipped example promises: each of its three configs improves, and autotune gets there alone."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from skep.bank.bank import Bank
from skep.tuning.autotune import tune_workspace
from skep.tuning.deploy import Judgement, deploy, judge
from skep.tuning.document_index import index, read_sources
from skep.tuning.evaluate import Evaluation, evaluate
from skep.tuning.workspace import init, load

STEPS = ("naive", "filtered", "dynamic-k")


def run(folder: Path, rng: np.random.Generator) -> list[Evaluation]:
    """Lay out the example, index it, and deploy its three configs one after the other."""
    init(folder, example=True)
    workspace = load(folder)
    judged: list[Judgement] = []
    with Bank.open(folder / "bank.skep") as bank:
        index(bank, read_sources(workspace, workspace.collections["knowledge-base"]))
        for name in STEPS:
            config, evals = workspace.config(name), workspace.eval_set()
            judged.append(judge(workspace, bank, config, evals, rng=rng, latency_budget_ms=60_000.0))
            deploy(workspace, bank, judged[-1], author="test")
    return [verdict.candidate for verdict in judged]


def test_naive_filtered_dynamic_k_nudcg_rises_and_distractors_go_to_zero(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    steps = [result.overall for result in run(tmp_path / "demo", rng)]

    assert steps[0].nudcg < steps[1].nudcg < steps[2].nudcg
    assert steps[0].distractors > steps[1].distractors > steps[2].distractors == 0
    assert steps[2].nudcg >= 0.75


def test_the_demo_improves_on_the_tune_split_too(tmp_path: Path, rng: np.random.Generator) -> None:
    run(tmp_path / "demo", rng)
    workspace = load(tmp_path / "demo")
    with Bank.open(tmp_path / "demo/bank.skep") as bank:
        results = [
            evaluate(bank, workspace.config(name), workspace.eval_set(), split="tune", rng=rng).overall
            for name in STEPS
        ]

    assert results[0].nudcg < results[1].nudcg < results[2].nudcg
    assert results[2].distractors == 0


def test_autotune_alone_reaches_the_goal_on_the_holdout(tmp_path: Path, rng: np.random.Generator) -> None:
    init(tmp_path / "w", example=True)
    workspace = load(tmp_path / "w")
    with Bank.open(":memory:") as bank:
        index(bank, read_sources(workspace, workspace.collections["knowledge-base"]))
        evals, naive = workspace.eval_set(), workspace.config("naive")
        budget = {"latency_budget_ms": 60_000.0}
        deploy(workspace, bank, judge(workspace, bank, naive, evals, rng=rng, **budget), author="test")
        found = tune_workspace(workspace, bank, naive, evals, trials=600, seconds=60, clock=time.process_time)
        verdict = judge(workspace, bank, found.config, evals, rng=rng, **budget)

    assert verdict.passed
    assert verdict.candidate.overall.nudcg >= 0.75
    assert verdict.candidate.overall.distractors == 0
