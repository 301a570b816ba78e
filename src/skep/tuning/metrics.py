"""Metrics of a ranked answer that count distractors as harm, and the confidence of their means. Pure.

An irrelevant result wastes a slot; a distractor misleads its reader. UDCG gives a relevant document its grade, an
irrelevant one 0 and a distractor −1, discounted by rank. Labels are about documents while retrieval returns chunks:
only the best-ranked chunk of a document counts, and later chunks are removed before ranks are assigned. All
functions take ranked document ids; `score_query` takes raw chunk results. Randomness is an argument: the same
generator gives the same interval and p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    import numpy as np


DEFAULT_K = 10


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of one query: relevant documents with their grades, and distractors."""

    relevant: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    distractors: frozenset[str] = frozenset()

    def utility(self, document: str) -> float:
        """The worth of handing over `document`: its grade, 0, or −1."""
        if document in self.relevant:
            return self.relevant[document]
        return -1.0 if document in self.distractors else 0.0


class Handed(NamedTuple):
    """The document of one chunk in an answer."""

    document: str
    flagged: bool = False
    """The chunk shares words with the query and lies far behind in meaning."""


def first_per_document(answer: Iterable[Handed | str]) -> dict[str, bool]:
    """The documents in order of their best-ranked chunk, and whether that one was flagged.

    >>> first_per_document(["a", Handed("b", True), "a", "c", "b"])
    {'a': False, 'b': True, 'c': False}
    """
    found: dict[str, bool] = {}
    for each in answer:
        document, flagged = (each, False) if isinstance(each, str) else each
        found.setdefault(document, flagged)
    return found


def discount(rank: int) -> float:
    """1 / log2(rank + 1), for ranks from 1."""
    return 1.0 / math.log2(rank + 1)


def discounted(utilities: Iterable[float]) -> float:
    """The sum of utilities, each discounted by its rank."""
    return math.fsum(utility * discount(rank) for rank, utility in enumerate(utilities, start=1))


def udcg(ranked: Sequence[str], labels: Labels, *, k: int = DEFAULT_K) -> float:
    """Utility-discounted cumulative gain of the first `k` documents; negative when distractors prevail."""
    return discounted(labels.utility(document) for document in ranked[:k])


def ideal(labels: Labels, *, k: int = DEFAULT_K) -> float:
    """The UDCG of the best answer there could be: min(k, relevant) relevant documents, best grade first."""
    return discounted(sorted(labels.relevant.values(), reverse=True)[:k])


def nudcg(ranked: Sequence[str], labels: Labels, *, k: int = DEFAULT_K) -> float | None:
    """UDCG over its ideal: at most 1, below 0 when distractors prevail, None without a relevant document."""
    best = ideal(labels, k=k)
    return udcg(ranked, labels, k=k) / best if best > 0 else None


def ndcg(ranked: Sequence[str], labels: Labels, *, k: int = DEFAULT_K) -> float | None:
    """The classic measure, to which a distractor is only a zero. None without a relevant document."""
    best = ideal(labels, k=k)
    if best <= 0:
        return None
    return discounted(labels.relevant.get(document, 0.0) for document in ranked[:k]) / best


def precision(ranked: Sequence[str], labels: Labels, *, k: int = DEFAULT_K) -> float:
    """The share of relevant documents among those returned, at most `k`; 0 for an empty answer.

    Divided by what was returned and not by `k`: an answer that stops in time is not punished for its length.
    """
    top = ranked[:k]
    return sum(document in labels.relevant for document in top) / len(top) if top else 0.0


def recall(ranked: Sequence[str], labels: Labels, *, k: int = DEFAULT_K) -> float | None:
    """The share of the relevant documents that were returned. None without a relevant document."""
    if not labels.relevant:
        return None
    return sum(document in labels.relevant for document in ranked[:k]) / len(labels.relevant)


def reciprocal_rank(ranked: Sequence[str], labels: Labels, *, k: int = DEFAULT_K) -> float | None:
    """1 / rank of the first relevant document, 0 when none was returned. None without a relevant document."""
    if not labels.relevant:
        return None
    for rank, document in enumerate(ranked[:k], start=1):
        if document in labels.relevant:
            return 1.0 / rank
    return 0.0


