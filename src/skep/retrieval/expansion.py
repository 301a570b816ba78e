"""Walking links outward from hits: each hop keeps a share of the score, cycles are walked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from skep.model import Link

if TYPE_CHECKING:
    from skep.retrieval.config import Expand


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
