"""Whom to believe in a hive: trust per agent, the lineage and the path of a memory, and how to undo one source.

- `Trust` is a replicated register in [0, 2] under `trust/<agent>`; 1 until somebody says otherwise. What is derived
  from others is trusted no more than the least trusted of them, however many steps away.
- `Paths` keeps the members and hives that a memory passed through, in the bank that holds it: per writer, stretches
  of counters that came the same way (`path/<member>/<writer>`). A path is written only when it differs from the
  expected one.
- `rollback` retracts what one source wrote and what was derived from it. The blast radius is worked out first and is
  the same value whether or not it is then applied; nothing is erased, so a rollback can itself be taken back.

Called by `hive`, `members`, `gateway` and `placement`. It writes through `Placement.changed_at` and bank settings
alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from skep.bank.read import every
from skep.confidence import independent, lineage
from skep.engine.engine import CHANGES
from skep.errors import OutOfRangeError
from skep.events import PATHS, dot_of, mentioned, voided
from skep.hive.gateway import TRUST_DEFAULT, TRUST_MAX
from skep.hive.messages import BlastAnswer, BlastQuery, Touched
from skep.hive.traces import tracer
from skep.model import Memory
from skep.replication.exchange import seen
from skep.replication.version_vectors import Ranges, holds

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.hive.hive import Hive
    from skep.hive.member_calls import Gathered
    from skep.hive.members import Member


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a memory."""

    memory: str
    author: str | None
    actor: str
    """The bank that wrote it."""
    path: tuple[str, ...] = ()
    """The members it passed through on its way here."""
    signed: bool = False
    sources: tuple[str, ...] = ()
    """The memories it was derived from."""
    witnesses: tuple[str, ...] = ()
    """Its author and whoever confirmed it independently."""
    dissent: tuple[str, ...] = ()
    """Who disputed it, or reported failure with it."""
    trust: float = TRUST_DEFAULT


class Trust:
    """The trust registers of one hive."""

    def __init__(self, registers: Any) -> None:
        self.registers = registers

    def of(self, agent: str | None) -> float:
        """The trust in an agent, 0 to 2."""
        value = None if agent is None else self.registers.setting(f"trust/{agent}")
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value:  # noqa: PLR0124
            return TRUST_DEFAULT
        return min(TRUST_MAX, max(0.0, float(value)))

    def set(self, agent: str, value: float) -> None:
        """Say how far an agent is trusted; replicas agree on the latest word."""
        if not 0 <= value <= TRUST_MAX:
            raise OutOfRangeError(f"trust lies between 0 and {TRUST_MAX:g}, got {value!r}", field="trust")
        self.registers.set_setting(f"trust/{agent}", float(value))

    def all(self) -> dict[str, float]:
        """Every agent somebody has said something about."""
        names = (key.removeprefix("trust/") for key in self.registers.settings("trust/"))
        return {name: self.of(name) for name in names}

    def of_memory(self, memory: Memory, get: Callable[[str], Memory | None]) -> float:
        """The trust a memory deserves: its author's, or the lowest among what it was derived from."""
        return min(self.of(author) for author in {memory.agent, *self._authors(memory, get)})

    @staticmethod
    def _authors(memory: Memory, get: Callable[[str], Memory | None]) -> set[str | None]:
        return {source.agent for source in lineage(memory.evidence, get, of=memory.id).values()}

    def independent(
        self,
        memory: Memory,
        by: str,
        get: Callable[[str], Memory | None],
        evidence: Iterable[str] = (),
    ) -> str | None:
        """Why a confirmation by somebody, on some evidence, does not count; None when it does."""
        if by == memory.agent:
            return f"{by} wrote it"
        if by in self._authors(memory, get):
            return f"it was derived from what {by} wrote"
        if self.of(by) <= 0:
            return f"{by} is not trusted"
        sources = tuple(evidence)
        if sources and not independent(sources, (memory.id, *memory.evidence), get, witness):
            return f"{by} has it from the same source"
        return None


def witness(memory: Memory) -> str:
    """Whose word a root of evidence is: its author's, or the memory's own where nobody is named."""
    return memory.agent or memory.id


