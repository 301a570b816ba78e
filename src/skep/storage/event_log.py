"""The event log: appended to, read from, and never rewritten except to forget. Also the numbers that come next.

`SqliteStore` writes through it inside a transaction; rooms above read events through it. The tables that make events
visible are written by `memory_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from skep.clock import AHEAD_SECONDS, pack, tick
from skep.events import SETTING, mentioned, voided
from skep.model import Event
from skep.private_parts import public
from skep.storage.memory_rows import encode_body, event_of
from skep.storage.sqlite_connection import Connection

END = 1 << 62
"""After every event."""
COLUMNS = "seq, actor, counter, hlc, kind, body, signature"
_FROM_LOG = f"SELECT {COLUMNS} FROM event_log"
_NUMBERS = (
    "SELECT coalesce((SELECT max(seq) FROM event_log), 0), coalesce((SELECT max(row) FROM memories), 0),"
    " coalesce((SELECT max(changed) FROM memories), 0), (SELECT value FROM meta WHERE key = 'actor')"
)
_WITHOUT_SUBJECT = ("remember", "use")
"""Events that are not found by their subject: the id of a memory is that of its `remember`, and uses are counted."""


class Newest:
    """The newest numbers of a bank, inside a transaction: whoever gives out the next one moves it on here."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection
        self.seq = 0
        self.row = 0
        self.change = 0
        self.actor = ""
        """The name in the file; another process may have drawn a new one."""

    def look(self) -> None:
        """Read the numbers at the beginning of a transaction, and after a part of it was rolled back."""
        ((self.seq, self.row, self.change, self.actor),) = self._c.rows(_NUMBERS)

    def next_change(self) -> int:
        """The number of one more change of a searchable row."""
        self.change += 1
        return self.change


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
_OF_ONE = frozenset(("revise", "retract", "restore", "mark", "evidence", "confirm", "dispute", "propose"))
"""Events that speak of one memory and nothing else: once that is forgotten, nobody's name is needed in them."""
_NAMES = ("by", "sources", "agent")


