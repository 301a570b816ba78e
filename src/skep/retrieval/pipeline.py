"""The recall pipeline: candidates, score, short list, updates, choice, hits.

A recall is a `Call`. Its candidates are aligned arrays; each stage is a function from candidates to candidates. Only
`Sources` touches storage, and memories are built only for the best candidates. `recall.recaller` calls `run` on a
bank, `hive` on several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from skep.filters import Filter
from skep.model import ANCHORS_GONE, CURRENT, STATUSES, Hit, Memory, Recalled, Stage
from skep.retrieval import guidance as guide
from skep.retrieval import score as signals
from skep.retrieval import selection
from skep.retrieval.query import Query, understand
from skep.retrieval.recall_config import QUERY_SIGNALS
from skep.text.unanswered_sessions import is_unanswered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.recall_config import Expand, RecallConfig
    from skep.retrieval.sources import Pool, Reranker, Sources

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

COUNTED = ("confirmations", "trust", "usage")
"""Signals that need the use counters."""
MATCHED_CONFIDENCE = 0.01
SHARE = 0.8
"""The share of a replaced memory's words and meaning that counts for its heir."""
REPLACED_MOST = 20
"""Replaced memories that are looked at by words, and as many by meaning."""
FIRST = 20
"""A replaced memory is followed if it would stand among so many first candidates."""
VAIN = 0.1
"""The share of its score that a session keeps in which nobody knew the answer."""
HIDDEN = (signals.LEVEL, signals.RIVAL, signals.DISAGREEMENT)
"""Signals that are not shown with a hit."""
AT_ONCE = 1000
"""Memories at the end of links that are looked up at a time."""
ROOM = ("k_words", "k_vectors", "reach", "shortlist")
"""Fields of a config that say how many candidates a step takes."""


