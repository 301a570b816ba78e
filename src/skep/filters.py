"""Filters: exact conditions on memories, checked from the arguments of a call, and which memories they admit. Pure.

`Filter` is the one form that storage, index, recall and hive share; `admits` and `admits_memory` are its definition in
Python, `storage.memory_rows.where_clause` its SQL. `IndexRow` and `IndexSource` are what a derived index reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import msgspec

from skep.errors import InvalidInputError, OutOfRangeError, WrongTypeError, did_you_mean
from skep.model import CURRENT, KINDS, REPLACED, STATUSES, Memory, Scope, part_admits
from skep.validation import (
    KEY_LIMIT,
    Time,
    clean_choice,
    clean_count,
    clean_flag,
    clean_metadata,
    clean_number,
    clean_scope,
    clean_tags,
    clean_text,
    clean_time,
    is_blank,
    listed,
    refuse_inverted,
)

if TYPE_CHECKING:
    from typing import Protocol

    from skep.bank.memory_bank import ExpandOptions
    from skep.config import Settings
    from skep.model import ScopeLike
    from skep.retrieval.recall_config import Expand, RecallConfig


Operator = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
OPERATORS: tuple[str, ...] = get_args(Operator)
"""In a call they stand with a `$` before them, as in `{"price": {"$lt": 5}}`."""


class Condition(msgspec.Struct, frozen=True, array_like=True):
    """One condition on the metadata of a memory."""

    path: tuple[str, ...]
    """The keys that lead to the value, from outside in."""
    operator: Operator
    operand: str
    """As JSON."""


def meets(conditions: Sequence[Condition], metadata: Mapping[str, Any]) -> bool:
    """True if metadata meets every condition: the one definition, which SQLite calls as well.

    A value that is not there equals null. Only numbers are compared with numbers, and texts with texts.

    >>> meets([Condition(("price",), "lt", "5")], {"price": 4.5}), meets([Condition(("price",), "lt", "5")], {})
    (True, False)
    """
    return all(_meets(each, metadata) for each in conditions)


def _meets(condition: Condition, metadata: Any) -> bool:
    value = metadata
    for name in condition.path:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    operand = _operand(condition.operand)
    match condition.operator:
        case "eq":
            return _equal(value, operand)
        case "ne":
            return not _equal(value, operand)
        case "in":
            return any(_equal(value, one) for one in operand)
        case "nin":
            return not any(_equal(value, one) for one in operand)
        case _:
            return _ordered(condition.operator, value, operand)


@lru_cache(maxsize=256)
def _operand(encoded: str) -> Any:
    return msgspec.json.decode(encoded)


def _equal(a: Any, b: Any) -> bool:
    """Equality as JSON has it: true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


def _ordered(operator: str, a: Any, b: Any) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (a, b))
    if not numbers and not (isinstance(a, str) and isinstance(b, str)):
        return False
    match operator:
        case "gt":
            return bool(a > b)
        case "gte":
            return bool(a >= b)
        case "lt":
            return bool(a < b)
        case _:
            return bool(a <= b)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Exact conditions that apply to words and vectors alike, before scoring."""

    scope: Scope | None = None
    """None sees every scope; otherwise exactly what `scope.admits`."""
    include_shared: bool = False
    """With a scope: also memories that have none."""
    kinds: tuple[str, ...] = ()
    statuses: tuple[str, ...] = CURRENT
    tags: tuple[tuple[str, ...], ...] = ()
    """Every group must be met by at least one of its tags."""
    domains: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    since: float | None = None
    """created_at >= since"""
    until: float | None = None
    """created_at < until"""
    valid_at: float | None = None
    """valid_from <= t < valid_to, absent bounds open; and not expired at t."""
    min_confidence: float | None = None
    """Effective confidence at `now`: confidence * exp(-decay * days since last evidence)."""
    min_importance: float | None = None
    metadata: tuple[Condition, ...] = ()
    keys: tuple[str, ...] = ()
    now: float = 0.0
    decay_per_day: float = 0.0
    """0: age costs nothing. A policy that was chosen by name sets another rate."""


class IndexRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One memory as the derived index sees it."""

    row: int
    """A stable integer key, local to this bank, never reused."""
    seq: int
    """The event that last changed it."""
    text: str
    """Title and text, as searched."""
    vector: bytes | None
    """float32 little-endian, unit length; None while pending."""
    kind: str
    status: str
    domain: str | None
    agent: str | None
    user: str | None
    project: str | None
    session: str | None
    tags: tuple[str, ...]
    created_at: float
    valid_from: float | None
    valid_to: float | None
    expires_at: float | None
    confidence: float
    last_evidence_at: float
    importance: float
    gone: bool = False
    """Forgotten: drop every trace of this row."""
    id: str = ""
    """Of the memory; empty where no order is told from the index alone."""


