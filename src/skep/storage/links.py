"""Links: reading them (those of lineage included), which memories they make stale, and neighbours in time.

`queries.Reads` inherits the reading half; `memory_tables` keeps `stale` true through `Staleness`. A memory is stale
when it is derived from one that does not stand any more, or that is contradicted. A link `contradicts` puts both ends
in doubt as long as both stand; a pinned memory is not put in doubt. A memory that is derived from a copy stands and
falls with the memory that the copy was merged into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from skep.model import Link
from skep.storage.event_log import Newest
from skep.storage.sqlite_connection import Connection

_ENDS = (
    "SELECT dst FROM links WHERE src = ?1 AND rel = 'contradicts'"
    " UNION SELECT src FROM links WHERE dst = ?1 AND rel = 'contradicts'"
)
_IN_DOUBT = (
    "SELECT 1 FROM memories m WHERE m.id = ?1 AND m.pinned = 0 AND EXISTS"
    f" (SELECT 1 FROM memories o WHERE o.id IN ({_ENDS}) AND o.status = 'active' AND o.forgotten = 0)"
)

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


def contradicts_ends(connection: Connection, memory_id: str) -> set[str]:
    """The memories at the other end of links of `contradicts`, whether they stand or not."""
    return {other for (other,) in connection.rows(_ENDS, (memory_id,))}


def contradicted(connection: Connection, memory_id: str) -> bool:
    """True if a link puts a memory in doubt: the other end stands, and the memory is not pinned."""
    return connection.one(_IN_DOUBT, (memory_id,)) is not None


class Linked:
    """The part of reading that is about links."""

    connection: Connection

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


class Staleness:
    """Keeps `stale` true. Every method is called inside a transaction."""

    def __init__(self, connection: Connection, newest: Newest) -> None:
        self._c = connection
        self._newest = newest

    def opposite(self, memory_id: str) -> set[str]:
        """Those at the other end of links that say that a memory contradicts something, or something contradicts it."""
        return contradicts_ends(self._c, memory_id)

    def renew(self, moved: set[str]) -> None:
        """Recompute `stale` for everything derived, directly or not, from memories whose standing changed."""
        affected = moved.union(*(self.opposite(memory_id) for memory_id in moved))
        frontier = set(affected)
        while frontier:
            found: set[str] = set()
            for memory_id in frontier:
                found |= {
                    each
                    for (each,) in self._c.rows(
                        "SELECT src FROM links WHERE dst = ?1 AND rel = 'derived_from'"
                        " UNION ALL SELECT id FROM memories WHERE replaced_by = ?1 AND status = 'merged'",
                        (memory_id,),
                    )
                }
            frontier = found - affected
            affected |= found
        stale = self._stale_among(affected)
        for memory_id in affected:
            now_stale = memory_id in stale
            self._c.execute(
                "UPDATE memories SET stale = ?, changed = ? WHERE id = ? AND stale != ?",
                (now_stale, self._newest.change + 1, memory_id, now_stale),
            )
            self._newest.change += self._c.db.changes()

    def wrong(self) -> list[str]:
        """Memories whose `stale` is not what the links and the memories they lead to say."""
        derived = {
            src for (src,) in self._c.rows("SELECT DISTINCT src FROM links WHERE rel = 'derived_from'")
        }
        said = {memory_id for (memory_id,) in self._c.rows("SELECT id FROM memories WHERE stale = 1")}
        stale = self._stale_among(derived)
        not_here = {i for i in stale if self._c.one("SELECT 1 FROM memories WHERE id = ?", (i,)) is None}
        return sorted((stale - not_here) ^ said)

    def _stale_among(self, affected: set[str]) -> set[str]:
        """Those of some memories that are stale; what they say of themselves so far does not count."""
        sources: dict[str, list[str]] = {}
        for memory_id in affected:
            rows = self._c.rows("SELECT dst FROM links WHERE src = ? AND rel = 'derived_from'", (memory_id,))
            sources[memory_id] = [kept for (dst,) in rows if (kept := self._kept(dst)) != memory_id]
        stale = {m for m, from_ in sources.items() if any(self._undermined(m, s, affected) for s in from_)}
        grown = True
        while grown:
            more = {m for m, from_ in sources.items() if m not in stale and any(s in stale for s in from_)}
            stale |= more
            grown = bool(more)
        return stale

    def _kept(self, memory_id: str) -> str:
        """The memory that a copy was merged into, at the end of the chain; any other memory itself."""
        seen = {memory_id}
        sql = "SELECT replaced_by FROM memories WHERE id = ? AND status = 'merged' AND forgotten = 0"
        while (target := self._c.one(sql, (memory_id,))) is not None and target not in seen:
            memory_id = target
            seen.add(memory_id)
        return memory_id

    def _undermined(self, derived: str, source: str, affected: set[str]) -> bool:
        rows = self._c.rows(
            "SELECT status, disputes, replaced_by, forgotten, stale FROM memories WHERE id = ?", (source,)
        )
        if not rows:
            return False
        status, disputes, target, forgotten, stale = rows[0]
        if forgotten or disputes or status in ("retracted", "expired") or (stale and source not in affected):
            return True
        if contradicted(self._c, source):
            return True
        return status == "superseded" and target != derived and not self._summary_of(target, source)

    def _summary_of(self, summary: str | None, source: str) -> bool:
        """True if the memory that replaced a source was made from it: then nothing that it said is lost."""
        sql = "SELECT 1 FROM links WHERE src = ? AND dst = ? AND rel = 'derived_from'"
        return bool(self._c.one(sql, (summary, source)))


_SCOPED = "(n.scope_user IS NOT NULL OR n.scope_project IS NOT NULL OR n.scope_session IS NOT NULL)"
_NEIGHBOUR = (
    "(SELECT n.row FROM memories n INDEXED BY memories_scope WHERE n.scope_user IS m.scope_user AND n.scope_project IS"
    " m.scope_project AND n.scope_session IS m.scope_session AND "
    + _SCOPED.replace("n.", "")
    + " AND (n.created_at, n.row) {compare} (m.created_at, m.row) ORDER BY n.created_at {order}, n.row {order} LIMIT 1"
    " OFFSET {skip})"
)


def around(
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
