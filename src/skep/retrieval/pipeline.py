"""The recall pipeline: candidates, score, short list, updates, choice, hits.

Each stage is a function from candidates to candidates. Only `Sources` touches storage, and memories are built only for
the hits. `recall.recaller` calls `run` on a bank, `hive` on several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from skep.filters import Filter
from skep.model import ANCHORS_GONE, CURRENT, STATUSES, Hit, Memory, Recalled, Stage
from skep.retrieval import guidance as guide
from skep.retrieval import levels, selection
from skep.retrieval.candidates import Call, Candidates, of_pool, rated
from skep.retrieval.conversation import as_conversation
from skep.retrieval.query import Query, understand
from skep.retrieval.score import coverage
from skep.retrieval.succession import with_heirs
from skep.text.unanswered_sessions import is_unanswered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.recall_config import Expand, RecallConfig
    from skep.retrieval.sources import Reranker, Sources

    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

Updates = Callable[[Candidates, Call], Candidates]
"""Puts the update of a memory in its place; `semantics` knows one, which `recall` hands in."""
SURE = 3
"""Both ranks within this many: never flagged."""
VAIN = 0.1
"""The share of its score that a session keeps in which nobody knew the answer."""
HIDDEN = ("level", levels.RIVAL)
"""Signals that are not shown with a hit."""
AT_ONCE = 1000
"""Memories at the end of links that are looked up at a time."""
ROOM = ("k_words", "k_vectors", "reach", "shortlist")
"""Fields of a config that say how many candidates a step takes."""


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
        explain: Also return what every stage did.
    """
    config = _with_room(config, limit, reranked=reranker is not None)
    asked = understand(query, now)
    if vector is None and config.k_vectors:
        vector = sources.embed(asked.about)
    call = Call(asked, config, sources, _narrow(where, asked, config, now), now, vector, explain)
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
        return run(query, of_then, sources, now, where=where, limit=limit, vector=vector, explain=explain)
    found, reason = _chosen(found, call, limit)
    hits, trace = _hits(found, call), found.trace or ()
    if config.expand is not None and hits:
        more = _expanded(hits, config.expand, call)
        hits += more
        if explain:
            trace += (Stage(name="expansion", kept=len(hits), note=f"{len(more)} reached by links"),)
    return Recalled(hits=hits, reason=reason, trace=trace)


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
        held = coverage(
            call.sources.impacts(call.terms, rows).astype(np.float64), call.sources.idf(call.terms)
        )
        found = found.lifted(config.coverage * unit * held, coverage=held)
    if config.conversation:
        found = as_conversation(found, call)
    if config.title > 0 or config.guidance > 0:
        texts = call.sources.texts(found.rows[: config.shortlist])
        shown = {
            "title": guide.titles_named(call.asked.about, [guide.names(text) for text in texts]),
            "guidance": guide.guidance(call.asked.text, texts, found.cosine[: len(texts)]),
        }
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
    texts = call.sources.texts(found.rows[: call.config.shortlist])
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
    scores = np.asarray(reranker(call.asked.text, call.sources.texts(head.rows)), dtype=np.float64)
    head = replace(head, score=scores, signals=head.signals | {"reranker": scores}).ordered()
    return head.noted("reranker", cut=len(found) - len(head))