if TYPE_CHECKING:

    class IndexSource(Protocol):
        """The part of a store that the derived index reads."""

        def head(self) -> int:
            """The position of the newest change that the index must know of. Cheap: asked before every search."""
            ...

        def changed_since(self, seq: int) -> Iterator[IndexRow]:
            """Rows changed after `seq`, in order of their `seq`; each at most once, in its present form."""
            ...

        def fingerprint(self) -> str:
            """The embedder whose vectors `changed_since` carries. A different one means: rebuild."""
            ...

        def dim(self) -> int:
            """The length of those vectors; 0 when there are none."""
            ...

        def admitted(self, rows: Sequence[int], where: Filter) -> set[int]:
            """Those of the rows that pass a filter: asked for conditions of which the index holds nothing."""
            ...

        def identity(self) -> str:
            """Changes when the file is replaced by another bank: segments of another identity are not used."""
            ...


_LISTS: Any = (tuple, list)
_GROUPS: Any = (tuple, list, set, frozenset)
"""Types in which a call may hold tags, and groups of them."""


class Asking(msgspec.Struct, frozen=True):
    """The arguments of `recall` and `rank` beside the words of a question, not checked yet."""

    scope: ScopeLike | None
    limit: int | None
    kind: str | Iterable[str] | None
    tags: Iterable[str | Sequence[str]]
    domain: str | None
    agent: str | None
    include_shared: bool
    min_confidence: float | None
    min_importance: float | None
    since: Time | None
    until: Time | None
    valid_at: Time | None
    include_superseded: bool
    preset: str | None
    config: RecallConfig | Mapping[str, object] | None
    expand: bool | Expand | ExpandOptions | None
    metadata: Mapping[str, Any] | None = None

    def most(self, deployed: Mapping[str, Any]) -> int:
        """The number of hits wanted at most; `deployed` is the config of the bank."""
        if self.limit is None:
            return deployed.get("limit", 5)
        return clean_count("limit", self.limit, 1, 10_000)

    def checked(self, settings: Settings, now: float, deployed: Mapping[str, Any]) -> tuple[Filter, int]:
        """The filter of a question that is asked at some time, and how many hits are wanted.

        `deployed` is the config of the bank.
        """
        usual: Mapping[str, Any] = {}
        if (
            deployed and self.kind is None and is_blank(self.tags)
        ):  # a call that says what it wants is not narrowed
            usual = deployed
        where = checked_filter(
            settings,
            now,
            kind=usual.get("kinds") if self.kind is None else self.kind,
            status=(*CURRENT, *REPLACED)
            if self.include_superseded is not False
            and clean_flag("include_superseded", self.include_superseded)
            else CURRENT,
            tags=self.tags,
            domain=self.domain,
            agent=self.agent,
            scope=self.scope,
            include_shared=self.include_shared,
            since=self.since,
            until=self.until,
            valid_at=self.valid_at,
            min_confidence=self.min_confidence,
            min_importance=self.min_importance,
            metadata=self.metadata,
            current=True,
        )
        if usual.get("tags"):
            where = msgspec.structs.replace(where, tags=tuple(tuple(group) for group in usual["tags"]))
        return where, self.most(deployed)


