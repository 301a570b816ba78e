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
TALK = 0.5
"""What sharing a session counts, as a share of sharing a user and a project."""


def home(scopes: Scopes, score: Floats, *, over_all: bool = False) -> Floats:
    """How far each candidate belongs to what the other first hits belong to, 0..1.5; 0 where all belong to one.

    Args:
        scopes: What each candidate belongs to, best first.
        score: The score of each.
        over_all: The question is about several conversations, so that none of them is its home.
    """
    out = np.zeros(len(score))
    for keys, weight in ((scopes.place, 1.0), (scopes.talk, 0.0 if over_all else TALK)):
        if len(keys) and (keys != keys[0]).any():
            out += weight * belonging(keys, score)
    return out


def belonging(keys: Keys, score: Floats) -> Floats:
    """The share that each key has among the first hits, by the squares of their scores; nobody votes for itself.

    What has no key (0) belongs to everybody, so that it counts as what belongs to the largest share.

    >>> belonging(np.array([7, 7, 8, 0], dtype=np.uint64), np.array([2.0, 2.0, 2.0, 1.0])).round(2).tolist()
    [0.5, 0.5, 0.0, 0.67]
    """
    votes = np.zeros(len(keys))
    votes[:VOTERS] = np.maximum(score[:VOTERS], 0.0) ** 2
    votes[keys == 0] = 0.0
    names: dict[int, int] = {}
    group = np.array([names.setdefault(key, len(names)) for key in keys.tolist()], dtype=np.int64)
    sums = np.bincount(group, votes)
    others = np.maximum(votes.sum() - votes, 1e-9)
    share = np.maximum(sums[group] - votes, 0.0) / others
    share[keys == 0] = sums.max() / max(float(votes.sum()), 1e-9)
    return share
