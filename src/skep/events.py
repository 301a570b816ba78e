"""What events speak of, in which order they count, and which of them are undone. Pure.

Apart from the fold, which only a process that writes needs.

Which memories an event speaks of, and so to whom it belongs.

Events from elsewhere, looked at before they are let in: a peer or a file may hold anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from skep.errors import OutOfRangeError, SyncError
from skep.model import Event, Kind
from skep.private_parts import DEEP, refuse_deep

if TYPE_CHECKING:
    from skep.model import Memory


Order = tuple[int, str, int]
"""A place in the total order of events."""
SETTING = "setting:"
"""Before the key of a setting, where it stands among memories."""


def order(event: Event) -> Order:
    """The place of an event in the total order."""
    return (event.hlc, event.actor, event.counter)


def mentioned(event: Event) -> tuple[str, ...]:
    """The memories (and settings, as `setting:key`) that an event speaks of."""
    body = event.body
    match event.kind:
        case "remember":
            return (event.id,)
        case "supersede":
            return (body["old"], body["new"])
        case "merge":
            return (body["loser"], body["winner"])
        case "link" | "unlink":
            return (body["src"], body["dst"])
        case "outcome":
            return tuple(body.get("used", ()))
        case "forget":
            return tuple(body["memories"])
        case "undo":
            return tuple(body.get("mentions", ()))
        case "setting":
            return (f"{SETTING}{body['key']}",)
        case "use":
            return ()
        case _:
            return (body["memory"],) if "memory" in body else ()


def merge_body(loser: Memory, winner: str) -> dict[str, Any]:
    """What a merge says: the copy, who takes its place, and what goes over to it, evidence and record."""
    body = {"loser": loser.id, "winner": winner, "evidence": list(dict.fromkeys((loser.id, *loser.evidence)))}
    record = {"successes": loser.successes, "failures": loser.failures}
    return body | {name: count for name, count in record.items() if count}


def voided(events: Iterable[Event]) -> set[str]:
    """The ids of events that were undone and whose undoing was not itself undone."""
    undone = [event for event in events if event.kind == "undo"]
    undos = [(event.id, event.body["event"]) for event in sorted(undone, key=order)]
    void: set[str] = set()
    for undo, target in reversed(undos):
        if undo not in void:
            void.add(target)
    return void


ABOUT = ("memory", "old", "new", "loser", "winner", "src", "dst")
"""Keys of an event's body that name a memory."""
SEVERAL = ("memories", "used", "mentions")
"""Keys that name several."""
WITHDRAWN = ("retract", "forget")
"""What takes a memory away belongs everywhere: a copy may still be on its way."""
PATHS = "path/"
"""Settings that say which way copies came to one member; they stay with it."""
UNPLACED = "unplaced/"
"""Settings that list the memories a member answers for until their owners have them."""


def subjects_of(event: Event) -> tuple[str, ...]:
    """The memories an event speaks of."""
    if event.kind == "remember":
        return (event.id,)
    found = [event.body[key] for key in ABOUT if isinstance(event.body.get(key), str)]
    for key in SEVERAL:
        found += [name for name in event.body.get(key, ()) if isinstance(name, str)]
    return tuple(found)


def belongs(event: Event, here: Callable[[str], bool]) -> bool:
    """Whether a member should have an event; `here` says whether it holds a memory or should."""
    if event.kind in WITHDRAWN:
        return True
    if event.kind == "setting":
        return not stays(event)
    return any(here(name) for name in subjects_of(event))


def stays(event: Event) -> bool:
    """Whether an event is a member's own business."""
    return event.kind == "setting" and str(event.body.get("key", "")).startswith((PATHS, UNPLACED))


def dot_of(memory_id: str) -> tuple[str, int]:
    """The writer of a memory and its number there; -1 for what is no id."""
    actor, _, counter = memory_id.rpartition("-")
    return actor, int(counter) if counter.isdigit() else -1


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
