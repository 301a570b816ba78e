"""The event log: appended to, read from, and never rewritten except to forget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from skep.clock import AHEAD_SECONDS, pack, tick
from skep.model import Event
from skep.private import public_json
from skep.storage.connection import Connection
from skep.storage.newest import Newest
from skep.storage.rows import encode_body, event_of
from skep.storage.runs import END, PLACE, begin, rewrite, within
from skep.storage.subjects import SETTING, mentioned, voided

_OF_NOBODY_ELSE = ("remember", "use")
"""Events that are not found by what they speak of: the id of a memory is that of the first, and uses are counted."""
COLUMNS = "seq, actor, counter, hlc, kind, body, signature"
_INSERT = f"INSERT INTO log({COLUMNS}) VALUES(?,?,?,?,?,?,?)"
_OF = "SELECT e.seq, e.actor, e.counter, e.hlc, e.kind, e.body, e.signature FROM"
_SPOKEN = f"{_OF} subjects s JOIN events e ON e.seq = s.seq WHERE s.subject = ?"
_HERE = f"e.seq = {PLACE} AND e.actor = ?1 AND e.counter = ?2"
_CREATED = f"{_OF} events e WHERE {_HERE} AND e.kind = 'remember'"
_COUNTERS = within("e.counter")
_WITHIN = within(", ".join(f"e.{name}" for name in COLUMNS.split(", ")))
_SUBJECTS = (
    "SELECT s.subject FROM subjects s JOIN events e ON e.seq = s.seq WHERE e.hlc > :after UNION"
    " SELECT actor || '-' || counter FROM events WHERE kind = 'remember' AND hlc > :after"
)
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
        *("metrics", "shown", "withheld", "withhold", "evidence", "successes", "failures", "along"),
    )
)
"""Keys of a body that carry no text of the memory."""
_OF_ONE = frozenset(("revise", "retract", "restore", "mark", "evidence", "confirm", "dispute"))
"""Events that speak of one memory and nothing else: once that is forgotten, nobody's name is needed in them."""
_NAMES = ("by", "sources")


