"""What a text says about itself without a model: its subject, and the kinds of answer it can give."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.patterns import lazy
from skep.words import STOP, joined_terms, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HEAD_CHARS = 100
HEAD_TERMS = 6
"""A subject stands among the first words of a text, or is its speaker."""
MEMO_TEXTS = 8192
"""Texts of which it is remembered what they say: a bank's texts come up again and again."""
MEMO_HITS = 2048
"""The same of first hits, whose terms are remembered."""

_time = lazy(
    r"\b(?:\d{4}|january|february|march|april|may|june|july|august|september|october|november|december|"
    r"yesterday|today|tonight|tomorrow|ago|(?:mon|tues|wednes|thurs|fri|satur|sun)day|weekend|"
    r"(?:last|next|this) (?:week|month|year|night|summer|winter|spring|fall|autumn))\b"
)
_number = lazy(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|once|twice)\b"
)
_apart = lazy(r"[\W_]+")
READERS = {"time": _time, "number": _number}
"""What a text in small letters must hold to answer a question for it."""


def subject(names: Sequence[str], texts: Sequence[str]) -> Floats:
    """The share of the words of the query's names that open each text.

    >>> subject(["Ana Reyes"], ["Ana Reyes likes tea", "Tea was bought by Ana"]).tolist()
    [1.0, 0.5]
    """
    asked = {term for name in names for term in terms(name) if term not in STOP}
    if not asked:
        return np.zeros(len(texts))
    found = [len(asked & _head(text[:HEAD_CHARS])) for text in texts]
    return np.array(found, dtype=np.float64) / len(asked)


def author(query: str, authors: Sequence[str]) -> Floats:
    """Whether the query names the agent that wrote each memory, word for word; 0 for all where one wrote them all.

    >>> author("What do team B and storage plan?", ["storage", "team_b", "team_c", "ops-storage", ""]).tolist()
    [1.0, 1.0, 0.0, 0.0, 0.0]
    """
    names = set(authors)
    if len(names) < 2:
        return np.zeros(len(authors))
    asked = f" {joined_terms(query)} "
    held = {name for name in names if _name(name).strip() and _name(name) in asked}
    return np.array([name in held for name in authors], dtype=np.float64)


def wanted(kind: str, texts: Sequence[str]) -> Floats:
    """Whether each text could answer a question for a time or a number."""
    return np.array([_holds(kind, text) for text in texts], dtype=np.float64)


@lru_cache(maxsize=MEMO_HITS)
def terms_of(text: str) -> tuple[str, ...]:
    """`terms` of one of the first hits: several stages ask for them."""
    return tuple(terms(text))


@lru_cache(maxsize=MEMO_TEXTS)
def _name(author: str) -> str:
    """The words of an agent's name, with a blank on either side."""
    return f" {joined_terms(_apart.sub(' ', author))} "


@lru_cache(maxsize=MEMO_TEXTS)
def _head(start: str) -> frozenset[str]:
    """The first terms of a text."""
    return frozenset(terms(start)[:HEAD_TERMS])


@lru_cache(maxsize=MEMO_TEXTS)
def _holds(kind: str, text: str) -> bool:
    return READERS[kind].search(text.lower()) is not None
