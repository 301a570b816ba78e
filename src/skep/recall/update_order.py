"""The update of a memory takes its place in an answer; the other way round where the question asks for before.

Two sources say that one memory updates another: `updates` links, which are certain, and the comparer of `semantics`,
which may be wrong. The comparer only re-orders: nothing is hidden, and a hit is flagged as outdated only where the
comparer is nearly certain. The recaller hands `UpdateOrder` to the pipeline. `training/fit_update_order.py` fits the
weights; training/UPDATE_ORDER.md has the figures with each writer left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.clock import AHEAD_SECONDS
from skep.semantics.find_conflicts import age, older_first
from skep.semantics.link_graph import UPDATES
from skep.semantics.pair_judge import update_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.model import Link, Memory
    from skep.retrieval.candidates import Call, Candidates

    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

HEAD = 10
"""The first hits that may give their place to an update."""
POOL = 30
"""The candidates that may be the update of one of them."""
NEAREST = 6
"""Older candidates that each newer one is compared with: those nearest in meaning."""
WORTH = -2.5
"""The log odds of the comparer from which a pair is looked at."""
WEIGHTS = (0.193, 1.489, 4.347, -1.431, 0.268)
BIAS = -3.685
"""Of the log odds of the comparer, the newer one's share of the older one's score, their cosine, the share of the
question that only the older one holds, and the logarithm of the days between them."""
LIKELY = 0.5
"""The probability from which the newer memory takes the place of the older one."""
MARKED = 0.95
"""The probability of the comparer from which the older memory is flagged as outdated."""
CERTAIN = 20.0
"""The log odds of a link."""
DAY = 86_400.0


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
        links: Callable[[Sequence[str]], Sequence[Link]] = lambda _ids: (),
        decided: Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]] = lambda _pairs: set(),
    ) -> None:
        self._links = links
        """The links that touch some memories."""
        self._decided = decided
        """Of pairs of memories, those of which somebody has decided that both stay."""

    def __call__(self, found: Candidates, call: Call) -> Candidates:
        """The candidates, each update in the place of the memory that it updates."""
        pool = found.first(POOL)
        former = call.asked.of_before(call.sources.texts(pool.rows[:HEAD]))
        memories = call.sources.memories(pool.rows)
        earlier = _earlier(memories, call.now)
        vectors = call.sources.vectors(pool.rows)
        pairs = best_pairs(pool, self._odds(pool, call, memories, earlier, vectors))
        if not len(pairs.older):
            return found
        sure = probability(pair_features(pool, pairs, vectors, call)) >= LIKELY
        sure |= pairs.odds >= CERTAIN
        moves = pairs.older > pairs.newer if former else pairs.older < pairs.newer
        if (sure & moves).any():
            sure &= ~self._settled(memories, pairs, sure)
        if not (sure & moves).any():
            return found
        newest_first = np.argsort(-earlier.sum(axis=0)[pairs.newer], kind="stable")
        pairs = Pairs(pairs.older[newest_first], pairs.newer[newest_first], pairs.odds[newest_first])
        sure, moves = sure[newest_first], moves[newest_first]
        older, newer = pairs.older[sure].tolist(), pairs.newer[sure].tolist()
        order = placed(older, newer, len(pool), former=former)
        marked = moves[sure] & (pairs.odds[sure] >= np.log(MARKED / (1 - MARKED)))
        outdated = {
            int(pool.rows[one]): int(pool.rows[other])
            for one, other, certain in zip(older, newer, marked.tolist(), strict=True)
            if certain
        }
        moved = found.take([*order, *range(len(pool), len(found))])
        moved = replace(moved, score=found.score, outdated=outdated)
        return moved.noted("updates", note=f"{len(older)} among the first {len(pool)}")

    def _settled(
        self, memories: Sequence[Memory], pairs: Pairs, sure: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """The pairs of which somebody has decided that both stay; only those that would move are looked up."""
        found = np.zeros(len(sure), dtype=bool)
        places: list[int] = np.flatnonzero(sure & (pairs.odds < CERTAIN)).tolist()
        ids = [memory.id for memory in memories]
        asked = {at: (ids[int(pairs.older[at])], ids[int(pairs.newer[at])]) for at in places}
        decided = self._decided(list(asked.values()))
        for at, pair in asked.items():
            found[at] = pair in decided
        return found

    def _odds(
        self,
        pool: Candidates,
        call: Call,
        memories: Sequence[Memory],
        earlier: NDArray[np.bool_],
        vectors: Singles,
    ) -> Floats:
        """The log odds that each candidate (column) updates each older one (row)."""
        odds = np.full((len(pool), len(pool)), -np.inf)
        older, newer = np.nonzero(_near(vectors, earlier))
        if len(older):
            texts = [memory.text for memory in memories]
            one, other = [texts[at] for at in older], [texts[at] for at in newer]
            likely = update_scores(one, other, vectors[older], vectors[newer]).astype(np.float64)
            odds[older, newer] = np.log(np.maximum(likely, 1e-9) / np.maximum(1 - likely, 1e-9))
        place = {memory.id: at for at, memory in enumerate(memories)}
        for link in self._links(list(place)):
            if link.rel == UPDATES and link.src in place and link.dst in place:
                odds[place[link.dst], place[link.src]] = CERTAIN
        if call.asked.spans:  # what came later takes no place in an answer about then
            odds[:, pool.created_at >= max(span.end for span in call.asked.spans)] = -np.inf
        return odds


def _earlier(memories: Sequence[Memory], now: float) -> NDArray[np.bool_]:
    """The memories (columns) that are newer than each (row); documents update nothing and are not updated."""
    count = len(memories)
    found = np.zeros((count, count), dtype=bool)
    ages = [age(memory) for memory in memories]
    ahead = any(each[0] > now + AHEAD_SECONDS for each in ages)
    for one in range(count):
        for other in range(one + 1, count):
            if "document" in (memories[one].kind, memories[other].kind):
                continue
            if ages[one][0] == ages[other][0] and ages[one][1] != ages[other][1]:
                continue  # of one moment, by two writers
            first = ages[one] < ages[other]
            if ahead:
                first = older_first(memories[one], memories[other], now)[0] is memories[one]
            found[one, other], found[other, one] = first, not first
    return found


def _near(vectors: Singles, earlier: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the older memories of each newer one (column) the nearest few."""
    cosine = np.where(earlier, vectors @ vectors.T, -np.inf)
    if len(cosine) <= NEAREST:
        return earlier
    least = np.partition(cosine, -NEAREST, axis=0)[-NEAREST]
    return earlier & (cosine >= least)


def best_pairs(pool: Candidates, odds: Floats) -> Pairs:
    """Of each newer memory the one that it most likely updates, where one of the two is among the first hits.

    Pairs that stand in the right order are among them: what moves one of the two must not part them.
    """
    older = odds.argmax(axis=0)
    newer = np.arange(len(pool))
    best = odds[older, newer]
    kept = (best > WORTH) & (np.minimum(older, newer) < HEAD)
    return Pairs(older[kept], newer[kept], best[kept])


def pair_features(pool: Candidates, pairs: Pairs, vectors: Singles, call: Call) -> Floats:
    """One row per pair; the columns are those of `WEIGHTS`."""
    older, newer, odds = pairs
    raw = np.einsum("ij,ij->i", vectors[older], vectors[newer])
    cosine = np.nan_to_num(call.sources.calibrate(raw.astype(np.float32)).astype(np.float64))
    held = pool.signals.get("coverage", np.zeros(len(pool)))
    days = np.maximum(pool.created_at[newer] - pool.created_at[older], 0.0) / DAY
    share = pool.score[newer] / np.maximum(pool.score[older], 1e-6)
    return np.stack([odds, share, cosine, held[older] - held[newer], np.log1p(days)], axis=1)


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
