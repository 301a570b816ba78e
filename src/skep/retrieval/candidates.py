"""The candidates of one recall as aligned arrays, and the scores that the fusion gives them.

`pipeline` makes them from what `Sources` finds; every later stage takes candidates and returns candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from skep.model import Stage
from skep.retrieval import score as signals
from skep.retrieval.recall_config import QUERY_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skep.filters import Filter
    from skep.retrieval.query import Query
    from skep.retrieval.recall_config import RecallConfig
    from skep.retrieval.sources import Pool, Sources

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

COUNTED = ("confirmations", "trust", "usage")
"""Signals that need the use counters."""
MATCHED_CONFIDENCE = 0.01


@dataclass(frozen=True, slots=True)
class Call:
    """One recall: the values that every stage may read."""

    asked: Query
    config: RecallConfig
    sources: Sources
    where: Filter
    now: float
    vector: Singles | None
    explain: bool = True
    """The stages say what they did."""

    @property
    def terms(self) -> tuple[str, ...]:
        """The index terms to look up; none where the config searches by meaning alone and there is a vector."""
        return self.asked.terms if self.config.k_words or self.vector is None else ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates, best first once `ordered`: arrays with one entry each."""

    rows: Ints
    words: Floats
    """BM25."""
    cosine: Floats
    """On the calibrated scale; nan where there is no vector."""
    created_at: Floats
    importance: Floats
    confidence: Floats
    """As stored."""
    last_evidence_at: Floats
    former: Ints
    """The replaced row for which each one speaks as well; -1 where there is none."""
    score: Floats
    signals: dict[str, Floats] = field(default_factory=dict[str, "Floats"])
    ranks: dict[str, Ints] = field(default_factory=dict[str, "Ints"])
    outdated: dict[int, int] = field(default_factory=dict[int, int])
    """Rows that a newer memory surely updates, each with the row of that."""
    trace: tuple[Stage, ...] | None = ()
    """What the stages did; None where nobody wants to know."""

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Ints | Sequence[int]) -> Candidates:
        """The candidates at these positions, in that order."""
        at = np.asarray(index, dtype=np.int64)
        return replace(
            self,
            **{name: getattr(self, name)[at] for name in _ARRAYS},
            signals={name: values[at] for name, values in self.signals.items()},
            ranks={name: values[at] for name, values in self.ranks.items()},
        )

    def first(self, count: int) -> Candidates:
        """The best of them."""
        return self if count >= len(self) else self.take(np.arange(count))

    def lifted(self, extra: Floats, **shown: Floats) -> Candidates:
        """The first few with so much more score, in the order that gives, and with further signals to show."""
        more = np.zeros(len(self))
        more[: len(extra)] = extra
        padded = {name: np.pad(values, (0, len(self) - len(values))) for name, values in shown.items()}
        return replace(self, score=self.score + more, signals=self.signals | padded).ordered()

    def noted(self, name: str, *, cut: int = 0, note: str = "") -> Candidates:
        """The same, with one more line in the trace."""
        if self.trace is None:
            return self
        return replace(self, trace=(*self.trace, Stage(name=name, kept=len(self), cut=cut, note=note)))

    def ordered(self) -> Candidates:
        """Best first; ties by importance, then newer, then row, which grows with the id."""
        return self.take(signals.total_order(self.score, self.importance, self.created_at, self.rows))

    def joined(self, other: Candidates) -> Candidates:
        """Both sets in one, without scores: `rated` gives them."""
        arrays = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _ARRAYS}
        return replace(self, **arrays, signals={}, ranks={})


_ARRAYS = tuple(
    each.name for each in fields(Candidates) if each.name not in ("signals", "ranks", "outdated", "trace")
)


def of_pool(pool: Pool, call: Call) -> Candidates:
    """The candidates of a pool, without scores, in the order found."""
    cosine = pool.cosine if call.vector is None else call.sources.calibrate(pool.cosine)
    count = len(pool.rows)
    return Candidates(
        rows=pool.rows,
        words=np.asarray(pool.words, np.float64),
        cosine=np.asarray(cosine, np.float64),
        created_at=pool.created_at,
        importance=pool.importance,
        confidence=pool.confidence,
        last_evidence_at=pool.last_evidence_at,
        former=np.full(count, -1, np.int64),
        score=np.zeros(count),
        trace=() if call.explain else None,
    )


