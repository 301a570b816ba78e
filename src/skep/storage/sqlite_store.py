"""The SQLite store: one file, the event log and the tables derived from it, one transaction per write.

The engine opens it and is the only caller above this room; `store.Store` states what it promises. Events of other
replicas are sorted out here (`arrived`): which are new, which can be taken now, and which have to wait. `Leases` say
which process works on a job.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import apsw
import msgspec

from skep.clock import pack
from skep.config import Settings
from skep.errors import BusyError, ClosedError, DiskFullError, MovedError, NewerVersionError, ReadOnlyError
from skep.events import mentioned
from skep.model import Event
from skep.storage.event_log import Log, erased_memory, scrubbed_body
from skep.storage.memory_rows import searched_text
from skep.storage.queries import Reads
from skep.storage.sqlite_connection import MEMORY, Connection, translated
from skep.storage.sqlite_file import actor_of, claim_actor, connect, copy_file, migrate, prepare, rename
from skep.storage.store import Applied, Embed, Plan
from skep.storage.vectors import Made, PairReadings, Space
from skep.validation import refuse_oversized

if TYPE_CHECKING:
    from pathlib import Path

    from skep.storage.doctor import Counts, Finding
    from skep.storage.memory_tables import Changes, Tables


READER_SECONDS = 2.0
"""Seconds that erasing waits for readers before it is left to a later moment."""


class SqliteStore(Reads):
    """The truth of one bank. `Store` states its promises."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        super().__init__(connection)
        self.settings = settings
        self.read_only = connection.read_only
        self.lock = connection.lock
        self.snapshot, self.transaction = connection.snapshot, connection.transaction
        self.impatient, self.data_version = connection.impatient, connection.data_version
        self.limit_memory = connection.limit_memory
        self.name, self._named = actor_of(connection)
        """The name in the file; in a copy that has not written yet, that of the original."""
        self.leases = Leases(connection)
        self.readings = PairReadings(connection)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        settings: Settings,
        *,
        create: bool = True,
        read_only: bool = False,
        copies: bool = True,
    ) -> SqliteStore:
        """Open or create a bank file. A file that cannot be written is opened for reading.

        Args:
            path: The file, or `":memory:"`.
            settings: Limits and defaults.
            create: Whether to create a missing file.
            read_only: Open for reading alone.
            copies: Whether to keep a copy of a file of an older version before it is migrated.
        """
        path = prepare(path, create=create and not read_only)
        try:
            connection = connect(path, busy_seconds=settings.busy_seconds, read_only=read_only, copies=copies)
        except ReadOnlyError:
            if read_only or not os.path.exists(path):
                raise
            connection = connect(path, busy_seconds=settings.busy_seconds, read_only=True)
        return cls(connection, settings)

    @cached_property
    def tables(self) -> Tables:
        """The tables derived from events; many a process only reads and never loads their module."""
        from skep.storage.memory_tables import Tables

        return Tables(self.connection, self.log, self.vectors)

    @property
    def file(self) -> str | None:
        """The name of the file; None for a bank in memory."""
        return None if self.connection.path == MEMORY else self.connection.path

    @property
    def path(self) -> Path | None:
        """The file; None for a bank in memory."""
        from pathlib import Path

        return None if self.file is None else Path(self.file)

    @property
    def index_folder(self) -> str | None:
        """The folder of the derived index, beside the file; None for a bank in memory."""
        return None if self.file is None else f"{self.connection.where}.index"

    @property
    def moved(self) -> bool:
        """True if the file that was opened is no longer the one under its name."""
        return self.connection.moved

    @property
    def actor(self) -> str:
        """The name under which this file writes. A copy draws one of its own when it is first asked for."""
        if not self._named:
            self.name = claim_actor(self.connection)
            self._named = not self.connection.in_transaction  # that may still be rolled back
        return self.name

    # Writing

    @contextlib.contextmanager
    def writing(self) -> Generator[None]:
        """One transaction; nested, a part that can fail alone."""
        if self.read_only:
            if self.file is None:
                raise ReadOnlyError("this is a view of the past, for reading only; write to the bank itself")
            raise ReadOnlyError(
                f"{self.connection.path} is open for reading only; check its permissions and those of its folder"
            )
        with self.connection.transaction(apart=True):
            self.log.newest.look()
            if self._named:
                self.name = self.log.newest.actor
            yield

    def write(
        self,
        plans: Sequence[Plan],
        *,
        now: float,
        embed: Embed | None = None,
        sign: Callable[[Event], bytes] | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[list[Event], Changes]:
        """Append events of our own and everything they mean, in one transaction.

        Args:
            plans: The events to be.
            now: The wall clock.
            embed: Called with new texts and the spaces; gives vectors per space. Rows without one are queued.
            sign: Signs an event before it is written.
            check: Runs inside the transaction, before anything is written; may raise to refuse.
        """
        with self.writing():
            if check is not None:
                check()
            events = self.log.mint(self.actor, plans, now)
            if sign is not None:
                events = [msgspec.structs.replace(event, signature=sign(event)) for event in events]
            changes = self._take(events, fresh=True, embed=embed)
            erasing = self.leftover()
        if erasing:
            self.truncate_wal(0.0)
        return events, changes

    def apply(
        self,
        events: Iterable[Event],
        *,
        now: float,
        embed: Embed | None = None,
        partial: bool = False,
    ) -> Applied:
        """Take events of other replicas: each once, in any order, future stamps held back.

        Events with a gap before them wait until it is filled; with `partial` (copies of single memories in a
        hive, where the gap may never be filled) they are taken at once.
        """
        from skep.events import checked
        from skep.storage.memory_tables import Changes

        events = [checked(event) for event in events]
        for event in events:
            refuse_oversized(event.id, event.kind, event.body, self.settings)
        horizon = pack(now + self.settings.max_drift_seconds)
        with self.writing():
            if self._went_back(events):
                self.renew_name()
            there = arrived(self.log, events, horizon=horizon, partial=partial)
            room = max(0, self.settings.held_limit - self.log.held_count())
            parked = sorted(there.waiting, key=lambda event: (event.counter, event.hlc))
            new = [event for event in parked if not self.log.holds(event)][:room]
            self.log.hold([self._scrubbed(event) for event in new])
            self.log.release(there.ready)
            changes = Changes()
            if there.ready:
                ready = [self._scrubbed(event) for event in there.ready]
                changes = self._take(ready, fresh=False, embed=embed, gaps=there.gaps)
        return Applied(
            new=len(there.ready),
            known=there.known,
            held=tuple(event.id for event in there.waiting),
            erased=changes.erased,
            forgotten_rows=tuple(changes.forgotten_rows),
            forgotten=tuple(
                i for event in there.ready if event.kind == "forget" for i in event.body["memories"]
            ),
        )

    def _went_back(self, events: Sequence[Event]) -> bool:
        """True if events under our own name come back that this file does not have: it is an older copy of itself.

        Or a stranger has taken our numbers. Either way nothing more may be written under that name.
        """
        last = self.log.versions().get(self.name, 0)
        return any(event.actor == self.name and event.counter > last for event in events)

    def renew_name(self) -> str:
        """Write under a new name from now on; what was written under the old one stays as it is."""
        with self.writing():
            last = self.log.versions().get(self.actor, 0)
            self.name = rename(self.connection, self.name, last)
        return self.name

    def digest(self, actor: str, counter: int) -> str:
        """A digest of the last events of an actor up to a counter; two replicas that agree give the same."""
        found = blake2b(digest_size=16)
        for event in self.log.ranges({actor: [(max(1, counter - DIGESTED + 1), counter)]}):
            found.update(f"{event.counter}:{event.hlc}:{event.kind};".encode())
        return found.hexdigest()

    def _scrubbed(self, event: Event) -> Event:
        """An event about something forgotten, without its text."""
        if any(self.is_forgotten(subject) for subject in mentioned(event)):
            return msgspec.structs.replace(event, body=scrubbed_body(event), signature=None)
        return event

    def _take(
        self, events: Sequence[Event], *, fresh: bool, embed: Embed | None, gaps: bool = False
    ) -> Changes:
        """Write events and everything they mean. Call inside a transaction."""
        head = self.log.newest.change
        self.log.insert(events, gaps=gaps)
        changes = self.tables.apply(events, fresh=fresh)
        changes.head = head
        if changes.created:
            rows, texts = [row for row, _, _ in changes.created], [text for _, _, text in changes.created]
            self._embed(rows, texts, embed, changes)
        if changes.retexted:
            found = self.texts_of(changes.retexted)
            self._embed(changes.retexted, [found[row] for row in changes.retexted], embed, changes)
        return changes

    def _embed(
        self, rows: Sequence[int], texts: Sequence[str], embed: Embed | None, changes: Changes
    ) -> None:
        """Store the vectors of texts, as far as they can be made at once; the rest is queued."""
        spaces = self.vectors.spaces()
        vectors: Mapping[int, Made] = embed(texts, spaces) if embed is not None else {}
        for space in spaces:
            made = vectors.get(space.number)
            if made is None or made.drafts:
                self.vectors.queue(space.number, rows, made.vectors if made is not None else None)
                changes.waiting = changes.waiting or space.state == "active"
            else:
                self.vectors.put(space.number, rows, made.vectors)
                if space.state == "active":
                    changes.embedder = space.fingerprint

    # Spaces

    def adopt(self, fingerprint: str, dim: int, spec: str | None) -> Space | None:
        """Make sure there is a space for an embedder; the one that is being built, if it is not the active one."""
        active = self.active_space()
        if active is not None and active.fingerprint == fingerprint:
            return None
        if self.read_only:
            return None
        with self.writing():
            for space in self.vectors.spaces():
                if space.fingerprint == fingerprint:
                    return None if space.state == "active" else space
                if space.state == "building":
                    self.vectors.drop(space.number)
            empty = not self.connection.one("SELECT 1 FROM memories WHERE forgotten = 0 LIMIT 1")
            if empty and active is not None:
                self.vectors.drop(active.number)
            state = "active" if empty or active is None else "building"
            space = self.vectors.create(fingerprint, dim, spec, state)
            self.vectors.queue_all(space.number)
            if state == "active":
                rows = self.connection.rows("SELECT row FROM memories WHERE forgotten = 0")
                self.tables.touch(row for (row,) in rows)
        return None if state == "active" else space

    def keep_active(self) -> None:
        """Give up the space that is being built, if any: the active one stays."""
        building = self.building_space()
        if building is not None:
            with self.writing():
                self.vectors.drop(building.number)

    def put_vectors(
        self, space: int, rows: Sequence[int], vectors: Sequence[bytes], texts: Sequence[str]
    ) -> None:
        """Store vectors the queue has made; rows that were forgotten or have another text by now are left alone."""
        with self.writing():
            made = dict(zip(rows, zip(vectors, texts, strict=True), strict=True))
            still = self.connection.rows(
                "SELECT m.row, m.title, m.text FROM pending p JOIN memories m ON m.row = p.row"
                " WHERE p.space = ? AND p.row IN (SELECT value FROM json_each(?))",
                (space, str([int(row) for row in rows])),
            )
            kept = [row for row, title, text in still if searched_text(title, text) == made[row][1]]
            self.vectors.put(space, kept, [made[row][0] for row in kept])
            active = next((s for s in self.vectors.spaces() if s.state == "active"), None)
            if active is not None and active.number == space:
                self.tables.touch(kept)

    def activate(self, space: int) -> bool:
        """Switch recall to a space that was being built, if it is complete."""
        with self.writing():
            known = [s for s in self.vectors.spaces() if s.number == space and s.state == "building"]
            if not known or self.vectors.waiting(space):
                return False
            self.vectors.activate(space)
            rows = self.connection.rows("SELECT row FROM memories")
            self.tables.touch(row for (row,) in rows)
        return True

    # Marks: how far a local job has come; never replicated

    def mark(self, job: str) -> int:
        """The change up to which a job of this file has looked at everything."""
        return self.connection.one("SELECT value FROM meta WHERE key = ?", (f"mark:{job}",)) or 0

    def set_mark(self, job: str, change: int) -> None:
        """Remember how far a job has come."""
        with self.connection.transaction():
            self.connection.execute(
                "INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)", (f"mark:{job}", change)
            )

    def note(self, name: str) -> str | None:
        """What was noted in this file under a name; None if nothing was."""
        return self.connection.one("SELECT value FROM meta WHERE key = ?", (f"note:{name}",))

    def set_note(self, name: str, text: str) -> None:
        """Note something in this file; it is never replicated."""
        with self.connection.transaction():
            self.connection.execute(
                "INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)", (f"note:{name}", text)
            )

    # Whole-file work

    def copy_to(self, target: Path) -> None:
        """Copy the bank to a file for another machine, without what is this machine's own. Nobody remembers it."""
        copy_file(self.connection, target)
        copy = Connection(str(target), busy_seconds=self.settings.busy_seconds)
        with contextlib.closing(copy), copy.transaction():
            copy.execute("DELETE FROM backups")
            copy.execute(
                "DELETE FROM meta WHERE key LIKE 'note:%' OR key LIKE 'lease:%' OR key LIKE 'mark:%'"
            )

    def backup(self, target: Path, now: float) -> None:
        """Copy the bank while it is in use, and remember where, so that `forget` reaches the copy."""
        if not self.read_only:
            with self.connection.transaction():
                self.connection.execute(
                    "INSERT OR REPLACE INTO backups(path, made_at) VALUES(?,?)", (str(target.resolve()), now)
                )
        copy_file(self.connection, target, self.alone_with_copies)

    def alone_with_copies(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from replacing a copy or erasing from one; what one opens, another must not exchange."""
        return contextlib.nullcontext() if self.read_only else self.connection.transaction()

    def backups(self) -> list[Path]:
        """The paths of copies."""
        from pathlib import Path

        return [Path(path) for (path,) in self.connection.rows("SELECT path FROM backups ORDER BY path")]

    def drop_backup(self, path: Path) -> None:
        """Forget about a copy that is no longer there."""
        with self.connection.transaction():
            self.connection.execute("DELETE FROM backups WHERE path = ?", (str(path),))

    # Erasing

    def leftover(self) -> bool:
        """True if what was forgotten may still stand in the file or its write-ahead log."""
        note = "SELECT 1 FROM meta WHERE key = 'erasing'"
        return self.file is not None and self.connection.one(note) is not None

    def truncate_wal(self, seconds: float = READER_SECONDS) -> bool:
        """Move everything from the write-ahead log into the file, and empty it; False if a reader was in the way.

        Then a note stays in the file, and the next write, close, maintain or doctor of any process tries again.

        Args:
            seconds: How long to wait for readers.
        """
        connection = self.connection
        with connection.impatient(seconds), translated(connection.path):
            if self.file is None or self.read_only or connection.in_transaction:
                return not self.leftover()
            try:
                frames, moved = connection.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                return False
            if frames == moved and self.leftover():
                with contextlib.suppress(BusyError, DiskFullError), connection.transaction():
                    connection.execute("DELETE FROM meta WHERE key = 'erasing'")
        return frames == moved

    # The bank as a whole

    def examine(self, *, deep: bool = False) -> Iterator[Finding]:
        """Every finding of the doctor, cheapest checks first. `deep` replays the whole log and compares."""
        from skep.storage.doctor import examine

        return examine(self, deep=deep)

    def mend(self) -> list[str]:
        """Rebuild from the log everything that follows from it; the list of what was done."""
        from skep.storage.doctor import mend

        return mend(self)

    def counts(self) -> Counts:
        """Figures of one moment."""
        from skep.storage.doctor import counts

        return counts(self)

    def export_lines(self) -> Iterator[bytes]:
        """The bank as lines of JSON: a header, then every event in order of arrival."""
        from skep.storage.bank_export import export_lines

        return export_lines(self)

    def copy_to_memory(self) -> SqliteStore:
        """The same bank, in memory, to look at another time."""
        copy = Connection(MEMORY, busy_seconds=self.settings.busy_seconds)
        with self.connection.snapshot():
            self.connection.rows(
                "SELECT 1 FROM sqlite_schema LIMIT 1"
            )  # else others make the copy begin anew
            with copy.db.backup("main", self.connection.db, "main") as backup:
                while not backup.done:
                    backup.step(4096)
        migrate(copy, copies=False)  # a file of an older version may be open for reading only
        return SqliteStore(copy, self.settings)

    def rewind(self, stamp: int) -> None:
        """Drop every event after a stamp and what it meant. Only ever done to a copy in memory."""
        with self.writing():
            subjects = self.log.subjects(stamp)
            self.log.cut(stamp)
            self.log.newest.look()
            self.tables.rebuild(subjects)

    def close_as_one_file(self) -> None:
        """Release the file with nothing beside it, as copies are kept."""
        with contextlib.closing(self):
            self.connection.rows("PRAGMA journal_mode=DELETE")

    def close(self) -> None:
        """Release the file."""
        try:
            # Whoever opens a file that was moved finds the note in it.
            with contextlib.suppress(ClosedError, MovedError, NewerVersionError, BusyError, DiskFullError):
                if not self.read_only and self.leftover():
                    self.truncate_wal(0.0)
        finally:
            self.connection.close()


if TYPE_CHECKING:
    from skep.storage.store import Store

    _promise: type[Store] = SqliteStore


class Arrived(NamedTuple):
    """Events that came, and those that waited, sorted out."""

    ready: list[Event]
    """In the order in which they are taken."""
    waiting: list[Event]
    """In the order of actors and counters."""
    known: int
    """The number of those that were here already."""
    gaps: bool
    """True if some before these may be missing."""


def arrived(log: Log, events: Iterable[Event], *, horizon: int, partial: bool) -> Arrived:
    """Sort out events that came. Call inside a transaction.

    Args:
        log: The events that are here.
        events: Those that came.
        horizon: Later stamps wait for their time.
        partial: Events with a gap before them are taken at once, for it may never be filled.

    An event without its text waits for the `forget` that took it. Whoever took it at once would show the memory as
    gone, and for ever, should the one replica that knows of the `forget` be lost.
    """
    versions = log.versions()
    waiting = {(event.actor, event.counter): event for event in log.held()}
    known = 0
    scattered = {} if partial else log.scattered()
    for event in events:
        if (
            event.counter <= versions.get(event.actor, 0)
            or (event.actor, event.counter) in waiting
            or event.counter in scattered.get(event.actor, ())
            or (partial and log.has(event.actor, event.counter))
        ):
            known += 1
        else:
            waiting[event.actor, event.counter] = event
    ready: list[Event] = []
    gone = {name for event in waiting.values() if event.kind == "forget" for name in event.body["memories"]}
    for key in sorted(waiting):
        event = waiting[key]
        erased = erased_memory(event)
        if erased is not None and erased not in gone and not log.forgot(erased):
            continue
        while versions.get(event.actor, 0) + 1 in scattered.get(event.actor, ()):
            versions[event.actor] = versions.get(event.actor, 0) + 1
        follows = partial or event.counter == versions.get(event.actor, 0) + 1
        if follows and event.hlc <= horizon:
            versions[event.actor] = max(event.counter, versions.get(event.actor, 0))
            ready.append(event)
    for event in ready:
        del waiting[event.actor, event.counter]
    ready.sort(key=lambda event: (event.hlc, event.actor, event.counter))
    still = [waiting[key] for key in sorted(waiting)]
    return Arrived(_per_actor(ready), still, known, partial or bool(scattered))


def _per_actor(events: list[Event]) -> list[Event]:
    """Keep each actor's events in the order of its counters, even where its clock ran backwards."""
    queues: dict[str, list[Event]] = {}
    for event in events:
        queues.setdefault(event.actor, []).append(event)
    for queue in queues.values():
        queue.sort(key=lambda event: event.counter, reverse=True)
    return [queues[event.actor].pop() for event in events]


DIGESTED = 256
"""Events that a digest looks at: what differs further back was seen by an earlier exchange."""
FURTHEST = 10.0
"""A lease that ends more than so many times its length ahead was written by a clock gone wrong; it does not count."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The process that works on a job, and until when no other may."""

    owner: str
    until: float


class Leases:
    """One lease per job, in the bank's file, never replicated.

    A lease has an owner and an end. Its owner moves the end while it works; when the end has passed, anybody may take
    the lease, so that a crash costs a wait and nothing else.
    """

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def claim(self, job: str, owner: str, *, now: float, seconds: float) -> Lease | None:
        """Take or prolong a lease. None if it is ours; otherwise the lease that stands in the way."""
        with self._c.transaction():
            held = self._held(job)
            if held is not None and held.owner != owner and now < held.until <= now + FURTHEST * seconds:
                return held
            mine = msgspec.json.encode(Lease(owner=owner, until=now + seconds)).decode()
            self._c.execute("INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)", (f"lease:{job}", mine))
        return None

    def owned(self, job: str, owner: str) -> bool:
        """True while a lease is still ours; inside a transaction, until its end."""
        held = self._held(job)
        return held is not None and held.owner == owner

    def release(self, job: str, owner: str) -> None:
        """Give a lease back, if it is still ours."""
        with self._c.transaction():
            if self.owned(job, owner):
                self._c.execute("DELETE FROM meta WHERE key = ?", (f"lease:{job}",))

    def _held(self, job: str) -> Lease | None:
        value = self._c.one("SELECT value FROM meta WHERE key = ?", (f"lease:{job}",))
        return None if value is None else msgspec.json.decode(value, type=Lease)