def provenance(hive: Hive, member: Member, memory_id: str) -> Provenance:
    """The origin of a memory that a member has."""
    memory = member.bank.get(memory_id)
    history = member.bank.history(memory_id, limit=10_000)
    undone = voided(history)
    first = next((event for event in history if event.id == memory_id), None)
    heard: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for event in reversed(history):
        failed = event.kind == "outcome" and not event.body.get("success")
        if event.id not in undone and (event.kind in ("confirm", "dispute") or failed):
            who = event.body.get("agent") or event.body.get("by") or event.actor
            heard[event.kind == "confirm"][str(who)] = None
    return Provenance(
        memory=memory_id,
        author=memory.agent,
        actor=memory_id.rpartition("-")[0],
        path=member.paths.of(memory_id),
        signed=first is not None and first.signature is not None,
        sources=memory.evidence,
        witnesses=tuple(filter(None, (memory.agent, *heard[True]))),
        dissent=tuple(heard[False]),
        trust=hive.trust.of_memory(memory, hive.get),
    )


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """Memories of one writer that came the same way; the last one that covers a counter counts."""

    low: int
    high: int | None
    path: tuple[str, ...]

    def covers(self, counter: int) -> bool:
        """True if a memory belongs to it."""
        return self.low <= counter and (self.high is None or counter <= self.high)


class Paths:
    """The ways by which copies came to one member."""

    def __init__(self, bank: Bank, member: str, expected: Callable[[str], tuple[str, ...]]) -> None:
        self._bank = bank
        self._member = member
        self._expected = expected
        self._known: dict[str, tuple[Stretch, ...]] = {}
        self._lock = threading.Lock()

    def of(self, memory_id: str) -> tuple[str, ...]:
        """The way a memory came, from its writer to here."""
        actor, counter = dot_of(memory_id)
        if actor == self._bank.actor:
            return (self._member,)
        with self._lock:
            return self._of(actor, counter)

    def _of(self, actor: str, counter: int) -> tuple[str, ...]:
        for stretch in reversed(self._stretches(actor)):
            if stretch.covers(counter):
                return stretch.path
        return self._expected(actor)

    def _stretches(self, actor: str) -> tuple[Stretch, ...]:
        if actor not in self._known:
            raw: Any = self._bank.setting(f"{PATHS}{self._member}/{actor}")
            try:
                self._known[actor] = tuple(msgspec.convert(raw or [], list[Stretch]))
            except msgspec.ValidationError:  # somebody else's setting of that name
                self._known[actor] = ()
        return self._known[actor]

    def surprising(self, memory_ids: Iterable[str], path: tuple[str, ...]) -> Surprise | None:
        """The memories, of some that are about to arrive, that come by an unexpected path."""
        found: dict[str, list[int]] = {}
        with self._lock:
            for memory_id in memory_ids:
                actor, counter = dot_of(memory_id)
                if actor != self._bank.actor and self._of(actor, counter) != path:
                    found.setdefault(actor, []).append(counter)
        if not found:
            return None
        ranges = seen(self._bank).ranges
        return Surprise(path, {actor: sorted(counters) for actor, counters in found.items()}, ranges)

    def note(self, surprise: Surprise) -> None:
        """Remember it, now that they have arrived."""
        with self._lock:
            for actor, counters in surprise.counters.items():
                known = surprise.before.get(actor, ())
                newest = known[-1][1] if known else 0
                stretches = list(self._stretches(actor))
                for counter in counters:
                    if not holds(known, counter):
                        _extend(stretches, counter, surprise.path, last=counter > newest)
                if tuple(stretches) != self._stretches(actor):
                    self._known[actor] = tuple(stretches)
                    key = f"{PATHS}{self._member}/{actor}"
                    self._bank.set_setting(key, [msgspec.to_builtins(one) for one in stretches])


class Surprise(msgspec.Struct, frozen=True):
    """Memories that come another way than was to be expected, and what was here before."""

    path: tuple[str, ...]
    counters: dict[str, list[int]]
    before: dict[str, Ranges]


