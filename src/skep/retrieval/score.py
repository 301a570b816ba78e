"""Ranking signals, their fusion, and the level of a hit: pure functions of arrays.

A signal lies in [0, 1], larger is better. A score says how well a hit fits the question, and the distance to the next
one whether it stands out. Whether the question has an answer at all no score can tell. `training/fit_levels.py` fits
the weights of levels on questions that the encoder has not seen; training/LEVELS.md says how often hits of each level
are right. The pipeline calls this; nothing here touches storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from skep.retrieval.recall_config import RecallConfig

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


def ranks(values: ArrayLike) -> Ints:
    """Positions from 1 by falling value; equal values share the better one, nan comes last."""
    array = np.fmax(np.asarray(values, dtype=np.float64), -np.inf)
    return len(array) + 1 - np.sort(array).searchsorted(array, side="right")


def reciprocal(ranks: Sequence[Ints], weights: Sequence[float], *, k: int = RRF_K) -> Floats:
    """Fuse rankings by reciprocal rank: one array of ranks per signal, with a weight each.

    Only positions count, so BM25 scores and cosines never need a common scale. Larger `k` flatten the advantage of the
    first ranks.
    """
    return np.sum([weight / (k + rank) for rank, weight in zip(ranks, weights, strict=True)], axis=0)


def weighted(signals: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """The weighted mean of signals that are already on one scale.

    A signal that is missing should be left out of `signals`; the remaining weights are then renormalised.
    """
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


class Scores(NamedTuple):
    """The scores of candidates, and the signals and ranks that explain them."""

    score: Floats
    signals: dict[str, Floats]
    ranks: dict[str, Ints]


def scored(
    bm25: Floats, cosine: Floats, idf: Floats | None, priors: Mapping[str, Floats], config: RecallConfig
) -> Scores:
    """The scores of candidates by the fusion that a config names.

    Args:
        bm25: Of each candidate.
        cosine: On the calibrated scale; nan where there is no vector.
        idf: Of the terms of the question; None where nothing is looked up by words.
        priors: Signals that do not depend on the question.
        config: Weights and fusion.
    """
    values: dict[str, Floats] = {}
    places = {"lexical": ranks(bm25), "semantic": ranks(cosine)}
    if bm25.max(initial=0.0) > 0:
        values["lexical"] = lexical(bm25)
    if "words" in config.weights and idf is not None:
        values["words"] = words(bm25, idf)
    if not np.isnan(cosine).all():
        values["semantic"] = semantic(cosine)
    values |= priors
    kept = {name: each for name, each in values.items() if name != "lexical" or "words" not in values}
    shown = {name: each for name, each in places.items() if name in values}
    return Scores(_fused(values, places, len(bm25), config), kept, shown)


def _fused(values: dict[str, Floats], places: dict[str, Ints], count: int, config: RecallConfig) -> Floats:
    weights = config.weights
    if config.fusion == "rrf":
        used = [name for name in places if weights.get(name, 0) > 0]
        return reciprocal([places[name] for name in used], [weights[name] for name in used], k=config.rrf_k)
    if config.fusion == "product":
        base = values.get("semantic", np.zeros(count))
        return product(base, {k: v for k, v in values.items() if k != "semantic"}, weights)
    return weighted(values, weights) if values else np.zeros(count)


RIVAL = "rival"
"""Signal: how likely a newer candidate updates this one. It is not shown."""
DISAGREEMENT = "disagreement"
"""Signal: see `disagreement`. It is not shown; from a bar on it is a flag."""
LEVEL = "level"
"""Signal: the place in `LEVELS`. It is shown as the level of a hit."""
LEVELS = ("weak", "likely", "strong")
LEVEL_WEIGHTS = (4.772, 3.265, -9.097, -0.843)
LEVEL_BIAS = -2.076
LIKELY, STRONG = 0.45, 0.8
"""The probabilities from which a hit is likely and strong."""
RIVALLED = 0.15
"""A hit that a newer memory updates with this probability is not strong, however well it fits."""


def trusted(
    score: Floats, words: Floats, calibrated: Floats, signals: Mapping[str, Floats]
) -> dict[str, Floats]:
    """The signals with those that say how far to trust each candidate: its level and its `disagreement`."""
    return {**signals, LEVEL: levels(score, signals), DISAGREEMENT: disagreement(words, calibrated)}


def levels(score: Floats, signals: Mapping[str, Floats]) -> Floats:
    """The level of each candidate as its place in `LEVELS`; candidates come best first.

    The weights are for the scale of `default`. Other presets are judged by their cosines, which lie close to it.
    """
    rival = signals.get(RIVAL, np.zeros(len(score)))
    fit = score if "words" in signals else signals.get("semantic", np.zeros(len(score)))
    odds = level_features(fit, rival) @ np.array(LEVEL_WEIGHTS) + LEVEL_BIAS
    probability = 1.0 / (1.0 + np.exp(-odds))
    return (probability >= LIKELY).astype(np.float64) + ((probability >= STRONG) & (rival < RIVALLED))


def level_features(score: Floats, rival: Floats) -> Floats:
    """One row per hit, best first: its score, how far it stands above the next one and how far below the best, and how
    likely a newer memory updates it."""
    if not len(score):
        return np.zeros((0, len(LEVEL_WEIGHTS)))
    above = np.maximum(score - np.append(score[1:], 0.0), 0.0)
    return np.stack([score, above, score.max() - score, rival], axis=1)
