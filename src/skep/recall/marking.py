"""Which of some hits do not go together; for a bank and for a hive alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.semantics.conflicts import in_common, judge, whole_words

if TYPE_CHECKING:
    from skep.model import Hit, Link, Memory

MOSTLY = 0.4
"""The share of words two hits must have in common to be compared."""
ROUGHLY = 0.25
"""The same for chunks, whose punctuation hides some of what is shared."""
NEAR = 0.5
CHECKED = 10
"""How many of the best hits are compared with one another for conflicts."""


def opposes(older: Memory, newer: Memory, similarity: float) -> bool:
    """Whether two memories contradict or update one another."""
    conflict = judge(older, newer, similarity)
    return conflict is not None and conflict.kind != "duplicate"


def conflicts_marked(
    hits: tuple[Hit, ...],
    *,
    vectors: Callable[[Sequence[Hit]], Any],
    calibrate: Callable[[float], float],
    opposed: Callable[[Memory, Memory, float], bool] = opposes,
) -> tuple[Hit, ...]:
    """The hits, with a mark on those that contradict or update one another.

    What contradicts or updates something says it mostly in the same words; looking only there keeps this off the
    bill of ordinary answers.

    Args:
        hits: Best first; the first few are compared.
        vectors: The unit vectors of hits, one row each; asked for only if some are worth comparing.
        calibrate: A raw cosine on the common scale.
        opposed: Whether an older and a newer memory of some similarity do not go together.
    """
    head = hits[:CHECKED]
    alike = [
        (i, j)
        for i, j in _alike([hit.memory.text for hit in head])
        if head[i].memory.kind == head[j].memory.kind
    ]
    if not alike:
        return hits
    rows = vectors(head)
    found: dict[str, list[str]] = {}
    for i, j in alike:
        cosine = float(rows[i] @ rows[j])
        similarity = 0.0 if math.isnan(cosine) else calibrate(cosine)
        older, newer = sorted((head[i].memory, head[j].memory), key=lambda m: (m.created_at, m.id))
        if similarity >= NEAR and opposed(older, newer, similarity):
            found.setdefault(head[i].memory.id, []).append(head[j].memory.id)
            found.setdefault(head[j].memory.id, []).append(head[i].memory.id)
    if not found:
        return hits
    return tuple(
        msgspec.structs.replace(
            hit, flags=(*hit.flags, "conflict"), conflicts_with=tuple(found[hit.memory.id])
        )
        if hit.memory.id in found
        else hit
        for hit in hits
    )


def newest_first(
    query: str, hits: tuple[Hit, ...], revised: Callable[[Sequence[str]], Sequence[Link]]
) -> tuple[Hit, ...]:
    """The hits, each that another one revises behind that one and marked as outdated; scores stay where they are.

    Args:
        query: A hit gives way only if this names what changed: it may say other things besides.
        hits: Best first.
        revised: The links from those that revise some memories.
    """
    from skep.semantics.revising import asks_for  # few banks hold such links

    place = {hit.memory.id: number for number, hit in enumerate(hits)}
    newer: dict[int, list[int]] = {}
    for link in revised(list(place)):
        if link.src in place and asks_for(query, hits[place[link.src]].memory.text):
            newer.setdefault(place[link.dst], []).append(place[link.src])
    if not newer:
        return hits
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


def _alike(texts: list[str]) -> list[tuple[int, int]]:
    """The pairs of texts that have most of their words in common.

    Chunks between blanks are compared first: they cost a quarter of finding words, and few pairs come near.
    """
    words: dict[int, set[str]] = {}

    def of(place: int) -> set[str]:
        if place not in words:
            words[place] = whole_words(texts[place])
        return words[place]

    return [(i, j) for i, j in roughly_alike(texts) if in_common(of(i), of(j)) >= MOSTLY]


def roughly_alike(texts: list[str]) -> list[tuple[int, int]]:
    """The pairs of texts that have some of the chunks between their blanks in common, whatever their case."""
    from skep.storage.segments.kernels import native

    compiled = getattr(native, "sharing", None)  # an older build has none
    near: list[tuple[int, int]] | None = None if compiled is None else compiled(texts, ROUGHLY)
    if near is not None:
        return near
    near = []
    chunks = [set(text.casefold().split()) for text in texts]
    sizes = [len(each) for each in chunks]
    for i, mine in enumerate(chunks):
        for j in range(i + 1, len(chunks)):
            shared = len(mine & chunks[j])
            if shared >= ROUGHLY * (sizes[i] + sizes[j] - shared):
                near.append((i, j))
    return near