def rated(found: Candidates, call: Call) -> Candidates:
    """The candidates with signals and the fused score, best first."""
    if not len(found):
        return found
    config = call.config
    if config.matched_terms and call.vector is None:
        return _by_matches(found, call).ordered()
    values: dict[str, Floats] = {}
    ranks = {"lexical": signals.ranks(found.words), "semantic": signals.ranks(found.cosine)}
    if found.words.max(initial=0.0) > 0:
        values["lexical"] = signals.lexical(found.words)
    if "words" in config.weights and call.terms:
        values["words"] = signals.words(found.words, call.sources.idf(call.terms))
    if not np.isnan(found.cosine).all():
        values["semantic"] = signals.semantic(found.cosine)
    values |= _priors(found, call)
    score = _fuse(values, ranks, len(found), config)
    kept = {name: each for name, each in values.items() if name != "lexical" or "words" not in values}
    shown = {name: each for name, each in ranks.items() if name in values}
    return replace(found, score=score, signals=kept, ranks=shown).ordered()


def _fuse(values: dict[str, Floats], ranks: dict[str, Ints], count: int, config: RecallConfig) -> Floats:
    weights = config.weights
    if config.fusion == "rrf":
        used = [name for name in ranks if weights.get(name, 0) > 0]
        return signals.reciprocal(
            [ranks[name] for name in used], [weights[name] for name in used], k=config.rrf_k
        )
    if config.fusion == "product":
        base = values.get("semantic", np.zeros(count))
        return signals.product(base, {k: v for k, v in values.items() if k != "semantic"}, weights)
    return signals.weighted(values, weights) if values else np.zeros(count)


def _priors(found: Candidates, call: Call) -> dict[str, Floats]:
    """The signals that do not depend on the query, where a weight asks for them."""
    config = call.config
    asked = {name for name, weight in config.weights.items() if weight > 0 and name not in QUERY_SIGNALS}
    out: dict[str, Floats] = {}
    if not asked:
        return out
    basis = found.created_at
    if asked.intersection(COUNTED) or ("recency" in asked and config.recency_basis == "last_used_at"):
        counters = call.sources.counters(found.rows)
        out["confirmations"] = signals.confirmations(counters.confirmations)
        out["trust"] = signals.trust(counters.trust)
        out["usage"] = signals.usage(counters.uses)
        if config.recency_basis == "last_used_at":
            basis = np.where(np.isnan(counters.last_used_at), found.created_at, counters.last_used_at)
    if "recency" in asked:
        out["recency"] = signals.recency(basis, call.now, rate=config.recency_rate)
    if "importance" in asked:
        out["importance"] = found.importance
    if "confidence" in asked:
        out["confidence"] = _confidence(found, call)
    return {name: values for name, values in out.items() if name in asked}


def _confidence(found: Candidates, call: Call) -> Floats:
    """Effective, at the time of the recall."""
    return signals.confidence(
        found.confidence, found.last_evidence_at, call.now, rate=call.where.decay_per_day
    )


def _by_matches(found: Candidates, call: Call) -> Candidates:
    """Without vectors: how many query terms each one, or what it replaced, holds, and a little of its confidence."""
    held = call.sources.impacts(call.asked.terms, found.rows) > 0
    heirs = np.flatnonzero(found.former >= 0)
    if len(heirs):
        held[heirs] |= call.sources.impacts(call.asked.terms, found.former[heirs]) > 0
    matched = held.sum(axis=1).astype(np.float64)
    confidence = _confidence(found, call)
    shown = {"matched": matched, "confidence": confidence}
    score = matched + MATCHED_CONFIDENCE * confidence
    return replace(found, score=score, signals=shown, ranks={"lexical": signals.ranks(matched)})
