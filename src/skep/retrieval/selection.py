"""Selection of the hits to return: diversity, the cliff in an answer, and memories that links lead to.

A walk along links keeps a share of the score per hop and passes a cycle once. Pure; the pipeline calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.model import Link
from skep.runtime import product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.recall_config import Expand


if TYPE_CHECKING:
    Floats = NDArray[np.float64]
    Vectors = NDArray[np.float32]

MMR_LAMBDA = 0.7
SAME = 0.8
CLIFF = 2.0


def mmr(relevance: Floats, vectors: Vectors, limit: int, *, balance: float = MMR_LAMBDA) -> list[int]:
    """Positions picked by maximal marginal relevance.

    Each step takes the candidate with the largest balance * relevance - (1 - balance) * (largest
    similarity to what is already picked). With balance 1 the order is that of relevance.

    Args:
        relevance: Scores on a scale comparable with cosines, best first.
        vectors: Unit rows, one per candidate.
        limit: How many to pick.
        balance: 1 looks at relevance alone, 0 at novelty alone.
    """
    size = min(limit, len(relevance))
    if size <= 0:
        return []
    near = product(vectors, vectors.T)
    gain = balance * relevance
    closest = np.zeros(len(relevance), dtype=np.float64)
    picked: list[int] = []
    free = gain.copy()
    penalty = 1.0 - balance
    for _ in range(size):
        best = int(free.argmax())
        picked.append(best)
        gain[best] = -np.inf
        np.maximum(closest, near[best], out=closest)
        free = gain - penalty * closest
    return picked


def diverse(
    vectors: Vectors,
    sure: Floats,
    same: Callable[[Vectors], Vectors] | None = None,
    *,
    threshold: float = SAME,
) -> list[int]:
    """Positions of the surest of each cluster of near-equal candidates, in the order of their leaders.

    Candidates come best first; one joins the first cluster whose leader is at least `threshold` similar. Of the equally
    sure the best stands.

    Args:
        vectors: Unit rows, best candidate first.
        sure: The confidence of each.
        same: Maps raw cosines to the calibrated scale; the identity by default.
        threshold: Calibrated cosine from which two are the same.
    """
    near = product(vectors, vectors.T)
    if same is not None:
        near = same(near)
    alike = near >= threshold
    np.fill_diagonal(alike, True)  # what has no vector yet is like itself alone
    taken = np.zeros(len(vectors), dtype=bool)
    leaders: list[int] = []
    for position in range(len(vectors)):
        if not taken[position]:
            cluster = np.flatnonzero(alike[position] & ~taken)
            leaders.append(int(cluster[sure[cluster].argmax()]))
            taken |= alike[position]
    return leaders


def dynamic_k(values: Sequence[float] | Floats, *, factor: float = CLIFF, min_results: int = 1) -> int:
    """The number of results before the cliff: the first gap that is `factor` times the mean of the other gaps.

    A value above the one before it counts as level.

    >>> dynamic_k([0.0328, 0.0318, 0.0307, 0.0295, 0.0281, 0.0266, 0.0198])
    6
    """
    gaps = falls(values)
    if len(gaps) > 1:
        for at in range(max(min_results, 1) - 1, len(gaps)):
            others = (sum(gaps) - gaps[at]) / (len(gaps) - 1)
            if others > 0 and gaps[at] > factor * others:
                return at + 1
    return len(values)


def cliff_told(values: Sequence[float] | Floats, kept: int) -> str:
    """Why `dynamic_k` stopped after so many.

    >>> cliff_told([0.0328, 0.0318, 0.0307, 0.0295, 0.0281, 0.0266, 0.0198], 6)
    'the gap of 0.0068 is 5.5 times the mean of the others'
    """
    gaps = falls(values)
    gap = gaps[kept - 1]
    return f"the gap of {gap:.4f} is {gap * (len(gaps) - 1) / (sum(gaps) - gap):.1f} times the mean of the others"


def falls(values: Sequence[float] | Floats) -> list[float]:
    """How far each value lies below the lowest before it.

    >>> falls([5, 3, 4, 1])
    [2.0, 0.0, 2.0]
    """
    level: Floats = np.minimum.accumulate(np.asarray(values, dtype=np.float64))
    return (level[:-1] - level[1:]).tolist()


class Reached(NamedTuple):
    """A memory found by walking, with the score it arrived with and how it was reached."""

    id: str
    score: float
    hops: int
    via: str
    """The id it was reached from."""
    link: Link
    """The last link on the way."""


Which = Callable[[Sequence[str]], set[str]]
"""Those of some memories that may be shown, or walked through."""


def expand(
    seeds: Mapping[str, float],
    links: Callable[[Sequence[str]], Sequence[Link]],
    how: Expand,
    *,
    shown: Which = set,
    walked: Which = set,
) -> tuple[Reached, ...]:
    """The memories around the seeds, best first, without the seeds.

    A memory arrives with decay * strength * (the score it was reached from); reached twice, the better
    one counts.

    Args:
        seeds: Scores of the hits, by id.
        links: Gives every link that touches one of some memories.
        how: Relations, direction, depth, cap and decay.
        shown: Which may be returned; only these count towards the cap.
        walked: Which may be seen at all, if only to lead on to others.
    """
    best: dict[str, Reached] = {}
    frontier: dict[str, float] = dict(seeds)
    for hop in range(1, how.depth + 1):
        following: dict[str, Reached] = {}
        for link in links(sorted(frontier)):
            for here, there in _steps(link, how):
                if here not in frontier or there in seeds:
                    continue
                score = frontier[here] * how.decay * min(max(link.strength, 0.0), 1.0)
                found = Reached(there, score, hop, here, link)
                if there not in following or _key(found) < _key(following[there]):
                    following[there] = found
        nearer = {
            key: found for key, found in following.items() if key not in best or found.score > best[key].score
        }
        open_ = walked(sorted(nearer))
        fresh = {key: found for key, found in nearer.items() if key in open_}
        best |= fresh
        frontier = {key: found.score for key, found in fresh.items()}
        if not frontier:
            break
    allowed = shown(sorted(best))
    found = sorted((found for key, found in best.items() if key in allowed), key=_key)
    return tuple(found[: how.cap])


def _key(found: Reached) -> tuple[float, int, str, str]:
    return (-found.score, found.hops, found.id, found.via)


def _steps(link: Link, how: Expand) -> list[tuple[str, str]]:
    """The steps a link allows: (from, to)."""
    if how.relations and link.rel not in how.relations:
        return []
    steps: list[tuple[str, str]] = []
    if how.direction in ("out", "both"):
        steps.append((link.src, link.dst))
    if how.direction in ("in", "both"):
        steps.append((link.dst, link.src))
    return steps
