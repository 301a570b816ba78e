"""Two configs side by side: what differs in the files, and what it did to every query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.tuning.evaluate import Evaluation
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.search_config import Change, SearchConfig, difference
from skep.tuning.statistics import Interval, bootstrap_interval, paired_p_value

if TYPE_CHECKING:
    import numpy as np

SAME = 1e-9
"""nUDCG differences below this are none."""


class QueryDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What the second config did to one query."""

    query: str
    before: float | None
    after: float | None
    appeared: tuple[str, ...] = ()
    """Distractors that only the second config hands over."""
    left: tuple[str, ...] = ()
    """Distractors that only the first config handed over."""

    @property
    def delta(self) -> float:
        """Change of nUDCG; 0 for a query without an answer."""
        return (self.after or 0.0) - (self.before or 0.0)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The second config against the first."""

    before: Evaluation
    after: Evaluation
    changes: tuple[Change, ...]
    deltas: tuple[QueryDelta, ...]
    interval: Interval
    """Of the mean change of nUDCG."""
    p_value: float

    @property
    def mean_delta(self) -> float:
        """Mean change of nUDCG over the queries that have an answer."""
        return self.after.overall.nudcg - self.before.overall.nudcg

    @property
    def wins(self) -> int:
        """Queries that got better."""
        return sum(item.delta > SAME for item in self.deltas)

    @property
    def losses(self) -> int:
        """Queries that got worse."""
        return sum(item.delta < -SAME for item in self.deltas)

    def verdict(self) -> str:
        """The result in one sentence."""
        if all(abs(item.delta) <= SAME for item in self.deltas):
            return "the two answer every query alike"
        direction = (
            "better" if self.mean_delta > 0 else "worse" if self.mean_delta < 0 else "no different on average"
        )
        sure = "significant" if self.p_value < 0.05 else "within noise"
        return (
            f"{self.after.config} is {direction}: nUDCG {self.mean_delta:+.3f} "
            f"({self.wins} better, {self.losses} worse, p = {self.p_value:.3f}, {sure})"
        )


def compare(
    before: Evaluation,
    after: Evaluation,
    *,
    configs: tuple[SearchConfig, SearchConfig] | None = None,
    rng: np.random.Generator,
) -> Comparison:
    """Compare two results that were measured on the same things."""
    if not before.like(after):
        what = f"{before.config} and {after.config} were not measured on the same data, queries and embedder"
        fix = "evaluate both again"
        raise RefusedError([Finding(code="not-comparable", file="", what=what, fix=fix)])
    left, right = before.by_query(), after.by_query()
    deltas = tuple(
        QueryDelta(
            query=query,
            before=left[query].nudcg,
            after=right[query].nudcg,
            appeared=tuple(item for item in right[query].distractors if item not in left[query].distractors),
            left=tuple(item for item in left[query].distractors if item not in right[query].distractors),
        )
        for query in left
    )
    pairs = [
        (item.before, item.after) for item in deltas if item.before is not None and item.after is not None
    ]
    return Comparison(
        before=before,
        after=after,
        changes=difference(*configs) if configs else (),
        deltas=deltas,
        interval=bootstrap_interval([b - a for a, b in pairs], rng),
        p_value=paired_p_value([a for a, _ in pairs], [b for _, b in pairs], rng),
    )
