"""Events: a typed struct for the body of every kind, their order, their subjects, undos, and the check of foreign ones.

The log, the fold, the bank's verbs and replication use this. Pure. In an `Event` and in the log a body is plain JSON,
so that kinds and fields of a newer skep survive a round trip; `content` reads it as the struct of its kind, and `plan`
makes a body from a struct. `checked` looks at events from elsewhere before they are let in: a peer may send anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from skep.errors import CorruptBankError, OutOfRangeError, SyncError
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
    return (f"{SETTING}{event.body['key']}",) if event.kind == "setting" else subjects_of(event)


def merge_body(loser: Memory, winner: str) -> dict[str, Any]:
    """The body of a merge: the copy, the memory that takes its place, and the evidence and record that go over."""
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


VERSIONED = ("revise", "retract", "restore", "supersede", "merge", "undo")
"""Kinds after which a memory has another version; not a mark, by which maintenance writes down what reads show."""
ABOUT = ("memory", "old", "new", "loser", "winner", "src", "dst")
"""Keys of an event's body that name a memory."""
SEVERAL = ("memories", "used", "mentions")
"""Keys that name several."""
WITHDRAWN = ("retract", "forget")
"""Kinds that take a memory away belong everywhere: a copy may still be on its way."""
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
    """True if a member should have an event; `here` tells if it holds a memory or should."""
    if event.kind in WITHDRAWN:
        return True
    if event.kind == "setting":
        return not stays(event)
    return any(here(name) for name in subjects_of(event))


def stays(event: Event) -> bool:
    """True if an event is a member's own business."""
    return event.kind == "setting" and str(event.body.get("key", "")).startswith((PATHS, UNPLACED))


def dot_of(memory_id: str) -> tuple[str, int]:
    """The writer of a memory and its number there; -1 for what is no id."""
    actor, _, counter = memory_id.rpartition("-")
    return actor, int(counter) if counter.isdigit() else -1


Id = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1 << 20)]
Unit = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
Polarity = Annotated[int, msgspec.Meta(ge=-1, le=1)]
Level = Annotated[int, msgspec.Meta(ge=0, le=100)]
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Moment = Annotated[float, msgspec.Meta(ge=-62_135_596_800.0, lt=253_402_300_800.0)]
_BAD = re.compile("[\x00\ud800-\udfff]")


class Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of an event. Fields of a newer skep are left out of the struct and stay in the log."""


class ScopeParts(msgspec.Struct, forbid_unknown_fields=True):
    """A scope as it stands in a body."""

    user: Id | None = None
    project: Id | None = None
    session: Id | None = None


class Remember(Body):
    """A new memory; its id is that of the event."""

    text: Text | None = None
    """Absent where it was forgotten."""
    kind: Kind = "fact"
    title: str | None = None
    domain: str | None = None
    agent: str | None = None
    scope: ScopeParts | None = None
    tags: list[str] = []
    source: str | None = None
    confidence: Unit = 0.8
    importance: Unit = 0.5
    polarity: Polarity = 0
    pinned: bool = False
    level: Level = 0
    created_at: Moment | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    expires_at: Moment | None = None
    ttl: Finite | None = None
    evidence: list[str] = []
    metadata: dict[str, Any] = {}
    key: str | None = None


class Changed(Body):
    """The fields that a revision changes. A field that is UNSET stays as it is."""

    text: Text | UnsetType = UNSET
    title: str | UnsetType | None = UNSET
    domain: str | UnsetType | None = UNSET
    agent: str | UnsetType | None = UNSET
    scope: ScopeParts | UnsetType | None = UNSET
    tags: list[str] | UnsetType = UNSET
    source: str | UnsetType | None = UNSET
    confidence: Unit | UnsetType = UNSET
    importance: Unit | UnsetType = UNSET
    polarity: Polarity | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    level: Level | UnsetType = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_to: Moment | UnsetType | None = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    ttl: Finite | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    evidence: list[str] | UnsetType = UNSET
    key: str | UnsetType | None = UNSET


class Revise(Body):
    """Changes to the fields of a memory."""

    memory: Id
    changes: Changed | None = None


class Retract(Body):
    """A memory is taken back; `observed` lists the additions that its author had seen."""

    memory: Id
    observed: list[str] = []
    by: str | None = None


class Restore(Body):
    """A memory is current again."""

    memory: Id
    by: str | None = None


class Mark(Body):
    """A memory is set aside, or made active again."""

    memory: Id
    status: str


class Supersede(Body):
    """A newer memory replaces an older one."""

    old: Id
    new: Id


class Merge(Body):
    """A copy is folded into the memory that is kept, with its evidence and record."""

    loser: Id
    winner: Id
    evidence: list[str] | None = None
    """None where the merge only inherits what a forgotten memory had replaced."""
    successes: Count = 0
    failures: Count = 0


class Evidence(Body):
    """Sources that support a memory; each counts once."""

    memory: Id
    sources: list[str] = []
    by: str | None = None
    counts: list[str] | None = None
    """The sources that lead to a root of their own, and so raise the confidence; None for all."""


class Confirm(Body):
    """Somebody independent says the same."""

    memory: Id
    by: str | None = None
    weight: Unit = 1.0
    """The trust in who says so, where a hive knows it."""


class Dispute(Body):
    """A memory or somebody contradicts it."""

    memory: Id
    by: str | None = None
    agent: str | None = None
    """In a hive, whose word it is: it counts once, whatever it names as `by`."""
    weight: Unit = 1.0


class Linked(Body):
    """A link between two memories (`link`), or its end (`unlink`)."""

    src: Id
    dst: Id
    rel: Id
    strength: Unit = 1.0


class Outcome(Body):
    """The end of a task, and the memories that were used in it, shown for it or withheld."""

    success: bool
    used: list[str] = []
    task: str = ""
    steps: list[str] = []
    metrics: dict[str, Finite] = {}
    task_type: str | None = None
    domain: str | None = None
    shown: list[str] = []
    withheld: list[str] = []
    withhold: Unit | None = None
    by: str | None = None
    """In a hive, who reports it. Of what others wrote, an agent's reports count as one."""
    weight: Unit = 1.0


