"""The SQLite store: one file, the log and the tables derived from it, one transaction per write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from skep.clock import pack
from skep.config import Settings
from skep.errors import ReadOnlyError
from skep.model import Event, Link, Memory
from skep.storage.base import Filter, IndexRow
from skep.storage.connection import MEMORY, Connection, translated
from skep.storage.fold import mentioned
from skep.storage.log import Log, scrubbed_body
from skep.storage.opening import claim_actor, connect, copy_file, prepare
from skep.storage.rows import SELECT, memory_of, searched_text, where_clause
from skep.storage.tables import Changes, Tables
from skep.storage.vectors import SHIFT, Space, Vectors

Plan = tuple[str, "dict[str, Any] | Callable[[Sequence[str]], dict[str, Any]]"]
"""The kind and the body of an event that is about to be written; the body may depend on the ids minted before it."""

_INDEX_ROWS = """
SELECT m.row, m.changed, m.title, m.text, v.vector, m.kind,
       CASE WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END,
       m.domain, m.agent, m.scope_user, m.scope_project, m.scope_session, m.tags, m.created_at, m.valid_from,
       m.valid_to, m.expires_at, m.confidence, m.last_evidence_at, m.importance, m.forgotten
FROM memories m
LEFT JOIN vectors v ON v.key = (:space << 40) | m.row
LEFT JOIN pending p ON p.row = m.row AND p.space = :space
WHERE m.changed > :after AND m.changed <= :head ORDER BY m.changed LIMIT :batch
"""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of events that came from elsewhere."""

    new: int = 0
    known: int = 0
    held: tuple[str, ...] = ()
    """Events that wait for one before them, or for their time to come."""
    erased: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    forgotten_rows: tuple[int, ...] = ()


