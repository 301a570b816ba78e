"""The ranking signals, each a pure function of arrays. All lie in [0, 1], larger is better.

Titles: what a memory is headed with, whether the query names it, and whether the first hits do.

A text that opens with "Blue Heron. ..." or "Blue Heron (bird): ..." is about it; one that holds the name somewhere is
not. And where the first hits name the title of another memory, that one is the next step: who asks for the river of the
town in which Ana was born names neither the river nor the town.

Ways to make one score out of several signals.

What follows from a recall config alone, whatever is asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
import numpy as np

from skep import runtime
from skep.errors import ConfigError
from skep.filters import Filter
from skep.retrieval.recall_config import QUERY_SIGNALS, RecallConfig
from skep.runtime import lazy
from skep.text.terms import STOP, joined_terms

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


if TYPE_CHECKING:
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

DAY = 86_400.0
FULL_CONFIRMATION = 5
"""Independent confirmations that count as certainty."""
MAX_TRUST = 2.0
WORDED, PLACED = 1, 2
"""What the compiled loop says of candidates: some word matched, some have a cosine."""


def by_query(words: Floats, calibrated: Floats) -> tuple[dict[str, Floats], dict[str, Ints]]:
    """`lexical` where a word matched and `semantic` where there is a cosine, and the `ranks` by both in any case.

    Args:
        words: BM25 scores; at least one.
        calibrated: As many cosines on the calibrated scale; nan where there is none.
    """
    if runtime.native is None:
        values = {"lexical": lexical(words)} if words.max() > 0 else {}
        if not np.isnan(calibrated).all():
            values["semantic"] = semantic(calibrated)
        return values, {"lexical": ranks(words), "semantic": ranks(calibrated)}
    shape = 2, len(words)
    measured, places = np.empty(shape), np.empty(shape, dtype=np.int64)
    known = runtime.native.rates(words, calibrated, measured, places)
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
        runtime.native.rank(
            words, calibrated, weights, k, importance, created_at, rows, None, None, at, score
        )
        return {}, {}, at, score
    shape = 2, len(words)
    measured, places = np.empty(shape), np.empty(shape, np.int64)
    known = runtime.native.rank(
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
    known = runtime.native.ranked(lines, weights, k, scale or None, told)
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
    if runtime.native is not None:
        out = np.empty(len(array), dtype=np.int64)
        runtime.native.places(array, out)
        return out
    array = np.fmax(array, -np.inf)
    ascending = array.copy()
    ascending.sort()
    return len(array) + 1 - ascending.searchsorted(array, side="right")


HEAD_CHARS = 80
MOST_TERMS = 8
"""What runs on for longer than this is a sentence."""
GUIDES = 5
"""How many of the first hits may name the next step."""
GUIDE_CHARS = 1000
"""What they say further on leads nowhere."""
MEMO_TEXTS = 8192
"""Texts of which the title is remembered: a bank's texts come up again and again."""

_mark = lazy(r"[.:;(\n–—-]")
_apart = lazy(r" [-–—] |[.:]\s|\n")
_which = lazy(r" \([^)\n]{1,40}\)(?=[.:]\s|\n| [-–—] )")


@lru_cache(maxsize=MEMO_TEXTS)
def title(text: str) -> str:
    """The terms that head a text, with a blank on either side; empty where nothing does.

    >>> title("Edward J. Hale (painter). He was born in Leeds."), title("He was born in Leeds")
    (' edward j hale ', '')
    """
    end = _end(text) if _mark.search(text, 1, HEAD_CHARS) else -1
    if end < 0 or not text[end + 2 : end + 44].strip():
        return ""
    words = joined_terms(text[:end]).split()
    if len(words) > MOST_TERMS or all(word in STOP or word.isdigit() for word in words):
        return ""
    return f" {' '.join(words)} "


def _end(text: str) -> int:
    """Where the title of a text ends; -1 where it has none.

    At a stop that does not follow an initial, a colon, a dash or a line break, and before what is said in brackets to
    tell it from its namesakes.
    """
    for mark in _mark.finditer(text, 1, HEAD_CHARS):
        at, sign = mark.start(), mark.group()
        if sign == ";":
            return -1
        if sign == "(":
            return at - 1 if _which.match(text, at - 1) else -1
        if sign in "-–—":
            at -= 1
        if _apart.match(text, at) and not (
            sign == "." and text[at - 1].isupper() and text[at - 2 : at - 1] in " ."
        ):
            return at
    return -1


def named(query: str, titles: Sequence[str]) -> Floats:
    """Whether the query holds each title, word for word; those that share one share the 1 as well.

    >>> named("Is Blue Heron a band?", [title("Blue Heron: a boat"), title("Heron: a bird"), ""]).tolist()
    [1.0, 1.0, 0.0]
    """
    if not any(titles):
        return np.zeros(len(titles))
    asked = _said(query)
    there = Counter(each for each in titles if each and each in asked)
    return np.array([1.0 / there[each] if each in there else 0.0 for each in titles])


