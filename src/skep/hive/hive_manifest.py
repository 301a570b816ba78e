"""`hive.yaml`: the wanted state of a hive, read and checked in one go.

The structs are the schema, and msgspec checks it. Every problem is found before anything happens, with the place it is
at and, for a misspelt name, the one that was probably meant. `${NAME}` and `${NAME:-default}` stand for environment
variables. Called by `controller` and the command line; it reads one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec

from skep.errors import ConfigError, NotFoundError, did_you_mean
from skep.hive.bus.bus_urls import LOCAL, bus_problem
from skep.hive.gateway import TRUST_MAX, HivePolicy
from skep.text.yaml_text import read_yaml

Topology = Literal["single", "flat", "federated", "sharded"]
MEMORY = "memory"
_variable = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_name = re.compile(r"[A-Za-z0-9][\w.-]{0,99}$")


class OldKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signing key that was replaced: what it signed up to event number `until` still counts."""

    key: str
    until: int


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent, or with `replicas` several of the same kind, named `name-0`, `name-1` …"""

    name: str
    domains: tuple[str, ...] = ()
    group: str | None = None
    replicas: int = 1
    trust: float = 1.0
    key: str | None = None
    """Its public signing key, 64 hexadecimal digits; events in its name must bear its signature."""
    old_keys: tuple[OldKey, ...] = ()
    """Keys it had before, oldest first."""
    seed: str | None = None
    """The secret half, 64 hexadecimal digits, for an agent that runs here; give it as `${NAME}`."""

    def instances(self) -> tuple[str, ...]:
        """The names of the agents this stands for."""
        return (self.name,) if self.replicas == 1 else tuple(f"{self.name}-{n}" for n in range(self.replicas))


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of agents; `parent` makes a tree."""

    name: str
    domains: tuple[str, ...] = ()
    parent: str | None = None


class GatewaySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requirements of the gateway."""

    signatures: Literal["off", "known", "required"] = "known"
    """`known` checks events of actors whose key is listed; `required` refuses all others."""
    review: Literal["quarantine", "reject"] = "quarantine"
    """The fate of a doubtful memory."""


class CapabilitySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the process that reads the manifest may do on a bus between processes; given, every process needs one."""

    issuer: str
    """The public key that tokens are checked with, 64 hexadecimal digits."""
    seed: str
    """The secret of the token's holder, 64 hexadecimal digits; give it as `${NAME}`."""
    token: str
    """The token, as `skep hive grant` printed it; give it as `${NAME}`."""
    revoked: tuple[str, ...] = ()
    """Tokens that count no more, by the number that `skep hive grant` printed."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The desired state of a hive."""

    name: str
    topology: Topology = "flat"
    store: str = MEMORY
    """A folder for the banks, or `memory`."""
    bus: str = LOCAL
    """`local`, or the address of a bus between processes, such as `nats://localhost:4222`."""
    capability: CapabilitySpec | None = None
    agents: tuple[AgentSpec, ...] = ()
    groups: tuple[GroupSpec, ...] = ()
    gateway: GatewaySpec = GatewaySpec()
    policies: HivePolicy = HivePolicy()

    def instances(self) -> dict[str, AgentSpec]:
        """Every agent by name, replicas spelt out."""
        return {name: agent for agent in self.agents for name in agent.instances()}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a manifest."""

    where: str
    problem: str
    hint: str = ""

    def line(self) -> str:
        """In one readable line."""
        return f"{self.where}: {self.problem}" + (f"; {self.hint}" if self.hint else "")


class ManifestError(ConfigError):
    """A manifest that cannot be applied; `findings` has every problem."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        count = len(self.findings)
        head = f"the manifest has {count} problem{'s' if count != 1 else ''}:"
        super().__init__("\n  ".join([head, *(finding.line() for finding in self.findings)]))


def load(path: str | Path, environ: Mapping[str, str]) -> Manifest:
    """Read and check a manifest file, YAML or JSON."""
    source = Path(path)
    if not source.is_file():
        raise NotFoundError(f"there is no manifest {source}; `skep hive init` writes one to start from")
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(
            [Finding(where=str(source), problem=f"not UTF-8 text ({error.reason})")]
        ) from None
    return parse(text, environ, name=source.name)


