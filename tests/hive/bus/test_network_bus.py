"""What every bus between processes promises, with a real broker; each connection stands for a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from skep.hive.bus import network
from skep.hive.bus.bus import BadSubjectError, Bus
from skep.hive.bus.member_bus import MemberBus
from skep.hive.messages import Envelope, Failed, Frame, LearnContent, Query, QueryResponse
from skep.hive.traces import current_trace, tracer

Connect = Callable[..., MemberBus]
PATIENT = 20.0
NUMBERS = count()


@pytest.fixture
def topic() -> str:
    """A subject that no other test uses; they share one broker."""
    return f"topic{next(NUMBERS)}"


def learn(number: int) -> LearnContent:
    return LearnContent(text=f"fact {number}")


def until(done: Callable[[], Any]) -> Any:
    """Wait for something that another thread does."""
    end = time.monotonic() + PATIENT
    while not (found := done()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
    return found


def answering(bus: MemberBus, subject: str, name: str) -> None:
    bus.as_member(name).subscribe(subject, lambda envelope: QueryResponse(agent=name))


def asked(bus: MemberBus, subject: str, expected: int) -> list[str]:
    """Who answers a question, as soon as so many are there to be asked."""
    board: Any = bus._board
    until(lambda: board.reach(subject) == expected)
    with bus.inbox() as inbox:
        reached = inbox.ask(subject, Query(query="?"))
        return sorted(envelope.sender for envelope in inbox.take(reached, wait=PATIENT))


def test_it_is_a_bus(connect: Connect) -> None:
    typed: Bus = connect()
    assert typed.as_member("other") is not typed


@pytest.mark.parametrize("subject", ["", "a..b", "a b", ".a", "a.", "a.*", "a.>"])
def test_bad_subjects_are_refused_before_anything_is_sent(connect: Connect, subject: str) -> None:
    with pytest.raises(BadSubjectError):
        connect().publish(subject, learn(1))


def test_each_handler_gets_its_messages_in_order_from_another_process(connect: Connect, topic: str) -> None:
    here, there = connect("here"), connect("there")
    got: list[Any] = []
    senders: set[str] = set()

    def heard(envelope: Envelope) -> None:
        got.append(envelope.frame)
        senders.add(envelope.sender)

    here.subscribe(f"{topic}.*", heard)
    for number in range(200):
        there.publish(f"{topic}.a", learn(number))

    until(lambda: len(got) == 200)
    assert got == [learn(number) for number in range(200)]
    assert senders == {"there"}


def test_patterns_hear_what_they_match_and_nothing_else(connect: Connect, topic: str) -> None:
    here, there = connect(), connect()
    heard: dict[str, list[str]] = {"one": [], "rest": [], "exact": []}
    here.subscribe(f"{topic}.*.x", lambda e: heard["one"].append(e.subject))
    here.subscribe(f"{topic}.>", lambda e: heard["rest"].append(e.subject))
    here.subscribe(f"{topic}.a.x", lambda e: heard["exact"].append(e.subject))
    sent = [f"{topic}.a.x", f"{topic}.b.x", f"{topic}.a.b.x", f"{topic}.a"]
    for subject in sent:
        there.publish(subject, learn(1))

    until(lambda: len(heard["rest"]) == 4)
    assert heard == {"one": sent[:2], "rest": sent, "exact": sent[:1]}


def test_a_closed_subscription_hears_nothing_more(connect: Connect, topic: str) -> None:
    here, there = connect(), connect()
    got: list[Frame] = []
    subscription = here.subscribe(topic, lambda e: got.append(e.frame))
    subscription.close()
    there.publish(topic, learn(1))
    for bus in (there, here):  # the message has been where it would have been heard
        board: Any = bus._board
        board.pipe.flush()
    here.subscribe(topic, lambda e: got.append(e.frame))
    there.publish(topic, learn(2))

    until(lambda: got)
    assert got == [learn(2)]


def test_one_question_collects_the_answers_of_every_process(connect: Connect, topic: str) -> None:
    asker = connect("asker")
    for name in ("a", "b", "c"):
        answering(connect(name), topic, name)
    answering(asker, topic, "asker")

    assert asked(asker, topic, 4) == ["a", "asker", "b", "c"]


def test_a_process_that_comes_later_is_asked_and_one_that_goes_is_not(connect: Connect, topic: str) -> None:
    asker, first, later = connect("asker"), connect("first"), connect("later")
    answering(first, topic, "first")
    assert asked(asker, topic, 1) == ["first"]
    answering(later, topic, "later")
    assert asked(asker, topic, 2) == ["first", "later"]
    first.close()
    assert asked(asker, topic, 1) == ["later"]


def test_a_question_to_nobody_reaches_nobody_and_does_not_wait(connect: Connect, topic: str) -> None:
    with connect().inbox() as inbox:
        assert inbox.ask(topic, Query(query="?")) == 0


def test_of_two_processes_that_serve_one_member_the_older_answers_and_then_the_other(
    connect: Connect, topic: str
) -> None:
    asker, older, younger = connect("asker"), connect("ana"), connect("ana")
    older.subscribe(topic, lambda e: QueryResponse(agent="older"))
    younger.subscribe(topic, lambda e: QueryResponse(agent="younger"))

    def answers() -> list[Any]:
        board: Any = asker._board
        until(lambda: board.reach(topic) == 1 and len(board.present(others=True)) >= 2)
        with asker.inbox() as inbox:
            inbox.ask(topic, Query(query="?"))
            return [envelope.frame for envelope in inbox.take(1, wait=PATIENT)]

    assert answers() == [QueryResponse(agent="older")]
    until(lambda: len(younger._board.present(others=True)) >= 2)  # type: ignore[attr-defined]
    older.close()
    until(lambda: answers_of(asker, topic) == [QueryResponse(agent="younger")])


def answers_of(asker: MemberBus, topic: str) -> list[Any]:
    with asker.inbox() as inbox:
        inbox.ask(topic, Query(query="?"))
        return [envelope.frame for envelope in inbox.take(1, wait=0.5)]


def test_a_process_that_is_not_heard_any_more_is_away(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, silent = connect("asker"), connect("silent")
    answering(silent, topic, "silent")
    board: Any = asker._board
    until(lambda: board.reach(topic) == 1)
    monkeypatch.setattr(network, "AWAY", 0.0)

    assert board.reach(topic) == 0


def test_a_hanging_handler_costs_its_own_answer_and_no_other(connect: Connect, topic: str) -> None:
    release = threading.Event()
    asker, slow = connect("asker"), connect("slow")

    def hang(envelope: Envelope) -> Frame | None:
        release.wait(30)
        return QueryResponse(agent="slow")

    slow.subscribe(topic, hang)
    for name in ("a", "b"):
        answering(connect(name), topic, name)
    board: Any = asker._board
    until(lambda: board.reach(topic) == 3)
    with asker.inbox() as inbox:
        inbox.ask(topic, Query(query="?"))
        in_time = inbox.take(2, wait=PATIENT)
        release.set()
        late = inbox.take(3, wait=PATIENT)

    assert sorted(e.sender for e in in_time) == ["a", "b"]
    assert [e.sender for e in late] == ["slow"]


def test_a_raising_handler_answers_with_its_error(connect: Connect, topic: str) -> None:
    asker, bad = connect("asker"), connect("bad")

    def broken(envelope: Envelope) -> Frame | None:
        raise RuntimeError("disk on fire")

    bad.subscribe(topic, broken)
    until(lambda: asker._board.reach(topic) == 1)  # type: ignore[attr-defined]
    with asker.inbox() as inbox:
        inbox.ask(topic, Query(query="?"))
        (answer,) = inbox.take(1, wait=PATIENT)

    assert answer.frame == Failed(error="RuntimeError: disk on fire")
    assert bad.failures == 1


def test_answers_after_the_inbox_is_closed_are_dropped(connect: Connect, topic: str) -> None:
    asker, late = connect("asker"), connect("late")
    release, answered = threading.Event(), threading.Event()

    def slow(envelope: Envelope) -> Frame | None:
        release.wait(30)
        answered.set()
        return QueryResponse(agent="late")

    late.subscribe(topic, slow)
    until(lambda: asker._board.reach(topic) == 1)  # type: ignore[attr-defined]
    with asker.inbox() as inbox:
        inbox.ask(topic, Query(query="?"))
        assert inbox.take(1, wait=0.01) == []
    release.set()
    assert answered.wait(PATIENT)
    assert late.settle()


def test_a_handler_that_lags_too_far_behind_drops_and_counts(connect: Connect, topic: str) -> None:
    here, there = connect(), connect()
    release, started = threading.Event(), threading.Event()

    def slow(envelope: Envelope) -> None:
        started.set()
        release.wait(30)

    subscription = here.subscribe(topic, slow, capacity=2)
    there.publish(topic, learn(0))
    assert started.wait(PATIENT)
    for number in range(1, 6):
        there.publish(topic, learn(number))
    until(lambda: subscription.dropped == 3)
    release.set()


def test_what_no_skep_can_read_is_counted_and_passed_over(connect: Connect, topic: str) -> None:
    here, there = connect(), connect()
    got: list[Frame] = []
    here.subscribe(topic, lambda e: got.append(e.frame))
    board: Any = there._board
    board.pipe.publish(topic, b"\x00 nonsense")
    board.pipe.publish(network.PRESENT, b"\x00 nonsense")
    there.publish(topic, learn(1))

    until(lambda: got)
    mine: Any = here._board
    assert got == [learn(1)]
    until(lambda: mine.undecoded == 2)


def test_the_trace_travels_to_another_process(connect: Connect, topic: str) -> None:
    here, there = connect(), connect()
    seen: list[str] = []
    here.subscribe(topic, lambda e: seen.append(current_trace()))
    with tracer.span("test") as span:
        there.publish(topic, learn(1))

    until(lambda: seen)
    assert seen == [span.trace]