def bridge(query: str, titles: Sequence[str], guides: Sequence[str], score: Floats) -> Floats:
    """How high a hit ranks that names each title which the query does not, 0..1; shared titles share it.

    Args:
        query: What is asked.
        titles: The titles of the short list, best first.
        guides: The texts of the first few.
        score: Their scores.

    >>> texts = ["Ana. She was born in Ulm.", "Bea: a cook", "Ulm. A town on the Danube."]
    >>> bridge("Where was Ana born?", [title(text) for text in texts], texts[:2], np.array([2.0, 1.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    out = np.zeros(len(titles))
    if not any(titles):
        return out
    asked = _said(query)
    unasked = Counter(each for each in titles if each and each not in asked)
    if not unasked or score[0] <= 0:
        return out
    for place, (guide, share) in enumerate(zip(guides, (score / score[0]).tolist(), strict=True)):
        said = _said(guide[:GUIDE_CHARS])
        next_steps = {each for each in unasked if each in said and each != titles[place]}
        for at, each in enumerate(titles) if next_steps else ():
            if each in next_steps:
                out[at] = max(out[at], share / unasked[each])
    return out


@lru_cache(maxsize=MEMO_TEXTS)
def _said(text: str) -> str:
    """All terms of a text, with a blank before and after each."""
    return f" {joined_terms(text)} "


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
    if runtime.native is None:
        return minmax(values, ~np.isnan(values))
    out = np.empty(len(values))
    runtime.native.stretch(values, out)
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
    if runtime.native is not None:
        ordered, scores = np.empty(len(score), dtype=np.int64), np.empty(len(score))
        runtime.native.ordered(score, at, importance, created_at, rows, ordered, scores)
        return ordered, scores
    order = order_by_score(score)
    if order is None:
        order = total_order(score, importance[at], created_at[at], rows[at])
    return at[order], score[order]


AT_FIRST = (
    *("name", "fusion", "weights", "k_words", "k_vectors", "rrf_k", "matched_terms"),
    *("recency_rate", "recency_basis", "reach", "shortlist", "window", "temporal_boost"),
    *("select", "mmr_lambda", "similarity", "dynamic_k", "cliff", "min_results", "max_results"),
    *("floor", "relative_floor", "short_floor", "brief_floor", "meaning_floor"),
    *("min_confidence", "min_importance", "disagreement", "expand"),
)
"""Fields of a config that ask nothing of the second look by themselves."""
_again = attrgetter(*(name for name in RecallConfig.__struct_fields__ if name not in AT_FIRST))
"""Every other field of a config."""
IDLE = _again(RecallConfig())
"""The values with which they ask nothing."""
ROOM = ("k_words", "k_vectors", "reach", "shortlist")
"""How many candidates each step takes."""
WAYS = 64
"""So many ways to answer are kept."""


class Way(NamedTuple):
    """What follows from a config and a limit, whatever is asked."""

    asked: RecallConfig
    """The config as it was given; held, so that no other one is taken for it."""
    config: RecallConfig
    """With room for as many hits as are asked for."""
    reads: bool
    """Whether anything looks at more of a query than its words."""
    again: bool
    """Whether there is a second look."""
    barred: bool
    """Whether something is asked of what is returned."""
    fusing: tuple[tuple[float, float], int] | None
    """How scores are made where words and meaning alone decide; see `fusion.by_query_alone`."""


_ways: dict[tuple[int, int, bool], Way] = {}


def way_of(config: RecallConfig, limit: int, *, read_less: bool) -> Way:
    """How a config answers; the same few are asked with again and again, so that is worked out once."""
    key = id(config), limit, read_less
    known = _ways.get(key)
    if known is None:
        reaching = _reaching(config, limit, read_less=read_less)
        bars = (
            config.floor,
            config.relative_floor,
            config.short_floor,
            config.brief_floor,
            config.meaning_floor,
            config.elsewhere,
        )
        fusing = by_query_alone(config.fusion, config.weights, config.rrf_k)
        known = Way(config, reaching, _reads(config), _again(config) != IDLE, max(bars) > 0, fusing)
        if len(_ways) >= WAYS:
            _ways.clear()
        _ways[key] = known
    return known


def _reaching(config: RecallConfig, limit: int, *, read_less: bool) -> RecallConfig:
    """The config with room for as many hits as are asked for, all of them judged alike.

    A reranker is asked about no more texts than the config says: it may cost money.
    """
    most = min(limit, config.max_results)
    narrow = [name for name in ROOM if 0 < getattr(config, name) < most]
    if read_less and "shortlist" in narrow:
        narrow.remove("shortlist")
    return msgspec.structs.replace(config, **dict.fromkeys(narrow, most)) if narrow else config


def _reads(config: RecallConfig) -> bool:
    """Whether anything in the config looks at more of a query than its words."""
    return (
        config.temporal != "off"
        or config.currency
        or config.subject > 0
        or config.another > 0
        or config.elsewhere > 0
        or config.wanted > 0
        or config.phrase > 0
    )


def narrowed(where: Filter, config: RecallConfig) -> Filter:
    """A filter that lets in no more than the config does; done twice, it is the same."""
    changes: dict[str, float] = {}
    if where.min_confidence is None and config.min_confidence > 0:
        changes["min_confidence"] = config.min_confidence
    if where.min_importance is None and config.min_importance > 0:
        changes["min_importance"] = config.min_importance
    return msgspec.structs.replace(where, **changes) if changes else where
