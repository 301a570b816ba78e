"""The event log: appended to, read from, and never rewritten except to forget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from skep.clock import tick
from skep.model import Event
from skep.storage.connection import Connection
from skep.storage.fold import mentioned, voided
from skep.storage.rows import encode_body, event_of

COLUMNS = "seq, actor, counter, hlc, kind, body, signature"
KEPT_WHEN_FORGOTTEN = frozenset(
    (
        *(
            "memory",
            "old",
            "new",
            "loser",
            "winner",
            "src",
            "dst",
            "rel",
            "strength",
            "used",
            "success",
            "memories",
        ),
        *(
            "event",
            "mentions",
            "sources",
            "observed",
            "by",
            "status",
            "key",
            "value",
            "task",
            "task_type",
            "domain",
        ),
        *("metrics", "shown", "withheld", "evidence"),
    )
)
"""Keys of a body that carry no text of the memory."""


class Log:
    """The events of one bank."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def mint(self, actor: str, plans: Sequence[tuple[str, Any]], now: float) -> list[Event]:
        """The next events of this bank's own actor, not yet written. Call inside a transaction."""
        counter, stamp = 0, 0
        for name, last, hlc in self._c.execute("SELECT actor, counter, hlc FROM actors"):
            stamp = max(stamp, hlc)
            if name == actor:
                counter = last
        events: list[Event] = []
        for kind, body in plans:
            counter += 1
            stamp = tick(stamp, now)
            made: dict[str, Any] = body([event.id for event in events]) if callable(body) else body  # type: ignore[assignment]
            events.append(Event(actor=actor, counter=counter, hlc=stamp, kind=kind, body=made))
        return events

    def insert(self, events: Sequence[Event], first_seq: int, *, gaps: bool = False) -> None:
        """Write events and what they mention; positions count up from `first_seq`.

        With `gaps`, counters may be missing before them; an actor's version then advances only as far as
        nothing is missing.
        """
        rows: list[tuple[Any, ...]] = []
        mentions: list[tuple[str, int]] = []
        newest: dict[str, tuple[int, int]] = {}
        for seq, event in enumerate(events, first_seq):
            rows.append(
                (
                    seq,
                    event.actor,
                    event.counter,
                    event.hlc,
                    event.kind,
                    encode_body(event.body),
                    event.signature,
                )
            )
            mentions.extend((subject, seq) for subject in dict.fromkeys(mentioned(event)))
            newest[event.actor] = (event.counter, max(event.hlc, newest.get(event.actor, (0, 0))[1]))
        db = self._c.db
        db.executemany(f"INSERT INTO events({COLUMNS}) VALUES(?,?,?,?,?,?,?)", rows)
        if mentions:
            db.executemany("INSERT INTO mentions(memory, seq) VALUES(?,?)", mentions)
        db.executemany(
            "INSERT INTO actors(actor, counter, hlc) VALUES(?,?,?) ON CONFLICT(actor) DO UPDATE SET"
            " counter = max(counter, excluded.counter), hlc = max(hlc, excluded.hlc)",
            [
                (actor, self._reached(actor) if gaps else counter, hlc)
                for actor, (counter, hlc) in newest.items()
            ],
        )

    def _reached(self, actor: str) -> int:
        """The counter of an actor up to which nothing is missing, from the events that are here."""
        have = self._c.one("SELECT counter FROM actors WHERE actor = ?", (actor,)) or 0
        for (counter,) in self._c.rows(
            "SELECT counter FROM events WHERE actor = ? AND counter > ? ORDER BY counter", (actor, have)
        ):
            if counter != have + 1:
                break
            have = counter
        return have

    def has(self, actor: str, counter: int) -> bool:
        """Whether an event is here."""
        sql = "SELECT 1 FROM events WHERE actor = ? AND counter = ?"
        return self._c.one(sql, (actor, counter)) is not None

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, the counters of events that are here although some before them are not."""
        sql = "SELECT counter FROM events WHERE actor = ? AND counter > ? ORDER BY counter"
        found = {
            actor: [counter for (counter,) in self._c.rows(sql, (actor, version))]
            for actor, version in self.versions().items()
        }
        return {actor: counters for actor, counters in found.items() if counters}

    def ranges(self, wanted: Mapping[str, Sequence[tuple[int, int]]], batch: int = 1000) -> Iterator[Event]:
        """The events whose counters lie in the ranges (both ends included), per actor in order."""
        sql = (
            f"SELECT {COLUMNS} FROM events WHERE actor = ? AND counter BETWEEN ? AND ?"
            " ORDER BY counter LIMIT ?"
        )
        for actor in sorted(wanted):
            for low, high in wanted[actor]:
                while low <= high:
                    rows = self._c.rows(sql, (actor, low, high, batch))
                    for row in rows:
                        yield event_of(row)
                    if len(rows) < batch:
                        break
                    low = rows[-1][2] + 1

    def next_seq(self) -> int:
        """The position the next event will take."""
        return (self._c.one("SELECT max(seq) FROM events") or 0) + 1

    def last_seq(self) -> int:
        """The position of the newest event; 0 in an empty bank."""
        return self._c.one("SELECT max(seq) FROM events") or 0

    def versions(self) -> dict[str, int]:
        """Per actor, the counter up to which every event is here."""
        return dict(self._c.rows("SELECT actor, counter FROM actors"))  # type: ignore[arg-type]

    def of(self, subject: str) -> list[Event]:
        """Every event that mentions a memory (or `setting:key`), in order of arrival."""
        sql = (
            f"SELECT {', '.join('e.' + c.strip() for c in COLUMNS.split(','))} FROM mentions n"
            " JOIN events e ON e.seq = n.seq WHERE n.memory = ? ORDER BY n.seq"
        )
        return [event_of(row) for row in self._c.rows(sql, (subject,))]

    def get(self, event_id: str) -> Event | None:
        """One event by id."""
        actor, _, counter = event_id.rpartition("-")
        if not actor or not counter.isdigit():
            return None
        rows = self._c.rows(
            f"SELECT {COLUMNS} FROM events WHERE actor = ? AND counter = ?", (actor, int(counter))
        )
        return event_of(rows[0]) if rows else None

    def backwards(self, batch: int = 100) -> Iterator[Event]:
        """Every event, newest first."""
        before = 1 << 62
        while True:
            sql = f"SELECT {COLUMNS} FROM events WHERE seq < ? ORDER BY seq DESC LIMIT ?"
            rows = self._c.rows(sql, (before, batch))
            for row in rows:
                yield event_of(row)
            if len(rows) < batch:
                return
            before = rows[-1][0]

    def outcomes(self) -> list[Event]:
        """Every outcome that was not undone, oldest first."""
        sql = f"SELECT {COLUMNS} FROM events WHERE kind = 'outcome' ORDER BY seq"
        undone = voided(self.undos())
        return [event for row in self._c.rows(sql) if (event := event_of(row)).id not in undone]

    def undos(self) -> list[Event]:
        """Every undo, in order of arrival."""
        sql = f"SELECT {COLUMNS} FROM events WHERE kind = 'undo' ORDER BY seq"
        return [event_of(row) for row in self._c.rows(sql)]

    def by(self, agent: str) -> list[Event]:
        """The events that name an agent as the one who acted, oldest first."""
        sql = f"SELECT {COLUMNS} FROM events WHERE json_extract(body, '$.by') = ? ORDER BY seq"
        return [event_of(row) for row in self._c.rows(sql, (agent,))]

    def after(self, seq: int, batch: int = 1000) -> Iterator[Event]:
        """Events that arrived after a position, in order of arrival."""
        while True:
            sql = f"SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
            rows = self._c.rows(sql, (seq, batch))
            for row in rows:
                yield event_of(row)
            if len(rows) < batch:
                return
            seq = rows[-1][0]

    def lacking(self, versions: Mapping[str, int], batch: int = 1000) -> Iterator[Event]:
        """The events that somebody with these versions does not have, per actor in order of their counters."""
        for actor, counter in sorted(self.versions().items()):
            have = versions.get(actor, 0)
            while have < counter:
                sql = f"SELECT {COLUMNS} FROM events WHERE actor = ? AND counter > ? ORDER BY counter LIMIT ?"
                rows = self._c.rows(sql, (actor, have, batch))
                if not rows:
                    break
                for row in rows:
                    yield event_of(row)
                have = rows[-1][2]

    def hold(self, events: Iterable[Event]) -> None:
        """Keep events that cannot be taken yet."""
        self._c.db.executemany(
            "INSERT OR IGNORE INTO held(actor, counter, hlc, kind, body, signature) VALUES(?,?,?,?,?,?)",
            [(e.actor, e.counter, e.hlc, e.kind, encode_body(e.body), e.signature) for e in events],
        )

    def held(self) -> list[Event]:
        """The events that wait, in order of actor and counter."""
        rows = self._c.rows(
            "SELECT 0, actor, counter, hlc, kind, body, signature FROM held ORDER BY actor, counter"
        )
        return [event_of(row) for row in rows]

    def release(self, events: Iterable[Event]) -> None:
        """Forget that these were held."""
        self._c.db.executemany(
            "DELETE FROM held WHERE actor = ? AND counter = ?", [(e.actor, e.counter) for e in events]
        )

    def scrub(self, memory_id: str) -> int:
        """Take the text of a memory out of every event that mentions it; the number of events rewritten."""
        scrubbed = 0
        for event in self.of(memory_id):
            body = scrubbed_body(event)
            if body != event.body:
                self._c.execute(
                    "UPDATE events SET body = ?, signature = NULL WHERE seq = ?",
                    (encode_body(body), event.seq),
                )
                scrubbed += 1
        for event in self.held():
            if memory_id in mentioned(event):
                self._c.execute(
                    "UPDATE held SET body = ?, signature = NULL WHERE actor = ? AND counter = ?",
                    (encode_body(scrubbed_body(event)), event.actor, event.counter),
                )
                scrubbed += 1
        return scrubbed


def scrubbed_body(event: Event) -> dict[str, Any]:
    """The body of an event with the text of memories taken out."""
    if event.kind == "remember":
        return {}
    return {key: value for key, value in event.body.items() if key in KEPT_WHEN_FORGOTTEN}
