"""How a memory is put into words for a model: its age, its standing, and no more than fits."""

from __future__ import annotations

import time
from typing import Final

from skep.model import Memory

DAY: Final = 86_400.0


def date(moment: float) -> str:
    """A day, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


def age(moment: float, now: float) -> str:
    """How long ago, in the shortest form that helps.

    >>> age(0, 3 * 86400), age(0, 3000), age(0, 400 * 86400)
    ('3d ago', 'today', '1970-01-01')
    """
    days = (now - moment) / DAY
    if days < 1:
        return "today"
    return f"{int(days)}d ago" if days < 100 else date(moment)


def clip(text: str, limit: int) -> str:
    """A text cut to a length, with a mark where it was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…"


def standing(memory: Memory) -> tuple[str, ...]:
    """What a reader must know before believing a memory."""
    found: list[str] = []
    if memory.superseded_by:
        found.append(f"outdated: replaced by [{memory.superseded_by}]")
    elif memory.merged_into:
        found.append(f"merged into [{memory.merged_into}]")
    elif memory.status not in ("active", "pending"):
        found.append(memory.status)
    if memory.disputes:
        found.append(f"contested {memory.disputes}x")
    if memory.stale:
        found.append("stale: check before relying on it")
    return tuple(found)
