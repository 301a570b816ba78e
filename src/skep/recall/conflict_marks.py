"""Marks on hits that contradict or update one another; for a bank and for a hive alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.semantics.find_conflicts import (
    OVERLAP,
    comparable,
    judge_many,
    older_first,
    replaces,
    texts_alike,
)

if TYPE_CHECKING:
    from skep.model import Hit, Link, Memory

ALIKE = 0.4
"""The share of words, and the similarity, from which two hits are compared."""
CHECKED = 10
"""The best hits that are compared with one another."""


def conflicts_marked(
    hits: tuple[Hit, ...],
    vectors: Callable[[Sequence[Hit]], Any],
    calibrate: Callable[[float], float],
    *,
    now: float,
    linked: Sequence[Link] = (),
    decided: Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]] = lambda _pairs: set(),
) -> tuple[Hit, ...]:
    """The hits, with a mark on those that contradict or update one another.

    Args:
        hits: Best first; the first few are compared.
        vectors: The unit vectors of hits, one row each; asked for only if some are worth comparing.
        calibrate: A raw cosine on the common scale.
        now: The time of the question; a memory dated later was dated by a clock that was ahead.
        linked: Links that say that memories contradict one another.
        decided: Of pairs of memories, those of which somebody has decided that both stay.
    """
    head = hits[:CHECKED]
    found: dict[str, list[str]] = {}
    opposed = [(one.id, other.id) for one, other in _opposed(head, vectors, calibrate, now)]
    kept = decided(opposed)
    for one, other in opposed:
        if (one, other) not in kept:
            found.setdefault(one, []).append(other)
            found.setdefault(other, []).append(one)
    shown = {hit.memory.id for hit in hits}
    for link in linked:
        if link.src in shown and link.dst in shown:
            for one, other in ((link.src, link.dst), (link.dst, link.src)):
                if other not in found.setdefault(one, []):
                    found[one].append(other)
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


def _opposed(
    hits: Sequence[Hit],
    vectors: Callable[[Sequence[Hit]], Any],
    calibrate: Callable[[float], float],
    now: float,
) -> list[tuple[Memory, Memory]]:
    """The pairs of hits that contradict or update one another, the older first."""
    alike: list[tuple[int, int, float]] = []
    for i, j, shared in texts_alike([hit.memory.text for hit in hits], ALIKE):
        one, other = hits[i].memory, hits[j].memory
        if one.kind == other.kind and not one.scope.apart(other.scope) and comparable(one, other):
            alike.append((i, j, shared))
    if not alike:
        return []
    rows = vectors(hits)
    near: list[tuple[Memory, Memory, float]] = []
    for i, j, shared in alike:
        cosine = float(rows[i] @ rows[j])
        similarity = 0.0 if math.isnan(cosine) else calibrate(cosine)
        if similarity >= ALIKE or shared >= OVERLAP:
            near.append((*older_first(hits[i].memory, hits[j].memory, now), similarity))
    judged = judge_many(near)
    return [
        (older, newer)
        for (older, newer, _), conflict in zip(near, judged, strict=True)
        if conflict is not None and replaces(conflict)
    ]
