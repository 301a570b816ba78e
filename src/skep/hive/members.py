"""A member of a hive: one bank, the shard it answers for, and what it answers on the bus.

Every handler is local: a member answers from its own bank and never asks on behalf of another, so one question costs
one message per member and cannot multiply. Opened by `member_set`; the functions beside the class are its longer
answers (figures, outcomes, what others lack, what has expired).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from skep.bank.read import every
from skep.confidence import lineage
from skep.events import belongs, dot_of
from skep.filters import Filter
from skep.hive.bus.bus import safe_part
from skep.hive.bus.member_bus import BusSubscription
from skep.hive.messages import (
    BlastQuery,
    Envelope,
    ExpiredAnswer,
    ExpiredQuery,
    FactPromoted,
    FactRetracted,
    FactsChanged,
    Failed,
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
from skep.hive.trust import Paths, blast, everything
from skep.model import STATUSES, Event, Link, Memory
from skep.replication.exchange import Transfer, seen, take, without_position
from skep.replication.signatures import who_acts
from skep.replication.version_vectors import Versions

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.hive.member_set import MemberSet
    from skep.replication.signatures import Fault, Signers


def status_of(member: Member, query: StatusQuery) -> StatusAnswer:
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
        return StatusAnswer(by_status=by_status, by_kind=by_kind, links=links, trials=trials)
    own = member.bank.status()
    return StatusAnswer(
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


def outcomes_of(bank: Bank, query: OutcomesQuery) -> OutcomesAnswer:
    """The outcomes that one bank knows of, and what it knows to be undone."""
    log = bank.engine.log
    events = log.outcomes() if query.memory is None else log.of(query.memory)
    return OutcomesAnswer(
        events=tuple(event for event in events if event.kind == "outcome"),
        undos=tuple(log.undos()),
    )


def lacking_of(member: Member, request: RepairRequest) -> RepairEvents:
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
        events=tuple(events),
        wanted={name: tuple(places) for name, places in wanted.items()},
        passed=request.passed.merged(Versions.of((e.actor, e.counter) for e in batch)),
        left=whole.count() - len(batch),
    )


def _concerned(member: Member, target: str, theirs: Versions, event: Event) -> bool:
    return belongs(event, lambda name: member.keeps(name, target) or dot_of(name) in theirs)


def expired_of(member: Member, query: ExpiredQuery) -> ExpiredAnswer:
    """Memories of one member that have expired and were not marked yet; marked, if that is asked for."""

    bank = member.bank
    engine = bank.engine
    due = {memory.id: None for memory in engine.due(query.now)}
    if not query.mark:
        return ExpiredAnswer(ids=tuple(due))
    before = engine.log.last_seq()
    marked = [memory_id for memory_id in query.mark if memory_id in due]
    for memory_id in marked:
        bank.mark(memory_id, "expired", "its time was over")
    events = tuple(without_position(event) for event in engine.log.after(before))
    return ExpiredAnswer(ids=tuple(marked), events=events)


PLACED = ShardStore | FactPromoted | FactRetracted | FactsChanged | MemberHello
"""Messages that change what a member holds or who belongs to the hive; only members may send them."""


class Subjects:
    """The subjects of one hive."""

    def __init__(self, hive: str) -> None:
        self.root = f"hive.{safe_part(hive)}"
        self.ask = f"{self.root}.ask"
        self.events = f"{self.root}.events"

    def to(self, member: str) -> str:
        """The bus subject of one member."""
        return f"{self.root}.to.{safe_part(member)}"


class Member:
    """One bank in a hive."""

    def __init__(self, name: str, bank: Bank, members: MemberSet, signers: Signers | None = None) -> None:
        """Put a member together.

        Args:
            name: Its name.
            bank: What it holds.
            members: The members it belongs to, who know the layout and the keys.
            signers: The keys of the agents that write here.
        """
        self.name = name
        self.bank = bank
        self.members = members
        self.bus = members.hive.bus.as_member(name)
        self.subjects = members.hive.subjects
        bank.engine.author, bank.engine.guard = who_acts, members.hive.guard
        if signers is not None:
            bank.engine.sign = signers.sign  # type: ignore[assignment]
        self.paths = Paths(bank, name, lambda actor: members.way(actor, name))
        self.shard = Shard(bank.engine, member=name, answers_for=self._answers_for, lineage=self._sources)
        self._subscriptions: list[BusSubscription] = []

    def _answers_for(self, memory_id: str, missing: tuple[str, ...]) -> bool:
        return self.members.layout.first_for(self.name, memory_id, missing)

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
        if isinstance(frame, PLACED) and not self._inside(envelope.sender):
            fault = (
                f"{envelope.sender or 'somebody'} is no member of this hive; events enter by gossip or sync"
            )
            return Failed(error=fault)
        match frame:
            case ShardQuery():
                return ShardResponse(slice=self.shard.answer(frame.ask))
            case ShardFetch():
                return self._fetched(frame)
            case ShardStore():
                return self._stored(self.take(frame.events, path=envelope.path))
            case SyncRequest():
                return _events_lacking(self.bank, frame)
            case SeenRequest():
                return Seen(seen=seen(self.bank))
            case RepairRequest():
                return lacking_of(self, frame)
            case BlastQuery():
                return blast(self, frame)
            case ExpiredQuery():
                return expired_of(self, frame)
            case OutcomesQuery():
                return outcomes_of(self.bank, frame)
            case StatusQuery():
                return status_of(self, frame)
            case ShardFind():
                return self._page(frame)
            case MemberHello():
                if frame.member != self.name:
                    self.members.met(frame.member, frame.actor, frame.step)
                return MemberHello(member=self.name, actor=self.bank.actor)
            case ShardUsed():
                self.bank.engine.note_uses([i for i in frame.ids if self.has(i)])
            case FactPromoted() | FactRetracted() | FactsChanged():
                return self._stored(self._follow(frame, envelope.path))
            case _:
                pass
        return None

    def _inside(self, sender: str) -> bool:
        """True if a message came from a member of this hive, or from one of its processes."""
        hive = self.members.hive
        known = (hive.name, getattr(hive.bus, "member", hive.name), *self.members.layout.members)
        return sender in known or sender in self.members.homes.values()

    def _fetched(self, frame: ShardFetch) -> ShardFetched:
        memories = tuple(m for m in map(self.get, frame.ids) if m is not None)
        links = self.links(m.id for m in memories) if frame.links else ()
        events = self.events_of([m.id for m in memories]) if frame.events else []
        engine = self.bank.engine
        events += [without_position(event) for event in map(engine.log.get, frame.named) if event is not None]
        there = {memory.id for memory in memories}
        return ShardFetched(
            found=Fetched(memories=memories, links=tuple(links)),
            events=tuple(events),
            paths={memory.id: self.paths.of(memory.id) for memory in memories} if frame.events else {},
            forgotten=tuple(i for i in frame.ids if i not in there and engine.is_forgotten(i)),
        )

    def _page(self, frame: ShardFind) -> ShardPage:
        engine = self.bank.engine
        found = engine.find(frame.where, limit=frame.limit, before_row=frame.before, terms=frame.terms)
        return ShardPage(found=tuple(found))

    def _stored(self, transfer: Transfer) -> ShardStored:
        faults: dict[str, Fault] = {refused.event: refused.fault for refused in transfer.refused}
        return ShardStored(applied=transfer.events, refused=faults, held=transfer.held)

    def _follow(self, frame: FactPromoted | FactRetracted | FactsChanged, path: tuple[str, ...]) -> Transfer:
        """Take what concerns memories that are here, or should be."""
        wanted = [event for event in frame.events if self.concerned(event)]
        return self.take(wanted, path=path) if wanted else Transfer()

    def concerned(self, event: Event) -> bool:
        """True if an event belongs here."""
        return belongs(event, lambda name: self.keeps(name) or self.has(name))

    def _sources(self, memory_id: str) -> tuple[str, ...]:
        """Authors of the memories that one was derived from; copies bring their sources along, so this is local."""
        memory = self.get(memory_id)
        found = {} if memory is None else lineage(memory.evidence, self.get, of=memory_id)
        return tuple(dict.fromkeys(source.agent for source in found.values() if source.agent is not None))

    # Local access

    def keeps(self, memory_id: str, member: str | None = None) -> bool:
        """True if this member (or another) should hold a copy of a memory."""
        return self.members.layout.keeps(member or self.name, memory_id)

    def has(self, memory_id: str) -> bool:
        """True if a memory is here, in whatever status."""
        return self.get(memory_id) is not None

    def get(self, memory_id: str) -> Memory | None:
        """A memory that is here; None if it is not."""
        return self.bank.engine.get(memory_id)

    def current(self) -> Iterator[Memory]:
        """The memories that a recall may return."""
        return every(self.bank)

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
        transfer = take(self.bank, listed, self.members.keyring, inside=inside)
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
