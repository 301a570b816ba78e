"""What is followed on the NATS bus: kept by JetStream, read at each reader's pace."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from tests.hub.nats_server import Server, free_port

from skep.errors import HubAwayError
from skep.hive.bus.bus import DELIVERIES
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
    return f"hive.one.feed.n{next(NUMBERS)}"


def test_a_reader_in_another_process_begins_with_the_oldest(nats_bus: Connect, feed: str) -> None:
    bus, other = nats_bus(), nats_bus()
    bus.follow("first", feed)
    for n in range(5):
        bus.publish(feed, learn(n))

    assert texts(other.follow(f"hive {feed}/all", feed).fetch()) == [f"fact {n}" for n in range(5)]


def test_a_message_with_a_known_id_is_kept_once(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    reader = bus.follow(feed, feed)
    bus.publish(feed, learn(1), id=feed)
    bus.publish(feed, learn(1), id=feed)
    assert len(reader.fetch()) == 1


def test_a_position_outlives_the_reader(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    reader = bus.follow(feed, feed)
    for n in range(3):
        bus.publish(feed, learn(n))
    first, second, _ = reader.fetch()
    first.ack()
    second.ack()
    assert reader.behind == 1
    bus.close()

    assert nats_bus().follow(feed, feed).behind == 1


def test_what_cannot_be_done_comes_again_and_is_set_aside_in_the_end(nats_bus: Connect, feed: str) -> None:
    bus = nats_bus()
    reader = bus.follow(feed, feed)
    bus.publish(feed, learn(1))
    tries = 0
    until = time.monotonic() + 20
    while not reader.dead and time.monotonic() < until:
        for delivery in reader.fetch():
            tries += 1
            delivery.retry()

    assert tries == DELIVERIES
    assert [e.frame for e in reader.dead] == [learn(1)]
    assert reader.behind == 0


def test_looks_that_found_nothing_leave_nothing_behind_that_takes_later_messages(
    nats_bus: Connect, feed: str
) -> None:
    bus = nats_bus()
    reader = bus.follow(feed, feed)
    for _ in range(3):
        assert reader.fetch() == []
    bus.publish(feed, learn(1))

    assert texts(reader.fetch()) == ["fact 1"]


def test_a_bus_goes_on_after_its_server_was_killed(tmp_path: Path) -> None:
    server = Server(tmp_path / "nats")
    here, there = NatsBus(server.url, "here"), NatsBus(server.url, "there")
    try:
        here.follow("c")
        got: list[object] = []
        here.subscribe("live", lambda e: got.append(e.frame))
        here.publish("hive.one.events", learn(1))
        server.kill()
        server.start()

        until = time.monotonic() + 30
        while not got and time.monotonic() < until:
            there.publish("live", learn(2))
            time.sleep(0.1)
        assert got[0] == learn(2)
        assert texts(there.follow("c").fetch()) == ["fact 1"]
    finally:
        here.close()
        there.close()
        server.close()


def test_a_server_that_is_not_there_is_told_of() -> None:
    with pytest.raises(HubAwayError, match="nats-server -js"):
        NatsBus(f"nats://127.0.0.1:{free_port()}")
