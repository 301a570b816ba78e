"""One set of tests for every kind of hub: random histories by several writers, with faults, against a plain model.

A kind of hub runs them with `check(make, history)`, where `make()` opens one more handle of one and the same empty hub:

    @given(histories())
    def test_it_keeps_the_promises_of_a_hub(history):
        with new_server() as server:
            check(lambda: MyHub.open(server.url), history)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st

from skep.errors import HubAwayError
from skep.hub.hub import START, Hub, dots
from skep.model import Event
from skep.replication.version_vectors import Versions

ACTORS = ("ana", "bob", "eve-with-a-long-name")
TEXT = "secret of {}"
Step = tuple[Any, ...]


def event(actor: str, counter: int, text: str | None = None) -> Event:
    """A memory, as an agent would write it."""
    body = {"text": text or f'{TEXT.format(f"{actor}-{counter}")} — größer, 記憶, "quoted", line\nbreak'}
    return Event(
        actor=actor, counter=counter, hlc=(1_750_000_000_000 + counter) << 16, kind="remember", body=body
    )


def histories(steps: int = 20) -> st.SearchStrategy[list[Step]]:
    """Random histories: who appends how many, who reads how much, what is sent twice, erased, opened again."""
    who = st.integers(0, 2)
    return st.lists(
        st.one_of(
            st.tuples(st.just("append"), who, st.integers(1, 5)),
            st.tuples(st.just("append"), who, st.integers(1, 5)),
            st.tuples(st.just("out of order"), who, st.integers(2, 5)),
            st.tuples(st.just("again"), who, st.integers(0, 100)),
            st.tuples(st.just("read"), who, st.integers(1, 7)),
            st.tuples(st.just("read"), who, st.integers(1, 7)),
            st.tuples(st.just("erase"), who, st.integers(0, 100)),
            st.tuples(st.just("snapshot"), who, st.binary(max_size=2000)),
            st.tuples(st.just("reopen"), who),
            st.tuples(st.just("answer lost"), who, st.integers(1, 3)),
        ),
        max_size=steps,
    )


class Faulty:
    """A hub whose next append is stored, and whose answer is lost on the way."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.lose_answer = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)

    def append(self, events: Sequence[Event]) -> None:
        self._hub.append(events)
        if self.lose_answer:
            self.lose_answer = False
            raise HubAwayError("the answer was lost")


class History:
    """What was done to a hub, and what it must therefore hold."""

    def __init__(self, make: Callable[[], Hub]) -> None:
        self.make = make
        self.hubs = [make() for _ in ACTORS]
        self.stored: dict[str, Event] = {}
        self.counters = dict.fromkeys(ACTORS, 0)
        self.position = [START] * len(ACTORS)
        self.seen: list[dict[str, Event]] = [{} for _ in ACTORS]
        self.snapshot: tuple[bytes, str, Versions] | None = None

    def mint(self, actor: str, count: int) -> list[Event]:
        first = self.counters[actor] + 1
        self.counters[actor] += count
        return [event(actor, counter) for counter in range(first, first + count)]

    def step(self, action: str, who: int, detail: Any = None) -> None:
        hub, actor = self.hubs[who], ACTORS[who]
        match action:
            case "append":
                self.append(hub, self.mint(actor, detail))
            case "out of order":
                later = self.mint(actor, detail)
                self.append(hub, later[::-1])
            case "again":
                if self.stored:
                    self.append(hub, [list(self.stored.values())[detail % len(self.stored)]])
            case "answer lost":
                faulty = Faulty(hub)
                faulty.lose_answer = True
                events = self.mint(actor, detail)
                with contextlib.suppress(HubAwayError):
                    faulty.append(events)
                self.append(hub, events)  # what a caller does who knows nothing
            case "read":
                self.read(who, detail)
            case "erase":
                self.erase(hub, actor, detail)
            case "snapshot":
                self.put_snapshot(hub, detail)
            case "reopen":
                hub.close()
                self.hubs[who] = self.make()

    def append(self, hub: Hub, events: list[Event]) -> None:
        hub.append(events)
        self.stored |= {one.id: one for one in events}

    def read(self, who: int, limit: int) -> int:
        batch = self.hubs[who].read(self.position[who], limit)
        assert len(batch.events) <= limit
        for one in batch.events:
            assert one.seq == 0
            assert one.id in self.stored, "a hub delivers nothing that nobody wrote"
            if one.body.get("text") is not None:
                assert one == self.stored[one.id], (
                    "what was erased is gone; anything else is as it was written"
                )
        self.seen[who] |= {one.id: one for one in batch.events}
        self.position[who] = batch.position
        return len(batch.events)

    def read_to_the_end(self, who: int) -> None:
        for _ in range(10_000):
            if not self.read(who, 50):
                return
        raise AssertionError("reading comes to no end")

    def erase(self, hub: Hub, actor: str, pick: int) -> None:
        alive = [one for one in self.stored.values() if one.kind == "remember" and one.body]
        if not alive:
            return
        gone = alive[pick % len(alive)]
        bare = Event(actor=gone.actor, counter=gone.counter, hlc=gone.hlc, kind=gone.kind, body={})
        (forget,) = self.mint(actor, 1)
        forget = Event(
            actor=forget.actor,
            counter=forget.counter,
            hlc=forget.hlc,
            kind="forget",
            body={"memories": [gone.id]},
        )
        self.append(hub, [forget])
        hub.erase([forget, bare])
        self.stored[bare.id] = bare
        if self.snapshot is not None and (forget.actor, forget.counter) not in self.snapshot[2]:
            self.snapshot = None

    def put_snapshot(self, hub: Hub, content: bytes) -> None:
        position = START
        while (batch := hub.read(position, 100)).events:
            position = batch.position
        seen = hub.held()
        with TemporaryDirectory() as folder:
            source = Path(folder) / "snapshot"
            source.write_bytes(content)
            hub.put_snapshot(source, seen, position)
        self.snapshot = (content, position, seen)

    def compare(self) -> None:
        """Everything that was acknowledged is there, for everybody, exactly as it was last written."""
        everything = dots(self.stored.values())
        for who, hub in enumerate(self.hubs):
            self.read_to_the_end(who)
            assert set(self.seen[who]) == set(self.stored), "no event is skipped"
            assert hub.held() == everything
            fresh = self.from_the_start(hub)
            assert fresh == self.stored, "a new reader gets every event in its last form"
            status = hub.status()
            assert status.events >= len(self.stored)
            assert (status.snapshot is None) == (self.snapshot is None)
            with TemporaryDirectory() as folder:
                target = Path(folder) / "snapshot"
                position = hub.get_snapshot(target)
                if self.snapshot is None:
                    assert position is None
                else:
                    assert (target.read_bytes(), position) == self.snapshot[:2]
                    assert status.snapshot == self.snapshot[2]

    def from_the_start(self, hub: Hub) -> dict[str, Event]:
        found: dict[str, Event] = {}
        position = START
        while (batch := hub.read(position, 7)).events:
            found |= {one.id: one for one in batch.events}
            position = batch.position
        return found

    def close(self) -> None:
        for hub in self.hubs:
            hub.close()
            hub.close()


