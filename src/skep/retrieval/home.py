"""Home: what most of the first hits belong to, and what else belongs there.

A bank may hold many users, projects and conversations. Where a question is asked of all of them, the first hits tell
which one it is about, and what else is known there is likelier to answer than a like-worded memory from elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.sources import Scopes

    Floats = NDArray[np.float64]
    Keys = NDArray[np.uint64]

VOTERS = 10
"""How many of the first hits tell what a question is about."""
LEAST = 1e-9
TALK = 0.5
"""What sharing a session counts, as a share of sharing a user and a project."""


def home(scopes: Scopes, score: Floats, *, over_all: bool = False) -> Floats:
    """How far each candidate belongs to what the other first hits belong to, 0..1.5; 0 where all belong to one, or to
    it and to everybody.

    Args:
        scopes: What each candidate belongs to, best first.
        score: The score of each.
        over_all: The question is about several conversations, so that none of them is its home.
    """
    out = np.zeros(len(score))
    for keys, weight in ((scopes.place, 1.0), (scopes.talk, 0.0 if over_all else TALK)):
        if len(keys) and (keys != keys[0]).any() and np.unique(keys[keys > 0]).size > 1:
            out += weight * belonging(keys, score)
    return out


def belonging(keys: Keys, score: Floats) -> Floats:
    """The share that each key has among the first hits, by the squares of their scores; nobody votes for itself.

    What has no key (0) belongs to everybody, so that it counts as much as what counts most, and no more.

    >>> belonging(np.array([7, 7, 8, 0], dtype=np.uint64), np.array([2.0, 2.0, 2.0, 1.0])).round(2).tolist()
    [0.5, 0.5, 0.0, 0.5]
    """
    listed: list[int] = keys.tolist()
    first: list[float] = (np.maximum(score[:VOTERS], 0.0) ** 2).tolist()
    votes = [vote if key else 0.0 for key, vote in zip(listed, first, strict=False)]
    sums: dict[int, float] = {}
    for key, vote in zip(listed, votes, strict=False):
        sums[key] = sums.get(key, 0.0) + vote
    total = max(sum(votes), LEAST)
    share = [sums.get(key, 0.0) / total for key in listed]
    for place, vote in enumerate(votes):
        if listed[place]:
            share[place] = max(sums[listed[place]] - vote, 0.0) / max(total - vote, LEAST)
    most = max(share, default=0.0)
    return np.array([part if key else most for key, part in zip(listed, share, strict=True)])