def load_name(path: str | Path) -> str:
    """The name of the hive in a manifest file, whatever variables the rest of it needs."""
    source = Path(path)
    if not source.is_file():
        raise NotFoundError(f"there is no manifest {source}; `skep hive init` writes one to start from")
    text = source.read_text(encoding="utf-8")
    raw: Any = _read_json(text) if source.name.endswith(".json") else _read_yaml(text)
    name: Any = cast("dict[str, Any]", raw).get("name") if isinstance(raw, dict) else None
    if not isinstance(name, str):
        raise ManifestError([Finding(where="name", problem="is missing", hint="give the hive a name")])
    return name


def parse(text: str, environ: Mapping[str, str], *, name: str = "hive.yaml") -> Manifest:
    """Check the text of a manifest."""
    try:
        return _parsed(text, environ, name)
    except UnicodeEncodeError as error:
        problem = f"holds half of a character ({error.object[error.start]!r}); write the character itself"
        raise ManifestError([Finding(where=name, problem=problem)]) from None


def _parsed(text: str, environ: Mapping[str, str], name: str) -> Manifest:
    raw = _read_json(text) if name.endswith(".json") else _read_yaml(text)
    if not isinstance(raw, dict):
        raise ManifestError([Finding(where=name, problem="the top level must be a mapping with a `name`")])
    findings: list[Finding] = []
    substituted = cast("dict[str, Any]", _substitute(raw, environ, "", findings))
    findings += _check_shape(substituted)
    if len(findings) >= MOST:
        raise ManifestError(findings)
    manifest = msgspec.convert(substituted, Manifest)
    findings += _not_caused_by(findings, _check_sense(manifest))
    if findings:
        raise ManifestError(findings)
    return manifest


def _not_caused_by(faults: Sequence[Finding], found: Sequence[Finding]) -> list[Finding]:
    """Findings that are not there only because a part at fault was taken out."""
    places = {fault.where for fault in faults}
    if any(place.startswith(("topology", "groups")) for place in places):
        found = [
            one for one in found if not one.where.startswith("groups") and not one.where.endswith("group")
        ]
    return [one for one in found if one.where not in places]


def _read_yaml(text: str) -> Any:
    try:
        return read_yaml(text, "Reading hive.yaml")
    except ValueError as error:
        raise ManifestError([Finding(where="syntax", problem=str(error))]) from None


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ManifestError([Finding(where="syntax", problem=str(error))]) from None


