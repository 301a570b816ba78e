"""The controller: make a hive on disk what its manifest says, and say what that takes.

What a hive looks like is kept in its own registers (`hive/...`, `trust/...`), which are in every member's
bank, so it can be read back from the folder alone. Applying the same manifest twice changes nothing the
second time. Nothing is ever deleted: an agent that leaves hands its memories over, and its file stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from skep.bank.bank import Bank
from skep.clock import Now, system_now
from skep.config import HIVE
from skep.embedding.embedder import Embedder
from skep.errors import ConfigError, NotFoundError
from skep.hive.agent_bank import AgentBank
from skep.hive.bus.bus_urls import LOCAL
from skep.hive.capabilities import Pass
from skep.hive.gateway import TRUST_DEFAULT, HivePolicy, PromotionPolicy
from skep.hive.hive import Hive
from skep.hive.hive_manifest import MEMORY, AgentSpec, Manifest, load
from skep.hive.layouts import Federated, Layout, Sharded, Shared
from skep.hive.member_set import file_name
from skep.hive.traces import tracer
from skep.model import Memory
from skep.replication.exchange import BATCH, lacking, seen
from skep.replication.signatures import Keyring, Signer

Action = Literal["create", "update", "remove"]
KEYS = "hive/"
DEFAULT_GROUP = "all"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between what is and what should be."""

    action: Action
    what: str
    name: str
    before: Any = None
    after: Any = None

    def line(self) -> str:
        """In one readable line."""
        sign = {"create": "+", "update": "~", "remove": "-"}[self.action]
        if self.action == "update":
            return f"{sign} {self.what} {self.name}: {_shown(self.before)} → {_shown(self.after)}"
        value = self.after if self.action == "create" else self.before
        return f"{sign} {self.what} {self.name}" + (
            f": {_shown(value)}" if value not in (None, {}, "") else ""
        )


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one member."""

    name: str
    memories: int
    events: int
    quarantined: int
    held: int
    behind: int
    """Events of the hive about its memories that it has not seen."""


class HiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a hive and its members."""

    name: str
    topology: str
    members: tuple[MemberStatus, ...]
    agents: dict[str, float]
    """Trust per agent."""
    memories: int
    """Different memories in the whole hive."""
    changes: int
    """The number of differences there are to the manifest."""


