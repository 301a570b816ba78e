"""Hive: many agents, one knowledge, no coordinator.

`Hive.single`, `Hive.flat`, `Hive.federated` and `Hive.sharded` lay it out; `hive.agent(name)` gives an agent its bank.
A hive is put together from `members` (banks and who has what), `placement` (where copies go), `reviews` (what strangers
bring and what the gateway held back), `gateway` and `trust`; this class opens them and hands each call to one of them.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from skep.bank.bank import Bank
from skep.clock import Now, system_now
from skep.embedding.embedder import default_embedder
from skep.errors import InvalidInputError, NotFoundError
from skep.hive.agent_bank import AgentBank
from skep.hive.bus.bus_urls import LOCAL, open_bus
from skep.hive.bus.member_bus import MemberBus
from skep.hive.gateway import Gateway, HivePolicy, PromotionPolicy, Quarantined
from skep.hive.hive_recall import HiveRecaller, LocalMember, PastMembers, Scatter
from skep.hive.hive_sources import HiveSources
from skep.hive.layouts import Federated, Layout, Sharded, Shared, known, share
from skep.hive.member_calls import Calls, Health, Listed
from skep.hive.member_set import AGENTS, SEATS, MemberSet
from skep.hive.members import Member, Subjects
from skep.hive.messages import PRIVATE
from skep.hive.placement import Admitted, Placement, Repaired, Review
from skep.hive.rights import Rights
from skep.hive.shard import Shard
from skep.hive.trust import Provenance, Trust, provenance
from skep.hive.whole_hive import Near, opposed
from skep.model import Conflict, Event, Hit, Memory, Ranked
from skep.replication.signatures import Keyring, acting
from skep.replication.version_vectors import Ranges, Versions
from skep.semantics.find_conflicts import CANDIDATE, find_for
from skep.validation import clean_time

if TYPE_CHECKING:
    from skep.embedding.embedder import Embedder
    from skep.filters import Filter
    from skep.hive.bus.bus import Bus
    from skep.hive.capabilities import Pass
    from skep.hive.gateway import Decides
    from skep.hive.gossip import GossipServer, Peer
    from skep.hive.hive_sources import Members
    from skep.hive.messages import Ask
    from skep.hive.trust import Rollback
    from skep.lifecycle.maintenance_run import MaintainReport
    from skep.replication.signatures import Signer
    from skep.storage.store import Plan
    from skep.validation import Time


NEAREST = 5
"""The number of memories of the hive a new one is compared with."""


class Expert(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that knows about a question."""

    agent: str
    score: float
    """The sum of the scores of its memories that answer it."""
    memories: tuple[str, ...]


def made_up(store: str | Path | None) -> str:
    """A name for a hive that was given none: that of its folder, so that it stays, or a new one."""
    if store is None:
        return f"hive-{secrets.token_hex(4)}"
    return f"hive-{hashlib.sha256(str(Path(store).resolve()).encode()).hexdigest()[:8]}"


