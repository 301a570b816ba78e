"""Which of some hits do not go together; for a bank and for a hive alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from skep.runtime import lazy
from skep.semantics.find_conflicts import (
    OVERLAP,
    comparable,
    in_common,
    judge_many,
    older_first,
    replaces,
    whole_words,
)

if TYPE_CHECKING:
    from skep.model import Hit, Link, Memory
    from skep.retrieval.query import Query
    from skep.retrieval.recall_config import RecallConfig


MOSTLY = 0.4
"""The share of words two hits must have in common to be compared."""
ROUGHLY = 0.25
"""The same for chunks, whose punctuation hides some of what is shared."""
NEAR = 0.4
"""Similarity from which such hits are compared; those that share as many words as a search for conflicts asks for
(`OVERLAP`) are whatever it is: "lives in Rome" is not near to "lives in Oslo"."""
CHECKED = 10
"""How many of the best hits are compared with one another for conflicts."""


FEWEST = 5
"""So many hits are looked at however few are asked for, so that the best of them is not one that another outdates."""
CLOSE = 0.5
"""The share of an older hit's score that a newer one must have to stand before it."""
VALUE = 3
"""Words that a value may have which another one replaces."""
PLACING = frozenset(("in", "on", "at", "for", "to", "from", "with", "by", "of", "as"))
"""Words before what says where or when something is so; another one there is another matter."""
_text = attrgetter("memory.text")
_word = lazy(r"\w+")
Near = tuple["Memory", "Memory", float]
"""An older and a newer memory, and their similarity."""
Opposed = Callable[[Sequence[Near]], Sequence[str]]
"""Of each of some pairs: `contradiction`, `update`, or nothing if they go together."""


def opposes(pairs: Sequence[Near]) -> list[str]:
    """Whether the memories of each pair contradict or update one another, and which of the two it is."""
    return [
        conflict.kind if conflict is not None and replaces(conflict) else "" for conflict in judge_many(pairs)
    ]


def conflicts_marked(
    hits: tuple[Hit, ...],
    *,
    vectors: Callable[[Sequence[Hit]], Any] | None,
    calibrate: Callable[[float], float],
    now: float,
    opposed: Opposed = opposes,
    linked: Sequence[Link] = (),
    query: str | None = None,
) -> tuple[Hit, ...]:
    """The hits, with a mark on those that contradict or update one another.

    What contradicts or updates something says it mostly in the same words; looking only there keeps this off the
    bill of ordinary answers.

    Args:
        hits: Best first; the first few are compared.
        vectors: The unit vectors of hits, one row each; asked for only if some are worth comparing. Without it none are
            compared, and links alone tell.
        calibrate: A raw cosine on the common scale.
        now: When it is asked; what is dated later was dated by a clock that was ahead.
        opposed: Which of some pairs do not go together, and how.
        linked: Links that say so.
        query: Where given, a hit that a newer one updates or contradicts comes behind that one, if both hold what this
            asks for.
    """
    head = hits[:CHECKED] if vectors is not None else ()
    alike = _alike(list(map(_text, head)))
    if not (alike or linked):
        return hits
    alike = [each for each in alike if _may_conflict(head[each[0]].memory, head[each[1]].memory)]
    found: dict[str, list[str]] = {}
    newer_than: dict[int, list[int]] = {}
    rows = vectors(head) if alike and vectors is not None else ()
    near: list[tuple[int, int, float]] = []
    for i, j, shared in alike:
        cosine = float(rows[i] @ rows[j])
        similarity = 0.0 if math.isnan(cosine) else calibrate(cosine)
        if similarity >= NEAR or shared >= OVERLAP:
            first, _ = older_first(head[i].memory, head[j].memory, now)
            near.append((i, j, similarity) if first is head[i].memory else (j, i, similarity))
    told = opposed([(head[older].memory, head[newer].memory, similar) for older, newer, similar in near])
    apart = [(older, newer) for (older, newer, _), how in zip(near, told, strict=True) if how]
    asks = _understood(query, now) if query is not None and apart else None
    for older, newer in apart:
        found.setdefault(head[older].memory.id, []).append(head[newer].memory.id)
        found.setdefault(head[newer].memory.id, []).append(head[older].memory.id)
        if asks is not None and _gives_way(asks, head[older], head[newer]):
            newer_than.setdefault(older, []).append(newer)
    shown = {hit.memory.id for hit in hits} if linked else ()
    for link in linked:
        if link.src in shown and link.dst in shown:
            for one, other in ((link.src, link.dst), (link.dst, link.src)):
                if other not in found.setdefault(one, []):
                    found[one].append(other)
    if not found:
        return hits
    marked = tuple(
        msgspec.structs.replace(
            hit, flags=(*hit.flags, "conflict"), conflicts_with=tuple(found[hit.memory.id])
        )
        if hit.memory.id in found
        else hit
        for hit in hits
    )
    return _behind(marked, newer_than) if newer_than else marked


def at_least(limit: int, config: RecallConfig) -> int:
    """How many hits to find where so many are asked for; `shortened` takes the others away again."""
    return max(limit, FEWEST) if config.currency and config.expand is None else limit


def shortened(hits: tuple[Hit, ...], limit: int) -> tuple[Hit, ...]:
    """The first hits, with no mark of a conflict with one that is not among them."""
    shown = {hit.memory.id for hit in hits[:limit]}
    return tuple(
        hit
        if shown.issuperset(hit.conflicts_with)
        else msgspec.structs.replace(
            hit,
            conflicts_with=(left := tuple(each for each in hit.conflicts_with if each in shown)),
            flags=hit.flags if left else tuple(flag for flag in hit.flags if flag != "conflict"),
        )
        for hit in hits[:limit]
    )


