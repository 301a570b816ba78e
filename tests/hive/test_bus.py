"""What every bus promises, tried on the in-process one, with and without bytes in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import NotFoundError, SkepError, SyncError
from skep.hive.bus.bus import (
    BackPressureError,
    BadSubjectError,
    Bus,
    ConsumerConfig,
    StreamConfig,
    matches,
    safe_part,
)
from skep.hive.bus.in_process import LocalBus
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
    made = LocalBus("tester", now=clock, wire=request.param, patience=0.005)
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

    assert answer.frame == Failed(member="bad", error="RuntimeError: disk on fire")
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


def test_a_stream_replays_from_any_position(bus: LocalBus) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed.>",)))
    positions = [bus.publish("feed.a", learn(n)) for n in range(5)]

    assert positions == [1, 2, 3, 4, 5]
    assert texts(bus.consumer("feed", "all").fetch()) == [f"fact {n}" for n in range(5)]
    late = bus.consumer("feed", "late", ConsumerConfig(start=4))
    assert texts(late.fetch()) == ["fact 3", "fact 4"]
    fresh = bus.consumer("feed", "fresh", ConsumerConfig(start="new"))
    assert texts(fresh.fetch()) == []


def test_a_consumer_may_take_only_part_of_a_stream(bus: LocalBus) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed.>",)))
    for n in range(4):
        bus.publish(f"feed.{'ab'[n % 2]}", learn(n))

    consumer = bus.consumer("feed", "only-b", ConsumerConfig(subject="feed.b"))
    assert texts(consumer.fetch()) == ["fact 1", "fact 3"]


def test_a_message_with_a_known_id_is_stored_once(bus: LocalBus) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed",)))

    assert bus.publish("feed", learn(1), id="x") == 1
    assert bus.publish("feed", learn(1), id="x") == 1
    assert len(bus.consumer("feed", "c").fetch()) == 1


def test_what_is_not_acknowledged_in_time_is_delivered_again(bus: LocalBus, clock: Clock) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed",)))
    consumer = bus.consumer("feed", "c", ConsumerConfig(ack_wait=10))
    for n in range(2):
        bus.publish("feed", learn(n))
    first = consumer.fetch()
    first[0].ack()

    assert consumer.fetch() == []
    clock.now += 11
    again = consumer.fetch()
    assert texts(again) == ["fact 1"]
    assert [d.attempt for d in again] == [2]
    again[0].ack()
    assert consumer.behind == 0


def test_a_message_nobody_can_handle_is_set_aside(bus: LocalBus, clock: Clock) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed",)))
    consumer = bus.consumer("feed", "c", ConsumerConfig(max_deliver=2))
    bus.publish("feed", learn(1))
    bus.publish("feed", learn(2))
    poison, useless = consumer.fetch()
    useless.reject()
    poison.retry()
    (poison,) = consumer.fetch()
    poison.retry()

    assert consumer.fetch() == []
    assert [e.frame for e in consumer.dead] == [learn(2), learn(1)]
    assert consumer.behind == 0


def test_a_consumer_gets_no_more_than_it_may_hold(bus: LocalBus) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed",)))
    consumer = bus.consumer("feed", "c", ConsumerConfig(max_in_flight=3))
    for n in range(5):
        bus.publish("feed", learn(n))
    held = consumer.fetch()

    assert len(held) == 3
    assert consumer.fetch() == []
    held[0].ack()
    assert texts(consumer.fetch()) == ["fact 3"]


def test_a_full_stream_refuses_until_its_consumers_have_caught_up(bus: LocalBus) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed",), max_messages=2))
    consumer = bus.consumer("feed", "c")
    bus.publish("feed", learn(0))
    bus.publish("feed", learn(1))
    with pytest.raises(BackPressureError, match="feed"):
        bus.publish("feed", learn(2))
    consumer.fetch()[0].ack()

    assert bus.publish("feed", learn(2)) == 3


def test_a_stream_may_drop_its_oldest_instead(bus: LocalBus) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed",), max_messages=2, when_full="drop_oldest"))
    for n in range(4):
        bus.publish("feed", learn(n))

    assert texts(bus.consumer("feed", "c").fetch()) == ["fact 2", "fact 3"]


def test_a_waiting_consumer_is_woken_by_a_message(bus: LocalBus) -> None:
    bus.add_stream("feed", StreamConfig(subjects=("feed",)))
    consumer = bus.consumer("feed", "c")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(texts(consumer.fetch(wait=20))))
    reader.start()
    bus.publish("feed", learn(7))
    reader.join(20)

    assert got == ["fact 7"]


def test_an_unknown_stream_is_named(bus: LocalBus) -> None:
    with pytest.raises(NotFoundError, match="no stream 'nope'"):
        bus.consumer("nope", "c")
    assert issubclass(BackPressureError, SkepError)


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
