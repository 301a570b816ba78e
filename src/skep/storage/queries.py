"""What was read of a bank and is kept for as long as the bank stays as it was.

Reading: memories by id, filter and word, settings, and what the derived index asks for.

What the derived index is fed: the rows that changed, a batch at a time.

The memories of one scope, where they are few: a bank may hold those of thousands of users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import msgspec

from skep.errors import CorruptBankError
from skep.filters import Filter, IndexRow
from skep.model import ANY, KINDS, Memory, Scope
from skep.storage.event_log import Log
from skep.storage.links import Linked
from skep.storage.memory_rows import (
    BY_ROW,
    BY_ROW_AT_REST,
    CHANGED,
    HEAD,
    LAST,
    NEVER,
    SELECT,
    memories_of,
    memory_of,
    searched_text,
    where_clause,
    with_room,
)
from skep.storage.sqlite_connection import MEMORY, Connection
from skep.storage.vectors import Space, Vectors

FEW = 1024
"""Whoever asks for more texts than this reads the bank from end to end; they are not kept."""
KEPT_CHARS = 1 << 21
"""Characters of texts that are kept; when there are more, all are let go."""

Rows = Iterable[tuple[Any, ...]]


def texts(found: Rows) -> dict[int, str]:
    """Texts as indexed, by row, from rows of (row, title, text)."""
    return {row: text if title is None else searched_text(title, text) for row, title, text in found}


class Texts:
    """Texts by row, within bounds."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._at: tuple[int, int] | None = None
        self._size = 0

    def of(
        self, rows: Sequence[int], at: tuple[int, int], read: Callable[[Sequence[int]], Rows]
    ) -> dict[int, str]:
        """The texts of rows.

        Args:
            rows: Those of interest; what no text belongs to is left out.
            at: Where the bank stands; what was read at another place is read again.
            read: Reads (row, title, text) of some rows.
        """
        known = self._known
        if self._at != at or self._size > KEPT_CHARS:
            known.clear()
            self._at, self._size = at, 0
        missing = [row for row in rows if row not in known]
        if missing:
            more = texts(read(missing))
            known.update(more)
            self._size += sum(map(len, more.values()))
        return {row: known[row] for row in rows if row in known}


_ONE = SELECT.replace(":space", "?1") + " WHERE m.id = ?2 AND m.forgotten = 0"
_TEXTS = "SELECT row, title, text FROM memories WHERE row IN (:rows)"
_VALIDITY = "SELECT valid_from, valid_to FROM memories WHERE id = ? AND forgotten = 0"
FEW_ROWS = 12
"""Up to so many rows a statement has room for just as many, or for one more."""
SOME_ROWS = 100
"""Up to so many, for the next round number."""
MANY = 4096
"""Rows a statement has room for; more are written into it."""


