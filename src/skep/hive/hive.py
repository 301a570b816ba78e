"""Opening the members of a hive: their banks, their keys, and what earlier runs left to be known.

Hive: many agents, one knowledge, no coordinator.

`Hive.single`, `Hive.flat`, `Hive.federated` and `Hive.sharded` lay it out; `hive.agent(name)` gives an
agent its bank.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from skep.bank.bank import Bank
from skep.bank.read import Page
from skep.clock import Now, system_now
from skep.embedding.embedder import default_embedder
from skep.errors import InvalidInputError, NotFoundError
from skep.events import UNPLACED
from skep.hive.agent_bank import AgentBank
from skep.hive.bus.bus import safe_part
from skep.hive.bus.in_process import LocalBus
from skep.hive.gateway import Gateway, HivePolicy, PromotionPolicy
from skep.hive.hive_recall import Asking, HiveRecaller, LocalMember, PastMembers, Scatter
from skep.hive.layouts import Federated, Layout, Sharded, Shared, known, share
from skep.hive.member_calls import Calls, Health, Listed
from skep.hive.members import Member, Subjects
from skep.hive.messages import PRIVATE, MemberHello
from skep.hive.placement import Reviewing
from skep.hive.shard import Shard
from skep.hive.trust import Provenance, Trust, provenance
from skep.model import ANY, Conflict, Event, Memory, Ranked
from skep.replication.signatures import Keyring, Signers, acting
from skep.replication.version_vectors import Versions
from skep.semantics.find_conflicts import CANDIDATE, comparable, find_for, judge, whole_words, worth_comparing
from skep.storage.memory_rows import searched_text
from skep.validation import clean_time

if TYPE_CHECKING:
    from skep.embedding.embedder import Embedder
    from skep.filters import Filter
    from skep.hive.bus.bus import Bus
    from skep.hive.gateway import Decides
    from skep.hive.gossip import GossipServer, Peer
    from skep.hive.trust import Rollback
    from skep.replication.signatures import Signer
    from skep.validation import Time


MEMORY = ":memory:"
FEW = 4
CACHE_KIB = 65_536
"""What the members of one hive may keep of their files in memory, all together, if they are many."""
GONE = "actor/"
"""Settings that name the banks of members that left."""
PRIVATE_SUFFIX = ".private"


class Opening(Reviewing):
    """The part of a hive that puts its members together."""

    store: Path | None
    embedder: Embedder
    now: Now
    keyring: Keyring | None
    signers: Mapping[str, Signer]

    def open_member(self, name: str) -> Member:
        """Open the bank of a member, and let it answer."""
        bank = self._opened(self._path(name))
        if len(self.layout.members) > FEW and self.store is not None:
            bank.engine.limit_memory(max(256, CACHE_KIB // len(self.layout.members)))
        member = Member(
            name,
            bank,
            self.bus,
            self.subjects,
            first_for=lambda memory, missing: self.layout.first_for(name, memory, missing),
            keeps=lambda member, memory: self.layout.keeps(member, memory),  # noqa: PLW0108 - the layout may change
            keyring=self.keyring,
            signers=self._keys_of(name, bank.actor),
            way_from=lambda actor: self._way(actor, name),
            met=self._met,
        )
        self._met(name, bank.actor)
        self.members[name] = member
        member.start()
        return member

    def _keys_of(self, name: str, actor: str) -> Signers | None:
        """The signing keys of the agents of a member; those that have none are vouched for."""
        agents = self.layout.agents_of(name)
        signers = {agent: self.signers[agent] for agent in agents if agent in self.signers}
        own = self.signers.get(name) if name not in agents else None
        if self.keyring is not None:
            leads = name == self.layout.registers
            for agent, signer in signers.items():
                self.keyring.add(actor, signer.public, agents=(agent,), registers=leads)
            if own is not None and own.public not in {signer.public for signer in signers.values()}:
                unsigned = tuple(agent for agent in agents if agent not in signers)
                self.keyring.add(actor, own.public, agents=unsigned, registers=leads)
            else:
                free = [a for a in agents if a not in signers and not self.keyring.protects(a)]
                self.keyring.vouch(actor, free)
        return Signers(signers, own) if signers or own is not None else None

    def _met(self, member: str, actor: str) -> None:
        """Note the name under which a member's bank writes, here or elsewhere."""
        self.homes[actor] = member
        self.layout.joined(member, actor)

    def _way(self, actor: str, member: str) -> tuple[str, ...]:
        """The way copies usually come from a writer to a member."""
        home = self.homes.get(actor)
        return (home, member) if home is not None else (actor, member)

    def read_back(self) -> None:
        """Read back what earlier runs left: members that are gone, and what their owners had not got yet."""
        for member in self.members.values():
            for key, gone in member.bank.settings(GONE).items():
                actor = key.removeprefix(GONE)
                if actor not in self.homes:
                    self._recall_gone(actor, gone)
            if isinstance(self.layout, Sharded):
                waiting: list[str] | None = member.bank.setting(f"{UNPLACED}{member.name}")
                self.layout.unplaced.update(dict.fromkeys(waiting or (), member.name))
        if self.elsewhere():
            for member in self.members.values():
                hello = MemberHello(member=member.name, actor=member.bank.actor)
                told = self.calls.ask(hello, MemberHello, wait=self.policy.hedge_after)
                for name, said in told.answers.items():
                    self._met(name, said.actor)

    def _recall_gone(self, actor: str, gone: dict[str, Any]) -> None:
        """A bank that left: whose it was, and how what it wrote is proved."""
        self.homes[actor] = str(gone.get("member", ""))
        if self.keyring is not None:
            for key, agents in gone.get("keys", ()):
                self.keyring.add(actor, bytes.fromhex(key), agents=agents)
            self.keyring.vouch(actor, gone.get("vouched", ()))

    def retire(self, member: Member) -> None:
        """Remember a bank that leaves, so that what it wrote is still known for its own."""
        actor = member.bank.actor
        ring = self.keyring or Keyring()
        keys = [(entry.key.hex(), list(entry.agents)) for entry in ring.keys_of(actor)]
        vouched = sorted(ring.vouched_for(actor)) if self.keyring is not None else [ANY]
        key = f"{GONE}{actor}"
        entry = {"member": member.name, "keys": keys, "vouched": vouched}
        self.changed_at(self.registers, lambda bank: bank.set_setting(key, entry))

    def _path(self, name: str, suffix: str = "") -> str:
        if self.store is None:
            return MEMORY
        self.store.mkdir(parents=True, exist_ok=True)
        return str(self.store / file_name(name, suffix))

    def private_of(self, agent: str, *, create: bool = False) -> Bank | None:
        """The bank that only one agent sees; None while there is none, unless one is to be made."""
        path = self._path(agent, PRIVATE_SUFFIX)
        if not create and (path == MEMORY or not Path(path).exists()):
            return None
        return self._opened(path)

    def _opened(self, path: str) -> Bank:
        """A bank of the hive, made only where there is nothing: an empty file was one."""
        create = path == MEMORY or not Path(path).exists()
        return Bank.open(path, embedder=self.embedder, now=self.now, create=create)


