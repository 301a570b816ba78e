"""Where copies go: promotion, changes that follow every copy, adoption, repair and rebalancing.

Looking at what the gateway held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from skep.errors import NotFoundError
from skep.events import UNPLACED, WITHDRAWN, stays, subjects_of
from skep.hive.gateway import Quarantined
from skep.hive.layouts import Sharded
from skep.hive.member_calls import Listed, of_members
from skep.hive.members import Member, Repaired, Subjects, repair
from skep.hive.messages import (
    FactPromoted,
    FactRetracted,
    FactsChanged,
    Frame,
    Seen,
    SeenRequest,
    ShardFetch,
    ShardFetched,
    ShardStore,
    ShardStored,
    ShardUsed,
    SyncEvents,
    SyncRequest,
)
from skep.hive.trust import lineage
from skep.model import Event, Link, Memory
from skep.replication.exchange import Transfer, seen, without_position
from skep.replication.signatures import Refused, author_of, is_register
from skep.replication.version_vectors import Ranges, Versions

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.hive.bus.bus import Bus
    from skep.hive.gateway import Gateway, HivePolicy
    from skep.hive.layouts import Layout
    from skep.hive.member_calls import Calls
    from skep.hive.trust import Trust
    from skep.replication.signatures import Keyring


T = TypeVar("T")


class Placing:
    """The half of a hive that moves events between its members."""

    name: str
    layout: Layout
    members: dict[str, Member]
    bus: Bus
    subjects: Subjects
    policy: HivePolicy
    calls: Calls
    homes: dict[str, str]
    """The member of every bank that writes or has written in this hive."""
    keyring: Keyring | None
    foreign: Versions
    """Registers of other hives that were offered and not taken."""
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
        frames = {name: ShardStore(events=tuple(home.events_of(ids))) for name, ids in wanted.items()}
        paths = {name: self.layout.path(home.name, name) for name in frames}
        told = self.calls.ask_each(frames, ShardStored, paths=paths)
        return {name for name, stored in told.answers.items() if not stored.refused}

    def _remember_unplaced(self, home: Member, lacking: Mapping[str, Sequence[str]]) -> None:
        """Until its owners have it, whoever wrote a memory answers for it; also after a restart."""
        layout = self.layout
        waiting = sorted({memory_id for ids in lacking.values() for memory_id in ids})
        if isinstance(layout, Sharded) and waiting:
            for memory_id in waiting:
                layout.unplaced[memory_id] = home.name
            home.bank.set_setting(f"{UNPLACED}{home.name}", self._waiting_at(layout, home))
            home.shard.reassign()

    @staticmethod
    def _waiting_at(layout: Sharded, home: Member) -> list[str]:
        return sorted(memory_id for memory_id, name in layout.unplaced.items() if name == home.name)

    def spread(self, home: Member, events: Sequence[Event], *, silent: set[str] | None = None) -> int:
        """Send changes to every other member; those that hold a copy take them.

        Args:
            home: Where they were made.
            events: The changes.
            silent: Members that did not confirm are added here.

        Returns:
            How many members confirmed.
        """
        bare = tuple(without_position(event) for event in events if not stays(event))
        if not bare:
            return 0
        frame = self._frame(bare)
        if self.announce:
            home.bus.publish(self.subjects.events, frame, path=(self.name,))
        if len(self.layout.members) == 1:
            return 0
        told = self.calls.ask(frame, ShardStored, path=(home.name,))
        if silent is not None:
            silent.update(told.missing)
        return len(told.answers)

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

    def changed_at(self, holder: Member, act: Callable[[Bank], T], *, silent: set[str] | None = None) -> T:
        """Change something in one member's bank, and send it to the others."""
        log = holder.bank.engine.log
        before = log.last_seq()
        done = act(holder.bank)
        self.spread(holder, list(log.after(before)), silent=silent)
        return done

    # Who has what

    @property
    def registers(self) -> Member:
        """The member that writes the hive's own registers; another of this process where that is elsewhere."""
        return self.members.get(self.layout.registers) or next(iter(self.members.values()))

    def elsewhere(self) -> tuple[str, ...]:
        """The members that are not in this process."""
        return tuple(name for name in self.layout.members if name not in self.members)

    def get(self, memory_id: str) -> Memory | None:
        """A memory by id, from whoever has it; None if nobody does."""
        return self.get_many([memory_id]).get(memory_id)

    def get_many(self, memory_ids: Iterable[str]) -> dict[str, Memory]:
        """Memories by id, from whoever has them; those that nobody has are left out."""
        found: dict[str, Memory] = {}
        for memory_id in memory_ids:
            here = next((m for m in (one.get(memory_id) for one in self.members.values()) if m), None)
            if here is not None:
                found[memory_id] = here
        lost = [memory_id for memory_id in memory_ids if memory_id not in found]
        if lost and self.elsewhere():
            for part in self.calls.fetch(lost, to=self.elsewhere()).answers.values():
                found.update({memory.id: memory for memory in part.found.memories})
        return found

    def holder(self, memory_id: str) -> Member | None:
        """A member of this process that has a memory, the one that answers for it first; it is fetched if it is
        only elsewhere. None if nobody has it.
        """
        here = [member for member in self.members.values() if member.has(memory_id)]
        if not here and self.elsewhere():
            self.adopt(self.registers, [memory_id])
            here = [self.registers] if self.registers.has(memory_id) else []
        first = (m for m in here if self.layout.first_for(m.name, memory_id, ()))
        return next(first, here[0] if here else None)

    def holder_of_event(self, event_id: str) -> Member | None:
        """A member of this process that has an event, fetched if it is only elsewhere; None if nobody has it."""
        for member in self.members.values():
            if member.bank.engine.log.get(event_id) is not None:
                return member
        if self.elsewhere():
            for part in self.calls.fetch((), named=[event_id], to=self.elsewhere()).answers.values():
                if part.events:
                    self.adopt(self.registers, subjects_of(part.events[0]))
                    self.registers.take(part.events)
                    return self.registers
        return None

    def adopt(self, home: Member, memory_ids: Iterable[str]) -> None:
        """Make sure a member has memories that may be elsewhere, so that it can change them."""
        lost: list[str] = []
        for memory_id in memory_ids:
            if home.has(memory_id):
                continue
            holder = next((m for m in self.members.values() if m is not home and m.has(memory_id)), None)
            if holder is not None:
                home.take(holder.events_of([memory_id]), path=self.layout.path(holder.name, home.name))
            else:
                lost.append(memory_id)
        if lost and self.elsewhere():
            for name, part in self.calls.fetch(lost, events=True, to=self.elsewhere()).answers.items():
                if part.events:
                    home.take(part.events, path=self.layout.path(name, home.name))

    def events_of(self, memory_ids: Sequence[str]) -> list[Event]:
        """Every event that shaped some memories, from whoever has them."""
        found: dict[str, Event] = {}
        lost: list[str] = []
        for memory_id in memory_ids:
            holder = next((m for m in self.members.values() if m.has(memory_id)), None)
            if holder is None:
                lost.append(memory_id)
            else:
                found.update({event.id: event for event in holder.events_of([memory_id])})
        if lost and self.elsewhere():
            for part in self.calls.fetch(lost, events=True, to=self.elsewhere()).answers.values():
                found.update({event.id: event for event in part.events})
        return list(found.values())

    def links_of(self, memory_id: str) -> list[Link]:
        """Every link that starts or ends at a memory, wherever it is kept."""
        found: dict[Link, None] = {}
        for member in self.members.values():
            found |= dict.fromkeys(member.links([memory_id]))
        if self.elsewhere():
            for part in self.calls.fetch([memory_id], links=True, to=self.elsewhere()).answers.values():
                found |= dict.fromkeys(part.found.links)
        return list(found)

    def note_uses(self, per_home: Mapping[str, Sequence[str]]) -> None:
        """Tell members which of their memories were handed out."""
        for name, ids in per_home.items():
            member = name.removesuffix("*")
            if member in self.layout.members:
                self.bus.publish(self.subjects.to(member), ShardUsed(ids=tuple(ids)))

    # Repair

    def repair(self, *, among: Sequence[str] | None = None) -> Repaired:
        """Bring every copy that should exist up to date; what was moved, and who could not be reached.

        Members compare what they have seen as ranges of counters, so nothing is sent that is already there.

        Args:
            among: The members to ask; all of them by default.
        """
        done = repair(self.calls, self.layout.path, among=among)
        if isinstance(self.layout, Sharded) and not done.missing:
            for member in self.members.values():
                if self._waiting_at(self.layout, member):
                    member.bank.set_setting(f"{UNPLACED}{member.name}", None)
            self.layout.unplaced.clear()
        for member in self.members.values():
            member.shard.reassign()
        return done

    def behind(self, member: Member) -> int:
        """How many events about its memories other members of this process have and it has not."""
        known = seen(member.bank)
        lacking = Versions()
        for other in self.members.values():
            if other is not member:
                missing = seen(other.bank).minus(known).minus(lacking)
                concerned = [e for e in other.bank.events_in(missing.ranges) if member.concerned(e)]
                lacking = lacking.merged(Versions.of((e.actor, e.counter) for e in concerned))
        return lacking.count()

    def rebalance(self) -> Repaired:
        """After members came or went: give every owner its memories."""
        return self.repair()

    # A hive as a replica

    def versions(self) -> dict[str, int]:
        """Per actor, up to where nothing is missing in the hive as a whole."""
        return self.seen_by_members().vector()

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, events beyond a gap."""
        whole = self.seen_by_members()
        beyond = whole.minus(Versions.contiguous(whole.vector()))
        found: dict[str, list[int]] = {}
        for actor, counter in beyond.dots():
            found.setdefault(actor, []).append(counter)
        return found

    def seen_by_members(self) -> Versions:
        """Which events any member has seen, in this process or elsewhere; who is silent has seen nothing."""
        whole = self._seen()
        if self.elsewhere():
            for said in self.calls.ask(SeenRequest(), Seen, to=self.elsewhere()).answers.values():
                whole = whole.merged(said.seen)
        return whole

    def _seen(self) -> Versions:
        whole = self.foreign
        for member in self.members.values():
            whole = whole.merged(seen(member.bank))
        return whole

    @property
    def actor(self) -> str:
        """The name the hive's registers are written under."""
        return self.registers.bank.actor

    def events_in(self, ranges: Mapping[str, Ranges]) -> Iterator[Event]:
        """Events by ranges of counters, from whichever member has them; those of this process are asked first."""
        left = Versions(dict(ranges))
        for member in self.members.values():
            here = left.common(seen(member.bank))
            if here:
                yield from member.bank.events_in(here.ranges)
                left = left.minus(here)
        if left and self.elsewhere():
            known = self.calls.ask(SeenRequest(), Seen, to=self.elsewhere()).answers
            for name, said in known.items():
                there = left.common(said.seen)
                yield from self._events_at(name, there, said.seen)
                left = left.minus(there)

    def _events_at(self, name: str, wanted: Versions, theirs: Versions) -> Iterator[Event]:
        """Some events of a member elsewhere, a batch at a time."""
        while wanted:
            request = SyncRequest(seen=theirs.minus(wanted))
            part = self.calls.ask(request, SyncEvents, to=(name,)).answers.get(name)
            fresh = [e for e in part.events if (e.actor, e.counter) in wanted] if part is not None else []
            if not fresh:
                return
            yield from fresh
            wanted = wanted.minus(Versions.of((event.actor, event.counter) for event in fresh))

    def apply(self, events: Iterable[Event], *, partial: bool = True) -> Transfer:  # noqa: ARG002
        """Take events of another hive or bank: each member gets what it should keep."""
        return self.apply_via(events, ("sync",))

    def apply_via(self, events: Iterable[Event], via: tuple[str, ...], *, inside: bool = False) -> Transfer:
        """Take events that came by way of others; each member gets what it should keep.

        Args:
            events: As they arrived.
            via: The hives and relays they passed through.
            inside: Whether they are the hive's own, laid out anew.
        """
        listed = [event for event in events if inside or not self._foreign(event)]
        known = self.seen_by_members()
        fresh = {event.id for event in listed if (event.actor, event.counter) not in known}
        total = Transfer()
        entry = self.registers
        for member in self.members.values():
            wanted = [e for e in listed if (member is entry and self._enters(e)) or member.concerned(e)]
            if wanted:
                path = (*via, member.name)
                total = total.plus(member.take(wanted, path=path, inside=inside))
        if self.elsewhere():
            total = total.plus(self._screened(listed, inside=inside))
        untrue = {refused.event for refused in total.refused}
        taken = [e for e in listed if e.id not in untrue]
        if taken and self.elsewhere():
            frame = FactsChanged(events=tuple(without_position(event) for event in taken))
            self.calls.ask(frame, ShardStored, to=self.elsewhere(), path=via)
        lost = {*total.held, *(refused.event for refused in total.refused)}
        return Transfer(
            events=len(fresh - lost),
            known=len(listed) - len(fresh),
            held=tuple(dict.fromkeys(total.held)),
            refused=tuple(dict.fromkeys(total.refused)),
        )

    def _screened(self, events: Iterable[Event], *, inside: bool) -> Transfer:
        """What must not be passed on to members elsewhere, who take it for the word of this hive."""
        if self.keyring is None:
            return Transfer()
        engine = self.registers.bank.engine
        _, refused = self.keyring.screen(events, forgotten=engine.is_forgotten, inside=inside)
        return Transfer(refused=tuple(refused))

    def _foreign(self, event: Event) -> bool:
        """Whether an event writes the registers of another hive; it counts as seen and is not taken."""
        if not is_register(event) or event.actor in self.homes:
            return False
        self.foreign = self.foreign.with_dot(event.actor, event.counter)
        return True

    def _enters(self, event: Event) -> bool:
        """Whether an event that nobody is bound to keep is kept at the entrance."""
        return not isinstance(self.layout, Sharded) or not subjects_of(event)


