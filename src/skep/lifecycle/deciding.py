"""What a decision on two memories comes to: the events that carry it out, and those that take a penalty back.

A contradiction costs both memories half of their confidence before anybody has decided which of them holds. Whoever is
found to hold gets it back: the dispute is undone, so that it is as if it had never been.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.engine import Engine
from skep.lifecycle.judge import Case, Decision
from skep.model import Event, Memory
from skep.storage.fold import voided
from skep.storage.sqlite import Plan

CONTRADICTS = "contradicts"


def plans_for(engine: Engine, case: Case, decision: Decision, by: str) -> list[Plan]:
    """The events that carry out a decision."""
    older, newer = case.older, case.newer
    match decision:
        case "MERGE":
            winner, loser = best_first(older, newer)
            evidence = list(dict.fromkeys((loser.id, *loser.evidence)))
            merged = {"loser": loser.id, "winner": winner.id, "evidence": evidence, "reason": by}
            return [*reconciled(engine, older.id, newer.id, by), ("merge", merged)]
        case "SUPERSEDED":
            replaced = {"old": older.id, "new": newer.id, "reason": by}
            return [*taken_back(engine, newer.id, older.id, by), ("supersede", replaced)]
        case "CONTRADICTION":
            return contradiction_plans(older, newer)
        case "KEEP_BOTH":
            return reconciled(engine, older.id, newer.id, by)


def contradiction_plans(older: Memory, newer: Memory) -> list[Plan]:
    """Both lose half of their confidence, once, and are linked."""
    return [
        ("dispute", {"memory": older.id, "by": newer.id}),
        ("dispute", {"memory": newer.id, "by": older.id}),
        ("link", {"src": newer.id, "dst": older.id, "rel": CONTRADICTS, "strength": 1.0}),
    ]


def reconciled(engine: Engine, a: str, b: str, why: str) -> list[Plan]:
    """The events after which two memories do not contradict each other."""
    plans = [*taken_back(engine, a, b, why), *taken_back(engine, b, a, why)]
    if plans:
        links = engine.store.links(a, rel=CONTRADICTS)
        ends = [(link.src, link.dst) for link in links if {link.src, link.dst} == {a, b}]
        plans += [("unlink", {"src": src, "dst": dst, "rel": CONTRADICTS}) for src, dst in ends]
    return plans


def taken_back(engine: Engine, memory_id: str, other: str, why: str) -> list[Plan]:
    """The events that give a memory back what a contradiction with another one cost it."""
    memory = engine.store.get(memory_id)
    if memory is None or not memory.disputes:
        return []
    events = engine.store.log.of(memory_id)
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


def best_first(a: Memory, b: Memory) -> tuple[Memory, Memory]:
    """The one to keep: more confident, then better evidenced, then older."""
    ranked = sorted((a, b), key=lambda m: (-m.confidence, -len(m.evidence), m.created_at, m.id))
    return ranked[0], ranked[1]