def file_name(member: str, suffix: str = "") -> str:
    """The file of a member's bank; a name cannot lead out of the folder, nor to another's private bank.

    >>> file_name("ana"), file_name("../ana.private")
    ('ana.skep', '%2e%2e%2fana%2eprivate.skep')
    """
    return f"{safe_part(member)}{suffix}.skep"


NEAREST = 5
"""How many memories of the hive a new one is compared with."""


class Hive(Opening):
    """Many banks that share. Open it with one of the four constructors; close it, or use it in a `with`."""

    def __init__(
        self,
        layout: Layout,
        *,
        name: str = "hive",
        store: str | Path | None = None,
        policy: HivePolicy | None = None,
        rules: Decides | None = None,
        bus: Bus | None = None,
        embedder: Embedder | None = None,
        now: Now = system_now,
        keyring: Keyring | None = None,
        signers: Mapping[str, Signer] | None = None,
        local: Iterable[str] | None = None,
    ) -> None:
        """Open a hive.

        Args:
            layout: Who its members are; made by one of the four constructors.
            name: Its name, and that of its subjects on the bus.
            store: A folder for the banks; in memory without one.
            policy: Thresholds and limits.
            rules: Who is promoted; `PromotionPolicy` unless given.
            bus: How members talk; within this process unless given.
            embedder: What turns text into vectors.
            now: The clock.
            keyring: Whose signatures are checked.
            signers: Signing keys by agent (or by member, for what nobody in particular does).
            local: The members that run in this process; all of them unless given. The others are reached over
                the bus.
        """
        self.name = name
        self.layout = layout
        self.policy = policy or HivePolicy()
        self.store = None if store is None else Path(store)
        self.now = now
        self.embedder = embedder or default_embedder()
        self.bus: Bus = bus or LocalBus(name)
        self.subjects = Subjects(name)
        self.health = Health()
        self.calls = Calls(
            self.bus, self.subjects, lambda: self.layout.members, policy=self.policy, health=self.health
        )
        self.keyring = keyring
        self._own_bus = bus is None
        self.signers = dict(signers or {})
        self._views: dict[str, AgentBank] = {}
        self._hearing: GossipServer | None = None
        self.homes = {}
        self.declined = {}
        self.foreign = Versions()
        self.members: dict[str, Member] = {}
        here = layout.members if local is None else tuple(known(name, layout.members) for name in local)
        if not here:
            raise InvalidInputError("a hive needs at least one member in this process", field="local")
        for member in here:
            self.open_member(member)
        self.read_back()
        self.trust = Trust(_Registers(self))
        self.gateway = Gateway(
            self.policy, rules or PromotionPolicy(self.policy), self.trust, now=now, get=self.get
        )

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
        if isinstance(self.bus, LocalBus):
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

    # Agents

    @property
    def plain(self) -> bool:
        """Whether there is only one bank, so that nothing has to be asked around."""
        return len(self.layout.members) == 1

    def agent(self, name: str) -> AgentBank:
        """The bank of an agent."""
        if name not in self._views:
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

    def join(self, agent: str) -> AgentBank:
        """Add an agent to a sharded hive; it takes over its part of the memories."""
        layout = self._sharded()
        if agent in layout.members:
            raise InvalidInputError(f"there is already an agent {agent!r}; every agent needs its own name")
        self.layout = layout.replaced([*layout.members, agent])
        self.open_member(agent)
        self.rebalance()
        return self.agent(agent)

    def leave(self, agent: str) -> None:
        """Take an agent out of a sharded hive; the others take over what it kept."""
        layout = self._sharded()
        gone = self.members[known(agent, layout.members)]
        if len(layout.members) == 1:
            raise InvalidInputError(f"{agent} is the last member; close the hive instead")
        self.layout = layout.replaced(member for member in layout.members if member != agent)
        self.retire(gone)
        self.repair(among=(*self.layout.members, gone.name))  # what only it has goes to its new owners
        gone.stop()
        del self.members[agent]
        view = self._views.pop(agent, None)
        if view is not None:
            view.close()
        gone.bank.close()

    def _sharded(self) -> Sharded:
        if not isinstance(self.layout, Sharded):
            raise InvalidInputError(
                f"a {self.layout.kind} hive is changed by its manifest; see `skep hive apply`"
            )
        return self.layout

    # Asking

    def asking(self, private: Bank | None = None, *, members: Sequence[str] | None = None) -> Asking:
        """What a recall over this hive needs to know of it."""

        def fresh() -> Scatter:
            return Scatter(
                self.calls,
                tuple(members or self.layout.members),
                policy=self.policy,
                lost=self.layout.lost,
                private=None if private is None else LocalMember(PRIVATE, private),
            )

        return Asking(
            members=fresh,
            embedder=self.embedder,
            trust=self.trust.of,
            policy=self.policy,
            fitting=self.layout.fitting,
            used=self.note_uses,
            share=self._share,
        )

    def _share(self, wanted: int) -> int:
        """How many of so many candidates each member is asked for; shards hold an even part of everything."""
        if not isinstance(self.layout, Sharded):
            return wanted
        return share(wanted, len(self.layout.members), self.layout.ring.replication)

    def recall(self, query: str, *, group: str | None = None, limit: int = 5, **options: Any) -> Any:
        """Ask the hive as nobody in particular; with a group, only it and the groups below it."""
        view = AgentView(self, None if group is None else self._within(group))
        return view.recall(query, limit=limit, **options)

    def rank(self, query: str, *, group: str | None = None, limit: int = 5, **options: Any) -> Ranked:
        """The ids and scores that `recall` would give, in its order, without the memories."""
        view = AgentView(self, None if group is None else self._within(group))
        return view.rank(query, limit=limit, **options)

    def _within(self, group: str) -> tuple[str, ...]:
        if not isinstance(self.layout, Federated):
            raise InvalidInputError(f"a {self.layout.kind} hive has no groups", field="group")
        return self.layout.within(group)

    def find(self, view: AgentBank, text: str | None = None, **conditions: Any) -> Page:
        """Memories of all members that meet every condition, newest first."""
        from skep.hive.member_calls import find_everywhere

        return find_everywhere(self, view, text, **conditions)

    def past(self, view: AgentBank, moment: Time) -> PastHive:
        """The hive as it was at a moment, for reading only."""
        return PastHive(self, view, moment)

    def conflicts(
        self,
        draft: Memory,
        where: Filter,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
    ) -> tuple[Conflict, ...]:
        """What in the hive a new memory contradicts or repeats, of its own scope and of what is for everybody."""
        if self.plain:
            return tuple(find_for(self.registers.bank.engine, draft, contradiction_fn=contradiction_fn))
        recaller = HiveRecaller(self.registers.bank.engine, self.asking())
        where = msgspec.structs.replace(where, scope=draft.scope, include_shared=True)
        answer = recaller.run(draft.text, where, limit=NEAREST, preset="semantic", count_uses=False)
        mine = whole_words(searched_text(draft.title, draft.text))
        found: list[Conflict] = []
        for hit in answer.hits:
            similarity, known = hit.signals.get("semantic", 0.0), hit.memory
            theirs = whole_words(searched_text(known.title, known.text))
            near = similarity >= CANDIDATE or worth_comparing(mine, theirs, similarity)
            if near and comparable(known, draft):
                conflict = judge(known, draft, similarity, contradiction_fn)
                if conflict is not None:
                    found.append(conflict)
        return tuple(found)

    # Trust

    def provenance(self, memory_id: str) -> Provenance:
        """Where a memory came from, and how far to trust it."""
        member = self.holder(memory_id) or self.registers
        path = member.paths.of(memory_id)
        return provenance(member.bank, memory_id, trust=self.trust, path=path, get=self.get)

    def confirm(self, memory_id: str, *, by: str) -> Memory | None:
        """Count a confirmation, if whoever makes it is independent; the memory, or None if it does not
        count.
        """
        memory = self.get(memory_id)
        if memory is None or self.trust.independent(memory, by, self.get) is not None:
            return None
        holder = self.holder(memory_id)
        if holder is None:
            return None
        with acting(by):
            return self.changed_at(holder, lambda bank: bank.confirm(memory_id, by))

    # Other hives

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
        self.auto_gossip = AutoGossip(self, peers, others=away, rng=rng) if peers or away else None

    def listen(self, bus: Bus | None = None) -> None:
        """Let others tell this hive something over a bus (its own by default), until it is closed."""
        from skep.hive.gossip import GossipServer, Listener

        if self._hearing is None:
            listener = Listener(self.name, self, trust=self.trust.of)
            self._hearing = GossipServer(listener, bus or self.bus)

    def gc(self, *, now: float | None = None) -> Listed[str]:
        """Mark what has expired, in every copy; the ids, and (as `missing`) who could not be asked."""
        from skep.hive.members import collect

        return collect(self, now=now)

    def refresh(self, memory_id: str, *, ttl: float | None = None) -> Memory:
        """Give a memory its full time again, in every copy."""
        from skep.hive.members import refresh

        return refresh(self, memory_id, ttl=ttl)

    def rollback(self, source: str, *, since: float | None = None, dry_run: bool = False) -> Rollback:
        """Undo all that one source wrote and what was derived from it; `dry_run` shows the blast radius."""
        from skep.hive.trust import rollback

        return rollback(self, source, since=since, dry_run=dry_run)


