"""The figures of one member: of what it answers for, so that those of all members add up without copies.

Bring every copy that should exist up to date, whoever holds it and wherever it runs.

Members say what they have seen, as ranges of counters. Each is then asked once which of its events the others
should have, looks through its log a single time for all of them, and what it names is handed on.

Time in a hive: memories that fade, expire, are collected and refreshed.

Fading is computed when it is read and never stored. A memory that has expired is out of every recall from
that moment on, in every copy, because the moment is part of the memory; collecting only tidies up and says
what went.

A member of a hive: one bank, the shelf over it, and what it answers on the bus.

Every handler is local: a member answers from its own bank and never asks on behalf of another, so one
question costs one message per member and cannot multiply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from skep.confidence import effective
from skep.errors import InvalidInputError
from skep.events import belongs, dot_of
from skep.filters import Filter
from skep.hive.bus.bus import Bus, Subscription, safe_part
from skep.hive.gateway import HivePolicy
from skep.hive.member_calls import Listed
from skep.hive.messages import (
    BlastQuery,
    Envelope,
    ExpiredAnswer,
    ExpiredQuery,
    FactPromoted,
    FactRetracted,
    FactsChanged,
    Fetched,
    Frame,
    MemberHello,
    OutcomesAnswer,
    OutcomesQuery,
    RepairEvents,
    RepairRequest,
    Seen,
    SeenRequest,
    ShardFetch,
    ShardFetched,
    ShardFind,
    ShardPage,
    ShardQuery,
    ShardResponse,
    ShardStore,
    ShardStored,
    ShardUsed,
    StatusAnswer,
    StatusQuery,
    SyncEvents,
    SyncRequest,
)
from skep.hive.shard import Shard
from skep.hive.traces import tracer
from skep.hive.trust import Keeps, Paths, blast, everything, lineage
from skep.model import STATUSES, Event, Link, Memory
from skep.replication.exchange import BATCH, Transfer, seen, take, without_position
from skep.replication.signatures import who_acts
from skep.replication.version_vectors import Versions

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.hive.hive import Hive
    from skep.hive.member_calls import Calls
    from skep.replication.signatures import Fault, Keyring, Signers


class Counts(Protocol):
    """What of a member is counted."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def bank(self) -> Bank:
        """Its bank."""
        ...

    @property
    def shard(self) -> Shard:
        """What it answers for."""
        ...


def status_of(member: Counts, query: StatusQuery) -> StatusAnswer:
    """The figures of one member; with `missing`, only of what it answers for in the place of others."""
    engine = member.bank.engine
    mine = [
        memory
        for _row, memory in engine.find(Filter(statuses=STATUSES), limit=1 << 40)
        if memory.status != "quarantined" and member.shard.mine(memory.id, query.missing)
    ]  # what waits for review is nobody's yet, and counted apart
    by_status, by_kind = dict(Counter(m.status for m in mine)), dict(Counter(m.kind for m in mine))
    ids = {memory.id for memory in mine}
    links = sum(source in ids for source in engine.link_sources())
    trials = sum(m.successes + m.failures for m in engine.procedures() if m.id in ids and not m.merged_into)
    if query.missing:
        return StatusAnswer(
            member=member.name, by_status=by_status, by_kind=by_kind, links=links, trials=trials
        )
    own = member.bank.status()
    return StatusAnswer(
        member=member.name,
        by_status=by_status,
        by_kind=by_kind,
        links=links,
        trials=trials,
        held=own.held,
        reembedding=own.reembedding,
        size_bytes=own.size_bytes,
        index_bytes=own.index_bytes,
        embed_error=own.embed_error,
        quarantined={m.id: m.kind for m in everything(member.bank, "quarantined")},
        seen=seen(member.bank),
    )


def outcomes_of(name: str, bank: Bank, query: OutcomesQuery) -> OutcomesAnswer:
    """The outcomes that one bank knows of, and what it knows to be undone."""
    log = bank.engine.log
    events = log.outcomes() if query.memory is None else log.of(query.memory)
    return OutcomesAnswer(
        member=name,
        events=tuple(event for event in events if event.kind == "outcome"),
        undos=tuple(log.undos()),
    )


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair did."""

    events: int = 0
    """How many were new where they arrived."""
    asked: int = 0
    missing: tuple[str, ...] = ()
    """Members that could not be asked or did not confirm; repair again when they are back."""
    refused: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Events that a member did not believe, and why."""

    @property
    def completeness(self) -> float:
        """The share of the members that took part."""
        return 1.0 - len(self.missing) / self.asked if self.asked else 1.0