def checked_filter(
    settings: Settings,
    now: float,
    *,
    kind: object = None,
    status: object = None,
    tags: object = None,
    domain: object = None,
    agent: object = None,
    scope: object = None,
    include_shared: object = False,
    since: Time | None = None,
    until: Time | None = None,
    valid_at: Time | None = None,
    min_confidence: object = None,
    min_importance: object = None,
    metadata: object = None,
    key: object = None,
    current: bool = False,
    **_others: object,
) -> Filter:
    """A checked filter; what is not given narrows nothing, and what is no condition is another's to look at.

    `current` admits what is valid now.
    """
    label = settings.label_limit
    after = None if since is None else clean_time("since", since)
    before = None if until is None else clean_time("until", until)
    if after is not None and before is not None:
        refuse_inverted(after, before, "since", "until")
    return Filter(
        scope=None if scope is None else clean_scope("scope", scope, label, asked=True),
        include_shared=include_shared is not False and clean_flag("include_shared", include_shared),
        kinds=() if kind is None else _several("kind", kind, label, KINDS),
        statuses=CURRENT if status is CURRENT else _several("status", status, label, STATUSES) or CURRENT,
        tags=() if is_blank(tags) else _tag_groups("tags", tags, settings),
        domains=() if domain is None else _several("domain", domain, label),
        agents=() if agent is None else _several("agent", agent, label),
        since=after,
        until=before,
        valid_at=(now if current else None) if valid_at is None else clean_time("valid_at", valid_at),
        min_confidence=None
        if min_confidence is None
        else clean_number("min_confidence", min_confidence, 0.0, 1.0),
        min_importance=None
        if min_importance is None
        else clean_number("min_importance", min_importance, 0.0, 1.0),
        metadata=() if metadata is None else clean_conditions("metadata", metadata, settings),
        keys=() if key is None else _several("key", key, KEY_LIMIT),
        now=now,
    )


def clean_conditions(field: str, value: Any, settings: Settings) -> tuple[Condition, ...]:
    """Conditions on metadata from a mapping of keys to values, or to operators: see `OPERATORS`.

    A mapping inside that holds no operator leads further in: `{"order": {"paid": True}}`.
    """
    if not isinstance(value, Mapping):
        raise WrongTypeError(f"{field} must be a mapping, got {type(value).__name__}", field=field)
    return tuple(_conditions(field, clean_metadata(field, value, settings.metadata_limit), ()))


def _conditions(field: str, value: dict[str, Any], path: tuple[str, ...]) -> Iterator[Condition]:
    for name, wanted in value.items():
        here = (*path, name)
        if not isinstance(wanted, dict):
            yield _condition(here, "eq", wanted)
            continue
        inner = cast("dict[str, Any]", wanted)
        signs = [key for key in inner if key.startswith("$")]
        if not signs and inner:
            yield from _conditions(field, inner, here)
            continue
        if not inner:
            yield _condition(here, "eq", inner)
        for sign, operand in inner.items():
            known = tuple(f"${each}" for each in OPERATORS)
            if sign not in known:
                raise InvalidInputError(
                    f"{field}.{'.'.join(here)} holds {sign!r}, which is no operator; {did_you_mean(sign, known)}",
                    field=field,
                )
            several = sign in ("$in", "$nin")
            if several != isinstance(operand, list) and (several or sign not in ("$eq", "$ne")):
                needs = "a list" if several else "a number or a text"
                raise WrongTypeError(f"{field}.{'.'.join(here)}: {sign} needs {needs}", field=field)
            yield _condition(here, sign[1:], operand)


def _condition(path: tuple[str, ...], operator: str, operand: Any) -> Condition:
    return Condition(path, cast("Operator", operator), msgspec.json.encode(operand).decode())


