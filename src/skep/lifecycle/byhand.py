"""What people decided about two memories or one: rules do not take it back until something new is learnt.

Whoever restores a memory, or undoes what replaced it or set it aside, has seen what there was to see. Only what was
told afterwards reopens the question. All of it stands in the log, so every replica comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skep.engine import Engine
from skep.lifecycle.deciding import disputes_by
from skep.model import Event
from skep.storage.subjects import Order, order, voided

NEVER: Order = (-1, "", 0)
_SAID = ("text", "polarity")
"""The fields that say what a memory says."""
_ROLE = {"supersede": "old", "merge": "loser", "mark": "memory"}
"""By kind of event: where it names the memory whose standing it changes."""


def told(memory_id: str, events: Iterable[Event]) -> Order:
    """When a memory was last given its words."""
    said = [
        order(event)
        for event in events
        if (event.kind == "remember" and event.id == memory_id)
        or (event.kind == "revise" and any(name in event.body.get("changes", {}) for name in _SAID))
    ]
    return max(said, default=NEVER)


def brought_back(memory_id: str, events: Sequence[Event], *, merged: bool = False) -> Order:
    """When somebody last made a memory current again; with `merged`, after it had been merged into another."""
    void = voided(events)
    by_id = {event.id: event for event in events}
    merges = [order(e) for e in events if e.kind == "merge" and e.body["loser"] == memory_id]
    found = [NEVER]
    for event in events:
        if event.id in void:
            continue
        if event.kind == "undo":
            target = by_id.get(event.body["event"])
            if target is None or target.body.get(_ROLE.get(target.kind, "")) != memory_id:
                continue
            back = target.kind == "merge" or not merged
        else:
            active = event.kind == "mark" and event.body["status"] == "active"
            if not (active or event.kind == "restore") or event.body["memory"] != memory_id:
                continue
            back = any(at < order(event) for at in merges) or not merged
        if back:
            found.append(order(event))
    return max(found)


def doubted(memory_id: str, events: Sequence[Event]) -> Order:
    """When something last spoke against a memory, or its words or its confidence were set."""
    against = [
        order(event)
        for event in events
        if event.kind == "dispute"
        or (event.kind == "outcome" and not event.body["success"])
        or (event.kind == "revise" and "confidence" in event.body.get("changes", {}))
    ]
    return max([told(memory_id, events), *against])


class ByHand:
    """What people decided about the memories of a bank, as far as it is asked for."""

    def __init__(self, engine: Engine) -> None:
        self._log = engine.store.log
        self._spoken: dict[str, bool] = {}
        self._events: dict[str, list[Event]] = {}

    def look(self, ids: Iterable[str]) -> None:
        """Find out about many memories at once."""
        new = [i for i in dict.fromkeys(ids) if i not in self._spoken]
        found = self._log.decided(new)
        self._spoken |= {i: i in found for i in new}

    def stands(self, memory_id: str, beside: str) -> bool:
        """Whether somebody brought a memory back, and neither it nor the one beside it was told anything since."""
        back = self._back(memory_id)
        return back > NEVER and back > max(self._told(memory_id), self._told(beside))

    def unmerged(self, memory_id: str) -> bool:
        """Whether somebody took a merge of a memory back, and its words have not changed since."""
        back = self._back(memory_id, merged=True)
        return back > NEVER and back > self._told(memory_id)

    def trusted(self, memory_id: str, beside: Iterable[str] = ()) -> bool:
        """Whether somebody brought a memory back, and nothing spoke against it since but what is named."""
        back = self._back(memory_id)
        if back == NEVER:
            return False
        events = self._of(memory_id)
        left_out = voided(events) | {event.id for event in disputes_by(events, memory_id, beside)}
        return back > doubted(memory_id, [event for event in events if event.id not in left_out])

    def kept(self, memory_id: str, *fields: str) -> bool:
        """Whether somebody brought a memory back, and none of these fields was revised since."""
        back = self._back(memory_id)
        return back > NEVER and not any(
            order(event) > back and not event.body.get("changes", {}).keys().isdisjoint(fields)
            for event in self._of(memory_id)
            if event.kind == "revise"
        )

    def _back(self, memory_id: str, *, merged: bool = False) -> Order:
        if memory_id not in self._spoken:
            self.look((memory_id,))
        return (
            brought_back(memory_id, self._of(memory_id), merged=merged) if self._spoken[memory_id] else NEVER
        )

    def _told(self, memory_id: str) -> Order:
        return told(memory_id, self._of(memory_id))

    def _of(self, memory_id: str) -> list[Event]:
        if memory_id not in self._events:
            self._events[memory_id] = self._log.of(memory_id)
        return self._events[memory_id]
