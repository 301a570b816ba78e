"""`hive.yaml`: what a hive should look like, read and checked in one go.

Every problem is found before anything happens, with the place it is at and, for a misspelt name, the one
that was probably meant. `${NAME}` and `${NAME:-default}` stand for environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from skep.errors import ConfigError, MissingExtraError, NotFoundError, did_you_mean
from skep.hive.gateway import TRUST_MAX, HivePolicy, policy_problems

Topology = Literal["single", "flat", "federated", "sharded"]
TOPOLOGIES: tuple[str, ...] = ("single", "flat", "federated", "sharded")
MEMORY = "memory"
_variable = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_name = re.compile(r"[A-Za-z0-9][\w.-]{0,99}$")
_bus = re.compile(r"local$|(nats|tls)://\S+$")


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
    """What the gateway insists on."""

    signatures: Literal["off", "known", "required"] = "known"
    """`known` checks events of actors whose key is listed; `required` refuses all others."""
    review: Literal["quarantine", "reject"] = "quarantine"
    """What becomes of a doubtful memory."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The desired state of a hive."""

    name: str
    topology: Topology = "flat"
    store: str = MEMORY
    """A folder for the banks, or `memory`."""
    bus: str = "local"
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


def parse(text: str, environ: Mapping[str, str], *, name: str = "hive.yaml") -> Manifest:
    """Check the text of a manifest."""
    raw = _read_json(text) if name.endswith(".json") else _read_yaml(text)
    if not isinstance(raw, dict):
        raise ManifestError([Finding(where=name, problem="the top level must be a mapping with a `name`")])
    findings: list[Finding] = []
    substituted = cast("dict[str, Any]", _substitute(raw, environ, "", findings))
    findings += _check_shape(substituted)
    if findings:
        raise ManifestError(findings)
    manifest = msgspec.convert(substituted, Manifest)
    findings += _check_sense(manifest)
    if findings:
        raise ManifestError(findings)
    return manifest


def _read_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("Reading hive.yaml", "yaml") from error
    try:
        # an alias may stand for a list of aliases, and so on: nine lines become a billion values
        tokens: Iterator[Any] = cast("Any", yaml).scan(text)
        alias = next((one for one in tokens if isinstance(one, yaml.AliasToken)), None)
        if alias is not None:
            line = alias.start_mark.line + 1
            problem = f"line {line}: *{alias.value} repeats another part; write that part out instead"
            raise ManifestError([Finding(where="syntax", problem=problem)])
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ManifestError([Finding(where="syntax", problem=" ".join(str(error).split()))]) from None
    except RecursionError:
        raise ManifestError([Finding(where="syntax", problem="nested too deep to be read")]) from None


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ManifestError([Finding(where="syntax", problem=str(error))]) from None


def _substitute(value: Any, environ: Mapping[str, str], where: str, findings: list[Finding]) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return {k: _substitute(v, environ, f"{where}.{k}".lstrip("."), findings) for k, v in items.items()}
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


_LISTS: dict[str, type[msgspec.Struct]] = {"agents": AgentSpec, "groups": GroupSpec}
_NESTED: dict[str, type[msgspec.Struct]] = {"gateway": GatewaySpec, "policies": HivePolicy}


def _check_shape(raw: dict[str, Any]) -> list[Finding]:
    """Names, types and ranges, section by section, so that one mistake does not hide the next."""
    findings = list(_unknown(raw, Manifest, ""))
    for key, value in raw.items():
        if key in _LISTS:
            findings += _check_list(key, value)
        elif key in _NESTED:
            findings += _check_fields(value, _NESTED[key], key)
        elif key in Manifest.__struct_fields__:
            findings += _converted({"name": "x", key: value}, Manifest, key)
    if "name" not in raw:
        findings.append(Finding(where="name", problem="is missing", hint="give the hive a name"))
    return findings


def _check_list(key: str, value: Any) -> Iterator[Finding]:
    if not isinstance(value, list):
        yield Finding(where=key, problem="must be a list", hint="begin each entry with `- name: ...`")
        return
    for index, item in enumerate(cast("list[Any]", value)):
        yield from _check_fields(item, _LISTS[key], f"{key}[{index}]", required=("name",))


def _check_fields(
    raw: Any, kind: type[msgspec.Struct], where: str, *, required: tuple[str, ...] = ()
) -> Iterator[Finding]:
    if not isinstance(raw, dict):
        yield Finding(where=where, problem="must be a mapping of names to values")
        return
    fields = cast("dict[str, Any]", raw)
    yield from _unknown(fields, kind, where)
    for name in required:
        if name not in fields:
            yield Finding(where=f"{where}.{name}", problem="is missing")
    if kind is HivePolicy:
        for name, problem in policy_problems(fields):
            yield Finding(where=f"{where}.{name}", problem=problem)
        return
    for name, value in fields.items():
        if name in kind.__struct_fields__:
            stub = {**dict.fromkeys(required, "x"), name: value}
            yield from _converted(stub, kind, f"{where}.{name}")


def _converted(raw: dict[str, Any], kind: type[msgspec.Struct], where: str) -> Iterator[Finding]:
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at")[0]
        value = raw.get(where.rpartition(".")[2])
        allowed = TOPOLOGIES if where == "topology" else ()
        yield Finding(where=where, problem=problem, hint=did_you_mean(str(value), allowed) if allowed else "")


def _unknown(raw: dict[str, Any], kind: type[msgspec.Struct], where: str) -> Iterator[Finding]:
    for key in raw:
        if key not in kind.__struct_fields__:
            place = f"{where}.{key}".lstrip(".")
            yield Finding(
                where=place, problem="is not known", hint=did_you_mean(str(key), kind.__struct_fields__)
            )


def _check_sense(manifest: Manifest) -> list[Finding]:
    """What is well-formed and still cannot work."""
    findings: list[Finding] = []
    if not _name.match(manifest.name):
        findings.append(Finding(where="name", problem=f"{manifest.name!r} is not a name", hint=_NAME_HINT))
    if not _bus.match(manifest.bus):
        findings.append(Finding(where="bus", problem=f"{manifest.bus!r} is not a bus", hint="write local"))
    elif manifest.bus != "local":
        findings.append(Finding(where="bus", problem="network buses are not there yet", hint="write local"))
    findings += _check_agents(manifest)
    findings += _check_groups(manifest)
    return findings


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
