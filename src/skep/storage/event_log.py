"""Where each event stands in the log.

Events of one actor mostly follow one another, in the log as in that actor's own count. Of such a run only its first
event is written down; the others are found by counting on from there, and a write that goes on with the newest run
writes nothing here. No two runs of an actor share a counter, so that no event can be stored twice.

The newest numbers of a bank: after which event, row and change the next one follows.

The event log: appended to, read from, and never rewritten except to forget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from skep.clock import AHEAD_SECONDS, pack, tick
from skep.errors import StorageError
from skep.events import SETTING, mentioned, voided
from skep.model import Event
from skep.private_parts import public_json
from skep.storage.memory_rows import HEAD, encode_body, event_of
from skep.storage.sqlite_connection import Connection

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


_NUMBERS = (
    "SELECT (SELECT max(seq) FROM events), (SELECT max(row) FROM memories), "
    f" {HEAD}, (SELECT max(id) FROM words_docsize)"
)
_ACTORS = (
    "SELECT a.actor, a.counter, a.hlc, r.counter IS NULL FROM actors a JOIN replicas r ON r.actor = a.actor"
)
_RUN = (
    f"SELECT e.actor, e.counter + 1, coalesce((SELECT min(r.counter) FROM runs r WHERE r.actor = e.actor"
    f" AND r.counter > e.counter), {END}) FROM events e WHERE e.seq = ?"
)
_NO_RUN = ("", 0, 0)


class Newest:
    """Kept in memory from one write to the next, and read again when anybody else wrote or a write came to nothing.

    Whoever gives out a number inside a transaction moves it on here as well.
    """

    __slots__ = ("_c", "_version", "actors", "change", "followed", "row", "run", "seq", "stamp", "worded")

    def __init__(self, connection: Connection) -> None:
        self._c = connection
        self._version = -1
        self.seq = 0
        self.row = 0
        self.change = 0
        self.worded = 0
        """The last row in the full-text index; those after it wait to be put there together."""
        self.actors: dict[str, tuple[int, int]] = {}
        """Per actor, its counter and its stamp."""
        self.followed: set[str] = set()
        """Those of them whose counter and stamp follow from the log."""
        self.stamp = 0
        self.run: tuple[str, int, int] = _NO_RUN
        """Whose the newest event is, the counter that follows, and one that must not: where another run begins."""

    def look(self) -> None:
        """Be true for a transaction that has begun."""
        version = self._c.version
        if version is None:
            version = self._c.data_version()
        if version == self._version:
            return
        ((seq, row, change, worded),) = self._c.rows(_NUMBERS)
        self.seq, self.row, self.change, self.worded = seq or 0, row or 0, change or 0, worded or 0
        run = self._c.rows(_RUN, (self.seq,))
        self.run = run[0] if run else _NO_RUN  # type: ignore[assignment]
        found = self._c.rows(_ACTORS)
        self.actors = {actor: (counter, hlc) for actor, counter, hlc, _followed in found}
        self.followed = {actor for actor, _counter, _hlc, followed in found if followed}
        self.stamp = max((hlc for _counter, hlc in self.actors.values()), default=0)
        self._version = version

    def stands(self, version: int) -> bool:
        """Whether what is here is true of that version of the file."""
        return version == self._version

    def drop(self) -> None:
        """What is here may not be true any more."""
        self._version = -1


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
