"""Writing a memory while looking at what is already there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from skep.engine import Engine
from skep.errors import ConflictError
from skep.model import SHARED, Conflict, Memory, OnConflict, Remembered, Scope
from skep.semantics.conflicts import DUPLICATE, ContradictionFn, find_for
from skep.storage.sqlite import Plan


def draft(body: dict[str, object], now: float) -> Memory:
    """The memory a body would become, with no id yet."""
    fields = {key: value for key, value in body.items() if key in Memory.__struct_fields__ and key != "scope"}
    scope = body.get("scope")
    fields.setdefault("kind", "fact")
    fields.setdefault("created_at", now)
    return Memory(id="", scope=Scope(**scope) if isinstance(scope, dict) else SHARED, **fields)  # type: ignore[arg-type]


def remember(
    engine: Engine,
    body: dict[str, object],
    *,
    on_conflict: OnConflict = "warn",
    contradiction_fn: ContradictionFn | None = None,
) -> Remembered:
    """Write one memory by the policy for conflicts."""
    if on_conflict == "ignore":
        return _store(engine, body, ())
    conflicts = tuple(find_for(engine, draft(body, engine.now()), contradiction_fn=contradiction_fn))
    if conflicts and on_conflict == "raise":
        raise ConflictError(str(body["text"]), conflicts)
    if conflicts and on_conflict == "supersede":
        return _supersede(engine, body, conflicts)
    return _store(engine, body, conflicts)


def refuse_conflicts(engine: Engine, body: dict[str, object]) -> None:
    """Raise if a memory would contradict or repeat what is stored."""
    conflicts = tuple(find_for(engine, draft(body, engine.now())))
    if conflicts:
        raise ConflictError(str(body["text"]), conflicts)


def _store(engine: Engine, body: dict[str, object], conflicts: tuple[Conflict, ...]) -> Remembered:
    _events, changes = engine.write([("remember", body)])
    memory = engine.as_stored(changes)[0]
    named = tuple(msgspec.structs.replace(conflict, memory=memory) for conflict in conflicts)
    return Remembered(memory=memory, conflicts=named)


def _supersede(engine: Engine, body: dict[str, object], conflicts: tuple[Conflict, ...]) -> Remembered:
    """Repeat what is known, or replace what no longer holds; in one transaction.

    Only within one scope: what is private to one must not change what everybody sees, nor stand in for it.
    """
    scope = draft(body, 0.0).scope
    mine = [c for c in conflicts if c.existing.scope == scope]
    repeated = [c for c in mine if c.kind == "duplicate" and c.similarity >= DUPLICATE]
    outdated = [c.existing.id for c in mine if c.kind != "duplicate"]
    if repeated:
        kept = repeated[0].existing
        by = body.get("agent") or engine.store.actor
        plans: list[Plan] = [("confirm", {"memory": kept.id, "by": by})]
        evidence = body.get("evidence")
        if evidence:
            plans.append(("evidence", {"memory": kept.id, "sources": evidence}))
        plans += [("supersede", {"old": old, "new": kept.id}) for old in outdated if old != kept.id]
        engine.write(plans)
        return Remembered(memory=engine.memory(kept.id), conflicts=conflicts, action="confirmed")
    plans = [("remember", body)]
    plans += [("supersede", _replacing(old)) for old in outdated]
    events, _ = engine.write(plans)
    memory = engine.memory(events[0].id)
    named = tuple(msgspec.structs.replace(conflict, memory=memory) for conflict in conflicts)
    return Remembered(memory=memory, conflicts=named, action="superseded" if outdated else "stored")


def _replacing(old: str) -> Callable[[Sequence[str]], dict[str, object]]:
    return lambda ids: {"old": old, "new": ids[0]}
