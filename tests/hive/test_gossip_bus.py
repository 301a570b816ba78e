"""Gossip over a bus: typed frames with a deadline, between processes that share nothing else."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.errors import InvalidInputError, SyncError
from skep.hive.bus.in_process import LocalBus
from skep.hive.gateway import HivePolicy
from skep.hive.gossip import Gossip, GossipServer, Listener, convergence, current_of, gossip_subject
from skep.hive.hive import Hive
from skep.hive.messages import (
    Envelope,
    Frame,
    GossipDigest,
    GossipEvents,
    GossipHeard,
    GossipRequest,
    Query,
    ShardUsed,
)
from skep.hive.orchestrator import Orchestrator
from skep.model import Event
from skep.replication.signatures import Keyring, Signer
from skep.replication.version_vectors import Versions

from .conftest import AGENTS, EMBEDDER, known_ids

Make = Callable[[], Bank]
POLICY = HivePolicy(deadline=5.0, hedge_after=2.0)
HASTY = HivePolicy(deadline=0.2, hedge_after=0.1, fanout=3)


class Wire(LocalBus):
    """A bus that encodes every message, and remembers what was sent."""

    def __init__(self) -> None:
        super().__init__("hive", wire=True)
        self.sent: list[Envelope] = []
        send = self._board.send

        def noted(envelope: Envelope) -> tuple[int, int]:
            self.sent.append(envelope)
            return send(envelope)

        self._board.send = noted  # type: ignore[method-assign]

    def told(self) -> list[Event]:
        """Every event that was gossiped."""
        return [event for e in self.sent if isinstance(e.frame, GossipEvents) for event in e.frame.events]


@pytest.fixture
def bus() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


def served(bus: Wire, banks: Make, names: str, facts: int = 4, **options: Any) -> dict[str, Bank]:
    made: dict[str, Bank] = {}
    for name in names:
        made[name] = banks()
        made[name].remember_many([f"Fact number {n} of {name} is here." for n in range(facts)])
        GossipServer(Listener(name, made[name], **options), bus)
    return made


def test_banks_on_either_side_of_a_bus_come_to_know_the_same(bus: Wire, banks: Make) -> None:
    made = served(bus, banks, "abcdef")
    sides = [
        Gossip(
            {name: made[name] for name in here},
            bus=bus,
            others=[name for name in made if name not in here],
            policy=POLICY,
            rng=random.Random(seed),
        )
        for seed, here in enumerate(("abc", "def"))
    ]
    for _ in range(12):
        for side in sides:
            side.round()

    assert convergence(made.values()) == 1.0
    assert [side.rounds[-1].convergence for side in sides] == [1.0, 1.0]
    assert all(len(known_ids(bank)) == 24 for bank in made.values())
    assert all(one.missing == () for side in sides for one in side.rounds)


def test_what_is_known_is_not_sent_again(bus: Wire, banks: Make) -> None:
    made = served(bus, banks, "abcd", facts=3)
    gossip = Gossip({"a": made["a"]}, bus=bus, others="bcd", policy=HivePolicy(deadline=5.0, fanout=3))
    first = gossip.round()
    assert first.events == len(bus.told()) == 9
    bus.sent.clear()
    quiet = gossip.round()

    assert bus.told() == []
    assert (quiet.events, quiet.bytes) == (0, 0)
    assert quiet.digest_bytes > 0


def test_two_tellers_do_not_tell_the_same_twice_in_one_round(bus: Wire, banks: Make) -> None:
    made = served(bus, banks, "abc", facts=3)
    Gossip({"a": made["a"], "b": made["b"]}).run()
    bus.sent.clear()
    Gossip({"a": made["a"], "b": made["b"]}, bus=bus, others="c", policy=POLICY).round()

    assert len(bus.told()) == len({event.id for event in bus.told()}) == 6


def liar(bus: Wire, name: str, reply: Callable[[Frame], Frame | None]) -> None:
    bus.as_member(name).subscribe(gossip_subject(name), lambda envelope: reply(envelope.frame))


def test_peers_that_fail_cost_a_deadline_and_never_the_round(bus: Wire, banks: Make) -> None:
    made = served(bus, banks, "ab")
    free = threading.Event()

    def hangs(frame: Frame) -> Frame | None:
        free.wait(10.0)
        return None

    def raises(frame: Frame) -> Frame | None:
        raise RuntimeError("out of order")

    liar(bus, "hangs", hangs)
    liar(bus, "raises", raises)
    liar(bus, "garbage", lambda _: ShardUsed(ids=("x",)))
    liar(bus, "empty", lambda _: GossipDigest(hive="empty"))
    liar(bus, "noise", lambda _: GossipDigest(hive="noise", current=b"\x00noise"))
    failing = ("hangs", "raises", "garbage", "empty", "noise", "nobody")
    policy = HivePolicy(deadline=0.2, hedge_after=0.1, fanout=9)
    done = Gossip({"a": made["a"]}, bus=bus, others=("b", *failing), policy=policy).round()
    free.set()

    assert set(done.missing) == set(failing)
    assert done.faults["hangs"] == "no answer in time"
    assert done.faults["nobody"] == "nobody is there"
    assert "out of order" in done.faults["raises"]
    assert "ShardUsed" in done.faults["garbage"]
    assert known_ids(made["b"]) >= known_ids(made["a"])
    assert done.events == 4


def test_who_says_nothing_after_a_message_is_left_out_of_the_rest(bus: Wire, banks: Make) -> None:
    made = served(bus, banks, "abc")
    asked: list[Frame] = []

    def mute(frame: Frame) -> Frame | None:
        asked.append(frame)
        return GossipDigest(hive="m", seen=Versions()) if isinstance(frame, GossipRequest) else None

    liar(bus, "m", mute)
    done = Gossip(made, bus=bus, others="m", policy=HASTY).round()

    assert done.missing == ("m",)
    assert [type(frame) for frame in asked] == [GossipRequest, GossipEvents]
    assert convergence(made.values()) == done.convergence


def test_impossible_versions_hold_nothing_back(bus: Wire, banks: Make) -> None:
    made = served(bus, banks, "a", facts=3)
    heard: list[Event] = []
    odd = {made["a"].actor: ((9, 2), (2, 2), (-5, 0)), "x": ()}

    def confused(frame: Frame) -> Frame | None:
        if isinstance(frame, GossipEvents):
            heard.extend(frame.events)
            return GossipHeard(hive="odd", applied=-7)
        return GossipDigest(hive="odd", seen=Versions(odd), current=b"odd")  # type: ignore[arg-type]

    liar(bus, "odd", confused)
    done = Gossip(made, bus=bus, others=["odd"], policy=POLICY).round()

    assert [event.counter for event in heard] == [1, 3]
    assert done.events == 0
    assert 0.0 <= done.convergence <= 1.0


def test_a_lone_message_says_what_went_wrong(bus: Wire, banks: Make) -> None:
    made = served(bus, banks, "a")
    gossip = Gossip(made, bus=bus, others=["b"], policy=HASTY)
    with pytest.raises(SyncError, match="b could not be told: nobody is there"):
        gossip.tell("a", "b")
    with pytest.raises(InvalidInputError, match="give one"):
        Gossip(made, others=["b"])
    with pytest.raises(InvalidInputError, match="is in this process"):
        Gossip(made, bus=bus, others=["a"])


def test_a_bank_on_the_bus_checks_signatures_and_trust(bus: Wire, banks: Make) -> None:
    pytest.importorskip("nacl")
    made = {"a": banks()}
    made["a"].remember("The backup key was moved to rack two.", agent="ana")
    strict, wary = banks(), banks()
    ring = Keyring()
    ring.add("anas-bank", Signer(b"a" * 32).public, agents=("ana",))
    GossipServer(Listener("strict", strict, keyring=ring), bus)
    GossipServer(Listener("wary", wary, trust=lambda name: 0.0 if name == "a" else 1.0), bus)
    done = Gossip(made, bus=bus, others=["strict", "wary"], policy=HivePolicy(deadline=5.0, fanout=2)).round()

    assert list(strict.find()) == list(wary.find()) == []
    assert "does not trust" in done.faults["wary"]
    assert done.events == 0


def test_what_is_not_gossip_is_not_answered(banks: Make) -> None:
    assert Listener("a", banks()).answer(Query(query="who")) is None


# Hives


@pytest.fixture
def hives(bus: Wire, clock: Any) -> Iterator[Callable[..., Hive]]:
    made: list[Hive] = []

    def make(name: str, **options: Any) -> Hive:
        opened = {"policy": POLICY, "embedder": EMBEDDER, "now": clock, "bus": bus, "name": name, **options}
        made.append(Hive.sharded(AGENTS, **opened))
        return made[-1]

    yield make
    for hive in made:
        hive.close()


def test_a_hive_in_two_halves_tells_and_hears_all_it_has(bus: Wire, hives: Callable[..., Hive]) -> None:
    policy = HivePolicy(deadline=5.0, hedge_after=2.0, replication=1)
    here = hives("a", policy=policy, local=AGENTS[:3])
    there = hives("a", policy=policy, local=AGENTS[3:])
    far = hives("b")
    far.listen()
    facts = [f"Room {n} of the old house holds crate {n}." for n in range(12)]
    for number, fact in enumerate(facts):
        half = here if number % 2 else there
        half.agent("ana" if number % 2 else "eve").remember(fact, on_conflict="ignore")
    far.agent("bob").remember("The bird sings in the old tree.")
    here.listen()
    done = Gossip({"a": here}, bus=bus, others="b", policy=POLICY).run(limit=4)

    assert sorted(m.text for m in far.agent("fay").find() if "crate" in m.text) == sorted(facts)
    assert done[-1].missing == ()
    Gossip({"b": far}, bus=bus, others="a", policy=POLICY).run(limit=4)
    for half, name in ((here, "ana"), (there, "eve")):
        assert len(half.agent(name).recall("who sings in the old tree", limit=1)) == 1
        assert current_of(half) == current_of(far)
    assert convergence([here, there, far]) == 1.0


def test_an_unproved_event_does_not_slip_past_to_the_other_half(
    hives: Callable[..., Hive], clock: Any
) -> None:
    pytest.importorskip("nacl")
    policy = HivePolicy(deadline=5.0, hedge_after=2.0, replication=1)
    ring = Keyring()
    here = hives("a", policy=policy, local=AGENTS[:3], keyring=ring)
    there = hives("a", policy=policy, local=AGENTS[3:], keyring=ring)
    own = there.members["eve"].bank.actor
    body = {"text": "The backup key was moved to rack two.", "agent": "eve", "kind": "fact"}
    for number in range(900, 912):
        event = Event(actor=own, counter=number, hlc=int(clock() * 1000) << 16, kind="remember", body=body)
        assert here.admit([event], via=("x",)).refused
        assert there.get(event.id) is None


def test_a_hive_on_the_bus_takes_nothing_of_agents_it_does_not_trust(
    bus: Wire, hives: Callable[..., Hive]
) -> None:
    a, b = hives("a"), hives("b")
    b.listen()
    b.trust.set("ana", 0.1)
    a.agent("ana").remember("The cat sleeps on the red mat.")
    a.agent("bob").remember("The dog sleeps in the long hall.")
    gossip = Gossip({"a": a}, bus=bus, others="b", policy=POLICY)
    gossip.round()
    assert [memory.text for memory in b.agent("cy").find()] == ["The dog sleeps in the long hall."]
    bus.sent.clear()
    gossip.round()
    assert bus.told() == []


def test_promotions_are_told_over_the_bus_at_once(bus: Wire, hives: Callable[..., Hive]) -> None:
    a, b = hives("a"), hives("b")
    b.listen()
    a.connect({}, others=["b"])
    stored = a.agent("ana").remember("The cat sleeps on the red mat.").memory
    bus.settle(wait=5.0)

    assert b.get(stored.id) is not None
    assert b.provenance(stored.id).path[0] == "a"


def test_an_orchestrator_gossips_with_hives_on_the_bus(bus: Wire, hives: Callable[..., Hive]) -> None:
    a, b = hives("a"), hives("b")
    b.listen()
    stored = a.agent("ana").remember("The cat sleeps on the red mat.").memory
    done = Orchestrator(a, "ana", others=["b"]).run_gossip_round()

    assert (done.events, done.missing) == (1, ())
    assert b.get(stored.id) is not None
