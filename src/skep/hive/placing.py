"""Where copies go: promotion, changes that follow every copy, adoption, repair and rebalancing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from skep.hive.frames import (
    FactPromoted,
    FactRetracted,
    FactsChanged,
    Frame,
    ShardStore,
    ShardStored,
    ShardUsed,
    without_position,
)
from skep.hive.layout import Sharded
from skep.hive.member import Member, Subjects, subjects_of
from skep.hive.replica import Transfer, seen
from skep.hive.tracing import tracer
from skep.hive.trust import lineage
from skep.hive.versions import Ranges, Versions
from skep.model import Event, Memory

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.hive.bus.base import Bus
    from skep.hive.layout import Layout
    from skep.hive.policy import HivePolicy

T = TypeVar("T")
WITHDRAWN = ("retract", "forget")


class Placing:
    """The half of a hive that moves events between its members."""

    name: str
    layout: Layout
    members: dict[str, Member]
    bus: Bus
    subjects: Subjects
    policy: HivePolicy
    announce: bool = False
    """Whether promotions and retractions are also published for other hives to follow."""
    auto_gossip: Callable[[Sequence[Memory]], int] | None = None
    """Called with every memory that was promoted."""

    def promote(self, home: Member, memories: Sequence[Memory], *, broadcast: set[str]) -> int:
        """Copy new memories to the members that keep them; how many copies were confirmed."""
        wanted: dict[str, list[str]] = {}
        for memory in memories:
            sources = [source.id for source in lineage(memory, home.get)] if memory.evidence else []
            for member in self.layout.copies(home.name, memory.id, broadcast=memory.id in broadcast):
                wanted.setdefault(member, []).extend((memory.id, *sources))
        confirmed = self._send(home, wanted)
        lacking = {name: [i for i in ids if name not in confirmed] for name, ids in wanted.items()}
        if isinstance(self.layout, Sharded):
            self._remember_unplaced(home, lacking)
        if self.announce:
            self._announce(home, memories)
        if self.auto_gossip is not None and memories:
            self.auto_gossip(memories)
        return sum(len(ids) for name, ids in wanted.items() if name in confirmed)

    def _announce(self, home: Member, memories: Sequence[Memory]) -> None:
        """Say on the bus what was promoted, for whoever follows this hive."""
        for memory in memories:
            frame = FactPromoted(
                memory=memory.id,
                events=tuple(home.events_of([memory.id])),
                agent=memory.agent,
                confidence=memory.confidence,
            )
            home.bus.publish(self.subjects.events, frame, id=f"promoted:{memory.id}", path=(self.name,))

    def _send(self, home: Member, wanted: Mapping[str, Sequence[str]]) -> set[str]:
        """Send histories to members; those that confirmed in time."""
        if not wanted:
            return set()
        with tracer.span("hive.place", members=len(wanted)), home.bus.inbox() as inbox:
            asked = 0
            for name, ids in wanted.items():
                frame = ShardStore(events=tuple(home.events_of(ids)))
                asked += inbox.ask(self.subjects.to(name), frame, path=self.layout.path(home.name, name))
            replies = inbox.take(asked, wait=self.policy.deadline)
        return {e.sender for e in replies if isinstance(e.frame, ShardStored) and not e.frame.refused}

    def _remember_unplaced(self, home: Member, lacking: Mapping[str, Sequence[str]]) -> None:
        layout = self.layout
        if isinstance(layout, Sharded):
            for ids in lacking.values():
                for memory_id in ids:
                    layout.unplaced[memory_id] = home.name
            if any(lacking.values()):
                home.shelf.reassign()

    def spread(self, home: Member, events: Sequence[Event]) -> int:
        """Send changes to every other member; those that hold a copy take them. How many answered."""
        if not events:
            return 0
        bare = tuple(without_position(event) for event in events)
        frame = self._frame(bare)
        if self.announce:
            home.bus.publish(self.subjects.events, frame, path=(self.name,))
        if len(self.members) == 1:
            return 0
        with tracer.span("hive.spread", events=len(bare)), home.bus.inbox() as inbox:
            reached = inbox.ask(self.subjects.facts, frame, path=(home.name,))
            replies = inbox.take(reached, wait=self.policy.deadline)
        return sum(isinstance(e.frame, ShardStored) for e in replies)

    @staticmethod
    def _frame(events: tuple[Event, ...]) -> Frame:
        withdrawn = next((e for e in events if e.kind in WITHDRAWN), None)
        if withdrawn is None:
            return FactsChanged(events=events)
        return FactRetracted(
            memory=next(iter(subjects_of(withdrawn)), ""),
            events=events,
            reason=str(withdrawn.body.get("reason", "")),
            forgotten=withdrawn.kind == "forget",
        )

    def changed_at(self, holder: Member, act: Callable[[Bank], T]) -> T:
        """Change something in one member's bank, and send it to the others."""
        log = holder.bank.engine.store.log
        before = log.last_seq()
        done = act(holder.bank)
        self.spread(holder, list(log.after(before)))
        return done

    def adopt(self, home: Member, memory_ids: Iterable[str]) -> None:
        """Make sure a member has memories that may be elsewhere, so that it can change them."""
        for memory_id in memory_ids:
            if home.has(memory_id):
                continue
            holder = next((m for m in self.members.values() if m is not home and m.has(memory_id)), None)
            if holder is not None:
                home.take(holder.events_of([memory_id]), path=self.layout.path(holder.name, home.name))

    def events_of(self, memory_ids: Sequence[str]) -> list[Event]:
        """Every event that shaped some memories, from whoever has them."""
        found: dict[str, Event] = {}
        for memory_id in memory_ids:
            holder = next((m for m in self.members.values() if m.has(memory_id)), None)
            if holder is not None:
                found.update({event.id: event for event in holder.events_of([memory_id])})
        return list(found.values())

    def note_uses(self, per_home: Mapping[str, Sequence[str]]) -> None:
        """Tell members which of their memories were handed out."""
        for name, ids in per_home.items():
            member = name.removesuffix("*")
            if member in self.members:
                self.bus.publish(self.subjects.to(member), ShardUsed(ids=tuple(ids)))

    # Repair

    def repair(self) -> int:
        """Bring every copy that should exist up to date; the number of events moved.

        Members compare what they have seen as ranges of counters, so nothing is sent that is already there.
        """
        moved = 0
        known = {name: seen(member.bank) for name, member in self.members.items()}
        for source in self.members.values():
            for target in self.members.values():
                if source is not target:
                    moved += self._repair_one(source, target, known).events
                    known[target.name] = seen(target.bank)
        if isinstance(self.layout, Sharded):
            self.layout.unplaced.clear()
        for member in self.members.values():
            member.shelf.reassign()
        return moved

    def _repair_one(self, source: Member, target: Member, known: Mapping[str, Versions]) -> Transfer:
        missing = known[source.name].minus(known[target.name])
        if not missing:
            return Transfer()
        wanted = [event for event in source.bank.events_in(missing.ranges) if self._concerns(target, event)]
        return target.take(wanted, path=self.layout.path(source.name, target.name)) if wanted else Transfer()

    @staticmethod
    def _concerns(target: Member, event: Event) -> bool:
        if event.kind in ("forget", "setting"):
            return True
        if event.kind == "use":
            return False
        return any(target.keeps(name) or target.has(name) for name in subjects_of(event))

    def behind(self, member: Member) -> int:
        """How many events about its memories other members have and it has not."""
        known = seen(member.bank)
        lacking = Versions()
        for other in self.members.values():
            if other is not member:
                missing = seen(other.bank).minus(known).minus(lacking)
                concerned = [e for e in other.bank.events_in(missing.ranges) if self._concerns(member, e)]
                lacking = lacking.merged(Versions.of((e.actor, e.counter) for e in concerned))
        return lacking.count()

    def rebalance(self) -> int:
        """After members came or went: give every owner its memories; the number of events moved."""
        return self.repair()

    # A hive as a replica

    def versions(self) -> dict[str, int]:
        """Per actor, up to where nothing is missing in the hive as a whole."""
        return self._seen().vector()

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, events beyond a gap."""
        whole = self._seen()
        beyond = whole.minus(Versions.contiguous(whole.vector()))
        found: dict[str, list[int]] = {}
        for actor, counter in beyond.dots():
            found.setdefault(actor, []).append(counter)
        return found

    def _seen(self) -> Versions:
        whole = Versions()
        for member in self.members.values():
            whole = whole.merged(seen(member.bank))
        return whole

    @property
    def actor(self) -> str:
        """The name the hive's registers are written under."""
        return self.members[self.layout.registers].bank.actor

    def events_in(self, ranges: Mapping[str, Ranges]) -> Iterator[Event]:
        """Events by ranges of counters, from whichever member has them."""
        left = Versions(dict(ranges))
        for member in self.members.values():
            here = left.common(seen(member.bank))
            if here:
                yield from member.bank.events_in(here.ranges)
                left = left.minus(here)

    def apply(self, events: Iterable[Event], *, partial: bool = True) -> Transfer:  # noqa: ARG002
        """Take events of another hive or bank: each member gets what it should keep."""
        listed = list(events)
        known = self._seen()
        fresh = sum((event.actor, event.counter) not in known for event in listed)
        total = Transfer()
        entry = self.members[self.layout.registers]
        for member in self.members.values():
            wanted = [e for e in listed if (member is entry and self._enters(e)) or self._concerns(member, e)]
            if wanted:
                total = total.plus(member.take(wanted, path=("sync", member.name)))
        return Transfer(
            events=max(0, fresh - len(total.held) - len(total.refused)),
            held=total.held,
            refused=total.refused,
        )

    def _enters(self, event: Event) -> bool:
        """Whether an event that nobody is bound to keep is kept at the entrance."""
        return not isinstance(self.layout, Sharded) or not subjects_of(event)
