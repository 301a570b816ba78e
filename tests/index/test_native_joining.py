"""Compiled joins and word sums: the same pairs and the same rows as with numpy, on whatever processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.index.bank import FakeBank, Filter

from skep import runtime
from skep.index import neighbour_join
from skep.index.index import SegmentIndex

native: Any = runtime.native
if native is None:
    pytest.skip("needs the compiled core", allow_module_level=True)
ROWS = 3000
WHOLE = {3: 1, 4: 2}
"""The ways that go without a lens, as `cross` counts them."""


class Chosen:
    """The compiled loops of one generation of processors."""

    def __init__(self, way: int) -> None:
        self.way, self.calls = way, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(native, name)

    def join(self, *given: Any) -> tuple[int, int]:
        self.calls += 1
        found: tuple[int, int] = native.join(*given[:-1], self.way)
        return found

    def crossing(self) -> int:
        return WHOLE.get(self.way, 0)

    def cross(self, *given: Any) -> tuple[int, int]:
        self.calls += 1
        found: tuple[int, int] = native.cross(*given)
        return found


def _needs(way: int) -> None:
    if native.crossing() < way:
        pytest.skip("this processor does not know that way")


def filled(dim: int, rng: np.random.Generator) -> SegmentIndex:
    """Rows around some centres, a few of them almost the same; some without a vector, some in the tail."""
    bank = FakeBank(dim)
    index = SegmentIndex(None, bank)
    centres = rng.standard_normal((ROWS // 6, dim))
    for row in range(1, ROWS + 1):
        vector = centres[row % len(centres)] + rng.standard_normal(dim) * (0.2 + 0.6 * rng.random())
        if row == ROWS - 40:
            index.refresh()
        bank.put(row, vector=None if row % 17 == 0 else vector, text=f"room {row % 50} of {row % 7} houses")
    index.refresh()
    return index


@pytest.mark.parametrize("dim", [131, 256, 320])
@pytest.mark.parametrize("way", [0, 1, 2, *WHOLE])
def test_no_pair_is_lost_and_none_is_added(dim: int, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs(WHOLE.get(way, 0))
    monkeypatch.setattr(neighbour_join, "WASTE", 1.0)
    monkeypatch.setattr(neighbour_join, "ROOM", 20_000)
    index = filled(dim, np.random.default_rng(dim))
    rows = np.arange(1, 1201, dtype=np.int64)
    answers: list[tuple[list[int], list[int], list[float]]] = []
    loops = Chosen(way)
    for some, few in ((None, 10**9), (loops, 400)):  # numpy looks at every pair in full
        monkeypatch.setattr(runtime, "native", some)
        monkeypatch.setattr(neighbour_join, "FEW", few)
        found = index.near_pairs(rows, Filter(), least=0.8, most=10)
        answers.append((found.asked.tolist(), found.rows.tolist(), found.cosine.tolist()))
    assert loops.calls
    assert len(answers[0][0]) > 1000
    assert answers[0] == answers[1]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_what_has_no_room_is_looked_at_in_the_next_call(count: int) -> None:
    rng = np.random.default_rng(count)
    codes = rng.integers(-127, 128, (count, 32), dtype=np.int8)
    queries = rng.standard_normal((3, 32)).astype(np.float32)
    small = _everything(queries)
    columns, found = np.empty(48, np.int64), np.empty(48, np.int64)
    pairs: list[tuple[int, int]] = []
    left = np.arange(count)
    while len(left):
        done, here = native.join(codes, np.ones(count, np.float32), left, *small, queries, columns, found, -1)
        assert done == min(len(left), 16)
        pairs += zip(columns[:here].tolist(), found[:here].tolist(), strict=True)
        left = left[done:]
    assert sorted(pairs) == [(query, row) for query in range(3) for row in range(count)]


@pytest.mark.parametrize("asked", [1, 31, 33])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("way", WHOLE.values())
def test_whole_rows_without_room_are_looked_at_in_the_next_call_too(count: int, asked: int, way: int) -> None:
    _needs(way)
    rng = np.random.default_rng(count)
    codes = rng.integers(-127, 128, (count, 70), dtype=np.int8)
    queries = rng.standard_normal((asked, 70)).astype(np.float32)
    seen, numbers, _ = neighbour_join.Steps.of(queries, -1e9, way)
    columns, found = np.empty(64 * asked, np.int64), np.empty(64 * asked, np.int64)
    pairs: list[tuple[int, int]] = []
    left = np.arange(count)
    while len(left):
        done, here = native.cross(
            codes, np.ones(count, np.float32), left, seen, numbers, queries, columns, found, way
        )
        assert done == min(len(left), 64)
        pairs += zip(columns[:here].tolist(), found[:here].tolist(), strict=True)
        left = left[done:]
    assert sorted(pairs) == [(query, row) for query in range(asked) for row in range(count)]


@pytest.mark.parametrize("least", [0.0, 0.7, 0.9])
@pytest.mark.parametrize("way", WHOLE.values())
def test_whole_rows_pass_where_their_codes_say_so(least: float, way: int) -> None:
    _needs(way)
    rng = np.random.default_rng(7)
    codes = rng.integers(-127, 128, (90, 64), dtype=np.int8)
    codes[3] = 0
    scale = (1 / np.maximum(np.linalg.norm(codes.astype(np.float32), axis=1), 1)).astype(np.float32)
    scale[3] = 0
    queries = codes[:40] * scale[:40, None] + rng.standard_normal((40, 64)).astype(np.float32) * 0.03
    queries /= np.maximum(np.linalg.norm(queries, axis=1), 1e-9)[:, None]
    seen, numbers, _ = neighbour_join.Steps.of(queries, least, way)
    room, other = np.empty((2, 64 * 40), np.int64)
    places: list[tuple[int, int]] = []
    left = np.arange(90)
    while len(left):
        done, here = native.cross(codes, scale, left, seen, numbers, queries, room, other, way)
        places += zip(room[:here].tolist(), other[:here].tolist(), strict=True)
        left = left[done:]
    reach = (queries @ codes.T.astype(np.float32) + np.float32(neighbour_join.LOW * 8)) * scale
    sure, maybe = (np.argwhere(reach >= least - neighbour_join.ROUNDED + by) for by in (1e-5, -1e-5))
    assert {*map(tuple, sure.tolist())} <= set(places) <= {*map(tuple, maybe.tolist())}
    assert len(sure) >= 39


def _everything(queries: NDArray[np.float32]) -> neighbour_join.Small:
    """A lens through which everything is near."""
    axes = np.linalg.qr(np.random.default_rng(1).standard_normal((32, 16)))[0].astype(np.float32)
    lens = neighbour_join.Lens(np.hstack([axes, np.zeros((32, 2), np.float32)]))
    return neighbour_join.Small.of(lens, queries, -1e9)


def test_words_are_summed_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(16, np.random.default_rng(2))
    queries = [[], ["nobody"], ["room"], ["room", "houses", "3"], ["49", "6", "room", "49"]]
    answers: list[list[list[int]]] = []
    for loops in (None, native):
        monkeypatch.setattr(runtime, "native", loops)
        answers.append([rows.tolist() for rows in index.best_by_words(queries, Filter(), 9)])
    assert answers[0] == answers[1]
    assert [len(rows) for rows in answers[0]] == [0, 0, 9, 9, 9]


def test_wrong_arrays_are_refused_before_anything_is_read() -> None:
    codes, scale, places = np.zeros((4, 32), np.int8), np.ones(4, np.float32), np.arange(4)
    queries = np.eye(3, 32, dtype=np.float32)
    small = _everything(queries)
    room = np.empty(48, np.int64)
    good: list[Any] = [codes, scale, places, *small, queries, room, room.copy(), -1]
    assert native.join(*good) == (4, 12)
    wrong: list[tuple[int, Any]] = [
        (0, codes[:, :31]),
        (1, scale[:3]),
        (2, np.array([4])),
        (2, np.array([-1])),
        (3, small.axes[:, :8]),
        (3, small.axes[:-1]),
        (3, np.zeros((16, 32, 2), np.int16)[:, ::2]),
        (4, small.numbers[:5]),
        (5, small.seen[:2]),
        (6, small.worth[:, :2]),
        (7, queries[:, :31]),
        (8, room[:47]),
        (9, room[:47]),
    ]
    for place, value in wrong:
        with pytest.raises((ValueError, IndexError)):
            native.join(*good[:place], value, *good[place + 1 :])
    if native.crossing():
        steps, wide = neighbour_join.Steps.of(queries, -1e9, 1), np.empty(192, np.int64)
        good = [codes, scale, places, steps.seen, steps.numbers, queries, wide, wide.copy(), 1]
        assert native.cross(*good) == (4, 12)
        wrong = [
            (0, codes[:, :31]),
            (1, scale[:3]),
            (2, np.array([4])),
            (2, np.array([-1])),
            (3, steps.seen[:2]),
            (3, steps.seen[:, :31]),
            (3, np.zeros((3, 64), np.int8)[:, :32]),
            (4, steps.numbers[:3]),
            (5, queries[:, :31]),
            (6, wide[:191]),
            (7, wide[:191]),
            (8, 0),
            (8, 3),
        ]
        for place, value in wrong:
            with pytest.raises((ValueError, IndexError)):
                native.cross(*good[:place], value, *good[place + 1 :])
    docs, classes, impacts = np.array([0, 1, 0], np.uint32), np.zeros(3, np.uint16), np.ones(1, np.float32)
    starts, sizes, worth = np.array([0, 2]), np.array([2, 1]), np.ones(2, np.float32)
    terms, edges, mask = np.array([0, 1]), np.array([0, 2]), np.ones(3, bool)
    rows, scores = np.array([6, 5, 4]), np.zeros(3, np.float32)
    out, reached, found = np.empty((1, 2), np.int64), np.empty((1, 2), np.float32), np.zeros(1, np.int64)
    good = [
        docs,
        classes,
        impacts,
        starts,
        sizes,
        worth,
        1,
        terms,
        edges,
        mask,
        rows,
        scores,
        out,
        reached,
        found,
    ]
    native.match(*good)
    assert (out.tolist(), reached.tolist(), found.tolist()) == ([[1, 2]], [[2.0, 1.0]], [2])
    assert not scores.any()
    wrong = [
        (0, np.array([0, 2, 0], np.uint32)),  # a slot that is not there
        (1, np.ones(3, np.uint16)),  # a class that is not there
        (1, np.zeros(2, np.uint32)),
        (1, np.zeros(3, np.float64)),
        (3, np.array([0, 3])),
        (3, np.array([-1, 2])),
        (4, np.array([2, -1])),
        (4, sizes[:1]),
        (5, worth[:1]),
        (6, -1),
        (7, np.array([0, 2])),
        (8, np.array([0, 3])),
        (8, np.array([2, 0])),
        (9, mask[:2]),
        (10, rows[:2]),
        (12, out[:, :0]),
        (13, reached[:, :1]),
        (14, found[:0]),
        (14, np.array([3])),
    ]
    for place, value in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            native.match(*good[:place], value, *good[place + 1 :])
    for call in (native.join, native.cross, native.match):
        with pytest.raises(TypeError, match="arguments"):
            call()
