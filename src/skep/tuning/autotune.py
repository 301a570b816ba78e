"""Searching for a better config on the tune split, under a budget, and saying afterwards what mattered.

The holdout is never looked at here: the gate needs it unseen. When the search is over, every change that
does not help is taken back, so that the config stays close to the one it started from, and each change that
stays is reported with what would be lost without it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec

from skep.errors import MissingExtraError
from skep.tuning.evaluate import Ask, score_queries
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.metrics import Overall, QueryScore, overall
from skep.tuning.search_config import SearchConfig, config_hash, difference
from skep.tuning.space import draw, neighbours, starts
from skep.tuning.validate import refused_by_pipeline
from skep.tuning.workspace import EvalQuery, EvalSet

TRIALS = 300
SECONDS = 40.0
EXPLORING = 0.6
"""The share of the budget spent on finding the right region; the rest goes into walking uphill from there."""
IDLE = 0.2
"""What a result that neither answers nor misleads costs, as a share of a query."""
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


class Tried(NamedTuple):
    """A config that was measured."""

    config: SearchConfig
    value: float
    overall: Overall
    error: float
    """Standard error of the value."""


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


def worth(score: QueryScore) -> float:
    """What one answer is worth to the search.

    nUDCG, or silence where there is no answer; less a whole query per distractor; less a little for every
    other result that does not answer, because it may be a distractor that nobody has labelled.
    """
    gain = score.nudcg if score.nudcg is not None else float(score.abstained)
    relevant = round((score.precision or 0.0) * score.returned)
    idle = score.returned - relevant - len(score.distractors)
    return gain - len(score.distractors) - IDLE * idle


def objective(scores: Sequence[QueryScore]) -> float:
    """What the search maximises: the mean worth of the answers."""
    return math.fsum(worth(score) for score in scores) / max(1, len(scores))


def standard_error(scores: Sequence[QueryScore]) -> float:
    """How far the objective would move on other queries like these."""
    if len(scores) < 2:
        return 0.0
    mean = objective(scores)
    variance = math.fsum((worth(score) - mean) ** 2 for score in scores) / (len(scores) - 1)
    return math.sqrt(variance / len(scores))


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
    seen: dict[str, Tried] = {}

    def measure(config: SearchConfig) -> Tried:
        key = config_hash(config)
        if key not in seen:
            scores = score_queries(ask, config, queries, k=eval_set.k, timer=clock)
            seen[key] = Tried(config, objective(scores), overall(scores), standard_error(scores))
        return seen[key]

    first = best = measure(base)
    number = 0

    def may_try(share: float) -> bool:
        return number < trials * share and clock() - started < seconds * share

    def attempt(config: SearchConfig) -> Tried:
        nonlocal best, number
        number += 1
        found = measure(config)
        best = max(best, found, key=lambda tried: tried.value)
        if live is not None:
            live(
                Live(
                    trial=number,
                    trials=trials,
                    seconds=clock() - started,
                    value=found.value,
                    best=best.overall,
                )
            )
        return found

    study = _study(seed)
    for choice in islice(starts(values, k=eval_set.k), trials // 2):
        study.enqueue_trial(choice)
    while may_try(EXPLORING):
        trial = study.ask()
        config = draw(trial, base, values, k=eval_set.k)
        study.tell(trial, -float(eval_set.k) if refused_by_pipeline(config) else attempt(config).value)
    _climb(
        lambda: best, lambda config: neighbours(config, base, values, k=eval_set.k), attempt, seen, may_try
    )
    chosen = simplest(cautious(seen.values(), best).config, base, measure)
    return Tuned(
        config=chosen,
        base=base,
        before=first.overall,
        after=measure(chosen).overall,
        trials=number,
        seconds=clock() - started,
        effects=tuple(_effects(chosen, base, measure)),
    )


def _climb(
    best: Callable[[], Tried],
    around: Callable[[SearchConfig], Iterator[SearchConfig]],
    attempt: Callable[[SearchConfig], Tried],
    seen: Mapping[str, Tried],
    may_try: Callable[[float], bool],
) -> None:
    """Walk from the best config to better neighbours until there is none, or the budget is spent."""
    stands = None
    while stands is not best():
        stands = best()
        for config in around(stands.config):
            if not may_try(1.0):
                return
            if config_hash(config) not in seen and not refused_by_pipeline(config):
                attempt(config)


def cautious(tried: Iterable[Tried], best: Tried) -> Tried:
    """Among configs that the queries cannot tell from the best, the one with the highest precision."""
    near = [
        one
        for one in tried
        if one.value >= best.value - best.error and one.overall.distractors <= best.overall.distractors
    ]
    return max([best, *near], key=lambda one: (round(one.overall.precision, 3), one.value))


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


def simplest(
    config: SearchConfig, base: SearchConfig, measure: Callable[[SearchConfig], Tried]
) -> SearchConfig:
    """Take back every group of changes that is not needed to keep the value."""
    value = measure(config).value
    for group in GROUPS:
        plainer = _reverted(config, base, group)
        if plainer != config and not refused_by_pipeline(plainer) and measure(plainer).value >= value:
            config, value = plainer, measure(plainer).value
    return config


def _effects(
    config: SearchConfig, base: SearchConfig, measure: Callable[[SearchConfig], Tried]
) -> Iterator[Effect]:
    for group in GROUPS:
        plainer = _reverted(config, base, group)
        if plainer != config and not refused_by_pipeline(plainer):
            changes = tuple(change.line() for change in difference(plainer, config))
            yield Effect(changes=changes, without=measure(plainer).overall)


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
