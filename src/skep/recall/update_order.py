"""The update of a memory takes its place in an answer; the other way round where the question asks for before.

Two sources say that one memory updates another: `updates` links, which are certain, and the comparer of `semantics`,
which may be wrong. The comparer only re-orders: nothing is hidden, and a hit is flagged as outdated only where the
comparer is nearly certain. The recaller hands `UpdateOrder` to the pipeline. `training/fit_update_order.py` fits the
weights; training/UPDATE_ORDER.md has the figures with each writer left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.retrieval.score import RIVAL
from skep.semantics.find_conflicts import newer_than
from skep.semantics.link_graph import UPDATES
from skep.semantics.pair_judge import OUTPUTS, UPDATE, Pair, Reader, judge_many, opposites, update_scores
from skep.text.terms import STOP, term_sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.model import Link, Memory
    from skep.retrieval.pipeline import Call, Candidates
    from skep.retrieval.query import Tense

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
FAR = 0.2
"""Calibrated cosine below which two of many candidates have nothing to do with each other."""
WORTH = -2.5
"""The log odds of the comparer from which a pair is looked at."""
LEAST = -4.5
"""The log odds of the comparer from which it matters what the reader said."""
UNREAD = 1.0
"""The log odds of the linear comparer from which a pair is looked at that nobody has read."""
WEIGHTS = (0.4, 1.5, -0.4, 0.4, 3.2, -5.4)
BIAS = -1.1
"""Of the log odds of the comparer, the newer one's share of the older one's score, the words of the question that only
the older and only the newer one holds, and the probabilities that the question asks for what holds now and for what
held before. The days between them have no say: a bank may be filled in a minute."""
MOST_ODDS, MOST_SHARE, MOST_WORDS = 6.0, 2.0, 3
"""What lies beyond these says no more."""
LINKED = -1.5
"""The log odds from which the older memory of a pair takes the place of the newer one, where the question asks for what
held before."""
ALIKE, VERDICTS = 0.6, 24
"""Calibrated cosine from which two texts get a verdict, and how many pairs at most do."""
COPY = 2.0
"""The log odds of a copy; below those from which a memory is flagged."""
TIE = 0.5
"""Log odds that are as good as equal."""
LIKELY = 0.45
"""The probability from which the newer memory takes the place of the older one."""
FITS, BEHIND = 0.85, 6.0
"""A newer memory whose score is a smaller share than this of the older one's needs more log odds of the comparer to
take its place: so many for each whole share that is missing. Facts of one text lie near each other and are mostly no
updates."""
MARKED = 0.95
"""The probability of the comparer from which the older memory is flagged as outdated."""
CERTAIN = 20.0
"""The log odds of a link."""


_identifier = re.compile(r"\w+(?:[@./:_#-]\w+)+|\w*\d\w*")
"""A word with a sign or a digit inside it."""


class Pairs(NamedTuple):
    """Pairs of places in a pool: of each newer memory the one that it most likely updates."""

    older: NDArray[np.intp]
    newer: NDArray[np.intp]
    odds: Floats
    """Log odds of the comparer."""


@dataclass(frozen=True)
class UpdateOrder:
    """Re-orders the candidates of one recall."""

    links: Callable[[Sequence[str]], Sequence[Link]] | None = None
    """The links that touch some memories; None where none can say that one updates another."""
    decided: Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]] = lambda _pairs: set()
    """Of pairs of memories, those of which somebody has decided that both stay."""
    readings: Callable[[Sequence[tuple[str, str]]], NDArray[np.float32]] | None = None
    """What the reader of pairs said of texts; nothing is read during a recall."""

    def __call__(self, found: Candidates, call: Call) -> Candidates:
        """The candidates, each update in the place of the memory that it updates."""
        pool = found.first(POOL)
        count = len(pool.rows)
        texts = call.texts(pool.rows)
        tense, former = call.asked.tense(texts[:HEAD])
        memories, vectors = call.memories(pool.rows), call.vectors(pool.rows)
        newer_than_each = newer_than(memories, call.now)
        odds = self._odds(pool, call, memories, vectors, newer_than_each)
        rival = np.zeros(len(found.rows))
        rival[:count] = 1.0 / (1.0 + np.exp(-odds.max(axis=1)))
        found = replace(found, signals=found.signals | {RIVAL: rival})
        pairs = best_pairs(odds, newer_than_each.sum(axis=0))
        if not len(pairs.older):
            return found
        if former:
            sure = pairs.odds >= LINKED
        else:
            features = pair_features(pool, pairs, texts, call.asked.text, tense)
            sure = probability(features) >= LIKELY
            sure &= pairs.odds >= BEHIND * (FITS - features[:, 1])
            sure |= pairs.odds >= CERTAIN
        sure &= ~self._stays(memories, pairs, sure, call)
        if not sure.any():
            return found
        older, newer = pairs.older[sure].tolist(), pairs.newer[sure].tolist()
        order = placed(older, newer, count, former=former)
        marked = pairs.odds[sure] >= np.log(MARKED / (1 - MARKED))
        outdated = {
            int(pool.rows[one]): int(pool.rows[other])
            for one, other, certain in zip(older, newer, marked.tolist(), strict=True)
            if certain and not former
        }
        return found.moved(order, outdated, f"{len(older)} among the first {count}")

    def _stays(
        self, memories: Sequence[Memory], pairs: Pairs, sure: NDArray[np.bool_], call: Call
    ) -> NDArray[np.bool_]:
        """The pairs that keep their places: somebody decided that both stay, or the question names the older one."""
        found = np.zeros(len(sure), dtype=bool)
        places: list[int] = np.flatnonzero(sure & (pairs.odds < CERTAIN)).tolist()
        both = {at: (memories[int(pairs.older[at])], memories[int(pairs.newer[at])]) for at in places}
        if not both:
            return found
        decided = self.decided([(older.id, newer.id) for older, newer in both.values()])
        named = names_apart(call.asked.text, [(older.text, newer.text) for older, newer in both.values()])
        for (at, (older, newer)), apart in zip(both.items(), named, strict=True):
            found[at] = apart or (older.id, newer.id) in decided
        return found

    def _odds(
        self,
        pool: Candidates,
        call: Call,
        memories: Sequence[Memory],
        vectors: NDArray[np.float32],
        later: NDArray[np.bool_],
    ) -> Floats:
        """The log odds that each candidate (column) updates each older one (row)."""
        odds = np.full((len(memories), len(memories)), -np.inf)
        # a turn of a conversation updates nothing by itself
        alone = np.array([memory.kind != "episode" or not memory.scope.session for memory in memories])
        cosines = call.scale(vectors @ vectors.T)
        near = _near(cosines, _updatable(memories, later))
        older, newer = np.nonzero(near & alone[:, None] & alone[None, :])
        if len(older):
            texts = [memory.text for memory in memories]
            one, other = [texts[at] for at in older], [texts[at] for at in newer]
            likely = update_scores(one, other, vectors[older], vectors[newer]).astype(np.float64)
            cosine, pairs = cosines[older, newer], list(zip(one, other, strict=True))
            nearest = np.argsort(-cosine, kind="stable")[:VERDICTS]
            close: list[int] = nearest[cosine[nearest] >= ALIKE].tolist()
            found = log_odds(likely)
            told: list[int] = np.flatnonzero(found > LEAST).tolist()
            read = self._read(pairs, {*told, *close})
            update = read[told, UPDATE]
            alone_sure = np.where(found[told] >= UNREAD, found[told], -np.inf)
            found[told] = np.where(np.isnan(update), alone_sure, (found[told] + update) / 2)
            said = {pairs[at]: read[at] for at in close}
            odds[older, newer] = judged(
                found,
                [(at, Pair(one[at], other[at], float(cosine[at]))) for at in close],
                lambda asked, _worth: np.stack([said[pair] for pair in asked]),
            )
        place = {memory.id: at for at, memory in enumerate(memories)}
        for link in self.links(list(place)) if self.links is not None else ():
            if link.rel == UPDATES and link.src in place and link.dst in place:
                odds[place[link.dst], place[link.src]] = CERTAIN
        if call.asked.spans:  # what came later takes no place in an answer about then
            odds[:, pool.created_at >= max(span.end for span in call.asked.spans)] = -np.inf
        return odds

    def _read(self, pairs: Sequence[tuple[str, str]], wanted: set[int]) -> NDArray[np.float32]:
        """What the reader said of the pairs at some places; nan elsewhere, and where it said nothing."""
        out = np.full((len(pairs), OUTPUTS), np.nan, np.float32)
        if self.readings is not None and wanted:
            places = sorted(wanted)
            out[places] = self.readings([pairs[at] for at in places])
        return out


def judged(odds: Floats, near: Sequence[tuple[int, Pair]], reader: Reader | None = None) -> Floats:
    """The log odds of updates, those of near texts by the verdict of the comparer where that is surer.

    A copy takes the place of its original, and is no reason to flag it.

    Args:
        odds: Of each pair.
        near: The pairs that get a verdict, with their places in `odds`.
        reader: What was read of pairs.
    """
    out = odds.copy()
    verdicts = judge_many([pair for _, pair in near], reader)
    for (at, _), verdict in zip(near, verdicts, strict=True):
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


def names_apart(question: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Of pairs of an older and a newer text: whether a word of the question tells the older one from the newer.

    An identifier, or the one word in which they differ.

    >>> names_apart("Is it on in staging?", [("It is on in staging", "It is on in production")])
    [True]
    >>> names_apart("Is the API public?", [("The API is public", "The API is private")])
    [False]
    """
    (asked, *names), told = term_sets(
        [question, *_identifier.findall(question)], [text for pair in pairs for text in pair]
    )
    named = set[str]().union(*names)
    return [_tells_apart(asked, named, *told[at : at + 2]) for at in range(0, len(told), 2)]


