"""Disagreement: what its words and its meaning place far apart may be a distractor. It flags, nothing
more.

The recall pipeline: candidates, score, a second look at the short list, choice, marks.

Each stage is a function from values to values. Only `Sources` touches storage, and memories are built
only for what is returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from skep.filters import Filter
from skep.model import CURRENT, STATUSES, Hit, Memory, Recalled, Stage
from skep.retrieval import candidates as stage
from skep.retrieval.candidates import Call, Candidates
from skep.retrieval.query import Query, plain, understand
from skep.retrieval.recall_config import RecallConfig
from skep.retrieval.score import narrowed, way_of
from skep.text.terms import query_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.recall_config import Expand
    from skep.retrieval.sources import Reranker, Sources


THRESHOLD = 0.7
SURE = 3
"""Both ranks within this many: never flagged."""


def disagreement(lexical: int, semantic: int) -> float:
    """|r_lex - r_sem| / max(r_lex, r_sem), for ranks from 1.

    >>> disagreement(1, 2), disagreement(2, 20)
    (0.5, 0.9)
    """
    return abs(lexical - semantic) / max(lexical, semantic)


def disagreeing(
    lexical: Sequence[int], semantic: Sequence[int], *, threshold: float = THRESHOLD
) -> list[bool]:
    """Which candidates are flagged; those in the top 3 of both rankings never are."""
    return [
        (one > SURE and (one - other) / one > threshold)
        if one > other
        else (other > SURE and (other - one) / other > threshold)
        for one, other in zip(lexical, semantic, strict=True)
    ]


if TYPE_CHECKING:
    Singles = NDArray[np.float32]

EVIDENCE = ("coverage", "late", "semantic")
"""The signals that say on a fixed scale how well a memory answers; scores are relative to their pool."""
WITNESSES = 5
"""How many of the first hits are asked."""
SHORT = 8
"""So many distinct terms make a short question."""
BRIEF = 5
"""So many make a brief one."""
PART = 0.3
"""The share of a brief question that makes a part of it, by the rarity of its words."""
HALF = 0.5
"""The share of the best hit's cosine from which a hit is near by meaning."""
RELATED = 0.05
"""Late interaction from which a text holds a relative of a word of the query."""
NEARLY = 0.7
"""The share of a cosine that is nearly as near by meaning."""
BROUGHT = ("guidance", "bridge")
"""Signals of hits that a question needs though it does not speak of them."""
DISAGREEMENT = ("disagreement",)
AT_ONCE = 1000
"""How many memories that links lead to are looked up at a time."""


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
    explain: bool = False,
) -> Recalled:
    """Answer one query.

    Args:
        query: What is asked, in any words.
        config: How to rank, choose and flag.
        sources: The bank.
        now: Seconds since the epoch; every age and relative date counts from it.
        where: What may be returned at all.
        limit: At most this many hits, not counting those that links bring.
        vector: The vector of the query, where the caller has it already.
        reranker: Scores the texts of the short list anew.
        explain: Also return what every stage did.
    """
    found, reason, call = ranked(
        query, config, sources, now, where, limit, vector=vector, reranker=reranker, explain=explain
    )
    hits, trace = _hits(found, call), found.trace or ()
    if config.expand is not None and hits:
        more = _expanded(hits, config.expand, call)
        hits += more
        if explain:
            trace += (Stage(name="expansion", kept=len(hits), note=f"{len(more)} reached by links"),)
    return Recalled(hits=hits, reason=reason, trace=trace)


def ranked(
    query: str,
    config: RecallConfig,
    sources: Sources,
    now: float,
    where: Filter | None,
    limit: int,
    *,
    vector: Singles | None = None,
    reranker: Reranker | None = None,
    explain: bool = False,
    shown: bool = True,
) -> tuple[Candidates, str, Call]:
    """What answers one query, best first, before any memory is read; why it is less than asked for; and the call.

    The arguments are those of `run`. Without `shown`, signals and ranks may be missing from what is found.
    """
    way = way_of(config, limit, read_less=reranker is not None)
    config = way.config
    asked = understand(query, now) if way.reads else plain(query)
    if vector is None and config.k_vectors:
        vector = sources.embed(asked.about)
    shown = shown or explain or way.again or way.barred
    admitting = _narrow(where, asked, config, now)
    call = Call(asked, config, sources, admitting, now, vector, explain, shown)
    found = _gather(call)
    if config.currency and call.where.statuses == CURRENT:
        from skep.retrieval.currency import followed

        found = followed(found, call)
    if way.again and len(found.at):
        from skep.retrieval.shortlist import second_look  # few presets want its many parts

        found = second_look(found, call)
    if reranker is not None and len(found):
        found = _rerank(found, call, reranker)
    found, reason = _choose(found, call, limit, barred=way.barred)
    if not len(found.at) and asked.time_alone and config.temporal == "boost":
        of_then, trace = msgspec.structs.replace(config, temporal="filter"), found.trace
        found, reason, call = ranked(
            query, of_then, sources, now, where, limit,
            vector=vector, reranker=reranker, explain=explain, shown=shown,
        )  # fmt: skip
        if trace is not None:
            then = Stage(name="time", kept=0, note=f"whatever there is of {asked.spans[0].text} answers")
            found = msgspec.structs.replace(found, trace=(*trace, then, *(found.trace or ())))
    return found, reason, call


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