class Holds(Protocol):
    """What of a member is needed to say what others lack."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def bank(self) -> Bank:
        """Its bank."""
        ...

    def keeps(self, memory_id: str, member: str | None = None) -> bool:
        """Whether a member should hold a copy."""
        ...


def lacking_of(member: Holds, request: RepairRequest) -> RepairEvents:
    """The events of one member that others should have; handles one batch of its log."""
    mine = seen(member.bank)
    lacking = {name: mine.minus(theirs) for name, theirs in request.seen.items() if name != member.name}
    whole = Versions()
    for missing in lacking.values():
        whole = whole.merged(missing)
    whole = whole.minus(request.passed)
    batch = list(islice(member.bank.events_in(whole.ranges), max(1, request.limit)))
    events: list[Event] = []
    wanted: dict[str, list[int]] = {}
    for event in batch:
        dot = (event.actor, event.counter)
        targets = [
            name
            for name, missing in lacking.items()
            if dot in missing and _concerned(member, name, request.seen[name], event)
        ]
        for name in targets:
            wanted.setdefault(name, []).append(len(events))
        if targets:
            events.append(without_position(event))
    return RepairEvents(
        member=member.name,
        events=tuple(events),
        wanted={name: tuple(places) for name, places in wanted.items()},
        passed=request.passed.merged(Versions.of((e.actor, e.counter) for e in batch)),
        left=whole.count() - len(batch),
    )


def _concerned(member: Holds, target: str, theirs: Versions, event: Event) -> bool:
    return belongs(event, lambda name: member.keeps(name, target) or dot_of(name) in theirs)


def repair(
    calls: Calls,
    path: Callable[[str, str], tuple[str, ...]],
    *,
    among: Iterable[str] | None = None,
    batch: int = BATCH,
) -> Repaired:
    """Ask every member what the others lack, and hand it on.

    Args:
        calls: The way to the members.
        path: The way a copy takes from one member to another.
        among: The members to ask; all of them by default.
        batch: How many events a member looks through at a time.
    """
    with tracer.span("hive.repair") as span:
        standing = calls.ask(SeenRequest(), Seen, to=among)
        known: dict[str, Versions] = {name: said.seen for name, said in standing.answers.items()}
        missing = set(standing.missing)
        moved, refused = 0, dict[str, str]()
        for source in known:
            passed = Versions()
            while source not in missing:
                request = RepairRequest(seen=known, passed=passed, limit=batch)
                found = calls.ask(request, RepairEvents, to=(source,)).answers.get(source)
                if found is None:
                    missing.add(source)
                    break
                told = _hand_on(calls, found, path)
                missing |= {name for name in found.wanted if name not in told}
                for name, stored in told.items():
                    moved += stored.applied
                    refused |= stored.refused
                    dots = ((found.events[i].actor, found.events[i].counter) for i in found.wanted[name])
                    known[name] = known[name].merged(Versions.of(dots))
                passed = found.passed
                if not found.left:
                    break
        span.note(events=moved, missing=len(missing))
    asked = len(standing.asked)
    return Repaired(events=moved, asked=asked, missing=tuple(sorted(missing)), refused=refused)


def _hand_on(
    calls: Calls, found: RepairEvents, path: Callable[[str, str], tuple[str, ...]]
) -> Mapping[str, ShardStored]:
    frames = {
        name: ShardStore(events=tuple(found.events[place] for place in places))
        for name, places in found.wanted.items()
    }
    paths = {name: path(found.member, name) for name in frames}
    return calls.ask_each(frames, ShardStored, paths=paths).answers


def effective_confidence(memory: Memory, now: float, policy: HivePolicy) -> float:
    """Confidence of a memory at a moment: as stored, or faded by the hour where the policy names a rate.

    >>> day_old = Memory(id="a-1", kind="fact", text="x", confidence=0.8, last_evidence_at=0.0)
    >>> [round(effective_confidence(day_old, 86_400.0, HivePolicy(decay_per_hour=r)), 3) for r in (0, 0.01)]
    [0.8, 0.629]
    """
    return effective(memory.confidence, memory.last_evidence_at, now, per_day=24 * policy.decay_per_hour)


def expired_of(member: Keeps, query: ExpiredQuery) -> ExpiredAnswer:
    """What one member holds that has expired and was not marked yet; marked, if that is asked for."""

    bank = member.bank
    engine = bank.engine
    due = {memory.id: None for memory in engine.due(query.now)}
    if not query.mark:
        return ExpiredAnswer(member=member.name, ids=tuple(due))
    before = engine.log.last_seq()
    marked = [memory_id for memory_id in query.mark if memory_id in due]
    for memory_id in marked:
        bank.mark(memory_id, "expired", "its time was over")
    events = tuple(without_position(event) for event in engine.log.after(before))
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


class Subjects:
    """The subjects of one hive."""

    def __init__(self, hive: str) -> None:
        self.root = f"hive.{safe_part(hive)}"
        self.ask = f"{self.root}.ask"
        self.events = f"{self.root}.events"

    def to(self, member: str) -> str:
        """Where one member is addressed."""
        return f"{self.root}.to.{safe_part(member)}"


class Member:
    """One bank in a hive."""

    def __init__(
        self,
        name: str,
        bank: Bank,
        bus: Bus,
        subjects: Subjects,
        *,
        first_for: Callable[[str, tuple[str, ...]], bool] | None = None,
        keeps: Callable[[str, str], bool] | None = None,
        keyring: Keyring | None = None,
        signers: Signers | None = None,
        way_from: Callable[[str], tuple[str, ...]] | None = None,
        met: Callable[[str, str], None] | None = None,
    ) -> None:
        """Put a member together.

        Args:
            name: Its name.
            bank: What it holds.
            bus: How it is asked.
            subjects: Where.
            first_for: Whether it answers for a memory while some members are missing.
            keeps: Whether a member should hold a copy of a memory.
            keyring: Whose events are believed.
            signers: The keys of the agents that write here.
            way_from: Which way copies usually come from a writer.
            met: Told the names of other members and of their banks.
        """
        self.name = name
        self.bank = bank
        self.bus = bus.as_member(name)
        self.subjects = subjects
        self.keyring = keyring
        bank.engine.author = who_acts
        if signers is not None:
            bank.engine.sign = signers.sign  # type: ignore[assignment]
        self.paths = Paths(bank, name, way_from or (lambda actor: (actor, name)))
        self._keeps = keeps
        self._met = met
        self.shard = Shard(bank.engine, member=name, answers_for=first_for, lineage=self._sources)
        self._subscriptions: list[Subscription] = []

    def start(self) -> None:
        """Begin to answer."""
        self._subscriptions = [
            self.bus.subscribe(self.subjects.ask, self._handle),
            self.bus.subscribe(self.subjects.to(self.name), self._handle),
        ]

    def stop(self) -> None:
        """Answer no more; the bank stays open."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions = []

    def _handle(self, envelope: Envelope) -> Frame | None:
        frame = envelope.frame
        match frame:
            case ShardQuery():
                return ShardResponse(member=self.name, slice=self.shard.answer(frame.ask))
            case ShardFetch():
                return self._fetched(frame)
            case ShardStore():
                return self._stored(self.take(frame.events, path=envelope.path))
            case SyncRequest():
                return _events_lacking(self.bank, frame)
            case SeenRequest():
                return Seen(member=self.name, seen=seen(self.bank))
            case RepairRequest():
                return lacking_of(self, frame)
            case BlastQuery():
                return blast(self, frame)
            case ExpiredQuery():
                return expired_of(self, frame)
            case OutcomesQuery():
                return outcomes_of(self.name, self.bank, frame)
            case StatusQuery():
                return status_of(self, frame)
            case ShardFind():
                return self._page(frame)
            case MemberHello():
                if self._met is not None and frame.member != self.name:
                    self._met(frame.member, frame.actor)
                return MemberHello(member=self.name, actor=self.bank.actor)
            case ShardUsed():
                self.bank.engine.note_uses([i for i in frame.ids if self.has(i)])
            case FactPromoted() | FactRetracted() | FactsChanged():
                return self._stored(self._follow(frame, envelope.path))
            case _:
                pass
        return None

    def _fetched(self, frame: ShardFetch) -> ShardFetched:
        memories = tuple(m for m in map(self.get, frame.ids) if m is not None)
        links = self.links(m.id for m in memories) if frame.links else ()
        events = self.events_of([m.id for m in memories]) if frame.events else []
        engine = self.bank.engine
        events += [without_position(event) for event in map(engine.log.get, frame.named) if event is not None]
        there = {memory.id for memory in memories}
        return ShardFetched(
            member=self.name,
            found=Fetched(memories=memories, links=tuple(links)),
            events=tuple(events),
            paths={memory.id: self.paths.of(memory.id) for memory in memories} if frame.events else {},
            forgotten=tuple(i for i in frame.ids if i not in there and engine.is_forgotten(i)),
        )

    def _page(self, frame: ShardFind) -> ShardPage:
        engine = self.bank.engine
        found = engine.find(frame.where, limit=frame.limit, before_row=frame.before, terms=frame.terms)
        return ShardPage(member=self.name, found=tuple(found))

    def _stored(self, transfer: Transfer) -> ShardStored:
        faults: dict[str, Fault] = {refused.event: refused.fault for refused in transfer.refused}
        return ShardStored(member=self.name, applied=transfer.events, refused=faults, held=transfer.held)

    def _follow(self, frame: FactPromoted | FactRetracted | FactsChanged, path: tuple[str, ...]) -> Transfer:
        """Take what concerns memories that are here, or should be."""
        wanted = [event for event in frame.events if self.concerned(event)]
        return self.take(wanted, path=path) if wanted else Transfer()

    def concerned(self, event: Event) -> bool:
        """Whether an event belongs here."""
        return belongs(event, lambda name: self.keeps(name) or self.has(name))

    def _sources(self, memory_id: str) -> tuple[str, ...]:
        """Who wrote what a memory was derived from; copies bring their sources along, so this is local."""
        memory = self.get(memory_id)
        found = () if memory is None else lineage(memory, self.get)
        return tuple(dict.fromkeys(source.agent for source in found if source.agent is not None))

    # Local access

    def keeps(self, memory_id: str, member: str | None = None) -> bool:
        """Whether this member (or another) should hold a copy of a memory."""
        return self._keeps is not None and self._keeps(member or self.name, memory_id)

    def has(self, memory_id: str) -> bool:
        """Whether a memory is here, in whatever status."""
        return self.get(memory_id) is not None

    def get(self, memory_id: str) -> Memory | None:
        """A memory that is here; None if it is not."""
        return self.bank.engine.get(memory_id)

    def current(self) -> Iterator[Memory]:
        """The memories that a recall may return, a page at a time."""
        cursor: str | None = None
        while True:
            page = self.bank.find(limit=1000, cursor=cursor)
            yield from page
            if page.cursor is None:
                return
            cursor = page.cursor

    def links(self, ids: Iterable[str]) -> list[Link]:
        """The links that touch some memories."""
        engine = self.bank.engine
        return list(dict.fromkeys(link for memory_id in ids for link in engine.links(memory_id)))

    def events_of(self, ids: Sequence[str]) -> list[Event]:
        """Every event that shaped some memories, each once, as they travel."""
        found: dict[str, Event] = {}
        for memory_id in ids:
            for event in self.bank.engine.log.of(memory_id):
                found[event.id] = without_position(event)
        return list(found.values())

    def take(self, events: Iterable[Event], *, path: tuple[str, ...] = (), inside: bool = True) -> Transfer:
        """Keep copies of events that came from elsewhere, and remember which way they came.

        Args:
            events: As they arrived.
            path: The members and hives they passed through, this one last.
            inside: Whether they came from a member of this hive.
        """
        listed = list(events)
        made = [event.id for event in listed if event.kind == "remember"]
        surprise = self.paths.surprising(made, path) if path and made else None
        transfer = take(self.bank, listed, self.keyring, inside=inside)
        if surprise is not None and transfer.events:
            self.paths.note(surprise)
        return transfer


def _events_lacking(bank: Bank, request: SyncRequest) -> SyncEvents:
    """The events a request asks for, as many as it wants at a time."""
    mine = seen(bank)
    missing = mine.minus(request.seen)
    batch = islice(bank.events_in(missing.ranges), max(1, request.limit))
    events = tuple(without_position(event) for event in batch)
    return SyncEvents(events=events, seen=mine, left=missing.count() - len(events))
