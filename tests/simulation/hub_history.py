"""A history in which replicas never meet: each is kept in step with one hub, by the code that users run.

The hub keeps the promises of `Hub` and no more. It is away, stops half way, loses an answer, its newest events, or all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from skep.bank.bank import Bank
from skep.errors import HubAwayError
from skep.hub.hub import BATCH, Batch, HubStatus, decode, dots, encode, outlived
from skep.hub.replica import LocalReplica
from skep.model import Event
from skep.replication.exchange import seen
from skep.replication.version_vectors import Versions

from .history import History
from .replicas import Replica
from .world import World

ROUNDS = 6
"""Exchanges of everybody in the calm part."""


class SimulatedHub:
    """A hub in memory, seen by one replica at a time; `Store` is what all of them share."""

    def __init__(self, store: Store, reader: str) -> None:
        self._store = store
        self._reader = reader
        self.url = "simulated://hub"

    def _reach(self) -> None:
        self._store.reach(self._reader)

    def status(self) -> HubStatus:
        self._reach()
        store = self._store
        kept = None if store.snapshot is None else store.snapshot[1]
        return HubStatus(url=self.url, bank=store.bank, log=store.log, events=len(store.lines), snapshot=kept)

    def claim(self, bank: str) -> str:
        self._reach()
        self._store.bank = self._store.bank or bank
        return self._store.bank

    def append(self, events: Sequence[Event]) -> None:
        self._reach()
        self._store.append(events)

    def read(self, after: str, limit: int = BATCH) -> Batch:
        self._reach()
        store = self._store
        log, _, number = after.rpartition("/")
        place = int(number) if log == store.log and int(number) <= len(store.lines) else 0
        found = tuple(decode(line) for line in store.lines[place : place + min(limit, store.page)])
        return Batch(events=found, position=f"{store.log}/{place + len(found)}", log=store.log)

    def wait(self, after: str, timeout: float) -> bool:
        raise AssertionError("nobody waits in a simulated world")

    def held(self) -> Versions:
        self._reach()
        return self._store.held()

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        self._reach()
        self._store.snapshot = (source.read_bytes(), seen, position)

    def get_snapshot(self, target: Path) -> str | None:
        self._reach()
        if self._store.snapshot is None:
            return None
        target.write_bytes(self._store.snapshot[0])
        return self._store.snapshot[2]

    def erase(self, events: Sequence[Event]) -> None:
        self._reach()
        self._store.erase(events)

    def close(self) -> None:
        """Nothing is held open."""


class Store:
    """What a hub keeps, and what befalls it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.logs = 1
        self.lines: list[bytes] = []
        self.bank: str | None = None
        self.snapshot: tuple[bytes, Versions, str] | None = None
        self.page = world.rng.choice((3, 20, BATCH))
        self.danger = world.rng.choice((0.0, 0.05, 0.2))
        self.apart: set[str] = set()
        """Replicas that do not reach it."""

    @property
    def log(self) -> str:
        return f"log{self.logs}"

    def reach(self, reader: str) -> None:
        if reader in self.apart or self.world.rng.random() < self.danger:
            self.world.sometimes("a hub was away")
            raise HubAwayError("the hub does not answer")

    def append(self, events: Sequence[Event]) -> None:
        rng = self.world.rng
        lines = [encode(event) for event in events]
        if lines and rng.random() < self.danger:
            self.lines += lines[: rng.randrange(len(lines))]
            self.world.sometimes("an append stopped half way")
            raise HubAwayError("the hub stopped in the middle")
        self.lines += lines
        if rng.random() < self.danger:
            self.world.sometimes("an answer of a hub was lost")
            raise HubAwayError("the answer was lost")

    def erase(self, events: Sequence[Event]) -> None:
        instead = {event.id: encode(event) for event in events}
        self.lines = [instead.get(decode(line).id, line) for line in self.lines]
        if self.snapshot is not None and not outlived(self.snapshot[1], events):
            self.snapshot = None

    def held(self) -> Versions:
        return dots(decode(line) for line in self.lines)

    def lose_all(self) -> None:
        self.world.sometimes("a hub lost its log")
        self.lines.clear()
        self.logs += 1
        self.bank = self.snapshot = None

    def lose_newest(self) -> None:
        """A broker that had acknowledged and not yet written."""
        if self.lines:
            self.world.sometimes("a hub lost its newest events")
            del self.lines[-self.world.rng.randrange(1, len(self.lines) + 1) :]
            self.logs += (
                1  # a hub that does not notice this breaks promise 4; replicas look again all the same
            )


class HubReplica(Replica):
    """A replica that speaks to the hub alone."""

    store: Store

    def open(self) -> None:
        super().open()
        self.local = self._local(self.bank)

    def _local(self, bank: Bank) -> LocalReplica:
        def connect() -> Any:
            return SimulatedHub(self.store, self.name)

        return LocalReplica(bank, connect, url="simulated://hub", name=self.name, join=True)

    def ask_somebody(self) -> None:
        if not self.up:
            return
        step: Callable[[Bank], object] = self.world.rng.choice(
            (
                lambda _bank: self.local.sync(),
                lambda _bank: self.local.pull(),
                lambda _bank: self.local.push(),
            )
        )
        self.call(step)
        if self.up and self.bank.engine.log.held():
            self.world.sometimes("an event from a clock that was ahead was held back")


class HubHistory(History):
    """Replicas around one hub."""

    def __init__(self, world: World, folder: Path) -> None:
        store = self.store = Store(world)

        class Kind(HubReplica):
            pass

        Kind.store = store
        self.kind = Kind
        super().__init__(world, folder)

    def _partition(self) -> None:
        """Some replicas lose sight of the hub."""
        rng = self.world.rng
        self.store.apart |= {name for name in self.replicas if rng.random() < 0.5}
        self.world.network.cut.add(frozenset(self.store.apart))

        def heal() -> None:
            self.store.apart.clear()
            self.world.network.cut.clear()

        self.world.after(rng.expovariate(1 / 90), heal)

    def _lose_stream(self) -> None:
        """What only the hub had is gone; whoever wrote it has burnt before."""
        before = self.store.held()
        self.world.rng.choice((self.store.lose_all, self.store.lose_newest))()
        left = self.store.held()
        for replica in self.replicas.values():
            left = left.merged(self._seen_by(replica))
        self.lost = self.lost.merged(before.minus(left))

    def _elsewhere(self) -> Versions:
        return self.store.held()

    def live(self) -> None:
        if self.world.rng.random() < 0.6:
            self.world.every(200.0, self._lose_stream)
        super().live()

    def heal(self) -> None:
        self.store.danger = 0.0
        self.store.apart.clear()
        super().heal()
        for _ in range(ROUNDS):
            for replica in self.replicas.values():
                assert isinstance(replica, HubReplica)
                replica.local.sync()

    def judge(self) -> None:
        held = self.store.held()
        for replica in self.replicas.values():
            lacking = seen(replica.bank).minus(held)
            assert not lacking, f"the hub lacks {lacking.ranges} of {replica.name}"
        if any(dot in self.lost for dot in self.forgotten.values()):
            # A disk burnt and the hub lost its log: nobody knows of the `forget` any more, and the hub has the memory
            # without its text. A replica waits for the `forget`; others have the text.
            self.world.sometimes("a forget was lost twice")
            return
        everything = b"\n".join(self.store.lines)
        for memory_id, dot in self.forgotten.items():
            for mark in self.marks[memory_id] if dot not in self.lost else ():
                assert mark.encode() not in everything, f"the hub still holds {mark} of {memory_id}"
        super().judge()
