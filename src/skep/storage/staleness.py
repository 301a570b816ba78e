"""Which memories are stale: derived from something that does not stand any more."""

from __future__ import annotations

from skep.storage.connection import Connection
from skep.storage.newest import Newest

_GONE = ("retracted", "expired")


class Staleness:
    """Keeps `stale` true. Every method is called inside a transaction."""

    def __init__(self, connection: Connection, newest: Newest) -> None:
        self._c = connection
        self._newest = newest

    def renew(self, moved: set[str]) -> None:
        """Recompute `stale` for everything derived, directly or not, from memories whose standing changed."""
        affected = set(moved)
        frontier = set(moved)
        while frontier:
            found: set[str] = set()
            for memory_id in frontier:
                found |= {
                    src
                    for (src,) in self._c.rows(
                        "SELECT src FROM links WHERE dst = ? AND rel = 'derived_from'", (memory_id,)
                    )
                }
            frontier = found - affected
            affected |= found
        sources: dict[str, list[str]] = {}
        for memory_id in affected:
            rows = self._c.rows("SELECT dst FROM links WHERE src = ? AND rel = 'derived_from'", (memory_id,))
            sources[memory_id] = [dst for (dst,) in rows]
        stale = {m for m, from_ in sources.items() if any(self._undermined(m, s, affected) for s in from_)}
        grown = True
        while grown:
            more = {m for m, from_ in sources.items() if m not in stale and any(s in stale for s in from_)}
            stale |= more
            grown = bool(more)
        for memory_id in affected:
            now_stale = memory_id in stale
            self._c.run(
                "UPDATE memories SET stale = ?, changed = ? WHERE id = ? AND stale != ?",
                (now_stale, self._newest.change + 1, memory_id, now_stale),
            )
            self._newest.change += self._c.db.changes()

    def _undermined(self, derived: str, source: str, affected: set[str]) -> bool:
        rows = self._c.rows(
            "SELECT status, disputes, replaced_by, forgotten, stale FROM memories WHERE id = ?", (source,)
        )
        if not rows:
            return False
        status, disputes, target, forgotten, stale = rows[0]
        if forgotten or disputes or status in _GONE or (stale and source not in affected):
            return True
        return status == "superseded" and target != derived and not self._summary_of(target, source)

    def _summary_of(self, summary: str | None, source: str) -> bool:
        """Whether what replaced a source was made from it: then nothing that it said is lost."""
        sql = "SELECT 1 FROM links WHERE src = ? AND dst = ? AND rel = 'derived_from'"
        return bool(self._c.one(sql, (summary, source)))