def _chosen(found: Candidates, call: Call, limit: int) -> tuple[Candidates, str]:
    """The candidates that are returned, and in words why they are fewer than asked for."""
    if not len(found):
        return found, _why_nothing(call)
    config, reason = call.config, ""
    level = levels.of(found)
    found = replace(found, signals=found.signals | {"level": level})
    if config.bar != "weak":
        kept = found.take(np.flatnonzero(level >= levels.NAMES.index(config.bar)))
        reason = f"{len(found) - len(kept)} below the bar {config.bar!r}" if len(kept) < len(found) else ""
        found = kept.noted("bar", cut=len(found) - len(kept))
    most = min(limit, config.max_results, len(found))
    if config.select != "none" and len(found):
        found = _varied(found, call, most)
    kept = found.first(most)
    kept = kept.noted("limit", cut=len(found) - len(kept))
    if config.dynamic_k:
        count = selection.dynamic_k(kept.score, factor=config.cliff, min_results=config.min_results)
        if count < len(kept):
            cut = len(kept) - count
            reason = reason or f"{cut} behind a cliff in the scores"
            kept = kept.first(count).noted("dynamic-k", cut=cut)
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
    vectors = call.sources.vectors(head.rows)
    if config.select == "mmr":
        # relevance on the scale of the cosines: boosts of a product make scores up to four times smaller
        best, nearest = head.score.max(), np.nanmax(np.append(head.cosine, 0.0))
        relevance = head.score * (nearest / best) if best > 0 and nearest > 0 else head.score
        picked = selection.mmr(relevance, vectors, most, balance=config.mmr_lambda)
    else:
        picked = selection.diverse(vectors, call.sources.calibrate, threshold=config.similarity)
    return head.take(picked).noted(config.select, cut=len(found) - len(picked))


def disagreement(lexical: int, semantic: int) -> float:
    """|r_lex - r_sem| / max(r_lex, r_sem), for ranks from 1.

    >>> disagreement(1, 2), disagreement(2, 20)
    (0.5, 0.9)
    """
    return abs(lexical - semantic) / max(lexical, semantic)


def disagreeing(lexical: Sequence[int], semantic: Sequence[int], *, threshold: float = 0.7) -> list[bool]:
    """The candidates whose ranks by words and by meaning lie far apart; never those in the top 3 of both."""
    return [
        max(one, other) > SURE and disagreement(one, other) > threshold
        for one, other in zip(lexical, semantic, strict=True)
    ]


def _hits(found: Candidates, call: Call) -> tuple[Hit, ...]:
    """Memories, with the signals that explain them."""
    memories, heirs = call.sources.memories(found.rows), _replaced(found, call)
    newer = _updates_of(found, call)
    level = found.signals.get("level", np.zeros(len(found)))
    signals = {name: values.tolist() for name, values in found.signals.items() if name not in HIDDEN}
    ranks = {name: values.tolist() for name, values in found.ranks.items()}
    odd = [False] * len(found)
    if "lexical" in ranks and "semantic" in ranks:
        odd = disagreeing(ranks["lexical"], ranks["semantic"], threshold=call.config.disagreement)
    return tuple(
        Hit(
            memory=memory,
            score=float(found.score[at]),
            level=levels.NAMES[int(level[at])],
            signals={name: values[at] for name, values in signals.items()},
            ranks={name: values[at] for name, values in ranks.items()},
            flags=_flags(memory, disagreement=odd[at], outdated=row in newer, replaces=row in heirs),
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
    old = call.sources.memories(found.former[heirs])
    return {row: memory.id for row, memory in zip(found.rows[heirs].tolist(), old, strict=True)}


def _updates_of(found: Candidates, call: Call) -> dict[int, str]:
    """Of the rows that are surely outdated: the id of their update."""
    rows = [row for row in found.rows.tolist() if row in found.outdated]
    if not rows:
        return {}
    newer = call.sources.memories(np.array([found.outdated[row] for row in rows], dtype=np.int64))
    return {row: memory.id for row, memory in zip(rows, newer, strict=True)}


def _flags(
    memory: Memory, *, disagreement: bool = False, outdated: bool = False, replaces: bool = False
) -> tuple[str, ...]:
    told: Mapping[str, Any] = {
        "disagreement": disagreement,
        "outdated": outdated,
        "replaces": replaces,
        "stale": memory.stale,
        "gone": ANCHORS_GONE in memory.metadata,
        "pending": memory.status == "pending",
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
    memories = call.sources.memories(np.array([rows[each.id] for each in reached], dtype=np.int64))
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
