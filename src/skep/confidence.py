"""Rules of confidence: evidence moves it, age alone never does. Pure; storage, maintenance and learning call it.

Decay is a policy that one chooses by name. It is computed when it is read and never stored. Confidence (how sure),
level of a hit (how close to a query) and importance (how much it matters) are kept apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from hashlib import blake2b

from skep.model import Memory

STEP = 0.05
"""The share of the remaining doubt that one piece of evidence removes, and of the confidence that a failure takes."""
CONTRADICTED = 0.5
"""What a clear contradiction leaves of the confidence of both sides."""
FADING = {"none": 0.0, "days": 0.01, "hours": 0.24}
"""Policies of decay by name: the rate per day at which confidence fades while nothing supports a memory.

`none` is the default. `days` is the rule of source document 003; `hours` that of 000, for memories with a ttl.
"""
DEPRECATED = 0.3
"""Below this a memory is set aside."""
STREAMED = 0.5
"""Above this a memory also takes part in passive recall."""
ABOVE = 1e-6
"""What makes "at least" mean "above"; more than single precision loses."""
DAY = 86_400.0


def supported(confidence: float, weight: float = 1.0) -> float:
    """After one more piece of evidence, or one success; `weight` is the trust in who says so.

    >>> round(supported(0.8), 3), round(supported(0.8, 0.5), 3)
    (0.81, 0.805)
    """
    return confidence + weight * STEP * (1 - confidence)


def failed(confidence: float, weight: float = 1.0) -> float:
    """After one failure.

    >>> round(failed(0.8), 3)
    0.76
    """
    return confidence - weight * STEP * confidence


def contradicted(confidence: float, weight: float = 1.0) -> float:
    """After a clear contradiction.

    >>> contradicted(0.8), contradicted(0.8, 0.0)
    (0.4, 0.8)
    """
    return confidence * CONTRADICTED**weight


DEPTH = 32
"""Steps of derivation that are followed."""


def lineage(
    names: Iterable[str], get: Callable[[str], Memory | None], *, of: str | None = None
) -> dict[str, Memory]:
    """The memories that sources name, and all those were derived from, near ones first; never the one they are `of`.

    Rings and missing ones do no harm.
    """
    found: dict[str, Memory] = {}
    frontier = list(names)
    for _ in range(DEPTH):
        following: list[str] = []
        for name in frontier:
            source = None if name in found or name == of else get(name)
            if source is not None:
                found[name] = source
                following += source.evidence
        if not following:
            break
        frontier = following
    return found


def said(memory: Memory) -> str:
    """What a memory says, whatever the case and the spaces: copies say the same."""
    return same_words(f"{memory.title or ''} {memory.text}")


def same_words(text: str) -> str:
    """A text without differences of case and spaces."""
    return " ".join(text.casefold().split())


def content_hash(text: str, *place: object) -> int:
    """Equal for texts with the same words that belong to the same place; as int64."""
    whole = "\x1f".join(map(str, (*place, same_words(text))))
    return int.from_bytes(blake2b(whole.encode(), digest_size=8).digest(), "big", signed=True)


def roots(
    names: Iterable[str], get: Callable[[str], Memory | None], key: Callable[[Memory], str] = said
) -> set[str]:
    """The origins of some sources: `key` of each memory at the end of their lineage; a name nobody knows is its own.

    5,000 copies of one memory have one root, so they are one piece of evidence.
    """
    names = list(names)
    found = lineage(names, get)
    ends = {key(memory) for memory in found.values() if not memory.evidence}
    unknown = {n for n in (*names, *(n for m in found.values() for n in m.evidence)) if n not in found}
    return ends | unknown or {key(memory) for memory in found.values()}


def independent(
    sources: Iterable[str],
    known: Iterable[str],
    get: Callable[[str], Memory | None],
    key: Callable[[Memory], str] = said,
) -> list[str]:
    """The sources that lead to a root which neither `known` nor the sources before them lead to."""
    counted, before = list[str](), roots(known, get, key)
    for source in sources:
        fresh = roots([source], get, key)
        if fresh - before:
            counted.append(source)
        before |= fresh
    return counted


def effective(confidence: float, last_evidence_at: float, now: float, *, per_day: float) -> float:
    """Confidence that has faded at some rate since the last evidence.

    >>> round(effective(0.8, 0.0, 30 * DAY, per_day=FADING["days"]), 3)
    0.593
    """
    return confidence * math.exp(-per_day * max(0.0, now - last_evidence_at) / DAY)


def procedure_score(success: float, usage: float, recency: float, context: float) -> float:
    """The score of a strategy: success rate, share of all trials, freshness, and match with the task.

    >>> round(procedure_score(18 / 20, 20 / 100, 0.95, 0.85), 3)
    0.695
    """
    return 0.4 * success + 0.3 * usage + 0.2 * recency + 0.1 * context
