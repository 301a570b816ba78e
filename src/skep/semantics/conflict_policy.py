"""One write by a policy for conflicts: store, confirm what is repeated, replace what is outdated, or refuse.

The façade (`bank/`), learning and capture call this. It reads and writes through the engine alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from skep.confidence import independent
from skep.engine.embeddings import Progress
from skep.engine.engine import Engine
from skep.errors import ConflictError, InvalidInputError
from skep.filters import Filter
from skep.model import CURRENT, SHARED, Conflict, Event, Memory, OnConflict, Remembered, Scope
from skep.runtime import gc_paused
from skep.semantics.find_conflicts import (
    ContradictionFn,
    Found,
    find_before_write,
    holds,
    refused,
    repeats,
    replaces,
    same_words,
)
from skep.storage.memory_rows import searched_text
from skep.storage.sqlite_store import Plan
from skep.validation import CLEARED

if TYPE_CHECKING:
    from skep.storage.memory_tables import Changes


Body = dict[str, object]
T = TypeVar("T")
COMPARED_BY_WORDS = (
    "compared by words alone: the memory is not embedded yet; `maintain` compares it by meaning"
)
ATTEMPTS = 3
"""How often a decision is taken again because somebody wrote meanwhile, before the others are made to wait."""


class _Moved(Exception):
    """Somebody wrote between the look and the write."""


def draft(body: Body, now: float) -> Memory:
    """The memory a body would become, with no id yet."""
    fields = {key: value for key, value in body.items() if key in Memory.__struct_fields__ and key != "scope"}
    scope = body.get("scope")
    fields.setdefault("kind", "fact")
    fields.setdefault("created_at", now)
    return Memory(id="", scope=Scope(**scope) if isinstance(scope, dict) else SHARED, **fields)  # type: ignore[arg-type]


def decided(engine: Engine, look: Callable[[], tuple[T, Sequence[Plan]]]) -> tuple[T, list[Event], Changes]:
    """Look at the bank and write what follows from it, as one decision: what was seen still holds when it is written.

    The look goes on without the write lock. Where another process or thread wrote meanwhile, nothing is written and
    the bank is looked at again; if others never stop, the last look is taken while they wait.

    Args:
        engine: The bank.
        look: Gives an answer and the events that follow from it, or raises to refuse. It may be called several times.
    """
    for _ in range(ATTEMPTS):
        seen = engine.head()
        answer, plans = look()

        def unmoved(seen: int = seen) -> None:
            if engine.head() != seen:
                raise _Moved

        try:
            return answer, *engine.write(plans, check=unmoved)
        except _Moved:
            continue
    with engine.writing():
        answer, plans = look()
        return answer, *engine.write(plans)


def remember(
    engine: Engine,
    body: Body,
    *,
    on_conflict: OnConflict = "warn",
    contradiction_fn: ContradictionFn | None = None,
) -> Remembered:
    """Write one memory by the policy for conflicts. To refuse or to replace is decided and written as one."""
    if "key" in body:
        with engine.writing():  # who has the key is looked at and written at one moment
            said = draft(body, engine.now())
            held = holders(engine, str(body["key"]), said.scope)
            if held:
                return _revised(engine, held, said, body)
            return _written(engine, body, on_conflict, contradiction_fn)
    return _written(engine, body, on_conflict, contradiction_fn)


def _written(
    engine: Engine, body: Body, on_conflict: OnConflict, contradiction_fn: ContradictionFn | None
) -> Remembered:
    if on_conflict == "ignore":
        return _stored(engine, engine.write([("remember", body)])[1], ())
    conflicts_of = _looking(engine, body, contradiction_fn)
    done = _by_policy(engine, body, on_conflict, conflicts_of)
    return msgspec.structs.replace(done, reason=conflicts_of.reason) if conflicts_of.reason else done


HOLDING: tuple[str, ...] = (*CURRENT, "deprecated", "quarantined")
"""Statuses in which a memory keeps its key. One that was taken back, replaced or is over leaves it to the next."""


def holders(engine: Engine, key: str, scope: Scope) -> list[Memory]:
    """The memories of exactly a scope that have a key, the newest first; several where replicas wrote at once."""
    where = Filter(scope=scope, keys=(key,), statuses=HOLDING, now=engine.now())
    return [memory for _row, memory in engine.find(where, limit=100)]


def _revised(engine: Engine, held: Sequence[Memory], said: Memory, body: Body) -> Remembered:
    """Make the newest holder of a key say what a call says; what others hold of the same key, it replaces."""
    kept = held[0]
    if said.kind != kept.kind:
        raise InvalidInputError(
            f"{kept.id}, which has the key {said.key!r}, is of kind {kept.kind}, and a kind stays; pass"
            f" kind={kept.kind!r}, or forget it first",
            field="kind",
        )
    wanted: Body = {
        name: body.get(name, cleared) for name, cleared in CLEARED.items() if name not in ("scope", "key")
    }
    ends = wanted.pop("ttl")
    wanted |= {name: body[name] for name in ("text", "confidence", "importance") if name in body}
    now = msgspec.json.decode(msgspec.json.encode(kept))
    wanted = msgspec.json.decode(msgspec.json.encode(wanted))
    changes = {name: value for name, value in wanted.items() if value != now[name]}
    if ends is not None:
        changes["ttl"] = ends
    elif kept.expires_at is not None:
        changes["expires_at"] = None
    plans: list[Plan] = [("supersede", {"old": other.id, "new": kept.id}) for other in held[1:]]
    if changes:
        plans.append(("revise", {"memory": kept.id, "changes": changes}))
    if body.get("evidence"):
        plans.append(("evidence", {"memory": kept.id, "sources": body["evidence"]}))
    if plans:
        engine.write(plans)
    return Remembered(memory=engine.memory(kept.id), action="revised" if changes else "confirmed")


def _by_policy(engine: Engine, body: Body, on_conflict: OnConflict, conflicts_of: _Look) -> Remembered:
    if on_conflict == "warn":
        conflicts, nearest = conflicts_of.find()
        memory = draft(body, engine.now())
        ends = "ttl" in body  # what ends by itself prolongs nothing that stays
        kept = None if ends else next((c.existing for c in conflicts if _is_copy(c.existing, memory)), None)
        if kept is not None:
            engine.write(_confirming(engine, kept, memory, body))
            return Remembered(memory=engine.memory(kept.id), conflicts=conflicts, action="confirmed")
        return _stored(engine, engine.write([("remember", body)], nearest=nearest)[1], conflicts)
    if on_conflict == "raise":
        conflicts, _events, changes = decided(
            engine, lambda: (_accepted(body, conflicts_of()), [("remember", body)])
        )
        return _stored(engine, changes, conflicts)

    def look() -> tuple[_Answer, Sequence[Plan]]:
        return _superseding(engine, body, conflicts_of())

    answer, events, changes = decided(engine, look)
    if answer.kept is not None:
        return Remembered(memory=engine.memory(answer.kept), conflicts=answer.conflicts, action="confirmed")
    if not answer.replaces:
        return _stored(engine, changes, answer.conflicts)
    memory = engine.memory(events[0].id)
    return Remembered(memory=memory, conflicts=_named(answer.conflicts, memory), action="superseded")


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One memory of many, and what to do if it does not go with what is stored."""

    body: Body
    on_conflict: OnConflict = "ignore"
    contradiction_fn: ContradictionFn | None = None
    redactions: tuple[str, ...] = ()


