"""Plans of the maintenance steps `merge` and `conflicts`: what rules do about pairs of memories that conflict.

Rules merge only copies: the same words but for case, punctuation and articles. An update gets a link `updates` from
the newer memory to the older one, so that recall puts the newer one first; nothing is replaced or hidden. Every other
conflict waits for a judge, and both sides keep their confidence until somebody decides. Maintenance calls this; it
reads through the engine and writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from skep.clock import AHEAD_SECONDS
from skep.engine.engine import Engine
from skep.lifecycle.decisions import ByHand, best_first, contradiction_plans, merge_plans, reconciled
from skep.lifecycle.judge import Case
from skep.lifecycle.judgement_queue import Judgement, dropped, queue_plan
from skep.lifecycle.maintenance_run import Action
from skep.lifecycle.similar_memories import Union
from skep.model import Conflict, Memory
from skep.runtime import gc_paused
from skep.semantics.find_conflicts import (
    COMPARED,
    NEAR,
    age,
    bare_words,
    by_id,
    holds,
    judge_many,
    nearest,
    older_first,
    pairs_near,
    reader_for,
    same_words,
)
from skep.semantics.link_graph import MARKED, UPDATES, opposing
from skep.storage.sqlite_store import Plan

CLEAR_CONFLICT = 0.90
CONFIDENT = 0.6
"""At least one of two duplicates must be this sure to be merged by rule."""
UNSURE = 0.65
"""Similarity from which a pair waits for a judge where the comparer is not sure that there is nothing, either."""
MOST_WAITING = 4
"""In how many of the unsure pairs of a run a memory may be."""
EXTRACTED = "maintenance: extracted"
"""Source of the facts that maintenance extracts from episodes."""


Pair = tuple[Memory, Memory]
Compared = tuple[Memory, Memory, float]
"""A pair, the older one first, and how near they are."""


class Sorted(msgspec.Struct, kw_only=True):
    """Conflicts by what is to be done with them."""

    duplicates: list[Pair] = msgspec.field(default_factory=list[Pair])
    clear: list[Conflict] = msgspec.field(default_factory=list[Conflict])
    unclear: list[Conflict] = msgspec.field(default_factory=list[Conflict])


def pairs_in_slices(
    engine: Engine, memories: Sequence[Memory], decided: set[str], size: int
) -> list[tuple[int, list[Compared]]]:
    """The pairs to compare, in slices of so many memories; with each the change up to which it has looked at all.

    A pair is in the slice of the one of its memories that changed first, so a run that stops after a slice has judged
    every pair of the memories that changed before. Pairs that were looked at before (`decided`) are passed over. Only
    memories of one scope are compared: what is private to one does not change what everybody sees.
    """
    now = engine.now()
    with (
        gc_paused()
    ):  # thousands of small values are made that stay: looking for garbage among them finds none
        near = pairs_near(engine, memories, threshold=NEAR, decided=decided)
        pairs = nearest([(*_older_first(one, other, now), near) for one, other, near in near], len(memories))
    changed = engine.changes_of([memory.id for memory in memories])
    order = sorted(changed, key=changed.__getitem__)
    slice_of = {memory_id: place // size for place, memory_id in enumerate(order)}
    slices: list[list[Compared]] = [[] for _ in range(0, max(1, len(order)), size)]
    for pair in pairs:
        slices[min(slice_of[each.id] for each in pair[:2] if each.id in slice_of)].append(pair)
    ends = [
        changed[order[min(len(order), end) - 1]] if order else 0
        for end in range(size, len(order) + size, size)
    ]
    return list(zip(ends or [0], slices, strict=True))


def sort_conflicts(
    engine: Engine, pairs: Sequence[Compared], total: int, progress: Callable[[int], None]
) -> Sorted:
    """Compare pairs and sort what is in conflict; `progress` is told how many more are done.

    `total` is the number of pairs of the whole run, of which a model reads so many at most.
    """
    found = Sorted()
    read = reader_for(engine, total)
    for start in range(0, len(pairs), COMPARED):
        part = pairs[start : start + COMPARED]
        with gc_paused():
            judged = judge_many(part, reader=read, unsure=UNSURE)
        for conflict in judged:
            if conflict is None:
                continue
            other = conflict.memory
            if conflict.kind == "duplicate" and other is not None and mergeable(conflict.existing, other):
                found.duplicates.append((conflict.existing, other))
            elif conflict.kind != "duplicate" and conflict.confidence >= CLEAR_CONFLICT:
                found.clear.append(conflict)
            else:
                found.unclear.append(conflict)
        progress(len(part))
    return found


def _older_first(a: Memory, b: Memory, now: float) -> tuple[Memory, Memory]:
    """Two memories by age; most were not made at one moment."""
    if a.created_at == b.created_at or max(a.created_at, b.created_at) > now:
        return older_first(a, b, now)
    return (a, b) if a.created_at < b.created_at else (b, a)


def _replaces(newer: Memory, older: Memory, now: float) -> bool:
    """True if one memory is known to be the later one: by its date, or by the order in which its writer wrote."""
    dated = max(newer.created_at, older.created_at) <= now + AHEAD_SECONDS
    if dated and newer.created_at != older.created_at:
        return newer.created_at > older.created_at
    return age(newer)[1] == age(older)[1] and age(newer)[2] > age(older)[2]


def mergeable(a: Memory, b: Memory) -> bool:
    """True if rules may merge two memories: copies of one statement, of one kind, scope, domain and time."""
    return (
        (a.kind, a.scope, a.key) == (b.kind, b.scope, b.key)  # a key is somebody's name for one of them
        and a.polarity * b.polarity != -1
        and _same_domain(a, b)
        and (a.valid_from, a.valid_to, a.expires_at) == (b.valid_from, b.valid_to, b.expires_at)
        and max(a.confidence, b.confidence) > CONFIDENT
        and not (a.pinned and b.pinned)
        and same_words(a.text, b.text)
    )


def copies(memories: Sequence[Memory]) -> list[Pair]:
    """Copies among some memories: each with the one to keep. Found by their words, so that many crowd out nothing."""
    groups: dict[tuple[object, ...], list[Memory]] = {}
    for memory in memories:
        key = memory.kind, memory.scope, memory.polarity, *bare_words(memory.text)
        groups.setdefault(key, []).append(memory)
    found = (best_first(group) for group in groups.values() if len(group) > 1)
    return [(best, other) for best, *others in found for other in others if mergeable(best, other)]


def merge(engine: Engine, pairs: Sequence[Pair]) -> list[Action]:
    """Plan one merge per group of copies: the most confident stays, with all the evidence and incoming links."""
    union = Union()
    memories: dict[str, Memory] = {}
    for a, b in pairs:
        memories |= {a.id: a, b.id: b}
        union.join(a.id, b.id)
    by_hand = ByHand(engine)
    by_hand.look(memories)
    merges = [_merge_group(engine, [memories[i] for i in group], by_hand) for group in union.groups()]
    return [action for action in merges if action.plans]


def _merge_group(engine: Engine, group: list[Memory], by_hand: ByHand) -> Action:
    winner, *others = best_first(group)
    losers = [m for m in others if not m.pinned and _same_domain(m, winner) and not by_hand.unmerged(m.id)]
    return Action(
        step="merge",
        why=f"{len(losers)} {'copy' if len(losers) == 1 else 'copies'} of {winner.text!r}",
        memories=tuple(m.id for m in group),
        plans=tuple(merge_plans(engine, winner, losers)),
    )


def _same_domain(a: Memory, b: Memory) -> bool:
    return a.domain is None or b.domain is None or a.domain == b.domain


def undecided(engine: Engine, found: Sorted) -> Sorted:
    """Conflicts without those that somebody has settled by bringing a memory back."""
    by_hand = ByHand(engine)
    by_hand.look(
        m.id for c in (*found.clear, *found.unclear) for m in (c.existing, c.memory) if m is not None
    )

    def open_(conflict: Conflict) -> bool:
        older, newer = conflict.existing, conflict.memory
        return newer is None or not (by_hand.stands(older.id, newer.id) or by_hand.unmerged(newer.id))

    return Sorted(
        clear=[conflict for conflict in found.clear if open_(conflict)],
        unclear=[conflict for conflict in found.unclear if open_(conflict)],
    )


def reopened(engine: Engine, outdated: Mapping[str, Judgement]) -> list[Action]:
    """Plan to let go of judgements on memories whose words have changed: what they cost was for other words."""
    return [
        Action(
            step="conflicts",
            why=f"the words of {judgement.older} or {judgement.newer} have changed: looked at anew",
            memories=(judgement.older, judgement.newer),
            plans=tuple(dropped(engine, key, judgement, "the words have changed")),
        )
        for key, judgement in outdated.items()
    ]


def resolve_clear(
    engine: Engine, conflicts: Sequence[Conflict], gone: set[str], *, halve: bool = False
) -> list[Action]:
    """Plan for conflicts that rules are sure of: an update gets a link, and every pair waits for the judge.

    Args:
        engine: The bank.
        conflicts: What the comparison is sure of.
        gone: Memories that this run merged; what it replaces is added.
        halve: Contradictions halve the confidence of both sides before anybody has decided (source document 003).
    """
    now = engine.now()
    actions: list[Action] = []
    opposed: tuple[Plan, ...] = tuple(opposing(engine.setting))
    for conflict in sorted(conflicts, key=lambda c: (-c.confidence, c.existing.id)):
        older, newer = conflict.existing, conflict.memory
        if newer is None or not gone.isdisjoint((older.id, newer.id)):
            continue
        if not (holds(older, now) and holds(newer, now)):  # what each says may be so in its time
            continue
        plans: list[Plan] = [queue_plan(case_of(conflict))]
        if conflict.kind == "update" and _replaces(newer, older, now):
            why = f"{newer.text!r} has a newer value than {older.text!r}"
            plans.insert(0, _link(newer, older))
            if extracted(older) and extracted(newer) and not older.pinned:
                why = f"{newer.text!r} replaces {older.text!r}; maintenance extracted both"
                plans = [("supersede", {"old": older.id, "new": newer.id, "reason": conflict.reason})]
                gone.add(older.id)
        else:
            why = f"{newer.text!r} contradicts {older.text!r}"
            if halve:
                plans = [*contradiction_plans(older, newer), *opposed, *plans]
                opposed = ()
        actions.append(Action(step="conflicts", why=why, memories=(older.id, newer.id), plans=tuple(plans)))
    return actions


def extracted(memory: Memory) -> bool:
    """True if maintenance made a fact of what episodes say; those stay when it replaces the fact."""
    return (memory.source or "").startswith(EXTRACTED)


def unpunished(engine: Engine, waiting: Sequence[Judgement]) -> list[Action]:
    """Plan to give pairs that nobody has decided the confidence back that an older skep took from them."""
    sides = by_id(engine, (i for judgement in waiting for i in (judgement.older, judgement.newer)))
    cost = {memory.id for memory in sides.values() if memory.disputes}
    pairs = [j for j in waiting if not cost.isdisjoint((j.older, j.newer))]
    found = ((j, reconciled(engine, j.older, j.newer, "not decided")) for j in pairs)
    return [
        Action(
            step="conflicts",
            why=f"{judgement.older} and {judgement.newer} have their confidence back: nobody has decided",
            memories=(judgement.older, judgement.newer),
            plans=tuple(plans),
        )
        for judgement, plans in found
        if plans
    ]


def queue_unclear(
    conflicts: Sequence[Conflict], gone: set[str], waits: Counter[str]
) -> tuple[list[Action], int]:
    """Plan the queueing of what the rules are not sure of, and how many pairs were passed over.

    A memory that is like many others is one of a series ("user 7 is an admin"), and a judge would be asked about every
    two of them: of its pairs only the surest wait. `waits` counts the pairs of each memory that wait, those of a run
    that was cut short among them, and those of this one are added.
    """
    open_ = [(c, c.existing.id, c.memory.id) for c in conflicts if c.memory is not None]
    open_ = [each for each in open_ if gone.isdisjoint(each[1:])]
    chosen: set[int] = set()
    for conflict, older, newer in sorted(open_, key=lambda each: (-each[0].confidence, each[1:])):
        if waits[older] < MOST_WAITING and waits[newer] < MOST_WAITING:
            waits.update((older, newer))
            chosen.add(id(conflict))
    kept = [conflict for conflict, *_ in open_ if id(conflict) in chosen]
    actions = [
        Action(
            step="conflicts",
            why=f"not sure: {c.kind} of {c.existing.text!r} and {c.memory.text!r}",
            memories=(c.existing.id, c.memory.id),
            plans=(queue_plan(case_of(c)),),
        )
        for c in kept
        if c.memory is not None
    ]
    return actions, len(open_) - len(kept)


def case_of(conflict: Conflict) -> Case:
    """A conflict as the judge sees it."""
    assert conflict.memory is not None
    return Case(
        older=conflict.existing,
        newer=conflict.memory,
        kind=conflict.kind,
        similarity=conflict.similarity,
        confidence=conflict.confidence,
    )


def _link(newer: Memory, older: Memory) -> Plan:
    return ("link", {"src": newer.id, "dst": older.id, "rel": UPDATES, "strength": 1.0})


def looked_for(engine: Engine, actions: Sequence[Action]) -> list[Action]:
    """The setting that goes with the first link of `updates`, so that recalls look for them."""
    linked = any(
        kind == "link" and body["rel"] == UPDATES for action in actions for kind, body in action.plans
    )
    if not linked or engine.setting(MARKED):
        return []
    setting: Plan = ("setting", {"key": MARKED, "value": True})
    return [Action(step="conflicts", why="recall looks at what was updated", plans=(setting,))]
