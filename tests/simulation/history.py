"""One history: a few replicas live through faults, then the world heals, and every promise is checked.

In the first part anything may fail and only safety is asked for: what was acknowledged is kept, what was forgotten does
not come back, and whoever has seen the same shows the same. In the second part nothing fails any more, and everybody
must come to agree, soon.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from skep.bank.bank import Bank
from skep.model import Event
from skep.replication.exchange import seen, take
from skep.replication.version_vectors import Versions

from .replicas import EMBEDDER, Replica, all_memories
from .world import World

DAY = 86_400.0
SKEWS = (0.0, 0.0, 5.0, -40.0, 3000.0, -2 * DAY, 3 * DAY)
FAULTY_SECONDS = 600.0
CALM_SECONDS = 120.0
SOMETIMES = (
    *("a message was lost", "a message came twice", "a partition swallowed a message"),
    *("killed between statements", "killed before a commit", "killed in the middle of a commit"),
    *("killed after a commit", "a killed write was kept", "a killed write was not kept", "a disk was full"),
    *("a disk was lost", "an event from a clock that was ahead was held back", "events came that were known"),
    *("events came before those they follow", "changed what somebody else had forgotten"),
    *(
        "forgot across a partition",
        "retracted what somebody else revised",
        "a log was folded in another order",
    ),
    *("a replica was away", "two had seen the same among faults", "a hub was away", "a hub lost its log"),
    *("an append stopped half way", "an answer of a hub was lost", "a hub lost its newest events"),
)
"""What a set of seeds must have met; a simulation that never meets it shows nothing about it."""


class History:
    """The replicas of one world, what they were told, and what they owe."""

    kind: type[Replica] = Replica

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        rng = world.rng
        names = [f"r{n}" for n in range(rng.choice((2, 3, 3, 4)))]
        self.replicas = {name: self.kind(world, name, folder, names) for name in names}
        self.memories: list[str] = []
        self.marks: dict[str, list[str]] = {}
        """Per memory, words that only its texts hold."""
        self.forgotten: dict[str, tuple[str, int]] = {}
        """Memories that a replica was told to forget and said that it did, each with the event."""
        self.lost = Versions()
        """Events that were on a lost disk and nowhere else."""
        self._word = 0
        world.network.deliver = lambda name, data: self.replicas[name].receive(data)
        self._danger = rng.choice((0.0, 0.02, 0.1))

    # Users

    def _text(self, memory_id: str = "") -> str:
        self._word += 1
        mark = f"zq{self.world.seed}x{self._word}e"
        self._last_mark = mark
        if memory_id:
            self.marks.setdefault(memory_id, []).append(mark)
        return f"Fact {self.world.rng.randrange(30)} is {mark}."

    def use(self, replica: Replica) -> None:
        """One thing that a user does at one replica."""
        if not replica.up:
            return
        rng = self.world.rng
        if not self.memories or rng.random() < 0.35:
            self._remember(replica)
            return
        target, other = rng.choice(self.memories), rng.choice(self.memories)
        verb = rng.choice(tuple(self._verbs()))
        self.world.tell(f"{replica.name} {verb} {target}")
        action = self._verbs()[verb]
        if verb == "revise":
            text = self._text(target)
            self._note_concurrent(replica, target)
            replica.write(lambda bank: bank.revise(target, text=text))
        elif verb == "forget":
            self._forget(replica, target)
        elif verb == "undo":
            self._undo(replica)
        else:
            done = replica.write(lambda bank: action(bank, target, other))
            if done and verb == "retract" and len(self.marks[target]) > 1:
                self.world.sometimes("retracted what somebody else revised")

    @staticmethod
    def _verbs() -> dict[str, Callable[[Bank, str, str], object]]:
        return {
            "revise": lambda bank, a, b: None,
            "forget": lambda bank, a, b: None,
            "undo": lambda bank, a, b: None,
            "retract": lambda bank, a, b: bank.retract(a),
            "restore": lambda bank, a, b: bank.restore(a),
            "confirm": lambda bank, a, b: bank.confirm(a, by=f"reader of {b}"),
            "dispute": lambda bank, a, b: bank.dispute(a, by=b),
            "expire": lambda bank, a, b: bank.mark(a, "expired"),
            "support": lambda bank, a, b: bank.support(a, [b]),
            "supersede": lambda bank, a, b: bank.supersede(a, b),
            "merge": lambda bank, a, b: bank.merge(a, b),
            "link": lambda bank, a, b: bank.link(a, b, "derived_from"),
            "unlink": lambda bank, a, b: bank.unlink(a, b),
            "set": lambda bank, a, b: bank.set_setting("chosen", a),
            "learn": lambda bank, a, b: bank.learn("a task", True, used=[a], lesson="Go slowly."),
        }

    def _remember(self, replica: Replica) -> None:
        text, mark = self._text(), self._last_mark
        before = replica.name if not replica.up else seen(replica.bank).count()
        events = replica.write(lambda bank: bank.remember(text, on_conflict="ignore"))
        made = next((event.id for event in events if event.kind == "remember"), None)
        if made is None:  # killed: the write may be there all the same
            made = self._found(replica, mark)
            kept = made is not None
            self.world.sometimes("a killed write was kept" if kept else "a killed write was not kept")
        self.world.tell(f"{replica.name} remembers {made} after {before}")
        if made is not None:
            self.memories.append(made)
            self.marks[made] = [mark]

    def _found(self, replica: Replica, mark: str) -> str | None:
        restarted = not replica.up
        if restarted:
            replica.open()
        found = next((memory.id for memory in all_memories(replica.bank) if mark in memory.text), None)
        if restarted:
            replica.close()
        return found

    def _note_concurrent(self, replica: Replica, target: str) -> None:
        if target in self.forgotten and replica.bank.engine.get(target) is not None:
            self.world.sometimes("changed what somebody else had forgotten")

    def _forget(self, replica: Replica, target: str) -> None:
        events = replica.write(lambda bank: bank.forget(target))
        forget = next((event for event in events if event.kind == "forget"), None)
        if forget is not None:
            self.forgotten[target] = (forget.actor, forget.counter)
            if self.world.network.cut:
                self.world.sometimes("forgot across a partition")

    def _undo(self, replica: Replica) -> None:
        events = [event for event in replica.bank.events() if event.kind not in ("forget", "undo")]
        if events:
            event = self.world.rng.choice(events)
            replica.write(lambda bank: bank.undo(event.id))

    # Faults

    def _partition(self) -> None:
        rng, network = self.world.rng, self.world.network
        names = list(self.replicas)
        left = {name for name in names if rng.random() < 0.5}
        self.world.tell(f"partition: {sorted(left)} apart")
        network.part(left, set(names) - left)
        self.world.after(rng.expovariate(1 / 90), network.cut.clear)

    def _away(self) -> None:
        replica = self.world.rng.choice(list(self.replicas.values()))
        if replica.up:
            self.world.tell(f"{replica.name} is away")
            self.world.sometimes("a replica was away")
            replica.close()

    def _back(self) -> None:
        for replica in self.replicas.values():
            if not replica.up:
                replica.open()

    def _set_clock(self) -> None:
        replica = self.world.rng.choice(list(self.replicas.values()))
        replica.skew = self.world.rng.choice(SKEWS)
        self.world.tell(f"{replica.name} is {replica.skew:g} s ahead")

    def _fill_disk(self) -> None:
        replica = self.world.rng.choice(list(self.replicas.values()))
        if replica.up:
            replica.fill_disk(full=True)
            self.world.after(60.0, lambda: replica.up and replica.fill_disk(full=False))

    def _lose_disk(self) -> None:
        """A machine burns; what nobody else has yet is gone, and nobody had promised otherwise."""
        replica = self.world.rng.choice(list(self.replicas.values()))
        if not replica.up:
            return
        self.world.tell(f"{replica.name} loses its disk")
        self.world.sometimes("a disk was lost")
        gone = seen(replica.bank)
        replica.close()
        replica.disk.lose()
        replica.acknowledged = Versions()
        others = self._elsewhere()
        for other in self.replicas.values():
            if other is not replica:
                others = others.merged(self._seen_by(other))
        self.lost = self.lost.merged(gone.minus(others))
        replica.open()

    def _elsewhere(self) -> Versions:
        """The events that are safe in some other place than a replica."""
        return Versions()

    @staticmethod
    def _seen_by(replica: Replica) -> Versions:
        """The events of a replica, also of one that is away."""
        away = not replica.up
        if away:
            replica.open()
        found = seen(replica.bank)
        if away:
            replica.close()
        return found

    # Safety

    def check(self) -> None:
        """Whoever has seen the same shows the same; whoever knows that something was forgotten does not show it."""
        up = [replica for replica in self.replicas.values() if replica.up]
        for replica in up:
            erased = {name for event in _forgets(replica.bank) for name in event.body["memories"]}
            back = erased & {memory.id for memory in all_memories(replica.bank)}
            assert not back, f"{replica.name} shows {back} again, which was forgotten"
        for index, a in enumerate(up):
            for b in up[index + 1 :]:
                alike = seen(a.bank) == seen(b.bank) and _log(a.bank) == _log(b.bank)
                if alike:  # one may know of a `forget` that waits for its time, and have erased copies
                    self.world.sometimes("two had seen the same among faults")
                    _same(a, b)

    # The two parts

    def live(self) -> None:
        """The first part: faults of every kind."""
        world, rng = self.world, self.world.rng
        for replica in self.replicas.values():
            replica.danger = self._danger
            replica.skew = rng.choice(SKEWS) if rng.random() < 0.3 else 0.0
            world.every(rng.choice((10.0, 25.0, 60.0)), lambda replica=replica: self.use(replica))
            world.every(rng.choice((8.0, 30.0)), replica.ask_somebody)
        world.every(15.0, self._back)
        world.every(60.0, self.check)
        for fault, mean in (
            *((self._partition, 120.0), (self._away, 100.0), (self._set_clock, 200.0)),
            *((self._fill_disk, 300.0), (self._lose_disk, 900.0)),
        ):
            if rng.random() < 0.6:
                world.every(mean, fault)
        world.run(FAULTY_SECONDS)

    def heal(self) -> None:
        """The second part: nothing fails any more, clocks are right, and held events' time has come."""
        world = self.world
        world.stop()
        world.network.heal()
        world.time += 30 * DAY
        for replica in self.replicas.values():
            replica.danger = replica.skew = 0.0
            if not replica.up:
                replica.open()
            replica.fill_disk(full=False)
            world.every(2.0, replica.ask_somebody)
        world.run(CALM_SECONDS)

    def judge(self) -> None:
        """Everybody agrees, nothing acknowledged is lost, nothing forgotten is left."""
        everybody = list(self.replicas.values())
        first = everybody[0]
        union = Versions()
        for replica in everybody:
            union = union.merged(seen(replica.bank))
        for replica in everybody:
            behind = union.minus(seen(replica.bank))
            assert not behind, f"{replica.name} still lacks {behind.ranges}"
            owed = replica.acknowledged.minus(seen(first.bank))
            assert not owed, f"{owed.ranges}, acknowledged by {replica.name}, is nowhere"
        for replica in everybody[1:]:
            _same(first, replica)
        self._check_forgotten(first)
        self._check_fold(first)
        for replica in everybody:
            self._check_recall(replica)
            problems = [found for found in replica.bank.doctor() if found.level == "error"]
            assert not problems, f"{replica.name}: {problems}"
            replica.close()
            self._check_bytes(replica)

    def _check_forgotten(self, replica: Replica) -> None:
        """Whatever a `forget` was acknowledged for is gone, unless it burnt before anybody else knew of it."""
        for memory_id, dot in self.forgotten.items():
            if dot in self.lost:
                continue
            assert dot in seen(replica.bank), f"the forget of {memory_id} is nowhere"
            assert replica.bank.engine.get(memory_id) is None, f"{memory_id} was forgotten and is back"

    def _check_fold(self, replica: Replica) -> None:
        """The same events in another order, without the text of what was forgotten, give the same state."""
        events: list[Event] = list(replica.bank.events())
        Random(self.world.seed).shuffle(events)
        with Bank.open(":memory:", embedder=EMBEDDER, now=self.world_time) as bank:
            for start in range(0, len(events), 7):
                take(bank, events[start : start + 7])
            assert seen(bank) == seen(replica.bank)
            again = Replica.state(_Shown(bank))  # type: ignore[arg-type]
        assert again == replica.state(), f"{replica.name}: another order of events gives another state"
        self.world.sometimes("a log was folded in another order")

    def world_time(self) -> float:
        """The true time."""
        return self.world.time

    def _check_recall(self, replica: Replica) -> None:
        """What is current is found by its own words, through whatever the index went through."""
        current = [
            memory
            for memory in all_memories(replica.bank)
            if memory.status == "active" and memory.confidence > 0.5
        ]
        for memory in current[:3]:
            mark = memory.text.rstrip(".").split()[-1]
            found = {hit.memory.id for hit in replica.bank.recall(mark, limit=5)}
            assert memory.id in found, f"{replica.name} does not find {memory.id} by {mark!r}"

    def _check_bytes(self, replica: Replica) -> None:
        """No file holds a word of what was forgotten."""
        data = b"".join(
            path.read_bytes()
            for path in sorted(replica.disk.path.parent.rglob(f"{replica.disk.path.name}*"))
            if path.is_file()
        )
        for memory_id, dot in self.forgotten.items():
            for mark in self.marks[memory_id] if dot not in self.lost else ():
                assert mark.encode() not in data, (
                    f"{replica.disk.path.name} still holds {mark} of {memory_id}"
                )


class _Shown:
    """A bank in the place of a replica, to compare what it shows."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank


def _forgets(bank: Bank) -> list[Event]:
    return [event for event in bank.events() if event.kind == "forget"]


def _log(bank: Bank) -> dict[str, Any]:
    """The events of a bank, as far as they still have their text."""
    return {event.id: event.body for event in bank.events()}


def _same(a: Replica, b: Replica) -> None:
    left, right = a.state(), b.state()
    differing = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
    assert not differing, (
        f"{a.name} and {b.name} have seen the same and differ in {differing[:3]}:\n"
        f"{left.get(differing[0])}\n{right.get(differing[0])}"
    )


def lived(seed: int) -> World:
    """One history from its seed; an AssertionError says which promise was broken. Every fourth is around a hub."""
    from .hub_history import HubHistory

    world = World(seed)
    with world.folder() as folder:
        one = (HubHistory if seed % 4 == 3 else History)(world, folder)
        try:
            one.live()
            one.check()
            one.heal()
            one.judge()
        finally:
            world.stop()
            for replica in one.replicas.values():
                if replica.up:
                    replica.close()
    return world
