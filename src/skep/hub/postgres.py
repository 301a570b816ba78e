"""PostgresHub (`postgresql://`): a log in a PostgreSQL database, the first choice where there is a server.

Opened by `hub_urls`. The tables, the functions and the rights stand in `data/postgres.sql`; this module calls them.
Several banks fit into one database (`#bank=NAME`). A role that is not the owner sees the banks and scopes that
`skep.admit` let it into, and the database itself enforces it (row-level security).
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Generator, Sequence
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar
from uuid import uuid4

import msgspec

from skep.errors import DiskFullError, HubAwayError, MissingExtraError, SyncError
from skep.hub.hub import AWAY_SECONDS, BATCH, Batch, HubStatus, outlived
from skep.hub.hub_urls import options_of, shown
from skep.model import Event
from skep.replication.version_vectors import Ranges, Versions

if TYPE_CHECKING:
    from psycopg import Connection

VERSION = 2
"""The schema of this skep."""
PART = 1 << 22
"""Bytes of a snapshot in one row."""
PAUSE = 0.5
"""Seconds after which one who waits looks whether the hub was closed."""
SCHEMA_LOCK = 5_128_011_520
"""The number of the lock that whoever changes the schema holds."""
T = TypeVar("T")


class PostgresHub:
    """A log in a PostgreSQL database. See `Hub` for the promises."""

    def __init__(self, url: str) -> None:
        """Connect, and bring the schema up to date.

        Args:
            url: The address as PostgreSQL knows it; behind `#`, the options of skep.
        """
        self._psycopg, pool = _libraries()
        self.url = shown(url)
        self._bank = options_of(url).bank
        self._target = url.partition("#")[0]
        self._closed = threading.Event()
        self._ears: Connection[Any] | None = None
        self._listening = threading.Lock()
        with self._errors():
            connection = self._connect()
            try:
                self._migrate(connection)
            finally:
                connection.close()
        self._pool: Any = pool.ConnectionPool(
            self._target,
            min_size=1,
            max_size=8,
            timeout=AWAY_SECONDS,
            reconnect_timeout=AWAY_SECONDS,
            kwargs=self._how(),
            configure=self._configure,
            name="skep",
            open=True,
        )

    @classmethod
    def open(cls, url: str) -> PostgresHub:
        """From `postgresql://user:password@host:port/database#bank=name`."""
        return cls(url)

    # The log

    def append(self, events: Sequence[Event]) -> None:
        """Store events in one transaction and one round trip; they are on the server's disk when this returns."""
        if not events:
            return
        columns = (
            [event.actor for event in events],
            [event.counter for event in events],
            [event.hlc for event in events],
            [event.kind for event in events],
            [_body(event) for event in events],
            [event.signature for event in events],
        )
        self._call(
            "SELECT skep.append(%s, %s, %s::bigint[], %s::bigint[], %s, %s::text[], %s::bytea[])",
            (self._bank, *columns),
        )

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, in the order in which they were committed."""
        log, _, digits = after.rpartition(":")
        number = int(digits) if digits.isdecimal() and len(digits) < 19 else 0
        rows = self._call(
            "SELECT l.log, l.start, e.seq, e.actor, e.counter, e.hlc, e.kind, e.body::text, e.signature"
            " FROM (SELECT bank, log, CASE WHEN log = %s AND %s <= last THEN %s ELSE 0 END AS start FROM skep.logs"
            " WHERE bank = %s) l LEFT JOIN LATERAL (SELECT * FROM skep.events e"
            " WHERE e.bank = l.bank AND e.seq > l.start ORDER BY e.seq LIMIT %s) e ON true",
            (log, number, number, self._bank, limit),
        )
        if not rows:
            raise SyncError(f"{self.url} no longer has the bank {self._bank!r}, or this role may not see it")
        there, start = rows[0][:2]
        found = [row[2:] for row in rows if row[2] is not None]
        last = found[-1][0] if found else start
        return Batch(events=tuple(map(_event, found)), position=f"{there}:{last}", log=there)

    def wait(self, after: str, timeout: float) -> bool:
        """Listen for the notice that comes with every append."""
        deadline = time.monotonic() + timeout
        with self._listening, self._errors():
            try:
                if self._ears is None:
                    self._ears = self._connect()
                    self._ears.execute("LISTEN skep")
                while not self._closed.is_set():
                    if self.read(after, 1).events:
                        return True
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    heard = False
                    while (
                        not heard and (left := deadline - time.monotonic()) > 0 and not self._closed.is_set()
                    ):
                        notices = self._ears.notifies(timeout=min(left, PAUSE), stop_after=1)
                        heard = any(notice.payload == self._bank for notice in notices)
                return False
            except BaseException:
                self._deafen()
                raise

    def held(self) -> Versions:
        """The events that this role may see, as ranges."""
        rows = self._call(
            "SELECT actor, min(counter), max(counter) FROM (SELECT actor, counter, counter - row_number() OVER"
            " (PARTITION BY actor ORDER BY counter) AS island FROM skep.events WHERE bank = %s) e"
            " GROUP BY actor, island ORDER BY actor, min(counter)",
            (self._bank,),
        )
        found: dict[str, Ranges] = {}
        for actor, low, high in rows:
            found[actor] = (*found.get(actor, ()), (low, high))
        return Versions(found)

    # The bank and its snapshot

    def status(self) -> HubStatus:
        """The bank it belongs to, its size and its snapshot."""
        ((log, bank, events, snapshot),) = self._call(
            "SELECT l.log, l.bank_id, (SELECT count(*) FROM skep.events e WHERE e.bank = l.bank), s.seen::text"
            " FROM skep.logs l LEFT JOIN skep.snapshots s USING (bank) WHERE l.bank = %s",
            (self._bank,),
        )
        seen = None if snapshot is None else msgspec.json.decode(snapshot, type=Versions)
        return HubStatus(url=self.url, bank=bank, log=log, events=events, snapshot=seen)

    def claim(self, bank: str) -> str:
        """Say which bank this log belongs to, if nobody has."""
        return self._call("SELECT skep.claim(%s, %s)", (self._bank, bank))[0][0]

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Store a file in parts, in one transaction."""
        name = uuid4().hex

        def put(connection: Connection[Any]) -> None:
            with connection.transaction(), source.open("rb") as file:
                connection.execute(
                    "SELECT skep.put_snapshot(%s, %s, %s, %s)",
                    (self._bank, name, msgspec.json.encode(seen).decode(), position),
                )
                for number, part in enumerate(iter(lambda: file.read(PART), b"")):
                    connection.execute(
                        "SELECT skep.put_part(%s, %s, %s, %s)", (self._bank, name, number, part)
                    )

        self._use(put)

    def get_snapshot(self, target: Path) -> str | None:
        """Write the parts to a file, all of one moment."""

        def get(connection: Connection[Any]) -> str | None:
            with connection.transaction(), target.open("wb") as file:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                row = connection.execute(
                    "SELECT place FROM skep.snapshots WHERE bank = %s", (self._bank,)
                ).fetchone()
                if row is None:
                    return None
                sql = "SELECT content FROM skep.snapshot_parts WHERE bank = %s AND part = %s"
                number = 0
                while (
                    part := connection.execute(sql, (self._bank, number), binary=True).fetchone()
                ) is not None:
                    file.write(part[0])
                    number += 1
                return row[0]

        return self._use(get)

    def erase(self, events: Sequence[Event]) -> None:
        """Put events without text in the place of the stored ones, and let the server clean the old rows away."""
        snapshot = self.status().snapshot
        columns = (
            [event.actor for event in events],
            [event.counter for event in events],
            [_body(event) for event in events],
            [event.signature for event in events],
        )
        drop = not outlived(snapshot, events)
        self._call(
            "SELECT skep.erase(%s, %s, %s::bigint[], %s::text[], %s::bytea[], %s)",
            (self._bank, *columns, drop),
        )
        self._use(self._vacuum)

    def _vacuum(self, connection: Connection[Any]) -> None:
        connection.add_notice_handler(lambda _notice: None)  # a role that does not own the table is told so
        connection.execute("VACUUM (SKIP_LOCKED) skep.events")

    def close(self) -> None:
        """End what waits, and the connections."""
        self._closed.set()
        self._pool.close()
        with self._listening:
            self._deafen()

    # Connections

    def _how(self) -> dict[str, Any]:
        return {"autocommit": True, "connect_timeout": int(AWAY_SECONDS), "application_name": "skep"}

    def _connect(self) -> Connection[Any]:
        connection = self._psycopg.connect(self._target, **self._how())
        self._configure(connection)
        return connection

    def _configure(self, connection: Connection[Any]) -> None:
        connection.execute(
            "SELECT set_config('statement_timeout', '60s', false), set_config('idle_in_transaction_session_timeout',"
            " '60s', false), CASE current_setting('synchronous_commit') WHEN 'off'"
            " THEN set_config('synchronous_commit', 'on', false) END"
        )

    def _call(self, sql: LiteralString, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement, which is a transaction of its own."""
        return self._use(lambda connection: connection.execute(sql, values).fetchall())

    def _use(self, work: Callable[[Connection[Any]], T]) -> T:
        """Do something with a connection. If that broke, the work is done once more: all of it may be repeated."""
        with self._errors():
            try:
                with self._pool.connection() as connection:
                    return work(connection)
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError):
                if self._closed.is_set():
                    raise
                self._pool.check()
                with self._pool.connection() as connection:
                    return work(connection)

    def _deafen(self) -> None:
        ears, self._ears = self._ears, None
        if ears is not None:
            ears.close()

    # The schema

    def _migrate(self, connection: Connection[Any]) -> None:
        """Bring the schema up to date, and begin the log of this bank."""
        there = _version(connection)
        if there > VERSION:
            raise SyncError(
                f"{self.url} has a schema of a newer skep ({there}, here {VERSION}); update skep to use it"
            )
        if there < VERSION:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
                if not _version(connection):
                    connection.execute("CREATE SCHEMA IF NOT EXISTS skep")
                    connection.execute("CREATE TABLE IF NOT EXISTS skep.version(version int NOT NULL)")
                for number, sql in _migrations().items():
                    if number > _version(connection):
                        connection.execute(sql.encode())
                        connection.execute("DELETE FROM skep.version")
                        connection.execute("INSERT INTO skep.version VALUES (%s)", (number,))
        row = connection.execute("SELECT 1 FROM skep.logs WHERE bank = %s", (self._bank,)).fetchone()
        if row is None:
            connection.execute("SELECT skep.begin_log(%s)", (self._bank,))

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        psycopg = self._psycopg
        try:
            yield
        except psycopg.errors.DiskFull as error:
            raise DiskFullError(
                f"the disk of {self.url} is full; nothing was lost: what is not there is kept here and sent later"
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise SyncError(
                f"{self.url} does not let this role in ({_said(error)}); the owner of the schema can:"
                f" SELECT skep.admit('ROLE', '{self._bank}')"
            ) from error
        except psycopg.OperationalError as error:
            raise self._refused(error) from error
        except psycopg.Error as error:
            if self._closed.is_set():
                raise HubAwayError(f"{self.url} was closed; open the bank again") from error
            raise SyncError(f"{self.url} answered with an error: {_said(error)}") from error

    def _refused(self, error: Exception) -> SyncError:
        """The error that a connection ended in, in words that say what to do."""
        said = _said(error)
        if re.search("password|authentication|no pg_hba.conf entry|role .* does not exist", said):
            return SyncError(f"{self.url} refused the login ({said}); check user and password in the address")
        if re.search("database .* does not exist", said):
            return SyncError(f"{self.url}: {said}; create it with `createdb`, or check the name")
        if "invalid" in said and "dsn" in said:
            return SyncError(f"{self.url} is no address that PostgreSQL understands ({said})")
        return HubAwayError(f"{self.url} did not answer ({said}); is the server up, and the address right?")


def _libraries() -> tuple[Any, ModuleType]:
    try:
        import psycopg
        import psycopg_pool
    except ImportError as error:
        raise MissingExtraError("A bank at postgresql://", "postgres") from error
    return psycopg, psycopg_pool


def _version(connection: Connection[Any]) -> int:
    if connection.execute("SELECT to_regclass('skep.version')").fetchone() == (None,):
        return 0
    row = connection.execute("SELECT version FROM skep.version").fetchone()
    return 0 if row is None else row[0]


def _migrations() -> dict[int, str]:
    """The statements of each migration, by number."""
    text = (files("skep.hub") / "data" / "postgres.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- migration (\d+):.*$", text, flags=re.MULTILINE)
    return {int(number): sql for number, sql in zip(parts[1::2], parts[2::2], strict=True)}


def _body(event: Event) -> str:
    return msgspec.json.encode(event.body).decode()


def _event(row: tuple[Any, ...]) -> Event:
    _, actor, counter, hlc, kind, body, signature = row
    return Event(
        actor=actor, counter=counter, hlc=hlc, kind=kind, body=msgspec.json.decode(body), signature=signature
    )


def _said(error: Exception) -> str:
    return " ".join(str(error).split())
