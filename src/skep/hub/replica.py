"""LocalReplica: a bank of this machine kept in step with a hub: what to fetch, what to send, how far behind it is.

`shared_bank` and `skep sync` use it. It asks the bank's façade and engine, and the hub, and keeps one note in the
bank's file: how far it has read, and what the hub is known to have. The note may be older than the truth: then events
are read or sent twice, which is harmless. What is still to be sent is no list of its own: it is what the log here has
and the hub lacks.

Each replica has a setting `replica/ACTOR` in the bank, so that all of them know each other. In it stands which
`forget`s reached that replica.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import socket
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from skep.bank.bank import Bank
from skep.clock import pack
from skep.errors import ClosedError, CorruptBankError, SkepError, SyncError
from skep.events import mentioned
from skep.hub.hub import BATCH, START, Hub, dots, outlived
from skep.model import Event
from skep.replication.exchange import Synced, Transfer, seen, take
from skep.replication.version_vectors import Versions
from skep.storage.bank_export import batches
from skep.storage.event_log import scrubbed_body

REPLICAS = "replica/"
"""Before the actor of a replica, in the settings of the bank."""
SNAPSHOT_EVENTS = 5_000
SNAPSHOT_SHARE = 0.2
"""A new snapshot is made when the hub has so many events more than the last one, and this share of all."""
LOOK_SECONDS = 600.0
"""Seconds after which a replica compares again what the hub has."""


class HubNote(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica knows of a hub; kept in the bank's file."""

    bank: str = ""
    """The bank at the hub, as it was when they first met."""
    log: str = ""
    position: str = START
    sent: Versions = Versions()
    """The events that the hub is known to have."""
    heard_at: float | None = None


class ReplicaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A replica, as all the others know it."""

    name: str
    forgets: Versions = Versions()
    """The events of others, among them every `forget` that this replica has confirmed."""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replica and its hub are apart, and why."""

    url: str
    file: str | None
    mode: str
    name: str
    behind: int | None
    """The number of events that the hub has and this replica lacks; None while the hub is away."""
    unsent: int
    """The number of events that the hub is not known to have."""
    heard_at: float | None
    """When the hub last answered."""
    why: str
    """Why they are apart; empty if nothing stands in the way."""
    snapshot_behind: int | None = None
    """The number of events a new replica has to read after the snapshot; None without one."""
    replicas: dict[str, str] = {}
    """The names of all replicas, by actor."""
    unconfirmed: dict[str, tuple[str, ...]] = {}
    """Per memory that was forgotten, the replicas that have not confirmed it yet."""
    note: str = ""


