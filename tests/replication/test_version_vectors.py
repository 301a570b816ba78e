"""Ranges of counters behave like the sets they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.replication.version_vectors import Versions, holds, insert, normalise, subtract, union

COUNTERS = st.sets(st.integers(1, 40))
Dots = set[tuple[str, int]]
DOTS = st.sets(st.tuples(st.sampled_from("abc"), st.integers(1, 20)))


def ranges(counters: set[int]) -> tuple[tuple[int, int], ...]:
    return normalise((n, n) for n in counters)


def listed(found: tuple[tuple[int, int], ...]) -> set[int]:
    return {n for low, high in found for n in range(low, high + 1)}


@given(COUNTERS, COUNTERS)
def test_ranges_agree_with_sets(a: set[int], b: set[int]) -> None:
    assert a | b == listed(union(ranges(a), ranges(b)))
    assert a - b == listed(subtract(ranges(a), ranges(b)))
    assert ranges(a - b) == subtract(ranges(a), ranges(b))
    assert a == {n for n in range(50) if holds(ranges(a), n)}


@given(COUNTERS, st.integers(1, 45))
def test_inserting_one_counter_is_the_same_as_building_anew(a: set[int], n: int) -> None:
    assert ranges(a | {n}) == insert(ranges(a), n)


@given(DOTS, DOTS)
def test_the_difference_is_exactly_what_the_other_lacks(
    a: set[tuple[str, int]], b: set[tuple[str, int]]
) -> None:
    mine, theirs = Versions.of(a), Versions.of(b)

    assert a - b == set(mine.minus(theirs).dots())
    assert a & b == set(mine.common(theirs).dots())
    assert a | b == set(mine.merged(theirs).dots())
    assert (a <= b) == (mine <= theirs)
    assert len(a) == mine.count()


def test_a_full_replica_costs_one_range_per_actor() -> None:
    assert Versions.contiguous({"a": 100_000, "b": 0}).ranges == {"a": ((1, 100_000),)}
    assert Versions.contiguous({"a": 100_000}).vector() == {"a": 100_000}


def test_an_actor_whose_first_event_is_missing_has_no_contiguous_part() -> None:
    assert Versions.of([("a", 2)]).vector() == {}