def _substitute(value: Any, environ: Mapping[str, str], where: str, findings: list[Finding]) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return {
            str(k): _substitute(v, environ, f"{where}.{k}".lstrip("."), findings) for k, v in items.items()
        }
    if isinstance(value, list):
        listed = cast("list[Any]", value)
        return [_substitute(v, environ, f"{where}[{i}]", findings) for i, v in enumerate(listed)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        found: str | None = environ.get(match[1]) or cast("str | None", match[2])
        if found is None:
            hint = f"set it, or write ${{{match[1]}:-default}}"
            findings.append(Finding(where=where, problem=f"the variable {match[1]} is not set", hint=hint))
            return ""
        return found

    return _variable.sub(replace, value)


_KINDS: dict[str, type[msgspec.Struct]] = {
    "": Manifest,
    "agents": AgentSpec,
    "agents.old_keys": OldKey,
    "groups": GroupSpec,
    "gateway": GatewaySpec,
    "capability": CapabilitySpec,
    "policies": HivePolicy,
}
"""The schema of each part of a manifest."""
_REQUIRED: dict[str, Any] = {
    "name": "x",
    "key": "x",
    "until": 0,
    "issuer": "00" * 32,
    "seed": "00" * 32,
    "token": "x",
}
"""Fields that every part with them needs, and a value that stands in for a wrong one."""
_WORDS = {
    "Expected `object`": "must be a mapping of names to values",
    "Expected `array`": "must be a list, whose entries begin with `- name: ...`",
}
_fault = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_field = re.compile(r"Object (?P<how>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
ELSEWHERE = {
    "graph_store": "the memories lie in SQLite files: write store: FOLDER, or store: memory",
    "event_bus": "write bus: local, or an address such as bus: nats://HOST:4222 (redis://, zenoh://)",
    "consensus": "nobody votes: write gateway: {review: quarantine} and policies: {contradiction: quarantine}; "
    "confirmations count by trust",
    "consensus_required": "nobody votes: confirmations count by trust; see policies: {contradiction: quarantine}",
    "trust_threshold": "write policies: {min_trust: 0.3}",
    "hive_id": "write name",
    "agent_id": "write name",
    "domain": "write domains: [NAME]",
}
"""Keys that manifests of other programs have, and what stands for them here."""
MOST = 1000
"""Findings after which a manifest is not read any further."""


def _check_shape(raw: dict[str, Any]) -> list[Finding]:
    """Names, types and ranges, as the schema has them. The part at fault is taken out, so that it hides no other."""
    findings: list[Finding] = []
    while len(findings) < MOST:
        try:
            msgspec.convert(raw, Manifest)
        except msgspec.ValidationError as error:
            findings += _taken_out(raw, str(error))
        else:
            break
    return findings


def _taken_out(raw: dict[str, Any], message: str) -> list[Finding]:
    """One fault in plain words; afterwards `raw` is without it."""
    found = _fault.fullmatch(message)
    problem, path = (found["problem"], found["path"] or "") if found else (message, "")
    steps: list[Any] = [
        int(number) if number else name for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", path)
    ]
    where, kind = path.lstrip("."), _KINDS.get(re.sub(r"\[\d+\]", "", path).lstrip("."), Manifest)
    part: Any = raw
    for step in steps:
        part = part[step]
    field = _field.fullmatch(problem)
    if field is not None:
        name, place = field["name"], f"{where}.{field['name']}".lstrip(".")
        if field["how"] == "contains unknown":
            del part[name]
            hint = ELSEWHERE.get(name) or did_you_mean(name, kind.__struct_fields__)
            return [Finding(where=place, problem="is not known", hint=hint)]
        part[name] = _REQUIRED.get(name)
        return [Finding(where=place, problem="is missing", hint="" if where else "give the hive a name")]
    if where == "policies" and isinstance(part, dict):  # several values may be out of range
        raw["policies"] = {}
        return [Finding(where=f"policies.{each.split()[0]}", problem=each) for each in problem.split("; ")]
    holder: Any = raw
    for step in steps[:-1]:
        holder = holder[step]
    if steps[-1] in _REQUIRED:
        holder[steps[-1]] = _REQUIRED[steps[-1]]
    else:
        del holder[steps[-1]]
    words = next((words for begin, words in _WORDS.items() if problem.startswith(begin)), problem)
    hint = did_you_mean(str(part), get_args(Topology)) if where == "topology" else ""
    return [Finding(where=where, problem=words, hint=hint)]


def _check_sense(manifest: Manifest) -> list[Finding]:
    """Problems of a manifest that is well-formed and still cannot work."""
    findings: list[Finding] = []
    if not _name.match(manifest.name):
        findings.append(Finding(where="name", problem=f"{manifest.name!r} is not a name", hint=_NAME_HINT))
    if problem := bus_problem(manifest.bus):
        findings.append(Finding(where="bus", problem=problem))
    findings += _check_capability(manifest)
    findings += _check_agents(manifest)
    findings += _check_groups(manifest)
    return findings


def _check_capability(manifest: Manifest) -> Iterator[Finding]:
    spec = manifest.capability
    if spec is None:
        return
    for field, value in (("issuer", spec.issuer), ("seed", spec.seed)):
        if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            yield Finding(where=f"capability.{field}", problem="must have 64 hexadecimal digits")
    if any(not re.fullmatch(r"[0-9a-fA-F]{32}", one) for one in spec.revoked):
        yield Finding(where="capability.revoked", problem="must have 32 hexadecimal digits each")
    if manifest.bus == LOCAL:
        yield Finding(
            where="capability", problem="needs a bus between processes", hint="set bus: nats://HOST:4222"
        )


_NAME_HINT = "use letters, digits, '-', '_' and '.'"


def _check_agents(manifest: Manifest) -> Iterator[Finding]:
    groups = [group.name for group in manifest.groups]
    taken: dict[str, int] = {}
    for index, agent in enumerate(manifest.agents):
        where = f"agents[{index}]"
        if not _name.match(agent.name):
            yield Finding(where=f"{where}.name", problem=f"{agent.name!r} is not a name", hint=_NAME_HINT)
        if not 1 <= agent.replicas <= 1000:
            yield Finding(where=f"{where}.replicas", problem=f"must be 1 to 1000, got {agent.replicas}")
        else:
            for name in agent.instances():
                if name in taken:
                    problem = f"{name!r} is already agents[{taken[name]}]"
                    yield Finding(
                        where=f"{where}.name", problem=problem, hint="every agent needs its own name"
                    )
                taken.setdefault(name, index)
        if not 0 <= agent.trust <= TRUST_MAX:
            yield Finding(where=f"{where}.trust", problem=f"must be 0 to {TRUST_MAX:g}, got {agent.trust}")
        yield from _check_keys(agent, where)
        if agent.group is not None and agent.group not in groups:
            problem = f"there is no group {agent.group!r}"
            yield Finding(where=f"{where}.group", problem=problem, hint=did_you_mean(agent.group, groups))
        if agent.group is None and manifest.topology == "federated" and groups:
            yield Finding(
                where=f"{where}.group", problem="is missing", hint="a federated agent needs a group"
            )
    if manifest.topology == "single" and len(taken) > 1:
        yield Finding(where="agents", problem=f"a single hive has one agent, not {len(taken)}")


def _check_keys(agent: AgentSpec, where: str) -> Iterator[Finding]:
    values = {"key": agent.key, "seed": agent.seed}
    values |= {f"old_keys[{n}].key": old.key for n, old in enumerate(agent.old_keys)}
    for field, value in values.items():
        if value is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            yield Finding(where=f"{where}.{field}", problem="must have 64 hexadecimal digits")
    if agent.replicas != 1 and (agent.seed is not None or agent.key is not None):
        field = "seed" if agent.seed is not None else "key"
        problem = "replicas cannot share one key; list the agents one by one"
        yield Finding(where=f"{where}.{field}", problem=problem)
    ends = [old.until for old in agent.old_keys]
    if ends != sorted(set(ends)) or any(end < 0 for end in ends):
        yield Finding(
            where=f"{where}.old_keys", problem="`until` must grow from the oldest key to the newest"
        )
    if agent.old_keys and agent.key is None:
        yield Finding(
            where=f"{where}.old_keys", problem="there is no key that replaced them", hint="add `key`"
        )


def _check_groups(manifest: Manifest) -> Iterator[Finding]:
    names = [group.name for group in manifest.groups]
    parents = {group.name: group.parent for group in manifest.groups}
    if names and manifest.topology != "federated":
        yield Finding(
            where="groups", problem=f"a {manifest.topology} hive has none", hint="set topology: federated"
        )
    for index, group in enumerate(manifest.groups):
        where = f"groups[{index}]"
        if not _name.match(group.name):
            yield Finding(where=f"{where}.name", problem=f"{group.name!r} is not a name", hint=_NAME_HINT)
        if names.index(group.name) != index:
            yield Finding(where=f"{where}.name", problem=f"{group.name!r} is there twice")
        if group.parent is not None and group.parent not in names:
            problem = f"there is no group {group.parent!r}"
            yield Finding(where=f"{where}.parent", problem=problem, hint=did_you_mean(group.parent, names))
        if _in_ring(group.name, parents):
            yield Finding(where=f"{where}.parent", problem="leads back to itself; groups form a tree")


def _in_ring(name: str, parents: Mapping[str, str | None]) -> bool:
    seen: set[str] = set()
    at: str | None = parents.get(name)
    while at is not None and at not in seen:
        if at == name:
            return True
        seen.add(at)
        at = parents.get(at)
    return False
