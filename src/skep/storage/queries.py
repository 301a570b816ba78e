"""Queries: memories by id, row, filter and word, links, settings, and the rows that the derived index asks for.

`SqliteStore` inherits `Reads`; the engine and the index call it. Nothing here writes. What is read once per state of
the file (`Present`) is dropped as soon as anybody has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from skep.errors import CorruptBankError
from skep.filters import Filter, IndexRow
from skep.model import BELOW, KINDS, SHARED, Link, Memory, Scope, is_pattern
from skep.storage.event_log import Log
from skep.storage.memory_rows import AS_STORED, damaged, decode_list, searched_text, where_clause
from skep.storage.sqlite_connection import MEMORY, Connection
from skep.storage.staleness import contradicted
from skep.storage.vectors import Space, Vectors

FEW_SCOPED = 200
"""With more memories in a scope than this, whoever wants the newest finds enough by going back from the end."""
BATCH = 1000
"""Rows read at a time for the index."""
WHOLE = 1 << 15
"""Reading so many rows fills SQLite's cache with pages that nobody will ask for again."""
_JOINED = "FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = :space"
_LISTED = "(SELECT value FROM json_each(:rows))"


_SELECT = f"""
SELECT m.row, m.id, {", ".join(f"m.{name}" for name in AS_STORED)},
    m.scope_user, m.scope_project, m.scope_session, m.tags, m.evidence, m.metadata, m.status, m.pinned, m.stale,
    m.replaced_by, u.count, u.last_at, p.row
FROM memories m
LEFT JOIN uses u ON u.memory = m.id
LEFT JOIN pending p ON p.row = m.row AND p.space = :space
"""
"""A memory, its use and its place in the queue of a space; `_memories_of` reads the rows."""


NEVER = float("-inf")
"""A moment before every end."""
_LEADS = "m.replaced_by IS NOT NULL AND m.forgotten = 0 AND m.status IN ('superseded', 'merged', 'retracted')"
"""The condition under which a memory leads on to its replacement: also when it was retracted."""
_HEIRS = f"""
    WITH RECURSIVE chain(start, id) AS (
        SELECT m.row, m.replaced_by FROM memories m WHERE m.row IN (SELECT value FROM json_each(?)) AND {_LEADS}
        UNION
        SELECT chain.start, m.replaced_by FROM chain JOIN memories m ON m.id = chain.id WHERE {_LEADS}
    )
    SELECT chain.start, chain.id FROM chain LEFT JOIN memories m ON m.id = chain.id
    WHERE m.id IS NULL OR (m.forgotten = 0 AND NOT ({_LEADS}))
"""
_PRESENT = """
SELECT s.space, s.fingerprint, s.dim, s.spec, s.state, EXISTS (SELECT 1 FROM pending WHERE space = s.space),
    (SELECT coalesce(max(changed), 0) FROM memories), (SELECT coalesce(max(seq), 0) FROM event_log)
FROM (SELECT 1) LEFT JOIN spaces s ORDER BY s.space
"""


_BOUNDARY = "SELECT " + ", ".join(
    f"(SELECT min({column}) FROM memories WHERE {column} > :now)"
    for column in ("expires_at", "valid_from", "valid_to")
)


class Present(msgspec.Struct):
    """The state of the file: what nearly every call wants to know, read once for as long as nobody writes."""

    turn: int
    """Another number whenever anything that was read before may be different now."""
    head: int
    """The number of the newest change of a searchable row."""
    last_seq: int
    """The position of the newest event; 0 in an empty bank."""
    spaces: list[Space]
    """The vector spaces, as anybody last left them."""
    active: Space | None
    """The space that recall uses."""
    waiting: bool
    """Some memory waits for its vector in that space."""
    settings: dict[str, str | None]
    """The settings that were asked for, as JSON; None for one that is not set."""
    passing: bool
    """Read inside a transaction that writes, which may be rolled back."""
    boundary: tuple[float, float] = (0.0, 0.0)
    """Between these moments no memory expires, begins or ceases to hold."""


