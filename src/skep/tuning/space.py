"""What autotune may change, and how each choice is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from skep.tuning.search_config import Abstention, DynamicK, Retrieval, SearchConfig

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
    for field, known in values.items():
        if not 1 < len(known) <= MAX_FIELD_VALUES:
            if field in base.filters:
                filters[field] = base.filters[field]
            continue
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
    relative = trial.suggest_float("relative floor", 0.0, 0.95, step=0.05)
    return Abstention(
        enabled=floor > 0 or relative > 0, floor=round(floor, 2), relative_floor=round(relative, 2)
    )