def _extend(stretches: list[Stretch], counter: int, path: tuple[str, ...], *, last: bool) -> None:
    """One more memory that came this way; if nothing later is here, later ones are expected to as well."""
    newest = stretches[-1] if stretches else None
    if newest is not None and newest.path == path and newest.covers(counter):
        return
    if newest is not None and newest.path == path and newest.high == counter - 1:
        stretches.pop()
        low = newest.low
    else:
        low = counter
    stretches.append(Stretch(low, None if last else counter, path))


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """The blast radius of one source."""

    source: str
    since: float | None
    written: tuple[str, ...]
    """Memories it wrote."""
    derived: tuple[str, ...]
    """Memories that others derived from those, however many steps away."""
    confirmations: tuple[str, ...]
    """Events by which it confirmed memories of others."""
    changes: tuple[str, ...]
    """Events by which it changed memories of others: revisions, links, marks, newest first."""
    copies: int
    """The number of copies of all this the members hold."""
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
            holder = hive.members.holder(memory_id)
            if holder is not None:
                hive.placement.changed_at(
                    holder, lambda bank, m=memory_id: bank.retract(m, reason), silent=silent
                )
        for event_id in (*radius.changes, *radius.confirmations):
            holder = hive.members.holder_of_event(event_id)
            if holder is not None:
                hive.placement.changed_at(
                    holder, lambda bank, e=event_id: bank.undo(e, reason), silent=silent
                )
    return msgspec.structs.replace(radius, applied=True, missing=tuple(sorted(silent)))


def blast_radius(hive: Hive, source: str, *, since: float | None) -> Rollback:
    """The reach of a rollback, asked of every member: memories of the source, then those built on them."""
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


TAKEN_BACK = frozenset((*CHANGES, "dispute", "outcome"))
"""What a source did to memories of others, and a rollback undoes; confirmations are counted apart."""


def blast(member: Member, query: BlastQuery) -> BlastAnswer:
    """The part of a blast radius that is here."""
    origins = frozenset(query.origins)
    touched: list[Touched] = []
    confirmations: dict[str, None] = {}
    for memory in everything(member.bank):
        if (query.source is not None and _wrote(member.bank, memory, query)) or (
            origins and not origins.isdisjoint(_origins(member.bank, memory))
        ):
            touched.append(Touched(memory.id, memory.created_at, memory.text))
        if query.source is not None and memory.confirmations:
            confirmations |= dict.fromkeys(_confirmed_by(member.bank, memory.id, query))
    return BlastAnswer(
        memories=tuple(touched),
        confirmations=tuple(confirmations),
        changes=tuple(_changed_by(member.bank, query)) if query.source is not None else (),
    )


def everything(bank: Bank, status: str | None = None) -> Iterator[Memory]:
    """Every memory (of one status, if given) that was not already taken back."""
    return (memory for memory in every(bank, status=status) if memory.status != "retracted")


def _wrote(bank: Bank, memory: Memory, query: BlastQuery) -> bool:
    """True if the source wrote it since then; when it was written counts, not the date it claims."""
    if query.source not in (memory.agent, memory.source):
        return False
    if query.since is None or memory.created_at >= query.since:
        return True
    event = bank.engine.log.get(memory.id)
    return event is not None and event.at >= query.since


def _origins(bank: Bank, memory: Memory) -> set[str]:
    links = bank.engine.links(memory.id, rel="derived_from", direction="out")
    return {*memory.evidence, *(link.dst for link in links)}


def _changed_by(bank: Bank, query: BlastQuery) -> Iterator[str]:
    """Changes the source made to what others wrote, newest first; what it wrote itself goes as a whole."""
    engine = bank.engine
    undone = voided(engine.log.undos())
    for event in reversed(engine.log.by(query.source or "")):
        if event.id in undone or (query.since is not None and event.at < query.since):
            continue
        if event.kind not in TAKEN_BACK or any(engine.is_forgotten(name) for name in mentioned(event)):
            continue
        memories = [engine.get(name) for name in mentioned(event)]
        if not all(memory is None or memory.agent == query.source for memory in memories):
            yield event.id


def _confirmed_by(bank: Bank, memory_id: str, query: BlastQuery) -> list[str]:
    history = bank.history(memory_id)
    undone = voided(history)
    return [
        event.id
        for event in history
        if event.kind == "confirm"
        and event.id not in undone
        and event.body.get("by") == query.source
        and (query.since is None or event.at >= query.since)
    ]
