"""Rules of confidence: evidence moves it, age alone never does. Pure; storage, maintenance and learning call it.

Decay is a policy that one chooses by name. It is computed when it is read and never stored. Confidence (how sure),
level of a hit (how close to a query) and importance (how much it matters) are kept apart.
"""

from __future__ import annotations

import math

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


def supported(confidence: float) -> float:
    """After one more piece of evidence, or one success.

    >>> round(supported(0.8), 3)
    0.81
    """
    return confidence + STEP * (1 - confidence)


def failed(confidence: float) -> float:
    """After one failure.

    >>> round(failed(0.8), 3)
    0.76
    """
    return confidence - STEP * confidence


def contradicted(confidence: float) -> float:
    """After a clear contradiction."""
    return confidence * CONTRADICTED


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
