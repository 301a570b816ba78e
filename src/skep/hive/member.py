"""A member of a hive: one bank, the shelf over it, and what it answers on the bus.

Every handler is local: a member answers from its own bank and never asks on behalf of another, so one
question costs one message per member and cannot multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from skep.hive.bus.base import Bus, Subscription, safe_part
from skep.hive.frames import (
    Envelope,
    FactPromoted,
    FactRetracted,
    FactsChanged,
    Frame,
    ShardFetch,
    ShardFetched,
    ShardQuery,
    ShardResponse,
    ShardStore,
    ShardStored,
    ShardUsed,
    SyncRequest,
    without_position,
)
from skep.hive.pool import Fetched
from skep.hive.replica import Transfer, answer, take
from skep.hive.shelf import Shelf
from skep.hive.trust import lineage
from skep.model import Event, Link, Memory

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.hive.signing import Keyring, Signer

ABOUT = ("memory", "old", "new", "loser", "winner", "src", "dst")
"""Keys of an event's body that name a memory."""


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
        keeps: Callable[[str], bool] | None = None,
        keyring: Keyring | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.name = name
        self.bank = bank
        self.bus = bus.as_member(name)
        self.subjects = subjects
        self.keyring = keyring
        self.signer = signer
        if signer is not None:
            bank.engine.sign = signer.sign
        self.paths: dict[str, tuple[str, ...]] = {}
        """The members each copied memory passed through."""
        self._keeps = keeps
        self.shelf = Shelf(bank.engine.store, member=name, first_for=first_for, lineage=self._sources)
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
        events = self.events_of([m.id for m in memories]) if frame.events else ()
        return ShardFetched(
            member=self.name, found=Fetched(memories=memories, links=tuple(links)), events=tuple(events)
        )

    def _stored(self, transfer: Transfer) -> ShardStored:
        return ShardStored(
            member=self.name, applied=transfer.events, refused=tuple(r.event for r in transfer.refused)
        )

    def _follow(self, frame: FactPromoted | FactRetracted | FactsChanged, path: tuple[str, ...]) -> Transfer:
        """Take what concerns memories that are here, or should be; a `forget` concerns everybody."""
        wanted = [
            event
            for event in frame.events
            if event.kind in ("forget", "setting")
            or any(self.has(m) or self.keeps(m) for m in subjects_of(event))
        ]
        return self.take(wanted, path=path) if wanted else Transfer()

    def _sources(self, memory_id: str) -> tuple[str, ...]:
        """Who wrote what a memory was derived from; copies bring their sources along, so this is local."""
        memory = self.get(memory_id)
        found = () if memory is None else lineage(memory, self.get)
        return tuple(dict.fromkeys(source.agent for source in found if source.agent is not None))

    # Local access

    def keeps(self, memory_id: str) -> bool:
        """Whether this member should hold a copy of a memory."""
        return self._keeps is not None and self._keeps(memory_id)

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

    def take(self, events: Iterable[Event], *, path: tuple[str, ...] = ()) -> Transfer:
        """Keep copies of events that came from elsewhere, and remember which way they came."""
        listed = list(events)
        transfer = take(self.bank, listed, self.keyring)
        if path:
            for event in listed:
                if event.kind == "remember":
                    self.paths.setdefault(event.id, path)
        return transfer


def subjects_of(event: Event) -> tuple[str, ...]:
    """The memories an event speaks of."""
    if event.kind == "remember":
        return (event.id,)
    found = [event.body[key] for key in ABOUT if isinstance(event.body.get(key), str)]
    for key in ("memories", "used", "mentions"):
        found += [name for name in event.body.get(key, ()) if isinstance(name, str)]
    return tuple(found)