class SqliteStore:
    """The truth of one bank. See `storage.base` for the invariants."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self.connection = connection
        self.settings = settings
        self.read_only = connection.read_only
        self.log = Log(connection)
        self.vectors = Vectors(connection)
        self.tables = Tables(connection, self.log, self.vectors)
        self.actor = claim_actor(connection)
        self.bank_id: str = connection.one("SELECT value FROM meta WHERE key = 'bank'")
        self._seen = -1
        self._head = 0
        self._spaces: list[Space] = []
        self._dirty = True

    @classmethod
    def open(
        cls, path: Path | str, settings: Settings, *, create: bool = True, read_only: bool = False
    ) -> SqliteStore:
        """Open or create a bank file. A file that cannot be written is opened for reading."""
        path = prepare(path, create=create and not read_only)
        try:
            connection = connect(path, busy_seconds=settings.busy_seconds, read_only=read_only)
        except ReadOnlyError:
            if read_only or not Path(path).exists():
                raise
            connection = connect(path, busy_seconds=settings.busy_seconds, read_only=True)
        return cls(connection, settings)

    @property
    def path(self) -> Path | None:
        """The file; None for a bank in memory."""
        return None if str(self.connection.path) == MEMORY else Path(self.connection.path)

    # Writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction; what was cached of the state is looked up again afterwards, whatever the end."""
        self._refuse_read_only()
        with self.connection.transaction():
            try:
                yield
            finally:
                self._dirty = True

    def write(
        self,
        plans: Sequence[Plan],
        *,
        now: float,
        embed: Callable[[Sequence[str]], Mapping[int, Sequence[bytes]]] | None = None,
        sign: Callable[[Event], bytes] | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[list[Event], Changes]:
        """Append events of our own and everything they mean, in one transaction.

        Args:
            plans: What happened.
            now: The wall clock.
            embed: Called with new texts; gives vectors per space. Rows without one are queued.
            sign: Signs an event before it is written.
            check: Runs inside the transaction, before anything is written; may raise to refuse.
        """
        with self.writing():
            if check is not None:
                check()
            events = self.log.mint(self.actor, plans, now)
            if sign is not None:
                events = [msgspec.structs.replace(event, signature=sign(event)) for event in events]
            changes = self._take(events, fresh=True, embed=embed)
        return events, changes

    def apply(
        self,
        events: Iterable[Event],
        *,
        now: float,
        embed: Callable[[Sequence[str]], Mapping[int, Sequence[bytes]]] | None = None,
    ) -> Applied:
        """Take events of other replicas: each once, in any order, gaps and future stamps held back."""
        horizon = pack(now + self.settings.max_drift_seconds)
        with self.writing():
            versions = self.log.versions()
            waiting = {(event.actor, event.counter): event for event in self.log.held()}
            known = 0
            for event in events:
                if event.counter <= versions.get(event.actor, 0) or (event.actor, event.counter) in waiting:
                    known += 1
                else:
                    waiting[event.actor, event.counter] = event
            ready: list[Event] = []
            for key in sorted(waiting):
                event = waiting[key]
                if event.counter == versions.get(event.actor, 0) + 1 and event.hlc <= horizon:
                    versions[event.actor] = event.counter
                    ready.append(event)
            for event in ready:
                del waiting[event.actor, event.counter]
            self.log.hold(waiting.values())
            self.log.release(ready)
            ready.sort(key=lambda event: (event.hlc, event.actor, event.counter))
            ready = self._per_actor(ready)
            changes = (
                self._take([self._scrubbed(e) for e in ready], fresh=False, embed=embed)
                if ready
                else Changes()
            )
        return Applied(
            new=len(ready),
            known=known,
            held=tuple(f"{actor}-{counter}" for actor, counter in sorted(waiting)),
            erased=changes.erased,
            forgotten_rows=tuple(changes.forgotten_rows),
        )

    @staticmethod
    def _per_actor(events: list[Event]) -> list[Event]:
        """Keep each actor's events in the order of its counters, even where its clock ran backwards."""
        queues: dict[str, list[Event]] = {}
        for event in events:
            queues.setdefault(event.actor, []).append(event)
        for queue in queues.values():
            queue.sort(key=lambda event: event.counter, reverse=True)
        return [queues[event.actor].pop() for event in events]

    def _scrubbed(self, event: Event) -> Event:
        """An event about something forgotten arrives without its text."""
        if any(self.is_forgotten(subject) for subject in mentioned(event)):
            return msgspec.structs.replace(event, body=scrubbed_body(event), signature=None)
        return event

    def _take(
        self,
        events: Sequence[Event],
        *,
        fresh: bool,
        embed: Callable[[Sequence[str]], Mapping[int, Sequence[bytes]]] | None,
    ) -> Changes:
        self.log.insert(events, self.log.next_seq())
        changes = self.tables.apply(events, fresh=fresh)
        rows = [row for row, _id, _text in changes.created]
        texts = [text for _row, _id, text in changes.created]
        if changes.retexted:
            rows += changes.retexted
            texts += [self._text_of(row) for row in changes.retexted]
        if rows:
            vectors = embed(texts) if embed is not None else {}
            for space in self.vectors.spaces():
                made = vectors.get(space.number)
                if made is not None:
                    self.vectors.put(space.number, rows, made)
                else:
                    self.vectors.queue(space.number, rows)
        return changes

    def _text_of(self, row: int) -> str:
        ((title, text),) = self.connection.rows("SELECT title, text FROM memories WHERE row = ?", (row,))
        return searched_text(title, text)

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self.connection.path} is open for reading only; check its permissions")

    # Reading

    def get(self, memory_id: str) -> Memory | None:
        """One memory in whatever status; None if unknown or forgotten."""
        found = self.memories_where("m.id = :id AND m.forgotten = 0", {"id": memory_id})
        return found[0] if found else None

    def is_forgotten(self, memory_id: str) -> bool:
        """Whether only a tombstone is left."""
        return bool(self.connection.one("SELECT forgotten FROM memories WHERE id = ?", (memory_id,)))

    def memories(self, rows: Sequence[int]) -> dict[int, Memory]:
        """Memories by row."""
        if not rows:
            return {}
        marks = ", ".join(str(int(row)) for row in rows)
        space = self.active_space()
        values = {"space": space.number if space else -1}
        found = self.connection.rows(f"{SELECT} WHERE m.row IN ({marks}) AND m.forgotten = 0", values)
        fingerprint = space.fingerprint if space else None
        return {row[-1]: memory_of(row, fingerprint) for row in found}

    def memories_where(self, condition: str, values: Mapping[str, Any], tail: str = "") -> list[Memory]:
        """Memories that meet a condition written by another module of this room."""
        space = self.active_space()
        bindings = {**values, "space": space.number if space else -1}
        rows = self.connection.rows(f"{SELECT} WHERE {condition} {tail}", bindings)
        return [memory_of(row, space.fingerprint if space else None) for row in rows]

    def find(
        self, where: Filter, *, limit: int, before_row: int | None = None, terms: Sequence[str] = ()
    ) -> list[tuple[int, Memory]]:
        """Memories that pass a filter, newest first, with their rows. With `terms`: that hold all of them."""
        condition, values = where_clause(where)
        values |= {"limit": limit}
        if before_row is not None:
            condition += " AND m.row < :before_row"
            values["before_row"] = before_row
        if terms:
            condition += " AND m.row IN (SELECT rowid FROM words WHERE words MATCH :match)"
            values["match"] = " ".join(_quoted(term) for term in terms)
        space = self.active_space()
        values["space"] = space.number if space else -1
        rows = self.connection.rows(f"{SELECT} WHERE {condition} ORDER BY m.row DESC LIMIT :limit", values)
        return [(row[-1], memory_of(row, space.fingerprint if space else None)) for row in rows]

    def count(self, where: Filter) -> int:
        """How many memories pass a filter."""
        condition, values = where_clause(where)
        space = self.active_space()
        values["space"] = space.number if space else -1
        sql = (
            "SELECT count(*) FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = :space"
            f" WHERE {condition}"
        )
        return self.connection.one(sql, values)

    def search_words(self, terms: Sequence[str], where: Filter, limit: int) -> list[tuple[int, float]]:
        """Rows that hold any of the terms, best first, by SQLite's own BM25. Needs no numpy and no index."""
        if not terms:
            return []
        condition, values = where_clause(where)
        space = self.active_space()
        values |= {
            "match": " OR ".join(_quoted(term) for term in dict.fromkeys(terms)),
            "limit": limit,
            "space": space.number if space else -1,
        }
        sql = (
            "SELECT m.row, -bm25(words) AS score FROM words JOIN memories m ON m.row = words.rowid"
            " LEFT JOIN pending p ON p.row = m.row AND p.space = :space"
            f" WHERE words MATCH :match AND {condition} ORDER BY score DESC, m.row DESC LIMIT :limit"
        )
        return [(row, score) for row, score in self.connection.rows(sql, values)]

    def next_boundary(self, now: float) -> float:
        """When the next memory expires, begins or ceases to hold; infinity if none will."""
        found = [
            self.connection.one(f"SELECT min({column}) FROM memories WHERE {column} > ?", (now,))
            for column in ("expires_at", "valid_from", "valid_to")
        ]
        return min((moment for moment in found if moment is not None), default=float("inf"))

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """The rows of memories, by id."""
        found: dict[str, int] = {}
        for memory_id in ids:
            row = self.connection.one("SELECT row FROM memories WHERE id = ?", (memory_id,))
            if row is not None:
                found[memory_id] = row
        return found

    def links(self, memory_id: str, *, rel: str | None = None, direction: str = "both") -> list[Link]:
        """The links of one memory."""
        found = self._lineage_links(memory_id, rel, direction)
        for column, wanted in (("src", "out"), ("dst", "in")):
            if direction in (wanted, "both"):
                sql = f"SELECT src, dst, rel, strength FROM links WHERE {column} = :id"
                values: dict[str, Any] = {"id": memory_id}
                if rel is not None:
                    sql += " AND rel = :rel"
                    values["rel"] = rel
                found += [
                    Link(src=s, dst=d, rel=r, strength=w)
                    for s, d, r, w in self.connection.rows(sql + " ORDER BY rel, src, dst", values)
                ]
        return found

    def _lineage_links(self, memory_id: str, rel: str | None, direction: str) -> list[Link]:
        """What replaced what, as links: the newer `supersedes` the older, a copy is a `duplicate_of` the kept one."""
        rows = self.connection.rows(
            "SELECT id, replaced_by, status FROM memories WHERE (id = :id OR replaced_by = :id)"
            " AND replaced_by IS NOT NULL AND status IN ('superseded', 'merged') ORDER BY id",
            {"id": memory_id},
        )
        links = [
            Link(src=new, dst=old, rel="supersedes")
            if status == "superseded"
            else Link(src=old, dst=new, rel="duplicate_of")
            for old, new, status in rows
        ]
        return [
            link
            for link in links
            if rel in (None, link.rel)
            and (direction == "both" or (link.src if direction == "out" else link.dst) == memory_id)
        ]

    def all_links(self) -> list[Link]:
        """Every link."""
        rows = self.connection.rows("SELECT src, dst, rel, strength FROM links ORDER BY src, dst, rel")
        return [Link(src=s, dst=d, rel=r, strength=w) for s, d, r, w in rows]

    def around(self, row: int, window: int, seconds: float) -> tuple[list[int], list[int]]:
        """The rows just before and just after one in time: same scope (not the shared one), agent and kind.

        Nearest first; a pause longer than `seconds` ends the walk.
        """
        found = self.connection.rows(
            "SELECT scope_user, scope_project, scope_session, created_at, agent, kind FROM memories WHERE row = ?",
            (row,),
        )
        if not found or found[0][:3] == (None, None, None):
            return [], []
        user, project, session, start, agent, kind = found[0]
        sides: list[list[int]] = []
        for compare, order in (("<", "DESC"), (">", "ASC")):
            rows = self.connection.rows(
                "SELECT row, created_at, agent, kind, forgotten FROM memories WHERE scope_user IS ? AND"
                " scope_project IS ? AND scope_session IS ? AND (scope_user IS NOT NULL OR scope_project IS NOT NULL"
                f" OR scope_session IS NOT NULL) AND (created_at, row) {compare} (?, ?)"
                f" ORDER BY created_at {order}, row {order} LIMIT ?",
                (user, project, session, start, row, window),
            )
            side: list[int] = []
            last = start
            for there, at, its_agent, its_kind, forgotten in rows:
                if abs(at - last) > seconds or its_agent != agent or its_kind != kind or forgotten:
                    break
                side.append(there)
                last = at
            sides.append(side)
        return sides[0], sides[1]

    def admitted(self, rows: Sequence[int], where: Filter) -> set[int]:
        """Those of the rows that pass a filter."""
        if not rows:
            return set()
        condition, values = where_clause(where)
        space = self.active_space()
        values["space"] = space.number if space else -1
        marks = ", ".join(str(int(row)) for row in rows)
        sql = (
            "SELECT m.row FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = :space"
            f" WHERE m.row IN ({marks}) AND {condition}"
        )
        return {row for (row,) in self.connection.rows(sql, values)}

    def texts_of(self, rows: Sequence[int]) -> dict[int, str]:
        """Title and text of rows, as indexed."""
        if not rows:
            return {}
        marks = ", ".join(str(int(row)) for row in rows)
        found = self.connection.rows(f"SELECT row, title, text FROM memories WHERE row IN ({marks})")
        return {row: searched_text(title, text) for row, title, text in found}

    def use_counts(self, rows: Sequence[int]) -> dict[int, tuple[int, int, float | None, str | None]]:
        """Uses, confirmations, last use and author of rows."""
        if not rows:
            return {}
        marks = ", ".join(str(int(row)) for row in rows)
        sql = (
            "SELECT m.row, coalesce(u.count, 0), m.confirmations, u.last_at, m.agent FROM memories m"
            f" LEFT JOIN uses u ON u.memory = m.id WHERE m.row IN ({marks})"
        )
        return {
            row: (uses, confirmed, at, agent) for row, uses, confirmed, at, agent in self.connection.rows(sql)
        }

    def setting(self, key: str) -> Any:
        """The value of a setting; None if it is not set."""
        value = self.connection.one("SELECT value FROM settings WHERE key = ?", (key,))
        return None if value is None else msgspec.json.decode(value)

    def settings_under(self, prefix: str) -> dict[str, Any]:
        """Every setting whose key starts with a prefix."""
        sql = "SELECT key, value FROM settings WHERE key >= ? AND key < ? ORDER BY key"
        return {
            key: msgspec.json.decode(value)
            for key, value in self.connection.rows(sql, (prefix, prefix + "\uffff"))
        }

    # The derived index reads these

    def moved(self) -> bool:
        """Whether anything was written since the last call of `head`, here or in another process."""
        return self._dirty or self.connection.data_version() != self._seen

    def head(self) -> int:
        """The number of the newest change of a searchable row."""
        with self.connection.lock:
            version = self.connection.data_version()
            if self._dirty or version != self._seen:
                self._dirty = False
                self._head = self.connection.one("SELECT max(changed) FROM memories") or 0
                self._spaces = self.vectors.spaces()
                self._seen = version
            return self._head

    def changed_since(self, seq: int) -> Iterator[IndexRow]:
        """See `IndexSource`."""
        head = self.head()
        space = self.active_space()
        batch = 2000
        while seq < head:
            rows = self.connection.rows(
                _INDEX_ROWS,
                {"space": space.number if space else -1, "after": seq, "head": head, "batch": batch},
            )
            for row in rows:
                number, changed, title, text, *rest, tags = row[:13]
                yield IndexRow(
                    number,
                    changed,
                    searched_text(title, text),
                    *rest,
                    () if tags == "[]" else msgspec.json.decode(tags, type=tuple[str, ...]),
                    *row[13:20],
                    gone=bool(row[20]),
                )
            if len(rows) < batch:
                return
            seq = rows[-1][1]

    def active_space(self) -> Space | None:
        """The space recall uses."""
        self.head()
        return next((space for space in self._spaces if space.state == "active"), None)

    def building_space(self) -> Space | None:
        """The space that is being filled, if the embedder changed."""
        self.head()
        return next((space for space in self._spaces if space.state == "building"), None)

    def fingerprint(self) -> str:
        """See `IndexSource`."""
        space = self.active_space()
        return space.fingerprint if space else ""

    def dim(self) -> int:
        """See `IndexSource`."""
        space = self.active_space()
        return space.dim if space else 0

    def identity(self) -> str:
        """See `IndexSource`."""
        return self.bank_id

    def vectors_of(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Exact vectors of the active space."""
        space = self.active_space()
        return self.vectors.get(space.number, rows) if space else {}

    # Spaces

    def adopt(self, fingerprint: str, dim: int, spec: str | None) -> Space | None:
        """Make sure there is a space for an embedder; the one that is being built, if it is not the active one."""
        active = self.active_space()
        if active is not None and active.fingerprint == fingerprint:
            return None
        if self.read_only:
            return None
        with self.writing():
            for space in self.vectors.spaces():
                if space.fingerprint == fingerprint:
                    return None if space.state == "active" else space
                if space.state == "building":
                    self.vectors.drop(space.number)
            empty = not self.connection.one("SELECT 1 FROM memories WHERE forgotten = 0 LIMIT 1")
            if empty and active is not None:
                self.vectors.drop(active.number)
            state = "active" if empty or active is None else "building"
            space = self.vectors.create(fingerprint, dim, spec, state)
            self.vectors.queue_all(space.number)
            if state == "active":
                rows = self.connection.rows("SELECT row FROM memories WHERE forgotten = 0")
                self.tables.touch(row for (row,) in rows)
        return None if state == "active" else space

    def put_vectors(
        self, space: int, rows: Sequence[int], vectors: Sequence[bytes], texts: Sequence[str]
    ) -> None:
        """Store vectors the queue has made; rows that were forgotten or have another text by now are left alone."""
        with self.writing():
            made = dict(zip(rows, zip(vectors, texts, strict=True), strict=True))
            marks = ", ".join(str(int(row)) for row in rows)
            still = self.connection.rows(
                "SELECT m.row, m.title, m.text FROM pending p JOIN memories m ON m.row = p.row"
                f" WHERE p.space = ? AND p.row IN ({marks})",
                (space,),
            )
            kept = [row for row, title, text in still if searched_text(title, text) == made[row][1]]
            self.vectors.put(space, kept, [made[row][0] for row in kept])
            active = next((s for s in self.vectors.spaces() if s.state == "active"), None)
            if active is not None and active.number == space:
                self.tables.touch(kept)

    def activate(self, space: int) -> bool:
        """Switch recall to a space that was being built, if it is complete."""
        with self.writing():
            if self.vectors.waiting(space):
                return False
            self.vectors.activate(space)
            rows = self.connection.rows("SELECT row FROM memories")
            self.tables.touch(row for (row,) in rows)
        return True

    # Whole-file work

    def backup(self, target: Path, now: float) -> None:
        """Copy the bank while it is in use, and remember where, so that `forget` reaches the copy."""
        if not self.read_only:
            with self.connection.transaction():
                self.connection.execute(
                    "INSERT OR REPLACE INTO backups(path, made_at) VALUES(?,?)", (str(target.resolve()), now)
                )
        copy_file(self.connection, target)

    def backups(self) -> list[Path]:
        """Where copies were made."""
        return [Path(path) for (path,) in self.connection.rows("SELECT path FROM backups ORDER BY path")]

    def drop_backup(self, path: Path) -> None:
        """Forget about a copy that is no longer there."""
        with self.connection.transaction():
            self.connection.execute("DELETE FROM backups WHERE path = ?", (str(path),))

    def truncate_wal(self) -> bool:
        """Move everything from the write-ahead log into the file; False if a reader was in the way."""
        if self.path is None:
            return True
        with self.connection.lock, translated(self.connection.path):
            try:
                log, done = self.connection.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                return False
        return log == done

    def copy_to_memory(self) -> SqliteStore:
        """The same bank, in memory, to look at another time."""
        copy = Connection(MEMORY, busy_seconds=self.settings.busy_seconds)
        with self.connection.lock, translated(self.connection.path):
            with copy.db.backup("main", self.connection.db, "main") as backup:
                while not backup.done:
                    backup.step(4096)
        return SqliteStore(copy, self.settings)

    def rewind(self, stamp: int) -> None:
        """Drop every event after a stamp and what it meant. Only ever done to a copy in memory."""
        with self.writing():
            later = "SELECT seq FROM events WHERE hlc > ?"
            subjects = [
                subject
                for (subject,) in self.connection.rows(
                    f"SELECT DISTINCT memory FROM mentions WHERE seq IN ({later})", (stamp,)
                )
            ]
            self.connection.execute(f"DELETE FROM mentions WHERE seq IN ({later})", (stamp,))
            self.connection.execute("DELETE FROM events WHERE hlc > ?", (stamp,))
            self.tables.rebuild(subjects)

    def close(self) -> None:
        """Release the file."""
        self.connection.close()


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


__all__ = ["SHIFT", "Applied", "Plan", "SqliteStore"]
