"""A member of a hive: one bank, the shelf over it, and what it answers on the bus.

Every handler is local: a member answers from its own bank and never asks on behalf of another, so one
question costs one message per member and cannot multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from skep.hive.about import belongs
from skep.hive.blast import blast
from skep.hive.bus.base import Bus, Subscription, safe_part
from skep.hive.counting import outcomes_of, status_of
from skep.hive.expiry import expired_of
from skep.hive.frames import (
    BlastQuery,
    Envelope,
    ExpiredQuery,
    FactPromoted,
    FactRetracted,
    FactsChanged,
    Frame,
    MemberHello,
    OutcomesQuery,
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
    StatusQuery,
    SyncRequest,
    without_position,
)
from skep.hive.mending import lacking_of
from skep.hive.paths import Paths
from skep.hive.pool import Fetched
from skep.hive.replica import Transfer, answer, seen, take
from skep.hive.shelf import Shelf
from skep.hive.signing import who_acts
from skep.hive.trust import lineage
from skep.model import Event, Link, Memory

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.hive.signing import Fault, Keyring, Signers


class Subjects:
    """The subjects of one hive."""

    def __init__(self, hive: str) -> None:
        self.root = f"hive.{safe_part(hive)}"
        self.ask = f"{self.root}.ask"
        self.facts = f"{self.root}.facts"
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
        owner_of: Callable[[str], str | None] | None = None,
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
            owner_of: Who answers for a memory.
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
        self.shelf = Shelf(
            bank.engine.store,
            member=name,
            first_for=first_for,
            owner_of=owner_of,
            lineage=self._sources,
        )
        self._subscriptions: list[Subscription] = []

    def start(self) -> None:
        """Begin to answer."""
        self._subscriptions = [
            self.bus.subscribe(self.subjects.ask, self._handle),
            self.bus.subscribe(self.subjects.to(self.name), self._handle),
            self.bus.subscribe(self.subjects.facts, self._handle),
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
                return ShardResponse(member=self.name, slice=self.shelf.answer(frame.ask))
            case ShardFetch():
                return self._fetched(frame)
            case ShardStore():
                return self._stored(self.take(frame.events, path=envelope.path))
            case SyncRequest():
                return answer(self.bank, frame)
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
        log, store = self.bank.engine.store.log, self.bank.engine.store
        events += [without_position(event) for event in map(log.get, frame.named) if event is not None]
        there = {memory.id for memory in memories}
        return ShardFetched(
            member=self.name,
            found=Fetched(memories=memories, links=tuple(links)),
            events=tuple(events),
            paths={memory.id: self.paths.of(memory.id) for memory in memories} if frame.events else {},
            forgotten=tuple(i for i in frame.ids if i not in there and store.is_forgotten(i)),
        )

    def _page(self, frame: ShardFind) -> ShardPage:
        store = self.bank.engine.store
        found = store.find(frame.where, limit=frame.limit, before_row=frame.before, terms=frame.terms)
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
        return self.bank.engine.store.get(memory_id)

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
        store = self.bank.engine.store
        return list(dict.fromkeys(link for memory_id in ids for link in store.links(memory_id)))

    def events_of(self, ids: Sequence[str]) -> list[Event]:
        """Every event that shaped some memories, each once, as they travel."""
        found: dict[str, Event] = {}
        for memory_id in ids:
            for event in self.bank.engine.store.log.of(memory_id):
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
