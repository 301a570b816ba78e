"""Events of other replicas: which of them are new, which can be taken now, and which have to wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from skep.model import Event
from skep.storage.log import Log


class Arrived(NamedTuple):
    """Events that came, and those that waited, sorted out."""

    ready: list[Event]
    """In the order in which they are taken."""
    waiting: list[Event]
    """In the order of actors and counters."""
    known: int
    """How many were here already."""
    gaps: bool
    """Whether some before these may be missing."""


def arrived(log: Log, events: Iterable[Event], *, horizon: int, partial: bool) -> Arrived:
    """Sort out what came. Call inside a transaction.

    Args:
        log: What is here.
        events: Those that came.
        horizon: Later stamps wait for their time.
        partial: Events with a gap before them are taken at once, for it may never be filled.
    """
    versions = log.versions()
    waiting = {(event.actor, event.counter): event for event in log.held()}
    known = 0
    scattered = {} if partial else log.scattered()
    for event in events:
        if (
            event.counter <= versions.get(event.actor, 0)
            or (event.actor, event.counter) in waiting
            or event.counter in scattered.get(event.actor, ())
            or (partial and log.has(event.actor, event.counter))
        ):
            known += 1
        else:
            waiting[event.actor, event.counter] = event
    ready: list[Event] = []
    for key in sorted(waiting):
        event = waiting[key]
        while versions.get(event.actor, 0) + 1 in scattered.get(event.actor, ()):
            versions[event.actor] = versions.get(event.actor, 0) + 1
        follows = partial or event.counter == versions.get(event.actor, 0) + 1
        if follows and event.hlc <= horizon:
            versions[event.actor] = max(event.counter, versions.get(event.actor, 0))
            ready.append(event)
    for event in ready:
        del waiting[event.actor, event.counter]
    ready.sort(key=lambda event: (event.hlc, event.actor, event.counter))
    still = [waiting[key] for key in sorted(waiting)]
    return Arrived(_per_actor(ready), still, known, partial or bool(scattered))


def _per_actor(events: list[Event]) -> list[Event]:
    """Keep each actor's events in the order of its counters, even where its clock ran backwards."""
    queues: dict[str, list[Event]] = {}
    for event in events:
        queues.setdefault(event.actor, []).append(event)
    for queue in queues.values():
        queue.sort(key=lambda event: event.counter, reverse=True)
    return [queues[event.actor].pop() for event in events]
