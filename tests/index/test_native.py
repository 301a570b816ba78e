"""The compiled search finds what numpy finds, on every generation of processors this one can stand for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.index.bank import FakeBank, Filter

from skep import runtime
from skep.index import vector_search
from skep.index.bm25 import idf
from skep.index.index import Pool, SegmentIndex
from skep.index.quantisation import (
    FineCodes,
    Frame,
    Sketches,
    encode,
    fine_cosines,
    original,
    packed,
    turn_one,
    turned,
    unit_of_one,
)

native: Any = runtime.native
if native is None:
    pytest.skip("needs the compiled core", allow_module_level=True)
ROWS = 6000
DIM = 96
DIMS = [1, 2, 3, 15, 16, 17, 64, 100, 256, 384, 768, 1000]
WORDS = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew"]


@pytest.fixture(params=native.generations())
def generation(request: pytest.FixtureRequest) -> Iterator[str]:
    native.use(request.param)
    yield request.param
    native.use(native.generations()[-1])


def filled(rng: np.random.Generator, tail_limit: int = 4096) -> SegmentIndex:
    """More rows than are multiplied at once, some without a vector, some replaced, some in the tail."""
    bank = FakeBank(DIM)
    centres = rng.standard_normal((20, DIM))
    for row in range(1, ROWS + 1):
        vector = centres[row % 20] + rng.standard_normal(DIM)
        tags = tuple(f"t{n}" for n in (2, 3, 11, 50) if row % n == 0)
        bank.put(row, said(rng), vector=None if row % 17 == 0 else vector, tags=tags)
    index = SegmentIndex(None, bank, tail_limit=tail_limit)
    index.refresh()
    for row in [*range(5, ROWS, 401), *range(ROWS + 1, ROWS + 30)]:
        bank.put(row, said(rng), vector=rng.standard_normal(DIM))
    bank.forget(7)
    index.refresh()
    return index


def said(rng: np.random.Generator) -> str:
    return " ".join(WORDS[int(12 * share**3)] for share in rng.random(rng.integers(1, 9)))


@pytest.mark.parametrize("tail_limit", [4096, 30])
def test_both_give_the_same_pools(generation: str, tail_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    index = filled(rng, tail_limit)
    stats = index.stats()
    assert stats.tail if tail_limit > 30 else stats.segments > 1
    assert stats.dead
    compared = 0
    for tags in ((), (("t2",),), (("t3",),), (("t11",),), (("t50",),)):
        for asked in range(8):
            query = rng.standard_normal(DIM).astype(np.float32)
            terms = [WORDS[i] for i in rng.integers(12, size=asked)]
            where = Filter(tags=tags)
            answers: list[list[Pool]] = []
            best: list[list[int]] = []
            for loops in (None, native):
                monkeypatch.setattr(runtime, "native", loops)
                answers.append(
                    [
                        index.search(terms, query, where, k_words=30, k_vectors=40),
                        index.search(terms, None, where, k_words=5, k_vectors=5),
                        index.search(terms, None, where, k_words=0, k_vectors=0),
                        index.search(terms, query, Filter(tags=(("none",),)), k_words=5, k_vectors=5),
                    ]
                )
                best.append(index.best_by_words([terms], where, 9)[0].tolist())
            for mine, theirs in zip(*answers, strict=True):
                assert_alike(mine, theirs)
            assert best[0] == best[1]
            compared += len(answers[0][0].rows)
    assert compared > 5 * 8 * 40


def assert_alike(one: Pool, other: Pool) -> None:
    """The same pool, but for rows at the edge that rounding decides."""
    assert (one.words_total, one.vectors_total) == (other.words_total, other.vectors_total)
    shared, mine, theirs = np.intersect1d(one.rows, other.rows, return_indices=True)
    assert len(shared) >= 0.95 * max(len(one.rows), len(other.rows))
    for left, right in zip(one[1:-2], other[1:-2], strict=True):
        np.testing.assert_allclose(left[mine], right[theirs], rtol=1e-5, atol=1e-6)


class Sketched(NamedTuple):
    """A table of one segment whose fine codes are all alike, so that sketches alone decide what is left."""

    frame: Frame
    sketches: Sketches
    sample: NDArray[np.int64]
    codes: FineCodes
    query: NDArray[np.float32]

    def left(
        self, second: int, mask: NDArray[np.bool_], given: NDArray[np.int64] | None, wanted: float = 0.0
    ) -> list[int]:
        """The slots that are left after two rounds, by the compiled call."""
        count, dim = self.codes.high.shape
        frame = (
            self.frame.axes,
            self.frame.mean,
            float(self.frame.gain[0]),
            vector_search.STEP,
            vector_search.MEAN_SIZE,
            vector_search.BITS,
        )
        sampled = (*self.sketches.stretch(slice(None, None, 3)), self.sample)
        sampled = (*(np.ascontiguousarray(each) for each in sampled),)
        admitted = int(np.count_nonzero(mask))
        table = table_of(count, vectors=((0, count, *self.sketches, *self.codes),), dim=dim)
        table.frame((*frame, *sampled))
        rounds = (True, wanted, float(max(admitted, 1)), admitted < count, second, max(count, 1), count)
        return nearest(table, self.query, mask, given, rounds)


def table_of(
    count: int, words: Any = (), vectors: Any = (), dim: int = 0, live: int = 0, **other: Any
) -> Any:
    """A compiled table whose rows are its slots."""
    rows, base = other.get("rows", np.arange(count)), other.get("base", count)
    return native.Table(count, base, live or count, rows, words, vectors, dim, None)


def nearest(
    table: Any, query: NDArray[np.float32], mask: Any, given: Any, rounds: tuple[Any, ...]
) -> list[int]:
    """The rows that a compiled table gives for a query in the turned axes."""
    packed = query.astype(np.float64).tobytes() + query.tobytes()
    slots, scores, _ = room_for(rounds[-1])
    found, words = table.pool([], None, None, mask, 0, (packed, 1.0, given, rounds), slots, scores, _)
    assert words == 0
    return slots[:found].tolist()


def room_for(count: int) -> tuple[Any, Any, Any]:
    """Slots, scores by words and cosines, to be written."""
    return np.empty(count, np.int64), np.empty(count, np.float32), np.empty(count, np.float32)


def sketched(rng: np.random.Generator, words: int, count: int) -> Sketched:
    axes = words * 64
    codes = encode(np.ones((count, axes), np.float32))
    planes = rng.integers(0, 2**64, (words, count), dtype=np.uint64)
    spread = rng.random(count, dtype=np.float32)
    bias = np.where(rng.random(count) < 0.1, -np.inf, rng.standard_normal(count)).astype(np.float32)
    frame = Frame(np.zeros(axes, np.float32), np.eye(axes, dtype=np.float32), np.ones(1, np.float32))
    query = rng.standard_normal(axes).astype(np.float32)
    return Sketched(frame, Sketches(planes, spread, bias), np.arange(0, count, 3), codes, query)


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 7, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("masked", [False, True])
def test_the_first_two_rounds_leave_what_numpy_leaves(words: int, count: int, masked: bool) -> None:
    rng = np.random.default_rng(words * count)
    table = sketched(rng, words, count)
    probe = vector_search.make_probe(table.frame, table.query)
    table.sketches.planes[:, 0] = ~probe.signs[0]  # every sign differs
    mask = rng.random(count) < 0.5 if masked else np.ones(count, bool)
    steps = vector_search._Steps()
    agreement = steps._agreeing(table.sketches.planes, probe.signs[0], count).copy()
    ranked = steps._first_round(table.sketches, probe, agreement).copy()
    admitted = int(np.count_nonzero(mask))
    for share in (0.02, 0.3, 1.0):
        wanted, second = share * admitted, max(1, count // 9)
        values = ranked[table.sample][mask[table.sample]]
        above = min(len(values), max(1, round(len(values) * wanted / max(admitted, 1))))
        bar = vector_search._reached(values, above) if above else -np.inf
        local = np.flatnonzero((ranked >= bar) & mask)
        estimates = steps._second_round(table.sketches, probe, local, agreement)
        assert_best(table.left(second, mask, None, wanted), local, estimates, second)
    some = np.sort(rng.permutation(count)[: count // 2 + 1])
    estimates = steps._second_round(table.sketches, probe, some, None)
    assert_best(table.left(second, mask, some), some, estimates, second)


def assert_best(found: list[int], slots: NDArray[np.int64], values: NDArray[np.float32], wanted: int) -> None:
    """The slots of the best so many values; those that nearly tie with the last may be there or not."""
    if len(slots) <= wanted:
        assert found == slots.tolist()
        return
    bar = np.sort(values)[-wanted]
    near = 1e-4 * max(1.0, abs(float(bar))) if np.isfinite(bar) else 0.0
    assert set(slots[values > bar + near].tolist()) <= set(found) <= set(slots[values >= bar - near].tolist())
    assert len(found) >= wanted - int(np.count_nonzero(np.abs(values - bar) <= near))


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("dim", [1, 15, 16, 17, 63, 64, 65, 256, 1000, 5000])
def test_coarse_products_leave_the_best_up_to_rounding(dim: int) -> None:
    rng = np.random.default_rng(dim)
    codes = FineCodes(
        rng.integers(-127, 128, (50, dim), dtype=np.int8),
        np.zeros((50, dim - dim // 2), np.uint8),
        rng.random(50, dtype=np.float32) + np.float32(0.1),
    )
    query = rng.standard_normal(dim).astype(np.float32)
    for vector in (query, np.full(dim, -1.0, np.float32)):
        codes.high[0] = np.where(vector > 0, 127, -127)  # the largest sum there is
        given = np.concatenate([[0], np.sort(rng.permutation(49)[:20] + 1)])
        table = table_of(50, vectors=((0, 50, None, None, None, *codes),), dim=dim)
        out = nearest(table, vector, np.ones(50, bool), given, (False, 0.0, 1.0, False, 1, 8, 50))
        exact = (codes.high[given].astype(np.float64) @ vector) * codes.scale[given]
        size = 127 * float(np.abs(vector).max()) * dim**0.5 * (1e-4 if dim < 500 else 1e-3)
        bar = np.sort(exact)[-8]
        assert set(given[exact > bar + 2 * size]) <= set(out)
        assert set(out) <= set(given[exact >= bar - 2 * size])


def coded(rng: np.random.Generator, count: int, dim: int) -> FineCodes:
    """Random rows and hostile ones: none, and all of one size."""
    rows = rng.standard_normal((count, dim)).astype(np.float32)
    rows[0] = 0
    rows[1] = 1
    return encode(rows)


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("dim", DIMS)
def test_queries_and_cosines_are_exact(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(dim)
    codes = coded(rng, 40, dim)
    places = np.sort(rng.permutation(40)[:35])
    vectors = [rng.standard_normal(dim) for _ in range(5)]
    vectors += [np.ones(dim), np.eye(dim)[0], rng.standard_normal(dim) * 10.0 ** -np.arange(dim)]
    table = table_of(40, vectors=((0, 40, None, None, None, *codes),), dim=dim)
    for vector in vectors:
        asked, length = vector.astype(np.float32), float(np.linalg.norm(vector))
        monkeypatch.setattr(runtime, "native", None)
        query = turned(asked, length)
        monkeypatch.setattr(runtime, "native", native)
        compiled, single = turn_one(asked, length)
        unit = unit_of_one(dim)
        np.testing.assert_allclose(compiled / unit, query.steps / unit, atol=1e-6)
        np.testing.assert_allclose(single, query.single, atol=1e-6)
        slots, words, cosines = room_for(40)
        near = packed(asked, length), query.worth, places, (False, 0.0, 1.0, False, 1, 40, 40)
        found, _ = table.pool([], None, None, None, 0, near, slots, words, cosines)
        known = places[codes.scale[places] > 0]
        assert slots[:found].tolist() == known.tolist()
        exact = original(codes, known).astype(np.float64) @ (vector / np.linalg.norm(vector))
        np.testing.assert_allclose(cosines[:found], fine_cosines(codes, known, query), atol=1e-6)
        np.testing.assert_allclose(cosines[:found], exact, atol=2e-3 if dim > 500 else 2e-4)


VALUES = st.lists(
    st.one_of(
        st.floats(width=32, allow_nan=False),
        st.sampled_from([0.0, -0.0, 1.0, 1.0000001, -np.inf, np.inf, 1e-45, -1e-45, 3.4e38]),
        st.floats(0.25, 0.5, width=32),
    ),
    min_size=1,
    max_size=200,
)


@pytest.mark.parametrize("name", native.generations())
@settings(max_examples=150, deadline=None)
@given(values=VALUES, times=st.sampled_from([1, 40]), share=st.floats(0, 1))
def test_the_best_are_those_that_sorting_gives(
    name: str, values: list[float], times: int, share: float
) -> None:
    native.use(name)
    given = np.array(values * times, dtype=np.float32)
    count, wanted = len(given), 1 + int(share * (len(given) - 1))
    table = sketched(np.random.default_rng(0), 1, count)
    table.sketches.spread.fill(0)
    table.sketches.bias[:] = given  # what a row reaches in the second round is then this very number
    least = np.sort(given)[count - wanted]
    assert (
        table.left(wanted, np.ones(count, bool), np.arange(count)) == np.flatnonzero(given >= least).tolist()
    )
    native.use(native.generations()[-1])


def worded(rng: np.random.Generator, small: Any, base: int, keys: list[int]) -> tuple[Any, ...]:
    """A segment of ninety rows from `base` on: forty hold the first key, none the second, seventy the third."""
    docs = np.concatenate([np.sort(rng.permutation(90)[:size]) for size in (40, 0, 70)]).astype(np.uint32)
    impacts = rng.random(9, dtype=np.float32)
    impacts[4] = 0  # gives nothing, so it is no match
    terms = np.array(keys, np.uint64), np.array([0, 40, 40, 110]), None
    return base, terms, docs, rng.integers(0, 9, 110).astype(small), impacts


@pytest.mark.parametrize("small", [np.uint16, np.uint32])
@pytest.mark.parametrize("tied", [False, True])
def test_scores_are_added_in_order_part_by_part(small: Any, tied: bool) -> None:
    rng = np.random.default_rng(3)
    keys = [7, 8, 9]
    parts = worded(rng, small, 0, keys), worded(rng, small, 90, keys)
    own, docs = rng.random(40, dtype=np.float32), np.sort(rng.permutation(60)[:40]).astype(np.uint32)
    table = table_of(800, parts, base=180, live=400)
    factors = [0.1, 1.0, 0.1 * float(idf(400, [80 + 40])[0]) / float(idf(400, [140])[0])] if tied else None
    rarity = idf(400, np.array([120, 0, 140])) * np.array(factors or [1.0] * 3)
    worths = rarity.astype(np.float32)
    for _ in range(2):  # what the first one added is taken back
        expected = np.zeros(800, np.float32)
        for place in np.lexsort((keys, -worths)):
            for base, (_, offsets, _), rows, classes, impacts in parts:
                stretch = slice(offsets[place], offsets[place + 1])
                np.add.at(expected[base:], rows[stretch], impacts[classes[stretch]] * worths[place])
        np.add.at(expected[180:], docs, own * worths[0])
        slots, scores, cosines = room_for(800)
        tail = [40, 0, 0], docs, own
        found, total = table.pool(keys, factors, tail, None, 800, None, slots, scores, cosines)
        assert found == total
        assert slots[:found].tolist() == np.flatnonzero(expected).tolist()
        np.testing.assert_allclose(scores[:found], expected[expected > 0], rtol=1e-5)
        assert np.isnan(cosines[:found]).all()
        assert table.pool([1, 2], None, None, None, 800, None, slots, scores, cosines) == (0, 0)


@pytest.mark.parametrize("k", [0, 1, 7, 50, 1000])
@pytest.mark.parametrize("masked", [False, True])
def test_the_best_by_words_come_in_the_order_of_their_rows(k: int, masked: bool) -> None:
    rng = np.random.default_rng(k)
    docs = np.sort(rng.permutation(500)[:300]).astype(np.uint32)
    classes, impacts = rng.integers(0, 30, 300).astype(np.uint16), np.arange(1, 31, dtype=np.float32)
    rows = rng.permutation(500)  # and many ties
    terms = np.array([5], np.uint64), np.array([0, 300]), None
    table = table_of(500, ((0, terms, docs, classes, impacts),), rows=rows)
    mask = rng.random(500) < 0.4 if masked else None
    slots, words, cosines = room_for(min(k, 500))
    found, total = table.pool([5], None, None, mask, k, None, slots, words, cosines)
    admitted = docs[mask[docs]] if mask is not None else docs
    assert total == len(admitted)
    worth = np.float32(idf(500, [300])[0])
    scores = np.zeros(500, np.float32)
    scores[docs] = impacts[classes] * worth
    best = admitted[np.lexsort((rows[admitted], -scores[admitted]))[:k]]
    best = best[np.argsort(rows[best])]
    assert slots[:found].tolist() == best.tolist()
    np.testing.assert_allclose(words[:found], scores[best], rtol=1e-6)


def test_a_table_takes_over_the_memory_of_the_one_before_and_holds_its_own_arrays() -> None:
    rng = np.random.default_rng(4)
    part = worded(rng, np.uint16, 0, [7, 8, 9])
    first = table_of(90, (part,))
    held = sys.getrefcount(part[2])
    slots, scores, cosines = room_for(90)

    def found(table: Any) -> tuple[list[int], list[float]]:
        count, _ = table.pool([7, 9], None, None, None, 90, None, slots, scores, cosines)
        return slots[:count].tolist(), scores[:count].tolist()

    wanted = found(first)
    second = native.Table(90, 90, 90, np.arange(90), (part,), (), 0, first)
    both = sys.getrefcount(part[2])
    assert both == held + 1
    for table in (second, first):  # the first one has to begin anew
        assert found(table) == wanted
    del first, second, table
    neither = sys.getrefcount(part[2])
    assert neither == held - 1


def test_the_environment_leaves_the_core_out_or_insists_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runtime.SWITCH, "0")
    assert runtime.load_core() is None
    monkeypatch.setenv(runtime.SWITCH, "1")
    assert runtime.load_core() is native
    with monkeypatch.context() as patch:
        patch.setattr(sys, "byteorder", "big")
        assert runtime.load_core() is None