def _may_conflict(a: Memory, b: Memory) -> bool:
    """Whether two hits are of one kind, for the same people, and neither stands for the other."""
    return a.kind == b.kind and not a.scope.apart(b.scope) and comparable(a, b)


def _understood(query: str, now: float) -> Query:
    from skep.retrieval.query import understand  # few answers hold hits that do not go together

    return understand(query, now)


def _gives_way(asks: Query, older: Hit, newer: Hit) -> bool:
    """Whether an older hit answers a query with what is no longer so, and the newer one answers as much of it.

    Whether something is so is also answered by what is so in its place: "The API is private", asked if it is public.
    """
    from skep.retrieval.query import asks_whether
    from skep.text.terms import STOP, query_terms, terms

    one, other = older.memory, newer.memory
    if asks.of_before((one.text, other.text)):
        return False
    in_its_place = asks_whether(asks.text) and _one_value_replaced(one.text, other.text)
    if newer.score < CLOSE * older.score and not in_its_place:
        return False
    if asks.names_time_of(one.created_at) and not asks.names_time_of(other.created_at):
        return False  # of the time that is asked about, it is the newest
    if one.created_at == other.created_at and one.id.rpartition("-")[0] != other.id.rpartition("-")[0]:
        return False  # of one moment, by two actors
    if asks.phrases:
        from skep.retrieval.query import holding

        word_for_word = holding(asks.phrases, [one.text, other.text])
        if word_for_word[0] > word_for_word[1]:
            return False
    if in_its_place:
        return True
    asked = set(query_terms(asks.text)) - STOP
    held = [asked.intersection(terms(f"{memory.title or ''} {memory.text}")) for memory in (one, other)]
    return held[0] <= held[1]


def _one_value_replaced(older: str, newer: str) -> bool:
    """Whether two texts begin by naming the same and are one sentence with what they say of it replaced."""
    from skep.text.terms import STOP

    left, right = (_word.findall(text.casefold()) for text in (older, newer))
    most = min(len(left), len(right))
    start = next((i for i in range(most) if left[i] != right[i]), most)
    most -= start
    end = next((i for i in range(most) if left[-1 - i] != right[-1 - i]), most)
    replaced = max(len(left), len(right)) - start - end
    placed = left[start - 1 : start] and left[start - 1] in PLACING  # "in staging" says where, not what
    return replaced <= VALUE and not STOP.issuperset(left[:start]) and not placed


def newest_first(
    query: str, hits: tuple[Hit, ...], revised: Callable[[Sequence[str]], Sequence[Link]]
) -> tuple[Hit, ...]:
    """The hits, each that another one revises behind that one and marked as outdated; scores stay where they are.

    Args:
        query: A hit gives way only if this names what changed: it may say other things besides.
        hits: Best first.
        revised: The links from those that revise some memories.
    """
    from skep.semantics.value_changes import asks_for  # few banks hold such links

    place = {hit.memory.id: number for number, hit in enumerate(hits)}
    newer: dict[int, list[int]] = {}
    for link in revised(list(place)):
        if link.src in place and asks_for(query, hits[place[link.src]].memory.text):
            newer.setdefault(place[link.dst], []).append(place[link.src])
    return _behind(hits, newer) if newer else hits


def _behind(hits: tuple[Hit, ...], newer: Mapping[int, Sequence[int]]) -> tuple[Hit, ...]:
    """The hits, those at some places behind the newer ones at others and marked; scores stay where they are."""
    order: list[int] = []
    seen: set[int] = set()

    def put(number: int) -> None:
        if number in seen:  # placed already, or about to be: links of users may form a ring
            return
        seen.add(number)
        for each in sorted(newer.get(number, ())):
            put(each)
        order.append(number)

    for number in range(len(hits)):
        put(number)
    return tuple(
        msgspec.structs.replace(
            hits[number],
            score=there.score,
            flags=tuple(dict.fromkeys((*hits[number].flags, "outdated")))
            if number in newer
            else hits[number].flags,
        )
        for number, there in zip(order, hits, strict=True)
    )


def _alike(texts: list[str]) -> list[tuple[int, int, float]]:
    """The pairs of texts that have most of their words in common, each with the share.

    Chunks between blanks are compared first: they cost a quarter of finding words, and few pairs come near.
    """
    near = roughly_alike(texts)
    if not near:
        return []
    words: dict[int, set[str]] = {}

    def of(place: int) -> set[str]:
        if place not in words:
            words[place] = whole_words(texts[place])
        return words[place]

    return [(i, j, shared) for i, j in near if (shared := in_common(of(i), of(j))) >= MOSTLY]


def roughly_alike(texts: list[str]) -> list[tuple[int, int]]:
    """The pairs of texts that have some of the chunks between their blanks in common, whatever their case."""
    near: list[tuple[int, int]] = []
    chunks = [set(text.casefold().split()) for text in texts]
    sizes = [len(each) for each in chunks]
    for i, mine in enumerate(chunks):
        for j in range(i + 1, len(chunks)):
            shared = len(mine & chunks[j])
            if shared >= ROUGHLY * (sizes[i] + sizes[j] - shared):
                near.append((i, j))
    return near
