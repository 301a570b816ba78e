"""Placement of copies in a hive, and reviews of doubtful memories by people.

`Placement` moves events between members: promotion, changes that follow every copy, repair after failures, expiry,
and the hive as one replica for others to sync with. `Review` takes what strangers tell, and shows what the gateway
held back.
Called by `hive` and `agent_bank`. Both write only through members (`Member.take`, `Bank`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from skep.confidence import lineage
from skep.errors import NotFoundError
from skep.events import UNPLACED, WITHDRAWN, Propose, checked, content, stays, subjects_of
from skep.filters import Filter
from skep.hive.gateway import Quarantined
from skep.hive.hive_sources import GONE
from skep.hive.layouts import Sharded
from skep.hive.member_calls import Listed, of_members
from skep.hive.member_set import SEATS
from skep.hive.members import Member
from skep.hive.messages import (
    ExpiredAnswer,
    ExpiredQuery,
    FactPromoted,
    FactRetracted,
    FactsChanged,
    Frame,
    RepairEvents,
    RepairRequest,
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
from skep.hive.traces import tracer
from skep.model import CURRENT, Event, Memory
from skep.replication.exchange import BATCH, Transfer, seen, without_position
from skep.replication.signatures import Fault, Refused, is_register
from skep.replication.version_vectors import Ranges, Versions
from skep.storage.fold import fold

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.hive.gateway import HivePolicy
    from skep.hive.hive import Hive
    from skep.hive.member_calls import Calls
    from skep.hive.member_set import MemberSet
    from skep.storage.store import Plan


T = TypeVar("T")


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a repair."""

    events: int = 0
    """The number of events that were new where they arrived."""
    asked: int = 0
    missing: tuple[str, ...] = ()
    """Members that could not be asked or did not confirm; repair again when they are back."""
    refused: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Events that a member did not believe, and why."""

    @property
    def completeness(self) -> float:
        """The share of the members that took part."""
        return 1.0 - len(self.missing) / self.asked if self.asked else 1.0


class Placement:
    """Moves events between the members of a hive."""

    def __init__(self, name: str, members: MemberSet, policy: HivePolicy) -> None:
        self.name = name
        self.members = members
        self.policy = policy
        self.foreign = Versions()
        """Registers of other hives that were offered and not taken."""
        self.declined: Callable[[], Versions] = Versions
        """Events that review did not take, and that count as seen."""
        self.announce = False
        """True if promotions and retractions are also published for other hives to follow."""
        self.auto_gossip: Callable[[Sequence[Memory]], int] | None = None
        """Called with every memory that was promoted."""

    def promote(self, home: Member, memories: Sequence[Memory], *, broadcast: set[str]) -> int:
        """Copy new memories to the members that keep them; how many copies were confirmed."""
        wanted: dict[str, list[str]] = {}
        for memory in memories:
            sources = lineage(memory.evidence, home.get, of=memory.id)
            for member in self.members.layout.copies(home.name, memory.id, broadcast=memory.id in broadcast):
                wanted.setdefault(member, []).extend((memory.id, *sources))
        confirmed = self._send(home, wanted)
        lacking = {name: [i for i in ids if name not in confirmed] for name, ids in wanted.items()}
        if isinstance(self.members.layout, Sharded):
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
            home.bus.publish(
                self.members.hive.subjects.events, frame, id=f"promoted:{memory.id}", path=(self.name,)
            )

    def _send(self, home: Member, wanted: Mapping[str, Sequence[str]]) -> set[str]:
        """Send histories to members; those that confirmed in time."""
        frames = {name: ShardStore(events=tuple(home.events_of(ids))) for name, ids in wanted.items()}
        paths = {name: self.members.layout.path(home.name, name) for name in frames}
        told = self.members.calls.ask_each(frames, ShardStored, paths=paths)
        return {name for name, stored in told.answers.items() if not stored.refused}

    def _remember_unplaced(self, home: Member, lacking: Mapping[str, Sequence[str]]) -> None:
        """Until its owners have it, whoever wrote a memory answers for it; also after a restart."""
        layout = self.members.layout
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
            home.bus.publish(self.members.hive.subjects.events, frame, path=(self.name,))
        if len(self.members.layout.members) == 1:
            return 0
        told = self.members.calls.ask(frame, ShardStored, path=(home.name,))
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

    def note_uses(self, per_home: Mapping[str, Sequence[str]]) -> None:
        """Tell members which of their memories were handed out."""
        for name, ids in per_home.items():
            member = name.removesuffix("*")
            if member in self.members.layout.members:
                self.members.hive.bus.publish(
                    self.members.hive.subjects.to(member), ShardUsed(ids=tuple(ids))
                )

    def retire(self, member: Member) -> None:
        """Remember a bank that leaves, so that what it wrote is still known for its own."""
        key, entry = self.members.epitaph(member)
        self.changed_at(self.members.registers, lambda bank: bank.set_setting(key, entry))

    # Repair and expiry

    def repair(self, *, among: Sequence[str] | None = None) -> Repaired:
        """Bring every copy that should exist up to date; what was moved, and who could not be reached.

        Members compare what they have seen as ranges of counters, so nothing is sent that is already there.

        Args:
            among: The members to ask; all of them by default.
        """
        done = repair(self.members.calls, self.members.layout.path, among=among)
        if isinstance(self.members.layout, Sharded) and not done.missing:
            for member in self.members.values():
                if self._waiting_at(self.members.layout, member):
                    member.bank.set_setting(f"{UNPLACED}{member.name}", None)
            self.members.layout.unplaced.clear()
        for member in self.members.values():
            member.shard.reassign()
        return done

    def behind(self, member: Member) -> int:
        """The number of events about its memories other members of this process have and it has not."""
        known = seen(member.bank)
        lacking = Versions()
        for other in self.members.values():
            if other is not member:
                missing = seen(other.bank).minus(known).minus(lacking)
                concerned = [e for e in other.bank.events_in(missing.ranges) if member.concerned(e)]
                lacking = lacking.merged(Versions.of((e.actor, e.counter) for e in concerned))
        return lacking.count()

    def collect(self, moment: float) -> Listed[str]:
        """Mark what has expired as expired, in every copy; the ids, and who could not be asked.

        Each memory is marked by one member that holds it, and the others follow. A second time finds nothing.
        """
        found = self.members.calls.ask(ExpiredQuery(now=moment), ExpiredAnswer)
        wanted: dict[str, list[str]] = {}
        gone: dict[str, None] = {}
        for name in sorted(
            found.answers, key=lambda name: name not in self.members
        ):  # those of this process first
            fresh = [memory_id for memory_id in found.answers[name].ids if memory_id not in gone]
            gone |= dict.fromkeys(fresh)
            if fresh:
                wanted[name] = fresh
        frames: dict[str, Frame] = {n: ExpiredQuery(now=moment, mark=tuple(ids)) for n, ids in wanted.items()}
        told = self.members.calls.ask_each(frames, ExpiredAnswer)
        missing = {*found.missing, *told.missing}
        self.spread(
            self.members.registers, [e for part in told.answers.values() for e in part.events], silent=missing
        )
        marked = dict.fromkeys(memory_id for part in told.answers.values() for memory_id in part.ids)
        return Listed(marked, asked=len(found.asked), missing=missing)

    # The hive as one replica

    def seen_by_members(self) -> Versions:
        """The events that any member has seen, here or elsewhere; a silent member counts as having seen none."""
        whole = self.foreign.merged(self.declined())
        for member in self.members.values():
            whole = whole.merged(seen(member.bank))
        if self.members.elsewhere():
            for said in self.members.calls.ask(
                SeenRequest(), Seen, to=self.members.elsewhere()
            ).answers.values():
                whole = whole.merged(said.seen)
        return whole

    def events_in(self, ranges: Mapping[str, Ranges]) -> Iterator[Event]:
        """Events by ranges of counters, from whichever member has them; those of this process are asked first."""
        left = Versions(dict(ranges))
        for member in self.members.values():
            here = left.common(seen(member.bank))
            if here:
                yield from member.bank.events_in(here.ranges)
                left = left.minus(here)
        if left and self.members.elsewhere():
            known = self.members.calls.ask(SeenRequest(), Seen, to=self.members.elsewhere()).answers
            for name, said in known.items():
                there = left.common(said.seen)
                yield from self._events_at(name, there, said.seen)
                left = left.minus(there)

    def _events_at(self, name: str, wanted: Versions, theirs: Versions) -> Iterator[Event]:
        """Some events of a member elsewhere, a batch at a time."""
        while wanted:
            request = SyncRequest(seen=theirs.minus(wanted))
            part = self.members.calls.ask(request, SyncEvents, to=(name,)).answers.get(name)
            fresh = [e for e in part.events if (e.actor, e.counter) in wanted] if part is not None else []
            if not fresh:
                return
            yield from fresh
            wanted = wanted.minus(Versions.of((event.actor, event.counter) for event in fresh))

    def apply_via(
        self,
        events: Iterable[Event],
        via: tuple[str, ...],
        *,
        inside: bool = False,
        doubtful: Mapping[str, str] | None = None,
    ) -> Transfer:
        """Take events that came by way of others; each member gets what it should keep.

        Args:
            events: As they arrived.
            via: The hives and relays they passed through.
            inside: Whether they are the hive's own, laid out anew.
            doubtful: New memories that wait for review, and why; nobody sees them before they are set aside.
        """
        listed = [event for event in events if inside or not self._foreign(event)]
        known = self.seen_by_members()
        fresh = {event.id for event in listed if (event.actor, event.counter) not in known}
        total = Transfer()
        entry, marks = self.members.registers, list[Event]()
        for member in self.members.values():
            wanted = [e for e in listed if (member is entry and self._enters(e)) or member.concerned(e)]
            if wanted:
                with member.bank.engine.transaction() if doubtful else nullcontext():
                    total = total.plus(member.take(wanted, path=(*via, member.name), inside=inside))
                    marks += _set_aside(member, doubtful or {}, marks)
        if self.members.elsewhere():
            total = total.plus(self._screened(listed, inside=inside))
        untrue = {refused.event for refused in total.refused}
        taken = [e for e in (*listed, *marks) if e.id not in untrue]
        if taken and self.members.elsewhere():
            frame = FactsChanged(events=tuple(without_position(event) for event in taken))
            self.members.calls.ask(frame, ShardStored, to=self.members.elsewhere(), path=via)
        lost = {*total.held, *(refused.event for refused in total.refused)}
        return Transfer(
            events=len(fresh - lost),
            known=len(listed) - len(fresh),
            held=tuple(dict.fromkeys(total.held)),
            refused=tuple(dict.fromkeys(total.refused)),
        )

    def _screened(self, events: Iterable[Event], *, inside: bool) -> Transfer:
        """Events that must not be passed on to members elsewhere, which believe this hive."""
        if self.members.keyring is None:
            return Transfer()
        engine = self.members.registers.bank.engine
        _, refused = self.members.keyring.screen(events, forgotten=engine.is_forgotten, inside=inside)
        return Transfer(refused=tuple(refused))

    def _foreign(self, event: Event) -> bool:
        """True if an event writes the registers of another hive; it counts as seen and is not taken."""
        seats = event.kind == "setting" and str(event.body.get("key", "")).startswith(SEATS)
        if not (is_register(event) or seats) or event.actor in self.members.homes:
            return False
        self.foreign = self.foreign.with_dot(event.actor, event.counter)
        return True

    def _enters(self, event: Event) -> bool:
        """True if an event that nobody is bound to keep is kept at the entrance."""
        return not isinstance(self.members.layout, Sharded) or not subjects_of(event)


def _set_aside(member: Member, doubtful: Mapping[str, str], marked: Sequence[Event]) -> list[Event]:
    """Mark what waits for review as quarantined at one member: as another did, if it has; the marks that are new."""
    here = [name for name in doubtful if member.has(name)]
    member.take([mark for mark in marked if mark.body["memory"] in here])
    left = set(here).difference(mark.body["memory"] for mark in marked)
    body = {name: {"memory": name, "status": "quarantined", "reason": doubtful[name]} for name in here}
    plans: list[Plan] = [("mark", body[name]) for name in here if name in left]
    return [without_position(e) for e in member.bank.engine.write(plans)[0]] if plans else []


class Admitted(Transfer, frozen=True, kw_only=True):
    """Events that came from outside, and what became of them."""

    quarantined: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Memories that wait for review, and why."""


