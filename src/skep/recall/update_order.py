"""The update of a memory takes its place in an answer; the other way round where the question asks for before.

Two sources say that one memory updates another: `updates` links, which are certain, and the comparer of `semantics`,
which may be wrong and therefore only re-orders. Nothing is hidden. The recaller hands `UpdateOrder` to the pipeline.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skep.semantics.link_graph import UPDATES
from skep.semantics.pair_judge import update_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from skep.model import Link
    from skep.retrieval.candidates import Call, Candidates

    Floats = NDArray[np.float64]

HEAD = 10
"""The first hits that may give their place to an update."""
POOL = 30
"""The candidates that may be the update of one of them."""
LIKELY = 0.5
"""The score of the comparer from which one memory takes the place of another."""
FAR = 0.4
"""The least share of the older one's score that the newer one must have."""
MARKED_FROM = 0.9
"""The score of the comparer from which the older one is flagged as outdated."""


class UpdateOrder:
    """Re-orders the candidates of one recall."""

    def __init__(self, links: Callable[[Sequence[str]], Sequence[Link]]) -> None:
        self._links = links
        """The links that touch some memories."""

    def __call__(self, found: Candidates, call: Call) -> Candidates:
        """The candidates, each update in the place of the memory that it updates."""
        pool = found.first(POOL)
        texts = call.sources.texts(pool.rows)
        scores = self._scores(pool, texts, call)
        older_of = _best_links(scores, pool.score)
        if not older_of:
            return found
        former = call.asked.of_before(texts[:HEAD])
        order, outdated = _placed(older_of, scores, len(pool), former=former)
        moved = found.take([*order, *range(len(pool), len(found))])
        marked = {int(pool.rows[older]): int(pool.rows[newer]) for older, newer in outdated.items()}
        return replace(moved, score=found.score, outdated=marked).noted(
            "updates", note=f"{len(older_of)} updates among the first {len(pool)}"
        )

    def _scores(self, pool: Candidates, texts: list[str], call: Call) -> Floats:
        """How surely each candidate (column) updates each older one (row); 1 where a link says so."""
        count = len(pool)
        scores = np.zeros((count, count))
        memories = call.sources.memories(pool.rows)
        older, newer = np.nonzero(pool.created_at[:, None] < pool.created_at[None, :])
        if len(older):
            vectors = call.sources.vectors(pool.rows)
            earlier, later = [texts[at] for at in older], [texts[at] for at in newer]
            scores[older, newer] = update_scores(earlier, later, vectors[older], vectors[newer])
        for row, memory in enumerate(memories):
            if memory.kind == "document":
                scores[row, :] = scores[:, row] = 0.0
        place = {memory.id: at for at, memory in enumerate(memories)}
        for link in self._links(list(place)):
            if link.rel == UPDATES and link.src in place and link.dst in place:
                scores[place[link.dst], place[link.src]] = 1.0
        return scores


def _best_links(scores: Floats, relevance: Floats) -> dict[int, int]:
    """Of each newer candidate the one that it most likely updates, where that is likely enough."""
    links: dict[int, int] = {}
    for newer in range(scores.shape[1]):
        older = int(scores[:, newer].argmax())
        if scores[older, newer] >= LIKELY and relevance[newer] >= FAR * relevance[older]:
            links[newer] = older
    return links


def _placed(
    older_of: dict[int, int], scores: Floats, count: int, *, former: bool
) -> tuple[list[int], dict[int, int]]:
    """The order of the candidates, and the newer one of each that is surely outdated."""
    before: dict[int, list[int]] = {}
    for newer, older in older_of.items():
        first, second = (older, newer) if former else (newer, older)
        before.setdefault(second, []).append(first)
    order: list[int] = []
    seen: set[int] = set()

    def put(place: int) -> None:
        if place in seen:
            return
        seen.add(place)
        for each in sorted(before.get(place, ())):
            put(each)
        order.append(place)

    for place in range(count):
        put(place)
    sure = {older: newer for newer, older in older_of.items() if scores[older, newer] >= MARKED_FROM}
    return order, sure
