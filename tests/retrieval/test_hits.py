"""Hits are put together in C as they are in Python: whatever explains them, and whatever is wrong with it."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.model import Hit, Memory
from skep.retrieval import pipeline
from skep.retrieval.candidates import Candidates, Columns
from skep.retrieval.pipeline import SURE

COUNT = 8
fraction = st.one_of(st.floats(0, 1), st.sampled_from([0.0, -0.0, float("inf"), 1e-320]))
signals = st.dictionaries(
    st.sampled_from(["lexical", "semantic", "late", "recency", "trust", "usage", "coverage", "é", "held"]),
    st.lists(fraction, min_size=COUNT, max_size=COUNT),
)
places = st.lists(st.integers(1, 30), min_size=COUNT, max_size=COUNT)
ranks = st.dictionaries(st.sampled_from(["lexical", "semantic", "matched"]), places)
statuses = st.sampled_from(["active", "active", "active", "pending", "superseded"])


def memory(number: int, status: Any = "active", *, stale: bool = False) -> Memory:
    return Memory(f"a-{number}", "fact", f"text {number}", status=status, stale=stale)


def found_of(
    measured: dict[str, Any], ranked: dict[str, Any], at: list[int], outdated: frozenset[int] = frozenset()
) -> Candidates:
    whole, none = np.arange(COUNT) + 100, np.zeros(COUNT)
    columns = Columns(whole, none, none, none, none, none, none, whole, whole)
    score = np.linspace(1, 0.3, len(at))
    return Candidates(columns, measured, ranked, np.array(at, dtype=np.int64), score, outdated)


def hits_of(found: Candidates, memories: dict[int, Memory], threshold: float = 0.7) -> tuple[Hit, ...]:
    sources = SimpleNamespace(memories=lambda rows: [memories[row] for row in rows.tolist()])  # pyright: ignore
    config = SimpleNamespace(currency=False, disagreement=threshold)
    call: Any = SimpleNamespace(sources=sources, config=config)
    return pipeline._hits(found, call)  # pyright: ignore[reportPrivateUsage]


def in_python(found: Candidates, memories: dict[int, Memory], threshold: float = 0.7) -> tuple[Hit, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "native", None)
        return hits_of(found, memories, threshold)


@given(
    signals,
    ranks,
    st.lists(st.integers(0, COUNT - 1), unique=True),
    st.lists(st.tuples(statuses, st.booleans()), min_size=COUNT, max_size=COUNT),
    st.frozensets(st.integers(100, 107), max_size=1),
    st.sampled_from([0.0, 0.5, 0.7, 1.0]),
)
def test_hits_are_the_same_in_either_way(
    measured: dict[str, list[float]],
    ranked: dict[str, list[int]],
    at: list[int],
    states: list[tuple[Any, bool]],
    outdated: frozenset[int],
    threshold: float,
) -> None:
    memories = {100 + i: memory(i, status, stale=stale) for i, (status, stale) in enumerate(states)}
    found = found_of(
        {name: np.array(values) for name, values in measured.items()},
        {name: np.array(values, dtype=np.int64) for name, values in ranked.items()},
        at,
        outdated,
    )

    hits = hits_of(found, memories, threshold)

    assert hits == in_python(found, memories, threshold)
    for hit in hits:
        assert list(hit.signals) == list(measured)
        assert {type(value) for value in hit.signals.values()} <= {float}
        assert {type(value) for value in hit.ranks.values()} <= {int}


def test_words_and_meaning_that_place_a_memory_far_apart_are_marked() -> None:
    ranked = {"lexical": np.array([1, 2, 3, 4, 1, 9, 8, 7]), "semantic": np.array([2, 20, 1, 1, 4, 9, 2, 3])}
    found = found_of({"lexical": np.zeros(8), "semantic": np.zeros(8)}, ranked, list(range(8)))
    memories = {100 + i: memory(i) for i in range(COUNT)}

    flags = [hit.flags for hit in hits_of(found, memories)]

    odd = ("disagreement",)
    assert flags == [(), odd, (), odd, odd, (), odd, ()]


def test_no_two_hits_share_what_a_caller_can_change() -> None:
    found = found_of({"lexical": np.ones(8)}, {"lexical": np.arange(8)}, [0, 1])
    one, other = hits_of(found, {100: memory(0), 101: memory(1)})

    one.signals["seen"] = 1.0
    one.ranks["seen"] = 1

    assert other.signals == {"lexical": 1.0}
    assert other.ranks == {"lexical": 1}
    assert list(found.measured) == ["lexical"]


def compiled(native: Any, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "make": Hit,
        "memories": [memory(0), memory(1)],
        "at": np.array([1, 0]),
        "score": np.array([0.5, 0.25]),
        "measured": {"late": np.array([0.1, 0.2])},
        "places": {"late": np.array([1, 2])},
        "mark": ("disagreement",),
        "sure": SURE,
        "threshold": 0.7,
    }
    return native.hits(*(given | changed).values())


def test_most_answers_are_left_to_the_compiled_loop(native: Any) -> None:
    twos = np.arange(8.0).reshape(4, 2)
    one, other = compiled(native, measured={"late": twos[:, 1], "held": twos[:, 0]})

    assert (one.memory.id, one.score, one.signals) == ("a-0", 0.5, {"late": 3.0, "held": 2.0})
    assert (other.memory.id, other.ranks, other.flags) == ("a-1", {"late": 1}, ())
    assert compiled(native, memories=[]) == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"memories": [memory(0), memory(1, "pending")]},
        {"memories": [memory(0, stale=True), memory(1)]},
        {"measured": {"late": np.array([0.1, 0.2], dtype=np.float32)}},
        {"places": {"late": np.array([True, False])}},
        {"measured": {"late": np.array([1, 2], dtype=np.uint64)}},
        {"measured": {"late": np.zeros((2, 2))}},
        {"score": np.array([1, 2], dtype=np.float32)},
    ],
)
def test_what_few_hold_is_left_to_python(native: Any, changed: dict[str, Any]) -> None:
    assert compiled(native, **changed) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"memories": (memory(0), memory(1))},
        {"measured": [("late", np.zeros(2))]},
        {"places": None},
        {"mark": "disagreement"},
        {"at": np.array([1])},
        {"at": np.array([1, 2])},
        {"at": np.array([-1, 0])},
        {"at": np.array([1, 0], dtype=np.int32)},
        {"at": [1, 0]},
        {"score": np.array([0.5])},
        {"score": [0.5, 0.25]},
        {"measured": {"late": np.array([0.1])}},
        {"measured": {"late": [0.1, 0.2]}},
        {"sure": "3"},
        {"threshold": None},
        {"memories": [memory(0), None]},
        {"make": lambda *_given: 1 / 0},
    ],
)
def test_what_is_wrong_is_refused(native: Any, changed: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError)):
        compiled(native, **changed)


def test_what_is_made_over_and_over_is_let_go(native: Any) -> None:
    import tracemalloc

    memories = [memory(number) for number in range(50)]
    measured = {f"signal {number}": np.arange(50) / 7 for number in range(9)}
    wrong = measured | {"late": np.zeros(3)}
    odd = measured | {"late": np.zeros(50, dtype=np.float32)}

    def make(times: int) -> None:
        rest: dict[str, Any] = {"memories": memories, "at": np.arange(50), "score": np.arange(50) / 3}
        for _ in range(times):
            compiled(native, measured=measured, places={"late": np.arange(50)}, **rest)
            assert compiled(native, measured=odd, places={}, **rest) is None
            with pytest.raises(IndexError):
                compiled(native, measured=measured, places=wrong, **rest)

    make(3)
    gc.collect()
    tracemalloc.start()
    make(3)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    make(20)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert after - before < 10_000  # a mapping kept from each of twenty answers would be more
