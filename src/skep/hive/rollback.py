"""Undo what one source brought into the hive, and everything that was built on it.

The blast radius is worked out first and is the same value whether or not it is then applied: what the
source wrote, what was derived from that, what it confirmed, and how many copies there are. Everything is
retracted, not erased, so a rollback can itself be taken back with `restore`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from skep.hive.tracing import tracer
from skep.model import Event, Memory
from skep.storage.fold import voided

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.hive.hive import Hive
    from skep.hive.member import Member

UNDONE = ("retracted",)


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """The blast radius of one source."""

    source: str
    since: float | None
    written: tuple[str, ...]
    """What it wrote."""
    derived: tuple[str, ...]
    """What others made of that, however many steps away."""
    confirmations: tuple[str, ...]
    """Events by which it confirmed memories of others."""
    copies: int
    """How many copies of all this the members hold."""
    members: dict[str, int]
    """Copies per member."""
    texts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    applied: bool = False

    def lines(self) -> list[str]:
        """For people."""
        count = len(self.written) + len(self.derived)
        head = f"{self.source}: {count} memories in {self.copies} copies, {len(self.confirmations)} confirmations"
        return [
            head,
            *(f"  written  {name}  {self.texts.get(name, '')[:80]}" for name in self.written),
            *(f"  derived  {name}  {self.texts.get(name, '')[:80]}" for name in self.derived),
        ]


def rollback(hive: Hive, source: str, *, since: float | None, dry_run: bool) -> Rollback:
    """Retract what a source wrote since a moment, and what was derived from it, in every copy."""
    with tracer.span("hive.rollback", source=source, dry_run=dry_run) as span:
        radius = blast_radius(hive, source, since=since)
        span.note(memories=len(radius.written) + len(radius.derived))
        if dry_run:
            return radius
        reason = f"rolled back: {source}"
        for memory_id in (*radius.derived, *radius.written):
            holder = _holder(hive, memory_id)
            if holder is not None:
                hive.changed_at(holder, lambda bank, m=memory_id: bank.retract(m, reason))
        for event_id in radius.confirmations:
            for member in hive.members.values():
                if member.bank.engine.store.log.get(event_id) is not None:
                    hive.changed_at(member, lambda bank, e=event_id: bank.undo(e, reason))
                    break
    return msgspec.structs.replace(radius, applied=True)


def blast_radius(hive: Hive, source: str, *, since: float | None) -> Rollback:
    """What a rollback would touch."""
    memories: dict[str, Memory] = {}
    held: dict[str, list[str]] = {}
    builds_on: dict[str, set[str]] = {}
    confirmations: dict[str, Event] = {}
    for member in hive.members.values():
        for memory in everything(member.bank):
            memories[memory.id] = memory
            held.setdefault(memory.id, []).append(member.name)
            for origin in _origins(member, memory):
                builds_on.setdefault(origin, set()).add(memory.id)
            if memory.confirmations:
                confirmations |= _confirmed_by(member, memory.id, source, since)
    written = {m.id for m in memories.values() if _wrote(m, source, since)}
    derived: set[str] = set()
    frontier = set(written)
    while frontier:
        frontier = {name for origin in frontier for name in builds_on.get(origin, ())} - written - derived
        derived |= frontier
    touched = [*sorted(written), *sorted(derived)]
    per_member: dict[str, int] = {}
    for name in touched:
        for member_name in held[name]:
            per_member[member_name] = per_member.get(member_name, 0) + 1
    return Rollback(
        source=source,
        since=since,
        written=_in_time(written, memories),
        derived=_in_time(derived, memories),
        confirmations=tuple(confirmations),
        copies=sum(per_member.values()),
        members=per_member,
        texts={name: memories[name].text for name in touched},
    )


def everything(bank: Bank) -> Iterator[Memory]:
    """Every memory that was not already taken back, a page at a time."""
    cursor: str | None = None
    while True:
        page = bank.find(status=None, limit=1000, cursor=cursor)
        yield from (memory for memory in page if memory.status not in UNDONE)
        if page.cursor is None:
            return
        cursor = page.cursor


def _wrote(memory: Memory, source: str, since: float | None) -> bool:
    return source in (memory.agent, memory.source) and (since is None or memory.created_at >= since)


def _origins(member: Member, memory: Memory) -> set[str]:
    store = member.bank.engine.store
    links = store.links(memory.id, rel="derived_from", direction="out")
    return {*memory.evidence, *(link.dst for link in links)}


def _confirmed_by(member: Member, memory_id: str, source: str, since: float | None) -> dict[str, Event]:
    history = member.bank.history(memory_id)
    undone = voided(history)
    return {
        event.id: event
        for event in history
        if event.kind == "confirm"
        and event.id not in undone
        and event.body.get("by") == source
        and (since is None or event.at >= since)
    }


def _in_time(names: set[str], memories: dict[str, Memory]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (memories[name].created_at, name)))


def _holder(hive: Hive, memory_id: str) -> Member | None:
    holders = [member for member in hive.members.values() if member.has(memory_id)]
    first = (m for m in holders if hive.layout.first_for(m.name, memory_id, ()))
    return next(first, holders[0] if holders else None)