def remember_many(
    engine: Engine, items: Sequence[Item], *, bulk: int, progress: Progress | None = None
) -> list[Remembered]:
    """Write many memories, each by its own policy, in order.

    Those that only ask not to look, or to refuse, are written together: all, or none if one is refused. They are
    compared with what the bank holds, not with one another. The others are written one by one.
    """
    runs = list(_runs(items, bulk))
    if len(runs) > 1:  # look at all of them before the first is written
        for item in items:
            if item.on_conflict == "raise":
                _accepted(item.body, _looking(engine, item.body, item.contradiction_fn)())
    done: list[Remembered] = []
    for run in runs:
        if "key" in run[0].body and run[0].on_conflict == "ignore":
            with gc_paused(), engine.writing():  # one transaction, however many
                stored = [remember(engine, item.body, on_conflict="ignore") for item in run]
        elif not _alone(run[0]):
            with gc_paused():
                stored = _stored_all(engine, run)
        else:
            stored = [
                remember(
                    engine,
                    run[0].body,
                    on_conflict=run[0].on_conflict,
                    contradiction_fn=run[0].contradiction_fn,
                )
            ]
        for at, item in enumerate(run):
            if item.redactions:
                stored[at] = msgspec.structs.replace(stored[at], redactions=item.redactions)
        done += stored
        if progress is not None:
            progress(len(done), len(items))
    return done


