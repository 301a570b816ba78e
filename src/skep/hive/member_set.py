"""The members of a hive that run in this process: their banks, their keys, and who has which memory.

`MemberSet` opens the banks, reads back what earlier runs left, and finds memories and events wherever they are: in this
process first, then by asking members that run elsewhere. Called by every object of the hive. It writes to a bank only
by copying what another member has (`adopt`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from skep.bank.bank import Bank
from skep.events import UNPLACED, subjects_of
from skep.hive.bus.bus import safe_part
from skep.hive.layouts import Layout, Sharded
from skep.hive.members import Member
from skep.hive.messages import MemberHello, ShardFetched
from skep.model import ANY, Event, Link, Memory
from skep.replication.signatures import Keyring, Signers

if TYPE_CHECKING:
    from skep.hive.hive import Hive


MEMORY = ":memory:"
FEW = 4
CACHE_KIB = 65_536
"""Memory that the members of one hive may keep of their files in memory, all together, if they are many."""
GONE = "actor/"
"""Settings that name the banks of members that left."""
AGENTS = "hive/joined"
"""The register of agents that joined a hive (with their group) or left it (None) while it was running."""
SEATS = "member/"
"""Settings that say who joined (`joins`) or left (`leaves`) while the hive was running."""
PRIVATE_SUFFIX = ".private"


class MemberSet(Mapping[str, Member]):
    """The members of this process by name, and the way to those elsewhere."""

    def __init__(self, hive: Hive, layout: Layout, store: Path | None) -> None:
        """Begin without members; the banks are in a folder, or in memory without one."""
        self.hive = hive
        self.layout = layout
        self.store = store
        self.calls = hive.calls
        self.keyring = hive.keyring
        self.homes: dict[str, str] = {}
        """The member of every bank that writes or has written in this hive."""
        self._members: dict[str, Member] = {}

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    # Opening

    def open(self, name: str) -> Member:
        """Open the bank of a member, and let it answer."""
        bank = self._opened(self._path(name))
        if len(self.layout.members) > FEW and self.store is not None:
            bank.engine.limit_memory(max(256, CACHE_KIB // len(self.layout.members)))
        member = Member(name, bank, self, signers=self._keys_of(name, bank.actor))
        self.met(name, bank.actor)
        self._members[name] = member
        member.start()
        return member

    def _keys_of(self, name: str, actor: str) -> Signers | None:
        """The signing keys of the agents of a member; those that have none are vouched for."""
        agents = self.layout.agents_of(name)
        signers = {agent: self.hive.signers[agent] for agent in agents if agent in self.hive.signers}
        own = self.hive.signers.get(name) if name not in agents else None
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

    def met(self, member: str, actor: str, step: str = "here") -> None:
        """Note the name under which a member's bank writes, here or elsewhere, and whether it joins or leaves."""
        self.homes[actor] = member
        if step != "here":
            self.seat(member, present=step == "joins")
        self.layout.joined(member, actor)
        for known in self.values():
            known.shard.reassign()

    def seat(self, member: str, *, present: bool) -> None:
        """Count a member in or out; the last one stays."""
        layout = self.layout
        names = [name for name in layout.members if name != member]
        if present:
            names.append(member)
        if isinstance(layout, Sharded) and names and set(names) != set(layout.members):
            self.layout = layout.replaced(names)

    def tell(self, member: Member, step: Literal["here", "joins", "leaves"]) -> None:
        """Tell members elsewhere that one is here, joins or leaves, and learn the names of their banks."""
        hello = MemberHello(member=member.name, actor=member.bank.actor, step=step)
        told = self.calls.ask(hello, MemberHello, wait=self.hive.policy.hedge_after)
        for name, said in told.answers.items():
            self.met(name, said.actor)

    def way(self, actor: str, member: str) -> tuple[str, ...]:
        """The way copies usually come from a writer to a member."""
        home = self.homes.get(actor)
        return (home, member) if home is not None else (actor, member)

    def drop(self, name: str) -> None:
        """Let a member go; its bank is closed."""
        member = self._members.pop(name)
        member.stop()
        member.bank.close()

    def opened_for(self, name: str) -> None:
        """The agents of a member have changed: bind their keys anew."""
        if name in self:
            signers = self._keys_of(name, self[name].bank.actor)
            self[name].bank.engine.sign = None if signers is None else signers.sign  # type: ignore[assignment]

    def read_agents(self) -> None:
        """Count in and out the agents that joined or left a hive whose agents share banks."""
        seats: dict[str, dict[str, Any] | None] = self.registers.bank.setting(AGENTS) or {}
        layout = self.layout
        if isinstance(layout, Sharded):
            return
        here = {agent for member in layout.members for agent in layout.agents_of(member)}
        for agent, seat in seats.items():
            if seat is None and agent in here:
                layout.dismiss(agent)
            elif seat is not None and agent not in here:
                layout.admit(agent, seat.get("group"))
                self.opened_for(layout.home(agent))

    def read_back(self) -> None:
        """Read back what earlier runs left: members that are gone, and what their owners had not got yet."""
        for member in self.values():
            for key, gone in member.bank.settings(GONE).items():
                actor = key.removeprefix(GONE)
                if actor not in self.homes:
                    self._recall_gone(actor, gone)
            if isinstance(self.layout, Sharded):
                waiting: list[str] | None = member.bank.setting(f"{UNPLACED}{member.name}")
                self.layout.unplaced.update(dict.fromkeys(waiting or (), member.name))
            for key, step in member.bank.settings(SEATS).items():
                self.seat(key.removeprefix(SEATS), present=step == "joins")
        if self.elsewhere():
            for member in self.values():
                self.tell(member, "here")

    def _recall_gone(self, actor: str, gone: dict[str, Any]) -> None:
        """A bank that left: whose it was, and how what it wrote is proved."""
        self.homes[actor] = str(gone.get("member", ""))
        if self.keyring is not None:
            for key, agents in gone.get("keys", ()):
                self.keyring.add(actor, bytes.fromhex(key), agents=agents)
            self.keyring.vouch(actor, gone.get("vouched", ()))

    def epitaph(self, member: Member) -> tuple[str, dict[str, Any]]:
        """The setting by which a bank that leaves is remembered, so that what it wrote is still known for its own."""
        actor = member.bank.actor
        ring = self.keyring or Keyring()
        keys = [(entry.key.hex(), list(entry.agents)) for entry in ring.keys_of(actor)]
        vouched = sorted(ring.vouched_for(actor)) if self.keyring is not None else [ANY]
        key = f"{GONE}{actor}"
        entry = {"member": member.name, "keys": keys, "vouched": vouched}
        return key, entry

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
        return Bank.open(path, embedder=self.hive.embedder, now=self.hive.now, create=create)

    # Who has what

    @property
    def registers(self) -> Member:
        """The member that writes the hive's own registers; another of this process where that is elsewhere."""
        return self.get(self.layout.registers) or next(iter(self.values()))

    def elsewhere(self) -> tuple[str, ...]:
        """The members that are not in this process."""
        return tuple(name for name in self.layout.members if name not in self)

    def memory(self, memory_id: str) -> Memory | None:
        """A memory by id, from whoever has it; None if nobody does."""
        return self.memories([memory_id]).get(memory_id)

    def memories(self, memory_ids: Iterable[str]) -> dict[str, Memory]:
        """Memories by id, from whoever has them; those that nobody has are left out."""
        found: dict[str, Memory] = {}
        for memory_id in memory_ids:
            here = next((m for m in (one.get(memory_id) for one in self.values()) if m), None)
            if here is not None:
                found[memory_id] = here
        for part in self._away([name for name in memory_ids if name not in found]).values():
            found.update({memory.id: memory for memory in part.found.memories})
        return found

    def _away(self, memory_ids: Sequence[str], **what: Any) -> dict[str, ShardFetched]:
        """What the members elsewhere have of some memories."""
        names = self.elsewhere()
        wanted = bool(names) and bool(memory_ids or what.get("named"))
        return self.calls.fetch(memory_ids, to=names, **what).answers if wanted else {}

    def holder(self, memory_id: str) -> Member | None:
        """A member of this process that has a memory, the one that answers for it first; it is fetched if it is
        only elsewhere. None if nobody has it.
        """
        here = [member for member in self.values() if member.has(memory_id)]
        if not here and self.elsewhere():
            self.adopt(self.registers, [memory_id])
            here = [self.registers] if self.registers.has(memory_id) else []
        first = (m for m in here if self.layout.first_for(m.name, memory_id, ()))
        return next(first, here[0] if here else None)

    def event(self, event_id: str) -> Event | None:
        """An event that a member of this process has."""
        found = (member.bank.engine.log.get(event_id) for member in self.values())
        return next(filter(None, found), None)

    def holder_of_event(self, event_id: str) -> Member | None:
        """A member of this process that has an event, fetched if it is only elsewhere; None if nobody has it."""
        for member in self.values():
            if member.bank.engine.log.get(event_id) is not None:
                return member
        for part in self._away((), named=[event_id]).values():
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
            holder = next((m for m in self.values() if m is not home and m.has(memory_id)), None)
            if holder is not None:
                home.take(holder.events_of([memory_id]), path=self.layout.path(holder.name, home.name))
            else:
                lost.append(memory_id)
        for name, part in self._away(lost, events=True).items():
            if part.events:
                home.take(part.events, path=self.layout.path(name, home.name))

    def events_of(self, memory_ids: Sequence[str]) -> list[Event]:
        """Every event that shaped some memories, from whoever has them."""
        found: dict[str, Event] = {}
        lost: list[str] = []
        for memory_id in memory_ids:
            holder = next((m for m in self.values() if m.has(memory_id)), None)
            if holder is None:
                lost.append(memory_id)
            else:
                found.update({event.id: event for event in holder.events_of([memory_id])})
        for part in self._away(lost, events=True).values():
            found.update({event.id: event for event in part.events})
        return list(found.values())

    def links_of(self, memory_id: str) -> list[Link]:
        """Every link that starts or ends at a memory, wherever it is kept."""
        found: dict[Link, None] = {}
        for member in self.values():
            found |= dict.fromkeys(member.links([memory_id]))
        for part in self._away([memory_id], links=True).values():
            found |= dict.fromkeys(part.found.links)
        return list(found)


def file_name(member: str, suffix: str = "") -> str:
    """The file of a member's bank; a name cannot lead out of the folder, nor to another's private bank.

    >>> file_name("ana"), file_name("../ana.private")
    ('ana.skep', '%2e%2e%2fana%2eprivate.skep')
    """
    return f"{safe_part(member)}{suffix}.skep"