class Review:
    """The gate for what others bring, and what waits there for somebody to look at it."""

    def __init__(self, hive: Hive) -> None:
        self.hive = hive
        self.placement = hive.placement
        self.members = hive.members
        self.policy = hive.policy
        self.trust = hive.trust
        self._declined: dict[str, Versions] = {}
        """Per agent that is not trusted: events of others that were not taken."""
        self._unwanted = Versions()
        """Events that were refused for other reasons; told again after a restart."""
        self.placement.declined = self._not_taken

    def admit(self, events: Iterable[Event], *, via: tuple[str, ...] = ()) -> Admitted:
        """Take what comes from outside by the rules for this hive's own agents.

        Nothing of agents that are not trusted; new memories past the gateway; changes only by right. What is declined
        counts as seen, so that nobody sends it again until the agent is trusted.
        """
        listed, via = list(events), via or ("sync",)
        seen_before = self.placement.seen_by_members()
        faults: dict[str, Fault] = {}
        doubtful: dict[str, str] = {}
        drafts = {event.id: draft for event in listed if (draft := _draft(event)) is not None}

        def get(name: str) -> Memory | None:
            return drafts.get(name) or self.hive.get(name)

        searched = any(member.bank.engine.log.has_kind("confirm") for member in self.members.values())
        for event in listed:
            if (event.actor, event.counter) in seen_before or event.id in faults:
                continue
            about: Fault | None = next((faults[name] for name in subjects_of(event) if name in faults), None)
            fault: Fault | None = about or self._fault(
                checked(event), drafts.get(event.id), get, doubtful, via, searched=searched
            )
            if fault is not None:
                faults[event.id] = fault
                self._decline(event, fault, get)
        kept = [e for e in listed if e.id not in faults]
        taken = self.placement.apply_via(kept, via, doubtful=doubtful)
        refused = tuple(Refused(event=name, fault=fault) for name, fault in faults.items())
        return Admitted(
            events=taken.events,
            known=taken.known,
            held=taken.held,
            refused=(*taken.refused, *refused),
            quarantined=doubtful,
        )

    def _fault(
        self,
        event: Event,
        draft: Memory | None,
        get: Callable[[str], Memory | None],
        doubtful: dict[str, str],
        via: tuple[str, ...],
        *,
        searched: bool,
    ) -> Fault | None:
        """Why an event is not taken; None if it is. A memory that is taken for review is put among the `doubtful`."""
        ring = self.members.keyring
        if draft is None:
            forged = ring is not None and ring.fault(event) is not None  # members say so when they take it
            return None if forged or self._by_right(event, get, via) else "not its to change"
        if self._distrusted(draft, get) is not None:
            return "not trusted"
        where = Filter(kinds=(draft.kind,), statuses=CURRENT, now=self.hive.now())
        opposed = self.hive.conflicts(draft, where) if searched else ()
        decision = self.hive.gateway.judge(draft, opposed, limited=False)
        if decision.verdict == "quarantined":
            doubtful[event.id] = "; ".join(decision.reasons)
        return "not wanted" if decision.verdict == "rejected" else None

    def _by_right(self, event: Event, get: Callable[[str], Memory | None], via: tuple[str, ...]) -> bool:
        homes, proven = self.members.homes, self.members.keyring is not None and event.signature is not None

        def came(name: str) -> bool:
            member = next((m for m in self.members.values() if m.has(name)), None)
            ours = name.rpartition("-")[0] in homes
            return not ours and (member is None or member.paths.of(name)[0] == via[0])

        return self.hive.rights.outside(event, get, ours=homes.__contains__, proven=proven, came=came)

    def _decline(self, event: Event, fault: Fault, get: Callable[[str], Memory | None]) -> None:
        author = None
        if fault == "not trusted":
            memories = (get(name) for name in subjects_of(event))
            author = next((a for m in memories if m is not None and (a := self._distrusted(m, get))), None)
        if author is None:
            self._unwanted = self._unwanted.with_dot(event.actor, event.counter)
        else:
            known = self._declined.get(author, Versions())
            self._declined[author] = known.with_dot(event.actor, event.counter)

    def _distrusted(self, memory: Memory, get: Callable[[str], Memory | None]) -> str | None:
        """The agent for whose sake a memory is not taken: its author, or that of what it was derived from."""
        sources = lineage(memory.evidence, get, of=memory.id).values()
        authors = (memory.agent, *(source.agent for source in sources))
        least = self.policy.min_trust
        return next((a for a in authors if a is not None and self.trust.of(a) < least), None)

    def _not_taken(self) -> Versions:
        whole = self._unwanted
        for author, versions in self._declined.items():
            if self.trust.of(author) < self.policy.min_trust:
                whole = whole.merged(versions)
        return whole

    def waiting(self) -> Listed[Quarantined]:
        """Memories that wait for review, oldest first, and (as `missing`) members that could not be asked."""
        listed = of_members(self.members.calls, ("quarantined",))
        holders: dict[str, tuple[str, Memory]] = {}
        for name, memory in listed:
            holders.setdefault(memory.id, (name, memory))
        wanted: dict[str, list[str]] = {}
        for name, memory in holders.values():
            wanted.setdefault(name, []).append(memory.id)
        frames: dict[str, Frame] = {n: ShardFetch(ids=tuple(ids), events=True) for n, ids in wanted.items()}
        reasons: dict[str, str] = {}
        for part in self.members.calls.ask_each(frames, ShardFetched).answers.values():
            for event in part.events:
                if event.kind == "mark":
                    reasons[str(event.body.get("memory"))] = str(event.body.get("reason", ""))
        found = [
            Quarantined(memory=memory, reasons=reasons.get(memory.id, ""), member=name)
            for name, memory in holders.values()
        ]
        found += self._proposed()
        found.sort(key=lambda one: (one.memory.created_at, one.memory.id))
        return Listed(found, asked=listed.asked, missing=listed.missing)

    def _proposed(self) -> list[Quarantined]:
        """Changes that agents ask for, as far as members of this process know of them."""
        found: dict[str, Quarantined] = {}
        for member in self.members.values():
            for event in member.bank.engine.log.of_kind("propose"):
                said = content(event)
                memory = self.hive.get(said.memory) if isinstance(said, Propose) else None
                if isinstance(said, Propose) and memory is not None:
                    given = "".join(f" {key}={value!r}" for key, value in said.given.items())
                    why = f"{said.by} asks to {said.act} it{given}"
                    found[event.id] = Quarantined(
                        memory=memory, reasons=why, member=member.name, proposal=event.id
                    )
        return list(found.values())

    def approve(self, name: str) -> Memory:
        """Let a quarantined memory into the hive, or make a change that somebody proposed."""
        event = self.members.event(name)
        if event is not None and event.kind == "propose":
            said = cast("Propose", content(event))
            verb, given = said.act, dict(said.given)
            others = [value for key, value in given.items() if key in ("new", "winner")]
            holder = self._holder(said.memory)
            self.members.adopt(holder, others)
            changed = self.placement.changed_at(
                holder, lambda bank: getattr(bank, verb)(said.memory, **given)
            )
            self._settled(event, "approved")
            return changed if isinstance(changed, Memory) else self.hive.get(said.memory) or GONE
        holder = self._reviewed(name)
        memory = self.placement.changed_at(holder, lambda bank: bank.mark(name, "active", "approved"))
        sure = memory.confidence >= self.policy.broadcast_at
        self.placement.promote(holder, [memory], broadcast={memory.id} if sure else set())
        return memory

    def dismiss(self, name: str, reason: str = "dismissed in review") -> Memory:
        """Refuse a quarantined memory or a proposal for good; it stays in history."""
        event = self.members.event(name)
        if event is not None and event.kind == "propose":
            self._settled(event, reason)
            return self.hive.get(str(event.body["memory"])) or GONE
        holder = self._reviewed(name)
        return self.placement.changed_at(holder, lambda bank: bank.retract(name, reason))

    def _settled(self, proposal: Event, reason: str) -> None:
        holder = self.members.holder_of_event(proposal.id)
        if holder is not None:
            self.placement.changed_at(holder, lambda bank: bank.undo(proposal.id, reason))

    def _holder(self, memory_id: str) -> Member:
        holder = self.members.holder(memory_id)
        if holder is None:
            raise NotFoundError(f"the hive has no memory {memory_id!r}")
        return holder

    def _reviewed(self, memory_id: str) -> Member:
        for member in self.members.values():
            memory = member.get(memory_id)
            if memory is not None and memory.status == "quarantined":
                return member
        holder = self.members.holder(memory_id)
        memory = None if holder is None else holder.get(memory_id)
        if holder is not None and memory is not None and memory.status == "quarantined":
            return holder
        raise NotFoundError(f"{memory_id!r} does not wait for review; `review` lists what does")


