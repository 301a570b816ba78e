"""Staleness: which memories stand on something that no longer does.

`memory_tables` keeps `stale` true through `Staleness`. A memory is stale when it is derived from one that does not
stand any more, or that is contradicted. A link `contradicts` puts both ends in doubt as long as both stand; a pinned
memory is not put in doubt. A memory that is derived from a copy stands and falls with the memory that the copy was
merged into.
"""

from __future__ import annotations

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


def contradicts_ends(connection: Connection, memory_id: str) -> set[str]:
    """The memories at the other end of links of `contradicts`, whether they stand or not."""
    return {other for (other,) in connection.rows(_ENDS, (memory_id,))}


def contradicted(connection: Connection, memory_id: str) -> bool:
    """True if a link puts a memory in doubt: the other end stands, and the memory is not pinned."""
    return connection.one(_IN_DOUBT, (memory_id,)) is not None


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
