"""Gossip: in a few rounds everybody knows everything, and nothing is sent twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.hive.gateway import HivePolicy
from skep.hive.gossip import Gossip, choose, convergence

from .conftest import EMBEDDER, MakeHive, known_ids

Make = Callable[[], Bank]


def peers(banks: Make, count: int, facts: int) -> dict[str, Bank]:
    made = {f"p{n}": banks() for n in range(count)}
    for name, bank in made.items():
        bank.remember_many([f"Fact number {n} of {name} is here." for n in range(facts)])
    return made


def test_everybody_knows_everything_after_a_few_rounds(banks: Make) -> None:
    made = peers(banks, 8, 5)
    gossip = Gossip(made, rng=random.Random(1))
    assert convergence(made.values()) == 0.0
    rounds = gossip.run(limit=30)

    assert rounds[-1].convergence == 1.0
    assert len(rounds) <= 8
    assert all(len(known_ids(bank)) == 40 for bank in made.values())


def test_convergence_never_falls(banks: Make) -> None:
    gossip = Gossip(peers(banks, 6, 4), rng=random.Random(3), batch=2)
    shares = [one.convergence for one in gossip.run(limit=40)]

    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_once_equal_nothing_more_is_sent(banks: Make) -> None:
    gossip = Gossip(peers(banks, 4, 3), rng=random.Random(1))
    gossip.run()
    quiet = gossip.round()

    assert (quiet.events, quiet.bytes) == (0, 0)


def test_the_surest_memories_go_first(banks: Make) -> None:
    a, b = banks(), banks()
    a.remember_many([{"text": f"Rumour number {n} goes around.", "confidence": 0.4} for n in range(20)])
    a.remember_many([{"text": f"Law number {n} is in force.", "confidence": 0.95} for n in range(5)])
    a.remember("Something below the bar of gossip.", confidence=0.2)
    policy = HivePolicy(gossip_top=5)
    Gossip({"a": a, "b": b}, policy=policy, batch=0).tell("a", "b")

    assert {m.text for m in b.find()} == {f"Law number {n} is in force." for n in range(5)}


def test_what_is_below_the_bar_still_arrives_by_anti_entropy(banks: Make) -> None:
    a, b = banks(), banks()
    a.remember("Something below the bar of gossip.", confidence=0.2)
    Gossip({"a": a, "b": b}).run()

    assert len(known_ids(b)) == 1


def test_forgetting_spreads_and_wins(banks: Make) -> None:
    made = peers(banks, 5, 2)
    gossip = Gossip(made, rng=random.Random(1))
    gossip.run()
    victim = made["p0"].find(limit=1).memories[0].id
    made["p0"].forget(victim)
    for _ in range(6):
        gossip.round()

    assert all(victim not in known_ids(bank) for bank in made.values())
    assert convergence(made.values()) == 1.0


def test_no_hives_and_no_memories_are_in_agreement(banks: Make) -> None:
    assert convergence([]) == 1.0
    assert convergence([banks(), banks()]) == 1.0


@given(
    trust=st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.floats(0, 2), max_size=8),
    count=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_peers_are_chosen_once_each_and_never_without_trust(
    trust: dict[str, float], count: int, seed: int
) -> None:
    chosen = choose(list(trust), count, lambda name: trust[name], random.Random(seed))

    assert len(chosen) == len(set(chosen)) == min(count, sum(value > 0 for value in trust.values()))
    assert all(trust[name] > 0 for name in chosen)


def test_trusted_peers_are_chosen_more_often() -> None:
    rng = random.Random(5)
    trust = {"much": 2.0, "little": 0.2}
    first = [choose(list(trust), 1, lambda name: trust[name], rng)[0] for _ in range(300)]

    assert first.count("much") > 230


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(2, 5), fanout=st.integers(1, 2))
def test_gossip_converges_whoever_talks_to_whom(seed: int, count: int, fanout: int) -> None:
    made = {f"p{n}": Bank.open(":memory:", embedder=EMBEDDER) for n in range(count)}
    for name, bank in made.items():
        bank.remember(f"Fact of {name} is here.")
    gossip = Gossip(made, policy=HivePolicy(fanout=fanout), rng=random.Random(seed))
    gossip.run(limit=60)
    for bank in made.values():
        bank.close()

    assert gossip.rounds[-1].convergence == 1.0


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_hives_of_any_layout_gossip_with_each_other(make_hive: MakeHive, kind: str, clock: Any) -> None:
    a, b, c = make_hive(kind, name="a"), make_hive("sharded", name="b"), make_hive("flat", name="c")
    a.agent("ana").remember("The cat sleeps on the red mat.")
    b.agent("bob").remember("The dog sleeps in the long hall.")
    c.agent("cy").remember("The bird sings in the old tree.")
    Gossip({"a": a, "b": b, "c": c}, rng=random.Random(2)).run(limit=20)

    for hive in (a, b, c):
        assert len(hive.agent("eve").recall("who sleeps or sings", limit=10)) == 3


def test_promotions_are_passed_on_to_peers_at_once_and_never_echo(make_hive: MakeHive) -> None:
    a, b = make_hive("flat", name="a"), make_hive("sharded", name="b")
    a.connect({"b": b})
    b.connect({"a": a})
    stored = a.agent("ana").remember("The cat sleeps on the red mat.").memory

    assert b.get(stored.id) is not None
    assert b.get(stored.id).agent == "ana"  # type: ignore[union-attr]
    assert len(list(a.members.registers.bank.events())) == 1
