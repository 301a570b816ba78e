"""The gate: whether one config may take the place of another, judged on queries neither was tuned on. Pure.

A candidate passes when, on the holdout,

1. its nUDCG is not lower than what is deployed. A drop is let through only as noise: it is at most
`TOLERANCE`, *and*
   the confidence interval of the paired difference reaches 0. So that many small drops cannot add up, it
   must also stay within `TOLERANCE` of the best result since the last forced deployment (the mark);
2. it hands over no more distractors, and abstains rightly no less often;
3. its 95th percentile of latency is within the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skep.tuning.compare import compare
from skep.tuning.evaluate import Evaluation
from skep.tuning.findings import Finding

if TYPE_CHECKING:
    import numpy as np

TOLERANCE = 0.01
"""The largest drop of mean nUDCG that may be called noise."""
_ROUNDING = 1e-9


def gate(
    candidate: Evaluation,
    deployed: Evaluation | None,
    *,
    latency_budget_ms: float,
    mark: float | None = None,
    rng: np.random.Generator,
) -> tuple[Finding, ...]:
    """Everything that speaks against deploying `candidate`; empty means it may pass.

    Args:
        candidate: The config's result on the holdout.
        deployed: The result of what is deployed on the same holdout; None when nothing is.
        latency_budget_ms: The 95th percentile that is allowed.
        mark: The best nUDCG reached by deployed versions under the same circumstances, if known.
        rng: For the confidence interval.
    """
    return tuple(_against(candidate, deployed, latency_budget_ms, mark, rng))


def _against(
    candidate: Evaluation,
    deployed: Evaluation | None,
    budget: float,
    mark: float | None,
    rng: np.random.Generator,
) -> Iterator[Finding]:
    now = candidate.overall
    if not now.latency_ms <= budget:
        what = f"the 95th percentile is {now.latency_ms:.1f} ms, over the budget of {budget:g} ms"
        fix = "lower pool or late, or raise latency_budget_ms in the eval set"
        yield _found("latency-over-budget", candidate, what, fix)
    if deployed is None:
        return
    was = deployed.overall
    paired = compare(deployed, candidate, rng=rng)
    if now.distractors > was.distractors:
        new = sorted({document for item in paired.deltas for document in item.appeared})
        what = f"{now.distractors} distractors against {was.distractors}; new: {', '.join(new[:5])}"
        yield _found("distractors-higher", candidate, what, "filter them out, or stop earlier with dynamic_k")
    if now.abstained_right < was.abstained_right:
        what = (
            f"{now.abstained_right} of {now.unanswerable} queries without an answer are left unanswered, "
            f"against {was.abstained_right}"
        )
        yield _found("abstention-worse", candidate, what, "raise abstention.floor")
    drop = was.nudcg - now.nudcg
    if drop > _ROUNDING and (drop > TOLERANCE or paired.interval.high < 0):
        what = f"nUDCG {now.nudcg:.3f} against {was.nudcg:.3f} deployed"
        fix = f"see `skep tune compare` for the {paired.losses} queries that got worse"
        yield _found("nudcg-lower", candidate, what, fix)
    elif mark is not None and now.nudcg < mark - TOLERANCE - _ROUNDING:
        what = f"nUDCG {now.nudcg:.3f} against {mark:.3f}, the best that was deployed"
        fix = "small drops may not add up; improve on the best version, or roll back to it"
        yield _found("nudcg-lower", candidate, what, fix)


def _found(code: str, candidate: Evaluation, what: str, fix: str) -> Finding:
    return Finding(code=code, file=f"configs/{candidate.config}.json", what=what, fix=fix)