class LocalReplica:
    """A bank of this machine, and the hub that it is kept in step with."""

    def __init__(
        self,
        bank: Bank,
        connect: Callable[[], Hub],
        *,
        url: str,
        mode: str = "local",
        name: str = "",
        join: bool = False,
    ) -> None:
        """Nothing is asked of the hub yet.

        Args:
            bank: The bank; closed by the caller.
            connect: Opens the hub.
            url: Its address, without password.
            mode: As in `HubOptions`; told by `status`.
            name: The name of this replica, for people; by default the name of the machine.
            join: Whether memories of another bank may be brought into that of the hub.
        """
        self.bank = bank
        self.url = url
        self.mode = mode
        self.name = name or socket.gethostname()
        self.why = ""
        """The last failure; empty after a success."""
        self._connect = connect
        self._join = join
        self._hub: Hub | None = None
        self._closed = False
        self._state = threading.RLock()
        self._pulling = threading.RLock()
        self._pushing = threading.RLock()
        self._key = f"hub:{url}"
        kept = bank.engine.note(self._key)
        self._note = msgspec.json.decode(kept, type=HubNote) if kept else HubNote()
        self._pushed: dict[str, int] = {}
        """The versions of the log when all of it was last sent."""
        self._looked_at: float | None = None
        self._weighed = 0
        """The number of events at the hub when its snapshot was last looked at."""

    # The hub

    @property
    def hub(self) -> Hub:
        """The hub, connected when it is first needed, and checked to be that of this bank."""
        with self._state:
            if self._closed:
                raise ClosedError("this replica was closed; open the bank again")
            if self._hub is None:
                hub = self._connect()
                try:
                    self._meet(hub)
                except BaseException:
                    hub.close()
                    raise
                self._hub = hub
            return self._hub

    def _meet(self, hub: Hub) -> None:
        ours = self._note.bank or self.bank.engine.identity()
        theirs = hub.status().bank or hub.claim(ours)
        if theirs != ours and not self._join and (self._note.bank or self.bank.versions()):
            raise SyncError(
                f"{self.url} belongs to another bank than {self.bank.file or 'this one'}, so nothing was exchanged;"
                " check the address. To make one bank of both: `skep sync URL --join`"
            )
        if self._note.bank != theirs:
            self._change(bank=theirs)

    @property
    def heard_at(self) -> float | None:
        """When the hub last answered."""
        return self._note.heard_at

    @property
    def position(self) -> str:
        """How far this replica has read."""
        return self._note.position

    def start_from(self, position: str) -> None:
        """Read on from where a snapshot ends, from which the bank's file was made."""
        log = self.hub.status().log
        self._change(position=position, log=log, sent=seen(self.bank))

    def close(self) -> None:
        """Keep what is known of the hub, and release it. Closing twice is no error."""
        with self._state:
            self._closed = True
            hub, self._hub = self._hub, None
            if hub is not None:
                self.keep()
        if hub is not None:
            hub.close()

    # Exchange

    def sync(self) -> Synced:
        """Fetch, compare with the hub, send what is missing there, look after the snapshot."""
        received = self.pull()
        if self.look():
            received = received.plus(self.pull())
        sent = self.push()
        self.refresh_snapshot()
        return Synced(sent=sent, received=received)

    def pull(self) -> Transfer:
        """Take in what the hub has and this replica lacks."""
        total = Transfer()
        with self._pulling, self._told():
            hub = self.hub
            self._reload()
            total = total.plus(self._take_held())
            lost = False
            while True:
                batch = hub.read(self._note.position)
                if batch.log != self._note.log:
                    lost = bool(self._note.log)
                    self._pushed = {}
                    self._change(log=batch.log, sent=Versions())
                if not batch.events:
                    break
                taken = self._take(batch.events)
                total = total.plus(taken)
                with self._state:
                    self._change(
                        position=batch.position,
                        sent=self._note.sent.merged(dots(batch.events)),
                        keep=bool(taken.events),
                    )
            self._change(heard_at=self.bank.engine.now(), keep=False)
            if lost:
                self.look()
        return total

    def push(self) -> Transfer:
        """Send what this replica has and the hub lacks."""
        count = 0
        with self._pushing:
            mine = self.bank.versions()
            if mine == self._pushed:
                return Transfer()
            with self._told():
                hub = self.hub
                for group in batches(self.bank.events_in(self._missing(mine).ranges), BATCH):
                    hub.append(group)
                    gone = _forgotten_by(group)
                    if gone:
                        hub.erase(self._bare(gone))
                    count += len(group)
                    with self._state:
                        self._change(sent=self._note.sent.merged(dots(group)), keep=bool(gone))
                self._change(heard_at=self.bank.engine.now(), keep=False)
                self._pushed = mine
        return Transfer(events=count)

    def _missing(self, mine: dict[str, int]) -> Versions:
        """The events that the hub is not known to have. Of a log that was all sent once, only the end is looked at."""
        if not self._pushed:
            return self.unsent()
        new = {
            actor: ((self._pushed.get(actor, 0) + 1, counter),)
            for actor, counter in mine.items()
            if counter > self._pushed.get(actor, 0)
        }
        return Versions(new).minus(self._note.sent)

    def wait(self, seconds: float) -> bool:
        """Wait for something new at the hub; False if there was nothing for so long."""
        with self._told():
            found = self.hub.wait(self._note.position, seconds)
            if not found:
                self._change(heard_at=self.bank.engine.now(), keep=False)
        return found

    @property
    def all_sent(self) -> bool:
        """True if nothing was written here since everything was last sent."""
        return self.bank.versions() == self._pushed

    def unsent(self) -> Versions:
        """The events that the hub is not known to have."""
        return seen(self.bank).minus(self._note.sent)

    def look(self) -> bool:
        """Compare with what the hub has: what it lost is sent again, what was passed over here is read again.

        True if something was passed over.
        """
        with self._pushing, self._told():
            held = self.hub.held()
            unerased = self._unerased(e for e in self._forgets() if (e.actor, e.counter) in held)
            if unerased:
                self.hub.erase(self._bare(unerased))
            passed_over = bool(held.minus(seen(self.bank)).minus(dots(self.bank.engine.log.held())))
            self._pushed = {}
            self._change(sent=held, position=START if passed_over else self._note.position)
            self._looked_at = self.bank.engine.now()
        return passed_over

    def look_if_due(self) -> None:
        """The same, if the last time is long past."""
        if self._looked_at is None or self.bank.engine.now() - self._looked_at > LOOK_SECONDS:
            self.look()

    def _take(self, events: Sequence[Event]) -> Transfer:
        """Take events in, and see to it that nothing that was forgotten stays at the hub."""
        sent, here = self._note.sent, seen(self.bank)
        new = [event for event in events if (event.actor, event.counter) not in here]
        done = take(self.bank, new) if new else Transfer()
        engine = self.bank.engine
        forgotten = set(engine.forgotten())
        gone = forgotten.intersection(
            _forgotten_by(events)
        )  # a `forget` that waits has not erased anything here
        late = {  # sent by somebody who did not know of the `forget`
            name
            for event in events
            if forgotten and event.kind not in ("forget", "use") and event.body != scrubbed_body(event)
            for name in mentioned(event)
            if name in forgotten
        }
        late |= {
            name
            for name in gone
            if any(
                event.actor == self.bank.actor and (event.actor, event.counter) in sent
                for event in engine.log.of(name)
            )
        }
        late |= self._unerased(events) & forgotten
        if late:
            self.hub.erase(self._bare(late))
        elif gone and not outlived(self.hub.status().snapshot, events):
            self.hub.erase([event for event in events if event.kind == "forget"])
        if gone:
            self.register()
        return done

    def _unerased(self, forgets: Iterable[Event]) -> set[str]:
        """Of some `forget`s that the hub has, those of this replica that no answer came for: what they erase."""
        sent, actor = self._note.sent, self.bank.actor
        mine = (event for event in forgets if event.kind == "forget" and event.actor == actor)
        return set(_forgotten_by(event for event in mine if (event.actor, event.counter) not in sent))

    def _take_held(self) -> Transfer:
        """Take in events whose time has come. A `forget` among them is carried out at the hub by reading all of it."""
        engine = self.bank.engine
        horizon = pack(engine.now() + engine.settings.max_drift_seconds)
        due = [event for event in engine.log.held() if event.hlc <= horizon]
        if not due:
            return Transfer()
        if any(event.kind == "forget" for event in due):
            self._change(position=START)
        return Transfer(events=self.bank.apply((), partial=True).new)

    def _bare(self, memory_ids: Iterable[str]) -> list[Event]:
        """The events about forgotten memories as they stand here: without text."""
        log = self.bank.engine.log
        return list({event.id: event for name in memory_ids for event in log.of(name)}.values())

    # Replicas know each other

    def register(self) -> None:
        """Tell the others the name of this replica, and which `forget`s it has carried out."""
        authors = {event.actor for event in self._forgets()}
        all_seen = seen(self.bank).ranges
        entry = ReplicaEntry(
            name=self.name,
            forgets=Versions({actor: all_seen[actor] for actor in sorted(authors) if actor in all_seen}),
        )
        known = self.replicas().get(self.bank.actor)
        wanted = dots(self._forgets())
        if known is None or known.name != entry.name or not wanted <= known.forgets:
            self.bank.set_setting(f"{REPLICAS}{self.bank.actor}", msgspec.to_builtins(entry))

    def replicas(self) -> dict[str, ReplicaEntry]:
        """All replicas that have not been retired, by actor."""
        found: dict[str, ReplicaEntry] = {}
        for key, value in self.bank.settings(REPLICAS).items():
            actor = key.removeprefix(REPLICAS)
            try:
                found[actor] = msgspec.convert(value, ReplicaEntry, strict=False)
            except msgspec.ValidationError:  # written by something else; it has confirmed nothing
                found[actor] = ReplicaEntry(name=actor)
        return found

    def retire(self, actor: str) -> None:
        """Strike out a replica that is no more: nobody waits for its confirmation."""
        if actor not in self.replicas():
            raise SyncError(f"there is no replica {actor!r}; `skep sync status` lists them")
        self.bank.set_setting(f"{REPLICAS}{actor}", None)

    def unconfirmed(self) -> dict[str, tuple[str, ...]]:
        """Per forgotten memory, the replicas that have not yet said that it is gone there."""
        found: dict[str, tuple[str, ...]] = {}
        entries = self.replicas()
        for event in self._forgets():
            late = tuple(
                f"{entry.name} ({actor})"
                for actor, entry in sorted(entries.items())
                if actor != event.actor and (event.actor, event.counter) not in entry.forgets
            )
            if late:
                found |= dict.fromkeys(event.body["memories"], late)
        return found

    def _forgets(self) -> list[Event]:
        engine = self.bank.engine
        found = {
            event.id: event
            for name in engine.forgotten()
            for event in engine.log.of(name)
            if event.kind == "forget"
        }
        return list(found.values())

    # Snapshots

    def refresh_snapshot(self, *, always: bool = False) -> bool:
        """Make a new snapshot if the last one is old; True if one was made."""
        with self._pulling, self._told():
            hub = self.hub
            held = self._note.sent
            if not always:
                if held.count() - self._weighed < SNAPSHOT_EVENTS // 5:
                    return False  # too few came since the last look to ask again
                self._weighed = held.count()
                newer = held.minus(hub.status().snapshot or Versions()).count()
                if newer < max(SNAPSHOT_EVENTS, SNAPSHOT_SHARE * held.count()):
                    return False
            position, inside = self._note.position, seen(self.bank)
            with TemporaryDirectory(prefix="skep-") as folder:
                copy, packed = Path(folder) / "bank.skep", Path(folder) / "bank.skep.gz"
                self.bank.engine.copy_to(copy)
                with copy.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as target:
                    shutil.copyfileobj(plain, target, 1 << 20)
                hub.put_snapshot(packed, inside, position)
            self.pull()
            late = [event for event in self._forgets() if (event.actor, event.counter) not in inside]
            if late:  # forgotten while the snapshot was made
                hub.erase(late)
        return True

    # Status

    def status(self) -> ReplicaStatus:
        """How far this replica and the hub are apart, and why."""
        behind = snapshot_behind = None
        note = ""
        try:
            held = self.hub.held()
            found = self.hub.status()
            behind = held.minus(seen(self.bank)).count()
            self._change(sent=held, keep=False)
            if found.snapshot is not None:
                snapshot_behind = held.minus(found.snapshot).count()
            note = found.note
        except SkepError as error:
            self.why = str(error)
        return ReplicaStatus(
            url=self.url,
            file=str(self.bank.file) if self.bank.file else None,
            mode=self.mode,
            name=self.name,
            behind=behind,
            unsent=self.unsent().count(),
            heard_at=self._note.heard_at,
            why=self.why,
            snapshot_behind=snapshot_behind,
            replicas={actor: entry.name for actor, entry in self.replicas().items()},
            unconfirmed=self.unconfirmed(),
            note=note,
        )

    # The note

    def _change(self, *, keep: bool = True, **changes: Any) -> None:
        with self._state:
            self._note = msgspec.structs.replace(self._note, **changes)
            if keep:
                self.keep()

    def keep(self) -> None:
        """Write down what is known of the hub."""
        if not self.bank.engine.read_only:
            self.bank.engine.set_note(self._key, msgspec.json.encode(self._note).decode())

    def _reload(self) -> None:
        """Another process on this machine may have read further."""
        kept = self.bank.engine.note(self._key)
        if kept is None:
            return
        note = msgspec.json.decode(kept, type=HubNote)
        with self._state:
            if note.log == self._note.log:
                self._note = msgspec.structs.replace(
                    note, sent=note.sent.merged(self._note.sent), heard_at=self._note.heard_at
                )

    @contextlib.contextmanager
    def _told(self) -> Generator[None]:
        """Remember why an exchange failed, for `status`."""
        try:
            yield
        except SkepError as error:
            self.why = str(error)
            raise
        self.why = ""


def unpack_snapshot(packed: Path, target: Path) -> None:
    """The bank file in a snapshot."""
    try:
        with gzip.open(packed, "rb") as source, target.open("wb") as plain:
            shutil.copyfileobj(source, plain, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorruptBankError(f"the snapshot at the hub is damaged ({error})") from error


def _forgotten_by(events: Iterable[Event]) -> list[str]:
    return [name for event in events if event.kind == "forget" for name in event.body["memories"]]
