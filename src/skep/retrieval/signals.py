"""The ranking signals, each a pure function of arrays. All lie in [0, 1], larger is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from skep import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

DAY = 86_400.0
FULL_CONFIRMATION = 5
"""Independent confirmations that count as certainty."""
MAX_TRUST = 2.0
DECAY_PER_DAY = 0.01
WORDED, PLACED = 1, 2
"""What the compiled loop says of candidates: some word matched, some have a cosine."""


def by_query(words: Floats, calibrated: Floats) -> tuple[dict[str, Floats], dict[str, Ints]]:
    """`lexical` where a word matched and `semantic` where there is a cosine, and the `ranks` by both in any case.

    Args:
        words: BM25 scores; at least one.
        calibrated: As many cosines on the calibrated scale; nan where there is none.
    """
    if kernels.native is None:
        values = {"lexical": lexical(words)} if words.max() > 0 else {}
        if not np.isnan(calibrated).all():
            values["semantic"] = semantic(calibrated)
        return values, {"lexical": ranks(words), "semantic": ranks(calibrated)}
    shape = 2, len(words)
    measured, places = np.empty(shape), np.empty(shape, dtype=np.int64)
    known = kernels.native.rates(words, calibrated, measured, places)
    return _named(known, measured, places)


def ranked(
    words: Floats,
    calibrated: Floats,
    weights: tuple[float, float],
    k: int,
    importance: Floats,
    created_at: Floats,
    rows: Ints,
    *,
    shown: bool,
) -> tuple[dict[str, Floats], dict[str, Ints], Ints, Floats]:
    """The same, and then the order and the scores that `fusion` gives; only with compiled loops.

    Args:
        words: BM25 scores; at least one.
        calibrated: As many cosines.
        weights: Of words and of cosines.
        k: As in `fusion.reciprocal`; below 0, scores are those of `fusion.weighted`.
        importance: What decides between equal scores first.
        created_at: What decides then.
        rows: What decides last.
        shown: Whether signals and ranks are wanted, and not the order alone.
    """
    at, score = np.empty(len(words), np.int64), np.empty(len(words))
    if not shown:
        kernels.native.rank(
            words, calibrated, weights, k, importance, created_at, rows, None, None, at, score
        )
        return {}, {}, at, score
    shape = 2, len(words)
    measured, places = np.empty(shape), np.empty(shape, np.int64)
    known = kernels.native.rank(
        words, calibrated, weights, k, importance, created_at, rows, measured, places, at, score
    )
    return *_named(known, measured, places), at, score


def of_lines(
    lines: Floats, weights: tuple[float, float], k: int, scale: tuple[Any, ...], *, shown: bool
) -> tuple[Floats, dict[str, Floats], dict[str, Ints], Ints, Floats]:
    """The same for a pool of the index, after its cosines on their scale.

    Args:
        lines: Of the pool; at least one candidate.
        weights: Of words and of cosines.
        k: As in `ranked`.
        scale: The points of the scale of its cosines and how high they lie; empty where cosines are taken as they are.
        shown: Whether signals and ranks are wanted, and not the order alone.
    """
    told = np.empty((7 if shown else 3, lines.shape[1]))
    known = kernels.native.ranked(lines, weights, k, scale or None, told)
    whole = told.view(np.int64)
    if not shown:
        return told[0], {}, {}, whole[1], told[2]
    return told[0], *_named(known, told[3:5], whole[5:7]), whole[1], told[2]


def _named(known: int, measured: Floats, places: Ints) -> tuple[dict[str, Floats], dict[str, Ints]]:
    values = {"lexical": measured[0]} if known & WORDED else {}
    if known & PLACED:
        values["semantic"] = measured[1]
    return values, {"lexical": places[0], "semantic": places[1]}


def semantic(calibrated: ArrayLike) -> Floats:
    """Cosines on the calibrated scale, clipped at 0; absent ones (nan) are 0."""
    return np.minimum(np.fmax(np.asarray(calibrated, dtype=np.float64), 0.0), 1.0)


def lexical(words: ArrayLike) -> Floats:
    """BM25 scores as a share of the best in the pool; all 0 where no word matched."""
    scores = np.maximum(np.asarray(words, dtype=np.float64), 0.0)
    best = scores.max() if scores.size else 0.0
    return scores / best if best > 0 else scores


def recency(created_at: ArrayLike, now: float, *, rate: float = 0.1) -> Floats:
    """exp(-rate * age in days); what lies in the future counts as now."""
    age = (now - np.asarray(created_at, dtype=np.float64)) / DAY
    return cast("Floats", np.exp(-rate * np.maximum(age, 0.0)))


def confidence(
    stored: ArrayLike, last_evidence_at: ArrayLike, now: float, *, rate: float = DECAY_PER_DAY
) -> Floats:
    """Effective confidence: what is stored, faded by the days since the last evidence."""
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


def ranks(values: ArrayLike, present: ArrayLike | None = None) -> NDArray[np.int64]:
    """Positions from 1 by falling value; equal values share the better one; absent is len(list) + 1.

    Args:
        values: One value per candidate; what is no number comes last.
        present: Which candidates are in this ranking at all; all by default.
    """
    array = np.asarray(values, dtype=np.float64)
    if present is not None and not (there := np.asarray(present, dtype=bool)).all():
        inside = ranks(array[there])
        out = np.full(len(array), len(inside) + 1, dtype=np.int64)
        out[there] = inside
        return out
    if kernels.native is not None:
        out = np.empty(len(array), dtype=np.int64)
        kernels.native.places(array, out)
        return out
    array = np.fmax(array, -np.inf)
    ascending = array.copy()
    ascending.sort()
    return len(array) + 1 - ascending.searchsorted(array, side="right")