class QueryScore(msgspec.Struct, frozen=True, kw_only=True):
    """One query, measured. The five quality figures are None when no document is labelled relevant."""

    query: str
    """The id of the query."""
    answerable: bool
    returned: int
    """Documents in the answer, after removing later chunks, at most k."""
    distractors: tuple[str, ...] = ()
    flagged: int = 0
    """Documents whose chunk was flagged."""
    flagged_distractors: int = 0
    flagged_relevant: int = 0
    nudcg: float | None = None
    ndcg: float | None = None
    precision: float | None = None
    recall: float | None = None
    mrr: float | None = None
    milliseconds: float = 0.0

    @property
    def abstained(self) -> bool:
        """True for an empty answer."""
        return self.returned == 0


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """All queries together. Means are over answerable queries; counts are over all."""

    queries: int
    answerable: int
    nudcg: float
    ndcg: float
    precision: float
    recall: float
    mrr: float
    distractors: int
    """How many distractors were handed over, all queries together."""
    abstained_right: int
    """Queries without an answer that got none."""
    abstained_wrong: int
    """Queries with an answer that got none."""
    latency_ms: float = 0.0
    """The 95th percentile over the queries."""
    flagged: int = 0
    """Documents that were flagged as likely distractors."""
    flagged_distractors: int = 0
    flagged_relevant: int = 0

    @property
    def flag_precision(self) -> float:
        """The share of distractors among the labelled documents that were flagged."""
        labelled = self.flagged_distractors + self.flagged_relevant
        return self.flagged_distractors / labelled if labelled else 0.0

    @property
    def flag_recall(self) -> float:
        """The share of the distractors handed over that were flagged."""
        return self.flagged_distractors / self.distractors if self.distractors else 0.0

    @property
    def unanswerable(self) -> int:
        """Queries without a labelled relevant document; an empty answer is right there."""
        return self.queries - self.answerable


def score_query(
    query: str,
    answer: Iterable[Handed | str],
    labels: Labels,
    *,
    k: int = DEFAULT_K,
    milliseconds: float = 0.0,
) -> QueryScore:
    """Measure one answer, given as the document of each returned chunk in rank order."""
    found = dict(list(first_per_document(answer).items())[:k])
    ranked = list(found)
    flagged = [document for document, odd in found.items() if odd]
    answerable = ideal(labels, k=k) > 0
    return QueryScore(
        query=query,
        answerable=answerable,
        returned=len(ranked),
        distractors=tuple(document for document in ranked if labels.utility(document) == -1.0),
        flagged=len(flagged),
        flagged_distractors=sum(labels.utility(document) == -1.0 for document in flagged),
        flagged_relevant=sum(document in labels.relevant for document in flagged),
        nudcg=nudcg(ranked, labels, k=k),
        ndcg=ndcg(ranked, labels, k=k),
        precision=precision(ranked, labels, k=k) if answerable else None,
        recall=recall(ranked, labels, k=k) if answerable else None,
        mrr=reciprocal_rank(ranked, labels, k=k) if answerable else None,
        milliseconds=milliseconds,
    )


def overall(scores: Sequence[QueryScore]) -> Overall:
    """Fold the scores of all queries into one set of figures; every mean of nothing is 0."""
    answerable = [score for score in scores if score.answerable]

    def mean(name: str) -> float:
        values = [getattr(score, name) for score in answerable]
        return math.fsum(values) / len(values) if values else 0.0

    return Overall(
        queries=len(scores),
        answerable=len(answerable),
        nudcg=mean("nudcg"),
        ndcg=mean("ndcg"),
        precision=mean("precision"),
        recall=mean("recall"),
        mrr=mean("mrr"),
        distractors=sum(len(score.distractors) for score in scores),
        abstained_right=sum(score.abstained for score in scores if not score.answerable),
        abstained_wrong=sum(score.abstained for score in answerable),
        latency_ms=percentile([score.milliseconds for score in scores], 0.95),
        flagged=sum(score.flagged for score in scores),
        flagged_distractors=sum(score.flagged_distractors for score in scores),
        flagged_relevant=sum(score.flagged_relevant for score in scores),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0 of nothing.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


LEVEL = 0.95
RESAMPLES = 2000
EXACT_UP_TO = 12
"""With so few differing pairs every sign pattern is tried; above it, a sample of them."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A confidence interval of a mean."""

    low: float
    high: float
    level: float = LEVEL


def bootstrap_interval(
    values: Sequence[float], rng: np.random.Generator, *, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """The percentile bootstrap interval of the mean of `values`; 0 to 0 of nothing."""
    import numpy as np

    if not values:
        return Interval(low=0.0, high=0.0, level=level)
    data = np.asarray(values, dtype=np.float64)
    picks = rng.integers(0, len(data), size=(resamples, len(data)))
    means = data[picks].mean(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high), level=level)


def paired_p_value(
    before: Sequence[float], after: Sequence[float], rng: np.random.Generator, *, resamples: int = 10_000
) -> float:
    """Two-sided sign-flip test: how often chance alone gives a mean difference as large as the one seen.

    Pairs are the same query under two configs. Pairs without a difference say nothing and are left out;
    with none left, the p-value is 1. Up to `EXACT_UP_TO` differing pairs the test is exact.
    """
    import numpy as np

    if len(before) != len(after):
        raise ValueError(f"the sides have {len(before)} and {len(after)} values; pair them first")
    deltas = np.asarray([b - a for a, b in zip(before, after, strict=True) if a != b], dtype=np.float64)
    if not len(deltas):
        return 1.0
    seen = abs(float(deltas.sum())) - 1e-12
    if len(deltas) <= EXACT_UP_TO:
        signs = np.array(list(product((1.0, -1.0), repeat=len(deltas))))
        return float(np.mean(np.abs(signs @ deltas) >= seen))
    signs = rng.choice(np.array([1.0, -1.0]), size=(resamples, len(deltas)))
    extreme = int(np.sum(np.abs(signs @ deltas) >= seen))
    return (extreme + 1) / (resamples + 1)
