"""The verbs of a `MemoryBank` as they travel over HTTP: the arguments, the answer and the right of each.

`server` answers by this table and describes it as OpenAPI, `client` asks by it. Arguments that are functions (progress,
judges, rerankers) do not travel. The forms follow from the signatures of `MemoryBank`: nothing is listed twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec

from skep.bank.bank_file import BankStatus
from skep.bank.memory_bank import Changes, MemoryBank
from skep.bank.read import Page
from skep.lifecycle.judge import Case
from skep.lifecycle.learn import Effect, Learned, Recommendation
from skep.lifecycle.maintain import MaintainConfig
from skep.lifecycle.maintenance_run import MaintainReport
from skep.model import (
    KINDS,
    Conflict,
    Event,
    Graph,
    Hit,
    Link,
    Memory,
    OnConflict,
    Outcome,
    Ranked,
    Recalled,
    Receipt,
    Remembered,
    Scope,
)
from skep.retrieval.recall_config import PRESETS, Direction, Expand
from skep.storage.store import Applied

Right = Literal["read", "write", "erase", "review", "manage"]


class ScopeCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of current memories of one scope."""

    scope: Scope
    memories: int


RIGHTS: Final[dict[Right, str]] = {
    "read": "recall, find, history and whatever changes nothing",
    "write": "remember, revise, link, learn, undo and other changes that can be undone",
    "erase": "forget, which is final",
    "review": "decide what waits for a person; for a person's token alone",
    "manage": "maintain, set settings, take events of other replicas",
}

_VERBS: Final[dict[Right, str]] = {
    "read": "get find recall rank search_memory find_conflicts neighbors subgraph path history blame event recommend"
    " outcomes stats utility pending_judgements scopes setting settings status versions",
    "write": "remember remember_many revise retract restore supersede merge mark confirm dispute support link unlink"
    " undo learn",
    "erase": "forget",
    "review": "resolve_judgement",
    "manage": "maintain set_setting apply",
}
LOCAL: Final = frozenset(("stream", "as_of", "events", "close", "actor"))
"""Methods of a `MemoryBank` that are no verb of the server: the client makes them of others."""

DEFAULT: Final[Any] = msgspec.UNSET
"""Stands for an argument that is left to the server's default."""

ScopeParts = Scope | list[str] | None
Text = str | None
Words = list[str] | None
Moment = float | str | None
Seconds = float | None

