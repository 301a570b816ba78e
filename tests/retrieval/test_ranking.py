"""Signals, places and order are the same with and without the compiled loops, which look at every array first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.embedding.calibration import Calibration
from skep.errors import ConfigError
from skep.index.index import Pool
from skep.retrieval import score as score_module
from skep.retrieval.candidates import COLUMNS, Columns, found_in, rated
from skep.retrieval.recall_config import RecallConfig

NAN, INFINITY = float("nan"), float("inf")
FEW = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0, 3.0])
COSINES = st.one_of(FEW, st.just(NAN), st.just(-INFINITY), st.floats(-2, 2))
SCORES = st.one_of(FEW, st.just(NAN), st.floats(-5, 5))
MANY = 5000


def in_numpy(call: Any, *given: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "native", None)
        return call(*given)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(one) == list(other)
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])


@given(st.lists(st.tuples(st.one_of(FEW, st.floats(-2, 9)), COSINES), min_size=1, max_size=40))
def test_signals_are_the_same_in_one_pass(native: Any, pairs: list[tuple[float, float]]) -> None:
    words, cosine = (np.array(values) for values in zip(*pairs, strict=True))

    for mine, theirs in zip(
        score_module.by_query(words, cosine), in_numpy(score_module.by_query, words, cosine), strict=True
    ):
        assert_same(mine, theirs)
    np.testing.assert_array_equal(
        score_module.stretched(cosine[cosine > -3]), in_numpy(score_module.stretched, cosine[cosine > -3])
    )


def test_signals_are_left_out_where_nothing_has_them(native: Any) -> None:
    nothing, somewhere = np.array([0.0, -1.0]), np.array([NAN, NAN])

    def measured(words: Any, cosine: Any) -> dict[str, list[float]]:
        return {name: values.tolist() for name, values in score_module.by_query(words, cosine)[0].items()}

    assert measured(nothing, somewhere) == in_numpy(measured, nothing, somewhere) == {}
    assert measured(np.array([0.0, 2.0]), somewhere) == {"lexical": [0.0, 1.0]}
    assert measured(nothing, np.array([NAN, 2.0])) == {"semantic": [0.0, 1.0]}
    assert score_module.stretched(np.array([NAN, 2.0, 2.0])).tolist() == [0.0, 0.0, 0.0]


@given(st.lists(COSINES, max_size=60))
def test_places_are_the_same_in_one_pass(native: Any, values: list[float]) -> None:
    assert score_module.ranks(values).tolist() == in_numpy(score_module.ranks, values).tolist()


def test_what_is_no_number_shares_the_last_place(native: Any) -> None:
    values = [NAN, 2.0, -INFINITY, 2.0, 1.0, NAN]

    assert (
        score_module.ranks(values).tolist()
        == in_numpy(score_module.ranks, values).tolist()
        == [4, 1, 4, 1, 3, 4]
    )


@given(st.lists(st.tuples(SCORES, FEW, FEW), max_size=60), st.randoms(use_true_random=False))
def test_the_order_is_the_same_in_one_pass(
    native: Any, each: list[tuple[float, float, float]], draw: Any
) -> None:
    score = np.array([one for one, _, _ in each])
    importance, created_at = np.array([one for _, one, _ in each]), np.array([one for _, _, one in each])
    rows, at = (np.array(draw.sample(range(len(each)), len(each)), dtype=np.int64) for _ in range(2))
    some = len(each) // 2
    for count in (len(each), some):
        given = (score[:count], at[:count], importance, created_at, rows)
        mine, theirs = score_module.best_first(*given), in_numpy(score_module.best_first, *given)

        assert mine[0].tolist() == theirs[0].tolist()
        np.testing.assert_array_equal(mine[1], theirs[1])


@given(
    st.lists(st.one_of(COSINES, st.floats(-1, 1)), max_size=60), st.lists(st.floats(-0.99, 0.99), max_size=5)
)
def test_knots_give_the_same_scale(native: Any, cosines: list[float], knots: list[float]) -> None:
    inner = sorted({round(knot, 3) for knot in knots})
    scale = Calibration([(knot, knot / 2) for knot in inner])
    given = np.array([*cosines, *inner, 1.0, -1.0, INFINITY], dtype=np.float32)

    for each in (given, given[::2], given[:, None], given[:0], given.astype(">f4")):
        np.testing.assert_array_equal(scale.many(each), in_numpy(scale.many, each))


WEIGHTS = st.sampled_from([0.0, 0.2, 1, 3.0])


@given(
    st.lists(st.tuples(st.one_of(FEW, st.floats(-2, 9)), COSINES, FEW, FEW), min_size=1, max_size=40),
    st.tuples(WEIGHTS, WEIGHTS).filter(any),
    st.sampled_from([-1, 1, 60]),
)
def test_two_signals_are_ranked_alike_in_one_call(
    native: Any, given: list[tuple[float, ...]], weights: tuple[float, float], k: int
) -> None:
    words, cosine, importance, created_at = (np.array(values) for values in zip(*given, strict=True))
    named = {name: w for name, w in zip(("lexical", "semantic"), weights, strict=True) if w}
    config = RecallConfig(fusion="weighted" if k < 0 else "rrf", weights=named, rrf_k=max(k, 1))
    rest = np.full(len(words), NAN), np.full(len(words), -1)
    columns = Columns(
        np.arange(len(words)), words, cosine, created_at, importance, *(rest[0],) * 2, *(rest[1],) * 2
    )
    call: Any = SimpleNamespace(config=config, trace=None, shown=True)

    mine, theirs = rated(columns, call), in_numpy(rated, columns, call)

    assert_same(mine.measured, theirs.measured)
    assert_same(mine.places, theirs.places)
    assert mine.at.tolist() == theirs.at.tolist()
    assert mine.score.tobytes() == theirs.score.tobytes()

    call.shown = False
    alone = rated(columns, call)
    assert (alone.measured, alone.places) == ({}, {})
    assert alone.at.tolist() == theirs.at.tolist()
    assert alone.score.tobytes() == theirs.score.tobytes()


@given(
    st.lists(st.tuples(st.one_of(FEW, st.floats(-2, 9)), COSINES, FEW, FEW), max_size=40),
    st.sampled_from([(1.0, 1.0), (0.3, 0.0), (0.0, 2.0), (0.4, 0.6)]),
    st.sampled_from([-1, 1, 60]),
    st.sampled_from([(), ((0.2, 0.0), (0.7, 0.8))]),
    st.booleans(),
)
def test_a_pool_of_the_index_is_ranked_as_its_columns_are(
    native: Any,
    given: list[tuple[float, ...]],
    weights: tuple[float, float],
    k: int,
    knots: tuple[Any, ...],
    by_meaning: bool,
) -> None:
    lines = np.empty((7, len(given)))
    lines[0].view(np.int64)[:] = np.arange(len(given))[::-1]
    for line, values in zip((1, 6, 2, 5), zip(*given, strict=True), strict=False):
        lines[line] = np.array(values, np.float32)
    lines[3:5] = 0.25
    if not by_meaning:
        lines[6] = NAN
    scale = Calibration(knots)
    pool = Pool(lines, 0, 0)
    named = {name: w for name, w in zip(("lexical", "semantic"), weights, strict=True) if w}
    config = RecallConfig(fusion="weighted" if k < 0 else "rrf", weights=named, rrf_k=max(k, 1))
    fusing = score_module.by_query_alone(config.fusion, config.weights, config.rrf_k)
    sources = SimpleNamespace(calibrate=scale.many)
    vector = np.ones(1, np.float32) if by_meaning else None
    for shown in (True, False):
        call: Any = SimpleNamespace(
            config=config, trace=None, shown=shown, fusing=fusing, sources=sources, vector=vector
        )
        pool.scale = None  # so that each step is taken by itself
        theirs = in_numpy(found_in, pool, call)
        pool.scale = scale.lines
        mine = found_in(pool, call)
        assert mine.at.tolist() == theirs.at.tolist()
        assert mine.score.tobytes() == theirs.score.tobytes()
        for name in COLUMNS:
            assert getattr(mine.columns, name).tobytes() == getattr(theirs.columns, name).tobytes()
        if shown:
            assert_same(mine.measured, theirs.measured)
            assert_same(mine.places, theirs.places)
    with pytest.raises(AttributeError):
        _ = mine.columns.nothing


@pytest.mark.parametrize("weights", [{"lexical": -1.0}, {"semantic": NAN}, {"semantic": INFINITY}, {}])
def test_weights_that_cannot_rank_are_refused_by_both(native: Any, weights: dict[str, float]) -> None:
    columns = Columns(*(np.ones(2) for _ in range(7)), np.full(2, -1), np.full(2, -1))
    config = RecallConfig(fusion="weighted")
    config.weights.clear()  # none is built like that
    config.weights.update(weights)
    call: Any = SimpleNamespace(config=config, trace=None, shown=True)
    for answer in (rated, lambda *given: in_numpy(rated, *given)):
        with pytest.raises(ConfigError):
            answer(columns, call)


@pytest.mark.parametrize("k", [-1, 60])
def test_an_order_of_many_is_the_same_alone(native: Any, k: int) -> None:
    draw = np.random.default_rng(4)
    words, cosine = draw.integers(0, 40, MANY) / 8, draw.random(MANY)
    ties = draw.integers(0, 3, MANY) / 2, draw.random(MANY), draw.permutation(MANY)
    given = (words, cosine, (0.3, 0.7), k, *ties)
    shown, alone = score_module.ranked(*given, shown=True), score_module.ranked(*given, shown=False)

    assert alone[2].tolist() == shown[2].tolist()
    assert alone[3].tobytes() == shown[3].tobytes()


def test_many_are_sorted_alike(native: Any) -> None:
    draw = np.random.default_rng(3)
    score, importance = draw.integers(0, 40, MANY) / 8, draw.integers(0, 3, MANY) / 2
    created_at, rows = draw.integers(0, 9, MANY).astype(np.float64), draw.permutation(MANY)
    given = (score, np.arange(MANY), importance, created_at, rows)

    assert score_module.ranks(score).tolist() == in_numpy(score_module.ranks, score).tolist()
    assert (
        score_module.best_first(*given)[0].tolist() == in_numpy(score_module.best_first, *given)[0].tolist()
    )


FLOATS, INTS, SINGLES = np.zeros(4), np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.float32)
WRONG = {
    "rates": (
        [FLOATS, FLOATS, np.zeros((2, 4)), np.zeros((2, 4), dtype=np.int64)],
        [
            (1, FLOATS[:3]),
            (2, np.zeros((1, 4))),
            (2, np.zeros((2, 3))),
            (2, FLOATS),
            (3, np.zeros((2, 3), dtype=np.int64)),
            (3, np.zeros((1, 4), dtype=np.int64)),
        ],
    ),
    "stretch": ([FLOATS, FLOATS.copy()], [(1, FLOATS[:3]), (0, FLOATS.astype(np.float32))]),
    "read_off": (
        [SINGLES, FLOATS, FLOATS, FLOATS[:3], SINGLES.copy()],
        [(0, FLOATS), (1, FLOATS[:1]), (2, FLOATS[:3]), (3, FLOATS[:2]), (4, SINGLES[:3])],
    ),
    "between": (
        [SINGLES, FLOATS, FLOATS, SINGLES.copy()],
        [(0, FLOATS), (1, FLOATS[:1]), (1, SINGLES), (2, FLOATS[:3]), (3, SINGLES[:3]), (3, FLOATS)],
    ),
    "rank": (
        [
            *(FLOATS, FLOATS, (1.0, 1.0), 60, FLOATS, FLOATS, INTS),
            *(np.zeros((2, 4)), np.zeros((2, 4), dtype=np.int64), INTS.copy(), FLOATS.copy()),
        ],
        [
            (0, SINGLES),
            (1, FLOATS[:3]),
            (4, FLOATS[:3]),
            (5, FLOATS[:3]),
            (6, INTS[:3]),
            (7, np.zeros((1, 4))),
            (7, np.zeros((2, 3))),
            (8, np.zeros((2, 3), dtype=np.int64)),
            (8, INTS),
            (9, INTS[:3]),
            (10, FLOATS[:3]),
        ],
    ),
    "places": ([FLOATS, INTS.copy()], [(1, INTS[:3]), (0, np.zeros(8)[::2]), (0, np.zeros((2, 2)))]),
    "ordered": (
        [FLOATS, INTS, FLOATS, FLOATS, INTS, INTS.copy(), FLOATS.copy()],
        [
            (1, INTS[:3]),
            (1, INTS - 1),
            (1, INTS + 4),
            (2, FLOATS[:3]),
            (3, FLOATS[:3]),
            (5, INTS[:3]),
            (6, FLOATS[:3]),
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_arrays_of_other_shapes_are_refused(native: Any, name: str) -> None:
    right, wrong = WRONG[name]
    call = getattr(native, name)
    call(*right)
    with pytest.raises(TypeError):
        call(*right[:-1])
    for place, value in wrong:
        with pytest.raises((ValueError, IndexError)):
            call(*right[:place], value, *right[place + 1 :])
