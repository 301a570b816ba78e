"""The example, run from start to end: naive, filtered, dynamic-k, each through the gate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from skep.tuning import show, versions
from skep.tuning.charts import table
from skep.tuning.deploy import deploy, judge
from skep.tuning.evaluate import Evaluation
from skep.tuning.layout import init
from skep.tuning.session import BANK, index_workspace, opened

if TYPE_CHECKING:
    import numpy as np

STEPS = ("naive", "filtered", "dynamic-k")


def run(folder: Path | None, *, rng: np.random.Generator, say: Callable[[str], None]) -> list[Evaluation]:
    """Lay out the example, index it, and deploy its three configs one after the other.

    Args:
        folder: Where to keep the workspace; None uses a temporary folder.
        rng: For confidence intervals.
        say: Prints a line.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            return run(Path(temporary) / "workspace", rng=rng, say=say)
    init(folder, example=True)
    results: list[Evaluation] = []
    with opened(folder, folder / BANK, create=True) as (workspace, bank):
        for report in index_workspace(workspace, bank):
            say(show.index_report(report))
        for name in STEPS:
            config = workspace.config(name)
            verdict = judge(workspace, bank, config, workspace.eval_set(), rng=rng)
            version = deploy(workspace, bank, verdict, author="demo", reason=config.note)
            say(f"\n{name}: {config.note}\n{show.judgement(verdict)}\ndeployed as version {version.number}")
            results.append(verdict.candidate)
        say("\n" + show.history(versions.history(bank), len(STEPS)))
    rows = [
        (
            result.config,
            f"{result.overall.nudcg:.3f}",
            str(result.overall.distractors),
            f"{result.overall.precision:.3f}",
        )
        for result in results
    ]
    say("\n" + table(("holdout", "nUDCG", "distractors", "precision"), rows))
    return results
