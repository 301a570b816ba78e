"""Members that hang, raise, come late or talk nonsense cost a deadline, never an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from skep.hive.bus.member_bus import BusInbox
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.hive.hive_sources import fault_of
from skep.hive.layouts import all_missing
from skep.hive.member_calls import SUSPECT_AFTER, Health
from skep.hive.messages import (
    ROW,
    Ask,
    Envelope,
    Frame,
    QueryResponse,
    ShardQuery,
    ShardResponse,
    Slice,
)

from .conftest import AGENTS, MakeHive

FACTS = [f"Server number {n} stands in rack {n}." for n in range(60)]
POLICY = HivePolicy(replication=3, deadline=30.0, hedge_after=0.5)
"""Long enough that nobody is taken for silent because the machine is busy."""


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Set at the end, so that hanging handlers let go."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hive(make_hive: MakeHive) -> Hive:
    """A sharded hive that knows sixty facts."""
    made = make_hive("sharded", policy=POLICY)
    given: dict[str, list[str]] = {}
    for number, fact in enumerate(FACTS):
        given.setdefault(AGENTS[number % 6], []).append(fact)
    for name, facts in given.items():
        made.agent(name).remember_many(facts)
    return made


def sabotage(hive: Hive, name: str, handler: Callable[[Envelope], Frame | None]) -> None:
    """Let a member answer questions in another way; everything else stays as it is."""
    member = hive.members[name]
    member.stop()
    original = member._handle

    def handle(envelope: Envelope) -> Frame | None:
        return handler(envelope) if isinstance(envelope.frame, ShardQuery) else original(envelope)

    member.bus.subscribe(hive.subjects.ask, handle)
    member.bus.subscribe(hive.subjects.to(name), handle)


def hanging(release: threading.Event) -> Callable[[Envelope], Frame | None]:
    """A handler that answers nothing until the test is over."""

    def hang(envelope: Envelope) -> Frame | None:
        release.wait(60)
        return None

    return hang


def found(hive: Hive, asker: str = "ana") -> tuple[list[str], Any]:
    answer = hive.agent(asker).recall("server rack", limit=60)
    return sorted(hit.memory.text for hit in answer), answer


def test_a_whole_hive_says_that_it_is_whole(hive: Hive) -> None:
    texts, answer = found(hive)

    assert texts == sorted(FACTS)
    assert (answer.completeness, answer.asked, answer.answered, answer.missing) == (1.0, 6, 6, ())


def test_a_member_that_raises_is_answered_for_by_the_others(hive: Hive) -> None:
    def broken(envelope: Envelope) -> Frame | None:
        raise RuntimeError("disk on fire")

    sabotage(hive, "bob", broken)
    texts, answer = found(hive)

    assert texts == sorted(FACTS)
    assert answer.missing == ("bob",)
    assert answer.faults == {"bob": "RuntimeError: disk on fire"}
    assert answer.completeness == 1.0


def test_a_member_that_hangs_is_answered_for_by_the_others(hive: Hive, release: threading.Event) -> None:
    sabotage(hive, "bob", hanging(release))
    texts, answer = found(hive)

    assert texts == sorted(FACTS)
    assert answer.missing == ("bob",)
    assert answer.faults == {"bob": "no answer in time"}


def test_an_answer_that_comes_late_is_not_waited_for(hive: Hive, release: threading.Event) -> None:
    member = hive.members["cy"]

    def late(envelope: Envelope) -> Frame | None:
        release.wait(60)
        assert isinstance(envelope.frame, ShardQuery)
        return ShardResponse(slice=member.shard.answer(envelope.frame.ask))

    sabotage(hive, "cy", late)
    texts, answer = found(hive)
    release.set()

    assert texts == sorted(FACTS)
    assert answer.missing == ("cy",)


def rows_with(column: str, value: float) -> Callable[[Slice], Slice]:
    """A lie about one column of every candidate."""

    def lie(part: Slice) -> Slice:
        rows = np.frombuffer(part.rows, ROW).copy()
        rows[column] = value
        return msgspec.structs.replace(part, rows=rows.tobytes())

    return lie


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (lambda part: msgspec.structs.replace(part, rows=b""), "columns have the wrong size"),
        (lambda part: msgspec.structs.replace(part, weights=b"\x00"), "columns have the wrong size"),
        (lambda part: msgspec.structs.replace(part, texts=("x",)), "texts have the wrong size"),
        (
            lambda part: msgspec.structs.replace(part, weights=b"\x7f" * len(part.weights)),
            "weights are out of range",
        ),
        (lambda part: msgspec.structs.replace(part, held=-1.0), "contradict themselves"),
        (
            lambda part: msgspec.structs.replace(part, having=(1e9,) * len(part.having)),
            "contradict themselves",
        ),
        (rows_with("cosine", 50), "cosine is out of range"),
        (rows_with("confidence", np.nan), "confidence is out of range"),
        (rows_with("created_at", np.inf), "created_at is out of range"),
    ],
)
def test_a_member_that_talks_nonsense_is_left_out(hive: Hive, lie: Any, expected: str) -> None:
    member = hive.members["dora"]

    def liar(envelope: Envelope) -> Frame | None:
        assert isinstance(envelope.frame, ShardQuery)
        return ShardResponse(slice=lie(member.shard.answer(envelope.frame.ask)))

    sabotage(hive, "dora", liar)
    texts, answer = found(hive)

    assert texts
    assert set(texts) <= set(FACTS)
    assert answer.missing == ("dora",)
    assert expected in answer.faults["dora"]


def test_a_member_that_answers_something_else_is_left_out(hive: Hive) -> None:
    sabotage(hive, "dora", lambda envelope: QueryResponse(agent="dora"))
    texts, answer = found(hive)

    assert texts == sorted(FACTS)
    assert set(answer.faults) == {"dora"}
    assert "QueryResponse" in answer.faults["dora"]


def test_when_too_many_are_missing_the_answer_says_what_share_was_heard(
    hive: Hive, release: threading.Event
) -> None:
    for name in ("cy", "dora", "eve", "fay"):
        sabotage(hive, name, hanging(release))
    texts, answer = found(hive)

    assert 0 < len(texts) < 60
    assert answer.completeness == pytest.approx(1 - all_missing(4, 6, 3))
    assert "4 of 6 members did not answer" in answer.reason


def test_a_hive_in_which_nobody_answers_says_so(hive: Hive, release: threading.Event) -> None:
    for name in AGENTS:
        sabotage(hive, name, hanging(release))
    hive.policy = msgspec.structs.replace(POLICY, deadline=0.2, hedge_after=0.05)
    texts, answer = found(hive)

    assert texts == []
    assert answer.completeness == 0.0
    assert answer.answered == 0


def test_a_member_that_keeps_silent_is_no_longer_waited_for_until_it_speaks_again(
    hive: Hive, release: threading.Event
) -> None:
    silent = threading.Event()
    silent.set()
    member = hive.members["bob"]

    def moody(envelope: Envelope) -> Frame | None:
        if silent.is_set():
            return None
        assert isinstance(envelope.frame, ShardQuery)
        return ShardResponse(slice=member.shard.answer(envelope.frame.ask))

    sabotage(hive, "bob", moody)
    for _ in range(SUSPECT_AFTER):
        assert found(hive)[0] == sorted(FACTS)
    assert hive.health.suspects() == {"bob"}
    silent.clear()
    for _ in range(3):
        found(hive)
    assert hive.health.suspects() == frozenset()


def test_health_forgives_an_answer() -> None:
    health = Health()
    health.note([], ["a"])
    health.note(["a"], [])
    health.note([], ["a"])

    assert health.suspects() == frozenset()


def test_what_could_not_be_placed_is_still_found_and_repaired_later(make_hive: MakeHive) -> None:
    hive = make_hive("sharded", policy=msgspec.structs.replace(POLICY, deadline=0.1, hedge_after=0.05))
    stored = hive.agent("ana").remember("Cats like to sleep in the warm sun.")
    owners = [name for name in AGENTS if name != "ana"]
    for name in owners:
        hive.members[name].stop()
    kept = hive.agent("ana").remember("Server number one stands in rack one.", on_conflict="ignore")
    for name in owners:
        hive.members[name].start()

    assert kept.copies == 0
    assert stored.copies > 0
    assert [h.memory.id for h in hive.agent("fay").recall("server rack", limit=1)] == [kept.memory.id]
    assert hive.repair().events > 0
    wanted = set(hive.layout.ring.owners(kept.memory.id))  # type: ignore[attr-defined]
    assert wanted <= {name for name, member in hive.members.items() if member.has(kept.memory.id)}
    assert hive.repair().events == 0


def test_a_group_that_is_down_costs_only_its_own_memories(
    make_hive: MakeHive, release: threading.Event
) -> None:
    hive = make_hive("federated", policy=msgspec.structs.replace(POLICY, deadline=3.0, hedge_after=0.5))
    hive.agent("ana").remember("The server of infra stands in rack one.", on_conflict="ignore")
    hive.agent("cy").remember("The server of people stands in rack two.", on_conflict="ignore")
    hive.agent("cy").remember("The key of the server room hangs at the desk.", confidence=0.95)
    sabotage(hive, "people", hanging(release))
    answer = hive.agent("ana").recall("server")

    assert {hit.memory.text for hit in answer} == {
        "The server of infra stands in rack one.",
        "The key of the server room hangs at the desk.",
    }
    assert answer.missing == ("people",)  # type: ignore[attr-defined]
    assert answer.completeness == 0.75  # type: ignore[attr-defined]


def test_queries_do_not_storm(hive: Hive) -> None:
    asked: list[str] = []
    for name, member in hive.members.items():
        original = member.shard.answer

        def count(ask: Ask, name: str = name, original: Any = original) -> Slice:
            asked.append(name)
            return original(ask)

        member.shard.answer = count  # type: ignore[method-assign]
    found(hive)

    assert len(asked) <= 2 * len(AGENTS)


def test_strangers_on_the_bus_cannot_answer_for_members(hive: Hive) -> None:
    def stranger(envelope: Envelope) -> Frame | None:
        if isinstance(envelope.frame, ShardQuery):
            return ShardResponse(slice=Slice(held=10**6))
        return None

    hive.bus.as_member("mallory").subscribe(hive.subjects.ask, stranger)
    texts, answer = found(hive)

    assert texts == sorted(FACTS)
    assert answer.answered == 6


def test_an_empty_answer_can_be_used() -> None:
    assert fault_of(Slice(), Ask(terms=("a",))) is None


def test_a_member_that_keeps_silent_is_asked_but_not_waited_for(
    hive: Hive, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[int] = []
    original = BusInbox.take

    def take(self: BusInbox, count: int, *, wait: float) -> list[Envelope]:
        expected.append(count)
        return original(self, count, wait=wait)

    sabotage(hive, "cy", hanging(release))
    for _ in range(SUSPECT_AFTER):
        found(hive)
    monkeypatch.setattr(BusInbox, "take", take)
    texts, answer = found(hive)

    assert expected[0] == len(AGENTS) - 1
    assert (texts, answer.missing) == (sorted(FACTS), ("cy",))
