"""A replica in a simulated world: a real bank in a real file, that may be killed at a named point of any call.

A kill leaves the file and its write-ahead log as they are at that moment (a commit may be torn anywhere), and the bank
is opened again from exactly that. Exchange is by the frames that members of a hive send, as bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import DiskFullError, SkepError
from skep.hive.messages import Envelope, GossipEvents, SyncEvents, SyncRequest, decode, encode
from skep.model import Event, Memory
from skep.replication.exchange import lacking, seen, take, without_position
from skep.replication.version_vectors import Versions

from .world import World

T = TypeVar("T")
EMBEDDER = HashingEmbedder(16)
POINTS = ("between statements", "before a commit", "in the middle of a commit", "after a commit")
BATCH = 40
"""Events in one message."""
ROOM = 1 << 30
"""Pages of a disk that is not full."""


class Killed(BaseException):
    """The process is gone; nothing in it may run any more."""


class Disk:
    """A bank's file and its write-ahead log, and what a kill leaves of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wal = path.with_name(f"{path.name}-wal")
        self._left: tuple[bytes, bytes] | None = None

    def wal_bytes(self) -> int:
        return self.wal.stat().st_size if self.wal.exists() else 0

    def freeze(self, wal_size: int | None = None) -> None:
        """Remember the files as they are now; the log only as far as it had got."""
        wal = self.wal.read_bytes() if self.wal.exists() else b""
        self._left = (self.path.read_bytes(), wal if wal_size is None else wal[:wal_size])

    def thaw(self) -> None:
        """Make the files what they were when the process was killed."""
        assert self._left is not None
        main, wal = self._left
        self.path.write_bytes(main)
        self.path.with_name(f"{self.path.name}-shm").unlink(missing_ok=True)
        self.wal.write_bytes(wal)
        self._left = None

    def lose(self) -> None:
        """Nothing is left."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


class _Executioner:
    """Looks at each statement of one call and kills the process at the point that was drawn."""

    def __init__(self, world: World, bank: Bank, disk: Disk) -> None:
        self._world = world
        self._bank = bank
        self._disk = disk
        self.point = world.rng.choice(POINTS)
        self._left = world.rng.randrange(12)
        self._committing: int | None = None

    def __enter__(self) -> None:
        self._bank.engine.store.connection.trace = self._statement

    def _statement(self, sql: str, _bindings: Any) -> None:
        if self._committing is not None:
            self._tear()
        writing = self._bank.engine.store.connection.writing
        if self.point == "between statements" and writing:
            self._left -= 1
            if self._left < 0:
                self._kill()
        elif sql == "COMMIT" and writing:
            if self.point == "before a commit":
                self._kill()
            self._committing = self._disk.wal_bytes()

    def _tear(self) -> None:
        """A commit has ended; was it killed on the way?"""
        before, after = self._committing or 0, self._disk.wal_bytes()
        self._committing = None
        if self.point == "in the middle of a commit" and after > before:
            self._kill(self._world.rng.randrange(before, after))
        if self.point in ("after a commit", "in the middle of a commit"):
            self._kill()

    def _kill(self, wal_size: int | None = None) -> None:
        self._bank.engine.store.connection.trace = None
        self._disk.freeze(wal_size)
        raise Killed(self.point)

    def __exit__(self, kind: Any, *_rest: object) -> None:
        if kind is None and self._committing is not None:  # the last commit of the call, not yet acknowledged
            self._tear()
        self._bank.engine.store.connection.trace = None


class Replica:
    """One bank, its clock, and what it has promised."""

    def __init__(self, world: World, name: str, folder: Path, peers: list[str]) -> None:
        self.world = world
        self.name = name
        self.peers = [peer for peer in peers if peer != name]
        self.skew = 0.0
        self.disk = Disk(folder / f"{name}.skep")
        self.acknowledged = Versions()
        """Events that this replica wrote and answered for."""
        self.danger = 0.0
        """How likely a call is killed."""
        self._bank: Bank | None = None
        self.open()

    # The process

    @property
    def up(self) -> bool:
        """True while the process runs."""
        return self._bank is not None

    @property
    def bank(self) -> Bank:
        """The open bank."""
        assert self._bank is not None
        return self._bank

    def now(self) -> float:
        """What this replica's clock says."""
        return self.world.time + self.skew

    def open(self) -> None:
        """Start the process; what it had promised is there, and what it shows is what its log says."""
        self._bank = Bank.open(self.disk.path, embedder=EMBEDDER, now=self.now, create=True)
        lost = self.acknowledged.minus(seen(self.bank))
        assert not lost, f"{self.name} lost {lost.ranges}, which it had acknowledged"

    def close(self) -> None:
        """End the process in an orderly way."""
        self.bank.close()
        self._bank = None

    def die(self) -> None:
        """End the process as a kill does, with the files as they were at that moment."""
        self.close()
        self.disk.thaw()

    def call(self, action: Callable[[Bank], T]) -> T | None:
        """Do something with the bank; a kill, a full disk or a refusal leaves None."""
        bank, world = self.bank, self.world
        try:
            if world.rng.random() >= self.danger:
                return action(bank)
            with _Executioner(world, bank, self.disk):
                return action(bank)
        except Killed as killed:
            world.tell(f"{self.name} is killed {killed}")
            world.sometimes(f"killed {killed}")
            self.die()
        except DiskFullError:
            world.sometimes("a disk was full")
        except SkepError as error:
            world.tell(f"{self.name} refuses: {type(error).__name__}")
        return None

    def write(self, action: Callable[[Bank], object]) -> list[Event]:
        """A change by a user; what was acknowledged is a promise from now on."""

        def changed(bank: Bank) -> list[Event]:
            before = bank.engine.log.last_seq()
            action(bank)
            return list(bank.engine.log.after(before))

        events = self.call(changed) or []
        self.acknowledged = self.acknowledged.merged(Versions.of((e.actor, e.counter) for e in events))
        return events

    def fill_disk(self, *, full: bool) -> None:
        """Leave no room on the disk, or plenty."""
        db = self.bank.engine.store.connection.db
        db.pragma("max_page_count", db.pragma("page_count") if full else ROOM)

    # The exchange

    def ask_somebody(self) -> None:
        """Ask a peer for what is missing here."""
        if self.up:
            self._send(self.world.rng.choice(self.peers), SyncRequest(seen=seen(self.bank), limit=BATCH))

    def _send(self, to: str, frame: Any) -> None:
        envelope = Envelope(subject=f"to.{to}", frame=frame, sender=self.name)
        self.world.network.send(self.name, to, encode(envelope))

    def receive(self, data: bytes) -> None:
        """A message; whoever is down hears nothing."""
        if not self.up:
            return
        envelope = decode(data)
        match envelope.frame:
            case SyncRequest() as request:
                self._send(envelope.sender, self._lacking(request.seen))
            case SyncEvents() as told:
                self._take(told.events)
                if not self.up:
                    return
                back = self._lacking(told.seen)
                if back.events:
                    self._send(envelope.sender, GossipEvents(hive=self.name, events=back.events))
            case GossipEvents() as told:
                self._take(told.events)
            case _:
                raise AssertionError(f"nobody sends {envelope.frame}")

    def _lacking(self, theirs: Versions) -> SyncEvents:
        batch = tuple(without_position(event) for event in islice(lacking(self.bank, theirs), BATCH))
        return SyncEvents(events=batch, seen=seen(self.bank))

    def _take(self, events: tuple[Event, ...]) -> None:
        if not events:
            return
        moved = self.call(lambda bank: take(bank, events))
        if moved is None:
            return
        if moved.held:
            self.world.sometimes("an event from a clock that was ahead was held back")
        if not moved.new:
            self.world.sometimes("events came that were known")
        if self.bank.scattered():
            self.world.sometimes("events came before those they follow")

    # What it shows

    def state(self) -> dict[str, Any]:
        """Everything a reader could see, without uses, which are counted by their own rules."""
        bank = self.bank
        shown: dict[str, Any] = {memory.id: _plain(memory) for memory in all_memories(bank)}
        shown["links"] = sorted(
            bank.engine.store.all_links(), key=lambda link: (link.src, link.dst, link.rel)
        )
        shown["settings"] = bank.settings()
        return shown


def all_memories(bank: Bank) -> list[Memory]:
    """Every memory of a bank, in whatever status."""
    return list(bank.find(status=None, limit=10_000))


def _plain(memory: Memory) -> Memory:
    return msgspec.structs.replace(memory, uses=0, last_used_at=None)
