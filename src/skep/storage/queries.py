"""Queries: memories by id, row, filter and word, settings, vector spaces, and the rows that the derived index asks for.

`SqliteStore` inherits `Reads`; the engine and the index call it. Nothing here writes. What is looked up once per state
of the file (`_Looked`) is dropped as soon as anybody has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from skep.errors import CorruptBankError
from skep.filters import Filter, IndexRow
from skep.model import BELOW, KINDS, Memory, Scope, is_pattern
from skep.storage.event_log import Log
from skep.storage.links import Linked, around
from skep.storage.memory_rows import NEVER, SELECT, decode_list, memory_of, searched_text, where_clause
from skep.storage.sqlite_connection import MEMORY, Connection
from skep.storage.vectors import Space, Vectors

FEW_SCOPED = 200
"""With more memories in a scope than this, whoever wants the newest finds enough by going back from the end."""
BATCH = 1000
"""Rows read at a time for the index."""
WHOLE = 1 << 15
"""Reading so many rows fills SQLite's cache with pages that nobody will ask for again."""
_JOINED = "FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = :space"
_LISTED = "(SELECT value FROM json_each(:rows))"


class _Looked(msgspec.Struct):
    """Values that were looked up of one state of the file."""

    version: int = -1
    spaces: list[Space] | None = None
    position: tuple[int, int] | None = None
    settings: dict[str, str | None] = {}
    boundary: tuple[float, float] | None = None