def _tells_apart(asked: set[str], named: set[str], older: set[str], newer: set[str]) -> bool:
    alone = (asked - STOP) & (older - newer)
    if not alone:
        return False
    if alone & named:
        return True
    instead = newer - older - STOP
    if len(older - newer - STOP) > 1 or len(instead) > 1:
        return False
    return not any(opposites(one, other) for one in alone for other in instead)


def _updatable(memories: Sequence[Memory], newer: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pairs without documents and long texts, which update nothing and are not updated."""
    short = np.array([memory.kind != "document" and len(memory.text) <= LONGEST for memory in memories])
    return newer & short[:, None] & short[None, :]


def _near(cosines: NDArray[np.float32], earlier: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the older memories of each newer one (column) the nearest few that are not far."""
    if len(cosines) <= NEAREST:
        return earlier
    told = np.where(earlier & (cosines >= FAR), cosines, -np.inf)
    least = np.partition(told, -NEAREST, axis=0)[-NEAREST]
    return (told > -np.inf) & (told >= least)


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


def pair_features(
    pool: Candidates, pairs: Pairs, texts: Sequence[str], question: str, tense: Tense
) -> Floats:
    """One row per pair; the columns are those of `WEIGHTS`."""
    older, newer, odds = pairs
    share = np.minimum(pool.score[newer] / np.maximum(pool.score[older], 1e-6), MOST_SHARE)
    places: list[tuple[int, int]] = list(zip(older.tolist(), newer.tolist(), strict=True))
    paired = list({at for pair in places for at in pair})
    (words,), terms = term_sets([question], [texts[at] for at in paired])
    asked, held = words - STOP, dict(zip(paired, terms, strict=True))
    alone = [len(asked & (held[one] - held[other])) for one, other in places]
    instead = [len(asked & (held[other] - held[one])) for one, other in places]
    told = [np.minimum(each, MOST_WORDS) for each in (alone, instead)]
    asked_for = [np.full(len(odds), each) for each in tense]
    return np.stack([np.clip(odds, -MOST_ODDS, MOST_ODDS), share, *told, *asked_for], axis=1)


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
