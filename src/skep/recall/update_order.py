"""The update of a memory takes its place in an answer; the other way round where the question asks for before.

Two sources say that one memory updates another: `updates` links, which are certain, and the comparer of `semantics`,
which may be wrong. The comparer only re-orders: nothing is hidden, and a hit is flagged as outdated only where the
comparer is nearly certain. The recaller hands `UpdateOrder` to the pipeline. `training/fit_update_order.py` fits the
weights; training/UPDATE_ORDER.md has the figures with each writer left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.retrieval.score import RIVAL
from skep.semantics.find_conflicts import newer_than
from skep.semantics.link_graph import UPDATES
from skep.semantics.pair_judge import OUTPUTS, UPDATE, Pair, Reader, judge_many, opposites, update_scores
from skep.text.terms import STOP, query_terms, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.model import Link, Memory
    from skep.retrieval.pipeline import Call, Candidates

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

HEAD = 10
"""The first hits that say if a word of the past is part of their subject."""
POOL = 30
"""The candidates that are compared with one another."""
LONGEST = 300
"""Characters of a text that may update another: a report or a page says more than one thing."""
NEAREST = 6
"""Older candidates that each newer one is compared with: those nearest in meaning."""
WORTH = -2.5
"""The log odds of the comparer from which a pair is looked at."""
LEAST = -4.5
"""The log odds of the comparer from which it matters what the reader said."""
WEIGHTS = (0.5, 1.9, 1.3, -1.3)
BIAS = -1.4
"""Of the log odds of the comparer, the newer one's share of the older one's score, their cosine, and the share of the
question that only the older one holds. The days between them have no say: a bank may be filled in a minute."""
ALIKE, VERDICTS = 0.6, 24
"""Calibrated cosine from which two texts get a verdict, and how many pairs at most do."""
COPY = 2.0
"""The log odds of a copy; below those from which a memory is flagged."""
TIE = 0.5
"""Log odds that are as good as equal."""
LIKELY = 0.45
"""The probability from which the newer memory takes the place of the older one."""
MARKED = 0.95
"""The probability of the comparer from which the older memory is flagged as outdated."""
CERTAIN = 20.0
"""The log odds of a link."""


_name = re.compile(r"(?<=[\w,] )[A-Z][\w'’-]*|\w+(?:[@./:_#-]\w+)+|\w*\d\w*")
"""A capitalised word inside a sentence, an identifier, or a word with a digit."""


class Pairs(NamedTuple):
    """Pairs of places in a pool: of each newer memory the one that it most likely updates."""

    older: NDArray[np.intp]
    newer: NDArray[np.intp]
    odds: Floats
    """Log odds of the comparer."""


class UpdateOrder:
    """Re-orders the candidates of one recall."""

    def __init__(
        self,
        links: Callable[[Sequence[str]], Sequence[Link]] | None = None,
        decided: Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]] = lambda _pairs: set(),
        readings: Callable[[Sequence[tuple[str, str]]], NDArray[np.float32]] | None = None,
    ) -> None:
        self._links = links
        """The links that touch some memories; None where none can say that one updates another."""
        self._decided = decided
        """Of pairs of memories, those of which somebody has decided that both stay."""
        self._readings = readings
        """What the reader of pairs said of texts; nothing is read during a recall."""

    def __call__(self, found: Candidates, call: Call) -> Candidates:
        """The candidates, each update in the place of the memory that it updates."""
        pool = found.first(POOL)
        former = call.asked.of_before(call.texts(pool.rows[:HEAD]))
        memories = call.memories(pool.rows)
        newer_than_each = newer_than(memories, call.now)
        odds = self._odds(pool, call, memories, newer_than_each)
        rival = np.zeros(len(found))
        rival[: len(pool)] = 1.0 / (1.0 + np.exp(-odds.max(axis=1)))
        found = replace(found, signals=found.signals | {RIVAL: rival})
        pairs = best_pairs(odds, newer_than_each.sum(axis=0))
        if not len(pairs.older):
            return found
        sure = probability(pair_features(pool, pairs, call)) >= LIKELY
        sure |= pairs.odds >= CERTAIN
        sure &= ~self._stays(pool, pairs, sure, call)
        if not sure.any():
            return found
        older, newer = pairs.older[sure].tolist(), pairs.newer[sure].tolist()
        order = placed(older, newer, len(pool), former=former)
        marked = pairs.odds[sure] >= np.log(MARKED / (1 - MARKED))
        outdated = {
            int(pool.rows[one]): int(pool.rows[other])
            for one, other, certain in zip(older, newer, marked.tolist(), strict=True)
            if certain
        }
        moved = found.take([*order, *range(len(pool), len(found))])
        moved = replace(moved, score=found.score, outdated=outdated)
        return moved.noted("updates", note=f"{len(older)} among the first {len(pool)}")

    def _stays(
        self, pool: Candidates, pairs: Pairs, sure: NDArray[np.bool_], call: Call
    ) -> NDArray[np.bool_]:
        """The pairs that keep their places: somebody decided that both stay, or the question names the older one."""
        found = np.zeros(len(sure), dtype=bool)
        memories = call.memories(pool.rows) if sure.any() else []
        places: list[int] = np.flatnonzero(sure & (pairs.odds < CERTAIN)).tolist()
        both = {at: (memories[int(pairs.older[at])], memories[int(pairs.newer[at])]) for at in places}
        decided = self._decided([(older.id, newer.id) for older, newer in both.values()])
        for at, (older, newer) in both.items():
            named = names_apart(call.asked.text, older.text, newer.text)
            found[at] = named or (older.id, newer.id) in decided
        return found

    def _odds(
        self, pool: Candidates, call: Call, memories: Sequence[Memory], later: NDArray[np.bool_]
    ) -> Floats:
        """The log odds that each candidate (column) updates each older one (row)."""
        odds = np.full((len(pool), len(pool)), -np.inf)
        vectors = call.vectors(pool.rows)
        # a turn of a conversation updates nothing by itself
        alone = np.array([memory.kind != "episode" or not memory.scope.session for memory in memories])
        near = _near(vectors, _updatable(memories, later))
        older, newer = np.nonzero(near & alone[:, None] & alone[None, :])
        if len(older):
            texts = [memory.text for memory in memories]
            one, other = [texts[at] for at in older], [texts[at] for at in newer]
            likely = update_scores(one, other, vectors[older], vectors[newer]).astype(np.float64)
            raw = np.einsum("ij,ij->i", vectors[older], vectors[newer]).astype(np.float32)
            found = self._read(log_odds(likely), list(zip(one, other, strict=True)))
            odds[older, newer] = judged(found, one, other, call.sources.calibrate(raw), self._said)
        place = {memory.id: at for at, memory in enumerate(memories)}
        for link in self._links(list(place)) if self._links is not None else ():
            if link.rel == UPDATES and link.src in place and link.dst in place:
                odds[place[link.dst], place[link.src]] = CERTAIN
        if call.asked.spans:  # what came later takes no place in an answer about then
            odds[:, pool.created_at >= max(span.end for span in call.asked.spans)] = -np.inf
        return odds

    def _read(self, odds: Floats, pairs: Sequence[tuple[str, str]]) -> Floats:
        """The log odds of updates, those of pairs that were read by half from the reader."""
        if self._readings is None:
            return odds
        out = odds.copy()
        told: list[int] = np.flatnonzero(odds > LEAST).tolist()
        read = self._readings([pairs[at] for at in told])[:, UPDATE]
        out[told] = np.where(np.isnan(read), odds[told], (odds[told] + read) / 2)
        return out

    def _said(self, pairs: Sequence[tuple[str, str]], _worth: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the reader said of pairs, as the comparer asks for it."""
        if self._readings is None:
            return np.full((len(pairs), OUTPUTS), np.nan, np.float32)
        return self._readings(pairs)