class Propose(Body):
    """A change that an agent asks for, to a memory of another. It has no effect until somebody approves it."""

    memory: Id
    act: str
    """The verb, such as `revise`."""
    given: dict[str, Any] = {}
    by: str | None = None


class Use(Body):
    """Counts of memories that were handed out."""

    counts: dict[str, Count]
    at: Moment | None = None


class Forget(Body):
    """Memories are erased for good."""

    memories: list[Id]


class SettingChanged(Body):
    """A setting has a value; None removes it."""

    key: Id
    value: Any


class Undo(Body):
    """An event counts as if it had never been."""

    event: Id
    mentions: list[str] = []


BODIES: dict[str, type[Body]] = {
    "remember": Remember,
    "revise": Revise,
    "retract": Retract,
    "restore": Restore,
    "evidence": Evidence,
    "confirm": Confirm,
    "dispute": Dispute,
    "mark": Mark,
    "supersede": Supersede,
    "merge": Merge,
    "link": Linked,
    "unlink": Linked,
    "outcome": Outcome,
    "use": Use,
    "forget": Forget,
    "setting": SettingChanged,
    "undo": Undo,
    "propose": Propose,
}
"""The struct of each kind. A kind that is not here comes from a newer skep: it is kept, and has no effect."""
KINDS_OF: dict[type[Body], str] = {body: kind for kind, body in BODIES.items() if kind != "unlink"}


def content(event: Event) -> Body | None:
    """The body of an event as the struct of its kind; None for a kind of a newer skep.

    >>> content(Event(actor="a", counter=1, hlc=0, kind="confirm", body={"memory": "a-1", "mood": "sure"}))
    Confirm(memory='a-1', by=None, weight=1.0)
    """
    shape = BODIES.get(event.kind)
    try:
        return None if shape is None else msgspec.convert(event.body, shape)
    except msgspec.ValidationError as error:
        raise CorruptBankError(
            f"event {event.id} ({event.kind}) is damaged ({error}); put a backup in place with `skep backup --restore`,"
            " or save what can be read with `skep export --salvage`"
        ) from error


def plan(body: Body) -> tuple[str, dict[str, Any]]:
    """The kind and the plain body of an event that is about to be written; defaults are left out.

    >>> plan(Confirm(memory="a-1", by="ana"))
    ('confirm', {'memory': 'a-1', 'by': 'ana'})
    """
    return KINDS_OF[type(body)], msgspec.to_builtins(body)


def checked(event: Event) -> Event:
    """The event itself, or a `SyncError` that says what is wrong with it."""
    if not isinstance(event.actor, str) or not 1 <= len(event.actor) <= 200 or _BAD.search(event.actor):  # pyright: ignore
        raise SyncError("an event with a malformed actor was refused; nothing of this batch was taken")
    whole = isinstance(event.counter, int) and isinstance(event.hlc, int)  # pyright: ignore
    if not whole or not 0 < event.counter < 1 << 53 or not 0 <= event.hlc < 1 << 63:
        raise SyncError(
            f"{event.actor}-{event.counter} has a counter or stamp out of range; nothing was taken"
        )
    named = isinstance(event.kind, str) and 1 <= len(event.kind) <= 200 and not _BAD.search(event.kind)  # pyright: ignore
    signed = event.signature is None or (isinstance(event.signature, bytes) and len(event.signature) <= 1024)  # pyright: ignore
    if not named or not signed or not isinstance(event.body, dict):  # pyright: ignore
        raise SyncError(
            f"{event.id} has a malformed kind, signature or body; nothing of this batch was taken"
        )
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
