"""Streams of the NATS bus: kept by JetStream, read at each reader's pace, refused when full."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from tests.hub.nats_server import Server, free_port

from skep.errors import HubAwayError, NotFoundError
from skep.hive.bus.bus import BackPressureError, ConsumerConfig, StreamConfig
from skep.hive.bus.nats_bus import NatsBus
from skep.hive.messages import LearnContent

Connect = Callable[..., NatsBus]
NUMBERS = count()


def learn(number: int) -> LearnContent:
    return LearnContent(text=f"fact {number}")


def texts(deliveries: object) -> list[str]:
    return [d.envelope.frame.text for d in deliveries]  # type: ignore[attr-defined]


@pytest.fixture
def feed() -> str:
    return f"feed{next(NUMBERS)}"


def test_a_stream_replays_from_any_position_in_another_process(nats_bus: Connect, feed: str) -> None:
    bus, other = nats_bus(), nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(f"{feed}.>",)))
    positions = [bus.publish(f"{feed}.a", learn(n)) for n in range(5)]

    assert positions == [1, 2, 3, 4, 5]
    assert texts(other.consumer(feed, "hive one/all").fetch()) == [f"fact {n}" for n in range(5)]
    late = other.consumer(feed, "late", ConsumerConfig(start=4))
    assert texts(late.fetch()) == ["fact 3", "fact 4"]
    assert texts(other.consumer(feed, "fresh", ConsumerConfig(start="new")).fetch()) == []


def test_a_consumer_may_take_only_part_of_a_stream(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(f"{feed}.>",)))
    for n in range(4):
        bus.publish(f"{feed}.{'ab'[n % 2]}", learn(n))

    only = bus.consumer(feed, "only-b", ConsumerConfig(subject=f"{feed}.b"))
    assert texts(only.fetch()) == ["fact 1", "fact 3"]


def test_a_message_with_a_known_id_is_stored_once(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(feed,)))

    assert bus.publish(feed, learn(1), id="x") == 1
    assert bus.publish(feed, learn(1), id="x") == 1
    assert len(bus.consumer(feed, "c").fetch()) == 1


def test_a_position_outlives_the_reader(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(feed,)))
    for n in range(3):
        bus.publish(feed, learn(n))
    first, second, _ = bus.consumer(feed, "c").fetch()
    first.ack()
    second.ack()
    assert bus.consumer(feed, "c").behind == 1
    bus.close()

    again = nats_bus().consumer(feed, "c")
    assert again.behind == 1


def test_what_is_not_acknowledged_comes_again_and_what_nobody_can_handle_is_set_aside(
    nats_bus: Connect, feed: str
) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(feed,)))
    consumer = bus.consumer(feed, "c", ConsumerConfig(max_deliver=2))
    bus.publish(feed, learn(1))
    bus.publish(feed, learn(2))
    poison, useless = consumer.fetch()
    useless.reject()
    poison.retry()
    (poison,) = consumer.fetch(wait=20)
    assert poison.attempt == 2
    poison.retry()

    assert consumer.fetch(wait=1) == []
    assert [e.frame for e in consumer.dead] == [learn(2), learn(1)]
    assert consumer.behind == 0


def test_a_full_stream_refuses_until_its_consumers_have_caught_up(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(feed,), max_messages=2))
    consumer = bus.consumer(feed, "c")
    bus.publish(feed, learn(0))
    bus.publish(feed, learn(1))
    with pytest.raises(BackPressureError, match=feed):
        bus.publish(feed, learn(2))
    consumer.fetch()[0].ack()

    assert bus.publish(feed, learn(2)) == 3


def test_a_stream_may_drop_its_oldest_instead(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(feed,), max_messages=2, when_full="drop_oldest"))
    for n in range(4):
        bus.publish(feed, learn(n))

    assert texts(bus.consumer(feed, "c").fetch()) == ["fact 2", "fact 3"]


def test_a_waiting_consumer_is_woken_by_a_message(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(feed,)))
    consumer = bus.consumer(feed, "c")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(texts(consumer.fetch(wait=20))))
    reader.start()
    bus.publish(feed, learn(7))
    reader.join(20)

    assert got == ["fact 7"]


def test_pulls_that_found_nothing_leave_nothing_behind_that_takes_later_messages(
    nats_bus: Connect, feed: str
) -> None:
    bus = nats_bus()
    bus.add_stream(feed, StreamConfig(subjects=(feed,)))
    consumer = bus.consumer(feed, "c")
    for _ in range(3):
        assert consumer.fetch(wait=0.05) == []
    bus.publish(feed, learn(1))

    assert texts(consumer.fetch(wait=5)) == ["fact 1"]


def test_an_unknown_stream_is_named(nats_bus: Connect) -> None:
    with pytest.raises(NotFoundError, match="no stream 'nope'"):
        nats_bus().consumer("nope", "c")


def test_a_bus_goes_on_after_its_server_was_killed(tmp_path: Path) -> None:
    server = Server(tmp_path / "nats")
    here, there = NatsBus(server.url, "here"), NatsBus(server.url, "there")
    try:
        here.add_stream("kept", StreamConfig(subjects=("kept",)))
        got: list[object] = []
        here.subscribe("live", lambda e: got.append(e.frame))
        assert here.publish("kept", learn(1)) == 1
        server.kill()
        server.start()

        until = time.monotonic() + 30
        while not got and time.monotonic() < until:
            there.publish("live", learn(2))
            time.sleep(0.1)
        assert got[0] == learn(2)
        assert texts(there.consumer("kept", "c").fetch(wait=5)) == ["fact 1"]
    finally:
        here.close()
        there.close()
        server.close()


def test_a_server_that_is_not_there_is_told_of() -> None:
    with pytest.raises(HubAwayError, match="nats-server -js"):
        NatsBus(f"nats://127.0.0.1:{free_port()}")
