"""Currency: of memories that answer for the same thing the newest comes first, the others are marked.

Without a model, two memories are rivals when either

- they hold the same words of the query and are worded alike, but each has a word the other lacks: the same
  sentence with another value ("lives in Rome", "lives in Oslo"); or
- the newer one tells of a change ("now", "moved to", "raised") and shares the subject; this weaker rule applies
  only to short texts, to questions about the present, and only against the best hit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.words import STOP, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

REACH = 20
"""How many of the first hits are looked at."""
ALIKE = 0.3
"""Shared words, as a part of all words of both, from which two memories are worded alike."""
TOUCHING = 0.1
"""The same for a memory that tells of a change."""
SHARED = 0.4
"""Which part of the query's words, by rarity, both must hold for a change to concern the other."""
SHORT = 25
"""Terms of a text up to which a change is read from it."""

_change = re.compile(
    r"\b(?:now|no longer|not any ?more|instead|any ?more|new(?:ly)?|latest|current(?:ly)?|chang(?:ed|es|ing)|"
    r"updat(?:ed|es)|(?:up|down)grad(?:ed|es)|mov(?:ed|ing) (?:to|into|from)|migrat(?:ed|ing)|switch(?:ed|ing)|"
    r"transfer(?:red|ring)|replac(?:ed|es|ing)|raised|lowered|increased|decreased|reduced|expanded|extended|"
    r"adjusted|revised|promoted|succeeded|appointed|stepped down|renamed|rescheduled|postponed|delayed|pushed|"
    r"final(?:ized|ised)?|correct(?:ed|ion)|actually|turns out|from .{1,40} to)\b",
    re.IGNORECASE,
)


class Facts(NamedTuple):
    """What is known of the first candidates, best first."""

    matched: Bools
    """Which query words (columns) each one holds."""
    idf: Floats
    """How rare each query word is."""
    texts: Sequence[str]
    created_at: Floats
    present: bool = True
    """The query asks for what holds now."""


class Renewed(NamedTuple):
    """An order in which newer values come first, and which candidates are outdated by one above them."""

    order: Ints
    outdated: Bools


def renew(facts: Facts) -> Renewed:
    """Let the members of each group of rivals share the group's places, newest first.

    `outdated` follows the old positions. Equal times keep their order.
    """
    count = len(facts.texts)
    order = np.arange(count)
    outdated = np.zeros(count, dtype=bool)
    free: Bools = np.asarray(facts.matched.any(axis=1))
    words = [terms(text) for text in facts.texts]
    sets = [frozenset(each) - STOP for each in words]
    short = np.array([len(each) <= SHORT for each in words], dtype=bool)
    for leader in np.flatnonzero(free).tolist():
        if not free[leader]:
            continue
        rivals = _reworded(leader, facts, sets, free)
        if leader == 0 and facts.present and short[0]:
            rivals |= _changed(leader, facts, sets, free & short)
        rivals[leader] = True
        free &= ~rivals
        places = np.flatnonzero(rivals)
        newest_first = places[np.argsort(-facts.created_at[places], kind="stable")]
        order[places] = newest_first
        outdated[places] = facts.created_at[places] < facts.created_at[newest_first[0]]
    return Renewed(order, outdated)


def tells_of_change(text: str) -> bool:
    """Whether a text says that something is no longer as it was.

    >>> tells_of_change("The limit was raised to 500"), tells_of_change("The limit is 100")
    (True, False)
    """
    return _change.search(text) is not None


def _reworded(leader: int, facts: Facts, sets: Sequence[frozenset[str]], among: Bools) -> Bools:
    """Those worded like the leader, with the same query words and another value."""
    out = np.zeros(len(sets), dtype=bool)
    same = among & (facts.matched == facts.matched[leader]).all(axis=1)
    mine = sets[leader]
    for other in np.flatnonzero(same).tolist():
        theirs = sets[other]
        if mine - theirs and theirs - mine and len(mine & theirs) >= ALIKE * len(mine | theirs):
            out[other] = True
    return out


def _changed(leader: int, facts: Facts, sets: Sequence[frozenset[str]], among: Bools) -> Bools:
    """Those that share the leader's subject where the newer of the two tells of a change."""
    out = np.zeros(len(sets), dtype=bool)
    mine = facts.matched[leader]
    weight = facts.matched @ facts.idf
    both = (facts.matched & mine) @ facts.idf
    enough = both >= SHARED * np.maximum(np.maximum(weight, weight[leader]), 1e-9)
    for other in np.flatnonzero(among & enough).tolist():
        if other == leader:
            continue
        newer = other if facts.created_at[other] > facts.created_at[leader] else leader
        shared = len(sets[leader] & sets[other])
        if tells_of_change(facts.texts[newer]) and shared >= TOUCHING * len(sets[leader] | sets[other]):
            out[other] = True
    return out
