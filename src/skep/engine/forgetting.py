"""Forgetting: erased from rows, log, words, vectors, segments and the copies we made, with a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from skep.engine.core import Engine
from skep.engine.moved import moved_with
from skep.errors import SkepError
from skep.model import Receipt
from skep.storage.log import scrubbed_body
from skep.storage.sqlite import Plan, SqliteStore
from skep.storage.subjects import mentioned

if TYPE_CHECKING:
    from pathlib import Path

COPY_SECONDS = 5.0
"""How long a copy that somebody else writes to is waited for."""


def forget(engine: Engine, memory_ids: Sequence[str], *, dry_run: bool = False) -> Receipt:
    """Erase memories for good; nothing brings them back, no replica and no undo."""
    erased_before = [i for i in memory_ids if engine.store.is_forgotten(i)]
    engine.known(*(i for i in memory_ids if i not in erased_before))
    derived = _derived(engine, memory_ids)
    copies = _copies(engine, memory_ids)
    if dry_run:
        return Receipt(
            memories=tuple(memory_ids),
            erased=_would_erase(engine, memory_ids),
            dry_run=True,
            derived=derived,
            copies=copies,
        )
    with engine.store.writing():  # what replaced what is looked at and passed on at one moment
        plans = [*passed_on(engine.store, memory_ids), ("forget", {"memories": list(memory_ids)})]
        events, changes = engine.write(plans)
    engine.erased.update(memory_ids)
    erased = dict(changes.erased)
    erased["segments"] = clean_derived(engine, changes.forgotten_rows)
    if erased_before:  # a crash or an absent disk may have left something the last time
        erased["segments"] += clean_derived(engine, list(engine.store.rows_of(erased_before).values()))
    reached, unreached = forget_in_backups(engine, memory_ids)
    if engine.store.leftover():
        unreached.append(
            f"{engine.store.path}-wal: another program is reading the bank; the text goes with the next write, close,"
            " maintain or doctor after it has finished"
        )
    erased["backups"] = reached
    return Receipt(
        memories=tuple(memory_ids),
        erased=erased,
        event=events[-1].id,
        derived=derived,
        copies=copies,
        unreached=tuple(unreached),
    )


def passed_on(store: SqliteStore, memory_ids: Sequence[str]) -> list[Plan]:
    """Events after which what the erased ones had replaced is replaced by what replaced them.

    Of a chain a, b, c only c shows, also once b is gone. What was replaced by the last of its chain stands again, and
    what led to it before it was merged leads to it again. Such a merge brings no evidence: nobody has said anything
    anew. Called in the transaction that forgets.
    """
    gone = set(memory_ids)
    plans: list[Plan] = []
    for memory_id in memory_ids:
        heir, merged = _heir(store, memory_id, gone)
        for old, how in store.replaced_by(memory_id):
            if old in gone or old == heir:
                continue
            if heir is None:
                plans += [
                    ("undo", {"event": event.id, "mentions": list(mentioned(event))})
                    for event in moved_with(store.log, old)
                ]
            elif merged and how == "merged":
                plans.append(("merge", {"loser": old, "winner": heir}))
            else:
                plans.append(("supersede", {"old": old, "new": heir}))
    return plans


def _heir(store: SqliteStore, memory_id: str, gone: set[str]) -> tuple[str | None, bool]:
    """The first of a memory's successors that stays, and whether all on the way there were merged."""
    merged, seen = True, {memory_id}
    while (next_ := store.successor(memory_id)) is not None:
        memory_id, how = next_
        merged = merged and how == "merged"
        if memory_id in seen:
            break
        if memory_id not in gone:
            return memory_id, merged
        seen.add(memory_id)
    return None, False


def clean_derived(engine: Engine, rows: Sequence[int]) -> int:
    """Take forgotten rows out of the index and the write-ahead log; the number of segments rewritten."""
    if not rows:
        return 0
    engine.index.refresh()
    rewritten = engine.index.erase(rows)
    engine.store.truncate_wal()
    return rewritten


def _derived(engine: Engine, memory_ids: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for memory_id in memory_ids:
        for link in engine.store.links(memory_id, rel="derived_from", direction="in"):
            found[link.src] = None
    return tuple(name for name in found if name not in memory_ids)


def _would_erase(engine: Engine, memory_ids: Sequence[str]) -> dict[str, int]:
    store = engine.store
    rows = store.rows_of(memory_ids)
    return {
        "rows": len(rows),
        "words": len(rows),
        "log": sum(
            scrubbed_body(event) != event.body
            for memory_id in memory_ids
            for event in store.log.of(memory_id)
        ),
        "vectors": sum(
            len(store.vectors.get(space.number, rows.values())) for space in store.vectors.spaces()
        ),
        "links": sum(len(store.links(memory_id, direction="out")) for memory_id in memory_ids),
        "backups": sum(path.exists() for path in store.backups()),
    }


def _copies(engine: Engine, memory_ids: Sequence[str]) -> tuple[str, ...]:
    """Memories that say the same: merged with what is erased, in either direction."""
    found: dict[str, None] = {}
    for memory_id in memory_ids:
        for link in engine.store.links(memory_id, rel="duplicate_of"):
            found[link.dst if link.src == memory_id else link.src] = None
    return tuple(name for name in found if name not in memory_ids)


def forget_in_backups(engine: Engine, memory_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Erase from every copy this bank has made; how many held any, and which could not be reached."""
    from skep.storage.unfinished import clear

    reached = 0
    unreached: list[str] = []
    for path in engine.store.backups():
        clear(path)
        if not path.exists():
            unreached.append(
                f"{path}: it is not there now; forget again when it is, or, if it was deleted, say so with `skep backup"
                " --gone`"
            )
            continue
        try:
            with engine.store.alone_with_copies():
                reached += _forget_in_copy(engine, path, memory_ids)
        except SkepError as error:
            unreached.append(f"{path}: {error}")
    return reached, unreached


def forget_meanwhile(engine: Engine, copy: Path) -> None:
    """Erase from a new copy what was forgotten while it was made."""
    from skep.storage.restoring import forgotten_since

    with engine.store.alone_with_copies():
        gone = forgotten_since(copy, engine.store)
        if gone:
            _forget_in_copy(engine, copy, gone)


def _forget_in_copy(engine: Engine, path: Path, memory_ids: Sequence[str]) -> int:
    """Erase from one copy; 1 if it held any of them. The copy stays a single file.

    Nobody can write to the bank meanwhile, so a copy that somebody else writes to is not waited for long.
    """
    patience = min(engine.settings.busy_seconds, COPY_SECONDS)
    settings = msgspec.structs.replace(engine.settings, busy_seconds=patience)
    store = SqliteStore.open(path, settings, create=False, copies=False)
    try:
        held = [i for i in store.rows_of(memory_ids) if not store.is_forgotten(i)]
        if held:
            with store.writing():
                store.write([*passed_on(store, held), ("forget", {"memories": held})], now=engine.now())
            store.truncate_wal()
        return bool(held)
    finally:
        store.close_as_one_file()
