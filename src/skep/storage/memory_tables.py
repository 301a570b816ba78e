"""New memories as rows of their table.

A memory that was just created has been neither judged nor replaced, and most of its fields are empty. So only those
columns are written that some memory of the batch fills; the others have what the table says.

Revisions that come after all else that speaks of a memory: the columns they change, and nothing else.

The law is that this gives what the fold of the whole history gives. Where more may hang on it (something was undone,
the memory was replaced, or where its long history ended is kept), the fold decides.

The tables that make the log visible. Everything here can be rebuilt from the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from skep.events import SETTING, mentioned, order
from skep.model import Event, Memory
from skep.storage.event_log import Log
from skep.storage.fold import (
    SET,
    Kept,
    Seen,
    Staleness,
    State,
    first_memory,
    fold,
    fold_links,
    fold_on,
    fold_setting,
    fold_whole,
    revised,
    seen,
    set_first,
    unit,
)
from skep.storage.full_text import Batch, Handover, Worded, Wording
from skep.storage.memory_rows import (
    SHOWN,
    STATE_COLUMNS,
    USUAL,
    encode_body,
    memory_of,
    own_memory,
    searched_text,
    state_values,
    together,
)
from skep.storage.sqlite_connection import Connection
from skep.storage.vectors import Vectors

_ALWAYS = ("kind", "text", "confidence", "importance", "created_at", "last_evidence_at")
_FILLED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("text", "kind", "confidence", "importance", "created_at", "tags"), ()),
    **{
        name: (name,)
        for name in (
            *("title", "domain", "agent", "source", "polarity", "pinned", "level", "valid_from", "valid_to"),
            *("evidence", "metadata"),
        )
    },
    "scope": ("scope.user", "scope.project", "scope.session"),
    "ttl": ("expires_at",),
}
"""Per key in the body of a `remember`, the fields of the memory that it fills, beyond those always written."""


TIMES = frozenset(("valid_from", "valid_to", "expires_at"))
"""Columns that say from and until when a memory holds."""


class Form(NamedTuple):
    """How the memories of a batch are written."""

    sql: str
    fields: Callable[[Memory], tuple[Any, ...]]
    packed: tuple[tuple[str, str], ...]
    """Fields that are kept as JSON, each with what an empty one is."""
    timed: bool
    """Whether any of them may begin or cease to hold."""

    def values(self, memory: Memory, row: int, change: int) -> tuple[Any, ...]:
        """The values of one row."""
        tags = encode_body(memory.tags) if memory.tags else "[]"  # type: ignore[arg-type]
        plain = (row, memory.id, change, change, tags, *self.fields(memory))
        if not self.packed:
            return plain
        found = [(getattr(memory, name), empty) for name, empty in self.packed]
        return (*plain, *(encode_body(value) if value else empty for value, empty in found))


def form_of(events: Sequence[Event]) -> Form | None:
    """How to write what these events create; None if one says more than a `remember` of today does, or has no text."""
    if len(events) == 1:
        return _form(tuple(events[0].body))
    bodies = [event.body for event in events]
    keys = set[str]().union(*bodies)
    return _form(tuple(sorted(keys))) if all("text" in body for body in bodies) else None


@lru_cache(maxsize=64)
def _form(keys: tuple[str, ...]) -> Form | None:
    if not _FILLED.keys() >= set(keys) or "text" not in keys:
        return None
    filled = [name for key, names in _FILLED.items() if key in keys for name in names]
    empty = {"evidence": "[]", "metadata": "{}"}
    fields = (*_ALWAYS, *(name for name in filled if name not in empty))
    packed = tuple((name, empty[name]) for name in filled if name in empty)
    columns = ("row", "id", "changed", "born", "tags", *fields, *(name for name, _ in packed))
    return Form(
        f"INSERT INTO memories(status, own_status, {', '.join(columns).replace('.', '_')})"
        f" VALUES('active', 'active', {', '.join('?' * len(columns))})",
        attrgetter(*fields),
        packed,
        not TIMES.isdisjoint(fields),
    )


_NAMES = (*SHOWN, "p.row", "m.row", *(f"m.{name}" for name in USUAL))
_PLACES = {name.removeprefix("m."): place for place, name in enumerate(_NAMES) if name.startswith("m.")}
_FOUND = (
    "SELECT m.own_status, m.forgotten, (SELECT kept FROM folds WHERE subject = m.id),"
    " EXISTS (SELECT 1 FROM events WHERE kind = 'undo'),"
    " (SELECT fingerprint FROM spaces WHERE state = 'active'),"
    f" {', '.join(_NAMES)} FROM memories m LEFT JOIN uses u ON u.memory = m.id LEFT JOIN pending p ON p.row = m.row"
    " AND p.space = (SELECT space FROM spaces WHERE state = 'active') WHERE m.id = ?"
)
_EXTRA = 5


def _packed(empty: str) -> Callable[[Any], str]:
    return lambda value: encode_body(value) if value else empty


def _same(value: Any) -> Any:
    return value


_COLUMNS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("text", "title", "domain", "agent", "source", "polarity", "pinned"), _same),
    **dict.fromkeys(("valid_from", "valid_to", "expires_at"), _same),
    **dict.fromkeys(("confidence", "importance"), unit),
    "tags": _packed("[]"),
    "metadata": _packed("{}"),
}
"""Per key of a revision that has a column of its own, what stands there."""


class Revised(NamedTuple):
    """A memory after its revisions."""

    row: int
    columns: dict[str, Any]
    """Those that are others now."""
    before: str
    after: str
    """What is searched of it."""
    tags: str
    """As its column had them before."""
    memory: Memory
    """As reading it back would give it, if `before` and `after` are the same."""


def revised_row(connection: Connection, memory_id: str, events: Sequence[Event]) -> Revised | None:
    """What revisions minted here make of a memory; None if that is for the fold to say."""
    changed = _changes(events)
    found = connection.rows(_FOUND, (memory_id,)) if changed is not None else ()
    if changed is None or not found:
        return None
    own_status, forgotten, kept, undone, fingerprint = found[0][:_EXTRA]
    row = list(found[0][_EXTRA:])
    if forgotten or undone or kept is not None:
        return None
    if row[_PLACES["replaced_by"]] is not None or row[_PLACES["status"]] != own_status:
        return None
    before, tags = searched_text(row[_PLACES["title"]], row[_PLACES["text"]]), row[_PLACES["tags"]]
    columns: dict[str, Any] = {}
    for name, value in changed.items():
        place = _PLACES[name]
        if row[place] != value:
            columns[name] = row[place] = value
    if "pinned" in columns:  # what is derived from it may hang on that
        return None
    after = searched_text(row[_PLACES["title"]], row[_PLACES["text"]])
    *shown, pending, number = row[: -len(USUAL)]
    memory = memory_of((*shown, together(row[-len(USUAL) :]), pending, number), fingerprint)
    return Revised(number, columns, before, after, tags, memory)


def _changes(events: Iterable[Event]) -> dict[str, Any] | None:
    """What stands in the columns that revisions speak of; None if they say more than those of today do."""
    columns: dict[str, Any] = {}
    for event in sorted(events, key=order):
        if event.kind != "revise":
            return None
        changes = dict(event.body.get("changes", {}))
        if "ttl" in changes:
            columns["expires_at"] = event.at + changes.pop("ttl")
        scope = changes.pop("scope", None)
        if scope is not None:
            columns |= {f"scope_{part}": scope.get(part) for part in ("user", "project", "session")}
        for key, value in changes.items():
            stored = _COLUMNS.get(key)
            if stored is None:
                return None
            columns[key] = stored(value)
    return columns


_INSERT = (
    f"INSERT INTO memories(row, id, changed, born, status, stale, {', '.join(STATE_COLUMNS)})"
    f" VALUES({','.join('?' * (6 + len(STATE_COLUMNS)))})"
)
_KNOWN = (
    "SELECT row, status, (SELECT kept FROM folds WHERE subject = ?1),"
    " EXISTS (SELECT 1 FROM events WHERE kind = 'undo'),"
    f" {', '.join(STATE_COLUMNS)} FROM memories WHERE id = ?1"
)
_FORGOTTEN, _REPLACED = STATE_COLUMNS.index("forgotten"), STATE_COLUMNS.index("replaced_by")
_USED = (
    "INSERT INTO uses(memory, count, last_at) SELECT key, value, ?2 FROM json_each(?1) WHERE NOT EXISTS"
    " (SELECT 1 FROM memories INDEXED BY memories_forgotten WHERE id = key AND forgotten = 1)"
    " ON CONFLICT(memory) DO UPDATE SET"
    " count = count + excluded.count, last_at = max(last_at, excluded.last_at)"
)
"""All counts of an event at once: a statement for each would cost twice as much."""
LINKS = "links:"
LONG = 8
"""From so many events on, where a fold ended is kept; a shorter history is read faster than that would be."""
S = TypeVar("S", bound=Seen)


class Changes(msgspec.Struct):
    """What a batch of events touched; handed from step to step inside one transaction."""

    created: list[tuple[int, Memory, str]] = []
    """Row, memory and searched text of what is new, in order."""
    retexted: list[int] = []
    """Rows whose searched text changed: their vectors are outdated."""
    revised: dict[str, Memory] = {}
    """What became of memories that were revised, as reading them back would give them; as far as that is known."""
    unknown: list[str] = []
    """Ids that our own events speak of, and no memory bears."""
    cut: Batch | None = None
    """The texts of what is new, for the index, once they are on disk."""
    embedder: str | None = None
    """The fingerprint of the active space, where it has a vector of what is new."""
    waiting: bool = False
    """Whether any of them waits to be embedded."""
    beyond: bool = False
    """Whether more is different now than what memories say: settings, or from and until when a memory holds."""
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
        self.handover = Handover()
        self.wording = Wording(connection, log.newest, self.handover)
        self.long = LONG

    def apply(self, events: Sequence[Event], *, fresh: bool) -> Changes:
        """Bring the tables up to date with events that were just inserted.

        Args:
            events: The new events.
            fresh: They were minted here, so nothing can mention a memory before it is created.
        """
        changes = Changes()
        if fresh and len(events) == 1 and events[0].kind == "remember":  # as most writes are
            self._bear(events, changes)
            return changes
        born: list[Event] = []
        subjects: dict[str, list[Event]] = {}
        linked: dict[str, list[Event]] = {}
        for event in events:
            if event.kind == "remember" and (fresh or not self._mentioned(event.id)):
                born.append(event)
            elif event.kind == "use":
                self._count_uses(event)
            elif event.kind in ("link", "unlink"):  # says nothing of the memories themselves
                linked.setdefault(event.body["src"], []).append(event)
            else:
                for subject in dict.fromkeys(mentioned(event)):
                    subjects.setdefault(subject, []).append(event)
                    if event.kind == "undo" and not subject.startswith(SETTING):
                        linked.setdefault(subject, []).append(event)
        if born:
            self._bear(born, changes)
            if len(born) == len(events):
                return changes
        moved: set[str] = set()
        settings = [subject for subject in subjects if subject.startswith(SETTING)]
        first = (
            set_first(self._c, settings, subjects, self._newest.seq) if fresh and len(settings) > 1 else ()
        )
        for subject, its in subjects.items():
            if subject.startswith(SETTING):
                changes.beyond = True
                if subject not in first:
                    self._reset(subject, its)
            else:
                moved |= self._refold(subject, changes, its, fresh=fresh)
        for src, its in linked.items():
            moved |= self._relink(src, its)
        if moved:
            self.staleness.renew(moved)
        return changes

    def rebuild(self, subjects: Iterable[str]) -> None:
        """Recompute memories, links and settings from the log as it now is."""
        changes = Changes()
        moved: set[str] = set()
        self._c.run("DELETE FROM folds")
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
        self._c.run("DELETE FROM uses")
        for event in self._log.after(0):
            if event.kind == "use":
                self._count_uses(event)
        for space in self._vectors.spaces():
            self._vectors.queue(space.number, changes.retexted)
        self.staleness.renew(moved)

    def _vanish(self, memory_id: str) -> None:
        """Take out a memory that the log does not know (any more)."""
        self._c.run(
            "UPDATE memories SET forgotten = 1, text = '', title = NULL, status = 'retracted',"
            " replaced_by = NULL, replaced_how = NULL, replaced_at = NULL, changed = ? WHERE id = ?",
            (self._next_change(), memory_id),
        )

    def _next_change(self) -> int:
        """The number of one more change of a searchable row."""
        self._newest.change += 1
        return self._newest.change

    def touch(self, rows: Iterable[int]) -> None:
        """Mark rows as changed, so that the derived index looks at them again."""
        self._c.db.executemany(
            "UPDATE memories SET changed = ? WHERE row = ?", [(self._next_change(), row) for row in rows]
        )

    def _mentioned(self, memory_id: str) -> bool:
        """Whether any event but the one that creates it speaks of a memory."""
        return self._c.one("SELECT 1 FROM subjects WHERE subject = ? LIMIT 1", (memory_id,)) is not None

    def _bear(self, events: Sequence[Event], changes: Changes) -> None:
        """Create what these events remember; nothing else speaks of it yet."""
        form = form_of(events)
        if form is None:
            self._create([_known(fold(event.id, (event,))) for event in events], changes)
            return
        newest = self._newest
        row, change = newest.row, newest.change
        values: list[tuple[Any, ...]] = []
        worded: list[Worded] = []
        for event in events:
            row += 1
            change += 1
            memory = first_memory(event)
            text = searched_text(memory.title, memory.text)
            values.append(form.values(memory, row, change))
            worded.append((row, text, memory.tags))
            changes.created.append((row, memory, text))
        changes.beyond = changes.beyond or form.timed
        self._c.insert_each(form.sql, values)
        first, newest.row, newest.change = newest.change + 1, row, change
        changes.cut = self.wording.created(worded, first)

    def _create(self, states: Sequence[State], changes: Changes) -> None:
        newest = self._newest
        changes.beyond = True
        values: list[list[Any]] = []
        worded: list[Worded] = []
        for state in states:
            m = state.memory
            newest.row += 1
            newest.change += 1
            values.append([newest.row, m.id, newest.change, newest.change, m.status, 0, *state_values(state)])
            text = searched_text(m.title, m.text)
            if not state.forgotten:
                worded.append((newest.row, text, m.tags))
                changes.created.append((newest.row, m, text))
        self._c.db.executemany(_INSERT, values)
        if worded:
            self.wording.created(worded)

    def _refold(
        self, memory_id: str, changes: Changes, events: Sequence[Event] = (), *, fresh: bool = False
    ) -> set[str]:
        """Bring one memory up to date with its events; the ids whose standing may have changed.

        Args:
            memory_id: The memory.
            changes: What the batch touched so far.
            events: Those that are new. If they come after all that was folded before, the fold goes on from there.
            fresh: They were minted here, so they do.
        """
        if fresh and self._revise(memory_id, events, changes):
            return set()
        changes.beyond = True
        known = self._c.rows(_KNOWN, (memory_id,))
        if fresh and (not known or known[0][4 + _FORGOTTEN]):
            changes.unknown.append(memory_id)
        state = self._folded(memory_id, known[0] if known else None, events, fresh=fresh)
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
        row, status, _kept, _undo, *stored = known[0]
        own = dict(zip(STATE_COLUMNS, stored, strict=True))
        before = searched_text(own["title"], own["text"])
        moved: set[str] = set()
        if state.forgotten:
            moved |= self.staleness.opposite(memory_id)
            self._forget(memory_id, (row, before, own["tags"]), bool(own["forgotten"]), changes)
        m = state.memory
        self._rewrite(row, stored, state_values(state))
        after = searched_text(m.title, m.text)
        if before != after and not state.forgotten:
            self.wording.retexted(row, before, after)
            changes.retexted.append(row)
        if not state.forgotten and own["tags"] != (encode_body(m.tags) if m.tags else "[]"):  # type: ignore[arg-type]
            self.wording.retagged(row, own["tags"], m.tags)
        if (m.disputes > 0) != (own["disputes"] > 0) or m.pinned != own["pinned"] or state.forgotten:
            moved.add(memory_id)
        if state.replaced_by or own["replaced_by"] or m.status != status:
            moved |= {memory_id} | self._settle(memory_id)
        if own["replaced_by"] and own["replaced_by"] != state.replaced_by:
            moved |= self._settle(own["replaced_by"])
        if state.forgotten:
            moved |= self._settle_replaced_by(memory_id)
        return moved

    def _revise(self, memory_id: str, events: Sequence[Event], changes: Changes) -> bool:
        """Bring a memory up to date with revisions newer than all else, if that takes no more than its own columns."""
        done = revised_row(self._c, memory_id, events)
        if done is None:
            return False
        changes.beyond = changes.beyond or not TIMES.isdisjoint(done.columns)
        sets = "".join([f"{name} = ?, " for name in done.columns])
        sql = f"UPDATE memories SET {sets}changed = ? WHERE row = ?"
        self._c.run(sql, (*done.columns.values(), self._next_change(), done.row))
        if done.before != done.after:
            self.wording.retexted(done.row, done.before, done.after)
            changes.retexted.append(done.row)
        else:
            changes.revised[memory_id] = done.memory
        if "tags" in done.columns:
            self.wording.retagged(done.row, done.tags, done.memory.tags)
        return True

    def _rewrite(self, row: int, stored: Sequence[Any], values: Sequence[Any]) -> None:
        """Bring a row up to date: the columns that differ, so that SQLite touches no other index than theirs."""
        names: list[str] = []
        changed: list[Any] = []
        for name, before, after in zip(STATE_COLUMNS, stored, values, strict=True):
            if before != after:
                names.append(f"{name} = ?, ")
                changed.append(after)
        sql = f"UPDATE memories SET {''.join(names)}changed = ? WHERE row = ?"
        self._c.run(sql, [*changed, self._next_change(), row])

    def _folded(
        self, memory_id: str, known: tuple[Any, ...] | None, events: Sequence[Event], *, fresh: bool
    ) -> State | None:
        """The state of a memory: a step from what is stored or was kept of a long history, or the fold of all of it."""
        if known is not None and events:
            _row, _status, packed, undone, *stored = known
            if packed is not None:
                kept = msgspec.msgpack.decode(packed, type=Kept)
                if kept.follows(events):
                    state, kept = fold_on(own_memory(memory_id, stored), kept, events)
                    self._keep(memory_id, kept)
                    return state
            elif fresh and not undone and not stored[_FORGOTTEN] and all(e.kind == "revise" for e in events):
                state = State(memory=revised(own_memory(memory_id, stored), events))
                by, how, at = stored[_REPLACED : _REPLACED + 3]
                if by is not None:
                    state.replaced_by, state.replaced_how, state.replaced_at = by, how, _stamp(at)
                return state
        history = self._log.of(memory_id)
        if len(history) < self.long:
            state, whole = fold(memory_id, history), None
        else:
            state, whole = fold_whole(memory_id, history)
        if whole is not None:
            self._keep(memory_id, whole)
        elif known is not None and known[2] is not None:  # what was kept is not true any more
            self._c.run("DELETE FROM folds WHERE subject = ?", (memory_id,))
        return state

    def _kept(self, subject: str, kind: type[S]) -> S | None:
        found = self._c.one("SELECT kept FROM folds WHERE subject = ?", (subject,))
        return None if found is None else msgspec.msgpack.decode(found, type=kind)

    def _keep(self, subject: str, kept: Seen) -> None:
        self._c.run(
            "INSERT OR REPLACE INTO folds(subject, kept) VALUES(?, ?)",
            (subject, msgspec.msgpack.encode(kept)),
        )

    def _settle_replaced_by(self, memory_id: str) -> set[str]:
        """What a forgotten memory had replaced stands again: a tombstone replaces nothing."""
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
                self._c.run(
                    "UPDATE memories SET status = ?, changed = ? WHERE id = ?",
                    (wanted, self._next_change(), memory_id),
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
            self._c.run("DELETE FROM links WHERE src = ?", (src,))
        self._c.db.executemany(
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
            self._c.run(
                "DELETE FROM links WHERE src = ? AND dst = ? AND rel = ?",
                (body["src"], body["dst"], body["rel"]),
            )
        else:
            self._c.run(
                "INSERT OR REPLACE INTO links(src, dst, rel, strength) VALUES(?,?,?,?)",
                (body["src"], body["dst"], body["rel"], body.get("strength", 1.0)),
            )

    def _reset(self, subject: str, events: Sequence[Event] = ()) -> None:
        """Bring one setting up to date."""
        key = subject.removeprefix(SETTING)
        kept = self._kept(subject, Seen) if events else None
        if kept is not None and kept.follows(events):
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
            self._c.run(SET, (key, msgspec.json.encode(value).decode(), self._newest.seq))
        else:
            self._c.run("DELETE FROM settings WHERE key = ?", (key,))

    def _count_uses(self, event: Event) -> None:
        self._c.run(_USED, (encode_body(event.body["counts"]), event.body.get("at", event.at)))

    def _forget(self, memory_id: str, stored: tuple[int, str, str], again: bool, changes: Changes) -> None:
        erased = changes.erased

        def count(place: str, number: int) -> None:
            erased[place] = erased.get(place, 0) + number

        count("log", self._log.scrub(memory_id))
        self._c.run("DELETE FROM folds WHERE subject IN (?, ?)", (memory_id, f"{LINKS}{memory_id}"))
        if again:
            return
        row = stored[0]
        changes.forgotten_rows.append(row)
        self._c.run("INSERT OR REPLACE INTO meta(key, value) VALUES('erasing', 1)")
        self.wording.erase(*stored)
        count("words", 1)
        count("rows", 1)
        count("vectors", self._vectors.erase(row))
        count("links", self._drop_mentions(memory_id))

    def _drop_mentions(self, memory_id: str) -> int:
        """Take out the uses of a forgotten memory and the links it made; the number of links."""
        self._c.run("DELETE FROM uses WHERE memory = ?", (memory_id,))
        self._c.run("DELETE FROM links WHERE src = ?", (memory_id,))
        return self._c.db.changes()


def _known(state: State | None) -> State:
    assert state is not None
    return state


def _bearing(src: str, links: Sequence[tuple[Any, ...]]) -> set[str]:
    """Whose standing links from a memory, to each with a relation, bear on: what is derived, and both in a dispute."""
    ends = {dst for dst, rel in links if rel == "contradicts"}
    return {src, *ends} if ends or any(rel == "derived_from" for _dst, rel in links) else set()


def _stamp(value: str | None) -> tuple[int, str, int]:
    return tuple(msgspec.json.decode(value)) if value else (0, "", 0)
