"""What was written along with merges: links that went over to the winner, and where later merges led them on."""

from __future__ import annotations

from collections.abc import Sequence

from skep.model import Event
from skep.storage.log import Log
from skep.storage.subjects import mentioned, voided

Ends = tuple[str, str, str]


def went_along(log: Log, merge: Event) -> list[Event]:
    """The events that were written with a merge, and what later merges made of its links."""
    about = {event.id: event for name in mentioned(merge) for event in log.of(name)}
    moved = [event for event in about.values() if event.body.get("along") == merge.id]
    return [*moved, *_led_on(log, moved)]


def moved_with(log: Log, memory_id: str) -> list[Event]:
    """The events in force by which links to a copy were moved when it was merged, and then led on."""
    merges = [
        event for event in log.of(memory_id) if event.kind == "merge" and event.body["loser"] == memory_id
    ]
    if not merges:
        return []
    void = voided(log.undos())
    moved = [
        event for merge in merges for event in went_along(log, merge) if event.kind in ("link", "unlink")
    ]
    return [event for event in {event.id: event for event in moved}.values() if event.id not in void]


def _led_on(log: Log, moved: Sequence[Event]) -> list[Event]:
    """The links that stand where later merges led these to; a link that was there for another reason too stays."""
    waiting = [event for event in moved if event.kind == "link"]
    found: dict[str, Event] = {}
    void = voided(log.undos()) if waiting else set[str]()
    while waiting:
        link = waiting.pop()
        ends = _ends(link)
        about = {event.id: event for name in ends[:2] for event in log.of(name) if event.id not in void}
        same = {event.id for event in about.values() if event.kind == "link" and _ends(event) == ends}
        if same - found.keys() - {event.id for event in moved}:
            continue
        for merge in about.values():
            loser = merge.body["loser"] if merge.kind == "merge" else None
            if loser in ends[:2]:
                onward = _led_by(log, merge, ends)
                waiting += [event for event in onward if event.id not in found]
                found |= {event.id: event for event in onward}
    return list(found.values())


def _led_by(log: Log, merge: Event, ends: Ends) -> list[Event]:
    """The links by which a merge replaced one that led to its copy or came from it."""
    loser, winner = merge.body["loser"], merge.body["winner"]
    there = tuple(winner if name == loser else name for name in ends)
    return [
        event
        for event in log.of(winner)
        if event.kind == "link" and event.body.get("along") == merge.id and _ends(event) == there
    ]


def _ends(link: Event) -> Ends:
    return link.body["src"], link.body["dst"], link.body["rel"]