FORMS: Final[dict[str, Any]] = {
    "str": str,
    "str | None": Text,
    "int": int,
    "int | None": int | None,
    "bool": bool,
    "bool | None": bool | None,
    "float": float,
    "float | None": float | None,
    "Time": float | str,
    "Time | None": Moment,
    "float | timedelta | None": Seconds,
    "ScopeLike | None": ScopeParts,
    "Iterable[str]": list[str],
    "Iterable[str] | None": Words,
    "str | Iterable[str]": str | list[str],
    "str | Iterable[str] | None": str | list[str] | None,
    "Iterable[str | Sequence[str]]": list[str | list[str]],
    "bool | str | Iterable[str]": bool | str | list[str],
    "Mapping[str, Any] | None": dict[str, Any] | None,
    "Mapping[str, float] | None": dict[str, float] | None,
    "OnConflict": OnConflict,
    "OnConflict | None": OnConflict | None,
    "Direction": Direction,
    "Any": Any,
    "RecallConfig | Mapping[str, object] | None": dict[str, Any] | None,
    "bool | Expand | ExpandOptions | None": bool | Expand | None,
    "str | bool | float": str | bool | float,
    "Recalled | None": Recalled | None,
    "MaintainConfig | None": MaintainConfig | None,
    "Iterable[Event]": list[Event],
}
"""The form of an argument over HTTP, by its annotation in `MemoryBank`; what is missing here does not travel."""
LIMITS: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"minLength": 1}, "text query task key decision"),
    ({"minLength": 3}, "memory_id event_id old new loser winner src dst a b"),
    ({"minimum": 1}, "limit k depth max_depth expected_version"),
    ({"minimum": 0, "maximum": 1}, "confidence importance min_confidence min_importance threshold withhold"),
    ({"exclusiveMinimum": 0, "maximum": 1}, "strength"),
    ({"minimum": -1, "maximum": 1}, "polarity"),
    ({"enum": list(KINDS)}, "kind"),
    ({"enum": list(PRESETS)}, "preset"),
)
"""What the description says beyond the type, by the name of an argument; the bank checks it, with words of its own."""
STAYS: Final = ("Callable[", "Progress", "Random", "Judge")
"""Annotations of arguments that do not travel begin so."""
ANSWERS: Final[dict[str, Any]] = {
    "Applied": Applied,
    "BankStatus": BankStatus,
    "Event": Event,
    "Graph": Graph,
    "Learned": Learned,
    "Link": Link,
    "MaintainReport": MaintainReport,
    "Memory": Memory,
    "Page": Page,
    "Ranked": Ranked,
    "Recalled": Recalled,
    "Receipt": Receipt,
    "Remembered": Remembered,
    "int": int,
    "Any": Any,
    "dict[Scope, int]": list[ScopeCount],
    "dict[str, Any]": dict[str, Any],
    "dict[str, Event]": dict[str, Event],
    "dict[str, int]": dict[str, int],
    "list[Case]": list[Case],
    "list[Conflict]": list[Conflict],
    "list[Effect]": list[Effect],
    "list[Event]": list[Event],
    "list[Link]": list[Link],
    "list[Outcome]": list[Outcome],
    "list[Recommendation]": list[Recommendation],
    "list[Remembered]": list[Remembered],
    "tuple[Hit, ...]": tuple[Hit, ...],
}


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """One verb of a bank over HTTP."""

    name: str
    right: Right
    arguments: type[msgspec.Struct]
    """The body of a request; what is not given has the default of `MemoryBank`."""
    answer: Any
    about: str
    """Its docstring at `Bank`."""

    @property
    def writes(self) -> bool:
        """True if it changes the bank."""
        return self.right != "read"

    def encode(self, answer: Any) -> bytes:
        """An answer as JSON; a mapping by scope as a list."""
        if self.name == "scopes":
            answer = [ScopeCount(scope=scope, memories=count) for scope, count in answer.items()]
        return msgspec.json.encode(answer)

    def read(self, body: bytes) -> Any:
        """An answer, as `MemoryBank` gives it."""
        found = msgspec.json.decode(body, type=self.answer)
        return {one.scope: one.memories for one in found} if self.name == "scopes" else found

    def decode(self, body: bytes) -> dict[str, Any]:
        """The arguments of a request, as `MemoryBank` takes them.

        Raises:
            msgspec.ValidationError: They are not of this verb's form.
            msgspec.DecodeError: It is no JSON.
        """
        given = msgspec.json.decode(body or b"{}", type=self.arguments)
        names = ((name, getattr(given, name)) for name in self.arguments.__struct_fields__)
        found = {name: value for name, value in names if value is not msgspec.UNSET}
        if self.name == "remember_many":
            found["items"] = msgspec.to_builtins(found["items"])
        return found


@cache
def verbs() -> Mapping[str, Verb]:
    """Every verb by its name."""
    return {
        name: Verb(
            name=name, right=right, arguments=_arguments(method), answer=_answer(method), about=_about(name)
        )
        for right, names in _VERBS.items()
        for name in names.split()
        for method in [getattr(MemoryBank, name)]
    }


def _about(name: str) -> str:
    from skep.bank.bank import Bank

    return inspect.getdoc(getattr(Bank, name)) or ""


@cache
def _arguments(method: Callable[..., Any]) -> type[msgspec.Struct]:
    """The form of the arguments of a method."""
    fields: list[Any] = []
    for parameter in inspect.signature(method).parameters.values():
        annotation = str(parameter.annotation)
        if parameter.name == "self" or annotation.startswith(STAYS):
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            fields += [
                (name, FORMS[annotation.__forward_arg__] | msgspec.UnsetType, msgspec.UNSET)
                for name, annotation in Changes.__annotations__.items()
            ]
        elif annotation == "Iterable[str | Mapping[str, Any]]":
            item = _arguments(MemoryBank.remember)
            fields.append((parameter.name, list[str | item]))  # type: ignore[valid-type]
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, _described(parameter.name, annotation)))
        else:
            form = _described(parameter.name, annotation) | msgspec.UnsetType
            fields.append((parameter.name, form, msgspec.UNSET))
    return _form(method.__name__, fields)


def _described(name: str, annotation: str) -> Any:
    """The form of an argument, with the limits that its name tells."""
    limits = next((limits for limits, names in LIMITS if name in names.split()), None)
    base, _, rest = annotation.partition(" | ")
    kind = {"str": str, "int": int, "float": float}.get(base)
    if limits is None or kind is None or rest not in ("", "None"):
        return FORMS[annotation]
    described: Any = Annotated[kind, msgspec.Meta(extra_json_schema=limits)]
    return described | None if rest else described


def _form(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    title = "".join(part.capitalize() for part in name.split("_"))
    return msgspec.defstruct(f"{title}Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _answer(method: Callable[..., Any]) -> Any:
    return ANSWERS[str(inspect.signature(method).return_annotation)]
