"""Duplicates, contradictions and updates: the clear ones by rule, the rest to the judge.

Duplicates are decided before contradictions, so that two near-identical memories are merged and never punished.

Values and names that were revised in passing: the newer memory is linked to the older ones it brings up to date.

Nothing is replaced: a turn that gave an old number says other things besides. Recall puts the newer one first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from skep.clock import AHEAD_SECONDS
from skep.engine.embeddings import Progress
from skep.engine.engine import Engine
from skep.filters import Filter
from skep.lifecycle.decisions import ByHand, best_first, contradiction_plans, merge_plans
from skep.lifecycle.judge import Case
from skep.lifecycle.judgement_queue import Judgement, dropped, key_of, queue_plan
from skep.lifecycle.maintenance_run import Action
from skep.lifecycle.similar_memories import Union, load_current, neighbours, rows_by_id, sharing_words
from skep.model import CURRENT, Conflict, Memory, Scope
from skep.runtime import gc_paused
from skep.semantics.find_conflicts import (
    CANDIDATE,
    COMPARED,
    OVERLAP,
    age,
    comparable,
    holds,
    judge_many,
    older_first,
)
from skep.semantics.link_graph import MARKED, UPDATES
from skep.semantics.value_changes import announced, moves, moves_on, revises
from skep.storage.sqlite_store import Plan
from skep.text.terms import query_terms

SHORT = 12
"""Words up to which a memory is also compared with others that share most of them."""
MERGE_SIMILARITY = 0.85
CLEAR_DUPLICATE = 0.90
CLEAR_CONFLICT = 0.90
CONFIDENT = 0.6
"""At least one of two duplicates must be this sure to be merged by rule."""
LENGTH_RATIO = 3.0
MOST_WAITING = 4
"""In how many of the unsure pairs of a run a memory may be."""


class Sorted(msgspec.Struct, kw_only=True):
    """Conflicts by what is to be done with them."""

    duplicates: list[Conflict] = msgspec.field(default_factory=list[Conflict])
    clear: list[Conflict] = msgspec.field(default_factory=list[Conflict])
    unclear: list[Conflict] = msgspec.field(default_factory=list[Conflict])
    compared: set[str] = msgspec.field(default_factory=set[str])
    """The pairs that were looked at."""
    crowded: dict[str, set[str]] = msgspec.field(default_factory=dict[str, set[str]])
    """The near ones of memories that may have more of them than were looked at."""

    def add(self, more: Sorted) -> None:
        """Take in what a further look has found."""
        self.duplicates += more.duplicates
        self.clear += more.clear
        self.unclear += more.unclear
        self.compared |= more.compared
        self.crowded |= more.crowded

    def freed(self, gone: set[str]) -> list[str]:
        """The memories to look at again once some are gone: those had taken the places of others beside them."""
        freed = [i for i, near in self.crowded.items() if not near.isdisjoint(gone)]
        for memory_id in freed:
            del self.crowded[memory_id]
        return [memory_id for memory_id in freed if memory_id not in gone]


def sort_conflicts(
    engine: Engine, memories: Sequence[Memory], decided: set[str], progress: Progress | None = None
) -> Sorted:
    """Find the conflicts of memories and sort them; pairs that were looked at before are passed over.

    Only memories of one scope are compared: what is private to one does not change what everybody sees.
    """
    found = Sorted()
    with (
        gc_paused()
    ):  # thousands of small values are made that stay; looking for garbage among them finds none
        pairs = _pairs(engine, memories, decided, found)
    for start in range(0, len(pairs), COMPARED):
        with gc_paused():
            judged = judge_many(pairs[start : start + COMPARED])
        for number, conflict in enumerate(judged, start + 1):
            if conflict is None:
                pass
            elif conflict.kind == "duplicate":
                (found.duplicates if mergeable(conflict) else found.unclear).append(conflict)
            elif conflict.confidence >= CLEAR_CONFLICT:
                found.clear.append(conflict)
            else:
                found.unclear.append(conflict)
            if progress is not None:
                progress(number, len(pairs))
    return found


def _pairs(
    engine: Engine, memories: Sequence[Memory], decided: set[str], found: Sorted
) -> list[tuple[Memory, Memory, float]]:
    """The pairs worth comparing, each once, the older one first.

    They are near in meaning, or share most of their words. What was compared and what was crowded is noted in `found`.
    """
    limit, now = engine.settings.conflict_candidates, engine.now()
    rows = rows_by_id(engine, (memory.id for memory in memories))
    known: dict[int, Memory] = {}
    near = neighbours(engine, memories, threshold=CANDIDATE, limit=limit, rows=rows, known=known)
    alike = sharing_words(engine, memories, least=OVERLAP, limit=limit, longest=SHORT, rows=rows, known=known)
    pairs: dict[str, tuple[Memory, Memory, float]] = {}
    for memory in memories:
        for other, similarity in (*near[memory.id], *alike.get(memory.id, ())):
            key = key_of(memory.id, other.id)
            if key not in pairs and key not in decided and comparable(memory, other):
                pairs[key] = *_older_first(memory, other, now), similarity
        if len(near[memory.id]) >= limit:
            found.crowded[memory.id] = {other.id for other, _ in near[memory.id]}
    found.compared |= pairs.keys()
    return list(pairs.values())


def _older_first(a: Memory, b: Memory, now: float) -> tuple[Memory, Memory]:
    """Two memories by age; most were not made at one moment."""
    if a.created_at == b.created_at or max(a.created_at, b.created_at) > now:
        return older_first(a, b, now)
    return (a, b) if a.created_at < b.created_at else (b, a)


def _replaces(newer: Memory, older: Memory, now: float) -> bool:
    """Whether one memory is known to be the later one: by its date, or by the order in which its writer wrote."""
    dated = max(newer.created_at, older.created_at) <= now + AHEAD_SECONDS
    if dated and newer.created_at != older.created_at:
        return newer.created_at > older.created_at
    return age(newer)[1] == age(older)[1] and age(newer)[2] > age(older)[2]


def mergeable(conflict: Conflict) -> bool:
    """Whether two duplicates may be merged by rule."""
    a, b = conflict.existing, conflict.memory
    if b is None or a.kind != b.kind or a.scope != b.scope or a.polarity * b.polarity == -1:
        return False
    if a.domain is not None and b.domain is not None and a.domain != b.domain:
        return False
    if (a.valid_from, a.valid_to, a.expires_at) != (b.valid_from, b.valid_to, b.expires_at):
        return False
    lengths = sorted((len(a.text), len(b.text)))
    return (
        conflict.similarity > MERGE_SIMILARITY
        and conflict.confidence >= CLEAR_DUPLICATE
        and max(a.confidence, b.confidence) > CONFIDENT
        and lengths[1] <= LENGTH_RATIO * lengths[0]
        and not (a.pinned and b.pinned)
    )


def merge(engine: Engine, duplicates: Sequence[Conflict]) -> list[Action]:
    """Plan one merge per group of duplicates: the most confident stays, with all the evidence and incoming links."""
    union = Union()
    memories: dict[str, Memory] = {}
    for conflict in duplicates:
        a, b = conflict.existing, conflict.memory
        if b is not None:
            memories |= {a.id: a, b.id: b}
            union.join(a.id, b.id)
    by_hand = ByHand(engine)
    by_hand.look(memories)
    merges = [
        _merge_group(engine, [memories[i] for i in group], by_hand)
        for group in union.groups()
        if len(group) > 1
    ]
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
    conflicts: Sequence[Conflict], gone: set[str], now: float, opposing: Sequence[Plan] = ()
) -> list[Action]:
    """Plan what the rules are sure of: an update replaces, a contradiction halves both and goes to the judge.

    With the first contradiction go the events of `opposing`, after which recalls look for such links.
    """
    actions: list[Action] = []
    taken = set(gone)
    told = tuple(opposing)
    for conflict in sorted(conflicts, key=lambda c: (-c.confidence, c.existing.id)):
        older, newer = conflict.existing, conflict.memory
        if newer is None or older.id in taken or newer.id in taken:
            continue
        if not (holds(older, now) and holds(newer, now)):  # what each says may be so in its time
            continue
        replaces = conflict.kind == "update" and _replaces(newer, older, now)
        if replaces and older.pinned:
            plan: tuple[Plan, ...] = (queue_plan(case_of(conflict)),)
            why = f"{newer.text!r} would replace {older.text!r}, which is pinned"
        elif replaces:
            taken.add(older.id)
            plan = (("supersede", {"old": older.id, "new": newer.id, "reason": conflict.reason}),)
            why = f"{newer.text!r} replaces {older.text!r}"
        else:
            plan = (*contradiction_plans(older, newer), *told, queue_plan(case_of(conflict)))
            told = ()
            why = f"{newer.text!r} contradicts {older.text!r}"
        actions.append(Action(step="conflicts", why=why, memories=(older.id, newer.id), plans=plan))
    return actions


def queue_unclear(
    conflicts: Sequence[Conflict], gone: set[str], waiting: Mapping[str, int]
) -> tuple[list[Action], int]:
    """Plan the queueing of what the rules are not sure of, and how many pairs were passed over.

    A memory that is like many others is one of a series ("user 7 is an admin"), and a judge would be asked about every
    two of them: of its pairs only the surest wait. What `waiting` counts of memories that are looked at again was
    queued by a run that was cut short: with it, the next run queues what that one would have.
    """
    open_ = [(c, c.existing.id, c.memory.id) for c in conflicts if c.memory is not None]
    open_ = [each for each in open_ if gone.isdisjoint(each[1:])]
    waits = Counter(waiting)
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


KINDS = ("fact", "episode")
SEARCHED = 32
"""How many memories that share the words of a change are looked at."""


def revised(engine: Engine, memories: Sequence[Memory], gone: set[str]) -> list[Action]:
    """Plan a link from each memory that announces a change to those of its scope and kind whose value it revises.

    Args:
        engine: The bank.
        memories: What is new; most of it announces nothing.
        gone: What this run merged or replaced.
    """
    groups: dict[tuple[Scope, str], list[Memory]] = {}
    for memory in memories:
        if memory.kind in KINDS and memory.id not in gone and _tells(memory.text):
            groups.setdefault((memory.scope, memory.kind), []).append(memory)
    actions: list[Action] = []
    for (scope, kind), group in groups.items():
        where = Filter(scope=scope, kinds=(kind,), statuses=CURRENT)
        queries = [_words(memory) for memory in group]
        found = [rows.tolist() for rows in engine.index.best_by_words(queries, where, SEARCHED)]
        own = engine.rows_of([memory.id for memory in group])
        known = load_current(engine, {row for rows in found for row in rows})
        for memory, rows in zip(group, found, strict=True):
            since = memory.created_at, own[memory.id]
            older = [
                known[row] for row in sorted(rows) if row in known and (known[row].created_at, row) < since
            ]
            revises_them = [
                each for each in older if each.id not in gone and _revises(memory.text, each.text)
            ]
            actions += _linked(engine, memory, revises_them)
    if actions and not engine.setting(MARKED):
        actions.append(
            Action(step="conflicts", why="recall looks at what was revised", plans=(("setting", _marked()),))
        )
    return actions


def _tells(text: str) -> bool:
    """Whether a text tells that something has another value, or another name, now."""
    return bool(announced(text)) or bool(moves(text))


def _revises(newer: str, older: str) -> bool:
    return revises(newer, older) or moves_on(newer, older)


def _words(memory: Memory) -> list[str]:
    told = (*announced(memory.text), *moves(memory.text))
    return query_terms(" ".join(word for change in told for word in change.words))


def _linked(engine: Engine, newer: Memory, older: Sequence[Memory]) -> list[Action]:
    if not older:
        return []
    there = {link.dst for link in engine.links(newer.id, rel=UPDATES, direction="out")}
    return [
        Action(
            step="conflicts",
            why=f"{newer.text!r} has a newer value than {each.text!r}",
            memories=(each.id, newer.id),
            plans=(_link(newer, each),),
        )
        for each in older
        if each.id not in there
    ]


def _link(newer: Memory, older: Memory) -> Plan:
    return ("link", {"src": newer.id, "dst": older.id, "rel": UPDATES, "strength": 1.0})


def _marked() -> dict[str, object]:
    return {"key": MARKED, "value": True}
