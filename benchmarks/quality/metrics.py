"""Ranking metrics, written by hand: ranks from 1, labels per document, -1 for a distractor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Labels = Mapping[str, int]


def relevant(labels: Labels) -> set[str]:
    """The documents that answer."""
    return {document for document, grade in labels.items() if grade > 0}


def distractors(labels: Labels) -> set[str]:
    """The documents labelled as misleading."""
    return {document for document, grade in labels.items() if grade < 0}


def recall(ranked: Sequence[str], labels: Labels, k: int) -> float:
    """The share of relevant documents among the first k."""
    wanted = relevant(labels)
    return len(wanted.intersection(ranked[:k])) / len(wanted) if wanted else 0.0


def precision(ranked: Sequence[str], labels: Labels) -> float:
    """The share of returned documents that answer; 0 for an empty answer."""
    return len(relevant(labels).intersection(ranked)) / len(ranked) if ranked else 0.0


def reciprocal_rank(ranked: Sequence[str], labels: Labels) -> float:
    """1 / the rank of the first relevant document."""
    wanted = relevant(labels)
    return next((1 / rank for rank, document in enumerate(ranked, 1) if document in wanted), 0.0)


def ndcg(ranked: Sequence[str], labels: Labels, k: int) -> float:
    """Discounted gain with 2^grade - 1, as a share of the best possible."""
    gains = [2.0 ** max(labels.get(document, 0), 0) - 1 for document in ranked[:k]]
    best = sorted((2.0**grade - 1 for grade in labels.values() if grade > 0), reverse=True)[:k]
    ideal = _discounted(best)
    return _discounted(gains) / ideal if ideal else 0.0


def udcg(ranked: Sequence[str], labels: Labels, k: int) -> float:
    """Discounted utility: relevant +1 (or its grade), distractor -1, anything else 0.

    >>> grades = {"a": 1, "d": -1, "b": 1, "c": 1}
    >>> round(udcg(["a", "d", "b", "x", "c"], grades, 5), 3)
    1.256
    """
    return _discounted([float(labels.get(document, 0)) for document in first_chunks(ranked)[:k]])


def nudcg(ranked: Sequence[str], labels: Labels, k: int) -> float:
    """UDCG as a share of the answer that ranks only relevant documents.

    >>> grades = {"a": 1, "d": -1, "b": 1, "c": 1}
    >>> round(nudcg(["a", "d", "b", "x", "c"], grades, 5), 3)
    0.589
    """
    best = sorted((float(grade) for grade in labels.values() if grade > 0), reverse=True)[:k]
    ideal = _discounted(best)
    return udcg(ranked, labels, k) / ideal if ideal else 0.0


def first_chunks(ranked: Sequence[str]) -> list[str]:
    """Each document once, at its best place; later chunks of it are removed before ranks are assigned."""
    return list(dict.fromkeys(ranked))


def misled(ranked: Sequence[str], labels: Labels) -> bool:
    """Whether a distractor stands above every relevant document."""
    wanted, wrong = relevant(labels), distractors(labels)
    for document in ranked:
        if document in wanted:
            return False
        if document in wrong:
            return True
    return False


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
