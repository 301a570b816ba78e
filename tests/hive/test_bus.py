"""What every bus promises, tried on the in-process one, with and without bytes in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import SyncError
from skep.hive.bus.bus import ACK_SECONDS, DELIVERIES, BadSubjectError, Bus, matches, safe_part
from skep.hive.bus.in_process import Kept, LocalBus, LocalReader
from skep.hive.messages import (
    AgentOnline,
    AgentProgress,
    AgentReady,
    Envelope,
    Failed,
    FeedComplete,
    Frame,
    LearnContent,
    Query,
    QueryResponse,
    decode,
    encode,
    name_of,
)
from skep.hive.traces import current_trace, tracer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[False, True], ids=["objects", "bytes"])
def bus(request: pytest.FixtureRequest, clock: Clock) -> Iterator[LocalBus]:
    made = LocalBus("tester", now=clock, wire=request.param)
    yield made
    made.close()


def learn(number: int) -> LearnContent:
    return LearnContent(text=f"fact {number}")


def texts(deliveries: object) -> list[str]:
    return [d.envelope.frame.text for d in deliveries]  # type: ignore[attr-defined]


def test_the_local_bus_is_a_bus(bus: LocalBus) -> None:
    typed: Bus = bus
    assert typed.as_member("other") is not bus


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("hive.a", "hive.a", True),
        ("hive.a", "hive.b", False),
        ("hive.*", "hive.a", True),
        ("hive.*", "hive.a.b", False),
        ("hive.*", "hive", False),
        ("hive.>", "hive.a.b", True),
        ("hive.>", "hive", False),
        (">", "hive", True),
        ("*.x.*", "a.x.b", True),
    ],
)
def test_wildcards(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected


@given(st.text(max_size=20))
def test_any_name_becomes_one_part_of_a_subject(name: str) -> None:
    assert matches("a.*.b", f"a.{safe_part(name)}.b")


@pytest.mark.parametrize("subject", ["", "a..b", "a b", ".a", "a.", "a.*", "a.>"])
def test_bad_subjects_are_refused_before_anything_is_sent(bus: LocalBus, subject: str) -> None:
    with pytest.raises(BadSubjectError):
        bus.publish(subject, learn(1))


def test_each_handler_gets_its_messages_in_order(bus: LocalBus) -> None:
    got: list[str] = []

    def handler(envelope: Envelope) -> None:
        assert isinstance(envelope.frame, LearnContent)
        got.append(envelope.frame.text)

    bus.subscribe("feed.*", handler)
    for number in range(50):
        bus.publish("feed.a", learn(number))

    assert bus.settle()
    assert got == [f"fact {n}" for n in range(50)]


def test_a_closed_subscription_hears_nothing_more(bus: LocalBus) -> None:
    got: list[Envelope] = []
    subscription = bus.subscribe("feed", got.append)
    subscription.close()
    bus.publish("feed", learn(1))

    assert bus.settle()
    assert got == []


def test_one_question_collects_many_answers(bus: LocalBus) -> None:
    for name in ("a", "b", "c"):
        member = bus.as_member(name)
        member.subscribe("ask", lambda e, name=name: QueryResponse(agent=name))

    with bus.inbox() as inbox:
        reached = inbox.ask("ask", Query(query="?"))
        answers = inbox.take(reached, wait=5)

    assert reached == 3
    assert {e.sender for e in answers} == {"a", "b", "c"}


def test_a_hanging_handler_costs_its_own_answer_and_no_other(bus: LocalBus) -> None:
    release = threading.Event()

    def hang(envelope: Envelope) -> Frame | None:
        release.wait(30)
        return QueryResponse(agent="slow")

    bus.as_member("slow").subscribe("ask", hang)
    for name in ("a", "b", "c"):
        bus.as_member(name).subscribe("ask", lambda e, name=name: QueryResponse(agent=name))
    with bus.inbox() as inbox:
        inbox.ask("ask", Query(query="?"))
        in_time = inbox.take(3, wait=20)
        release.set()
        late = inbox.take(4, wait=20)

    assert sorted(e.sender for e in in_time) == ["a", "b", "c"]
    assert [e.sender for e in late] == ["slow"]


def test_handlers_hang_one_after_another_and_the_rest_still_answers(bus: LocalBus) -> None:
    release = threading.Event()
    for name in ("a", "b", "c", "d"):
        bus.as_member(name).subscribe("ask", lambda e, name=name: QueryResponse(agent=name))
    for round_ in range(4):
        with bus.inbox() as inbox:
            inbox.ask("ask", Query(query="?"))
            assert len(inbox.take(4, wait=20)) == 4

        def hang(envelope: Envelope) -> Frame | None:
            release.wait(30)
            return None

        bus.as_member(f"slow{round_}").subscribe("ask", hang)
    release.set()


def test_a_raising_handler_answers_with_its_error(bus: LocalBus) -> None:
    def broken(envelope: Envelope) -> Frame | None:
        raise RuntimeError("disk on fire")

    bus.as_member("bad").subscribe("ask", broken)
    with bus.inbox() as inbox:
        inbox.ask("ask", Query(query="?"))
        (answer,) = inbox.take(1, wait=5)

    assert answer.frame == Failed(error="RuntimeError: disk on fire")
    assert bus.failures == 1


def test_answers_after_the_inbox_is_closed_are_dropped(bus: LocalBus) -> None:
    release = threading.Event()

    def late(envelope: Envelope) -> Frame | None:
        release.wait(30)
        return QueryResponse(agent="late")

    bus.subscribe("ask", late)
    with bus.inbox() as inbox:
        inbox.ask("ask", Query(query="?"))
        assert inbox.take(1, wait=0.01) == []
    release.set()

    assert bus.settle()


def test_a_handler_that_lags_too_far_behind_drops_and_counts(bus: LocalBus) -> None:
    release, started = threading.Event(), threading.Event()

    def slow(envelope: Envelope) -> None:
        started.set()
        release.wait(30)

    subscription = bus.subscribe("feed", slow, capacity=2)
    bus.publish("feed", learn(0))
    assert started.wait(5)
    for number in range(1, 6):
        bus.publish("feed", learn(number))
    release.set()

    assert bus.settle()
    assert subscription.dropped == 3


FEED = "hive.one.feed.a"


def test_a_reader_begins_with_the_oldest_message_that_is_kept(bus: LocalBus) -> None:
    bus.follow("early")
    for n in range(5):
        bus.publish(FEED, learn(n))
    bus.publish("hive.one.ask", learn(9))

    assert texts(bus.follow("late").fetch()) == [f"fact {n}" for n in range(5)]
    assert texts(bus.follow("early").fetch(3)) == ["fact 0", "fact 1", "fact 2"]
    assert texts(bus.follow("early").fetch()) == ["fact 3", "fact 4"]


def test_a_reader_may_follow_only_a_part(bus: LocalBus) -> None:
    reader = bus.follow("only-b", "hive.*.feed.b")
    for n in range(4):
        bus.publish(f"hive.one.feed.{'ab'[n % 2]}", learn(n))

    assert texts(reader.fetch()) == ["fact 1", "fact 3"]


def test_a_message_with_a_known_id_is_kept_once(bus: LocalBus) -> None:
    reader = bus.follow("c")
    bus.publish(FEED, learn(1), id="x")
    bus.publish(FEED, learn(1), id="x")
    assert len(reader.fetch()) == 1


def test_what_is_not_acknowledged_in_time_is_delivered_again(bus: LocalBus, clock: Clock) -> None:
    reader = bus.follow("c")
    for n in range(2):
        bus.publish(FEED, learn(n))
    reader.fetch()[0].ack()

    assert reader.fetch() == []
    clock.now += ACK_SECONDS + 1
    (again,) = reader.fetch()
    assert texts([again]) == ["fact 1"]
    again.ack()
    assert reader.behind == 0


def test_a_message_nobody_can_handle_is_set_aside(bus: LocalBus) -> None:
    reader = bus.follow("c")
    bus.publish(FEED, learn(1))
    for _ in range(DELIVERIES):
        (poison,) = reader.fetch()
        poison.retry()

    assert reader.fetch() == []
    assert [e.frame for e in reader.dead] == [learn(1)]
    assert reader.behind == 0


def test_of_too_many_messages_the_oldest_go() -> None:
    kept = Kept(Clock(), most=2)
    for n in range(4):
        kept.append(Envelope(subject=FEED, frame=learn(n), id=str(n)))
    assert texts(LocalReader(kept, ">").fetch()) == ["fact 2", "fact 3"]


def test_the_trace_travels_with_the_message(bus: LocalBus) -> None:
    seen: list[str] = []
    bus.subscribe("feed", lambda e: seen.append(current_trace()))
    with tracer.span("test") as span:
        bus.publish("feed", learn(1))

    assert bus.settle()
    assert seen == [span.trace]


FRAMES: list[Frame] = [
    learn(1),
    FeedComplete(expected={"a": 3}),
    AgentOnline(agent="a", domains=("infra",)),
    AgentReady(agent="a", learnt=3),
    AgentProgress(agent="a", done=1, total=3),
]


@pytest.mark.parametrize("frame", FRAMES, ids=name_of)
def test_frames_survive_the_wire(frame: Frame) -> None:
    envelope = Envelope(subject="hive.a", frame=frame, sender="a", trace="t", path=("x", "y"))

    assert decode(encode(envelope)) == envelope


@given(st.binary(max_size=60))
def test_garbage_on_the_wire_is_one_named_error(data: bytes) -> None:
    with pytest.raises(SyncError):
        decode(data)


def test_a_frame_of_a_newer_version_says_so() -> None:
    newer = encode(Envelope(subject="a", frame=learn(1), version=99))

    with pytest.raises(SyncError, match="update skep"):
        decode(newer)
