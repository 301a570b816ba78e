"""What events speak of, in which order they count, and which of them are undone. Pure.

Apart from the fold, which only a process that writes needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.model import Event, Memory

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