def judged(
    odds: Floats,
    older: Sequence[str],
    newer: Sequence[str],
    cosine: NDArray[np.float32],
    reader: Reader | None = None,
) -> Floats:
    """The log odds of updates, those of near texts by the verdict of the comparer where that is surer.

    A copy takes the place of its original, and is no reason to flag it.
    """
    nearest = np.argsort(-cosine, kind="stable")[:VERDICTS]
    near: list[int] = nearest[cosine[nearest] >= ALIKE].tolist()
    out = odds.copy()
    verdicts = judge_many([Pair(older[at], newer[at], float(cosine[at])) for at in near], reader)
    for at, verdict in zip(near, verdicts, strict=True):
        if verdict.kind == "same":
            out[at] = max(out[at], COPY)
        elif verdict.kind != "both":
            out[at] = max(out[at], float(log_odds(np.array(verdict.probability))))
        elif verdict.reason == "value":
            out[at] = -np.inf  # who speaks French may speak German
    return out


def log_odds(probability: Floats) -> Floats:
    """ln(p / (1 - p)), finite for 0 and 1."""
    return np.log(np.maximum(probability, 1e-6) / np.maximum(1.0 - probability, 1e-6))


def names_apart(question: str, older: str, newer: str) -> bool:
    """True where the question holds a name, an identifier or the one word that tells the older text from the newer.

    >>> names_apart("Is it on in staging?", "It is on in staging", "It is on in production")
    True
    >>> names_apart("Is the API public?", "The API is public", "The API is private")
    False
    """
    asked = set(query_terms(question)) - STOP
    mine, theirs = set(terms(older)), set(terms(newer))
    alone = asked & (mine - theirs)
    if not alone:
        return False
    named = {term for word in _name.findall(question) for term in query_terms(word)}
    if alone & named:
        return True
    instead = theirs - mine - STOP
    if len(mine - theirs - STOP) > 1 or len(instead) > 1:
        return False
    return not any(opposites(one, other) for one in alone for other in instead)


