"""Search for a better config on the tune split, within a budget of trials and seconds.

From the best of a few configs that often help it walks to better neighbours, then from the next best. The holdout
is never looked at: the gate needs it unseen. After the search every change that does not help is taken back, and each
that stays is reported with the loss without it. `tune_workspace` writes the result as a new config file. Called by
`skep tune autotune`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec

from skep.bank.bank import Bank
from skep.retrieval.recall_config import Level
from skep.tuning.deploy import ready
from skep.tuning.document_index import read_sources
from skep.tuning.evaluate import Ask, Progress, SteadySearcher, score_queries
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.metrics import Overall, QueryScore, overall
from skep.tuning.search_config import (
    Abstention,
    Detection,
    DynamicK,
    Retrieval,
    SearchConfig,
    config_hash,
    difference,
    to_raw,
)
from skep.tuning.validate import refused_by_pipeline
from skep.tuning.workspace import ACTIVE, EvalQuery, EvalSet, Workspace, is_name, write_json

MAX_FIELD_VALUES = 12
"""Fields with more values than this are not tried as filters: there would be too many subsets."""


COVERAGES = (0.0, 0.5, 1.0, 1.5)
BARS: tuple[Level, ...] = ("weak", "likely", "strong")


def starts(base: SearchConfig, values: Mapping[str, Sequence[str]], *, k: int) -> Iterator[SearchConfig]:
    """Configs that often help: leave one value out, fuse scores, stop early; one at a time and together.

    Args:
        base: Supplies the collection and whatever is not searched.
        values: Per filterable field the values that documents have.
        k: How many results the evals look at; more are never asked for.
    """
    replace, even = msgspec.structs.replace, {"semantic": 0.5, "lexical": 0.5}
    filters = [dict(base.filters)]
    for field, known in _searched(values).items():
        for left_out in known:
            filters.append({**base.filters, field: tuple(value for value in known if value != left_out)})
    cut = DynamicK(enabled=True, gap_threshold_factor=2.0, max_results=k)
    stops: list[dict[str, Any]] = [{"abstention": _bar("strong")}, {"dynamic_k": cut}, {"top_k": min(2, k)}]
    for fusion, stop, narrowed in product(("weighted", "rrf"), stops, filters):
        found = replace(base.retrieval, method="hybrid", fusion=fusion, weights=even, coverage=0.0)
        found = replace(found, top_k=stop.get("top_k", k))
        others = {key: value for key, value in stop.items() if key != "top_k"}
        yield replace(base, retrieval=found, filters=narrowed, **{"dynamic_k": DynamicK(), **others})


def _searched(values: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The fields that are tried as filters."""
    return {field: known for field, known in values.items() if 1 < len(known) <= MAX_FIELD_VALUES}


def neighbours(
    config: SearchConfig, base: SearchConfig, values: Mapping[str, Sequence[str]], *, k: int
) -> Iterator[SearchConfig]:
    """Every config that differs from `config` in one choice."""
    replace = msgspec.structs.replace
    found, cut = config.retrieval, config.dynamic_k
    for one in _other_retrievals(found, k):
        detection = base.distraction_detection if one.method == "hybrid" else Detection()
        limit = replace(cut, min_results=min(cut.min_results, one.top_k), max_results=one.top_k)
        yield replace(
            config, retrieval=one, dynamic_k=limit if cut.enabled else cut, distraction_detection=detection
        )
    for bar in BARS:
        yield replace(config, abstention=_bar(bar))
    yield replace(config, dynamic_k=replace(base.dynamic_k, enabled=False))
    for factor in (2.0, *_around(cut.gap_threshold_factor, 0.5, 1.25, 5.0)):
        for least in {1, min(2, found.top_k)}:
            yield replace(
                config,
                dynamic_k=DynamicK(
                    enabled=True, gap_threshold_factor=factor, min_results=least, max_results=found.top_k
                ),
            )
    for field, known in _searched(values).items():
        kept = tuple(config.filters.get(field, known))
        for value in known:
            changed = tuple(one for one in known if (one in kept) != (one == value))
            others = {name: wanted for name, wanted in config.filters.items() if name != field}
            if changed:
                yield replace(
                    config, filters=others if len(changed) == len(known) else {**others, field: changed}
                )


def _other_retrievals(found: Retrieval, k: int) -> Iterator[Retrieval]:
    replace = msgspec.structs.replace
    yield replace(found, method="keyword", fusion="weighted")
    yield replace(found, method="vector", fusion="weighted")
    for fusion in ("rrf", "weighted"):
        yield replace(found, method="hybrid", fusion=fusion)
    share = found.weights.get("semantic", 0.0) / (sum(found.weights.values()) or 1.0)
    if found.method == "hybrid":
        for other in _around(share, 0.1, 0.1, 0.9):
            yield replace(found, weights={"semantic": other, "lexical": round(1 - other, 2)})
    for top_k in {1, 2, 3, found.top_k - 1, found.top_k + 1, k}:
        if 1 <= top_k <= k:
            yield replace(found, top_k=top_k)
    for coverage in COVERAGES:
        yield replace(found, coverage=coverage)


def _around(value: float, step: float, low: float, high: float) -> list[float]:
    """One and two steps to either side, within bounds."""
    near = (value + step * count for count in (-2, -1, 1, 2))
    return [round(other, 2) for other in near if low <= round(other, 2) <= high]