def _runs(items: Sequence[Item], bulk: int) -> Iterator[Sequence[Item]]:
    """Items that are written together. What may be refused is never parted from what stands beside it."""
    policies = {item.on_conflict for item in items}
    if policies == {"ignore"} and not any("key" in item.body for item in items):  # as nearly always
        for start in range(0, len(items), bulk):
            yield items[start : start + bulk]
        return
    refusing = "raise" in policies
    run: list[Item] = []
    for item in items:
        alone = _alone(item)
        keyed = "key" in item.body
        if run and (
            alone or keyed != ("key" in run[0].body) or (len(run) >= bulk and (keyed or not refusing))
        ):
            yield run
            run = []
        if alone:
            yield [item]
        else:
            run.append(item)
    if run:
        yield run


def _alone(item: Item) -> bool:
    """True if a memory is written on its own."""
    return item.on_conflict in ("warn", "supersede") or ("key" in item.body and item.on_conflict != "ignore")


def _stored_all(engine: Engine, items: Sequence[Item]) -> list[Remembered]:
    return [Remembered(memory=memory) for memory in engine.as_stored(_write_all(engine, items))]


def _write_all(engine: Engine, items: Sequence[Item]) -> Changes:
    plans: list[Plan] = [("remember", item.body) for item in items]
    looks = [
        (item.body, _looking(engine, item.body, item.contradiction_fn))
        for item in items
        if item.on_conflict == "raise"
    ]
    if not looks:
        return engine.write(plans)[1]

    def look() -> tuple[None, Sequence[Plan]]:
        for body, conflicts_of in looks:
            _accepted(body, conflicts_of())
        return None, plans

    return decided(engine, look)[2]


class _Look(NamedTuple):
    """The search for conflicts of one memory, and why it goes by words alone, if it does."""

    find: Callable[[], Found]
    reason: str = ""

    def __call__(self) -> tuple[Conflict, ...]:
        return self.find().conflicts


def _looking(engine: Engine, body: Body, contradiction_fn: ContradictionFn | None) -> _Look:
    """The search for conflicts of a memory, cheap to repeat: one vector, and no pair is asked about twice.

    A slow embedder is not waited for: what says the same in other words comes up in maintenance, once it is embedded.
    """
    memory = draft(body, engine.now())
    vector = engine.embeddings.at_once(searched_text(memory.title, memory.text))
    asked: dict[bytes, bool] = {}

    def ask(existing: Memory, new: Memory) -> bool:
        assert contradiction_fn is not None
        key = msgspec.json.encode(existing)
        if key not in asked:
            asked[key] = contradiction_fn(existing, new)
        return asked[key]

    fn = None if contradiction_fn is None else ask
    return _Look(
        lambda: find_before_write(engine, memory, fn, vector),
        COMPARED_BY_WORDS if vector is None and engine.active_space() is not None else "",
    )


def _accepted(body: Body, conflicts: tuple[Conflict, ...]) -> tuple[Conflict, ...]:
    """The conflicts, if a memory is written in spite of them; otherwise it is refused."""
    serious = refused(conflicts)
    if serious:
        raise ConflictError(str(body["text"]), serious)
    return conflicts


def _stored(engine: Engine, changes: Changes, conflicts: tuple[Conflict, ...]) -> Remembered:
    memory = engine.as_stored(changes)[0]
    return Remembered(memory=memory, conflicts=_named(conflicts, memory) if conflicts else ())


