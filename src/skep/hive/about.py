"""Which memories an event speaks of, and so to whom it belongs."""

from __future__ import annotations

from collections.abc import Callable

from skep.model import Event

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