def _bar(bar: Level) -> Abstention:
    return Abstention(enabled=True, bar=bar) if bar != "weak" else Abstention()


TRIALS = 600
SECONDS = 40.0
IDLE = 0.2
"""What a result that neither answers nor misleads costs, as a share of a query."""
Clock = Callable[[], float]
GROUPS: tuple[tuple[str, ...], ...] = (
    ("filters",),
    ("dynamic_k",),
    ("abstention",),
    ("retrieval.coverage",),
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
        """The changes and their reasons, for the config file."""
        lines = [
            f"Found by autotune from {self.base.name} in {self.trials} trials: on the tune split nUDCG "
            f"{self.before.nudcg:.3f} → {self.after.nudcg:.3f}, distractors {self.before.distractors} → "
            f"{self.after.distractors}."
        ]
        return " ".join([*lines, *(effect.line() + "." for effect in self.effects)])[:4000]


def worth(score: QueryScore) -> float:
    """The worth of one answer to the search.

    nUDCG, or silence where there is no answer; less a whole query per distractor; less a little for every
    other result that does not answer, because it may be a distractor that nobody has labelled.
    """
    gain = score.nudcg if score.nudcg is not None else float(score.abstained)
    relevant = round((score.precision or 0.0) * score.returned)
    idle = score.returned - relevant - len(score.distractors)
    return gain - len(score.distractors) - IDLE * idle


def objective(scores: Sequence[QueryScore]) -> float:
    """The mean worth of the answers, which the search maximises."""
    return math.fsum(worth(score) for score in scores) / max(1, len(scores))


def standard_error(scores: Sequence[QueryScore]) -> float:
    """The standard error of the objective over queries like these."""
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
    trials: int = TRIALS,
    seconds: float = SECONDS,
    clock: Clock = time.monotonic,
    progress: Progress | None = None,
) -> Tuned:
    """Search for a config that answers the tune split best.

    Args:
        ask: Answers a query under a config.
        base: Where to start; it is the first trial, so the result is never worse than it.
        eval_set: Only its tune split is used.
        values: Per filterable field the values that documents have.
        trials: At most so many configs are tried.
        seconds: No new trial is begun after so long.
        clock: For the budget.
        progress: Called after every trial.
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

    def spent() -> bool:
        return number >= trials or clock() - started >= seconds

    def attempt(config: SearchConfig) -> Tried:
        nonlocal best, number
        if config_hash(config) not in seen:
            number += 1
            best = max(best, measure(config), key=lambda tried: tried.value)
            if progress is not None:
                progress(number, trials)
        return measure(config)

    begun = [first]
    for config in starts(base, values, k=eval_set.k):
        if not spent() and not refused_by_pipeline(config):
            begun.append(attempt(config))
    for stands in sorted(begun, key=lambda tried: -tried.value):
        _climb(stands, lambda config: neighbours(config, base, values, k=eval_set.k), attempt, spent)
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
    stands: Tried,
    around: Callable[[SearchConfig], Iterator[SearchConfig]],
    attempt: Callable[[SearchConfig], Tried],
    spent: Callable[[], bool],
) -> None:
    """Walk to the best neighbour until none is better, or the budget is spent."""
    while not spent():
        tried = [stands]
        for config in around(stands.config):
            if not spent() and not refused_by_pipeline(config):
                tried.append(attempt(config))
        best = max(tried, key=lambda one: one.value)
        if best is stands:
            return
        stands = best


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


def tune_workspace(
    workspace: Workspace,
    bank: Bank,
    base: SearchConfig,
    eval_set: EvalSet,
    *,
    name: str | None = None,
    trials: int = TRIALS,
    seconds: float = SECONDS,
    clock: Clock = time.monotonic,
    progress: Progress | None = None,
) -> Tuned:
    """Search from `base` and write the best config to configs/, with a note of what it changed and why."""
    chosen = free_name(workspace, name)
    ready(workspace, bank, base, eval_set)
    collection = workspace.collection_of(base)
    values: dict[str, list[str]] = {}
    if collection is not None:
        known = read_sources(workspace, collection).values()
        values = {field: list(counted) for field, counted in known.items()}
    found = autotune(
        SteadySearcher(bank).ask,
        base,
        eval_set,
        values,
        trials=trials,
        seconds=seconds,
        clock=clock,
        progress=progress,
    )
    config = msgspec.structs.replace(found.config, name=chosen, note=found.note())
    write_json(
        workspace.root / "configs" / f"{chosen}.json", {"$schema": "./config.schema.json", **to_raw(config)}
    )
    return msgspec.structs.replace(found, config=config)


def free_name(workspace: Workspace, name: str | None) -> str:
    """The name for a new config: the one asked for, or the next `auto-N`. No file is ever overwritten."""
    folder = workspace.root / "configs"
    if name is None:
        number = 1
        while (folder / f"auto-{number}.json").exists():
            number += 1
        return f"auto-{number}"
    if not is_name(name) or name == ACTIVE:
        what, fix = f"{name[:80]!r} cannot name a config", "use letters, digits and dashes, and not 'active'"
        raise RefusedError([Finding(code="bad-name", file="configs", what=what, fix=fix)])
    if (folder / f"{name}.json").exists():
        what, fix = f"configs/{name}.json exists already", "choose another name"
        raise RefusedError([Finding(code="not-empty", file=f"configs/{name}.json", what=what, fix=fix)])
    return name
