"""Opening the members of a hive: their banks, their keys, and what earlier runs left to be known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from skep.bank import Bank
from skep.hive.about import UNPLACED
from skep.hive.bus.base import safe_part
from skep.hive.frames import MemberHello
from skep.hive.layout import Sharded
from skep.hive.member import Member
from skep.hive.reviewing import Reviewing
from skep.hive.signing import Keyring, Signers
from skep.model import ANY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skep.clock import Now
    from skep.embedding.base import Embedder
    from skep.hive.signing import Signer

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
            bank.engine.store.connection.limit_memory(max(256, CACHE_KIB // len(self.layout.members)))
        member = Member(
            name,
            bank,
            self.bus,
            self.subjects,
            first_for=lambda memory, missing: self.layout.first_for(name, memory, missing),
            owner_of=lambda memory: self.layout.owner(memory),  # noqa: PLW0108 - the layout may change
            keeps=lambda member, memory: self.layout.keeps(member, memory),  # noqa: PLW0108
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