class Reads(Linked):
    """The reading half of the store."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.log = Log(connection)
        self.vectors = Vectors(connection)
        self.bank_id: str = connection.one("SELECT value FROM meta WHERE key = 'bank'")
        self._last_look = _Looked()
        self.clock: Callable[[], float] | None = None
        """Tells which memories have reached their end. Without one, they are shown as the log leaves them."""

    def _look(self) -> _Looked:
        """The values that are known of the present state of the file. The caller holds the lock."""
        version = self.connection.state()
        if self._last_look.version != version:
            self._last_look = _Looked(version=version)
        return self._last_look

    def turn(self) -> int:
        """Another number whenever anything that was read before may be different now."""
        return self.connection.state()

    def now(self) -> float:
        """The moment as of which memories are shown."""
        return NEVER if self.clock is None else self.clock()

    # Memories

    def get(self, memory_id: str) -> Memory | None:
        """One memory in whatever status; None if unknown or forgotten."""
        found = self.memories_where("m.id = :id AND m.forgotten = 0", {"id": memory_id})
        return found[0] if found else None

    def validity(self, memory_id: str) -> tuple[float | None, float | None] | None:
        """Since and until when a memory holds; None if it is unknown or forgotten."""
        sql = "SELECT valid_from, valid_to FROM memories WHERE id = ? AND forgotten = 0"
        found = self.connection.rows(sql, (memory_id,))
        return (found[0][0], found[0][1]) if found else None

    def is_forgotten(self, memory_id: str) -> bool:
        """True if only a tombstone is left."""
        return bool(self.connection.one("SELECT forgotten FROM memories WHERE id = ?", (memory_id,)))

    def forgotten(self) -> list[str]:
        """The ids of every memory of which only a tombstone is left."""
        return [i for (i,) in self.connection.rows("SELECT id FROM memories WHERE forgotten = 1")]

    def memories(self, rows: Sequence[int]) -> dict[int, Memory]:
        """Memories by row."""
        if not rows:
            return {}
        return dict(self._selected(f"m.row IN {_LISTED} AND m.forgotten = 0", {"rows": _listed(rows)}))

    def memories_where(self, condition: str, values: Mapping[str, Any], tail: str = "") -> list[Memory]:
        """Memories that meet a condition in SQL over `memories m`."""
        return [memory for _row, memory in self._selected(condition, values, tail)]

    def _selected(
        self, condition: str, values: Mapping[str, Any], tail: str = "", now: float | None = None
    ) -> list[tuple[int, Memory]]:
        """Memories that meet a condition, with their rows."""
        with self.connection.lock:  # the space and the rows of one moment, as far as threads go
            space = self.active_space()
            rows = self.connection.rows(
                f"{SELECT} WHERE {condition} {tail}", {**values, "space": space.number if space else -1}
            )
        fingerprint = space.fingerprint if space else None
        now = self.now() if now is None else now
        return [(row[0], memory_of(row, fingerprint, now)) for row in rows]

    def few_of_scope(self, scope: Scope) -> list[str] | None:
        """The ids of everything of exactly a scope, tombstones included; None if that is much."""
        rows = self._few_rows_of(scope)
        if rows is None:
            return None
        sql = f"SELECT id FROM memories WHERE row IN {_LISTED}"
        return [memory_id for (memory_id,) in self.connection.rows(sql, {"rows": _listed(rows)})]

    def _few_rows_of(self, scope: Scope) -> list[int] | None:
        """The rows of everything of exactly a scope; None if that is much, or if all would have to be read to know."""
        asked = {"user": scope.user, "project": scope.project, "session": scope.session}
        named = {part: value for part, value in asked.items() if value is not None and not is_pattern(value)}
        if is_pattern(scope.user) or not named or any(str(value).endswith(BELOW) for value in asked.values()):
            return None  # the index begins with the user, and has nothing of what is shared
        parts = [f"scope_{part} IS NULL" for part, value in asked.items() if value is None]
        parts += [f"scope_{part} = :{part}" for part in named]
        sql = f"SELECT row FROM main.memories INDEXED BY memories_scope WHERE {' AND '.join(parts)}"
        rows = self.connection.rows(f"{sql} LIMIT {FEW_SCOPED + 1}", named)
        return [row for (row,) in rows] if len(rows) <= FEW_SCOPED else None

    def find(
        self, where: Filter, *, limit: int, before_row: int | None = None, terms: Sequence[str] = ()
    ) -> list[tuple[int, Memory]]:
        """Memories that pass a filter, newest first, with their rows. With `terms`: that hold all of them."""
        now = where.now or self.now()
        condition, values = where_clause(where, now)
        values |= {"limit": limit}
        if before_row is not None:
            condition += " AND m.row < :before_row"
            values["before_row"] = before_row
        if terms:
            from skep.storage.full_text import quoted, waiting

            newest = [row for row, its in waiting(self.connection) if its.issuperset(terms)]
            condition += (
                f" AND (m.row IN (SELECT rowid FROM words WHERE words MATCH :match) OR m.row IN {_LISTED})"
            )
            values |= {"match": " ".join(map(quoted, terms)), "rows": _listed(newest)}
        elif where.scope is not None and not where.include_shared:
            few = self._few_rows_of(where.scope)
            if few is not None:
                condition += f" AND m.row IN {_LISTED}"
                values["rows"] = _listed(few)
        return self._selected(condition, values, "ORDER BY m.row DESC LIMIT :limit", now)

    def foremost(self, where: Filter, *, limit: int) -> list[Memory]:
        """Pinned or important memories that pass a filter: pinned ones first, then by importance, newest first."""
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
            f"m.changed > :after AND m.kind IN ({marks}) AND m.status = 'active' AND m.forgotten = 0"
            " AND (m.expires_at IS NULL OR m.expires_at > :now)",
            {"after": after, "now": self.now()},
            "ORDER BY +m.row",  # by itself the order would make SQLite read every row
        )

    def size(self) -> int:
        """The number of memories, in whatever status."""
        return self.connection.one("SELECT count(*) FROM memories WHERE forgotten = 0")

    def trials(self) -> int:
        """The number of trials of all procedures; the record of a merged one is counted where it went."""
        sql = """SELECT coalesce(sum(successes + failures), 0) FROM memories
                 WHERE kind = 'procedure' AND forgotten = 0 AND replaced_how IS NOT 'merged'"""
        return self.connection.one(sql)

    def procedures(self) -> list[Memory]:
        """Every procedure, in whatever status."""
        return self.memories_where("m.kind = 'procedure' AND m.forgotten = 0", {}, "ORDER BY m.row")

    def due(self, now: float) -> list[Memory]:
        """Memories that have reached their end and are not marked as expired yet."""
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

    def scopes(self, where: Filter) -> dict[Scope, int]:
        """The scopes of memories that pass a filter, and how many are of each."""
        passing, values = self._passing(where)
        parts = "m.scope_user, m.scope_project, m.scope_session"
        rows = self.connection.rows(
            f"SELECT {parts}, count(*) {passing} GROUP BY {parts} ORDER BY {parts}", values
        )
        return {Scope(user=user, project=project, session=session): n for user, project, session, n in rows}

    def count(self, where: Filter) -> int:
        """The number of memories that pass a filter."""
        passing, values = self._passing(where)
        return self.connection.one(f"SELECT count(*) {passing}", values)

    def admitted(self, rows: Sequence[int], where: Filter) -> set[int]:
        """Those of the rows that pass a filter."""
        if not rows:
            return set()
        passing, values = self._passing(where)
        sql = f"SELECT m.row {passing} AND m.row IN {_LISTED}"
        return {row for (row,) in self.connection.rows(sql, {**values, "rows": _listed(rows)})}

    def admitted_ids(self, ids: Sequence[str], where: Filter) -> set[str]:
        """Those of some memories that pass a filter."""
        if not ids:
            return set()
        passing, values = self._passing(where)
        sql = f"SELECT m.id {passing} AND m.id IN (SELECT value FROM json_each(:ids))"
        found = self.connection.rows(sql, {**values, "ids": msgspec.json.encode(ids).decode()})
        return {memory_id for (memory_id,) in found}

    def _passing(self, where: Filter) -> tuple[str, dict[str, Any]]:
        """The FROM and WHERE of memories that pass a filter, and the bindings."""
        condition, values = where_clause(where, where.now or self.now())
        space = self.active_space()
        return f"{_JOINED} WHERE {condition}", {**values, "space": space.number if space else -1}

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """The rows of memories, by id, in the order of the ids."""
        asked = list(ids)
        if not asked:
            return {}
        sql = "SELECT id, row FROM memories WHERE id IN (SELECT value FROM json_each(?))"
        rows = dict(self.connection.rows(sql, (msgspec.json.encode(asked).decode(),)))  # type: ignore[arg-type]
        return {memory_id: rows[memory_id] for memory_id in asked if memory_id in rows}

    def changes_of(self, ids: Sequence[str]) -> dict[str, int]:
        """The number of the last change of each memory, by id."""
        sql = "SELECT id, changed FROM memories WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self.connection.rows(sql, (msgspec.json.encode(ids).decode(),)))  # type: ignore[arg-type]

    def around(
        self, rows: Sequence[int], window: int, seconds: float
    ) -> dict[int, tuple[list[int], list[int]]]:
        """The rows just before and just after each row in time: same scope (not the shared one) and kind.

        Nearest first; a pause longer than `seconds` ends the walk. Two statements, however many rows.
        """
        return around(self._of_rows, rows, window, seconds) if rows else {}

    def texts_of(self, rows: Sequence[int]) -> dict[int, str]:
        """Title and text of rows, as indexed."""
        found = self._of_rows("SELECT row, title, text FROM memories WHERE row IN (:rows)", rows)
        return {row: f"{title}\n{text}" if title else text for row, title, text in found}

    def use_counts(self, rows: Sequence[int]) -> dict[int, tuple[int, int, float | None, str | None]]:
        """Uses, confirmations, last use and author of rows."""
        sql = (
            "SELECT m.row, coalesce(u.count, 0), m.confirmations, u.last_at, m.agent FROM memories m"
            " LEFT JOIN uses u ON u.memory = m.id WHERE m.row IN (:rows)"
        )
        found = self._of_rows(sql, rows)
        return {row: (uses, confirmed, at, agent) for row, uses, confirmed, at, agent in found}

    def trust_of(self, rows: Sequence[int]) -> dict[int, float]:
        """The trust that derived memories among rows state themselves, where they have no one author."""
        sql = (
            "SELECT row, json_extract(metadata, '$.trust') AS trust FROM memories WHERE row IN (:rows)"
            " AND (level > 0 OR source = 'maintenance: extracted') AND agent IS NULL"
            " AND typeof(trust) IN ('real', 'integer')"
        )
        return dict(self._of_rows(sql, rows))

    def _of_rows(self, sql: str, rows: Sequence[int]) -> list[tuple[Any, ...]]:
        """Run a statement over the rows it names as `(:rows)`."""
        if not rows:
            return []
        return self.connection.rows(sql.replace("(:rows)", _LISTED), {"rows": _listed(rows)})

    # Settings

    def setting(self, key: str) -> Any:
        """The value of a setting; None if it is not set."""
        with self.connection.lock:
            known = self._look().settings
            if key not in known:
                known[key] = self.connection.one("SELECT value FROM settings WHERE key = ?", (key,))
            value = known[key]
        return None if value is None else msgspec.json.decode(value)

    def settings_of(self, keys: Sequence[str]) -> dict[str, Any]:
        """The values of several settings; keys that are not set are left out."""
        sql = "SELECT key, value FROM settings WHERE key IN (SELECT value FROM json_each(?))"
        found = self.connection.rows(sql, (msgspec.json.encode(keys).decode(),))
        return {key: msgspec.json.decode(value) for key, value in found}

    def settings_under(
        self, prefix: str, decode: Callable[[str], Any] = msgspec.json.decode
    ) -> dict[str, Any]:
        """Every setting whose key starts with a prefix; `decode` makes a value of the JSON of each."""
        sql = "SELECT key, value FROM settings WHERE key >= ? AND key < ? ORDER BY key"
        return {key: decode(value) for key, value in self.connection.rows(sql, (prefix, prefix + "\uffff"))}

    # Positions

    def position(self) -> tuple[int, int]:
        """`head` and `last_seq` of one moment."""
        with self.connection.lock:
            known = self._look()
            if known.position is None:
                ((head, last),) = self.connection.rows(
                    "SELECT coalesce((SELECT max(changed) FROM memories), 0),"
                    " coalesce((SELECT max(seq) FROM event_log), 0)"
                )
                known.position = (head, last)
            return known.position

    def head(self) -> int:
        """The number of the newest change of a searchable row."""
        return self.position()[0]

    def last_seq(self) -> int:
        """The position of the newest event; 0 in an empty bank."""
        return self.position()[1]

    def next_boundary(self, now: float) -> float:
        """The moment at which the next memory expires, begins or ceases to hold; infinity if none will."""
        with self.connection.lock:
            known = self._look()
            if known.boundary is None or not known.boundary[0] <= now < known.boundary[1]:
                found = [
                    self.connection.one(f"SELECT min({column}) FROM memories WHERE {column} > ?", (now,))
                    for column in ("expires_at", "valid_from", "valid_to")
                ]
                upcoming = min((moment for moment in found if moment is not None), default=float("inf"))
                known.boundary = (now, upcoming)
            return known.boundary[1]

    # Vector spaces

    def spaces(self) -> list[Space]:
        """The vector spaces, as anybody last left them."""
        with self.connection.lock:
            known = self._look()
            if known.spaces is None:
                known.spaces = self.vectors.spaces()
            return known.spaces

    def active_space(self) -> Space | None:
        """The space recall uses."""
        return next((space for space in self.spaces() if space.state == "active"), None)

    def building_space(self) -> Space | None:
        """The space that is being filled, if the embedder changed."""
        return next((space for space in self.spaces() if space.state == "building"), None)

    def vectors_of(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Exact vectors of the active space."""
        space = self.active_space()
        return self.vectors.get(space.number, rows) if space else {}

    # The derived index reads these; see `IndexSource`

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

    def changed_since(self, seq: int) -> Iterator[IndexRow]:
        """See `IndexSource`."""
        space = self.active_space()
        return _index_rows(self.connection, space.number if space else -1, seq, self.head())

    def erased_since(self, head: int) -> bool:
        """True if something was forgotten after a position, as of now and not of the snapshot that is being read."""
        path = self.connection.where
        if path == MEMORY:
            return False
        other = Connection(path, busy_seconds=0.0, read_only=True)
        try:
            sql = "SELECT 1 FROM memories WHERE forgotten = 1 AND changed > ? LIMIT 1"
            return other.one(sql, (head,)) is not None
        finally:
            other.close()


