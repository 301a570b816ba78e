"""The candidates of a recall as arrays, and the first two stages: finding them and giving them a score.

What is known of candidates stands in columns, in the order in which they were found, and is never moved. An order is
a list of places in those columns, so that cutting and sorting touch one array, however many signals there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from skep.model import Stage
from skep.retrieval import score as score_module
from skep.retrieval.recall_config import QUERY_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skep.filters import Filter
    from skep.retrieval.query import Query
    from skep.retrieval.recall_config import RecallConfig
    from skep.retrieval.sources import Pool, Sources


if TYPE_CHECKING:
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

COUNTED = ("confirmations", "trust", "usage")
"""Signals that need the use counters."""
MATCHED_CONFIDENCE = 0.01
COLUMNS = (
    *("rows", "words", "cosine", "created_at", "importance", "confidence", "last_evidence_at"),
    *("before", "former"),
)
_BY_QUERY = frozenset(QUERY_SIGNALS)
_NONE = np.full(1024, -1, dtype=np.int64)
_NONE.flags.writeable = False
_PLACES = np.arange(1024)
_PLACES.flags.writeable = False


class Call(msgspec.Struct, frozen=True):
    """One recall: what every stage may look at."""

    asked: Query
    config: RecallConfig
    sources: Sources
    where: Filter
    now: float
    vector: Singles | None
    explain: bool = True
    """Whether the stages are to say what they did."""
    shown: bool = True
    """Whether signals and ranks of what is found are looked at, and not the order alone."""

    @property
    def trace(self) -> tuple[Stage, ...] | None:
        """What stands in the trace before the first stage."""
        return () if self.explain else None


class Columns:
    """What is known of candidates before they are rated, one entry per candidate in every array.

    Those of a pool of the index are taken from it when somebody looks at them: few questions look at all.
    """

    __slots__ = (*COLUMNS, "_pool")
    _pool: Pool
    rows: Ints
    words: Floats
    """BM25 as found, or as filled from the neighbours."""
    cosine: Floats
    """On the calibrated scale; nan where there is no vector."""
    created_at: Floats
    importance: Floats
    confidence: Floats
    """As stored."""
    last_evidence_at: Floats
    before: Ints
    """The row just before in the same conversation, once the neighbours were looked at; -1 where there is none."""
    former: Ints
    """The row that each replaced and speaks for as well; -1 where there is none."""

    def __init__(
        self,
        rows: Ints,
        words: Floats,
        cosine: Floats,
        created_at: Floats,
        importance: Floats,
        confidence: Floats,
        last_evidence_at: Floats,
        before: Ints,
        former: Ints,
    ) -> None:
        self.rows, self.words, self.cosine = rows, words, cosine
        self.created_at, self.importance = created_at, importance
        self.confidence, self.last_evidence_at = confidence, last_evidence_at
        self.before, self.former = before, former

    @classmethod
    def of(cls, pool: Pool, calibrated: Floats) -> Columns:
        """Those of a pool, with its cosines on the calibrated scale."""
        made = cls.__new__(cls)
        made._pool, made.cosine = pool, calibrated
        return made

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name not in COLUMNS:
            raise AttributeError(name)
        alone = name in ("before", "former")
        column: NDArray[Any] = _alone(len(self.cosine)) if alone else getattr(self._pool, name)
        setattr(self, name, column)
        return column

    def but(self, **others: NDArray[Any]) -> Columns:
        """The same with other columns."""
        return Columns(*(others[name] if name in others else getattr(self, name) for name in COLUMNS))


class Candidates(msgspec.Struct, frozen=True):
    """What stands after a stage, best first."""

    columns: Columns
    measured: dict[str, Floats]
    """Signals, entry for entry as in the columns."""
    places: dict[str, Ints]
    """Ranks, entry for entry as in the columns."""
    at: Ints
    """Which entries stand, in order."""
    score: Floats
    """One for each that stands."""
    outdated: frozenset[int] = frozenset()
    """Rows that a newer one above them makes untrue."""
    trace: tuple[Stage, ...] | None = ()
    """What the stages did; None where nobody wants to know."""

    def __len__(self) -> int:
        return len(self.at)

    @property
    def rows(self) -> Ints:
        """The row of each."""
        return self.columns.rows[self.at]

    @property
    def cosine(self) -> Floats:
        """The calibrated cosine of each."""
        return self.columns.cosine[self.at]

    @property
    def created_at(self) -> Floats:
        """When each was made."""
        return self.columns.created_at[self.at]

    def first(self, count: int) -> Candidates:
        """The best of them."""
        if count >= len(self.at):
            return self
        at, score = self.at[:count], self.score[:count]
        return Candidates(self.columns, self.measured, self.places, at, score, self.outdated, self.trace)

    def take(self, index: Ints | Sequence[int]) -> Candidates:
        """The candidates at these positions, in that order."""
        chosen = np.asarray(index, dtype=np.int64)
        return msgspec.structs.replace(self, at=self.at[chosen], score=self.score[chosen])

    def spread(self, values: Floats) -> Floats:
        """Values of the first few as a column; 0 for the others."""
        column = np.zeros(len(self.columns.rows))
        column[self.at[: len(values)]] = values
        return column

    def lifted(self, extra: Floats, **shown: Floats) -> Candidates:
        """The first few with so much more score, in the order that gives, and with further signals to show."""
        score = self.score.copy()
        score[: len(extra)] += extra
        return self.scored(score, **shown)

    def scored(self, score: Floats, **shown: Floats) -> Candidates:
        """With another score, in the order that gives, and with further signals to show."""
        more = {name: self.spread(values) for name, values in shown.items()}
        return msgspec.structs.replace(self, score=score, measured=self.measured | more).ordered()

    def noted(self, name: str, *, cut: int = 0, note: str = "") -> Candidates:
        """The same, with one more line in the trace."""
        if self.trace is None:
            return self
        line = Stage(name=name, kept=len(self.at), cut=cut, note=note)
        return msgspec.structs.replace(self, trace=(*self.trace, line))

    def ordered(self) -> Candidates:
        """Best first; ties by importance, then newer, then row, which grows with the id."""
        columns = self.columns
        at, score = score_module.best_first(
            self.score, self.at, columns.importance, columns.created_at, columns.rows
        )
        return Candidates(columns, self.measured, self.places, at, score, self.outdated, self.trace)


def of_pool(pool: Pool, call: Call) -> Columns:
    """A pool as columns."""
    cosine = pool.cosine if call.vector is None else call.sources.calibrate(pool.cosine)
    alone = _alone(len(pool.rows))
    return Columns(
        pool.rows,
        pool.words,
        np.asarray(cosine, dtype=np.float64),
        pool.created_at,
        pool.importance,
        pool.confidence,
        pool.last_evidence_at,
        alone,
        alone,
    )


def _alone(count: int) -> Ints:
    """So many that have none before them; not to be written to."""
    return _NONE[:count] if count <= len(_NONE) else np.full(count, -1, dtype=np.int64)


def _as_found(count: int) -> Ints:
    """So many in the order found; not to be written to."""
    return _PLACES[:count] if count <= len(_PLACES) else np.arange(count)


def join(first: Columns, second: Columns) -> Columns:
    """Two sets of columns in one."""
    pairs = ((getattr(first, name), getattr(second, name)) for name in COLUMNS)
    return Columns(*map(np.concatenate, pairs))


def taken(columns: Columns, at: Ints) -> Columns:
    """Some of the entries."""
    return Columns(*(getattr(columns, name)[at] for name in COLUMNS))


def unrated(columns: Columns, call: Call) -> Candidates:
    """Candidates without a score, in the order found."""
    count = len(columns.rows)
    return Candidates(columns, {}, {}, np.arange(count), np.zeros(count), trace=call.trace)


def rate(columns: Columns, call: Call) -> Candidates:
    """Signals and the fused score, in the order found."""
    values, ranks = score_module.by_query(columns.words, columns.cosine)
    if not call.config.weights.keys() <= _BY_QUERY:
        values |= _priors(columns, call)
    score = _fuse(columns, values, ranks, call.config)
    return Candidates(columns, values, ranks, _as_found(len(score)), score, trace=call.trace)


def rated(columns: Columns, call: Call) -> Candidates:
    """Signals and the fused score, best first."""
    return rate(columns, call).ordered()


def found_in(pool: Pool, call: Call) -> Candidates:
    """The candidates of a pool with signals and the fused score, best first."""
    columns = of_pool(pool, call)
    return rated(columns, call) if len(columns.rows) else unrated(columns, call)


def matched(pool: Pool, call: Call) -> Candidates:
    """The same without vectors, by how many terms each holds."""
    columns = of_pool(pool, call)
    return rate_by_matches(columns, call).ordered() if len(columns.rows) else unrated(columns, call)


def _fuse(
    columns: Columns, values: dict[str, Floats], ranks: dict[str, Ints], config: RecallConfig
) -> Floats:
    weights, count = config.weights, len(columns.rows)
    if config.fusion == "rrf":
        names = [name for name in ranks if weights.get(name, 0) > 0]
        return score_module.reciprocal(
            [ranks[name] for name in names], [weights[name] for name in names], k=config.rrf_k
        )
    if config.fusion == "product":
        base = values.get("semantic", np.zeros(count))
        return score_module.product(base, {k: v for k, v in values.items() if k != "semantic"}, weights)
    if config.fusion == "minmax" and "semantic" in values:
        values = values | {"semantic": score_module.stretched(columns.cosine)}
    return score_module.weighted(values, weights) if values else np.zeros(count)


def unit(config: RecallConfig) -> float:
    """What a weight of 1 in the second look adds to a score whose signal weights were brought to a sum of 1."""
    return 1.0 / sum(config.weights.values()) if config.fusion in ("minmax", "weighted") else 1.0


def _priors(columns: Columns, call: Call) -> dict[str, Floats]:
    """The signals that do not depend on the query, where a weight asks for them."""
    config = call.config
    asked = {name for name, weight in config.weights.items() if weight > 0 and name not in QUERY_SIGNALS}
    out: dict[str, Floats] = {}
    if not asked:
        return out
    basis = columns.created_at
    if asked.intersection(COUNTED) or ("recency" in asked and config.recency_basis == "last_used_at"):
        counters = call.sources.counters(columns.rows)
        out["confirmations"] = score_module.confirmations(counters.confirmations)
        out["trust"] = score_module.trust(counters.trust)
        out["usage"] = score_module.usage(counters.uses)
        if config.recency_basis == "last_used_at":
            basis = np.where(np.isnan(counters.last_used_at), columns.created_at, counters.last_used_at)
    if "recency" in asked:
        out["recency"] = score_module.recency(basis, call.now, rate=config.recency_rate)
    if "importance" in asked:
        out["importance"] = columns.importance
    if "confidence" in asked:
        out["confidence"] = _confidence(columns, call)
    return {name: values for name, values in out.items() if name in asked}


def _confidence(columns: Columns, call: Call) -> Floats:
    """Effective, at the time of the recall."""
    return score_module.confidence(columns.confidence, columns.last_evidence_at, call.now)


def rate_by_matches(columns: Columns, call: Call) -> Candidates:
    """Without vectors: how many query terms each one, or what it replaced, holds, and a little of its confidence."""
    held = call.sources.impacts(call.asked.terms, columns.rows) > 0
    heirs = np.flatnonzero(columns.former >= 0)
    if len(heirs):
        held[heirs] |= call.sources.impacts(call.asked.terms, columns.former[heirs]) > 0
    matched = held.sum(axis=1).astype(np.float64)
    confidence = _confidence(columns, call)
    score = matched + MATCHED_CONFIDENCE * confidence
    shown = {"matched": matched, "confidence": confidence}
    ranks = {"lexical": score_module.ranks(matched)}
    return Candidates(columns, shown, ranks, _as_found(len(score)), score, trace=call.trace)
