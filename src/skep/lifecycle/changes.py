"""Values and names that were revised in passing: the newer memory is linked to the older ones it brings up to date.

Nothing is replaced: a turn that gave an old number says other things besides. Recall puts the newer one first.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.engine import Engine
from skep.lifecycle.nearness import load_current
from skep.lifecycle.report import Action
from skep.model import CURRENT, Memory, Scope
from skep.semantics.links import MARKED, UPDATES
from skep.semantics.moving import moves, moves_on
from skep.semantics.revising import announced, revises
from skep.storage.base import Filter
from skep.storage.sqlite import Plan
from skep.words import query_terms

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
        own = engine.store.rows_of([memory.id for memory in group])
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
    there = {link.dst for link in engine.store.links(newer.id, rel=UPDATES, direction="out")}
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
