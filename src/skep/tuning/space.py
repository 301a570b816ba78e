"""What autotune may change, how each choice is drawn, and where to begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

import msgspec

from skep.tuning.search_config import Abstention, Detection, DynamicK, Retrieval, SearchConfig

MAX_FIELD_VALUES = 12
"""Fields with more values than this are not tried as filters: there would be too many subsets."""


class Trial(Protocol):
    """The part of an Optuna trial that is used here."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of `choices`."""
        ...

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None = None) -> float:
        """A number between `low` and `high`."""
        ...

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """A whole number between `low` and `high`, both included."""
        ...


def starts(values: Mapping[str, Sequence[str]], *, k: int) -> Iterator[dict[str, Any]]:
    """Choices that often help, to be tried first: leave one value out, fuse scores, stop early; one at a time and
    together."""
    filters: list[dict[str, Any]] = [{f"filter {field}": False for field in _searched(values)}]
    for field, known in _searched(values).items():
        for left_out in known:
            kept = {f"{field}: {value}": value != left_out for value in known}
            filters.append({**filters[0], f"filter {field}": True, **kept})
    fusions: list[dict[str, Any]] = [
        {"method": "hybrid", "fusion": fusion, "semantic share": 0.5}
        for fusion in ("minmax", "weighted", "rrf")
    ]
    stops: list[dict[str, Any]] = [
        {"dynamic_k": False, "relative floor": 0.8, "top_k": k},
        {"dynamic_k": True, "gap factor": 2.0, "min_results": 1, "relative floor": 0.0, "top_k": k},
        {"dynamic_k": False, "relative floor": 0.0, "top_k": min(2, k)},
    ]
    for fusion, stop, narrowed in product(fusions, stops, filters):
        yield {**fusion, **narrowed, **stop, "floor": 0.0, "late": 0.0}


def _searched(values: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The fields that are tried as filters."""
    return {field: known for field, known in values.items() if 1 < len(known) <= MAX_FIELD_VALUES}


def draw(trial: Trial, base: SearchConfig, values: Mapping[str, Sequence[str]], *, k: int) -> SearchConfig:
    """A config that differs from `base` in whatever the trial says.

    Args:
        trial: Draws the choices.
        base: Supplies the collection and whatever is not searched.
        values: Per filterable field the values that documents have.
        k: How many results the evals look at; more are never asked for.
    """
    found = _retrieval(trial, base.retrieval, k)
    detection = base.distraction_detection
    if found.method != "hybrid":
        detection = msgspec.structs.replace(detection, enabled=False)
    return msgspec.structs.replace(
        base,
        retrieval=found,
        filters=_filters(trial, base, values),
        dynamic_k=_dynamic_k(trial, base.dynamic_k, found.top_k),
        abstention=_abstention(trial),
        distraction_detection=detection,
    )


def _retrieval(trial: Trial, base: Retrieval, k: int) -> Retrieval:
    method = trial.suggest_categorical("method", ["hybrid", "keyword", "vector"])
    fusion, weights = base.fusion, base.weights
    if method == "hybrid":
        fusion = trial.suggest_categorical("fusion", ["rrf", "weighted", "minmax"])
        share = trial.suggest_float("semantic share", 0.1, 0.9, step=0.1)
        weights = {"semantic": round(share, 2), "lexical": round(1 - share, 2)}
    elif fusion != "rrf":
        fusion = "weighted"
    return msgspec.structs.replace(
        base,
        method=method,
        fusion=fusion,
        weights=weights,
        top_k=trial.suggest_int("top_k", 1, k),
        late=trial.suggest_categorical("late", [0.0, 0.25, 0.5, 1.0]),
    )


def _filters(
    trial: Trial, base: SearchConfig, values: Mapping[str, Sequence[str]]
) -> dict[str, tuple[Any, ...]]:
    filters: dict[str, tuple[Any, ...]] = {}
    searched = _searched(values)
    filters |= {field: kept for field, kept in base.filters.items() if field not in searched}
    for field, known in searched.items():
        if not trial.suggest_categorical(f"filter {field}", [False, True]):
            continue
        kept = tuple(
            value for value in known if trial.suggest_categorical(f"{field}: {value}", [True, False])
        )
        if kept and len(kept) < len(known):
            filters[field] = kept
    return filters


def _dynamic_k(trial: Trial, base: DynamicK, top_k: int) -> DynamicK:
    if not trial.suggest_categorical("dynamic_k", [False, True]):
        return msgspec.structs.replace(base, enabled=False)
    return DynamicK(
        enabled=True,
        gap_threshold_factor=trial.suggest_float("gap factor", 1.25, 5.0, step=0.25),
        min_results=min(top_k, trial.suggest_int("min_results", 1, 3)),
        max_results=top_k,
    )


def _abstention(trial: Trial) -> Abstention:
    floor = trial.suggest_float("floor", 0.0, 0.6, step=0.05)
    return _bar(floor, trial.suggest_float("relative floor", 0.0, 0.95, step=0.05))


def neighbours(
    config: SearchConfig, base: SearchConfig, values: Mapping[str, Sequence[str]], *, k: int
) -> Iterator[SearchConfig]:
    """Every config that differs from `config` in one choice."""
    replace = msgspec.structs.replace
    found, cut, bar = config.retrieval, config.dynamic_k, config.abstention
    for one in _other_retrievals(found, k):
        detection = base.distraction_detection if one.method == "hybrid" else Detection()
        limit = replace(cut, min_results=min(cut.min_results, one.top_k), max_results=one.top_k)
        yield replace(
            config, retrieval=one, dynamic_k=limit if cut.enabled else cut, distraction_detection=detection
        )
    for floor in (0.0, *_around(bar.floor, 0.05, 0.0, 0.6)):
        yield replace(config, abstention=_bar(floor, bar.relative_floor))
    for relative in (0.0, 0.8, *_around(bar.relative_floor, 0.05, 0.0, 0.95)):
        yield replace(config, abstention=_bar(bar.floor if bar.enabled else 0.0, relative))
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
    for fusion in ("rrf", "weighted", "minmax"):
        yield replace(found, method="hybrid", fusion=fusion)
    share = found.weights.get("semantic", 0.0) / (sum(found.weights.values()) or 1.0)
    if found.method == "hybrid":
        for other in _around(share, 0.1, 0.1, 0.9):
            yield replace(found, weights={"semantic": other, "lexical": round(1 - other, 2)})
    for top_k in {1, 2, 3, found.top_k - 1, found.top_k + 1, k}:
        if 1 <= top_k <= k:
            yield replace(found, top_k=top_k)
    for late in (0.0, 0.25, 0.5, 1.0):
        yield replace(found, late=late)


def _around(value: float, step: float, low: float, high: float) -> list[float]:
    """One and two steps to either side, within bounds."""
    near = (value + step * count for count in (-2, -1, 1, 2))
    return [round(other, 2) for other in near if low <= round(other, 2) <= high]


def _bar(floor: float, relative: float) -> Abstention:
    return Abstention(
        enabled=floor > 0 or relative > 0, floor=round(floor, 2), relative_floor=round(relative, 2)
    )
