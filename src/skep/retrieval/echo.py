"""Echo: words that the first hits share and the query does not have, and how much of them each candidate holds.

What answers a question often shares words with another answer that neither shares with the question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.retrieval.reading import terms_of
from skep.words import STOP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

VOICES = 5
"""How many of the first hits give their words."""
WORDS = 10
"""How many words are listened for: those of most hits, rare ones first."""
SHARED = 1.0
"""The scores of those that hold a word must add up to more than this share of the best one: a single hit has no say."""
MEMO_TEXTS = 2048
"""Texts whose words are remembered: a bank's first hits come up again and again."""


def voices(texts: Sequence[str], score: Floats, asked: Collection[str]) -> dict[str, float]:
    """The words that the first hits share and the query lacks, each with the scores of those that hold it.

    >>> voices(["red brick roof", "red roof"], np.array([2.0, 1.0]), ["roof"])
    {'red': 1.5}
    """
    out: defaultdict[str, float] = defaultdict(float)
    for text, share in zip(texts, (score / max(float(score[0]), 1e-9)).tolist(), strict=True):
        for word in _words(text).difference(asked):
            out[word] += share
    return {word: share for word, share in out.items() if share > SHARED}


def echo(impacts: Floats, score: Floats) -> Floats:
    """How much of the words each candidate holds, 0..1; one of the first hits is not heard by itself.

    Args:
        impacts: Impact of each word (columns) on each candidate (rows), best first.
        score: The scores of those whose words they are: the first rows.

    >>> echo(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 2.0])).tolist()
    [0.25, 0.25, 1.0]
    """
    count = len(score)
    said = (impacts[:count] > 0) * (score / max(float(score[0]), 1e-9))[:, None]
    whole = np.maximum(said.sum(axis=0), 1e-9)
    heard = impacts.copy()
    heard[:count] *= np.maximum(whole - said, 0.0) / whole
    sums = heard.sum(axis=1)
    return sums / max(float(sums.max(initial=0.0)), 1e-9)


@lru_cache(maxsize=MEMO_TEXTS)
def _words(text: str) -> frozenset[str]:
    return frozenset(terms_of(text)) - STOP