class AgentView:
    """A nameless reader of a hive, or of some of its members."""

    def __init__(self, hive: Hive, members: Sequence[str] | None) -> None:
        bank = Bank(hive.registers.bank.engine)
        recaller = HiveRecaller(bank.engine, hive.asking(members=members))
        bank._recaller = recaller  # pyright: ignore[reportPrivateUsage]
        self.recall = bank.recall
        self.rank = bank.rank


class _Registers:
    """The registers of a hive: written by one member, copied to all."""

    def __init__(self, hive: Hive) -> None:
        self._hive = hive

    def setting(self, key: str) -> Any:
        """The value, or None."""
        return self._hive.registers.bank.setting(key)

    def settings(self, prefix: str = "") -> dict[str, Any]:
        """Every value under a prefix."""
        return self._hive.registers.bank.settings(prefix)

    def set_setting(self, key: str, value: Any) -> Event:
        """Write a value, and send it to every member."""
        if self._hive.layout.registers not in self._hive.members:
            raise InvalidInputError(
                f"the registers of the hive are written by {self._hive.layout.registers}, which runs elsewhere",
                field="trust",
            )
        return self._hive.changed_at(self._hive.registers, lambda bank: bank.set_setting(key, value))


class PastHive(Bank):
    """A hive as it was at a moment: every member's bank as it was, asked like the hive itself. Read-only."""

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
        super().__init__(banks[view.home.name].engine)
        self._members = PastMembers(members)
        asking = msgspec.structs.replace(
            hive.asking(), members=lambda: self._members, used=_count_nothing, share=int
        )
        self._recaller = HiveRecaller(self._engine, asking)

    def get(self, memory_id: str) -> Memory:
        """One memory as it was then."""
        found = self._members.fetch({memory_id: ""}).memories
        return found[0] if found else super().get(memory_id)

    def close(self) -> None:
        """The members keep their views of the past."""


def _count_nothing(_handed_out: Mapping[str, Sequence[str]]) -> None:
    """The past counts no use."""