class Reads(Linked):
    """The reading half of the store. What it caches is looked up again when anybody has written."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.log = Log(connection)
        self.vectors = Vectors(connection)
        self.bank_id: str = connection.one("SELECT value FROM meta WHERE key = 'bank'")
        self._seen = -1
        self._moment = -1
        self._turn = 0
        self._dirty = True
        """Whether something was written here since what is below was looked up."""
        self._beyond = True
        """Whether that was more than what memories say."""
        self._head: int | None = None
        self._row = 0
        self._last: int | None = None
        self._spaces: list[Space] = []
        self._active: Space | None = None
        self._settings: dict[str, str | None] = {}
        self._boundary: tuple[float, float] | None = None
        self._queued: bool | None = None
        self._read_before = False
        self._texts = Texts()
        self.clock: Callable[[], float] | None = None
        """Tells what has reached its end. Without one, memories are shown as the log leaves them."""

    def now(self) -> float:
        """The moment as of which memories are shown."""
        return NEVER if self.clock is None else self.clock()

    def get(self, memory_id: str) -> Memory | None:
        """One memory in whatever status; None if unknown or forgotten."""
        with self.connection.lock:
            version, space = self._seen, self._active
            found = self.connection.rows(_ONE, (space.number if space else -1, memory_id))
            if not self.connection.unmoved(version):  # the active space may be another one by now
                space = self.active_space()
                found = self.connection.rows(_ONE, (space.number if space else -1, memory_id))
        return memory_of(found[0], space.fingerprint if space else None, self.now()) if found else None

    def validity(self, memory_id: str) -> tuple[float | None, float | None] | None:
        """Since and until when a memory holds; None if it is unknown or forgotten."""
        found = self.connection.rows(_VALIDITY, (memory_id,))
        return (found[0][0], found[0][1]) if found else None

    def is_forgotten(self, memory_id: str) -> bool:
        """Whether only a tombstone is left."""
        return bool(self.connection.one("SELECT forgotten FROM memories WHERE id = ?", (memory_id,)))

    def memories(self, rows: Sequence[int]) -> dict[int, Memory]:
        """Memories by row, in the order of the rows."""
        if not rows:
            return {}
        space, asked = self.active_space(), sorted(rows)
        if space is None or self._waiting(space):
            found = self._of_rows(BY_ROW, asked, {"space": space.number if space else -1})
        else:
            found = self._of_rows(BY_ROW_AT_REST, asked)
        return memories_of(found, space.fingerprint if space else None, self.now())

    def _waiting(self, space: Space) -> bool:
        """Whether some row of the active space may be waiting to be embedded.

        Asked for the second time since somebody wrote: who reads but once in between would not gain by knowing.
        """
        with self.connection.lock:
            if self.connection.writing:  # it may be queued by what is being written
                return True
            self._look()
            if self._queued is None and self._read_before:
                self._queued = self.vectors.any_waiting(space.number)
            self._read_before = True
            return self._queued is not False

    def memories_where(self, condition: str, values: Mapping[str, Any], tail: str = "") -> list[Memory]:
        """Memories that meet a condition written by another module of this room."""
        space = self.active_space()
        bindings = {**values, "space": space.number if space else -1}
        rows = self.connection.rows(f"{SELECT} WHERE {condition} {tail}", bindings)
        fingerprint, now = space.fingerprint if space else None, self.now()
        return [memory_of(row, fingerprint, now) for row in rows]

    def few_of_scope(self, scope: Scope) -> list[str] | None:
        """The ids of everything of exactly a scope, tombstones included; None if that is much."""
        rows = few_of_scope(self.connection, scope)
        return None if rows is None else ids_of(self.connection, rows)

    def find(
        self, where: Filter, *, limit: int, before_row: int | None = None, terms: Sequence[str] = ()
    ) -> list[tuple[int, Memory]]:
        """Memories that pass a filter, newest first, with their rows. With `terms`: that hold all of them."""
        if terms:
            with (
                self.connection.snapshot()
            ):  # what waits for the full-text index, and the index, of one moment
                return self._find(where, limit, before_row, terms)
        return self._find(where, limit, before_row, terms)

    def _find(
        self, where: Filter, limit: int, before_row: int | None, terms: Sequence[str]
    ) -> list[tuple[int, Memory]]:
        now = where.now or self.now()
        condition, values = where_clause(where, now)
        values |= {"limit": limit}
        if before_row is not None:
            condition += " AND m.row < :before_row"
            values["before_row"] = before_row
        if terms:
            from skep.storage.full_text import waiting

            newest = [row for row, its in waiting(self.connection) if its.issuperset(terms)]
            also = f" UNION ALL VALUES {', '.join(f'({row})' for row in newest)}" if newest else ""
            condition += f" AND m.row IN (SELECT rowid FROM words WHERE words MATCH :match{also})"
            values["match"] = " ".join(_quoted(term) for term in terms)
        elif where.scope is not None and not where.include_shared:
            few = few_of_scope(self.connection, where.scope)
            if few is not None:
                condition += " AND m.row IN (SELECT value FROM json_each(:few))"
                values["few"] = msgspec.json.encode(few).decode()
        space = self.active_space()
        values["space"] = space.number if space else -1
        rows = self.connection.rows(f"{SELECT} WHERE {condition} ORDER BY m.row DESC LIMIT :limit", values)
        return [(row[-1], memory_of(row, space.fingerprint if space else None, now)) for row in rows]

    def foremost(self, where: Filter, *, limit: int) -> list[Memory]:
        """What is pinned or matters much and passes a filter: pinned ones first, then by importance, newest first."""
        condition, values = where_clause(where, where.now or self.now())
        return self.memories_where(
            f"{condition} AND (m.pinned = 1 OR m.importance >= 0.7)",
            {**values, "limit": limit},
            "ORDER BY m.pinned DESC, m.importance DESC, m.row DESC LIMIT :limit",
        )

    def changed_memories(self, after: int, kinds: Sequence[str]) -> list[Memory]:
        """Current memories of some kinds that changed after a change number, oldest first."""
        marks = ", ".join(f"'{kind}'" for kind in kinds if kind in KINDS)
        return self.memories_where(
            f"{CHANGED} AND m.kind IN ({marks}) AND m.status = 'active' AND m.forgotten = 0"
            " AND (m.expires_at IS NULL OR m.expires_at > :now)",
            {"after": after, "row": self.created_after(after), "now": self.now()},
            "ORDER BY +m.row",  # by itself the order would make SQLite read every row
        )

    def size(self) -> int:
        """How many memories there are, in whatever status."""
        return self.connection.one("SELECT count(*) FROM memories WHERE forgotten = 0")

    def trials(self) -> int:
        """How often procedures were tried, all together; what was merged has its record where it went."""
        sql = """SELECT coalesce(sum(successes + failures), 0) FROM memories
                 WHERE kind = 'procedure' AND forgotten = 0 AND replaced_how IS NOT 'merged'"""
        return self.connection.one(sql)

    def procedures(self) -> list[Memory]:
        """Every procedure, in whatever status."""
        return self.memories_where("m.kind = 'procedure' AND m.forgotten = 0", {}, "ORDER BY m.row")

    def due(self, now: float) -> list[Memory]:
        """Memories whose time is over and of which that is not written down yet."""
        return self.memories_where(
            "m.status = 'active' AND m.forgotten = 0 AND m.expires_at IS NOT NULL AND m.expires_at <= :now",
            {"now": now},
            "ORDER BY m.row",
        )

    def stale_memories(self) -> list[Memory]:
        """Current memories that stand on something that no longer does."""
        return self.memories_where(
            "m.stale = 1 AND m.status = 'active' AND m.forgotten = 0", {}, "ORDER BY m.row"
        )

    def count(self, where: Filter) -> int:
        """How many memories pass a filter."""
        condition, values = where_clause(where, where.now or self.now())
        space = self.active_space()
        values["space"] = space.number if space else -1
        sql = (
            "SELECT count(*) FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = :space"
            f" WHERE {condition}"
        )
        return self.connection.one(sql, values)

    def next_boundary(self, now: float) -> float:
        """When the next memory expires, begins or ceases to hold; infinity if none will."""
        if self._unchanged and self._boundary is not None and self._boundary[0] <= now < self._boundary[1]:
            return self._boundary[1]
        with self.connection.lock:
            self._look()
            if self._boundary is None or not self._boundary[0] <= now < self._boundary[1]:
                found = [
                    self.connection.one(f"SELECT min({column}) FROM memories WHERE {column} > ?", (now,))
                    for column in ("expires_at", "valid_from", "valid_to")
                ]
                upcoming = min((moment for moment in found if moment is not None), default=float("inf"))
                self._boundary = (now, upcoming)
            return self._boundary[1]

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """The rows of memories, by id."""
        asked = list(ids)
        if not asked:
            return {}
        marks = ", ".join("?" * len(asked))
        found = self.connection.rows(f"SELECT id, row FROM memories WHERE id IN ({marks})", asked)
        rows = dict(found)  # type: ignore[arg-type]
        return {memory_id: rows[memory_id] for memory_id in asked if memory_id in rows}

    def around(
        self, rows: Sequence[int], window: int, seconds: float
    ) -> dict[int, tuple[list[int], list[int]]]:
        """The rows just before and just after each row in time: same scope (not the shared one) and kind.

        Nearest first; a pause longer than `seconds` ends the walk. Two statements, however many rows.
        """
        from skep.storage.links import around

        return around(self._of_rows, rows, window, seconds) if rows else {}

    def admitted(self, rows: Sequence[int], where: Filter) -> set[int]:
        """Those of the rows that pass a filter."""
        if not rows:
            return set()
        passing, values = self._passing(where)
        return {row for (row,) in self._of_rows(f"SELECT m.row {passing} AND m.row IN (:rows)", rows, values)}

    def admitted_ids(self, ids: Sequence[str], where: Filter) -> set[str]:
        """Those of some memories that pass a filter."""
        if not ids:
            return set()
        passing, values = self._passing(where)
        sql = f"SELECT m.id {passing} AND m.id IN (SELECT value FROM json_each(:ids))"
        found = self.connection.rows(sql, {**values, "ids": msgspec.json.encode(ids).decode()})
        return {memory_id for (memory_id,) in found}

    def _passing(self, where: Filter) -> tuple[str, dict[str, Any]]:
        """From where what passes a filter is selected, and what is bound there."""
        condition, values = where_clause(where, where.now or self.now())
        space = self.active_space()
        joined = "FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = :space"
        return f"{joined} WHERE {condition}", {**values, "space": space.number if space else -1}

    def texts_of(self, rows: Sequence[int]) -> dict[int, str]:
        """Title and text of rows, as indexed; kept, within bounds, for as long as nobody changes a memory."""
        if not rows:
            return {}
        with self.connection.lock:
            if self.connection.writing or len(rows) > FEW:  # not true in the end, or not to come up again
                return texts(self._of_rows(_TEXTS, rows))
            at = self.head()
            return self._texts.of(rows, (at, self._seen), partial(self._of_rows, _TEXTS))

    def use_counts(self, rows: Sequence[int]) -> dict[int, tuple[int, int, float | None, str | None]]:
        """Uses, confirmations, last use and author of rows."""
        if not rows:
            return {}
        sql = (
            "SELECT m.row, coalesce(u.count, 0), m.confirmations, u.last_at, m.agent FROM memories m"
            " LEFT JOIN uses u ON u.memory = m.id WHERE m.row IN (:rows)"
        )
        found = self._of_rows(sql, rows)
        return {row: (uses, confirmed, at, agent) for row, uses, confirmed, at, agent in found}

    def trust_of(self, rows: Sequence[int]) -> dict[int, float]:
        """How far summaries among rows that have no one author are to be trusted, as they say themselves."""
        sql = (
            "SELECT row, json_extract(metadata, '$.trust') AS trust FROM memories WHERE row IN (:rows)"
            " AND level > 0 AND agent IS NULL AND typeof(trust) IN ('real', 'integer')"
        )
        return dict(self._of_rows(sql, rows)) if rows else {}

    def _of_rows(
        self, sql: str, rows: Sequence[int], values: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement over the rows it names as `:rows`, or as `:each` where each stands in brackets of its own.

        The room it leaves for them is even, a round number, or where they are many a power of two, so that a few
        prepared statements serve calls of every size.
        """
        if len(rows) > MANY:
            listed = [str(int(row)) for row in rows]
            sql = sql.replace(":rows", ",".join(listed)).replace(":each", f"({'),('.join(listed)})")
            return self.connection.rows(sql, values or {})
        if len(rows) <= FEW_ROWS:
            room = len(rows) + 1 & ~1
        else:
            room = -len(rows) // 10 * -10 if len(rows) <= SOME_ROWS else 1 << (len(rows) - 1).bit_length()
        named = values or {}
        text = with_room(sql, tuple(named), room)
        return self.connection.rows(text, (*named.values(), *map(int, rows), *(-1,) * (room - len(rows))))

    def setting(self, key: str) -> Any:
        """The value of a setting; None if it is not set."""
        value = self._settings.get(key, "") if self._unchanged else ""
        if value == "":  # no JSON: not read yet
            with self.connection.lock:
                self._look()
                if key not in self._settings or self.connection.writing:
                    sql = "SELECT value FROM settings WHERE key = ?"
                    self._settings[key] = self.connection.one(sql, (key,))
                value = self._settings[key]
        return None if value is None else msgspec.json.decode(value)

    def settings_under(
        self, prefix: str, decode: Callable[[str], Any] = msgspec.json.decode
    ) -> dict[str, Any]:
        """Every setting whose key starts with a prefix; `decode` makes a value of the JSON of each."""
        sql = "SELECT key, value FROM settings WHERE key >= ? AND key < ? ORDER BY key"
        return {key: decode(value) for key, value in self.connection.rows(sql, (prefix, prefix + "\uffff"))}

    # The derived index reads these

    def head(self) -> int:
        """The number of the newest change of a searchable row."""
        if self._unchanged and self._head is not None:
            return self._head
        with self.connection.lock:
            self._look()
            if self._head is None:
                ((head, self._row),) = self.connection.rows(f"SELECT {HEAD}, {LAST}")
                self._head = int(head)
            return self._head

    def created_after(self, change: int) -> int:
        """A row after which all are that were created after a change: no more are new than there were changes."""
        with self.connection.lock:
            head = self.head()
            return self._row - (head - change)

    def last_seq(self) -> int:
        """The position of the newest event; 0 in an empty bank."""
        with self.connection.lock:
            self._look()
            if self._last is None:
                self._last = self.log.last_seq()
            return self._last

    def turn(self) -> int:
        """Another number whenever anything that was read before may be different now; cheap in a snapshot."""
        if not self._unchanged:
            with self.connection.lock:
                self._look()
        return self._turn

    @property
    def _unchanged(self) -> bool:
        """Whether it was looked in this snapshot already, in which nothing changes but by our own writing."""
        return 0 < self._moment == self.connection.moment and not self._dirty and self._seen >= 0

    def position(self) -> tuple[int, int]:
        """`head` and `last_seq` of one moment."""
        with self.connection.lock:
            self._look()
            head, last = self._head, self._last
            return (self.head(), self.last_seq()) if head is None or last is None else (head, last)

    def spaces(self) -> list[Space]:
        """The vector spaces, as anybody last left them."""
        connection = self.connection
        with connection.lock:
            if (
                connection.version != self._seen or not connection.db.in_transaction
            ):  # nobody else writes while we do
                self._look()
            return self._spaces

    def _look(self) -> None:
        """Let go of what was looked up before anybody wrote; asked once per snapshot, for nothing changes in one.

        Nor does anybody else write while we do.
        """
        connection = self.connection
        moment = connection.moment
        if not self._dirty and self._seen >= 0:
            if moment and moment == self._moment:
                return
            if not moment and connection.version == self._seen and connection.db.in_transaction:
                return
        version = connection.data_version()
        if version != self._seen:
            self._dirty = self._beyond = True
            self._spaces = self.vectors.spaces()
            self._active = next((space for space in self._spaces if space.state == "active"), None)
            self._seen = version
        if self._dirty:
            self._turn += 1
            newest = self.log.newest
            known = newest.stands(version)  # nobody but ourselves has written since
            self._head, self._last = (newest.change, newest.seq) if known else (None, None)
            self._row = newest.row
            if self._beyond:
                self._boundary = self._queued = None
                self._read_before = False
                self._settings.clear()
            self._beyond = self._dirty = False  # last: an interrupt in between must not pass for a look
        self._moment = moment

    def _wrote(self, *, beyond: bool) -> None:
        """Take note of a write of our own; `beyond` what memories say, it is looked up again what that was."""
        self._dirty = True
        self._beyond = self._beyond or beyond

    def erased_since(self, head: int) -> bool:
        """Whether something was forgotten after a position, as of now and not of what is being read."""
        path = self.connection.where
        if path == MEMORY:
            return False
        sql = f"SELECT 1 FROM memories m WHERE m.forgotten = 1 AND {CHANGED} LIMIT 1"
        after = {"after": head, "row": self.created_after(head)}
        other = Connection(path, busy_seconds=0.0, read_only=True)
        try:
            return other.one(sql, after) is not None
        finally:
            other.close()

    def changed_since(self, seq: int) -> Iterator[IndexRow]:
        """See `IndexSource`."""

        space = self.active_space()
        number, row = space.number if space else -1, self.created_after(seq)
        return index_rows(self.connection, number, seq, self.head(), row)

    def active_space(self) -> Space | None:
        """The space recall uses."""
        if self._unchanged:
            return self._active
        with self.connection.lock:
            self._look()
            return self._active

    def building_space(self) -> Space | None:
        """The space that is being filled, if the embedder changed."""
        return next((space for space in self.spaces() if space.state == "building"), None)

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


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