def _named(conflicts: tuple[Conflict, ...], memory: Memory) -> tuple[Conflict, ...]:
    return tuple(msgspec.structs.replace(conflict, memory=memory) for conflict in conflicts)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of superseding."""

    conflicts: tuple[Conflict, ...] = ()
    kept: str | None = None
    """The memory that already says it."""
    replaces: bool = False


def _superseding(
    engine: Engine, body: Body, conflicts: tuple[Conflict, ...]
) -> tuple[_Answer, Sequence[Plan]]:
    """Repeat what is known, or replace what no longer holds.

    Only within one scope and kind: what is private to one must not change what everybody sees, nor stand in for it.
    And only by what holds now and is not the older: the price of next month replaces nothing yet, that of last year
    nothing more.
    """
    now = engine.now()
    memory = draft(body, now)
    mine = [c for c in conflicts if (c.existing.scope, c.existing.kind) == (memory.scope, memory.kind)]
    repeated = [c for c in mine if repeats(c, memory) and c.existing.key == memory.key]
    outdated = [
        c.existing.id
        for c in mine
        if replaces(c) and holds(memory, now) and memory.created_at >= min(c.existing.created_at, now)
    ]
    if repeated:
        kept = repeated[0].existing
        plans = _confirming(engine, kept, memory, body)
        plans += [("supersede", {"old": old, "new": kept.id}) for old in outdated if old != kept.id]
        return _Answer(conflicts=conflicts, kept=kept.id), plans
    plans = [("remember", body)]
    plans += [("supersede", _replacing(old)) for old in outdated]
    return _Answer(conflicts=conflicts, replaces=bool(outdated)), plans


def _is_copy(existing: Memory, memory: Memory) -> bool:
    """True if a memory is the same statement as a stored one: same words, kind and scope, at the same time."""

    def where(m: Memory) -> tuple[object, ...]:
        return m.kind, m.scope, m.polarity, m.level, m.valid_from, m.valid_to, m.expires_at

    if memory.key is not None or existing.key is not None:  # a key is somebody's name for one of them
        return False
    if memory.kind == "episode":  # what happened twice are two episodes
        return False
    domains = {existing.domain, memory.domain} - {None}
    return len(domains) < 2 and where(existing) == where(memory) and same_words(existing.text, memory.text)


def _confirming(engine: Engine, kept: Memory, memory: Memory, body: Body) -> list[Plan]:
    """The events by which a repeated statement confirms the stored one; what only the repeat says is kept."""
    plans: list[Plan] = [("confirm", {"memory": kept.id, "by": body.get("agent") or engine.actor})]
    if memory.evidence:
        counts = independent(memory.evidence, (kept.id, *kept.evidence), engine.get)
        plans.append(("evidence", {"memory": kept.id, "sources": list(memory.evidence), "counts": counts}))
    sources = list(kept.metadata.get("sources", ()))
    if memory.source not in (None, kept.source, *sources):
        memory = msgspec.structs.replace(
            memory, metadata={**memory.metadata, "sources": [*sources, memory.source]}
        )
        kept = msgspec.structs.replace(
            kept, metadata={k: v for k, v in kept.metadata.items() if k != "sources"}
        )
    changes = noted(kept, [memory])
    if changes:
        plans.append(("revise", {"memory": kept.id, "changes": changes}))
    return plans


def noted(winner: Memory, losers: Sequence[Memory]) -> dict[str, object]:
    """Changes by which the winner takes over tags, importance and fields that only its copies have."""
    every = (winner, *losers)
    changes: dict[str, object] = {}
    tags = list(dict.fromkeys(tag for m in every for tag in m.tags))
    if tags != list(winner.tags):
        changes["tags"] = tags
    if (importance := max(m.importance for m in every)) > winner.importance:
        changes["importance"] = importance
    for name in ("title", "domain"):
        said = list(dict.fromkeys(value for m in every if (value := getattr(m, name)) is not None))
        if len(said) == 1 and getattr(winner, name) is None:
            changes[name] = said[0]
    metadata = {key: value for m in reversed(every) for key, value in m.metadata.items()}
    if metadata.keys() != winner.metadata.keys():
        changes["metadata"] = metadata
    return changes


def _replacing(old: str) -> Callable[[Sequence[str]], dict[str, object]]:
    return lambda ids: {"old": old, "new": ids[0]}
