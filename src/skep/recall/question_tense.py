"""Whether a question asks for what holds now or for what held before: a linear model over its words.

"Where does Ana work?" may be answered by the newest of several memories; "where did Ana work first?" may not. Word
lists know the plain cases; the model weighs the tense and the rest of the words. `UpdateOrder` asks it.
`training/fit_update_order.py` fits the weights on the questions of `training/data`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp
from typing import NamedTuple

from skep.runtime import lazy
from skep.text.terms import STOP

WORDS = os.path.join(os.path.dirname(__file__), "data", "question_words.txt")
BIAS = "*"
"""Stands in the file for the constant."""
SHARED = 2
"""Hits that hold a word which is then part of the matter."""
_word = lazy(r"[^\W\d_]+(?:'[^\W\d_]+)?")


Weights = Mapping[str, tuple[float, float]]
"""By word: what it says for a question about now, and for one about before."""


class Tense(NamedTuple):
    """The probabilities that a question asks for what holds now, and for what held before."""

    now: float
    before: float


def words_of(question: str) -> frozenset[str]:
    """The words of a question, each once.

    >>> sorted(words_of("What's Ana's rent, 2024?"))
    ["ana's", 'rent', "what's"]
    """
    return frozenset(_word.findall(question.casefold().replace("\u2019", "'")))


def tense_of(question: str, hits: Sequence[str] = (), weights: Weights | None = None) -> Tense:
    """The tense of a question.

    A word that two of the hits hold as well belongs to what they are about: "when was it last changed?".

    >>> tense_of("what was the rent before the move?").before > 0.5 > tense_of("what is the rent?").before
    True
    """
    known = _weights() if weights is None else weights
    words = [word for word in words_of(question) if word in known]
    if hits:
        held = Counter(word for hit in hits for word in words_of(hit))
        words = [word for word in words if held[word] < SHARED or word in STOP]
    now, before = (known[BIAS][column] + sum(known[word][column] for word in words) for column in range(2))
    return Tense(1 / (1 + exp(-now)), 1 / (1 + exp(-before)))


@lru_cache(maxsize=1)
def _weights() -> Weights:
    with open(WORDS, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return {word: (float(now), float(before)) for word, now, before in lines}