_ROWS = """
SELECT m.row, m.changed, m.title, m.text, v.vector, m.kind,
       CASE WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END,
       m.domain, m.agent, m.scope_user, m.scope_project, m.scope_session, m.tags, m.created_at, m.valid_from,
       m.valid_to, m.expires_at, m.confidence, m.last_evidence_at, m.importance, m.forgotten, m.id, {is_new}
FROM {which} m
LEFT JOIN halves v ON v.key = (:space << 40) | m.row
LEFT JOIN pending p ON p.row = m.row AND p.space = :space
WHERE m.changed > :after AND m.changed <= :head {more} LIMIT :batch
"""
_NEW = _ROWS.format(which="newborn", is_new=1, more="AND m.row > :row ORDER BY m.row")
_ALTERED = _ROWS.format(which="altered", is_new=0, more="ORDER BY m.changed")
_BOTH = f"SELECT * FROM ({_NEW}) UNION ALL SELECT * FROM ({_ALTERED})"
"""In one statement, which costs a little more for each row."""
BATCH = 1000
WHOLE = 1 << 15
"""Reading so many rows fills the cache with pages that nobody will ask for again."""
_tags = msgspec.json.Decoder(tuple[str, ...])
_change = itemgetter(1)


def index_rows(connection: Connection, space: int, seq: int, head: int, newest: int) -> Iterator[IndexRow]:
    """The rows that changed after one change and up to another, with their vectors in a space.

    Rows up to `newest` are known not to be new.
    """
    read = 0
    while seq < head:
        bound = {"space": space, "row": newest, "after": seq, "head": head, "batch": BATCH}
        if head - seq < BATCH:
            rows = connection.rows(_BOTH, bound)
        else:  # of each kind as many as a batch has, each in the order of its changes
            rows = [*connection.rows(_NEW, bound), *connection.rows(_ALTERED, bound)]
        new = sum(row[-1] for row in rows)
        seq = head
        if new == BATCH:
            seq = rows[new - 1][1]
        if len(rows) - new == BATCH:
            seq = min(seq, rows[-1][1])
        if new < len(rows):  # the rest of what is new comes again, after what was altered before it
            rows = sorted((row for row in rows if row[1] <= seq), key=_change)
        for (
            row, changed, title, text, vector, kind, status, domain, agent, user, project, session, tags,
            created, start, end, expires, confidence, evidence_at, importance, forgotten, memory_id, is_new,
        ) in rows:  # fmt: skip
            if is_new:
                newest = row
            yield IndexRow(
                row, changed, f"{title}\n{text}" if title else text, vector, kind, status, domain, agent, user,
                project, session, _decode_tags(tags), created, start, end, expires, confidence, evidence_at,
                importance, forgotten == 1, memory_id,
            )  # fmt: skip
        read += len(rows)
    if read >= WHOLE:
        connection.rows("PRAGMA shrink_memory")


