"""The laws of the merging types, as properties over random histories."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import SkepError, SyncError
from skep.hive.crdt import GSet, LWWRegister, ORSet, PNCounter

ACTORS = ("a", "b", "c")
ITEMS = st.sampled_from("uvwxyz")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(range(3)), st.sampled_from(["write", "drop", "pull"]), ITEMS, st.integers(0, 9)
    ),
    max_size=30,
)
Steps = list[tuple[int, str, str, int]]


def run(make: Callable[[str], Any], change: Callable[..., Any], steps: Steps) -> tuple[list[Any], list[Any]]:
    """Three replicas that write and now and then pull from a neighbour; returns them and every delta made."""
    replicas, deltas = [make(actor) for actor in ACTORS], []
    for who, action, item, number in steps:
        if action == "pull":
            replicas[who].merge(replicas[number % 3])
        else:
            deltas.append(change(replicas[who], action, item, number))
    return replicas, deltas


def change_gset(value: GSet, action: str, item: str, number: int) -> GSet:
    return value.add(item)


def change_orset(value: ORSet, action: str, item: str, number: int) -> ORSet:
    return value.add(item) if action == "write" else value.remove(item)


def change_register(value: LWWRegister, action: str, item: str, number: int) -> LWWRegister:
    return value.set(item, at=float(number))


def change_counter(value: PNCounter, action: str, item: str, number: int) -> PNCounter:
    return value.add(number if action == "write" else -number)


KINDS = [
    pytest.param(lambda actor: GSet(), change_gset, id="GSet"),
    pytest.param(ORSet, change_orset, id="ORSet"),
    pytest.param(LWWRegister, change_register, id="LWWRegister"),
    pytest.param(PNCounter, change_counter, id="PNCounter"),
]


@pytest.mark.parametrize(("make", "change"), KINDS)
@given(steps=STEPS)
def test_merge_is_commutative_associative_and_idempotent(make: Any, change: Any, steps: Steps) -> None:
    (a, b, c), _ = run(make, change, steps)

    assert a.copy().merge(b) == b.copy().merge(a)
    assert a.copy().merge(b).merge(c) == a.copy().merge(b.copy().merge(c))
    assert a.copy().merge(a) == a


@pytest.mark.parametrize(("make", "change"), KINDS)
@given(steps=STEPS)
def test_merge_only_ever_moves_upwards(make: Any, change: Any, steps: Steps) -> None:
    (a, b, _), _ = run(make, change, steps)
    joined = a.copy().merge(b)

    assert a <= joined
    assert b <= joined


@pytest.mark.parametrize(("make", "change"), KINDS)
@given(steps=STEPS, order=st.randoms(use_true_random=False))
def test_deltas_in_any_order_and_twice_equal_the_full_merge(
    make: Any, change: Any, steps: Steps, order: Any
) -> None:
    replicas, deltas = run(make, change, steps)
    full = make("x")
    for replica in replicas:
        full.merge(replica)
    shuffled = deltas * 2
    order.shuffle(shuffled)
    piecewise = make("x")
    for delta in shuffled:
        piecewise.merge(delta)

    assert full == piecewise


@pytest.mark.parametrize(("make", "change"), KINDS)
@given(steps=STEPS)
def test_a_value_survives_its_bytes(make: Any, change: Any, steps: Steps) -> None:
    (a, _, _), _ = run(make, change, steps)

    assert a == type(a).from_bytes(a.to_bytes())


def test_a_concurrent_add_wins_over_a_remove() -> None:
    left = ORSet("left")
    left.add("fact")
    right = ORSet("right").merge(left)
    left.remove("fact")
    right.add("fact")

    assert list(left.merge(right)) == ["fact"]


def test_a_remove_that_saw_the_add_wins() -> None:
    left = ORSet("left")
    left.add("fact")
    right = ORSet("right").merge(left)
    right.remove("fact")

    assert list(left.merge(right)) == []


def test_removed_elements_leave_nothing_behind_but_one_range() -> None:
    busy = ORSet("a")
    for number in range(500):
        busy.add(f"fact {number}")
        busy.remove(f"fact {number}")
    idle = ORSet("a")
    idle.add("fact")
    idle.remove("fact")

    assert busy.state().context == {"a": ((1, 500),)}
    assert len(busy.to_bytes()) <= len(idle.to_bytes()) + 4


def test_a_set_without_an_actor_says_that_it_needs_one() -> None:
    with pytest.raises(SkepError, match="actor"):
        ORSet().add("fact")


def test_a_register_written_after_a_merge_wins_even_with_a_clock_days_behind() -> None:
    ahead, behind = LWWRegister("ahead"), LWWRegister("behind")
    ahead.set(2.0, at=1_000_000.0)
    behind.merge(ahead)
    behind.set(0.5, at=3.0)

    assert ahead.merge(behind).value == 0.5


def test_equal_stamps_are_decided_the_same_way_everywhere() -> None:
    a, b = LWWRegister("a"), LWWRegister("b")
    a.set("first", at=5.0)
    b.set("second", at=5.0)

    assert a.copy().merge(b).value == b.copy().merge(a).value == "second"


def test_garbage_is_refused_with_the_name_of_what_was_expected() -> None:
    with pytest.raises(SyncError, match="ORSet"):
        ORSet.from_bytes(b"\x00garbage")
    with pytest.raises(SyncError, match="GSet"):
        GSet.from_bytes(PNCounter("a").to_bytes())


def test_threads_merging_both_ways_neither_block_nor_lose_anything() -> None:
    left, right = ORSet("left"), ORSet("right")

    def work(mine: ORSet, other: ORSet) -> None:
        for number in range(100):
            mine.add(f"{mine.actor}{number}")
            mine.merge(other)

    threads = [threading.Thread(target=work, args=pair) for pair in ((left, right), (right, left))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(left.merge(right)) == 200
    assert left == right.merge(left)
