"""The compiled neighbour join finds the pairs that numpy finds, on every generation of processors."""

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


class Counted:
    """The compiled core, and how often it joined."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(native, name)

    def join(self, *given: Any) -> tuple[int, int]:
        self.calls += 1
        found: tuple[int, int] = native.join(*given)
        return found


@pytest.mark.parametrize("dim", [131, 256, 320])
@pytest.mark.parametrize("generation", native.generations())
def test_no_pair_is_lost_and_none_is_added(
    dim: int, generation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbour_join, "WASTE", 1.0)
    monkeypatch.setattr(neighbour_join, "ROOM", 20_000)
    index = filled(dim, np.random.default_rng(dim))
    rows = np.arange(1, 1201, dtype=np.int64)
    answers: list[dict[tuple[int, int], float]] = []
    loops = Counted()
    native.use(generation)
    for some, few in ((None, 10**9), (loops, 400)):  # numpy looks at every pair in full
        monkeypatch.setattr(runtime, "native", some)
        monkeypatch.setattr(neighbour_join, "FEW", few)
        found = index.near_pairs(rows, Filter(), least=0.8, most=1000)
        pairs = zip(found.asked.tolist(), found.rows.tolist(), strict=True)
        answers.append(dict(zip(pairs, found.cosine.tolist(), strict=True)))
    native.use(native.generations()[-1])
    assert loops.calls
    assert len(answers[0]) > 1000
    for pair in answers[0].keys() ^ answers[1].keys():  # rounding decides about pairs at the bar
        assert (answers[0] | answers[1])[pair] == pytest.approx(0.8, abs=1e-5)
    for pair in answers[0].keys() & answers[1].keys():
        assert answers[0][pair] == pytest.approx(answers[1][pair], abs=1e-5)


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
        done, here = native.join(codes, np.ones(count, np.float32), left, *small, queries, columns, found)
        assert done == min(len(left), 16)
        pairs += zip(columns[:here].tolist(), found[:here].tolist(), strict=True)
        left = left[done:]
    assert sorted(pairs) == [(query, row) for query in range(3) for row in range(count)]


def _everything(queries: NDArray[np.float32]) -> neighbour_join.Small:
    """A lens through which everything is near."""
    axes = np.linalg.qr(np.random.default_rng(1).standard_normal((32, 16)))[0].astype(np.float32)
    lens = neighbour_join.Lens(np.hstack([axes, np.zeros((32, 2), np.float32)]))
    return neighbour_join.Small.of(lens, queries, -1e9)


def test_wrong_arrays_are_refused_before_anything_is_read() -> None:
    codes, scale, places = np.zeros((4, 32), np.int8), np.ones(4, np.float32), np.arange(4)
    queries = np.eye(3, 32, dtype=np.float32)
    small = _everything(queries)
    room = np.empty(48, np.int64)
    good: list[Any] = [codes, scale, places, *small, queries, room, room.copy()]
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
    with pytest.raises(TypeError, match="arguments"):
        native.join()