class Controller:
    """Plans and applies one manifest."""

    def __init__(
        self,
        manifest: Manifest,
        *,
        folder: str | Path = ".",
        embedder: Embedder | None = None,
        now: Now = system_now,
    ) -> None:
        self.manifest = manifest
        self.store = None if manifest.store == MEMORY else (Path(folder) / manifest.store).expanduser()
        self._embedder = embedder
        self._now = now

    # What is

    def observed(self) -> dict[str, Any]:
        """The registers of the hive in the folder, by the latest word; empty when there is none yet."""
        latest, found = -1, dict[str, Any]()
        for path in self._files():
            with Bank.open(path, create=False, embedder=self._embedder, now=self._now) as bank:
                said = max((event.hlc for event in bank.engine.log.of(f"setting:{KEYS}topology")), default=-1)
                if said > latest:
                    latest, found = said, bank.settings(KEYS) | bank.settings("trust/")
        return found

    def _files(self) -> Iterator[Path]:
        if self.store is None or not self.store.is_dir():
            return
        yield from sorted(p for p in self.store.glob("*.skep") if not p.name.endswith(".private.skep"))

    # What should be

    def desired(self) -> dict[str, Any]:
        """The registers of the manifest."""
        manifest = self.manifest
        wanted: dict[str, Any] = {
            "hive/name": manifest.name,
            "hive/topology": manifest.topology,
            "hive/gateway": msgspec.to_builtins(manifest.gateway),
            "hive/policies": _without_defaults(manifest.policies),
        }
        for group in manifest.groups:
            wanted[f"hive/groups/{group.name}"] = {"domains": list(group.domains), "parent": group.parent}
        for name, agent in manifest.instances().items():
            wanted[f"hive/agents/{name}"] = _agent(agent)
            wanted[f"trust/{name}"] = agent.trust
        return wanted

    def plan(self) -> list[Change]:
        """The changes that applying the manifest would make."""
        return list(_differences(self.observed(), self.desired()))

    def apply(self, *, migrate: bool = False) -> list[Change]:
        """Make it so; what was changed. With `migrate`, a hive of another topology is laid out anew."""
        before, wanted = self.observed(), self.desired()
        changes = list(_differences(before, wanted))
        if not changes:
            return []
        old = before.get("hive/topology")
        if old is not None and old != self.manifest.topology and not migrate:
            raise ConfigError(
                f"the hive is {old} and the manifest says {self.manifest.topology}; "
                "apply with --migrate to copy everything into the new layout"
            )
        with tracer.span("hive.apply", changes=len(changes)):
            if old is not None and self.store is not None:
                self._rearrange(before)
            with self._hive(self._layout(), local=self._here()) as hive:
                self._write_registers(hive, before, wanted)
        return changes

    def _rearrange(self, before: Mapping[str, Any]) -> None:
        """Move memories from the members there were to the members there will be."""
        old = layout_of(
            before["hive/topology"],
            {k.removeprefix("hive/agents/"): v for k, v in before.items() if k.startswith("hive/agents/")},
            {k.removeprefix("hive/groups/"): v for k, v in before.items() if k.startswith("hive/groups/")},
            replication=before.get("hive/policies", {}).get("replication", HivePolicy().replication),
        )
        new = self._layout()
        if set(old.members) == set(new.members) and old.kind == new.kind:
            return
        ring = self._keyring()
        with self._hive(old, ring) as source, self._hive(new, ring) as target:
            for member in source.members.values():
                if member.bank.actor not in target.members.homes:
                    target.placement.retire(member)
                    target.members.homes[member.bank.actor] = member.name
            events = lacking(source, seen(target))
            while group := list(islice(events, BATCH)):
                target.placement.apply_via(group, (source.layout.kind,), inside=True)
            target.repair()

    def _write_registers(self, hive: Hive, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        registers = hive.members.registers
        gone = (key for key in before if key not in wanted and key.startswith(KEYS))
        for key in (*wanted, *gone):  # what was said of agents that are not in the manifest stays
            if before.get(key) != wanted.get(key):
                hive.placement.changed_at(
                    registers, lambda bank, key=key: bank.set_setting(key, wanted.get(key))
                )

    # Opening

    def open(self) -> Hive:
        """The hive of the manifest, with its trust where nothing else was said.

        On a bus between processes, with the members whose banks are in this folder.
        """
        hive = self._hive(self._layout(), local=self._here())
        if hive.layout.registers in hive.members:
            said = hive.members.registers.bank.settings("trust/")
            for name, agent in self.manifest.instances().items():
                if f"trust/{name}" not in said and agent.trust != TRUST_DEFAULT:
                    hive.trust.set(name, agent.trust)
        return hive

    def serve(self, names: Sequence[str], *, join: bool = False) -> Hive:
        """Open some members, whose banks are made where there are none, and let them answer for the others.

        Args:
            names: The members that run in this process; every one of them if none is named.
            join: Take members that are not in the manifest into the running hive.
        """
        layout = self._layout()
        new = [name for name in names if name not in layout.members]
        if new and not (join and isinstance(layout, Sharded)):
            hint = "; pass --join to have it join" if isinstance(layout, Sharded) else ""
            raise NotFoundError(
                f"the hive has no member {new[0]!r}; it has {', '.join(layout.members)}{hint}"
            )
        if isinstance(layout, Sharded):
            layout = layout.replaced([*layout.members, *new])
        before = self.observed()
        hive = self._hive(layout, local=tuple(names) or layout.members)
        try:
            if layout.registers in hive.members:
                self._write_registers(hive, before, self.desired())
            for name in new:
                hive.arrive(hive.members[name])
            hive.repair()
        except BaseException:
            hive.close()
            raise
        return hive

    def _here(self) -> tuple[str, ...] | None:
        """On a bus between processes, the members whose banks are in this folder; else None, for all of them."""
        if self.manifest.bus == LOCAL:
            return None
        files = {path.name for path in self._files()}
        here = tuple(name for name in self._layout().members if file_name(name) in files)
        if not here:
            where = self.store or "memory"
            raise NotFoundError(
                f"no member of {self.manifest.name} has its bank in {where}; "
                "start one here with `skep hive serve --member NAME`"
            )
        return here

    def _layout(self) -> Layout:
        manifest = self.manifest
        agents = {name: _agent(agent) for name, agent in manifest.instances().items()}
        groups = {g.name: {"domains": list(g.domains), "parent": g.parent} for g in manifest.groups}
        return layout_of(manifest.topology, agents, groups, replication=manifest.policies.replication)

    def _hive(
        self, layout: Layout, keyring: Keyring | None = None, *, local: Sequence[str] | None = None
    ) -> Hive:
        policy = self.manifest.policies
        if self.manifest.gateway.review == "reject":
            rules: PromotionPolicy = _NoQuarantine(policy)
        else:
            rules = PromotionPolicy(policy)
        return Hive(
            layout,
            name=self.manifest.name,
            store=self.store,
            policy=policy,
            rules=rules,
            embedder=self._embedder,
            now=self._now,
            keyring=keyring or self._keyring(),
            signers=self._signers(),
            bus=self.manifest.bus,
            capability=self._capability(),
            local=local,
        )

    def _capability(self) -> Pass | None:
        """What this process may do on the bus."""
        spec = self.manifest.capability
        if spec is None:
            return None
        revoked = [bytes.fromhex(one) for one in spec.revoked]
        issuer, seed = bytes.fromhex(spec.issuer), bytes.fromhex(spec.seed)
        return Pass(issuer, seed, spec.token, revoked=revoked, now=self._now)

    def _signers(self) -> dict[str, Signer]:
        """The signing keys of agents that run here."""
        found: dict[str, Signer] = {}
        for name, agent in self.manifest.instances().items():
            if agent.seed is not None:
                found[name] = Signer(bytes.fromhex(agent.seed))
                if agent.key is not None and found[name].public != bytes.fromhex(agent.key):
                    raise ConfigError(
                        f"the seed of agent {name!r} does not belong to its key; mend one of them"
                    )
        return found

    def _keyring(self) -> Keyring | None:
        mode = self.manifest.gateway.signatures
        agents = self.manifest.instances()
        if mode == "off" or (mode == "known" and not any(a.key or a.seed for a in agents.values())):
            return None
        ring = Keyring(required=mode == "required")
        for name, agent in agents.items():
            if agent.key is not None:
                before = [(bytes.fromhex(old.key), old.until) for old in agent.old_keys]
                ring.expect(name, bytes.fromhex(agent.key), before=before)
        return ring

    def status(self) -> HiveStatus:
        """Counts of the hive and its members."""
        changes = len(self.plan())
        with self.open() as hive:
            return status_of(hive, changes=changes)


FILE_VERBS = frozenset(
    ["backup", "backups", "doctor", "export", "export_lines", "import_preview", "mend", "reembed"]
)
"""What `Bank` does with its file, and an agent of a hive cannot."""


class AddressedBank(AgentBank):
    """The bank of an agent, opened by its address; closing it closes the hive.

    It speaks as its agent, whatever program or token a call came through.
    """

    file = None
    """What it finds lies in the files of all members."""

    def __getattr__(self, name: str) -> Any:
        if name in FILE_VERBS:
            raise ConfigError(
                f"{name} works on the file of one bank, and this is an agent of a hive; name the file of its bank:"
                f" {self.home.bank.file or 'this hive has none'}"
            )
        raise AttributeError(f"an agent of a hive has no {name!r}")

    def close(self) -> None:
        """Close the hive."""
        super().close()
        self.hive.close()

    def _draft(self, fields: Mapping[str, Any], on_conflict: str) -> Any:
        return super()._draft({**fields, "agent": self.name}, on_conflict)

    def confirm(self, memory_id: str, by: str | None = None) -> Memory:  # noqa: ARG002
        """Confirm a memory as the agent."""
        return super().confirm(memory_id)


def open_agent(address: str, environ: Mapping[str, str]) -> AddressedBank:
    """The bank of one agent of the hive in a manifest, by an address such as `hive://hive.yaml#ana`.

    A hive of one agent needs no name.
    """
    path, _, agent = address.removeprefix(HIVE).partition("#")
    manifest = load(path, environ)
    known = tuple(manifest.instances())
    if not agent and len(known) == 1:
        agent = known[0]
    if agent not in known:
        what = f"{path} has no agent {agent!r}" if agent else f"{path} has several agents"
        raise NotFoundError(f"{what}; write {HIVE}{path}#NAME with one of: {', '.join(known) or 'none yet'}")
    return AddressedBank(Controller(manifest, folder=Path(path).parent).open(), agent)


class _NoQuarantine(PromotionPolicy):
    """Rejects what the default rules would hold back."""

    def reject(self, memory: Any, standing: Any) -> list[str]:
        return super().reject(memory, standing) + super().doubt(memory, standing)


def layout_of(
    topology: str, agents: Mapping[str, Any], groups: Mapping[str, Any], *, replication: int
) -> Layout:
    """The layout that registers or a manifest describe."""
    names = list(agents) or ["agent"]
    if topology in ("single", "flat"):
        return Shared(topology, names)
    if topology == "sharded":
        return Sharded(names, replication=replication)
    members: dict[str, list[str]] = {name: [] for name in groups} or {DEFAULT_GROUP: []}
    for name, agent in agents.items():
        members[agent.get("group") or next(iter(members))].append(name)
    domains = {
        group: {*groups.get(group, {}).get("domains", ()), *(d for a in inside for d in agents[a]["domains"])}
        for group, inside in members.items()
    }
    parents = {name: group["parent"] for name, group in groups.items() if group.get("parent")}
    return Federated(members, parents=parents, domains=domains)


def status_of(hive: Hive, *, changes: int = 0) -> HiveStatus:
    """Counts of an open hive and its members."""
    found: list[MemberStatus] = []
    ids: set[str] = set()
    for name, member in hive.members.items():
        bank = member.bank.status()
        found.append(
            MemberStatus(
                name=name,
                memories=bank.memories,
                events=bank.events,
                quarantined=bank.by_status.get("quarantined", 0),
                held=bank.held,
                behind=hive.placement.behind(member),
            )
        )
        ids |= {memory.id for memory in member.current()}
    agents = {name: hive.trust.of(name) for name in _agents_of(hive)}
    return HiveStatus(
        name=hive.name,
        topology=hive.layout.kind,
        members=tuple(found),
        agents=agents,
        memories=len(ids),
        changes=changes,
    )


def _agents_of(hive: Hive) -> list[str]:
    layout = hive.layout
    return sorted(layout.members if isinstance(layout, Sharded) else getattr(layout, "agents", ()))


def _differences(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Change]:
    for key, value in wanted.items():
        what, name = _named(key)
        if key not in before:
            yield Change(action="create", what=what, name=name, after=value)
        elif before[key] != value:
            yield Change(action="update", what=what, name=name, before=before[key], after=value)
    for key, value in before.items():
        if key not in wanted and value is not None and not key.startswith("trust/"):
            what, name = _named(key)
            yield Change(action="remove", what=what, name=name, before=value)


def _named(key: str) -> tuple[str, str]:
    if key.startswith("trust/"):
        return "trust", key.removeprefix("trust/")
    parts = key.removeprefix(KEYS).split("/", 1)
    if len(parts) == 1:
        return "hive", parts[0]
    return {"agents": "agent", "groups": "group"}.get(parts[0], parts[0]), parts[1]


def _agent(agent: AgentSpec) -> dict[str, Any]:
    return {"domains": list(agent.domains), "group": agent.group, "key": agent.key}


def _without_defaults(policy: HivePolicy) -> dict[str, Any]:
    default = HivePolicy()
    fields = policy.__struct_fields__
    return {name: getattr(policy, name) for name in fields if getattr(policy, name) != getattr(default, name)}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
