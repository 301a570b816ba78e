"""Decisions about memories: the events that carry one out, and what people decided before.

A judge or a person decides about two memories: MERGE, SUPERSEDED, CONTRADICTION or KEEP_BOTH. A contradiction halves
the confidence of both; a later decision undoes that dispute, as if it had never been. What a person brought back
(restore, undo) rules leave alone until something new is told. All of it stands in the log, so that every replica comes
to the same answer. Maintenance, the façade (`bank/`) and the judge queue call this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from skep.engine.engine import Engine, moved_with
from skep.events import Order, mentioned, merge_body, order, voided
from skep.lifecycle.judge import Case, Decision
from skep.model import CURRENT, Event, Memory
from skep.semantics.conflict_policy import noted
from skep.semantics.link_graph import CONTRADICTS, UPDATES, chain, opposing
from skep.storage.sqlite_store import Plan


def carried_out(case: Case, decision: Decision) -> Decision:
    """The decision as it is carried out: nothing replaces a pinned memory, so both are kept then."""
    stays = {"SUPERSEDED": case.older.pinned, "MERGE": case.older.pinned and case.newer.pinned}
    return "KEEP_BOTH" if stays.get(decision) else decision


def plans_for(engine: Engine, case: Case, decision: Decision, by: str) -> list[Plan]:
    """The events that carry out a decision; none if the memories have moved on since it was asked for."""
    older, newer = case.older, case.newer
    stand = older.status in CURRENT and newer.status in CURRENT
    if decision in ("MERGE", "CONTRADICTION") and not stand:
        return []
    if decision == "SUPERSEDED" and (older.status not in CURRENT or older.id in chain(newer.id, engine.get)):
        return []
    match carried_out(case, decision):
        case "MERGE":
            winner, loser = best_first((older, newer))
            return [
                *reconciled(engine, older.id, newer.id, by),
                *merge_plans(engine, winner, [loser], reason=by),
            ]
        case "SUPERSEDED":
            replaced = {"old": older.id, "new": newer.id, "reason": by}
            return [*taken_back(engine, newer.id, older.id, by), ("supersede", replaced)]
        case "CONTRADICTION":
            return [*contradiction_plans(older, newer), *opposing(engine.setting)]
        case "KEEP_BOTH":
            return [*reconciled(engine, older.id, newer.id, by), *_both_current(engine, older.id, newer.id)]


def _both_current(engine: Engine, a: str, b: str) -> list[Plan]:
    """The events after which neither of two memories counts as the newer value of the other."""
    ends = [(link.src, link.dst) for link in engine.links(a, rel=UPDATES) if b in (link.src, link.dst)]
    return [("unlink", {"src": src, "dst": dst, "rel": UPDATES}) for src, dst in ends]


def best_first(memories: Iterable[Memory]) -> list[Memory]:
    """The one to keep comes first: pinned, then more confident, then better evidenced, then older."""
    return sorted(memories, key=lambda m: (not m.pinned, -m.confidence, -len(m.evidence), m.created_at, m.id))


def merge_plans(
    engine: Engine, winner: Memory, losers: Sequence[Memory], *, reason: str | None = None
) -> list[Plan]:
    """The events that make copies one: all that was noted of them, and what led to a copy leads to the winner.

    What a copy contradicts, the winner contradicts. What goes with a merge names it (`along`), so that undoing the
    merge takes it back too; what several copies had noted goes with none of them. Nothing that a copy of another
    scope noted of itself goes over.
    """
    plans: list[Plan] = []
    gone = {winner.id, *(loser.id for loser in losers)}
    for loser in losers:
        body = merge_body(loser, winner.id)
        plans.append(("merge", body if reason is None else body | {"reason": reason}))
        moved = _moved(engine, winner.id, loser.id, gone)
        if len(losers) == 1:
            moved += _revised(winner, losers)
        plans += [(kind, _along(body, back)) for back, (kind, body) in enumerate(moved, 1)]
    return plans if len(losers) == 1 else [*_revised(winner, losers), *plans]


def _along(body: dict[str, object], back: int) -> Callable[[Sequence[str]], dict[str, object]]:
    """The body of an event that goes with the one written so many before it."""
    return lambda ids: body | {"along": ids[-back]}


def _moved(engine: Engine, winner: str, loser: str, gone: set[str]) -> list[tuple[str, dict[str, object]]]:
    """The events after which what led to a copy leads to the winner, and what it contradicts the winner contradicts."""
    plans: list[tuple[str, dict[str, object]]] = []
    for link in engine.links(loser, direction="in"):
        if link.rel in ("supersedes", "duplicate_of") or link.src == winner:
            continue
        moved: dict[str, object] = {
            "src": link.src,
            "dst": winner,
            "rel": link.rel,
            "strength": link.strength,
        }
        plans.append(("unlink", {"src": link.src, "dst": loser, "rel": link.rel}))
        plans.append(("link", moved))
    for link in engine.links(loser, rel=CONTRADICTS, direction="out"):
        if link.dst not in gone:
            plans.append(
                ("link", {"src": winner, "dst": link.dst, "rel": CONTRADICTS, "strength": link.strength})
            )
    return plans


def led_back(engine: Engine, memory_id: str) -> list[Plan]:
    """The events after which what led to a copy before it was merged leads to it again; they go with a restore."""
    return [
        ("undo", _along({"event": event.id, "mentions": list(mentioned(event))}, back))
        for back, event in enumerate(moved_with(engine.log, memory_id), 1)
    ]


def _revised(winner: Memory, losers: Sequence[Memory]) -> list[tuple[str, dict[str, object]]]:
    """The event by which the winner takes over what its copies noted of themselves; none where that is nothing."""
    changes = noted(winner, [loser for loser in losers if loser.scope == winner.scope])
    return [("revise", {"memory": winner.id, "changes": changes})] if losers and changes else []


def contradiction_plans(older: Memory, newer: Memory) -> list[Plan]:
    """Both lose half of their confidence, once, and are linked; a pinned one loses nothing."""
    disputes: list[Plan] = [
        ("dispute", {"memory": memory.id, "by": other.id})
        for memory, other in ((older, newer), (newer, older))
        if not memory.pinned
    ]
    link = {"src": newer.id, "dst": older.id, "rel": CONTRADICTS, "strength": 1.0}
    return [*disputes, ("link", link)]


def reconciled(engine: Engine, a: str, b: str, why: str) -> list[Plan]:
    """The events after which two memories do not contradict each other."""
    plans = [*taken_back(engine, a, b, why), *taken_back(engine, b, a, why)]
    if plans:
        links = engine.links(a, rel=CONTRADICTS)
        ends = [(link.src, link.dst) for link in links if {link.src, link.dst} == {a, b}]
        plans += [("unlink", {"src": src, "dst": dst, "rel": CONTRADICTS}) for src, dst in ends]
    return plans


def taken_back(engine: Engine, memory_id: str, other: str, why: str) -> list[Plan]:
    """The events that give a memory back what a contradiction with another one cost it."""
    memory = engine.get(memory_id)
    if memory is None or not memory.disputes:
        return []
    events = engine.log.of(memory_id)
    void = voided(events)
    return [
        ("undo", {"event": event.id, "mentions": [memory_id], "reason": why})
        for event in disputes_by(events, memory_id, (other,))
        if event.id not in void
    ]


def disputes_by(events: Iterable[Event], memory_id: str, others: Iterable[str]) -> list[Event]:
    """The events by which some memories contradicted another."""
    names = set(others)
    return [
        event
        for event in events
        if event.kind == "dispute" and event.body["memory"] == memory_id and event.body.get("by") in names
    ]


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
    """Decisions of people about the memories of a bank, read as they are asked for."""

    def __init__(self, engine: Engine) -> None:
        self._log = engine.log
        self._spoken: dict[str, bool] = {}
        self._events: dict[str, list[Event]] = {}

    def look(self, ids: Iterable[str]) -> None:
        """Find out about many memories at once."""
        new = [i for i in dict.fromkeys(ids) if i not in self._spoken]
        found = self._log.decided(new)
        self._spoken |= {i: i in found for i in new}

    def stands(self, memory_id: str, beside: str) -> bool:
        """True if somebody brought a memory back, and neither it nor the one beside it was told anything since."""
        back = self._back(memory_id)
        return back > NEVER and back > max(self._told(memory_id), self._told(beside))

    def unmerged(self, memory_id: str) -> bool:
        """True if somebody took a merge of a memory back, and its words have not changed since."""
        back = self._back(memory_id, merged=True)
        return back > NEVER and back > self._told(memory_id)

    def trusted(self, memory_id: str) -> bool:
        """True if somebody brought a memory back, and nothing spoke against it since."""
        back = self._back(memory_id)
        if back == NEVER:
            return False
        events = self._of(memory_id)
        void = voided(events)
        return back > doubted(memory_id, [event for event in events if event.id not in void])

    def kept(self, memory_id: str, *fields: str) -> bool:
        """True if somebody brought a memory back, and none of these fields was revised since."""
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