def _listed(rows: Iterable[int]) -> str:
    """Rows as a JSON array, for `json_each`."""
    return f"[{','.join([str(int(row)) for row in rows])}]"


_CHANGED = """
SELECT m.row, m.changed, m.title, m.text, v.vector, m.kind,
       CASE WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END,
       m.domain, m.agent, m.scope_user, m.scope_project, m.scope_session, m.tags, m.created_at, m.valid_from,
       m.valid_to, m.expires_at, m.confidence, m.last_evidence_at, m.importance, m.forgotten, m.id
FROM memories m
LEFT JOIN halves v ON v.key = (:space << 40) | m.row
LEFT JOIN pending p ON p.row = m.row AND p.space = :space
WHERE m.changed > :after AND m.changed <= :head ORDER BY m.changed LIMIT :batch
"""


def _index_rows(connection: Connection, space: int, seq: int, head: int) -> Iterator[IndexRow]:
    """The rows that changed after one change and up to another, with their vectors in a space."""
    read = 0
    while seq < head:
        rows = connection.rows(_CHANGED, {"space": space, "after": seq, "head": head, "batch": BATCH})
        for (
            row, changed, title, text, vector, kind, status, domain, agent, user, project, session, tags,
            created, start, end, expires, confidence, evidence_at, importance, forgotten, memory_id,
        ) in rows:  # fmt: skip
            yield IndexRow(
                row, changed, searched_text(title, text), vector, kind, status, domain, agent, user,
                project, session, _tags_of(tags), created, start, end, expires, confidence, evidence_at,
                importance, forgotten == 1, memory_id,
            )  # fmt: skip
        read += len(rows)
        seq = rows[-1][1] if len(rows) == BATCH else head
    if read >= WHOLE:
        connection.rows("PRAGMA shrink_memory")


def _tags_of(encoded: str) -> tuple[str, ...]:
    try:
        return decode_list(encoded)
    except msgspec.MsgspecError as error:
        raise CorruptBankError(
            f"the tags of a memory are damaged ({error}); `skep doctor --mend` writes them anew from the log"
        ) from error
