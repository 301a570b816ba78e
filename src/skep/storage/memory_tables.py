"""The tables that make the log visible: memories, links, settings and uses. All of it can be rebuilt from the events.

`SqliteStore` calls `Tables.apply` with events that were just inserted, inside the same transaction. What events mean
is decided by `fold`, which is pure; this module writes the results down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from skep.events import SETTING, mentioned, order
from skep.model import Event, Memory
from skep.storage.event_log import Log
from skep.storage.fold import (
    LOCAL_SETTINGS,
    WRITERS,
    Kept,
    Seen,
    State,
    fold,
    fold_links,
    fold_on,
    fold_setting,
    fold_whole,
    seen,
    stays_here,
)
from skep.storage.full_text import FullText
from skep.storage.memory_rows import (
    STATE_COLUMNS,
    encode_body,
    encode_list,
    own_memory,
    searched_text,
    state_values,
)
from skep.storage.sqlite_connection import Connection
from skep.storage.sqlite_file import LAST_COUNTER, names_of
from skep.storage.staleness import Staleness
from skep.storage.vectors import Vectors

_INSERT = (
    f"INSERT INTO memories(row, id, changed, status, stale, {', '.join(STATE_COLUMNS)})"
    f" VALUES({','.join('?' * (5 + len(STATE_COLUMNS)))})"
)
_KNOWN = (
    "SELECT row, status, (SELECT kept FROM kept_folds WHERE subject = ?1),"
    f" {', '.join(STATE_COLUMNS)} FROM memories WHERE id = ?1"
)
_USED = (
    "INSERT INTO uses(memory, count, last_at) SELECT j.key, j.value, ?2 FROM json_each(?1) j WHERE NOT"
    " EXISTS (SELECT 1 FROM memories WHERE id = j.key AND forgotten = 1) ON CONFLICT(memory) DO UPDATE SET"
    " count = count + excluded.count, last_at = max(last_at, excluded.last_at)"
)
_SET = "INSERT OR REPLACE INTO settings(key, value, seq) VALUES(?,?,?)"
LINKS = "links:"
LONG = 8
"""From so many events on, where a fold ended is kept; a shorter history is read faster than that would be."""
S = TypeVar("S", bound=Seen)


class Changes(msgspec.Struct):
    """The effects of a batch of events, handed from step to step inside one transaction."""

    head: int = 0
    """The number of the newest change of a searchable row before them."""
    created: list[tuple[int, Memory, str]] = []
    """Row, memory and searched text of each new memory, in order."""
    retexted: list[int] = []
    """Rows whose searched text changed: their vectors are outdated."""
    embedder: str | None = None
    """The fingerprint of the active space, where it has a vector of every new memory."""
    waiting: bool = False
    """True if any of them waits to be embedded."""
    erased: dict[str, int] = {}
    forgotten_rows: list[int] = []


class Tables:
    """Writes what events mean. Every method is called inside a transaction."""

    def __init__(self, connection: Connection, log: Log, vectors: Vectors) -> None:
        self._c = connection
        self._log = log
        self._vectors = vectors
        self._newest = log.newest
        self.staleness = Staleness(connection, log.newest)
        self.full_text = FullText(connection)
        self.long = LONG

    def apply(self, events: Sequence[Event], *, fresh: bool) -> Changes:
        """Bring the tables up to date with events that were just inserted.

        Args:
            events: The new events.
            fresh: They were minted here, so nothing can mention a memory before it is created.
        """
        changes = Changes()
        created: list[State] = []
        subjects: dict[str, list[Event]] = {}
        linked: dict[str, list[Event]] = {}
        for event in events:
            if event.kind == "remember" and (fresh or not self._mentioned(event.id)):
                created.append(_certain(fold(event.id, (event,))))
            elif event.kind == "use":
                self._c.execute(_USED, (encode_body(event.body["counts"]), event.body.get("at", event.at)))
            elif event.kind in ("link", "unlink"):  # says nothing of the memories themselves
                linked.setdefault(event.body["src"], []).append(event)
            else:
                for subject in dict.fromkeys(mentioned(event)):
                    subjects.setdefault(subject, []).append(event)
                    if event.kind == "undo" and not subject.startswith(SETTING):
                        linked.setdefault(subject, []).append(event)
        if created:
            self._create(created, changes)
        moved: set[str] = set()
        for subject, its in subjects.items():
            if subject.startswith(SETTING):
                self._reset(subject, its)
            else:
                moved |= self._refold(subject, changes, its)
        for src, its in linked.items():
            moved |= self._relink(src, its)
        if moved:
            self.staleness.renew(moved)
        return changes

    def rebuild(self, subjects: Iterable[str]) -> None:
        """Recompute memories, links and settings from the log as it now is."""
        changes = Changes()
        moved: set[str] = set()
        self._c.execute("DELETE FROM kept_folds")
        for subject in subjects:
            if subject.startswith(SETTING):
                self._reset(subject)
                continue
            events = self._log.of(subject)
            if fold(subject, events) is None:
                self._vanish(subject)
            else:
                moved |= {subject} | self._refold(subject, changes)
            moved |= {subject} | self._relink(subject)
        self._c.execute("DELETE FROM uses")
        for event in self._log.after(0):
            if event.kind == "use":
                self._c.execute(_USED, (encode_body(event.body["counts"]), event.body.get("at", event.at)))
        for space in self._vectors.spaces():
            self._vectors.queue(space.number, changes.retexted)
        self.staleness.renew(moved)

    def _vanish(self, memory_id: str) -> None:
        """Take out a memory that the log does not know (any more)."""
        self._c.execute(
            "UPDATE memories SET forgotten = 1, text = '', title = NULL, status = 'retracted',"
            " replaced_by = NULL, replaced_how = NULL, replaced_at = NULL, changed = ? WHERE id = ?",
            (self._newest.next_change(), memory_id),
        )

    def touch(self, rows: Iterable[int]) -> None:
        """Mark rows as changed, so that the derived index looks at them again."""
        self._c.execute_many(
            "UPDATE memories SET changed = ? WHERE row = ?",
            [(self._newest.next_change(), row) for row in rows],
        )

    def _mentioned(self, memory_id: str) -> bool:
        """True if any event but the one that creates it speaks of a memory."""
        return self._c.one("SELECT 1 FROM subjects WHERE subject = ? LIMIT 1", (memory_id,)) is not None

    def _create(self, states: Sequence[State], changes: Changes) -> None:
        """Write the rows of new memories."""
        values: list[list[Any]] = []
        indexed: list[tuple[int, str, tuple[str, ...]]] = []
        for state in states:
            memory = state.memory
            self._newest.row += 1
            row, change = self._newest.row, self._newest.next_change()
            values.append([row, memory.id, change, memory.status, False, *state_values(state)])
            if not state.forgotten:
                text = searched_text(memory.title, memory.text)
                indexed.append((row, text, memory.tags))
                changes.created.append((row, memory, text))
        self._c.execute_many(_INSERT, values)
        if indexed:
            self.full_text.add(indexed)

    def _refold(self, memory_id: str, changes: Changes, events: Sequence[Event] = ()) -> set[str]:
        """Bring one memory up to date with its events; the ids whose standing may have changed.

        Args:
            memory_id: The memory.
            changes: The effects of the batch so far.
            events: Those that are new. If they come after all that was folded before, the fold goes on from there.
        """
        known = self._c.rows(_KNOWN, (memory_id,))
        state = self._folded(memory_id, known[0] if known else None, events)
        if state is None:
            return set()
        if not known:
            self._create([state], changes)
            moved = {memory_id}
            if state.forgotten:  # others spoke of it before it came
                self._log.scrub(memory_id)
                moved |= self.staleness.opposite(memory_id)
                self._drop_mentions(memory_id)
            return moved | self._settle(memory_id) | self._settle_replaced_by(memory_id)
        row, status, _kept, *stored = known[0]
        own = dict(zip(STATE_COLUMNS, stored, strict=True))
        before = searched_text(own["title"], own["text"])
        moved: set[str] = set()
        if state.forgotten:
            moved |= self.staleness.opposite(memory_id)
            self._forget(memory_id, (row, before, own["tags"]), bool(own["forgotten"]), changes)
        memory = state.memory
        self._rewrite(row, stored, state_values(state))
        after = searched_text(memory.title, memory.text)
        if before != after and not state.forgotten:
            self.full_text.retext(row, before, after)
            changes.retexted.append(row)
        if not state.forgotten and own["tags"] != encode_list(memory.tags):
            self.full_text.retag(row, own["tags"], memory.tags)
        if (
            (memory.disputes > 0) != (own["disputes"] > 0)
            or memory.pinned != own["pinned"]
            or state.forgotten
        ):
            moved.add(memory_id)
        if state.replaced_by or own["replaced_by"] or memory.status != status:
            moved |= {memory_id} | self._settle(memory_id)
        if own["replaced_by"] and own["replaced_by"] != state.replaced_by:
            moved |= self._settle(own["replaced_by"])
        if state.forgotten:
            moved |= self._settle_replaced_by(memory_id)
        return moved

    def _rewrite(self, row: int, stored: Sequence[Any], values: Sequence[Any]) -> None:
        """Bring a row up to date: the columns that differ, so that SQLite touches no other index than theirs."""
        names: list[str] = []
        changed: list[Any] = []
        for name, before, after in zip(STATE_COLUMNS, stored, values, strict=True):
            if before != after:
                names.append(f"{name} = ?, ")
                changed.append(after)
        sql = f"UPDATE memories SET {''.join(names)}changed = ? WHERE row = ?"
        self._c.execute(sql, [*changed, self._newest.next_change(), row])

    def _folded(self, memory_id: str, known: tuple[Any, ...] | None, events: Sequence[Event]) -> State | None:
        """The state of a memory: a step from where a long history was folded up to, or the fold of all of it."""
        if known is not None and events and known[2] is not None:
            kept = msgspec.msgpack.decode(known[2], type=Kept)
            if kept.follows(events):
                state, kept = fold_on(own_memory(memory_id, known[3:]), kept, events)
                self._keep(memory_id, kept)
                return state
        history = self._log.of(memory_id)
        state, kept = fold_whole(memory_id, history)
        if kept is not None and len(history) >= self.long:
            self._keep(memory_id, kept)
        elif known is not None and known[2] is not None:  # it is not true any more
            self._c.execute("DELETE FROM kept_folds WHERE subject = ?", (memory_id,))
        return state

    def _kept(self, subject: str, kind: type[S]) -> S | None:
        found = self._c.one("SELECT kept FROM kept_folds WHERE subject = ?", (subject,))
        return None if found is None else msgspec.msgpack.decode(found, type=kind)

    def _keep(self, subject: str, kept: Seen) -> None:
        self._c.execute(
            "INSERT OR REPLACE INTO kept_folds(subject, kept) VALUES(?, ?)",
            (subject, msgspec.msgpack.encode(kept)),
        )

    def _settle_replaced_by(self, memory_id: str) -> set[str]:
        """Let memories stand again that a forgotten one had replaced: a tombstone replaces nothing."""
        moved: set[str] = set()
        for (old,) in self._c.rows("SELECT id FROM memories WHERE replaced_by = ?", (memory_id,)):
            moved |= self._settle(old)
        return moved

    def _settle(self, start: str) -> set[str]:
        """Decide the status of a memory and of those it was replaced by.

        Replicas may concurrently replace a by b and b by a. In such a ring the newest replacement does not count;
        that depends on the set of events alone.
        """
        chain: list[tuple[str, str, str | None, str, str, Any]] = []
        seen: set[str] = set()
        at: str | None = start
        while at is not None and at not in seen:
            seen.add(at)
            rows = self._c.rows(
                "SELECT id, own_status, replaced_by, replaced_how, status, replaced_at FROM memories WHERE id = ?",
                (at,),
            )
            if not rows:
                break
            chain.append(rows[0])
            at = rows[0][2]
        ring_void: str | None = None
        if at is not None and chain and at in seen and any(link[0] == at for link in chain):
            ring = chain[next(i for i, link in enumerate(chain) if link[0] == at) :]
            ring_void = max(ring, key=lambda link: _stamp(link[5]))[0]
        moved: set[str] = set()
        for memory_id, own, target, how, status, _at in chain:
            wanted = own
            if (
                target is not None
                and own != "retracted"
                and memory_id != ring_void
                and not self._is_gone(target)
            ):
                wanted = how
            if wanted != status:
                self._c.execute(
                    "UPDATE memories SET status = ?, changed = ? WHERE id = ?",
                    (wanted, self._newest.next_change(), memory_id),
                )
                moved.add(memory_id)
        return moved

    def _is_gone(self, memory_id: str) -> bool:
        return bool(self._c.one("SELECT forgotten FROM memories WHERE id = ?", (memory_id,)))

    def _relink(self, src: str, events: Sequence[Event] = ()) -> set[str]:
        """Bring the links that go out of a memory up to date; those on whose standing that may bear."""
        subject = f"{LINKS}{src}"
        kept = self._kept(subject, Seen) if events else None
        gone = self._is_gone(src)
        if kept is not None and kept.follows(events):
            for event in sorted(events, key=order):
                self._link(event, gone=gone)
                kept.last = order(event)
            self._keep(subject, kept)
            return _bearing(src, [(event.body["dst"], event.body["rel"]) for event in events])
        history = self._log.of(src)
        links = [] if gone else fold_links(src, history)
        before = self._c.rows("SELECT dst, rel FROM links WHERE src = ?", (src,))
        if before:
            self._c.execute("DELETE FROM links WHERE src = ?", (src,))
        self._c.execute_many(
            "INSERT INTO links(src, dst, rel, strength) VALUES(?,?,?,?)",
            [(src, link.dst, link.rel, link.strength) for link in links],
        )
        if len(history) >= self.long:
            self._keep(subject, seen(history))
        return _bearing(src, [*before, *((link.dst, link.rel) for link in links)])

    def _link(self, event: Event, *, gone: bool) -> None:
        """One link more or less, the last word on it."""
        body = event.body
        if event.kind == "unlink" or gone:
            self._c.execute(
                "DELETE FROM links WHERE src = ? AND dst = ? AND rel = ?",
                (body["src"], body["dst"], body["rel"]),
            )
        else:
            self._c.execute(
                "INSERT OR REPLACE INTO links(src, dst, rel, strength) VALUES(?,?,?,?)",
                (body["src"], body["dst"], body["rel"], body.get("strength", 1.0)),
            )

    def _reset(self, subject: str, events: Sequence[Event] = ()) -> None:
        """Bring one setting up to date."""
        key = subject.removeprefix(SETTING)
        if stays_here(key):
            there, value = self.local_setting(key)
        elif (kept := self._kept(subject, Seen) if events else None) is not None and kept.follows(events):
            newest = max(events, key=order)
            there, value = newest.body["value"] is not None, newest.body["value"]
            kept.last = order(newest)
            self._keep(subject, kept)
        else:
            history = self._log.of(subject)
            there, value = fold_setting(history)
            if len(history) >= self.long:
                self._keep(subject, seen(history))
        if there:
            self._c.execute(_SET, (key, msgspec.json.encode(value).decode(), self._newest.seq))
        else:
            self._c.execute("DELETE FROM settings WHERE key = ?", (key,))
        if key == WRITERS:
            for other in LOCAL_SETTINGS - {WRITERS}:
                self._reset(SETTING + other)

    def local_setting(self, key: str) -> tuple[bool, Any]:
        """A setting that does not travel, by the events of this file alone and of whom `settings/from` names."""
        writers = names_of(self._c)
        if key != WRITERS:
            named = self.local_setting(WRITERS)[1]
            listed = cast("list[object]", named) if isinstance(named, list) else []
            writers |= {name: LAST_COUNTER for name in listed if isinstance(name, str)}
        return fold_setting(self._log.of(SETTING + key), writers)

    def _forget(self, memory_id: str, stored: tuple[int, str, str], again: bool, changes: Changes) -> None:
        erased = changes.erased

        def count(place: str, number: int) -> None:
            erased[place] = erased.get(place, 0) + number

        count("log", self._log.scrub(memory_id))
        self._c.execute("DELETE FROM kept_folds WHERE subject IN (?, ?)", (memory_id, f"{LINKS}{memory_id}"))
        if again:
            return
        row = stored[0]
        changes.forgotten_rows.append(row)
        self._c.execute("INSERT OR REPLACE INTO meta(key, value) VALUES('erasing', 1)")
        self.full_text.erase(*stored)
        count("words", 1)
        count("rows", 1)
        count("vectors", self._vectors.erase(row))
        count("links", self._drop_mentions(memory_id))

    def _drop_mentions(self, memory_id: str) -> int:
        """Take out the uses of a forgotten memory and the links it made; the number of links."""
        self._c.execute("DELETE FROM uses WHERE memory = ?", (memory_id,))
        self._c.execute("DELETE FROM links WHERE src = ?", (memory_id,))
        return self._c.db.changes()


def _certain(state: State | None) -> State:
    """The state of a memory whose `remember` is among the events, which every fold gives."""
    assert state is not None
    return state


def _bearing(src: str, links: Sequence[tuple[Any, ...]]) -> set[str]:
    """The memories on whose standing links bear, given one end and pairs of the other end and the relation.

    A source counts, too: what was made of it stands as long as the memory that replaced it is a summary of it.
    """
    ends = {dst for dst, rel in links if rel in ("contradicts", "derived_from")}
    return {src, *ends} if ends else set()


def _stamp(value: str | None) -> tuple[int, str, int]:
    return tuple(msgspec.json.decode(value)) if value else (0, "", 0)
