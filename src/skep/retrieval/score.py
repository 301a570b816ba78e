"""Ranking signals and their fusion: pure functions of arrays.

A signal lies in [0, 1], larger is better. `candidates` calls them; nothing here touches storage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from skep.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

DAY = 86_400.0
FULL_CONFIRMATION = 5
"""Independent confirmations that count as certainty."""
MAX_TRUST = 2.0
MOST_PER_TERM = 2.2
"""The largest BM25 score of one term in units of its rarity (k1 + 1)."""
RRF_K = 60


def words(scores: ArrayLike, idf: ArrayLike) -> Floats:
    """BM25 as a share of the most that a text could score for the question, unknown terms included.

    The scale is the same in a bank of twenty and in one of a million, so that one common word of a question never
    counts as much as a text that answers it.
    """
    most = MOST_PER_TERM * float(np.sum(np.asarray(idf, np.float64)))
    bm25 = np.maximum(np.asarray(scores, np.float64), 0.0)
    return np.minimum(bm25 / most, 1.0) if most > 0 else np.zeros(len(bm25))


def semantic(calibrated: ArrayLike) -> Floats:
    """Cosines on the calibrated scale, clipped at 0; absent ones (nan) are 0."""
    return np.minimum(np.fmax(np.asarray(calibrated, dtype=np.float64), 0.0), 1.0)


def lexical(scores: ArrayLike) -> Floats:
    """BM25 scores as a share of the best in the pool; all 0 where no word matched."""
    bm25 = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    best = bm25.max() if bm25.size else 0.0
    return bm25 / best if best > 0 else bm25


def disagreement(words: Floats, calibrated: Floats) -> Floats:
    """How far a text that shares words with the question lies behind the nearest in meaning, as a share of that.

    Ranks by words and by meaning differ as much for what answers as for what misleads; this does not.

    >>> disagreement(np.array([2.0, 3.0, 0.0]), np.array([0.8, 0.2, 0.1])).tolist()
    [0.0, 0.75, 0.0]
    """
    meaning = semantic(calibrated)
    best = meaning.max(initial=0.0)
    known = (words > 0) & ~np.isnan(calibrated) & (best > 0)
    return np.where(known, 1.0 - meaning / (best or 1.0), 0.0)


def coverage(impacts: Floats, idf: Floats) -> Floats:
    """The share of the question that each memory holds: its terms, weighted by how rare they are."""
    total = float(idf.sum())
    return (impacts > 0) @ idf / total if total > 0 else np.zeros(len(impacts))


def recency(created_at: ArrayLike, now: float, *, rate: float = 0.1) -> Floats:
    """exp(-rate * age in days); a time in the future counts as now."""
    age = (now - np.asarray(created_at, dtype=np.float64)) / DAY
    return cast("Floats", np.exp(-rate * np.maximum(age, 0.0)))


def confidence(stored: ArrayLike, last_evidence_at: ArrayLike, now: float, *, rate: float = 0.0) -> Floats:
    """Confidence as it is stored; with a rate, faded by the days since the last evidence."""
    return np.asarray(stored, dtype=np.float64) * recency(last_evidence_at, now, rate=rate)


def confirmations(counts: ArrayLike) -> Floats:
    """min(1, independent confirmations / 5)."""
    return np.minimum(1.0, np.asarray(counts, dtype=np.float64) / FULL_CONFIRMATION)


def trust(values: ArrayLike) -> Floats:
    """min(1, source trust / 2); trust lives in [0, 2] and is 1 by default."""
    return np.minimum(1.0, np.asarray(values, dtype=np.float64) / MAX_TRUST)


def usage(uses: ArrayLike) -> Floats:
    """ln(1 + uses) as a share of the most used memory of the pool; all 0 where none was used."""
    logs = np.log1p(np.maximum(np.asarray(uses, dtype=np.float64), 0.0))
    most = logs.max() if logs.size else 0.0
    return logs / most if most > 0 else logs


def ranks(values: ArrayLike, present: ArrayLike | None = None) -> Ints:
    """Positions from 1 by falling value; equal values share the better one; absent is len(list) + 1.

    Args:
        values: One value per candidate; nan comes last.
        present: The candidates that are in this ranking at all; all by default.
    """
    array = np.asarray(values, dtype=np.float64)
    if present is not None and not (there := np.asarray(present, dtype=bool)).all():
        inside = ranks(array[there])
        out = np.full(len(array), len(inside) + 1, dtype=np.int64)
        out[there] = inside
        return out
    array = np.fmax(array, -np.inf)
    return len(array) + 1 - np.sort(array).searchsorted(array, side="right")


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


def reciprocal(ranks: Sequence[Ints], weights: Sequence[float], *, k: int = RRF_K) -> Floats:
    """`fuse_ranks` on arrays of ranks, one per signal, with a weight each."""
    return np.sum([weight / (k + rank) for rank, weight in zip(ranks, weights, strict=True)], axis=0)


def weighted(signals: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """The weighted mean of signals that are already on one scale.

    A signal that is missing should be left out of `signals`; the remaining weights are then renormalised.
    """
    check_weights(weights)
    used = [(name, weight) for name, weight in weights.items() if weight > 0 and name in signals]
    total = sum(weight for _, weight in used)
    size = len(next(iter(signals.values()))) if signals else 0
    out = np.zeros(size, dtype=np.float64)
    for name, weight in used:
        out += (weight / total) * signals[name]
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


def total_order(score: Floats, importance: Floats, created_at: Floats, ids: Sequence[str] | Ints) -> Ints:
    """Positions from best to worst: score, then importance, then newer, then id. Total and repeatable."""
    return np.lexsort((np.asarray(ids), -created_at, -importance, -score))
