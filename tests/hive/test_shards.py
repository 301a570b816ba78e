"""Rendezvous hashing: everybody agrees, loads are even, little moves."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import OutOfRangeError
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.hive.layouts import Ring, owners, share

from .conftest import EMBEDDER

NAMES = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=12, unique=True)
KEYS = [f"m-{n}" for n in range(2000)]


@given(NAMES, st.text(max_size=10), st.integers(1, 5))
def test_everybody_agrees_whatever_order_they_know_the_members_in(
    names: list[str], key: str, replication: int
) -> None:
    found = owners(key, names, replication=replication)

    assert found == owners(key, reversed(names), replication=replication)
    assert len(found) == len(set(found)) == min(replication, len(names))


@given(NAMES, st.text(max_size=10))
def test_when_a_member_leaves_the_others_keep_what_they_had(names: list[str], key: str) -> None:
    before = owners(key, names)
    left = [name for name in names if name != before[0]]

    assert owners(key, left)[: len(before) - 1] == before[1:]


def test_each_member_gets_its_share() -> None:
    ring = Ring([f"agent-{n}" for n in range(10)])
    loads = Counter(owner for key in KEYS for owner in ring.owners(key))

    assert len(loads) == 10
    assert max(loads.values()) < 1.3 * len(KEYS) * 3 / 10


def test_a_new_member_moves_only_what_it_takes_over() -> None:
    before = Ring([f"agent-{n}" for n in range(10)])
    after = Ring([*before.members, "agent-10"])
    gained = {key: set(after.owners(key)) - set(before.owners(key)) for key in KEYS}
    moved = {key: fresh for key, fresh in gained.items() if fresh}

    assert {member for fresh in moved.values() for member in fresh} == {"agent-10"}
    assert len(moved) < 1.3 * len(KEYS) * 3 / 11


def test_the_first_owner_steps_aside_when_it_is_absent() -> None:
    ring = Ring(["a", "b", "c", "d"])
    first, second, third = ring.owners("m-1")

    assert ring.first("m-1") == first
    assert ring.first("m-1", without=[first]) == second
    assert ring.first("m-1", without=[first, second, third]) is None


def test_no_replication_is_refused() -> None:
    with pytest.raises(OutOfRangeError, match="replication"):
        owners("m-1", ["a"], replication=0)


def test_a_share_of_the_candidates_from_each_of_many_is_enough(clock: Any) -> None:
    """With sixty shards each is asked for few, and the answers are still those of one bank."""
    names = [f"agent-{n}" for n in range(60)]
    words = (
        "server",
        "cellar",
        "garden",
        "lunch",
        "coffee",
        "visitor",
        "backup",
        "crate",
        "invoice",
        "ticket",
    )
    rng = random.Random(4)
    facts = [f"{' '.join(rng.sample(words, 4))} in room {n}." for n in range(1200)]
    questions = [f"{' '.join(rng.sample(words, 2))} room {n}" for n in range(0, 1200, 150)]
    policy = HivePolicy(rate=1e9, burst=10**9, deadline=30.0, hedge_after=20.0, quality_at=0.0)
    best: dict[str, list[str]] = {}
    plain = {"updates": False}  # memories of one moment have an order only where one writer wrote them
    for kind, make in (("flat", Hive.flat), ("sharded", Hive.sharded)):
        with make(names, policy=policy, embedder=EMBEDDER, now=clock) as hive:
            for n, name in enumerate(names):
                hive.agent(name).remember_many(facts[n::60])
            asked: list[Any] = [
                hive.agent(names[0]).recall(question, limit=5, config=plain) for question in questions
            ]
            best[kind] = [answer[0].memory.text for answer in asked]
            if kind == "sharded":
                assert max(answer.candidates for answer in asked) < len(facts)

    assert share(200, 60) < 200 == share(200, 20)
    assert best["flat"] == best["sharded"]