def _draft(event: Event) -> Memory | None:
    """The memory that an event makes; None for another kind."""
    state = fold(event.id, [checked(event)]) if event.kind == "remember" else None
    return None if state is None or state.forgotten else state.memory


def repair(
    calls: Calls,
    path: Callable[[str, str], tuple[str, ...]],
    *,
    among: Iterable[str] | None = None,
) -> Repaired:
    """Ask every member what the others lack, and hand it on.

    Args:
        calls: The way to the members.
        path: The way a copy takes from one member to another.
        among: The members to ask; all of them by default.
    """
    with tracer.span("hive.repair") as span:
        standing = calls.ask(SeenRequest(), Seen, to=among)
        known: dict[str, Versions] = {name: said.seen for name, said in standing.answers.items()}
        missing = set(standing.missing)
        moved, refused = 0, dict[str, str]()
        for source in known:
            passed = Versions()
            while source not in missing:
                request = RepairRequest(seen=known, passed=passed, limit=BATCH)
                found = calls.ask(request, RepairEvents, to=(source,)).answers.get(source)
                if found is None:
                    missing.add(source)
                    break
                told = _hand_on(calls, source, found, path)
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
    calls: Calls, source: str, found: RepairEvents, path: Callable[[str, str], tuple[str, ...]]
) -> Mapping[str, ShardStored]:
    frames = {
        name: ShardStore(events=tuple(found.events[place] for place in places))
        for name, places in found.wanted.items()
    }
    paths = {name: path(source, name) for name in frames}
    return calls.ask_each(frames, ShardStored, paths=paths).answers