class Reviewing(Placing):
    """The part of a hive that looks at what others bring, and that people use to review."""

    gateway: Gateway
    trust: Trust
    declined: dict[str, Versions]
    """Per agent that is not trusted: events of others that were not taken."""

    def admit(self, events: Iterable[Event], *, via: tuple[str, ...] = ()) -> Transfer:
        """Take what others tell, except what was written or derived from agents this hive does not trust.

        What is declined counts as seen, so that nobody sends it again until the agent is trusted.
        """
        listed = list(events)
        unwanted: dict[str, str] = {}
        for event in listed:
            about = [unwanted[name] for name in subjects_of(event) if name in unwanted]
            author = about[0] if about else self._distrusted(event)
            if author is not None:
                unwanted[event.id] = author
                known = self.declined.get(author, Versions())
                self.declined[author] = known.with_dot(event.actor, event.counter)
        taken = self.apply_via([e for e in listed if e.id not in unwanted], via or ("sync",))
        refused = tuple(Refused(event=name, fault="not trusted") for name in unwanted)
        return msgspec.structs.replace(taken, refused=(*taken.refused, *refused))

    def _distrusted(self, event: Event) -> str | None:
        """The agent for whose sake a memory is not taken."""
        if event.kind != "remember":
            return None
        evidence: Any = event.body.get("evidence") or ()
        sources = self.get_many([name for name in evidence if isinstance(name, str)]) if evidence else {}
        authors = [author_of(event), *(source.agent for source in sources.values())]
        least = self.policy.min_trust
        return next((a for a in authors if a is not None and self.trust.of(a) < least), None)

    def _seen(self) -> Versions:
        whole = super()._seen()
        for author, versions in self.declined.items():
            if self.trust.of(author) < self.policy.min_trust:
                whole = whole.merged(versions)
        return whole

    def quarantine(self, memory_id: str, reason: str) -> Memory | None:
        """Set a memory aside until somebody has looked, in every copy of this hive; others are not told."""
        holder = self.holder(memory_id)
        if holder is None:
            return None
        announced, self.announce = self.announce, False
        try:
            return self.changed_at(holder, lambda bank: bank.mark(memory_id, "quarantined", reason))
        finally:
            self.announce = announced

    def review(self) -> Listed[Quarantined]:
        """What waits for somebody to look at it, oldest first, and (as `missing`) who could not be asked."""
        listed = of_members(self, ("quarantined",))
        holders: dict[str, tuple[str, Memory]] = {}
        for name, memory in listed:
            holders.setdefault(memory.id, (name, memory))
        wanted: dict[str, list[str]] = {}
        for name, memory in holders.values():
            wanted.setdefault(name, []).append(memory.id)
        frames: dict[str, Frame] = {n: ShardFetch(ids=tuple(ids), events=True) for n, ids in wanted.items()}
        reasons: dict[str, str] = {}
        for part in self.calls.ask_each(frames, ShardFetched).answers.values():
            for event in part.events:
                if event.kind == "mark":
                    reasons[str(event.body.get("memory"))] = str(event.body.get("reason", ""))
        found = [
            Quarantined(memory=memory, reasons=reasons.get(memory.id, ""), member=name)
            for name, memory in holders.values()
        ]
        found.sort(key=lambda one: (one.memory.created_at, one.memory.id))
        return Listed(found, asked=listed.asked, missing=listed.missing)

    def approve(self, memory_id: str) -> Memory:
        """Let a quarantined memory into the hive."""
        holder = self._reviewed(memory_id)
        memory = self.changed_at(holder, lambda bank: bank.mark(memory_id, "active", "approved"))
        sure = memory.confidence >= self.policy.broadcast_at
        self.promote(holder, [memory], broadcast={memory.id} if sure else set())
        return memory

    def dismiss(self, memory_id: str, reason: str = "dismissed in review") -> Memory:
        """Refuse a quarantined memory for good; it stays in history."""
        holder = self._reviewed(memory_id)
        return self.changed_at(holder, lambda bank: bank.retract(memory_id, reason))

    def _reviewed(self, memory_id: str) -> Member:
        for member in self.members.values():
            memory = member.get(memory_id)
            if memory is not None and memory.status == "quarantined":
                return member
        holder = self.holder(memory_id)
        memory = None if holder is None else holder.get(memory_id)
        if holder is not None and memory is not None and memory.status == "quarantined":
            return holder
        raise NotFoundError(f"{memory_id!r} does not wait for review; `review` lists what does")