def check(make: Callable[[], Hub], history: list[Step]) -> None:
    """A hub keeps its promises in a random history. `make` opens one more handle of one empty hub."""
    run = History(make)
    try:
        assert {hub.claim("bank-1") for hub in run.hubs} == {"bank-1"}
        assert run.hubs[0].claim("another") == "bank-1", "a log belongs to the first who claims it"
        assert len({hub.status().log for hub in run.hubs}) == 1
        for step in history:
            run.step(*step)
        run.compare()
    finally:
        run.close()


def check_writers_at_once(make: Callable[[], Hub], *, writers: int = 4, batches: int = 15) -> None:
    """Readers that read while several write skip nothing, although appends overlap."""
    done = threading.Event()
    wrong: list[BaseException] = []
    stored: list[Event] = []

    def write(number: int) -> None:
        hub = make()
        try:
            for batch in range(batches):
                events = [event(f"writer{number}", 3 * batch + one) for one in (1, 2, 3)]
                hub.append(events)
                stored.extend(events)
        except Exception as error:  # noqa: BLE001 - told by the test
            wrong.append(error)
        finally:
            hub.close()

    found: dict[str, Event] = {}

    def read() -> None:
        hub = make()
        position = START
        try:
            while True:
                last = done.is_set()
                batch = hub.read(position, 5)
                position = batch.position
                found.update({one.id: one for one in batch.events})
                if last and not batch.events:
                    return
                if not batch.events:
                    hub.wait(position, 0.2)
        except Exception as error:  # noqa: BLE001 - told by the test
            wrong.append(error)
        finally:
            hub.close()

    reader = threading.Thread(target=read)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in (reader, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert wrong == []
    assert len(stored) == 3 * writers * batches
    assert set(found) == {one.id for one in stored}


def check_waiting(make: Callable[[], Hub]) -> None:
    """Who waits is woken by an append, and goes away with False when nothing comes."""
    reader, writer = make(), make()
    try:
        reader.append([event("ana", 1)])
        position = START
        while (batch := reader.read(position, 10)).events:
            position = batch.position
        assert reader.wait(position, 0.05) is False
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(reader.wait(position, 30.0)))
        thread.start()
        writer.append([event("bob", 1)])
        thread.join(25.0)
        assert woken == [True]
        assert [one.id for one in reader.read(position, 10).events] == ["bob-1"]
        assert reader.wait(START, 5.0) is True, "who is behind need not wait"
    finally:
        reader.close()
        writer.close()


def check_foreign_position(make: Callable[[], Hub]) -> None:
    """A position of another log, or none at all, begins at the start: too much, never too little."""
    hub = make()
    try:
        hub.append([event("ana", 1)])
        for foreign in (START, "nonsense", '["another log", {}]', "999999999999"):
            assert [one.id for one in hub.read(foreign, 10).events] == ["ana-1"]
    finally:
        hub.close()