def _updatable(memories: Sequence[Memory], newer: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pairs without documents and long texts, which update nothing and are not updated."""
    short = np.array([memory.kind != "document" and len(memory.text) <= LONGEST for memory in memories])
    return newer & short[:, None] & short[None, :]


def _near(vectors: NDArray[np.float32], earlier: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the older memories of each newer one (column) the nearest few."""
    cosine = np.where(earlier, vectors @ vectors.T, -np.inf)
    if len(cosine) <= NEAREST:
        return earlier
    least = np.partition(cosine, -NEAREST, axis=0)[-NEAREST]
    return earlier & (cosine >= least)


def best_pairs(odds: Floats, recency: Ints) -> Pairs:
    """Of each newer memory the one that it most likely updates.

    Args:
        odds: The log odds that each memory (column) updates each other (row).
        recency: Larger for newer memories.
    """
    alike = odds >= odds.max(axis=0) - TIE  # of several values of one thing, the latest is updated
    older = np.where(alike, recency[:, None], -1).argmax(axis=0)
    newer = np.arange(len(odds))
    best = odds[older, newer]
    kept = np.flatnonzero(best > WORTH)
    kept = kept[
        np.argsort(-recency[newer[kept]], kind="stable")
    ]  # of several updates of one, the newest comes first
    return Pairs(older[kept], newer[kept], best[kept])


def pair_features(pool: Candidates, pairs: Pairs, call: Call) -> Floats:
    """One row per pair; the columns are those of `WEIGHTS`."""
    older, newer, odds = pairs
    vectors = call.vectors(pool.rows)
    raw = np.einsum("ij,ij->i", vectors[older], vectors[newer])
    cosine = np.nan_to_num(call.sources.calibrate(raw.astype(np.float32)).astype(np.float64))
    held = pool.signals.get("coverage", np.zeros(len(pool)))
    share = pool.score[newer] / np.maximum(pool.score[older], 1e-6)
    return np.stack([odds, share, cosine, held[older] - held[newer]], axis=1)


def probability(features: Floats) -> Floats:
    """The probability that the newer memory of each pair answers the question and the older one does not."""
    return 1.0 / (1.0 + np.exp(-(features @ np.array(WEIGHTS) + BIAS)))


def placed(older: Sequence[int], newer: Sequence[int], count: int, *, former: bool) -> list[int]:
    """The order of so many candidates in which each newer one stands before its older one, or after it if `former`.

    Of several that stand before one, the first that is given comes first.

    >>> placed([0, 0], [2, 1], 3, former=False)
    [2, 1, 0]
    """
    before: dict[int, list[int]] = {}
    for one, other in zip(older, newer, strict=True):
        first, second = (one, other) if former else (other, one)
        before.setdefault(second, []).append(first)
    order: list[int] = []
    seen: set[int] = set()

    def put(place: int) -> None:
        if place not in seen:  # links of users may form a ring
            seen.add(place)
            for each in before.get(place, ()):
                put(each)
            order.append(place)

    for place in range(count):
        put(place)
    return order