@lru_cache(maxsize=1024)
def _decode_tags(tags: str) -> tuple[str, ...]:
    try:
        return () if tags == "[]" else _tags.decode(tags)
    except msgspec.MsgspecError as error:
        raise CorruptBankError(
            f"the tags of a memory are damaged ({error}); `skep doctor --mend` writes them anew from the log"
        ) from error


FEW_SCOPED = 200
"""With more of them, whoever wants the newest finds enough by going back from the end."""
_PARTS = ("user", "project", "session")


def few_of_scope(connection: Connection, scope: Scope) -> list[int] | None:
    """The rows of everything of exactly a scope, what was forgotten included; None if that is much, or all of it
    would have to be read to know.
    """
    asked: dict[str, Any] = {part: getattr(scope, part) for part in _PARTS}
    if asked["user"] == ANY or not any(value not in (None, ANY) for value in asked.values()):
        return None  # the index begins with the user, and has nothing of what is shared
    parts = [
        f"scope_{part} IS NULL" if value is None else f"scope_{part} = :{part}"
        for part, value in asked.items()
        if value != ANY
    ]
    rows = connection.rows(
        f"SELECT row FROM memories INDEXED BY memories_scope WHERE {' AND '.join(parts)} LIMIT {FEW_SCOPED + 1}",
        {part: value for part, value in asked.items() if value not in (None, ANY)},
    )
    return [row for (row,) in rows] if len(rows) <= FEW_SCOPED else None


def ids_of(connection: Connection, rows: Sequence[int]) -> list[str]:
    """The ids of some rows."""
    sql = "SELECT id FROM memories WHERE row IN (SELECT value FROM json_each(?))"
    return [memory_id for (memory_id,) in connection.rows(sql, (msgspec.json.encode(rows).decode(),))]
