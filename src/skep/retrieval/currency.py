"""Currency: of memories that answer for the same thing the newest comes first, the others are marked.

Without a model, two memories are rivals when

- they hold the same words of the query and are worded alike, but each has a word the other lacks: the same
  sentence with another value ("lives in Rome", "lives in Oslo"); or
- the newer one tells of a change ("now", "moved to", "raised") and shares the subject; this weaker rule applies
  only to short texts, to questions about the present, and only against the best hit; or
- the question asks for a value that holds now (a number, a time), both hold such a value, and the newer one ranks close
  to the best hit and holds its words of the query; again only against the best hit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.patterns import lazy
from skep.words import STOP, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

REACH = 10
"""How many of the first hits are looked at."""
ALIKE = 0.3
"""Shared words, as a part of all words of both, from which two memories are worded alike."""
TOUCHING = 0.1
"""The same for a memory that tells of a change."""
SHARED = 0.4
"""Which part of the query's words, by rarity, both must hold for a change to concern the other."""
SHORT = 25
"""Terms of a text up to which a change is read from it."""
CLOSE = 0.5
"""How near to the best hit's score one must be for a change to concern it."""

VALUE_CLOSE = 0.75
"""How near to the best hit's score one must be to hold another value of the same thing."""
VALUE_SHARED = 0.7
"""Which part of the best hit's words of the query, by rarity, such a one must hold."""

_change = lazy(
    r"\b(?:now|no longer|not any ?more|instead|any ?more|new(?:ly)?|latest|current(?:ly)?|chang(?:ed|es|ing)|"
    r"updat(?:ed|es)|(?:up|down)grad(?:ed|es)|mov(?:ed|ing) (?:to|into|from)|migrat(?:ed|ing)|switch(?:ed|ing)|"
    r"transfer(?:red|ring)|replac(?:ed|es|ing)|raised|lowered|increased|decreased|reduced|expanded|extended|"
    r"adjusted|revised|promoted|succeeded|appointed|stepped down|reached|improved to|recently|"
    r"renamed|rescheduled|postponed|delayed|pushed|"
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
    score: Floats
    present: bool = True
    """The query asks for what holds now."""
    holding: Bools | None = None
    """Which texts hold a value of the kind the query asks for; None where it asks for no value."""
    rows: Ints | None = None
    """Which was written first, where the times are equal."""


class Renewed(NamedTuple):
    """An order in which newer values come first, and which candidates are outdated by one above them."""

    order: Ints
    outdated: Bools


def renew(facts: Facts) -> Renewed:
    """Let the members of each group of rivals share the group's places, newest first.

    `outdated` follows the old positions. Of equal times the one written later is the newer, where that is known.
    """
    count = len(facts.texts)
    order = np.arange(count)
    outdated = np.zeros(count, dtype=bool)
    free = np.ones(count, dtype=bool)
    words = _Words(facts.texts)
    age = _ages(facts)
    alike = _same_words(facts.matched)
    for leader in range(count):
        if not free[leader] or leader not in alike:
            continue
        rivals = {leader, *_reworded(leader, alike[leader], words)}
        if leader == 0 and facts.present:
            rivals |= _changed(facts, words) | _other_values(facts, age)
        if len(rivals) == 1:
            continue
        places = np.array(sorted(place for place in rivals if free[place]))
        free[places] = False
        newest_first = places[np.argsort(age[places], kind="stable")]
        order[places] = newest_first
        outdated[places] = age[places] > age[newest_first[0]]
    return Renewed(order, outdated)


def _ages(facts: Facts) -> Ints:
    """Places by age: 0 for the newest; equal where neither time nor the order of writing tells them apart."""
    if facts.rows is None:
        return np.unique(-facts.created_at, return_inverse=True)[1]
    newest_first = np.lexsort((-facts.rows, -facts.created_at))
    out = np.empty(len(newest_first), dtype=np.int64)
    out[newest_first] = np.arange(len(newest_first))
    return out


class _Words:
    """The words of the candidates, taken apart when first asked for."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._kept: dict[int, tuple[frozenset[str], int]] = {}

    def of(self, place: int) -> tuple[frozenset[str], int]:
        """The distinct words that mean something, and how many terms the text has."""
        if place not in self._kept:
            self._kept[place] = _taken_apart(self._texts[place])
        return self._kept[place]


@lru_cache(maxsize=2048)
def _taken_apart(text: str) -> tuple[frozenset[str], int]:
    found = terms(text)
    return frozenset(found) - STOP, len(found)


def _same_words(matched: Bools) -> dict[int, list[int]]:
    """For every candidate that holds a word of the query: those that hold exactly the same ones."""
    groups: dict[bytes, list[int]] = {}
    for place, row in enumerate(np.packbits(matched, axis=1)):
        if row.any():
            groups.setdefault(row.tobytes(), []).append(place)
    return {place: group for group in groups.values() for place in group}


def tells_of_change(text: str) -> bool:
    """Whether a text says that something is no longer as it was.

    >>> tells_of_change("The limit was raised to 500"), tells_of_change("The limit is 100")
    (True, False)
    """
    return _change.search(text) is not None


def _reworded(leader: int, group: Sequence[int], words: _Words) -> list[int]:
    """Those of the group worded like the leader, with another value."""
    if len(group) < 2:
        return []
    mine, _ = words.of(leader)
    out: list[int] = []
    for other in group:
        theirs, _ = words.of(other)
        shared = len(mine & theirs)
        each_its_own = shared < min(len(mine), len(theirs))
        if each_its_own and shared >= ALIKE * (len(mine) + len(theirs) - shared):
            out.append(other)
    return out


def _changed(facts: Facts, words: _Words) -> set[int]:
    """Those that share the best hit's subject where the newer of the two tells of a change."""
    weight = facts.matched @ facts.idf
    both = (facts.matched & facts.matched[0]) @ facts.idf
    enough = facts.score >= CLOSE * facts.score[0]
    enough &= both >= SHARED * np.maximum(np.maximum(weight, weight[0]), 1e-9)
    mine, length = words.of(0)
    if length > SHORT:
        return set()
    out: set[int] = set()
    for other in np.flatnonzero(enough).tolist():
        newer = other if facts.created_at[other] > facts.created_at[0] else 0
        if other == 0 or not tells_of_change(facts.texts[newer]):
            continue
        theirs, size = words.of(other)
        if size <= SHORT and len(mine & theirs) >= TOUCHING * len(mine | theirs):
            out.add(other)
    return out


def _other_values(facts: Facts, age: Ints) -> set[int]:
    """Newer ones that hold a value for what the best hit holds one for, as a question for a value wants it."""
    if facts.holding is None or not facts.holding[0]:
        return set()
    both = (facts.matched & facts.matched[0]) @ facts.idf
    rival = facts.holding & (age < age[0])
    rival &= facts.score >= VALUE_CLOSE * facts.score[0]
    rival &= both >= VALUE_SHARED * max(float(facts.matched[0] @ facts.idf), 1e-9)
    return set(np.flatnonzero(rival).tolist())