def _gather(call: Call) -> Candidates:
    """Candidates with signals and a first score, best first."""
    config = call.config
    terms = call.asked.terms if config.k_words or call.vector is None else ()
    k_words = config.k_words or config.k_vectors
    if config.phrase > 0 and call.asked.phrases:
        from skep.retrieval.query import WIDELY

        k_words = max(k_words, WIDELY)
    pool = call.sources.search(terms, call.vector, call.where, k_words, config.k_vectors)
    by_matches = config.matched_terms and call.vector is None
    found = stage.matched(pool, call) if by_matches else stage.found_in(pool, call)
    if not call.explain:
        return found
    found = found.noted(
        "candidates",
        cut=max(pool.words_total, pool.vectors_total, len(found)) - len(found),
        note=f"{pool.words_total} by words, {pool.vectors_total} by meaning",
    )
    if not len(found):
        return found
    return found.noted("matched terms" if by_matches else config.fusion, note=", ".join(found.measured))


def _rerank(found: Candidates, call: Call, reranker: Reranker) -> Candidates:
    """The short list in the order of the reranker; what lies below it is dropped."""
    head = found.first(call.config.shortlist)
    scores = np.asarray(reranker(call.asked.text, call.sources.texts(head.rows)), dtype=np.float64)
    return head.scored(scores, reranker=scores).noted("reranker", cut=len(found) - len(head))


def _choose(found: Candidates, call: Call, limit: int, *, barred: bool) -> tuple[Candidates, str]:
    """What is returned, and in words why it is less than asked for."""
    if not len(found.at):
        return found, "no memory passes the filters and shares a word or a meaning"
    config = call.config
    found, reason = _above_the_bar(found, call) if barred else (found, "")
    most = min(limit, config.max_results, len(found.at))
    if config.select != "none" and len(found):
        found = _varied(found, call, most)
    kept = found.first(most)
    if call.explain:
        kept = kept.noted("limit", cut=len(found) - len(kept))
    if config.dynamic_k:
        from skep.retrieval import selection

        count = selection.dynamic_k(kept.score, factor=config.cliff, min_results=config.min_results)
        if count < len(kept):
            cut = len(kept) - count
            reason = reason or f"{cut} behind a cliff in the scores"
            kept = kept.first(count).noted("dynamic-k", cut=cut)
    return kept, reason


def _above_the_bar(found: Candidates, call: Call) -> tuple[Candidates, str]:
    """Only what answers enough of the query, and only what is not far behind the best."""
    reason, config = "", call.config
    if config.temporal == "filter" and call.asked.time_alone:  # whatever is of that time answers
        return found, reason
    low = config.floor > 0 and evidence(found) < config.floor
    if low and _evidence_of_then(found, call) < config.floor:
        return found.first(0).noted("floor", cut=len(found)), f"{len(found)} below the bar"
    if "reranker" in found.measured:  # its scale is its own, and it has read the texts
        return found, reason
    if config.elsewhere > 0:
        found, reason = _without_others(found, call)
    if max(config.relative_floor, config.short_floor, config.brief_floor) > 0 and len(found):
        kept = found.take(np.flatnonzero(_near(found, call)))
        cut = len(found) - len(kept)
        reason = reason or (f"{cut} far behind the best" if cut else "")
        found = kept.noted("relative floor", cut=cut)
    if config.meaning_floor > 0 and len(found) and (meant := _meant(found, call)) is not None:
        kept = found.take(np.flatnonzero(meant))
        cut = len(found) - len(kept)
        reason = reason or (f"{cut} with no word and no meaning of it" if cut else "")
        found = kept.noted("meaning floor", cut=cut)
    return found, reason