class Log:
    """The events of one bank."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection
        self.newest = Newest(connection)

    def mint(
        self, actor: str, plans: Sequence[tuple[str, Any]], now: float
    ) -> tuple[list[Event], list[str | None]]:
        """The next events of this bank's own actor, without private parts, not yet written. Call in a transaction.

        With them come the bodies as they will stand in the log, as far as they were written out on the way.
        """
        newest = self.newest
        counter, stamp = newest.actors.get(actor, (0, 0))[0], tick(newest.stamp, now) - 1
        events: list[Event] = []
        bodies: list[str | None] = []
        ahead = stamp >= pack(
            now + AHEAD_SECONDS
        )  # a clock was; stamps do not go back, but what is learnt is dated now
        for kind, body in plans:
            counter += 1
            stamp += 1  # what `tick` gives from the second one on
            made: dict[str, Any] = body([event.id for event in events]) if callable(body) else body  # type: ignore[assignment]
            if ahead and kind == "remember" and made.get("created_at") is None:
                made = {**made, "created_at": now}
            written = None
            if kind != "use":  # the one gate that everything written here goes through
                made, written = public_json(made)
            events.append(Event(actor=actor, counter=counter, hlc=stamp, kind=kind, body=made))
            bodies.append(written)
        return events, bodies

    def insert(
        self,
        events: Sequence[Event],
        *,
        bodies: Sequence[str | None] = (),
        gaps: bool = False,
        fresh: bool = False,
    ) -> None:
        """Write events and what they mention. Call inside a transaction.

        The memory that an event creates bears its id, so that is not written down as a mention. With `gaps`, counters
        may be missing before them; an actor's version then advances only as far as nothing is missing. `bodies` is what
        `mint` gave with them, if they are `fresh` from there.
        """
        rows: list[tuple[Any, ...]] = []
        subjects: list[tuple[str, int]] = []
        reached: dict[str, tuple[int, int]] = {}
        newest = self.newest
        seq = newest.seq
        whose, following, limit = newest.run
        for at, event in enumerate(events):
            seq += 1
            body = bodies[at] if bodies else None
            actor, counter, hlc, kind = event.actor, event.counter, event.hlc, event.kind
            if counter != following or actor != whose or counter == limit:
                limit = begin(self._c, seq, actor, counter)
            whose, following = actor, counter + 1
            rows.append((seq, actor, counter, hlc, kind, body or encode_body(event.body), event.signature))
            if kind not in _OF_NOBODY_ELSE:
                subjects.extend((subject, seq) for subject in dict.fromkeys(mentioned(event)))
            before = reached.get(actor)
            reached[actor] = (counter, hlc if before is None or hlc > before[1] else before[1])
        self._c.insert_each(_INSERT, rows)
        if subjects:
            self._c.insert_each("INSERT INTO subjects(subject, seq) VALUES(?,?)", subjects)
        newest.seq, newest.run = seq, (whose, following, limit)
        for actor, (counter, hlc) in reached.items():
            self._advance(actor, self._reached(actor) if gaps else counter, hlc, fresh=fresh)

    def _advance(self, actor: str, counter: int, hlc: int, *, fresh: bool) -> None:
        """Take note of how far an actor has come; of what was minted here, the log itself says so."""
        newest = self.newest
        if fresh and actor in newest.followed:  # as nearly all are: stamps and counters go on
            newest.actors[actor] = (counter, hlc)
            newest.stamp = hlc
            return
        known = newest.actors.get(actor)
        if known is not None:
            counter, hlc = max(counter, known[0]), max(hlc, known[1])
        if fresh and known is None:
            self._c.run("INSERT INTO replicas(actor) VALUES(?)", (actor,))
            newest.followed.add(actor)
        else:
            self._c.run(
                "INSERT OR REPLACE INTO replicas(actor, counter, hlc) VALUES(?,?,?)", (actor, counter, hlc)
            )
            newest.followed.discard(actor)
        newest.actors[actor] = (counter, hlc)
        newest.stamp = max(newest.stamp, hlc)

    def _reached(self, actor: str) -> int:
        """The counter of an actor up to which nothing is missing, from the events that are here."""
        have = self.newest.actors.get(actor, (0, 0))[0]
        for counter in self._counters(actor, have):
            if counter != have + 1:
                break
            have = counter
        return have

    def has(self, actor: str, counter: int) -> bool:
        """Whether an event is here."""
        return self._c.one(f"SELECT 1 FROM events e WHERE {_HERE}", (actor, counter)) is not None

    def _counters(self, actor: str, after: int) -> list[int]:
        """The counters of an actor's events that are here, after one of them."""
        bound = {"actor": actor, "low": after + 1, "high": END, "batch": -1}
        return [counter for (counter,) in self._c.rows(_COUNTERS, bound)]

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, the counters of events that are here although some before them are not."""
        found = {actor: self._counters(actor, version) for actor, version in self.versions().items()}
        return {actor: counters for actor, counters in found.items() if counters}

    def ranges(self, wanted: Mapping[str, Sequence[tuple[int, int]]], batch: int = 1000) -> Iterator[Event]:
        """The events whose counters lie in the ranges (both ends included), per actor in order."""
        for actor in sorted(wanted):
            for low, high in wanted[actor]:
                while low <= high:
                    rows = self._c.rows(_WITHIN, {"actor": actor, "low": low, "high": high, "batch": batch})
                    for row in rows:
                        yield event_of(row)
                    if len(rows) < batch:
                        break
                    low = rows[-1][2] + 1

    def last_seq(self) -> int:
        """The position of the newest event; 0 in an empty bank."""
        return self._c.one("SELECT max(seq) FROM events") or 0

    def versions(self) -> dict[str, int]:
        """Per actor, the counter up to which every event is here."""
        return dict(self._c.rows("SELECT actor, counter FROM actors"))  # type: ignore[arg-type]

    def of(self, subject: str) -> list[Event]:
        """Every event that mentions a memory (or `setting:key`), in order of arrival."""
        created = None if subject.startswith(SETTING) else place_of(subject)
        if created is None:
            rows = self._c.rows(_SPOKEN, (subject,))
        else:
            rows = self._c.rows(f"{_CREATED} UNION ALL {_SPOKEN}", (*created, subject))
        return [event_of(row) for row in sorted(rows)]

    def subjects(self, after: int = -1) -> list[str]:
        """Every memory (or `setting:key`) that an event after a stamp speaks of."""
        return [subject for (subject,) in self._c.rows(_SUBJECTS, {"after": after})]

    def cut(self, after: int) -> None:
        """Drop every event after a stamp. Only ever done to a copy in memory."""
        self._c.execute("DELETE FROM subjects WHERE seq IN (SELECT seq FROM events WHERE hlc > ?)", (after,))
        self._c.execute("DELETE FROM log WHERE hlc > ?", (after,))
        rewrite(self._c)

    def get(self, event_id: str) -> Event | None:
        """One event by id."""
        place = place_of(event_id)
        if place is None:
            return None
        rows = self._c.rows(f"{_OF} events e WHERE {_HERE}", place)
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

    def latest_of(self, memory_ids: Iterable[str]) -> list[Event]:
        """Every event that speaks of any of some memories, newest first."""
        found = {event.seq: event for memory_id in memory_ids for event in self.of(memory_id)}
        return [found[seq] for seq in sorted(found, reverse=True)]

    def outcomes(self) -> list[Event]:
        """Every outcome that was not undone, oldest first."""
        sql = f"SELECT {COLUMNS} FROM events WHERE kind = 'outcome' ORDER BY seq"
        undone = voided(self.undos())
        return [event for row in self._c.rows(sql) if (event := event_of(row)).id not in undone]

    def redacted(self) -> list[Event]:
        """Every event whose text was stored without something that stood in it, oldest first."""
        sql = f"SELECT {COLUMNS} FROM events WHERE kind = 'remember' AND instr(body, '\"redacted\":{{') ORDER BY seq"
        return [event for row in self._c.rows(sql) if (event := event_of(row)).body.get("redacted")]

    def undos(self, about: Sequence[str] = ()) -> list[Event]:
        """Every undo, in order of arrival; or only those that speak of some memories."""
        sql = f"SELECT {COLUMNS} FROM events WHERE kind = 'undo'"
        if about:
            sql += f" AND seq IN (SELECT seq FROM subjects WHERE subject IN ({', '.join('?' * len(about))}))"
        return [event_of(row) for row in self._c.rows(f"{sql} ORDER BY seq", tuple(about))]

    def decided(self, ids: Sequence[str], batch: int = 5000) -> set[str]:
        """Those of some memories that an event speaks of which may bring one back: a restore, a mark, an undo."""
        found: set[str] = set()
        for start in range(0, len(ids), batch):
            part = ids[start : start + batch]
            sql = (
                "SELECT DISTINCT s.subject FROM subjects s JOIN events e ON e.seq = s.seq"
                f" WHERE s.subject IN ({', '.join('?' * len(part))}) AND e.kind IN ('restore', 'mark', 'undo')"
            )
            found.update(subject for (subject,) in self._c.rows(sql, part))
        return found

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
                bound = {"actor": actor, "low": have + 1, "high": END, "batch": batch}
                rows = self._c.rows(_WITHIN, bound)
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
                    "UPDATE log SET body = ?, signature = NULL WHERE seq = ?",
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


def place_of(event_id: str) -> tuple[str, int] | None:
    """The actor and the counter in the id of an event; None if it is not one."""
    actor, _, counter = event_id.rpartition("-")
    if not actor or not counter.isdecimal() or not counter.isascii() or len(counter) > 18:
        return None
    number = int(counter)
    return (actor, number) if str(number) == counter else None


def scrubbed_body(event: Event) -> dict[str, Any]:
    """The body of an event with the text of memories taken out, and who said what of one that is gone."""
    if event.kind == "remember":
        return {}
    dropped = _NAMES if event.kind in _OF_ONE else ()
    return {k: value for k, value in event.body.items() if k in KEPT_WHEN_FORGOTTEN and k not in dropped}
