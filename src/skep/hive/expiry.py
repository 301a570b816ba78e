"""Time in a hive: memories that fade, expire, are collected and refreshed.

Fading is computed when it is read and never stored. A memory that has expired is out of every recall from
that moment on, in every copy, because the moment is part of the memory; collecting only tidies up and says
what went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.confidence import DECAY_PER_DAY, effective
from skep.errors import InvalidInputError
from skep.hive.blast import Keeps
from skep.hive.calls import Listed
from skep.hive.frames import ExpiredAnswer, ExpiredQuery, Frame, without_position
from skep.hive.policy import HivePolicy
from skep.model import Memory

if TYPE_CHECKING:
    from skep.hive.hive import Hive


def effective_confidence(memory: Memory, now: float, policy: HivePolicy) -> float:
    """How sure a memory is at a moment: by the hour where the hive has a ttl, else by the day.

    >>> day_old = Memory(id="a-1", kind="fact", text="x", confidence=0.8, last_evidence_at=0.0)
    >>> [round(effective_confidence(day_old, 86_400.0, p), 3) for p in (HivePolicy(ttl=1e6), HivePolicy())]
    [0.629, 0.792]
    """
    per_day = DECAY_PER_DAY if policy.ttl is None else 24 * policy.decay_per_hour
    return effective(memory.confidence, memory.last_evidence_at, now, per_day=per_day)


def expired_of(member: Keeps, query: ExpiredQuery) -> ExpiredAnswer:
    """What one member holds that has expired and was not marked yet; marked, if that is asked for."""

    bank = member.bank
    store = bank.engine.store
    due = {memory.id: None for memory in store.due(query.now)}
    if not query.mark:
        return ExpiredAnswer(member=member.name, ids=tuple(due))
    before = store.log.last_seq()
    marked = [memory_id for memory_id in query.mark if memory_id in due]
    for memory_id in marked:
        bank.mark(memory_id, "expired", "its time was over")
    events = tuple(without_position(event) for event in store.log.after(before))
    return ExpiredAnswer(member=member.name, ids=tuple(marked), events=events)


def collect(hive: Hive, *, now: float | None = None) -> Listed[str]:
    """Mark what has expired as expired, in every copy; the ids, and who could not be asked.

    Each memory is marked by one member that holds it, and the others follow. A second time finds nothing.
    """
    moment = hive.now() if now is None else now
    found = hive.calls.ask(ExpiredQuery(now=moment), ExpiredAnswer)
    wanted: dict[str, list[str]] = {}
    gone: dict[str, None] = {}
    for name in sorted(
        found.answers, key=lambda name: name not in hive.members
    ):  # those of this process first
        fresh = [memory_id for memory_id in found.answers[name].ids if memory_id not in gone]
        gone |= dict.fromkeys(fresh)
        if fresh:
            wanted[name] = fresh
    frames: dict[str, Frame] = {n: ExpiredQuery(now=moment, mark=tuple(ids)) for n, ids in wanted.items()}
    told = hive.calls.ask_each(frames, ExpiredAnswer)
    missing = {*found.missing, *told.missing}
    hive.spread(hive.registers, [e for part in told.answers.values() for e in part.events], silent=missing)
    marked = dict.fromkeys(memory_id for part in told.answers.values() for memory_id in part.ids)
    return Listed(marked, asked=len(found.asked), missing=missing)


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
