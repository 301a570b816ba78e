"""The candidates of a recall as arrays, and the first two stages: finding them and giving them a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from skep.model import Stage
from skep.retrieval import fusion, signals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.config import RecallConfig
    from skep.retrieval.query import Query
    from skep.retrieval.sources import Pool, Sources
    from skep.storage.base import Filter

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

COUNTED = ("confirmations", "trust", "usage")
"""Signals that need the use counters."""
MATCHED_CONFIDENCE = 0.01


@dataclass(frozen=True, slots=True)
class Call:
    """One recall: what every stage may look at."""

    asked: Query
    config: RecallConfig
    sources: Sources
    where: Filter
    now: float
    vector: Singles | None


@dataclass(frozen=True, slots=True)
class Candidates:
    """What stands after a stage; one entry per candidate in every array."""

    rows: Ints
    words: Floats
    """BM25 as found, or as filled from the neighbours."""
    cosine: Floats
    """On the calibrated scale; nan where there is no vector."""
    created_at: Floats
    importance: Floats
    confidence: Floats
    """Effective, at the time of the recall."""
    score: Floats
    signals: dict[str, Floats]
    ranks: dict[str, Ints]
    outdated: Bools
    trace: tuple[Stage, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Ints | Sequence[int]) -> Candidates:
        """The candidates at these positions, in that order."""
        at = np.asarray(index, dtype=np.int64)
        return Candidates(
            rows=self.rows[at],
            words=self.words[at],
            cosine=self.cosine[at],
            created_at=self.created_at[at],
            importance=self.importance[at],
            confidence=self.confidence[at],
            score=self.score[at],
            signals={name: values[at] for name, values in self.signals.items()},
            ranks={name: values[at] for name, values in self.ranks.items()},
            outdated=self.outdated[at],
            trace=self.trace,
        )

    def scored(self, score: Floats, **extra: Floats) -> Candidates:
        """The same with another score, and with further signals to show."""
        return replace(self, score=score, signals=self.signals | extra)

    def noted(self, name: str, *, cut: int = 0, note: str = "") -> Candidates:
        """The same, with one more line in the trace."""
        line = Stage(name=name, kept=len(self), cut=cut, note=note)
        return Candidates(
            self.rows, self.words, self.cosine, self.created_at, self.importance, self.confidence,
            self.score, self.signals, self.ranks, self.outdated, (*self.trace, line),
        )  # fmt: skip

    def ordered(self) -> Candidates:
        """Best first; ties by importance, then newer, then row, which grows with the id."""
        return self.take(fusion.total_order(self.score, self.importance, self.created_at, self.rows))


def of_pool(pool: Pool, call: Call) -> Candidates:
    """A pool as candidates without a score."""
    count = len(pool.rows)
    return Candidates(
        rows=np.asarray(pool.rows, dtype=np.int64),
        words=np.asarray(pool.words, dtype=np.float64),
        cosine=call.sources.calibrate(pool.cosine).astype(np.float64),
        created_at=np.asarray(pool.created_at, dtype=np.float64),
        importance=np.asarray(pool.importance, dtype=np.float64),
        confidence=signals.confidence(pool.confidence, pool.last_evidence_at, call.now),
        score=np.zeros(count),
        signals={},
        ranks={},
        outdated=np.zeros(count, dtype=bool),
    )


def join(first: Candidates, second: Candidates) -> Candidates:
    """Two sets of candidates in one; scores and signals are to be computed again."""

    def both(name: str) -> Floats:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    return Candidates(
        rows=np.concatenate([first.rows, second.rows]),
        words=both("words"),
        cosine=both("cosine"),
        created_at=both("created_at"),
        importance=both("importance"),
        confidence=both("confidence"),
        score=both("score"),
        signals={},
        ranks={},
        outdated=np.concatenate([first.outdated, second.outdated]),
        trace=first.trace,
    )


def rate(found: Candidates, call: Call) -> Candidates:
    """Signals and the fused score."""
    there = ~np.isnan(found.cosine)
    matched = found.words > 0
    ranks = {
        "lexical": signals.ranks(found.words, matched),
        "semantic": signals.ranks(found.cosine, there),
    }
    values: dict[str, Floats] = {}
    if matched.any():
        values["lexical"] = signals.lexical(found.words)
    if there.any():
        values["semantic"] = signals.semantic(found.cosine)
    values |= _priors(found, call)
    score = _fuse(found, values, ranks, call.config)
    return replace(found, score=score, signals=values, ranks=ranks)


def _fuse(
    found: Candidates, values: dict[str, Floats], ranks: dict[str, Ints], config: RecallConfig
) -> Floats:
    weights = config.weights
    if config.fusion == "rrf":
        names = [name for name in ranks if weights.get(name, 0) > 0]
        return fusion.reciprocal(
            [ranks[name] for name in names], [weights[name] for name in names], k=config.rrf_k
        )
    if config.fusion == "product":
        base = values.get("semantic", np.zeros(len(found)))
        return fusion.product(base, {k: v for k, v in values.items() if k != "semantic"}, weights)
    if config.fusion == "minmax" and "semantic" in values:
        values = values | {"semantic": fusion.minmax(found.cosine, ~np.isnan(found.cosine))}
    return fusion.weighted(values, weights) if values else np.zeros(len(found))


def unit(config: RecallConfig) -> float:
    """What a weight of 1 in the second look adds to a score whose signal weights were brought to a sum of 1."""
    return 1.0 / sum(config.weights.values()) if config.fusion in ("minmax", "weighted") else 1.0


def _priors(found: Candidates, call: Call) -> dict[str, Floats]:
    """The signals that do not depend on the query, where a weight asks for them."""
    config = call.config
    asked = {name for name, weight in config.weights.items() if weight > 0}
    out: dict[str, Floats] = {}
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
    out["importance"] = found.importance
    out["confidence"] = found.confidence
    return {name: values for name, values in out.items() if name in asked}


def rate_by_matches(found: Candidates, call: Call) -> Candidates:
    """Without vectors: how many query terms each one holds, and a little of its confidence."""
    matched = (call.sources.impacts(call.asked.terms, found.rows) > 0).sum(axis=1).astype(np.float64)
    ranks = {"lexical": signals.ranks(matched, matched > 0)}
    score = matched + MATCHED_CONFIDENCE * found.confidence
    return replace(
        found, score=score, signals={"matched": matched, "confidence": found.confidence}, ranks=ranks
    )
