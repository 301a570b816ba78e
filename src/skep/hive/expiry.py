"""Time in a hive: memories that fade, expire, are collected and refreshed.

Fading is computed when it is read and never stored. A memory that has expired is out of every recall from
that moment on, in every copy, because the moment is part of the memory; collecting only tidies up and says
what went.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skep.errors import InvalidInputError
from skep.hive.blast import everything
from skep.hive.policy import HivePolicy
from skep.model import CURRENT, Memory

if TYPE_CHECKING:
    from skep.hive.hive import Hive

DECAY_PER_DAY = 0.01


def effective_confidence(memory: Memory, now: float, policy: HivePolicy) -> float:
    """How sure a memory is at a moment: by the hour where the hive has a ttl, else by the day.

    >>> day_old = Memory(id="a-1", kind="fact", text="x", confidence=0.8, last_evidence_at=0.0)
    >>> [round(effective_confidence(day_old, 86_400.0, p), 3) for p in (HivePolicy(ttl=1e6), HivePolicy())]
    [0.629, 0.792]
    """
    seconds = max(0.0, now - memory.last_evidence_at)
    per_second = DECAY_PER_DAY / 86_400 if policy.ttl is None else policy.decay_per_hour / 3600
    return memory.confidence * math.exp(-per_second * seconds)


def collect(hive: Hive, *, now: float | None = None) -> list[str]:
    """Mark what has expired as expired, in every copy; the ids. A second time finds nothing.

    Members in this process are looked through; those elsewhere look through their own.
    """
    moment = hive.now() if now is None else now
    gone: dict[str, None] = {}
    for member in hive.members.values():
        for memory in list(everything(member.bank)):
            ended = memory.expires_at is not None and memory.expires_at <= moment
            if ended and memory.status in CURRENT and memory.id not in gone:
                hive.changed_at(
                    member, lambda bank, m=memory.id: bank.mark(m, "expired", "its time was over")
                )
                gone[memory.id] = None
    return list(gone)


def refresh(hive: Hive, memory_id: str, *, ttl: float | None = None) -> Memory:
    """Give a memory its full time again, in every copy."""
    seconds = ttl or hive.policy.ttl
    if seconds is None:
        raise InvalidInputError(
            "the hive has no ttl; say how many seconds the memory should live", field="ttl"
        )
    holder = hive.holder(memory_id) or hive.registers
    memory = hive.changed_at(holder, lambda bank: bank.revise(memory_id, ttl=seconds))
    if memory.status == "expired":
        memory = hive.changed_at(holder, lambda bank: bank.mark(memory_id, "active", "refreshed"))
    return memory