class Hive:
    """Many banks that share. Open it with one of the four constructors; close it, or use it in a `with`."""

    def __init__(
        self,
        layout: Layout,
        *,
        name: str | None = None,
        store: str | Path | None = None,
        policy: HivePolicy | None = None,
        rules: Decides | None = None,
        bus: Bus | str | None = None,
        capability: Pass | None = None,
        embedder: Embedder | None = None,
        now: Now = system_now,
        keyring: Keyring | None = None,
        signers: Mapping[str, Signer] | None = None,
        local: Iterable[str] | None = None,
    ) -> None:
        """Open a hive.

        Args:
            layout: Who its members are; made by one of the four constructors.
            name: Its name, and that of its subjects on the bus; made up unless given.
            store: A folder for the banks; in memory without one.
            policy: Thresholds and limits.
            rules: Who is promoted; `PromotionPolicy` unless given.
            bus: How members talk: within this process unless given, or an address such as `nats://localhost:4222`.
            capability: What this process may do on a bus between processes; every process then needs one.
            embedder: What turns text into vectors.
            now: The clock.
            keyring: Whose signatures are checked.
            signers: Signing keys by agent (or by member, for what nobody in particular does).
            local: The members that run in this process; all of them unless given. The others are reached over
                the bus.
        """
        if name is None and local is not None:
            raise InvalidInputError(
                "a hive whose members run in several processes needs a name, by which they find each other",
                field="name",
            )
        name = self.name = name or made_up(store)
        self.policy = policy or HivePolicy()
        self.now = now
        self.embedder = embedder or default_embedder()
        self.bus: Bus = (
            open_bus(bus or LOCAL, name, capability) if bus is None or isinstance(bus, str) else bus
        )
        self._own_bus = self.bus is not bus
        self.subjects = Subjects(name)
        self.health = Health()
        self.calls = Calls(
            self.bus, self.subjects, lambda: self.layout.members, policy=self.policy, health=self.health
        )
        self.keyring = keyring
        self.signers = dict(signers or {})
        self._views: dict[str, AgentBank] = {}
        self._hearing: GossipServer | None = None
        self.members = MemberSet(self, layout, None if store is None else Path(store))
        here = layout.members if local is None else tuple(known(name, layout.members) for name in local)
        if not here:
            raise InvalidInputError("a hive needs at least one member in this process", field="local")
        for member in here:
            self.members.open(member)
        self.members.read_back()
        self.placement = Placement(name, self.members, self.policy)
        self.trust = Trust(_Registers(self))
        self.rights = Rights(self.trust, self.policy)
        self.gateway = Gateway(
            self.policy, rules or PromotionPolicy(self.policy), self.trust, now=now, get=self.get
        )
        self.reviews = Review(self)

    @property
    def layout(self) -> Layout:
        """The plan of the hive: its members, and which of them keep a memory."""
        return self.members.layout

    # Opening

    @classmethod
    def single(cls, agent: str = "agent", **options: Any) -> Self:
        """One agent with one bank: a hive like any other, with nobody else in it."""
        return cls(Shared("single", [agent]), **options)

    @classmethod
    def flat(cls, agents: Iterable[str], **options: Any) -> Self:
        """All agents share one bank."""
        return cls(Shared("flat", agents), **options)

    @classmethod
    def federated(
        cls,
        groups: Mapping[str, Sequence[str]],
        *,
        parents: Mapping[str, str] | None = None,
        domains: Mapping[str, Iterable[str]] | None = None,
        **options: Any,
    ) -> Self:
        """A tree of groups, each with a bank for its agents.

        Args:
            groups: Agents per group.
            parents: The group above each group; the root where nothing is said.
            domains: What each group is about, so that fitting groups may send more.
            options: Those of `Hive`.
        """
        return cls(Federated(groups, parents=parents, domains=domains), **options)

    @classmethod
    def sharded(cls, agents: Iterable[str], **options: Any) -> Self:
        """Every agent keeps a part; every memory is kept by several of them."""
        policy: HivePolicy = options.get("policy") or HivePolicy()
        return cls(Sharded(agents, replication=policy.replication), **options)

    def close(self) -> None:
        """Stop all members and close their banks."""
        if self._hearing is not None:
            self._hearing.close()
            self._hearing = None
        for view in self._views.values():
            view.close()
        for member in self.members.values():
            member.stop()
        if isinstance(self.bus, MemberBus):
            self.bus.settle(wait=1.0)
        if self._own_bus:
            self.bus.close()
        for member in self.members.values():
            member.bank.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def guard(self, plans: list[Plan], by: str) -> list[Plan]:
        """What an agent is about to write, if it has the right; see `rights`."""
        return self.rights.checked(plans, by, self.get, self.members.event)

    # Agents

    @property
    def plain(self) -> bool:
        """True if there is only one bank, so that nothing has to be asked around."""
        return len(self.layout.members) == 1

    def agent(self, name: str) -> AgentBank:
        """The bank of an agent."""
        if name not in self._views:
            self.members.read_agents()
            self._views[name] = AgentBank(self, name)
        return self._views[name]

    def member_of(self, agent: str) -> Member:
        """The member an agent writes to."""
        home = self.layout.home(agent)
        if home not in self.members:
            raise NotFoundError(
                f"{agent} writes to {home}, which runs elsewhere; here are {', '.join(self.members)}"
            )
        return self.members[home]

    def may_write(self, agent: str) -> None:
        """Raise if whatever an agent writes must be signed and its key is not here."""
        if self.keyring is not None and agent not in self.signers and self.keyring.protects(agent):
            raise InvalidInputError(
                f"{agent} has a signing key, so nobody writes in its name without it; open the hive with "
                "its signer (in a manifest: `seed`)",
                field="agent",
            )

    def join(self, agent: str, *, group: str | None = None) -> AgentBank:
        """Add an agent while the hive runs; in a sharded hive it takes over its part of the memories.

        Args:
            agent: Its name.
            group: Where it belongs, in a federated hive.
        """
        layout = self.layout
        if not isinstance(layout, Sharded):
            layout.admit(agent, group)
            self._note_agent(agent, {"group": group})
            self.members.opened_for(layout.home(agent))
            return self.agent(agent)
        if agent in layout.members:
            raise InvalidInputError(f"there is already an agent {agent!r}; every agent needs its own name")
        self.members.seat(agent, present=True)
        self.arrive(self.members.open(agent))
        return self.agent(agent)

    def arrive(self, member: Member) -> None:
        """Have a member of this process counted everywhere, and take over its part of the memories."""
        self._seated(member, "joins")
        self.repair()

    def _seated(self, member: Member, step: Literal["joins", "leaves"]) -> None:
        """Tell every member who joins or leaves, and keep it for those that are away."""
        key = f"{SEATS}{member.name}"
        if member.bank.setting(key) != step:
            self.placement.changed_at(member, lambda bank: bank.set_setting(key, step))
        if self.members.elsewhere():
            self.members.tell(member, step)

    def leave(self, agent: str) -> None:
        """Take an agent out while the hive runs. What it wrote stays; of a sharded hive others take over its part."""
        layout = self.layout
        if not isinstance(layout, Sharded):
            layout.dismiss(agent)
            self._note_agent(agent, None)
            self._let_go(agent)
            return
        gone = self.members[known(agent, layout.members)]
        if len(layout.members) == 1:
            raise InvalidInputError(f"{agent} is the last member; close the hive instead")
        self._seated(gone, "leaves")
        self.members.seat(agent, present=False)
        self.placement.retire(gone)
        self.placement.repair(among=(*self.layout.members, agent))  # what only it has goes to its new owners
        self._let_go(agent)
        self.members.drop(agent)

    def _let_go(self, agent: str) -> None:
        view = self._views.pop(agent, None)
        if view is not None:
            view.close()

    def _note_agent(self, agent: str, seat: dict[str, Any] | None) -> None:
        """Keep who joined and left in the hive's registers, for the next start and for other processes."""
        before: dict[str, Any] = self.members.registers.bank.setting(AGENTS) or {}
        self.trust.registers.set_setting(AGENTS, {**before, agent: seat})

    # Asking

    def scatter(self, private: Bank | None = None, names: Sequence[str] | None = None) -> Scatter:
        """A fresh way to the members (all of them unless named), and to the bank that only the asker sees."""
        return Scatter(
            self.calls,
            tuple(names or self.layout.members),
            policy=self.policy,
            lost=self.layout.lost,
            private=None if private is None else LocalMember(PRIVATE, private),
        )

    def sources(self, members: Members, ask: Ask, limit: int, *, past: bool = False) -> HiveSources:
        """The members as the sources of one recall."""
        return HiveSources(
            members,
            self.embedder,
            calibrate=self.members.registers.bank.engine.embeddings.calibrate_many,
            trust=self.trust.of,
            ask=ask,
            budget=self.policy.budget(limit),
            share=int if past else self._share,
        )

    def _share(self, wanted: int) -> int:
        """The number of candidates to ask each member for; shards hold an even part of everything."""
        if not isinstance(self.layout, Sharded):
            return wanted
        return share(wanted, len(self.layout.members), self.layout.ring.replication)

    def recall(self, query: str, *, group: str | None = None, limit: int = 5, **options: Any) -> Any:
        """Ask the hive as nobody in particular; with a group, only it and the groups below it."""
        return self._reader(group).recall(query, limit=limit, **options)

    def rank(self, query: str, *, group: str | None = None, limit: int = 5, **options: Any) -> Ranked:
        """The ids and scores that `recall` would give, in its order, without the memories."""
        return self._reader(group).rank(query, limit=limit, **options)

    def _reader(self, group: str | None) -> Bank:
        """A nameless reader of the hive, or of a group and those below it."""
        bank, names = Bank(self.members.registers.bank.engine), None if group is None else self._within(group)
        bank._recall = HiveRecaller(bank.engine, self, lambda: self.scatter(None, names))  # pyright: ignore[reportPrivateUsage]
        return bank

    def _within(self, group: str) -> tuple[str, ...]:
        if not isinstance(self.layout, Federated):
            raise InvalidInputError(f"a {self.layout.kind} hive has no groups", field="group")
        return self.layout.within(group)

    def route(self, question: str, *, limit: int = 5, depth: int = 30, **options: Any) -> list[Expert]:
        """Who knows about something: agents, the one whose memories answer best first.

        Args:
            question: What to know.
            limit: The number of agents.
            depth: The number of memories that are looked at.
            options: Those of `recall`.
        """
        found: dict[str, list[Hit]] = {}
        for hit in self.recall(question, limit=depth, **options):
            if self.trust.of(hit.memory.agent) > 0 and hit.memory.agent is not None:
                found.setdefault(hit.memory.agent, []).append(hit)
        experts = [
            Expert(agent=name, score=sum(h.score for h in hits), memories=tuple(h.memory.id for h in hits))
            for name, hits in found.items()
        ]
        return sorted(experts, key=lambda one: (-one.score * self.trust.of(one.agent), one.agent))[:limit]

    def get(self, memory_id: str) -> Memory | None:
        """A memory by id, from whoever has it; None if nobody does."""
        return self.members.memory(memory_id)

    def past(self, view: AgentBank, moment: Time) -> PastHive:
        """The hive as it was at a moment, for reading only."""
        return PastHive(self, view, moment)

    def conflicts(
        self,
        draft: Memory,
        where: Filter,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
    ) -> tuple[Conflict, ...]:
        """Memories of the hive that a new one contradicts or repeats: of its own scope and for everybody."""
        if self.plain:
            return tuple(
                find_for(self.members.registers.bank.engine, draft, contradiction_fn=contradiction_fn)
            )
        recaller = HiveRecaller(self.members.registers.bank.engine, self, self.scatter)
        where = msgspec.structs.replace(where, scope=draft.scope, include_shared=True)
        answer = recaller.run(draft.text, where, limit=NEAREST, preset="semantic", count_uses=False)
        near = [Near(hit.memory, 0.0, hit.signals.get("semantic", 0.0)) for hit in answer.hits]
        return tuple(opposed(draft, near, CANDIDATE, contradiction_fn))

    # Trust

    def provenance(self, memory_id: str) -> Provenance:
        """The origin of a memory, and its trust."""
        member = self.members.holder(memory_id) or self.members.registers
        return provenance(self, member, memory_id)

    def confirm(self, memory_id: str, *, by: str, evidence: Iterable[str] = ()) -> Memory | None:
        """Count a confirmation, if whoever makes it is independent, and so is the evidence for it; else None."""
        memory = self.get(memory_id)
        if memory is None or self.trust.independent(memory, by, self.get, evidence) is not None:
            return None
        holder = self.members.holder(memory_id)
        if holder is None:
            return None
        with acting(by):
            return self.placement.changed_at(holder, lambda bank: bank.confirm(memory_id, by))

    # Review, repair, expiry

    def review(self) -> Listed[Quarantined]:
        """Memories that wait for review, oldest first, and (as `missing`) members that could not be asked."""
        return self.reviews.waiting()

    def approve(self, memory_id: str) -> Memory:
        """Let a quarantined memory into the hive, or make a change that was proposed (by the id of its event)."""
        return self.reviews.approve(memory_id)

    def dismiss(self, memory_id: str, reason: str = "dismissed in review") -> Memory:
        """Refuse a quarantined memory or a proposal for good; it stays in history."""
        return self.reviews.dismiss(memory_id, reason)

    def maintain(self, **options: Any) -> dict[str, MaintainReport]:
        """Keep the bank of every member of this process clean; see `Bank.maintain`."""
        every = self.members.items()
        return {n: self.placement.changed_at(m, lambda bank: bank.maintain(**options)) for n, m in every}

    def repair(self) -> Repaired:
        """Bring every copy that should exist up to date; what was moved, and who could not be reached."""
        return self.placement.repair()

    def gc(self, *, now: float | None = None) -> Listed[str]:
        """Mark what has expired, in every copy; the ids, and (as `missing`) who could not be asked."""
        return self.placement.collect(self.now() if now is None else now)

    def refresh(self, memory_id: str, *, ttl: float | None = None) -> Memory:
        """Give a memory its full time again, in every copy."""
        seconds = ttl or self.policy.ttl
        if seconds is None:
            raise InvalidInputError(
                "the hive has no ttl; say how many seconds the memory should live", field="ttl"
            )
        holder = self.members.holder(memory_id) or self.members.registers
        memory = self.placement.changed_at(holder, lambda bank: bank.revise(memory_id, ttl=seconds))
        if memory.status != "expired":
            return memory
        return self.placement.changed_at(holder, lambda bank: bank.mark(memory_id, "active", "refreshed"))

    def rollback(self, source: str, *, since: float | None = None, dry_run: bool = False) -> Rollback:
        """Undo all that one source wrote and what was derived from it; `dry_run` shows the blast radius."""
        from skep.hive.trust import rollback

        return rollback(self, source, since=since, dry_run=dry_run)

    # Other hives, and this one as a replica among them

    def connect(
        self, peers: Mapping[str, Peer], *, others: Iterable[str] = (), rng: random.Random | None = None
    ) -> None:
        """Tell some of these hives or banks about every memory that is promoted here from now on.

        Args:
            peers: Those in this process, by name.
            others: The names of those that listen on this hive's bus.
            rng: Whom to tell.
        """
        from skep.hive.gossip import AutoGossip

        away = tuple(others)
        self.placement.auto_gossip = AutoGossip(self, peers, others=away, rng=rng) if peers or away else None

    def listen(self, bus: Bus | None = None) -> None:
        """Let others tell this hive something over a bus (its own by default), until it is closed."""
        from skep.hive.gossip import GossipServer, Listener

        if self._hearing is None:
            listener = Listener(self.name, self, trust=self.trust.of)
            self._hearing = GossipServer(listener, bus or self.bus)

    @property
    def actor(self) -> str:
        """The name the hive's registers are written under."""
        return self.members.registers.bank.actor

    def versions(self) -> dict[str, int]:
        """Per actor, up to where nothing is missing in the hive as a whole."""
        return self.seen_by_members().vector()

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, events beyond a gap."""
        whole, found = self.seen_by_members(), dict[str, list[int]]()
        for actor, counter in whole.minus(Versions.contiguous(whole.vector())).dots():
            found.setdefault(actor, []).append(counter)
        return found

    def seen_by_members(self) -> Versions:
        """The events that any member has seen, here or elsewhere; a silent member counts as having seen none."""
        return self.placement.seen_by_members()

    def events_in(self, ranges: Mapping[str, Ranges]) -> Iterator[Event]:
        """Events by ranges of counters, from whichever member has them."""
        return self.placement.events_in(ranges)

    def apply(self, events: Iterable[Event], *, partial: bool = True) -> Admitted:  # noqa: ARG002
        """Take events of another hive or bank past the gateway: each member gets what it should keep."""
        return self.reviews.admit(events, via=("sync",))

    def admit(self, events: Iterable[Event], *, via: tuple[str, ...] = ()) -> Admitted:
        """Take what others tell past the gateway; see `Review.admit`."""
        return self.reviews.admit(events, via=via)


class _Registers:
    """The registers of a hive: written by one member, copied to all."""

    def __init__(self, hive: Hive) -> None:
        self._hive = hive

    def setting(self, key: str) -> Any:
        """The value, or None."""
        return self._hive.members.registers.bank.setting(key)

    def settings(self, prefix: str = "") -> dict[str, Any]:
        """Every value under a prefix."""
        return self._hive.members.registers.bank.settings(prefix)

    def set_setting(self, key: str, value: Any) -> Event:
        """Write a value, and send it to every member."""
        if self._hive.layout.registers not in self._hive.members:
            raise InvalidInputError(
                f"the registers of the hive are written by {self._hive.layout.registers}, which runs elsewhere",
                field="trust",
            )
        return self._hive.placement.changed_at(
            self._hive.members.registers, lambda bank: bank.set_setting(key, value)
        )


class PastHive:
    """A hive as it was at a moment: every member's bank as it was, asked like the hive itself. Read-only.

    What it does not say itself, the home's bank of that moment says.
    """

    def __init__(self, hive: Hive, view: AgentBank, moment: Time) -> None:
        time = clean_time("time", moment)
        banks = {name: member.bank.as_of(time) for name, member in hive.members.items()}
        members = [
            LocalMember(
                name, bank, Shard(bank.engine, member=name, answers_for=hive.members[name].shard.answers_for)
            )
            for name, bank in banks.items()
        ]
        if view.private is not None:
            members.append(LocalMember(PRIVATE, view.private.as_of(time)))
        self._members = PastMembers(members)
        self._bank = Bank(banks[view.home.name].engine)
        recaller = HiveRecaller(self._bank.engine, hive, lambda: self._members, past=True)
        self._bank._recall = recaller  # pyright: ignore[reportPrivateUsage]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bank, name)

    def get(self, memory_id: str) -> Memory:
        """One memory as it was then."""
        found = self._members.fetch({memory_id: ""}).memories
        return found[0] if found else self._bank.get(memory_id)

    def close(self) -> None:
        """The members keep their views of the past."""