@dataclass(frozen=True)
class Call:
    """One recall: the values that every stage may read, and what was read of its candidates, each once."""

    asked: Query
    config: RecallConfig
    sources: Sources
    where: Filter
    now: float
    vector: Singles | None
    explain: bool = True
    """The stages say what they did."""
    scale: Callable[[Singles], Singles] = lambda cosines: cosines
    """Raw cosines on the common scale; nan stays nan."""
    _texts: dict[int, str] = field(default_factory=dict[int, str])
    _memories: dict[int, Memory] = field(default_factory=dict[int, Memory])
    _vectors: dict[int, Singles] = field(default_factory=dict[int, "Singles"])

    @property
    def terms(self) -> tuple[str, ...]:
        """The index terms to look up; none where the config searches by meaning alone and there is a vector."""
        return self.asked.terms if self.config.k_words or self.vector is None else ()

    @cached_property
    def idf(self) -> Floats:
        """How rare each of the terms is in the whole bank."""
        return self.sources.idf(self.terms)

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        return _known(self._texts, rows, self.sources.texts)

    def memories(self, rows: Ints) -> list[Memory]:
        """The memory of each row."""
        return _known(self._memories, rows, self.sources.memories)

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row; zeros where there is none."""
        return np.stack(_known(self._vectors, rows, self.sources.vectors))

    def vectors_of(self, memories: Sequence[Memory]) -> Singles:
        """The unit vectors of memories that were read for this recall."""
        rows = {memory.id: row for row, memory in self._memories.items()}
        return self.vectors(np.array([rows[memory.id] for memory in memories], np.int64))


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
    spoken: NDArray[np.bool_]
    """Said in a session: turns of conversations."""
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

    def moved(self, order: Sequence[int], outdated: dict[int, int], note: str) -> Candidates:
        """The first few in another order; the scores stay with the places. See `outdated`; `note` is for the trace."""
        there = self.take([*order, *range(len(order), len(self))])
        return replace(there, score=self.score, outdated=outdated).noted("updates", note=note)

    def noted(self, name: str, *, cut: int = 0, note: str = "") -> Candidates:
        """The same, with one more line in the trace."""
        if self.trace is None:
            return self
        return replace(self, trace=(*self.trace, Stage(name=name, kept=len(self), cut=cut, note=note)))

    def ordered(self) -> Candidates:
        """Best first; ties by importance, then newer, then row, which grows with the id."""
        return self.take(np.lexsort((self.rows, -self.created_at, -self.importance, -self.score)))

    def joined(self, other: Candidates) -> Candidates:
        """Both sets in one, without scores: `rated` gives them."""
        arrays = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _ARRAYS}
        return replace(self, **arrays, signals={}, ranks={})


Value = TypeVar("Value")


def _known(known: dict[int, Value], rows: Ints, read: Callable[[Ints], Iterable[Value]]) -> list[Value]:
    """What is known of each row; what is not is read first."""
    asked = rows.tolist()
    missing = [row for row in asked if row not in known]
    if missing:
        known.update(zip(missing, read(np.array(missing, np.int64)), strict=True))
    return [known[row] for row in asked]


_ARRAYS = tuple(
    each.name for each in fields(Candidates) if each.name not in ("signals", "ranks", "outdated", "trace")
)


def of_pool(pool: Pool, call: Call) -> Candidates:
    """The candidates of a pool, without scores, in the order found."""
    cosine = pool.cosine if call.vector is None else call.scale(pool.cosine)
    count = len(pool.rows)
    return Candidates(
        rows=pool.rows,
        words=np.asarray(pool.words, np.float64),
        cosine=np.asarray(cosine, np.float64),
        created_at=pool.created_at,
        importance=pool.importance,
        spoken=pool.spoken,
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
    idf = call.idf if call.terms else None
    score, kept, ranks = signals.scored(found.words, found.cosine, idf, _priors(found, call), config)
    return replace(found, score=score, signals=kept, ranks=ranks).ordered()


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


Updates = Callable[[Candidates, Call], Candidates]
"""Puts the update of a memory in its place; `recall` hands it in."""
Marks = Callable[[tuple[Hit, ...], Call], tuple[Hit, ...]]
"""Marks hits that contradict or update one another; `recall` hands it in."""


def run(
    query: str,
    config: RecallConfig,
    sources: Sources,
    now: float,
    *,
    where: Filter | None = None,
    limit: int = 5,
    vector: Singles | None = None,
    reranker: Reranker | None = None,
    updates: Updates | None = None,
    marks: Marks | None = None,
    explain: bool = False,
) -> Recalled:
    """Answer one query.

    Args:
        query: The question, in any words.
        config: How to rank, choose and flag.
        sources: The bank.
        now: Seconds since the epoch; every age and relative date counts from it.
        where: The memories that may be returned at all.
        limit: At most this many hits, not counting those that links bring.
        vector: The vector of the query, where the caller has it already.
        reranker: Scores the texts of the short list anew.
        updates: Puts updates in the place of what they update, where the config asks for it.
        marks: Marks hits that do not go together.
        explain: Also return what every stage did.
    """
    config = _with_room(config, limit, reranked=reranker is not None)
    asked = understand(query, now)
    if vector is None and config.k_vectors:
        vector = sources.embed(asked.about)
    call = Call(
        asked, config, sources, _narrow(where, asked, config, now), now, vector, explain, sources.scale()
    )
    found = rated(_gathered(call), call)
    if config.updates and call.where.statuses == CURRENT:
        found = with_heirs(found, call)
    if len(found):
        found = _second_look(found, call)
    if reranker is not None and len(found):
        found = _reranked(found, call, reranker)
    elif updates is not None and config.updates and len(found) > 1:
        found = updates(found, call)
    if not len(found) and asked.time_alone and config.temporal == "boost":
        of_then = msgspec.structs.replace(config, temporal="filter")
        return run(
            query,
            of_then,
            sources,
            now,
            where=where,
            limit=limit,
            vector=vector,
            marks=marks,
            explain=explain,
        )
    found, reason = _chosen(found, call, limit)
    hits, trace = _hits(found, call), found.trace or ()
    if config.expand is not None and hits:
        more = _expanded(hits, config.expand, call)
        hits += more
        if explain:
            trace += (Stage(name="expansion", kept=len(hits), note=f"{len(more)} reached by links"),)
    return Recalled(hits=hits if marks is None else marks(hits, call), reason=reason, trace=trace)


def narrowed(where: Filter, config: RecallConfig) -> Filter:
    """A filter that lets in no more than the config does; done twice, it is the same."""
    changes: dict[str, float] = {}
    if where.min_confidence is None and config.min_confidence > 0:
        changes["min_confidence"] = config.min_confidence
    if where.min_importance is None and config.min_importance > 0:
        changes["min_importance"] = config.min_importance
    return msgspec.structs.replace(where, **changes) if changes else where


def _with_room(config: RecallConfig, limit: int, *, reranked: bool) -> RecallConfig:
    """The config with room for as many hits as are asked for.

    A reranker is asked about no more texts than the config says: it may cost money.
    """
    most = min(limit, config.max_results)
    narrow = [name for name in ROOM if 0 < getattr(config, name) < most]
    if reranked and "shortlist" in narrow:
        narrow.remove("shortlist")
    return msgspec.structs.replace(config, **dict.fromkeys(narrow, most)) if narrow else config


def _narrow(where: Filter | None, asked: Query, config: RecallConfig, now: float) -> Filter:
    """The filter of the call, made narrower by the config and by the times the query names."""
    base = narrowed(where or Filter(), config)
    changes: dict[str, float] = {"now": now} if not base.now else {}
    if config.temporal == "filter" and asked.spans:
        free = base.since is None and base.until is None
        if free or asked.time_alone:
            since, until = min(span.start for span in asked.spans), max(span.end for span in asked.spans)
            changes["since"] = since if base.since is None else max(since, base.since)
            changes["until"] = until if base.until is None else min(until, base.until)
    return msgspec.structs.replace(base, **changes) if changes else base


def _gathered(call: Call) -> Candidates:
    """Candidates by words and by meaning, in the order found."""
    config = call.config
    pool = call.sources.search(
        call.terms, call.vector, call.where, config.k_words or config.k_vectors, config.k_vectors
    )
    found = of_pool(pool, call)
    cut = max(pool.words_total, pool.vectors_total, len(found)) - len(found)
    note = f"{pool.words_total} by words, {pool.vectors_total} by meaning"
    return found.noted("candidates", cut=cut, note=note)


def _second_look(found: Candidates, call: Call) -> Candidates:
    """The best candidates by the features that the config weighs."""
    config, unit = call.config, 1.0 / sum(call.config.weights.values())
    if config.coverage > 0 and call.terms:
        rows = found.rows[: config.reach]
        held = signals.coverage(call.sources.impacts(call.terms, rows).astype(np.float64), call.idf)
        found = found.lifted(config.coverage * unit * held, coverage=held)
    if config.conversation and found.spoken.any():
        from skep.retrieval.conversation import as_conversation  # it needs what stands here

        found = as_conversation(found, call)
    if config.title > 0 or config.guidance > 0:
        texts = call.texts(found.rows[: config.shortlist])
        shown = guide.signals_of(call.asked, texts, found.cosine[: len(texts)])
        shown = {name: each for name, each in shown.items() if getattr(config, name) > 0 and each.any()}
        if shown:
            extra: Floats = np.zeros(len(texts))
            for name, each in shown.items():
                extra += unit * getattr(config, name) * each
            found = found.lifted(extra, **shown).noted("texts", note=", ".join(shown))
    if config.updates:
        found = _vain_last(found, call)
    if config.temporal == "boost" and call.asked.spans:
        inside = _of_then(found.created_at, call)
        then = inside.astype(np.float64)
        found = found.lifted(config.temporal_boost * then, time=then)
        found = found.noted("time", note=f"{int(inside.sum())} from {call.asked.spans[0].text}")
    return found


def _vain_last(found: Candidates, call: Call) -> Candidates:
    """Sessions in which nobody knew the answer, behind everything else: they hold the question, and no knowledge."""
    texts = call.texts(found.rows[: call.config.shortlist])
    vain = np.array([is_unanswered(text) for text in texts], dtype=bool)
    if not vain.any():
        return found
    extra = np.where(vain, (VAIN - 1.0) * found.score[: len(texts)], 0.0)
    return found.lifted(extra, unanswered=vain.astype(np.float64)).noted(
        "unanswered", note=f"{int(vain.sum())} last"
    )


def _of_then(created_at: Floats, call: Call) -> NDArray[np.bool_]:
    """The candidates of a time that the query names."""
    inside = np.zeros(len(created_at), dtype=bool)
    for span in call.asked.spans:
        inside |= (created_at >= span.start) & (created_at < span.end)
    return inside


def _reranked(found: Candidates, call: Call, reranker: Reranker) -> Candidates:
    """The short list in the order of the reranker; the candidates below it are dropped."""
    head = found.first(call.config.shortlist)
    scores = np.asarray(reranker(call.asked.text, call.texts(head.rows)), dtype=np.float64)
    head = replace(head, score=scores, signals=head.signals | {"reranker": scores}).ordered()
    return head.noted("reranker", cut=len(found) - len(head))


def _chosen(found: Candidates, call: Call, limit: int) -> tuple[Candidates, str]:
    """The candidates that are returned, and in words why they are fewer than asked for."""
    if not len(found):
        return found, _why_nothing(call)
    config, reason = call.config, ""
    found = replace(found, signals=signals.trusted(found.score, found.words, found.cosine, found.signals))
    if config.bar != "weak":
        kept = found.take(np.flatnonzero(found.signals[signals.LEVEL] >= signals.LEVELS.index(config.bar)))
        reason = f"{len(found) - len(kept)} below the bar {config.bar!r}" if len(kept) < len(found) else ""
        found = kept.noted("bar", cut=len(found) - len(kept))
    most = min(limit, config.max_results, len(found))
    if config.select != "none" and len(found):
        found = _varied(found, call, most)
    kept = found.first(most)
    kept = kept.noted("limit", cut=len(found) - len(kept))
    if config.dynamic_k:
        near = _strengths(kept, config)
        kept = replace(kept, signals=kept.signals | {"strength": near})
        count = selection.dynamic_k(near, factor=config.cliff, min_results=config.min_results)
        if count < len(kept):
            cut = len(kept) - count
            reason = reason or f"{cut} behind a cliff"
            kept = kept.first(count).noted("dynamic-k", cut=cut, note=selection.cliff_told(near, count))
    return kept, reason


def _why_nothing(call: Call) -> str:
    """The reason for an empty answer, as a user would put it."""
    if call.vector is None and call.asked.terms:
        return "no memory that the filters admit shares a word with the question"
    if not call.terms and call.vector is None:
        return "the question has no words to look for"
    return "nothing is stored that the filters admit"


def _varied(found: Candidates, call: Call, most: int) -> Candidates:
    """The short list without near repetitions."""
    config = call.config
    head = found.first(max(config.shortlist, most))
    vectors = call.vectors(head.rows)
    if config.select == "mmr":
        # relevance on the scale of the cosines: boosts of a product make scores up to four times smaller
        best, nearest = head.score.max(), np.nanmax(np.append(head.cosine, 0.0))
        relevance = head.score * (nearest / best) if best > 0 and nearest > 0 else head.score
        picked = selection.mmr(relevance, vectors, most, balance=config.mmr_lambda)
    else:
        picked = selection.diverse(vectors, head.confidence, call.scale, threshold=config.similarity)
    return head.take(picked).noted(config.select, cut=len(found) - len(picked))


def _strengths(kept: Candidates, config: RecallConfig) -> Floats:
    """The values among which `dynamic_k` looks for a cliff: the score, or what stands behind the ranks where ranks were
    fused, for those always lie about equally far apart."""
    behind = {name: kept.signals[name] for name in config.weights if name in kept.signals}
    if config.fusion != "rrf" or "reranker" in kept.signals or not behind:
        return kept.score
    return signals.weighted(behind, config.weights)


def _hits(found: Candidates, call: Call) -> tuple[Hit, ...]:
    """Memories, with the signals that explain them."""
    memories, heirs = call.memories(found.rows), _replaced(found, call)
    newer = _updates_of(found, call)
    level = found.signals.get(signals.LEVEL, np.zeros(len(found)))
    shown = {name: values.tolist() for name, values in found.signals.items() if name not in HIDDEN}
    ranks = {name: values.tolist() for name, values in found.ranks.items()}
    odd = (found.signals.get(signals.DISAGREEMENT, np.zeros(len(found))) > call.config.disagreement).tolist()
    return tuple(
        Hit(
            memory=memory,
            score=float(found.score[at]),
            level=signals.LEVELS[int(level[at])],
            signals={name: values[at] for name, values in shown.items()},
            ranks={name: values[at] for name, values in ranks.items()},
            flags=_flags(memory, odd=odd[at], outdated=row in newer, replaces=row in heirs),
            replaced=heirs.get(row),
            updated_by=newer.get(row),
        )
        for at, (memory, row) in enumerate(zip(memories, found.rows.tolist(), strict=True))
    )


def _replaced(found: Candidates, call: Call) -> dict[int, str]:
    """Of the rows that stand for a replaced memory: the id of that."""
    heirs = (found.former >= 0).nonzero()[0]
    if not heirs.size:
        return {}
    old = call.memories(found.former[heirs])
    return {row: memory.id for row, memory in zip(found.rows[heirs].tolist(), old, strict=True)}


def _updates_of(found: Candidates, call: Call) -> dict[int, str]:
    """Of the rows that are surely outdated: the id of their update."""
    rows = [row for row in found.rows.tolist() if row in found.outdated]
    if not rows:
        return {}
    newer = call.memories(np.array([found.outdated[row] for row in rows], dtype=np.int64))
    return {row: memory.id for row, memory in zip(rows, newer, strict=True)}


def _flags(
    memory: Memory, *, odd: bool = False, outdated: bool = False, replaces: bool = False
) -> tuple[str, ...]:
    told: Mapping[str, Any] = {
        signals.DISAGREEMENT: odd,
        "outdated": outdated,
        "replaces": replaces,
        "stale": memory.stale,
        "gone": ANCHORS_GONE in memory.metadata,
        memory.status: memory.status != "active",
    }
    return tuple(flag for flag, holds in told.items() if holds)


def _expanded(hits: Sequence[Hit], how: Expand, call: Call) -> tuple[Hit, ...]:
    """The memories at the end of links of the hits, by way of nothing that the scope of the recall hides."""
    where = call.where
    rows: dict[str, int] = {}

    def shown(ids: Sequence[str]) -> set[str]:
        rows.update(_rows(ids, where, call))
        return set(rows)

    def walked(ids: Sequence[str]) -> set[str]:
        if where.scope is None:
            return set(ids)
        anything = Filter(scope=where.scope, include_shared=where.include_shared, statuses=STATUSES)
        return set(_rows(ids, anything, call))

    seeds = {hit.memory.id: hit.score for hit in hits}
    reached = selection.expand(seeds, call.sources.links, how, shown=shown, walked=walked)
    memories = call.memories(np.array([rows[each.id] for each in reached], dtype=np.int64))
    return tuple(
        Hit(
            memory=memory,
            score=each.score,
            signals={"hops": float(each.hops)},
            flags=("expanded", *_flags(memory)),
            via=each.link,
        )
        for each, memory in zip(reached, memories, strict=True)
    )


def _rows(ids: Sequence[str], where: Filter, call: Call) -> dict[str, int]:
    """The rows of those memories that a filter admits, some at a time."""
    found: dict[str, int] = {}
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        rows = call.sources.rows_of(some, where)
        found |= {each: row for each, row in zip(some, rows, strict=True) if row is not None}
    return found


def with_heirs(found: Candidates, call: Call) -> Candidates:
    """The candidates and the heirs of replaced memories that match; each counts by the better of the two.

    A question in the words of a replaced memory finds the one that replaced it.
    """
    pool = call.sources.replaced(call.terms, call.vector, call.where, REPLACED_MOST)
    if pool is None or not len(pool.rows):
        return found
    former = of_pool(pool, call)
    worth = np.flatnonzero(
        (SHARE * former.words > _among_the_first(found.words))
        | (SHARE * former.cosine > _among_the_first(found.cosine))
    )
    if not len(worth):
        return found
    former = former.take(worth)
    heirs = _heirs_of(former.rows, call)
    if not (heirs >= 0).any():
        return found
    grown = _inherited(_with_rows(found, heirs, call), former, heirs)
    speaking = int(np.count_nonzero(grown.former >= 0))
    if not speaking:  # each heir is a better candidate by itself
        return found
    return replace(rated(grown, call), trace=found.trace).noted(
        "succession", note=f"{speaking} by what they replaced"
    )


def _among_the_first(values: Floats) -> float:
    """The value that a candidate needs to stand among the first."""
    known = values[~np.isnan(values)]
    return float(np.partition(known, -FIRST)[-FIRST]) if len(known) > FIRST else 0.0


def _heirs_of(rows: Ints, call: Call) -> Ints:
    """The current row in place of each row; -1 where it is gone or the filter does not admit it."""
    at = call.sources.heirs(rows)
    ids = sorted({each for each in at if each is not None})
    admitted = dict(zip(ids, call.sources.rows_of(ids, call.where), strict=True))
    found = [None if each is None else admitted[each] for each in at]
    return np.array([-1 if row is None else row for row in found], dtype=np.int64)


def _with_rows(found: Candidates, rows: Ints, call: Call) -> Candidates:
    """The candidates with these rows among them."""
    fresh = sorted(set(rows[rows >= 0].tolist()) - set(found.rows.tolist()))
    if not fresh:
        return found
    pool = call.sources.lookup(np.array(fresh, dtype=np.int64), call.terms, call.vector)
    return found.joined(of_pool(pool, call))


def _inherited(found: Candidates, former: Candidates, heirs: Ints) -> Candidates:
    """The candidates in which each heir has the better of its own and of the best that it replaced."""
    words, cosine, best = found.words.copy(), found.cosine.copy(), found.former.copy()
    place = {row: at for at, row in enumerate(found.rows.tolist())}
    for at in np.lexsort((np.fmax(former.cosine, -1.0), former.words)).tolist():
        if heirs[at] < 0:
            continue
        heir = place[int(heirs[at])]
        more, nearer = SHARE * former.words[at], SHARE * former.cosine[at]
        if more > words[heir] or nearer > np.fmax(cosine[heir], -1.0):
            words[heir], cosine[heir] = max(more, words[heir]), np.fmax(nearer, cosine[heir])
            best[heir] = former.rows[at]
    return replace(found, words=words, cosine=cosine, former=best)
