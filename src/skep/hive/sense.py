"""Does an answer make sense? A member may be broken or hostile; its columns are checked before they are
used.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from skep.hive.pool import Ask, Slice

_WIDTHS = {
    "length": 4,
    "cosine": 4,
    "content": 8,
    "created_at": 8,
    "confidence": 8,
    "last_evidence_at": 8,
    "importance": 8,
}


def sound(part: Slice, ask: Ask) -> str | None:
    """What is wrong with an answer; None when it can be used."""
    count = len(part.ids)
    for name, width in _WIDTHS.items():
        if len(getattr(part, name)) != width * count:
            return f"the column {name} has the wrong size"
    if len(part.counts) != 2 * count * len(ask.terms):
        return "the counts have the wrong size"
    if part.keys and (len(part.keys) != count or len(part.voices) != count):
        return "the conversations have the wrong size"
    if part.authors and len(part.authors) != count:
        return "the authors have the wrong size"
    if part.admitted and len(part.admitted) != count:
        return "the admissions have the wrong size"
    if part.heirs and len(part.heirs) != count:
        return "the heirs have the wrong size"
    if part.former is not None and (fault := _of_former(part.former, ask)) is not None:
        return fault
    if not ask.near and len(part.having) not in (0, len(ask.terms)):
        return "the statistics have the wrong size"
    if part.held < 0 or part.terms < 0 or any(not 0 <= n <= part.held for n in part.having):
        return "the statistics contradict themselves"
    return _extras(part, ask, count)


def _of_former(former: Slice, ask: Ask) -> str | None:
    """What is wrong with what was replaced; it brings nothing of the kind itself."""
    return "what was replaced is nested" if former.former is not None else sound(former, ask)


def _extras(part: Slice, ask: Ask, count: int) -> str | None:
    if ask.texts and len(part.texts) != count:
        return "the texts are missing"
    if ask.vectors and count and (not part.vectors or len(part.vectors) % (4 * count)):
        return "the vectors have the wrong size"
    if ask.vectors and ask.vector and len(part.vectors) != len(ask.vector) * count:
        return "the vectors have the wrong size"
    if ask.counters and not (
        len(part.uses) == len(part.confirmations) == len(part.last_used_at) == 8 * count
    ):
        return "the counters have the wrong size"
    if ask.counters and len(part.agents) != count:
        return "the authors are missing"
    return None


def out_of_range(parts: Mapping[str, Slice]) -> dict[str, str]:
    """Which members sent numbers that cannot be, and would win every ranking.

    One look at all of them together.
    """
    if _range_fault(list(parts.values())) is None:
        return {}
    faults = {name: _range_fault([part]) for name, part in parts.items()}
    return {name: fault for name, fault in faults.items() if fault is not None}


def _range_fault(parts: list[Slice]) -> str | None:
    parts = [*parts, *(part.former for part in parts if part.former is not None)]
    for name in ("confidence", "importance"):
        values = np.frombuffer(b"".join([getattr(part, name) for part in parts]), np.float64)
        if values.size and not (values.min() >= 0.0 and values.max() <= 1.0):
            return f"{name} is out of range"
    for name in ("created_at", "last_evidence_at"):
        values = np.frombuffer(b"".join([getattr(part, name) for part in parts]), np.float64)
        if values.size and not np.isfinite(values.sum()):
            return f"{name} is out of range"
    cosine = np.frombuffer(b"".join([part.cosine for part in parts]), np.float32)
    known = cosine[~np.isnan(cosine)]
    if known.size and not (known.min() >= -1.01 and known.max() <= 1.01):
        return "cosines are out of range"
    return None
