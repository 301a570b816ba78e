"""Searching for a better config on the tune split, under a budget, and saying afterwards what mattered.

The holdout is never looked at here: the gate needs it unseen. When the search is over, every change that
does not help is taken back, so that the config stays close to the one it started from, and each change that
stays is reported with what would be lost without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from skep.errors import MissingExtraError
from skep.tuning.evaluate import Ask, score_queries
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.metrics import Overall, QueryScore, overall
from skep.tuning.search_config import SearchConfig, config_hash, difference
from skep.tuning.space import draw
from skep.tuning.validate import refused_by_pipeline
from skep.tuning.workspace import EvalQuery, EvalSet

TRIALS = 300
SECONDS = 40.0
Clock = Callable[[], float]
GROUPS: tuple[tuple[str, ...], ...] = (
    ("filters",),
    ("dynamic_k",),
    ("abstention",),
    ("retrieval.late",),
    ("retrieval.top_k",),
    ("retrieval.method", "retrieval.fusion", "retrieval.weights"),
)
"""Keys that are taken back together when the search is over."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A change that stayed, and what the config would be without it."""

    changes: tuple[str, ...]
    without: Overall

    def line(self) -> str:
        """The effect in one sentence."""
        lost = f"nUDCG {self.without.nudcg:.3f}, {self.without.distractors} distractors"
        if self.without.unanswerable:
            lost += f", {self.without.abstained_right} of {self.without.unanswerable} rightly unanswered"
        return f"{'; '.join(self.changes)} (without it: {lost})"


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """Where the search stands; given to the progress view after every trial."""

    trial: int
    trials: int
    seconds: float
    value: float
    best: Overall


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """The best config that was found, and why it is as it is."""

    config: SearchConfig
    base: SearchConfig
    before: Overall
    after: Overall
    trials: int
    seconds: float
    effects: tuple[Effect, ...]

    def note(self) -> str:
        """What was changed and why, for the config file."""
        lines = [
            f"Found by autotune from {self.base.name} in {self.trials} trials: on the tune split nUDCG "
            f"{self.before.nudcg:.3f} → {self.after.nudcg:.3f}, distractors {self.before.distractors} → "
            f"{self.after.distractors}."
        ]
        return " ".join([*lines, *(effect.line() + "." for effect in self.effects)])[:4000]


def objective(scores: Sequence[QueryScore]) -> float:
    """What the search maximises: mean gain less distractors per query.

    Silence is worth 1 for a query without an answer. A distractor costs a whole query, on top of what it
    costs in nUDCG.
    """
    gain = sum(score.nudcg if score.nudcg is not None else float(score.abstained) for score in scores)
    return (gain - sum(len(score.distractors) for score in scores)) / max(1, len(scores))


def autotune(
    ask: Ask,
    base: SearchConfig,
    eval_set: EvalSet,
    values: Mapping[str, Sequence[str]],
    *,
    seed: int,
    trials: int = TRIALS,
    seconds: float = SECONDS,
    clock: Clock = time.monotonic,
    live: Callable[[Live], None] | None = None,
) -> Tuned:
    """Search for a config that answers the tune split best.

    Args:
        ask: Answers a query under a config.
        base: Where to start; it is the first trial, so the result is never worse than it.
        eval_set: Only its tune split is used.
        values: Per filterable field the values that documents have.
        seed: Makes the search repeatable as long as the budget is in trials.
        trials: At most so many configs are tried.
        seconds: No new trial is begun after so long.
        clock: For the budget.
        live: Called after every trial.
    """
    queries = _queries(eval_set, trials, seconds)
    started = clock()
    seen: dict[str, tuple[float, Overall]] = {}

    def measure(config: SearchConfig) -> tuple[float, Overall]:
        key = config_hash(config)
        if key not in seen:
            scores = score_queries(ask, config, queries, k=eval_set.k, timer=clock)
            seen[key] = objective(scores), overall(scores)
        return seen[key]

    best, (value, result) = base, measure(base)
    before, number = result, 0
    study = _study(seed)
    while number < trials and clock() - started < seconds:
        number += 1
        trial = study.ask()
        config = draw(trial, base, values, k=eval_set.k)
        if refused_by_pipeline(config):
            study.tell(trial, -float(eval_set.k))
            continue
        found, total = measure(config)
        study.tell(trial, found)
        if found > value:
            best, value, result = config, found, total
        if live is not None:
            live(Live(trial=number, trials=trials, seconds=clock() - started, value=found, best=result))
    best = _simplest(best, base, lambda config: measure(config)[0])
    return Tuned(
        config=best,
        base=base,
        before=before,
        after=measure(best)[1],
        trials=number,
        seconds=clock() - started,
        effects=tuple(_effects(best, base, lambda config: measure(config)[1])),
    )


def _queries(eval_set: EvalSet, trials: int, seconds: float) -> tuple[EvalQuery, ...]:
    file = f"evals/{eval_set.name}.json"
    if trials < 1 or not seconds > 0:
        what, fix = "the budget allows no trial", "give at least one trial and more than 0 seconds"
        raise RefusedError([Finding(code="budget-empty", file="", what=what, fix=fix)])
    queries = eval_set.of("tune")
    if not queries:
        what, fix = "no query has the split 'tune'", 'give about half of the queries "split": "tune"'
        raise RefusedError([Finding(code="no-tune", file=file, what=what, fix=fix)])
    return queries


def _study(seed: int) -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("autotune", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=40)
    return cast("Any", optuna.create_study(direction="maximize", sampler=sampler))


def _simplest(
    best: SearchConfig, base: SearchConfig, value_of: Callable[[SearchConfig], float]
) -> SearchConfig:
    """Take back every group of changes that is not needed to keep the value."""
    value = value_of(best)
    for group in GROUPS:
        plainer = _reverted(best, base, group)
        if plainer != best and not refused_by_pipeline(plainer) and value_of(plainer) >= value:
            best, value = plainer, value_of(plainer)
    return best


def _effects(
    best: SearchConfig, base: SearchConfig, result_of: Callable[[SearchConfig], Overall]
) -> Iterator[Effect]:
    for group in GROUPS:
        plainer = _reverted(best, base, group)
        if plainer != best and not refused_by_pipeline(plainer):
            changes = tuple(change.line() for change in difference(plainer, best))
            yield Effect(changes=changes, without=result_of(plainer))


def _reverted(config: SearchConfig, base: SearchConfig, group: Sequence[str]) -> SearchConfig:
    """The config with the keys of a group as they are in `base`."""
    for key in group:
        section, _, name = key.partition(".")
        original = getattr(base, section)
        if name:
            original = msgspec.structs.replace(getattr(config, section), **{name: getattr(original, name)})
        config = msgspec.structs.replace(config, **{section: original})
    if config.dynamic_k.min_results > config.retrieval.top_k:
        cut = msgspec.structs.replace(config.dynamic_k, min_results=config.retrieval.top_k)
        config = msgspec.structs.replace(config, dynamic_k=cut)
    detection = base.distraction_detection
    if config.retrieval.method != "hybrid":
        detection = msgspec.structs.replace(detection, enabled=False)
    return msgspec.structs.replace(config, distraction_detection=detection)
