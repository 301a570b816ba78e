"""Titles: what a memory is headed with, whether the query names it, and whether the first hits do.

A text that opens with "Blue Heron. ..." or "Blue Heron (bird): ..." is about it; one that holds the name somewhere is
not. And where the first hits name the title of another memory, that one is the next step: who asks for the river of the
town in which Ana was born names neither the river nor the town.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.patterns import lazy
from skep.words import STOP, joined_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HEAD_CHARS = 80
MOST_TERMS = 8
"""What runs on for longer than this is a sentence."""
GUIDES = 5
"""How many of the first hits may name the next step."""
GUIDE_CHARS = 1000
"""What they say further on leads nowhere."""
MEMO_TEXTS = 8192
"""Texts of which the title is remembered: a bank's texts come up again and again."""

_mark = lazy(r"[.:;(\n–—-]")
_apart = lazy(r" [-–—] |[.:]\s|\n")
_which = lazy(r" \([^)\n]{1,40}\)(?=[.:]\s|\n| [-–—] )")


@lru_cache(maxsize=MEMO_TEXTS)
def title(text: str) -> str:
    """The terms that head a text, with a blank on either side; empty where nothing does.

    >>> title("Edward J. Hale (painter). He was born in Leeds."), title("He was born in Leeds")
    (' edward j hale ', '')
    """
    end = _end(text) if _mark.search(text, 1, HEAD_CHARS) else -1
    if end < 0 or not text[end + 2 : end + 44].strip():
        return ""
    words = joined_terms(text[:end]).split()
    if len(words) > MOST_TERMS or all(word in STOP or word.isdigit() for word in words):
        return ""
    return f" {' '.join(words)} "


def _end(text: str) -> int:
    """Where the title of a text ends; -1 where it has none.

    At a stop that does not follow an initial, a colon, a dash or a line break, and before what is said in brackets to
    tell it from its namesakes.
    """
    for mark in _mark.finditer(text, 1, HEAD_CHARS):
        at, sign = mark.start(), mark.group()
        if sign == ";":
            return -1
        if sign == "(":
            return at - 1 if _which.match(text, at - 1) else -1
        if sign in "-–—":
            at -= 1
        if _apart.match(text, at) and not (
            sign == "." and text[at - 1].isupper() and text[at - 2 : at - 1] in " ."
        ):
            return at
    return -1


def named(query: str, titles: Sequence[str]) -> Floats:
    """Whether the query holds each title, word for word; those that share one share the 1 as well.

    >>> named("Is Blue Heron a band?", [title("Blue Heron: a boat"), title("Heron: a bird"), ""]).tolist()
    [1.0, 1.0, 0.0]
    """
    if not any(titles):
        return np.zeros(len(titles))
    asked = _said(query)
    there = Counter(each for each in titles if each and each in asked)
    return np.array([1.0 / there[each] if each in there else 0.0 for each in titles])


def bridge(query: str, titles: Sequence[str], guides: Sequence[str], score: Floats) -> Floats:
    """How high a hit ranks that names each title which the query does not, 0..1; shared titles share it.

    Args:
        query: What is asked.
        titles: The titles of the short list, best first.
        guides: The texts of the first few.
        score: Their scores.

    >>> texts = ["Ana. She was born in Ulm.", "Bea: a cook", "Ulm. A town on the Danube."]
    >>> bridge("Where was Ana born?", [title(text) for text in texts], texts[:2], np.array([2.0, 1.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    out = np.zeros(len(titles))
    if not any(titles):
        return out
    asked = _said(query)
    unasked = Counter(each for each in titles if each and each not in asked)
    if not unasked or score[0] <= 0:
        return out
    for place, (guide, share) in enumerate(zip(guides, (score / score[0]).tolist(), strict=True)):
        said = _said(guide[:GUIDE_CHARS])
        next_steps = {each for each in unasked if each in said and each != titles[place]}
        for at, each in enumerate(titles) if next_steps else ():
            if each in next_steps:
                out[at] = max(out[at], share / unasked[each])
    return out


@lru_cache(maxsize=MEMO_TEXTS)
def _said(text: str) -> str:
    """All terms of a text, with a blank before and after each."""
    return f" {joined_terms(text)} "
