"""Ways to make one score out of several signals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep import kernels
from skep.errors import ConfigError
from skep.retrieval.config import QUERY_SIGNALS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RRF_K = 60
FEW = 1024
"""What the ranks of fewer candidates are worth is remembered."""
_BY_QUERY = frozenset(QUERY_SIGNALS)


def fuse_ranks(rankings: Mapping[str, Sequence[str]], *, k: int = RRF_K) -> dict[str, float]:
    """Fuse rankings by reciprocal rank.

    Only positions count, so BM25 scores and cosines never need a common scale. A document missing from
    one list takes rank len(list) + 1 there.

    Args:
        rankings: Ranked ids per signal, e.g. `{"lexical": [...], "semantic": [...]}`.
        k: Larger values flatten the advantage of the first ranks.

    >>> {k: round(v, 4) for k, v in fuse_ranks({"lexical": ["a", "b"], "semantic": ["a"]}).items()}
    {'a': 0.0328, 'b': 0.0323}
    """
    everything = dict.fromkeys(key for ranked in rankings.values() for key in ranked)
    scores = dict.fromkeys(everything, 0.0)
    for ranked in rankings.values():
        position = {key: rank for rank, key in enumerate(ranked, start=1)}
        for key in scores:
            scores[key] += 1.0 / (k + position.get(key, len(ranked) + 1))
    return scores


def reciprocal(ranks: Sequence[NDArray[np.int64]], weights: Sequence[float], *, k: int = RRF_K) -> Floats:
    """`fuse_ranks` on arrays of ranks, one per signal, with a weight each."""
    total = _shares(ranks[0], weights[0], k)
    for rank, weight in zip(ranks[1:], weights[1:], strict=True):
        total += _shares(rank, weight, k)
    return total


def _shares(ranks: NDArray[np.int64], weight: float, k: int) -> Floats:
    """What a signal gives to each rank; ranks lie between 1 and how many there are."""
    return _first_shares(weight, k)[ranks] if len(ranks) < FEW else weight / (k + ranks)


@lru_cache(maxsize=16)
def _first_shares(weight: float, k: int) -> Floats:
    """What a signal gives to each of the first ranks; there is no rank 0."""
    return weight / (k + np.maximum(np.arange(FEW + 1), 1))


def by_query_alone(how: str, weights: Mapping[str, float], k: int) -> tuple[tuple[float, float], int] | None:
    """The weights of words and of meaning, and `k` (-1 for a weighted mean), where these two alone decide; or None.

    So compiled loops take a way to fuse.
    """
    if how not in ("rrf", "weighted") or k < 0 or not weights.keys() <= _BY_QUERY:
        return None
    one, other = weights.get("lexical", 0), weights.get("semantic", 0)
    if not (0 <= one < math.inf and 0 <= other < math.inf and one + other > 0):
        return None
    return (one, other), k if how == "rrf" else -1


def weighted(signals: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """The weighted mean of signals that are already on one scale.

    A signal that is 0 for every candidate because it is missing should be left out of `signals`; the
    remaining weights are then renormalised.
    """
    check_weights(weights)
    used = [(name, weight) for name, weight in weights.items() if weight > 0 and name in signals]
    total = sum(weight for _, weight in used)
    size = len(next(iter(signals.values()))) if signals else 0
    out = np.zeros(size, dtype=np.float64)
    for name, weight in used:
        out += (weight / total) * signals[name]
    return out


def minmax(values: Floats, present: NDArray[np.bool_] | None = None) -> Floats:
    """Values stretched to [0, 1] within the pool; absent ones and constant pools are 0.

    >>> minmax(np.array([2.0, 3.0, 6.0])).tolist()
    [0.0, 0.25, 1.0]
    """
    if present is not None:
        out = np.zeros(len(values), dtype=np.float64)
        if present.any():
            out[present] = minmax(values[present])
        return out
    if not values.size:
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros(len(values), dtype=np.float64)


def stretched(values: Floats) -> Floats:
    """`minmax` of those that are numbers; the others are 0."""
    if kernels.native is None:
        return minmax(values, ~np.isnan(values))
    out = np.empty(len(values))
    kernels.native.stretch(values, out)
    return out


def product(base: Floats, boosts: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """The base, multiplied by 1 + weight * signal for every boost, divided by the largest boost possible."""
    out = base.copy()
    for name, values in boosts.items():
        weight = weights.get(name, 0.0)
        if weight > 0:
            out *= (1.0 + weight * values) / (1.0 + weight)
    return out


def check_weights(weights: Mapping[str, float]) -> None:
    """Refuse weights that cannot rank: negative, not a number, or all zero."""
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ConfigError(f"the weight of {name} must be a number of at least 0, not {weight!r}")
    if not any(weights.values()):
        raise ConfigError(
            "all weights are 0, so every memory would score alike; give at least one signal a weight"
        )


def total_order(
    score: Floats, importance: Floats, created_at: Floats, ids: Sequence[str] | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Positions from best to worst: score, then importance, then newer, then id. Total and repeatable."""
    last = np.asarray(ids)
    return np.lexsort((last, -created_at, -importance, -score))


def order_by_score(score: Floats) -> NDArray[np.int64] | None:
    """The same by the score alone; None where it leaves something open: equal scores, or some that are no number."""
    falling = -score
    order = falling.argsort(kind="stable")
    ranked = falling[order]
    return order if bool((ranked[1:] > ranked[:-1]).all()) else None


def best_first(
    score: Floats, at: NDArray[np.int64], importance: Floats, created_at: Floats, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats]:
    """Some of the candidates and their scores in the order of `total_order`.

    Args:
        score: One for each of them.
        at: Which ones they are.
        importance: Of every candidate.
        created_at: The same.
        rows: The same.
    """
    if kernels.native is not None:
        ordered, scores = np.empty(len(score), dtype=np.int64), np.empty(len(score))
        kernels.native.ordered(score, at, importance, created_at, rows, ordered, scores)
        return ordered, scores
    order = order_by_score(score)
    if order is None:
        order = total_order(score, importance[at], created_at[at], rows[at])
    return at[order], score[order]