def _without_others(found: Candidates, call: Call) -> tuple[Candidates, str]:
    """Without what is told of others, if it holds clearly more of the question than the rest; and whom that is about.

    Of the rest nothing is left where none of the first of it is nearly as near by meaning.
    """
    measured, at = found.measured, found.at
    held, late = measured.get("held", measured.get("coverage")), measured.get("late")
    if "another" not in measured or held is None or late is None:
        return found, ""
    holds, cosine, another = (held[at] + late[at]) / 2, found.cosine, measured["another"][at]
    theirs, rest = np.flatnonzero(another <= -1)[:WITNESSES], np.flatnonzero(another > -1)
    first = rest[:WITNESSES]
    if not len(theirs) or holds[theirs].max() - holds[first].max(initial=0.0) <= call.config.elsewhere:
        return found, ""
    if not len(rest) or cosine[first].max() < NEARLY * cosine[theirs].max():
        rest = rest[:0]
    from skep.retrieval.shortlist_features import OPENING, opening

    best = theirs[holds[theirs].argmax()]
    (text,) = call.sources.texts(found.rows[best : best + 1])
    whom, _ = opening(text[:OPENING])
    kept = found.take(rest).noted("elsewhere", cut=len(found) - len(rest), note=whom)
    return kept, f"what holds most of it is about {whom}, whom the question does not name"


def _near(found: Candidates, call: Call) -> NDArray[np.bool_]:
    """Which hits are not far behind the best: by score, and where the question is short by score or by meaning."""
    config, best, terms = call.config, found.score[0], len(call.asked.terms)
    near = found.score >= config.relative_floor * best
    short = config.short_floor if terms <= SHORT else 0.0
    brief = config.brief_floor if terms <= BRIEF else 0.0
    cosine = found.cosine
    if call.asked.over_all or max(short, brief) <= config.relative_floor or not cosine[0] > 0:
        return near
    alike = ~(cosine < HALF * cosine[0]) | _brought(found)
    near &= (found.score >= short * best) | alike
    if brief > short:
        behind = np.flatnonzero(near & ~alike & (found.score < brief * best))
        if len(behind):
            behind = behind[call.sources.scopes(found.rows[behind]).talk == 0]
            near[behind[~_of_another_part(found, behind, call)]] = False
    return near


def _of_another_part(found: Candidates, behind: NDArray[np.int64], call: Call) -> NDArray[np.bool_]:
    """Which hits hold a good part of the query that the best one lacks: "who sings or sleeps" asks for both."""
    held = call.sources.impacts(call.asked.terms, found.rows[np.append(behind, 0)]) > 0
    idf = call.sources.idf(call.asked.terms)
    return (held[:-1] & ~held[-1]) @ idf >= PART * idf.sum()


def _meant(found: Candidates, call: Call) -> NDArray[np.bool_] | None:
    """Which hits have a word of the query, a relative of one, or its meaning, or belong to a conversation.

    In a conversation the words of the neighbours are what a memory is about ("It was switched off the same day");
    elsewhere they stand beside it by chance. None where it was not measured.
    """
    held = found.measured.get("held", found.measured.get("coverage"))
    meaning = found.measured.get("semantic")
    if held is None or meaning is None:
        return None
    meant = (held[found.at] > 0) | (meaning[found.at] >= call.config.meaning_floor) | _brought(found)
    if "late" in found.measured:
        meant |= found.measured["late"][found.at] >= RELATED
    if not meant.all():
        lacking = np.flatnonzero(~meant)
        meant[lacking] = call.sources.scopes(found.rows[lacking]).talk != 0
    return meant


def _brought(found: Candidates) -> NDArray[np.bool_]:
    """Which hits are there for another reason than to be like the question."""
    brought = np.zeros(len(found), dtype=bool)
    for name in BROUGHT:
        if name in found.measured:
            brought |= found.measured[name][found.at] > 0
    return brought


def evidence(found: Candidates) -> float:
    """How well the best of the first hits answers the query, 0..1: by its words, their relatives, or its meaning."""
    asked = found.at[:WITNESSES]
    measures = [found.measured[name][asked].max() for name in EVIDENCE if name in found.measured]
    return float(max(measures, default=found.score[0]))


