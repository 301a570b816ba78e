"""Rendezvous hashing: everybody agrees, loads are even, little moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import OutOfRangeError
from skep.hive.shards import Ring, owners

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


def test_a_member_of_twice_the_weight_gets_about_twice_the_keys() -> None:
    ring = Ring(["a", "b", "c"], replication=1, weights={"a": 2.0})
    loads = Counter(ring.owners(key)[0] for key in KEYS)

    assert 1.7 < loads["a"] / loads["b"] < 2.4


def test_a_new_member_moves_only_what_it_takes_over() -> None:
    before = Ring([f"agent-{n}" for n in range(10)])
    after = Ring([*before.members, "agent-10"])
    moved = before.moved(KEYS, after)

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
