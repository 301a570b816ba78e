"""Undo what one source brought into the hive, and everything that was built on it.

The blast radius is worked out first and is the same value whether or not it is then applied: what the
source wrote, what was derived from that, what it confirmed or changed, and how many copies there are. Everything
is retracted or undone, not erased, so a rollback can itself be taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.hive.frames import BlastAnswer, BlastQuery, Touched
from skep.hive.tracing import tracer

if TYPE_CHECKING:
    from skep.hive.calls import Gathered
    from skep.hive.hive import Hive


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
    changes: tuple[str, ...]
    """Events by which it changed memories of others: revisions, links, marks, newest first."""
    copies: int
    """How many copies of all this the members hold."""
    members: dict[str, int]
    """Copies per member."""
    texts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    applied: bool = False
    completeness: float = 1.0
    """The share of the members that could be asked; what others hold may be more than is shown."""
    missing: tuple[str, ...] = ()
    """Members that were not heard, or did not confirm; their copies follow with the next repair."""

    def lines(self) -> list[str]:
        """For people."""
        count = len(self.written) + len(self.derived)
        head = f"{self.source}: {count} memories in {self.copies} copies, {len(self.confirmations)} confirmations,"
        head += f" {len(self.changes)} changes to what others wrote"
        return [
            head,
            *(f"  written  {name}  {self.texts.get(name, '')[:80]}" for name in self.written),
            *(f"  derived  {name}  {self.texts.get(name, '')[:80]}" for name in self.derived),
            *(f"  not heard: {name}" for name in self.missing),
        ]


def rollback(hive: Hive, source: str, *, since: float | None, dry_run: bool) -> Rollback:
    """Retract what a source wrote since a moment, and what was derived from it, in every copy."""
    with tracer.span("hive.rollback", source=source, dry_run=dry_run) as span:
        radius = blast_radius(hive, source, since=since)
        span.note(memories=len(radius.written) + len(radius.derived))
        if dry_run:
            return radius
        reason = f"rolled back: {source}"
        silent = set(radius.missing)
        for memory_id in (*radius.derived, *radius.written):
            holder = hive.holder(memory_id)
            if holder is not None:
                hive.changed_at(holder, lambda bank, m=memory_id: bank.retract(m, reason), silent=silent)
        for event_id in (*radius.changes, *radius.confirmations):
            holder = hive.holder_of_event(event_id)
            if holder is not None:
                hive.changed_at(holder, lambda bank, e=event_id: bank.undo(e, reason), silent=silent)
    return msgspec.structs.replace(radius, applied=True, missing=tuple(sorted(silent)))


def blast_radius(hive: Hive, source: str, *, since: float | None) -> Rollback:
    """What a rollback would touch, asked of every member: what the source wrote, then what was built on it."""
    found = hive.calls.ask(BlastQuery(source=source, since=since), BlastAnswer)
    missing = set(found.missing)
    memories: dict[str, Touched] = {}
    held: dict[str, set[str]] = {}
    confirmations = dict.fromkeys(e for one in found.answers.values() for e in one.confirmations)
    changes = dict.fromkeys(e for one in found.answers.values() for e in one.changes)
    written = _note(found, memories, held)
    derived: set[str] = set()
    frontier = written
    while frontier:
        further = hive.calls.ask(BlastQuery(origins=tuple(sorted(frontier))), BlastAnswer)
        missing |= set(further.missing)
        frontier = _note(further, memories, held) - written - derived
        derived |= frontier
    touched = [*sorted(written), *sorted(derived)]
    per_member: dict[str, int] = {}
    for name in touched:
        for member in held[name]:
            per_member[member] = per_member.get(member, 0) + 1
    return Rollback(
        source=source,
        since=since,
        written=_in_time(written, memories),
        derived=_in_time(derived, memories),
        confirmations=tuple(confirmations),
        changes=tuple(changes),
        copies=sum(per_member.values()),
        members=per_member,
        texts={name: memories[name].text for name in touched},
        completeness=1.0 - len(missing) / max(1, len(found.asked)),
        missing=tuple(sorted(missing)),
    )


def _note(found: Gathered[BlastAnswer], memories: dict[str, Touched], held: dict[str, set[str]]) -> set[str]:
    names: set[str] = set()
    for member, part in found.answers.items():
        for memory in part.memories:
            memories[memory.id] = memory
            held.setdefault(memory.id, set()).add(member)
            names.add(memory.id)
    return names


def _in_time(names: set[str], memories: dict[str, Touched]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (memories[name].created_at, name)))
