"""Where each event stands in the log.

Events of one actor mostly follow one another, in the log as in that actor's own count. Of such a run only its first
event is written down; the others are found by counting on from there, and a write that goes on with the newest run
writes nothing here. No two runs of an actor share a counter, so that no event can be stored twice.
"""

from __future__ import annotations

from skep.errors import StorageError
from skep.storage.connection import Connection
from skep.tuples import NamedTuple

END = 1 << 62
"""After every event."""
PLACE = (
    "(SELECT r.seq + ?2 - r.counter FROM runs r WHERE r.actor = ?1 AND r.counter <= ?2"
    " ORDER BY r.counter DESC LIMIT 1)"
)
"""Where the event of an actor with a counter stands if it is here, as SQL; what stands there may be another one."""
_BEGIN = (
    "SELECT (SELECT r.seq + ?2 - r.counter < coalesce((SELECT min(n.seq) FROM runs n WHERE n.seq > r.seq), ?3)"
    " FROM runs r WHERE r.actor = ?1 AND r.counter <= ?2 ORDER BY r.counter DESC LIMIT 1),"
    f" (SELECT coalesce(min(counter), {END}) FROM runs WHERE actor = ?1 AND counter > ?2)"
)
_STARTS = (
    "SELECT seq, actor, counter, before FROM (SELECT seq, actor, counter, lag(seq) OVER o AS before,"
    " lag(actor) OVER o AS whose, lag(counter) OVER o AS last FROM events WINDOW o AS (ORDER BY seq))"
    " WHERE before IS NULL OR seq != before + 1 OR actor != whose OR counter != last + 1 ORDER BY seq"
)


def within(columns: str) -> str:
    """A statement for columns of an `:actor`'s events `e`, counters `:low` to `:high` in order, `:batch` at most."""
    return (
        f"SELECT {columns} FROM runs r CROSS JOIN events e ON e.seq >= r.seq + max(:low - r.counter, 0) AND e.seq <="
        f" min(r.seq + :high - r.counter, coalesce((SELECT min(n.seq) FROM runs n WHERE n.seq > r.seq) - 1, {END}))"
        " WHERE r.actor = :actor AND r.counter <= :high AND r.counter >="
        " coalesce((SELECT max(f.counter) FROM runs f WHERE f.actor = :actor AND f.counter <= :low), :low)"
        " ORDER BY r.counter, e.seq LIMIT :batch"
    )


class Run(NamedTuple):
    """Events of one actor that follow one another."""

    seq: int
    actor: str
    counter: int
    length: int

    @property
    def end(self) -> int:
        """The last counter."""
        return self.counter + self.length - 1


def begin(connection: Connection, seq: int, actor: str, counter: int) -> int:
    """Begin a run with an event that is next in the log; the counter at which it would meet another one.

    Raises:
        StorageError: That event is here already.
    """
    ((here, limit),) = connection.rows(_BEGIN, (actor, counter, seq))
    if here:
        raise StorageError(
            f"{connection.path} holds the event {actor}-{counter} already; nothing was written"
        )
    connection.run("INSERT INTO runs(seq, actor, counter) VALUES(?,?,?)", (seq, actor, counter))
    return limit


def actual(connection: Connection) -> list[Run]:
    """The runs as the log has them, in order."""
    starts = connection.rows(_STARTS)
    ends = [before for *_, before in starts[1:]]
    if starts:
        ends.append(connection.one("SELECT max(seq) FROM events"))
    return [
        Run(seq, actor, counter, end - seq + 1)
        for (seq, actor, counter, _), end in zip(starts, ends, strict=True)
    ]


def written(connection: Connection) -> list[tuple[int, str, int]]:
    """The runs as they are written down, in order."""
    return connection.rows("SELECT seq, actor, counter FROM runs ORDER BY seq")  # type: ignore[return-value]


def rewrite(connection: Connection) -> None:
    """Write the runs down as the log has them; of what damage has left twice, one. Call inside a transaction."""
    found = [run[:3] for run in actual(connection)]
    connection.run("DELETE FROM runs")
    connection.db.executemany("INSERT OR IGNORE INTO runs(seq, actor, counter) VALUES(?,?,?)", found)
