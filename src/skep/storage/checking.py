"""Events from elsewhere, looked at before they are let in: a peer or a file may hold anything."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import msgspec

from skep.errors import OutOfRangeError, SyncError
from skep.model import Event, Kind
from skep.private import DEEP, refuse_deep

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1 << 20)]
Unit = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Moment = Annotated[float, msgspec.Meta(ge=-62_135_596_800.0, lt=253_402_300_800.0)]
_BAD = re.compile("[\x00\ud800-\udfff]")


class _Scope(msgspec.Struct, forbid_unknown_fields=True):
    user: Id | None = None
    project: Id | None = None
    session: Id | None = None


class _Fields(msgspec.Struct):
    title: str | None = None
    domain: str | None = None
    agent: str | None = None
    scope: _Scope | None = None
    tags: list[str] = []
    source: str | None = None
    confidence: Unit = 0.8
    importance: Unit = 0.5
    polarity: Annotated[int, msgspec.Meta(ge=-1, le=1)] = 0
    pinned: bool = False
    level: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    expires_at: Moment | None = None
    ttl: Finite | None = None
    metadata: dict[str, Any] = {}


class _Remember(_Fields):
    text: Text | None = None
    """Absent where it was forgotten."""
    kind: Kind = "fact"
    created_at: Moment | None = None
    evidence: list[str] = []


class _Changes(_Fields):
    text: Text | None = None
    evidence: list[str] = []


class _Revise(msgspec.Struct):
    memory: Id
    changes: _Changes | None = None


class _About(msgspec.Struct):
    memory: Id
    observed: list[str] = []
    sources: list[str] = []
    by: str | None = None


class _Mark(msgspec.Struct):
    memory: Id
    status: str


class _Supersede(msgspec.Struct):
    old: Id
    new: Id


class _Merge(msgspec.Struct):
    loser: Id
    winner: Id
    evidence: list[str] = []
    successes: Count = 0
    failures: Count = 0


class _Link(msgspec.Struct):
    src: Id
    dst: Id
    rel: Id
    strength: Unit = 1.0


class _Outcome(msgspec.Struct):
    success: bool
    used: list[str] = []
    task: str = ""
    metrics: dict[str, Finite] = {}
    task_type: str | None = None
    domain: str | None = None
    shown: list[str] = []
    withheld: list[str] = []
    withhold: Unit | None = None


class _Use(msgspec.Struct):
    counts: dict[str, Count]
    at: Moment | None = None


class _Forget(msgspec.Struct):
    memories: list[Id]


class _Setting(msgspec.Struct):
    key: Id
    value: Any


class _Undo(msgspec.Struct):
    event: Id
    mentions: list[str] = []


BODIES: dict[str, type[msgspec.Struct]] = {
    "remember": _Remember,
    "revise": _Revise,
    "retract": _About,
    "restore": _About,
    "evidence": _About,
    "confirm": _About,
    "dispute": _About,
    "mark": _Mark,
    "supersede": _Supersede,
    "merge": _Merge,
    "link": _Link,
    "unlink": _Link,
    "outcome": _Outcome,
    "use": _Use,
    "forget": _Forget,
    "setting": _Setting,
    "undo": _Undo,
}
"""What the body of each kind must hold. A kind that is not here comes from a newer skep: kept, and without effect."""


def checked(event: Event) -> Event:
    """The event itself, or a `SyncError` that says what is wrong with it."""
    if not isinstance(event.actor, str) or not 1 <= len(event.actor) <= 200 or _BAD.search(event.actor):  # pyright: ignore
        raise SyncError("an event with a malformed actor was refused; nothing of this batch was taken")
    whole = isinstance(event.counter, int) and isinstance(event.hlc, int)  # pyright: ignore
    if not whole or not 0 < event.counter < 1 << 53 or not 0 <= event.hlc < 1 << 63:
        raise SyncError(
            f"{event.actor}-{event.counter} has a counter or stamp out of range; nothing was taken"
        )
    if not isinstance(event.kind, str) or not isinstance(event.body, dict):  # pyright: ignore
        raise SyncError(f"{event.id} has a malformed kind or body; nothing of this batch was taken")
    shape = BODIES.get(event.kind)
    try:
        if shape is not None:
            msgspec.convert(event.body, shape)
        refuse_deep("its body", event.body, DEEP + 2)
        encoded = msgspec.json.encode(event.body)
    except (msgspec.ValidationError, TypeError, ValueError, OutOfRangeError) as error:
        raise SyncError(
            f"{event.id} ({event.kind}) is malformed: {error}; nothing of this batch was taken"
        ) from error
    if b"\\u0000" in encoded:
        raise SyncError(f"{event.id} ({event.kind}) holds a NUL character; nothing of this batch was taken")
    return event