class Log:
    """The events of one bank."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection
        self.newest = Newest(connection)

    # Writing

    def mint(self, actor: str, plans: Sequence[tuple[str, Any]], now: float) -> list[Event]:
        """The next events of this bank's own actor, without private parts, not yet written. Call in a transaction."""
        counter = self._c.one("SELECT counter FROM actors WHERE actor = ?", (actor,)) or 0
        stamp = tick(self._c.one("SELECT max(hlc) FROM actors") or 0, now) - 1
        # A clock was ahead; stamps do not go back, but what is learnt is dated now.
        ahead = stamp >= pack(now + AHEAD_SECONDS)
        events: list[Event] = []
        for kind, planned in plans:
            counter += 1
            stamp += 1  # as `tick` gives from the second one on
            body: dict[str, Any] = planned([event.id for event in events]) if callable(planned) else planned  # type: ignore[assignment]
            if ahead and kind == "remember" and body.get("created_at") is None:
                body = {**body, "created_at": now}
            if kind != "use":  # the one gate that everything written here goes through
                body = public(body)
            events.append(Event(actor=actor, counter=counter, hlc=stamp, kind=kind, body=body))
        return events

    def insert(self, events: Sequence[Event], *, gaps: bool = False) -> None:
        """Write events and the memories and settings they mention. Call inside a transaction.

        With `gaps`, counters may be missing before them; an actor's version then advances only as far as nothing is
        missing.
        """
        rows: list[tuple[Any, ...]] = []
        subjects: list[tuple[str, int]] = []
        reached: dict[str, tuple[int, int]] = {}
        seq = self.newest.seq
        for event in events:
            seq += 1
            actor, counter, hlc = event.actor, event.counter, event.hlc
            rows.append((seq, actor, counter, hlc, event.kind, encode_body(event.body), event.signature))
            if event.kind not in _WITHOUT_SUBJECT:
                subjects += [(subject, seq) for subject in dict.fromkeys(mentioned(event))]
            before = reached.get(actor, (0, 0))
            reached[actor] = (max(counter, before[0]), max(hlc, before[1]))
        self._c.execute_many(f"INSERT INTO event_log({COLUMNS}) VALUES(?,?,?,?,?,?,?)", rows)
        if subjects:
            self._c.execute_many("INSERT INTO subjects(subject, seq) VALUES(?,?)", subjects)
        self.newest.seq = seq
        for actor, (counter, hlc) in reached.items():
            self._c.execute(
                "INSERT INTO actors(actor, counter, hlc) VALUES(?,?,?) ON CONFLICT(actor) DO UPDATE SET"
                " counter = max(counter, excluded.counter), hlc = max(hlc, excluded.hlc)",
                (actor, self._without_gap(actor) if gaps else counter, hlc),
            )

    def _without_gap(self, actor: str) -> int:
        """The counter of an actor up to which every event is here."""
        have = self._c.one("SELECT counter FROM actors WHERE actor = ?", (actor,)) or 0
        for counter in self._counters(actor, have):
            if counter != have + 1:
                break
            have = counter
        return have

    def cut(self, after: int) -> None:
        """Drop every event after a stamp. Only ever done to a copy in memory."""
        self._c.execute(
            "DELETE FROM subjects WHERE seq IN (SELECT seq FROM event_log WHERE hlc > ?)", (after,)
        )
        self._c.execute("DELETE FROM event_log WHERE hlc > ?", (after,))
        self._c.execute(
            "UPDATE actors SET counter = coalesce((SELECT max(counter) FROM event_log e WHERE e.actor = actors.actor"
            " AND e.counter <= actors.counter), 0)"
        )

    # Reading

    def has(self, actor: str, counter: int) -> bool:
        """True if an event is here."""
        sql = "SELECT 1 FROM event_log WHERE actor = ? AND counter = ?"
        return self._c.one(sql, (actor, counter)) is not None

    def forgot(self, memory_id: str) -> bool:
        """True if the `forget` of a memory is here."""
        return any(event.kind == "forget" for event in self.of(memory_id))

    def _counters(self, actor: str, after: int) -> list[int]:
        """The counters of an actor's events that are here, after one of them."""
        sql = "SELECT counter FROM event_log WHERE actor = ? AND counter > ? ORDER BY counter"
        return [counter for (counter,) in self._c.rows(sql, (actor, after))]

    def scattered(self) -> dict[str, list[int]]:
        """Per actor, the counters of events that are here although some before them are not."""
        found = {actor: self._counters(actor, version) for actor, version in self.versions().items()}
        return {actor: counters for actor, counters in found.items() if counters}

    def ranges(self, wanted: Mapping[str, Sequence[tuple[int, int]]], batch: int = 1000) -> Iterator[Event]:
        """The events whose counters lie in the ranges (both ends included), per actor in order."""
        sql = f"{_FROM_LOG} WHERE actor = ? AND counter BETWEEN ? AND ? ORDER BY counter LIMIT ?"
        for actor in sorted(wanted):
            for low, high in wanted[actor]:
                while low <= high:
                    rows = self._c.rows(sql, (actor, low, high, batch))
                    for row in rows:
                        yield event_of(row)
                    if len(rows) < batch:
                        break
                    low = rows[-1][2] + 1

    def lacking(self, versions: Mapping[str, int], batch: int = 1000) -> Iterator[Event]:
        """The events that somebody with these versions does not have, per actor in order of their counters."""
        sql = "SELECT 1 FROM event_log WHERE actor = ? AND counter > ? LIMIT 1"  # also what follows a gap
        behind = {actor: versions.get(actor, 0) for actor in self.versions()}
        behind = {actor: counter for actor, counter in behind.items() if self._c.one(sql, (actor, counter))}
        wanted = {actor: [(counter + 1, END)] for actor, counter in behind.items()}
        return self.ranges(wanted, batch)

    def last_seq(self) -> int:
        """The position of the newest event; 0 in an empty bank."""
        return self._c.one("SELECT max(seq) FROM event_log") or 0

    def versions(self) -> dict[str, int]:
        """Per actor, the counter up to which every event is here."""
        return dict(self._c.rows("SELECT actor, counter FROM actors"))  # type: ignore[arg-type]

    def of(self, subject: str) -> list[Event]:
        """Every event that mentions a memory (or `setting:key`), in order of arrival."""
        rows = self._c.rows(
            f"{_FROM_LOG} WHERE seq IN (SELECT seq FROM subjects WHERE subject = ?)", (subject,)
        )
        created = None if subject.startswith(SETTING) else place_of(subject)
        if created is not None:
            sql = f"{_FROM_LOG} WHERE actor = ? AND counter = ? AND kind = 'remember'"
            rows += self._c.rows(sql, created)
        return [event_of(row) for row in sorted(rows)]

    def subjects(self, after: int = -1) -> list[str]:
        """Every memory (or `setting:key`) that an event after a stamp speaks of."""
        sql = (
            "SELECT s.subject FROM subjects s JOIN event_log e ON e.seq = s.seq WHERE e.hlc > :after UNION"
            " SELECT actor || '-' || counter FROM event_log WHERE kind = 'remember' AND hlc > :after"
        )
        return [subject for (subject,) in self._c.rows(sql, {"after": after})]

    def get(self, event_id: str) -> Event | None:
        """One event by id."""
        place = place_of(event_id)
        if place is None:
            return None
        rows = self._c.rows(f"{_FROM_LOG} WHERE actor = ? AND counter = ?", place)
        return event_of(rows[0]) if rows else None

    def backwards(self, batch: int = 100) -> Iterator[Event]:
        """Every event, newest first."""
        before = END
        while True:
            rows = self._c.rows(f"{_FROM_LOG} WHERE seq < ? ORDER BY seq DESC LIMIT ?", (before, batch))
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
        return self.of_kind("outcome")

    def of_kind(self, kind: str) -> list[Event]:
        """Every event of a kind that was not undone, oldest first."""
        rows, undone = self._c.rows(f"{_FROM_LOG} WHERE kind = ? ORDER BY seq", (kind,)), voided(self.undos())
        return [event for row in rows if (event := event_of(row)).id not in undone]

    def has_kind(self, kind: str) -> bool:
        """True if the log holds an event of a kind."""
        return bool(list(self._c.rows("SELECT 1 FROM event_log WHERE kind = ? LIMIT 1", (kind,))))

    def redacted(self) -> list[Event]:
        """Every `remember` from whose text something was redacted, oldest first."""
        sql = _FROM_LOG + """ WHERE kind = 'remember' AND instr(body, '"redacted":{') ORDER BY seq"""
        return [event for row in self._c.rows(sql) if (event := event_of(row)).body.get("redacted")]

    def undos(self, about: Sequence[str] = ()) -> list[Event]:
        """Every undo, in order of arrival; or only those that speak of some memories."""
        sql = f"{_FROM_LOG} WHERE kind = 'undo'"
        if about:
            sql += f" AND seq IN (SELECT seq FROM subjects WHERE subject IN ({', '.join('?' * len(about))}))"
        return [event_of(row) for row in self._c.rows(f"{sql} ORDER BY seq", tuple(about))]

    def decided(self, ids: Sequence[str], batch: int = 5000) -> set[str]:
        """Those of some memories that an event speaks of which may bring one back: a restore, a mark, an undo."""
        found: set[str] = set()
        for start in range(0, len(ids), batch):
            part = ids[start : start + batch]
            sql = (
                "SELECT DISTINCT s.subject FROM subjects s JOIN event_log e ON e.seq = s.seq"
                f" WHERE s.subject IN ({', '.join('?' * len(part))}) AND e.kind IN ('restore', 'mark', 'undo')"
            )
            found.update(subject for (subject,) in self._c.rows(sql, part))
        return found

    def by(self, agent: str) -> list[Event]:
        """The events that name an agent as the one who acted, oldest first."""
        whose = "json_extract(body, '$.by') = ?1 OR kind = 'dispute' AND json_extract(body, '$.agent') = ?1"
        return [event_of(row) for row in self._c.rows(f"{_FROM_LOG} WHERE {whose} ORDER BY seq", (agent,))]

    def after(self, seq: int, batch: int = 1000) -> Iterator[Event]:
        """Events that arrived after a position, in order of arrival."""
        while True:
            sql = f"{_FROM_LOG} WHERE seq > ? ORDER BY seq LIMIT ?"
            rows = self._c.rows(sql, (seq, batch))
            for row in rows:
                yield event_of(row)
            if len(rows) < batch:
                return
            seq = rows[-1][0]

    # Events that wait

    def hold(self, events: Iterable[Event]) -> None:
        """Keep events that cannot be taken yet."""
        self._c.execute_many(
            "INSERT OR IGNORE INTO held(actor, counter, hlc, kind, body, signature) VALUES(?,?,?,?,?,?)",
            [(e.actor, e.counter, e.hlc, e.kind, encode_body(e.body), e.signature) for e in events],
        )

    def held_count(self) -> int:
        """The number of events that wait."""
        return self._c.one("SELECT count(*) FROM held") or 0

    def holds(self, event: Event) -> bool:
        """True if an event waits already."""
        sql = "SELECT 1 FROM held WHERE actor = ? AND counter = ?"
        return self._c.one(sql, (event.actor, event.counter)) is not None

    def held(self) -> list[Event]:
        """The events that wait, in order of actor and counter."""
        rows = self._c.rows(
            "SELECT 0, actor, counter, hlc, kind, body, signature FROM held ORDER BY actor, counter"
        )
        return [event_of(row) for row in rows]

    def release(self, events: Iterable[Event]) -> None:
        """Forget that these were held."""
        self._c.execute_many(
            "DELETE FROM held WHERE actor = ? AND counter = ?", [(e.actor, e.counter) for e in events]
        )

    def scrub(self, memory_id: str) -> int:
        """Take the text of a memory out of every event that mentions it; the number of events rewritten."""
        scrubbed = 0
        for event in self.of(memory_id):
            body = scrubbed_body(event)
            if body != event.body:
                self._c.execute(
                    "UPDATE event_log SET body = ?, signature = NULL WHERE seq = ?",
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


_TAKEN_OUT = {"remember": "text", "revise": "changes", "evidence": "sources"}
"""Per kind a part that every event of it has, until its memory is forgotten."""


def erased_memory(event: Event) -> str | None:
    """The memory whose text was taken out of an event, because it was forgotten; None where nothing was taken out."""
    part = _TAKEN_OUT.get(event.kind)
    if part is None or part in event.body:
        return None
    return event.id if event.kind == "remember" else event.body.get("memory")


def scrubbed_body(event: Event) -> dict[str, Any]:
    """The body of an event with the text of memories taken out, and who said what of one that is gone."""
    if event.kind == "remember":
        return {}
    dropped = _NAMES if event.kind in _OF_ONE else ()
    return {k: value for k, value in event.body.items() if k in KEPT_WHEN_FORGOTTEN and k not in dropped}