class Reads:
    """The reading half of the store."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.log = Log(connection)
        self.vectors = Vectors(connection)
        self.bank_id: str = connection.one("SELECT value FROM meta WHERE key = 'bank'")
        self._present: Present | None = None
        self.clock: Callable[[], float] | None = None
        """Tells which memories have reached their end. Without one, they are shown as the log leaves them."""

    def present(self, *settings: str) -> Present:
        """The state of the file, the settings of these names among it. What it holds is not to be changed."""
        with self.connection.lock:
            turn, known = self.connection.state(), self._present
            if known is None or known.turn != turn:
                rows = self.connection.rows(_PRESENT)
                head, last = rows[0][-2:]
                spaces = [
                    Space(number=number, fingerprint=name, dim=dim, spec=spec, state=state)
                    for number, name, dim, spec, state, *_ in rows
                    if number is not None
                ]
                active = next((space for space in spaces if space.state == "active"), None)
                waiting = any(row[5] for row in rows if row[4] == "active")
                known = self._present = Present(
                    turn, head, last, spaces, active, waiting, {}, self.connection.writing
                )
            if settings and not known.settings.keys() >= set(settings):
                sql = "SELECT key, value FROM settings WHERE key IN (SELECT value FROM json_each(?))"
                found: dict[str, str] = dict(
                    self.connection.rows(sql, (msgspec.json.encode(settings).decode(),))
                )  # type: ignore[arg-type]
                known.settings |= {key: found.get(key) for key in settings}
        return known

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
            space = self.present().active
            rows = self.connection.rows(
                f"{_SELECT} WHERE {condition} {tail}", {**values, "space": space.number if space else -1}
            )
        at = self.now if now is None else lambda: now
        return _memories_of(rows, space.fingerprint if space else None, at)

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
        return _around(self._of_rows, rows, window, seconds) if rows else {}

    def ids_of(self, rows: Sequence[int]) -> dict[int, str]:
        """The id of each of some rows."""
        return dict(self._of_rows("SELECT row, id FROM memories WHERE row IN (:rows)", rows))

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

    # Links

    def link_sources(self) -> list[str]:
        """The source of each link, once per link."""
        return [row[0] for row in self.connection.rows("SELECT src FROM links")]

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
        """Lineage as links: the newer `supersedes` the older, a copy is a `duplicate_of` the kept one."""
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

    def replaced_by(self, memory_id: str) -> list[tuple[str, str]]:
        """The memories that one replaced, and how: `superseded` or `merged`."""
        sql = (
            f"SELECT m.id, m.replaced_how FROM memories m WHERE m.replaced_by = ? AND {_LEADS} ORDER BY m.id"
        )
        return [(old, how) for old, how in self.connection.rows(sql, (memory_id,))]

    def successor(self, memory_id: str) -> tuple[str, str] | None:
        """The memory that replaced one, and how; None where none did."""
        sql = f"SELECT m.replaced_by, m.replaced_how FROM memories m WHERE m.id = ? AND {_LEADS}"
        found = self.connection.rows(sql, (memory_id,))
        return (found[0][0], found[0][1]) if found else None

    def heirs(self, rows: Sequence[int]) -> dict[int, str]:
        """The memories that stand in place of replaced rows now: of each the end of its chain, where there is one.

        A part of a hive may not hold that end: then its id is all that is known of it here.
        """
        return dict(self.connection.rows(_HEIRS, (msgspec.json.encode(rows).decode(),)))

    def contradicted(self, memory_id: str) -> bool:
        """True if a link puts a memory in doubt: the other end stands, and the memory is not pinned."""
        return contradicted(self.connection, memory_id)

    def links_to(self, ids: Sequence[str], rel: str) -> list[Link]:
        """The links of one relation that end at some memories."""
        sql = (
            "SELECT src, dst, rel, strength FROM links"
            " WHERE rel = ? AND dst IN (SELECT value FROM json_each(?)) ORDER BY src, dst"
        )
        rows = self.connection.rows(sql, (rel, msgspec.json.encode(ids).decode()))
        return [Link(src=s, dst=d, rel=r, strength=w) for s, d, r, w in rows]

    def all_links(self) -> list[Link]:
        """Every link."""
        rows = self.connection.rows("SELECT src, dst, rel, strength FROM links ORDER BY src, dst, rel")
        return [Link(src=s, dst=d, rel=r, strength=w) for s, d, r, w in rows]

    def judged(
        self, ids: Sequence[str], rel: str, keys: Sequence[str]
    ) -> tuple[list[tuple[str, str]], dict[str, Any]]:
        """The ends of the links of one relation that end at some memories; and the values of those settings."""
        rows = self.connection.rows(
            "SELECT src, dst, NULL FROM links WHERE rel = ? AND dst IN (SELECT value FROM json_each(?)) UNION ALL"
            " SELECT key, NULL, value FROM settings WHERE key IN (SELECT value FROM json_each(?))",
            (rel, msgspec.json.encode(ids).decode(), msgspec.json.encode(keys).decode()),
        )
        links = [(src, dst) for src, dst, _ in rows if dst is not None]
        return links, {key: msgspec.json.decode(value) for key, dst, value in rows if dst is None}

    # Settings

    def setting(self, key: str) -> Any:
        """The value of a setting; None if it is not set."""
        value = self.present(key).settings[key]
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
        present = self.present()
        return present.head, present.last_seq

    def head(self) -> int:
        """The number of the newest change of a searchable row."""
        return self.present().head

    def last_seq(self) -> int:
        """The position of the newest event; 0 in an empty bank."""
        return self.present().last_seq

    def next_boundary(self, now: float) -> float:
        """The moment at which the next memory expires, begins or ceases to hold; infinity if none will."""
        with self.connection.lock:
            known = self.present()
            if not known.boundary[0] <= now < known.boundary[1]:
                upcoming = self.connection.rows(_BOUNDARY, {"now": now})[0]
                ends = [moment for moment in upcoming if moment is not None]
                known.boundary = (now, min(ends, default=float("inf")))
            return known.boundary[1]

    # Vector spaces

    def active_space(self) -> Space | None:
        """The space recall uses."""
        return self.present().active

    def building_space(self) -> Space | None:
        """The space that is being filled, if the embedder changed."""
        return next((space for space in self.present().spaces if space.state == "building"), None)

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
        present = self.present()
        number = present.active.number if present.active else -1
        return _index_rows(self.connection, number, seq, present.head)

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


def _memories_of(
    rows: Iterable[Sequence[Any]], fingerprint: str | None, now: Callable[[], float]
) -> list[tuple[int, Memory]]:
    """Memories with their rows, from rows of `_SELECT`; one that has reached its end is expired, written down or not.

    Args:
        rows: The rows.
        fingerprint: The embedder of the space that was asked about; None where there is none.
        now: Tells the moment at which the memories are shown.
    """
    return [(row[0], _memory_of(row, fingerprint, now)) for row in rows]


def _memory_of(columns: Sequence[Any], fingerprint: str | None, now: Callable[[], float]) -> Memory:
    _row, memory_id, *stored = columns
    plain = dict(zip(AS_STORED, stored[: len(AS_STORED)], strict=True))
    (
        user,
        project,
        session,
        tags,
        evidence,
        metadata,
        status,
        pinned,
        stale,
        replaced,
        uses,
        used_at,
        pending,
    ) = stored[len(AS_STORED) :]
    waits = pending is not None or fingerprint is None
    if status == "active":
        ended = plain["expires_at"] is not None and plain["expires_at"] <= now()
        status = "expired" if ended else "pending" if waits else "active"
    shared = user is None and project is None and session is None
    try:
        return Memory(
            id=memory_id,
            scope=SHARED if shared else Scope(user=user, project=project, session=session),
            tags=() if tags == "[]" else decode_list(tags),
            status=status,
            pinned=pinned != 0,
            last_used_at=used_at,
            evidence=() if evidence == "[]" else decode_list(evidence),
            uses=uses or 0,
            superseded_by=replaced if status == "superseded" else None,
            merged_into=replaced if status == "merged" else None,
            stale=stale != 0,
            metadata={} if metadata == "{}" else msgspec.json.decode(metadata),
            embedder=None if waits else fingerprint,
            **plain,
        )
    except (msgspec.MsgspecError, TypeError) as error:
        raise damaged(f"memory {memory_id}", error) from error


_SCOPED = "(n.scope_user IS NOT NULL OR n.scope_project IS NOT NULL OR n.scope_session IS NOT NULL)"
_NEIGHBOUR = (
    "(SELECT n.row FROM memories n INDEXED BY memories_scope WHERE n.scope_user IS m.scope_user AND n.scope_project IS"
    " m.scope_project AND n.scope_session IS m.scope_session AND "
    + _SCOPED.replace("n.", "")
    + " AND (n.created_at, n.row) {compare} (m.created_at, m.row) ORDER BY n.created_at {order}, n.row {order} LIMIT 1"
    " OFFSET {skip})"
)


def _around(
    of_rows: Callable[[str, Sequence[int]], list[tuple[Any, ...]]],
    rows: Sequence[int],
    window: int,
    seconds: float,
) -> dict[int, tuple[list[int], list[int]]]:
    """See `Reads.around`; `of_rows` runs a statement over the rows that it names as `:rows`."""
    wanted = ", ".join(
        _NEIGHBOUR.format(compare=compare, order=order, skip=skip)
        for compare, order in (("<", "DESC"), (">", "ASC"))
        for skip in range(window)
    )
    scoped = _SCOPED.replace("n.", "m.")
    found = of_rows(f"SELECT m.row, {wanted} FROM memories m WHERE m.row IN (:rows) AND {scoped}", rows)
    if not found:
        return {}
    every = list({row for line in found for row in line if row is not None})
    sql = "SELECT row, created_at, agent, kind, forgotten FROM memories WHERE row IN (:rows)"
    about = {row: rest for row, *rest in of_rows(sql, every)}
    return {
        row: (_walk(row, near[:window], about, seconds), _walk(row, near[window:], about, seconds))
        for row, *near in found
    }


def _walk(
    start: int, near: Sequence[int | None], about: Mapping[int, Sequence[Any]], seconds: float
) -> list[int]:
    """The neighbours that one reaches from a row without a pause that is too long."""
    last, _, kind, _ = about[start]
    walked: list[int] = []
    for row in near:
        if row is None:
            break
        at, _, its_kind, forgotten = about[row]
        if abs(at - last) > seconds or its_kind != kind or forgotten:
            break
        walked.append(row)
        last = at
    return walked