def _several(name: str, value: Any, label: int, choices: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """One text or several, each among the choices where there are some."""
    if value is None:
        return ()
    if not isinstance(value, str | Iterable) or isinstance(value, bytes | Mapping):
        kind = type(cast("object", value)).__name__
        raise WrongTypeError(f"{name} must be a string or a list of strings, got {kind}", field=name)
    values = (value,) if isinstance(value, str) else listed(name, value)
    return tuple(clean_choice(name, v, choices) if choices else clean_text(name, v, label) for v in values)


def _tag_groups(field: str, value: Any, settings: Settings) -> tuple[tuple[str, ...], ...]:
    """Tags to look for: every one of those given, and at least one of each list among them."""
    if not isinstance(value, _LISTS) and (
        isinstance(value, str) or not isinstance(value, Iterable) or isinstance(value, Mapping)
    ):
        return tuple((tag,) for tag in clean_tags(field, value, settings))
    groups: dict[tuple[str, ...], None] = {}
    for each in listed(field, value):
        if isinstance(each, _GROUPS):
            group = clean_tags(field, sorted(each, key=str), settings)  # pyright: ignore
            if not group:
                raise InvalidInputError(
                    f"{field} holds an empty list, which nothing can match; leave it out", field=field
                )
        else:
            group = (clean_text(field, each, settings.label_limit),)
        groups[group] = None
    if len(groups) > settings.tags_limit:
        raise OutOfRangeError(
            f"{field} holds {len(groups)}, over the limit of {settings.tags_limit}; leave some out",
            field=field,
        )
    return tuple(groups)


DAY = 86_400.0
BETWEEN = "\x1f"
"""Stands between user, project and session in the name of a conversation."""


class Facets(NamedTuple):
    """The values of a row that a filter looks at; shared by all rows that have the same."""

    status: str
    kind: str
    domain: str | None
    agent: str | None
    tags: tuple[str, ...]
    user: str | None
    project: str | None
    session: str | None
    created_at: float = 0.0
    """Always 0: the time is a column of its own."""

    @property
    def key(self) -> str:
        """The conversation; empty for what belongs to none."""
        scope = (self.user, self.project, self.session)
        return "" if scope == (None, None, None) else BETWEEN.join(part or "" for part in scope)


def admits(where: Filter, facets: Facets) -> bool:
    """True if a row passes the parts of a filter that do not depend on the time of asking."""
    return _admitted(where, facets, (facets.user, facets.project, facets.session))


def _admitted(where: Filter, row: Facets | Memory, scope: tuple[str | None, str | None, str | None]) -> bool:
    if row.status not in where.statuses:
        return False
    if where.kinds and row.kind not in where.kinds:
        return False
    if where.domains and row.domain not in where.domains:
        return False
    if where.agents and row.agent not in where.agents:
        return False
    if any(not set(group).intersection(row.tags) for group in where.tags):
        return False
    if where.since is not None and row.created_at < where.since:
        return False
    if where.until is not None and row.created_at >= where.until:
        return False
    if where.scope is None:
        return True
    asked = (where.scope.user, where.scope.project, where.scope.session)
    if all(part_admits(wanted, part) for part, wanted in zip(scope, asked, strict=True)):
        return True
    return where.include_shared and scope == (None, None, None)


def admits_memory(where: Filter, memory: Memory) -> bool:
    """True if a memory passes a whole filter."""
    if not _admitted(where, memory, (memory.scope.user, memory.scope.project, memory.scope.session)):
        return False
    if where.keys and memory.key not in where.keys:
        return False
    if where.metadata and not meets(where.metadata, memory.metadata):
        return False
    t = where.valid_at
    if t is not None:
        begun = memory.valid_from is None or memory.valid_from <= t
        ended = (memory.valid_to, memory.expires_at)
        if not begun or any(end is not None and end <= t for end in ended):
            return False
    if where.min_importance is not None and memory.importance < where.min_importance:
        return False
    days = max(0.0, where.now - memory.last_evidence_at) / DAY
    sure = memory.confidence * math.exp(-where.decay_per_day * days)
    return where.min_confidence is None or sure >= where.min_confidence
