"""The arithmetic of the report: percentiles, recall, growth. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, interpolated.

    >>> percentile([1, 2, 3, 4, 5], 0.5), percentile([1, 2], 0.95)
    (3.0, 1.95)
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def recall(found: Sequence[str], truth: Sequence[str], k: int) -> float | None:
    """The share of the best `k` true answers among the first `k` found; None when there is no true answer.

    >>> recall(["a", "c"], ["a", "b"], 2)
    0.5
    """
    wanted = truth[:k]
    if not wanted:
        return None
    return len(set(found[:k]) & set(wanted)) / len(wanted)


def mean_recall(found: Sequence[Sequence[str]], truth: Sequence[Sequence[str]], k: int) -> float | None:
    """The mean over the questions that have an answer."""
    scores = [r for f, t in zip(found, truth, strict=False) if (r := recall(f, t, k)) is not None]
    return sum(scores) / len(scores) if scores else None


def growth(points: Mapping[int, float]) -> float | None:
    """The exponent e of time = c · size^e, by least squares on logarithms; None with fewer than two sizes.

    >>> round(growth({1000: 1.0, 10000: 10.0}), 3)
    1.0
    """
    usable = [(math.log(size), math.log(time)) for size, time in points.items() if time > 0]
    if len(usable) < 2:
        return None
    mx = sum(x for x, _ in usable) / len(usable)
    my = sum(y for _, y in usable) / len(usable)
    spread = sum((x - mx) ** 2 for x, _ in usable)
    return sum((x - mx) * (y - my) for x, y in usable) / spread


def summarise(rounds: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, float | int | list[float]]:
    """Medians over the rounds of each round's p50 and p95, in milliseconds; samples come in nanoseconds."""
    used = [r for r in rounds if r["wall_ns"]]
    if not used:
        return {}
    out: dict[str, float | int | list[float]] = {
        "n": sum(len(r["wall_ns"]) for r in used),
        "rounds": len(used),
    }
    for clock in ("wall", "cpu"):
        halves = [percentile(r[f"{clock}_ns"], 0.5) / 1e6 for r in used]
        tails = [percentile(r[f"{clock}_ns"], 0.95) / 1e6 for r in used]
        out[f"{clock}_p50"] = round(median(halves), 5)
        out[f"{clock}_p95"] = round(median(tails), 5)
        out[f"{clock}_range"] = [round(min(halves), 5), round(max(halves), 5)]
    return out