def _evidence_of_then(found: Candidates, call: Call) -> float:
    """How much of the rest of the query those of the first hits hold that are of a time it names.

    A memory of last month does not say that it is of last month.
    """
    asked = call.asked
    if call.config.temporal == "off" or not asked.spans:
        return 0.0
    first = found.first(WITNESSES)
    of_then = [asked.names_time_of(made) for made in first.created_at.tolist()]
    named = {term for span in asked.spans for term in query_terms(span.text)}
    rest = tuple(term for term in asked.terms if term not in named)
    if not rest or not any(of_then):
        return 0.0
    idf = call.sources.idf(rest)
    held = call.sources.impacts(rest, first.rows[of_then]) > 0
    return float((held @ idf).max() / max(idf.sum(), 1e-9))


def _varied(found: Candidates, call: Call, most: int) -> Candidates:
    """Without near repetitions among the best."""
    from skep.retrieval import selection

    config = call.config
    reach = found.first(max(config.shortlist, most))
    vectors = call.sources.vectors(reach.rows)
    if config.select == "mmr":
        picked = selection.mmr(reach.score, vectors, most, balance=config.mmr_lambda)
    else:
        picked = selection.diverse(vectors, call.sources.calibrate, threshold=config.similarity)
    return reach.take(picked).noted(config.select, cut=len(found) - len(picked))


def _hits(found: Candidates, call: Call) -> tuple[Hit, ...]:
    """Memories, with what explains them."""
    memories, heirs = call.sources.memories(found.rows), _replaced(found, call)
    return _explained(found, memories, _ranks(found), heirs, call.config.disagreement)


def _explained(
    found: Candidates,
    memories: Sequence[Memory],
    ranked: Mapping[str, NDArray[Any]],
    heirs: Mapping[int, str],
    threshold: float,
) -> tuple[Hit, ...]:
    """Hits from memories and the columns that explain them."""
    rows, outdated, count = found.rows.tolist(), found.outdated, len(memories)
    signals, ranks = _listed(found.measured, found.at), _listed(ranked, found.at)
    odd = [False] * count
    if "lexical" in ranks and "semantic" in ranks:
        odd = disagreeing(ranks["lexical"], ranks["semantic"], threshold=threshold)
    marked = bool(outdated or heirs)
    hits = [
        Hit(
            memory=memory,
            score=score,
            signals=measures,
            ranks=places,
            flags=_flags(memory, disagreement=odd_one, outdated=row in outdated, replaces=row in heirs)
            if marked or memory.stale or memory.status == "pending"
            else (DISAGREEMENT if odd_one else ()),
            replaced=heirs.get(row),
        )
        for memory, row, score, measures, places, odd_one in zip(
            memories,
            rows,
            found.score.tolist(),
            _by_hit(signals, count),
            _by_hit(ranks, count),
            odd,
            strict=True,
        )
    ]
    return tuple(hits)


def _replaced(found: Candidates, call: Call) -> dict[int, str]:
    """Of the rows that are there for what they replaced: the id of that."""
    if not call.config.currency:  # nothing has looked for heirs
        return {}
    former = found.columns.former[found.at]
    heirs = (former >= 0).nonzero()[0]
    if not heirs.size:
        return {}
    old = call.sources.memories(former[heirs])
    return {row: memory.id for row, memory in zip(found.rows[heirs].tolist(), old, strict=True)}


def _ranks(found: Candidates) -> Mapping[str, NDArray[Any]]:
    """Ranks by what was looked at: where no word was looked up, or none matched, nobody is the first by words."""
    if "matched" in found.measured:
        return found.places
    return {name: places for name, places in found.places.items() if name in found.measured}


def _listed(columns: Mapping[str, NDArray[Any]], at: NDArray[np.int64]) -> dict[str, list[Any]]:
    """What stands at some places of columns, as lists."""
    return {name: values[at].tolist() for name, values in columns.items()}


def _by_hit(columns: Mapping[str, list[Any]], count: int) -> list[dict[str, Any]]:
    """Columns of values as one mapping per hit."""
    mappings: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in columns.items():
        for mapping, value in zip(mappings, values, strict=True):
            mapping[name] = value
    return mappings


def _flags(
    memory: Memory, *, disagreement: bool = False, outdated: bool = False, replaces: bool = False
) -> tuple[str, ...]:
    flags = DISAGREEMENT if disagreement else ()
    if outdated:
        flags += ("outdated",)
    if replaces:
        flags += ("replaces",)
    if memory.stale:
        flags += ("stale",)
    return (*flags, "pending") if memory.status == "pending" else flags


def _expanded(hits: Sequence[Hit], how: Expand, call: Call) -> tuple[Hit, ...]:
    """What the links of the hits lead to, by way of nothing that the scope of the recall hides."""
    from skep.retrieval.selection import expand

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
    reached = expand(seeds, call.sources.links, how, shown=shown, walked=walked)
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
