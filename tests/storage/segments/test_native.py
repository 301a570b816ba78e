"""The compiled loops give what numpy gives, and never leave their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.storage.segments.bank import FakeBank, Filter

from skep.storage.segments import SegmentIndex, kernels, scan
from skep.storage.segments.codes import Sketches

native: Any = pytest.importorskip(
    "skep_native", reason="not built: `pip install ./native` needs a C compiler and Python's headers"
)
ROWS = 6000
DIM = 96


def filled(rng: np.random.Generator) -> SegmentIndex:
    """More rows than are multiplied at once, some without a vector, some in the tail."""
    bank = FakeBank(DIM)
    centres = rng.standard_normal((20, DIM))
    for row in range(1, ROWS + 1):
        vector = centres[row % 20] + rng.standard_normal(DIM)
        tags = tuple(f"t{n}" for n in (2, 3, 50) if row % n == 0)
        bank.put(row, vector=None if row % 17 == 0 else vector, tags=tags)
    index = SegmentIndex(None, bank)
    index.refresh()
    for row in range(ROWS + 1, ROWS + 30):
        bank.put(row, vector=rng.standard_normal(DIM))
    index.refresh()
    return index


def test_both_give_the_same_rows_with_the_same_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    index = filled(rng)
    compared = 0
    for tags in ((), (("t2",),), (("t3",),), (("t50",),)):
        for _ in range(10):
            query = rng.standard_normal(DIM).astype(np.float32)
            answers: list[tuple[list[int], list[float]]] = []
            for loops in (None, native):
                monkeypatch.setattr(kernels, "native", loops)
                found = index.similar(query, Filter(tags=tags), 40)
                answers.append((found.rows.tolist(), found.cosine.tolist()))
            assert answers[0] == answers[1]
            compared += len(answers[0][0])
    assert compared == 4 * 10 * 40


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 7, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("masked", [False, True])
def test_the_first_two_rounds_agree_to_the_last_bit(words: int, count: int, masked: bool) -> None:
    rng = np.random.default_rng(words * count)
    sketches = Sketches(
        rng.integers(0, 2**64, (words, count), dtype=np.uint64),
        rng.random(count, dtype=np.float32),
        np.where(rng.random(count) < 0.1, -np.inf, rng.standard_normal(count)).astype(np.float32),
    )
    codes = rng.integers(0, 2**64, (scan.BITS, words), dtype=np.uint64)
    sketches.planes[:, 0] = ~codes[0]  # every sign differs
    probe = scan.Probe(
        np.float32(0.37), [list(plane) for plane in codes], [np.float32(x) for x in (0.4, 0.2, 0.1)]
    )
    mask = rng.random(count) < 0.5 if masked else None
    slots, estimates = np.empty(count, np.int64), np.empty(count, np.float32)
    scanner = scan.Scanner()
    for bar in (None, -np.inf, 0.0, 3.0):
        found = native.narrow(
            *sketches, mask, codes, np.array(probe.worths), probe.bias_worth, bar, 100, slots, estimates
        )
        expected = _expected(scanner, sketches, probe, mask, bar)
        assert slots[:found].tolist() == [place + 100 for place, _ in expected]
        assert estimates[:found].tolist() == [value for _, value in expected]


def _expected(
    scanner: scan.Scanner, sketches: Sketches, probe: scan.Probe, mask: NDArray[np.bool_] | None, bar: Any
) -> list[tuple[int, float]]:
    """What numpy says."""
    count = len(sketches.spread)
    agreement = scanner._agreeing(sketches.planes, probe.planes[0], count).copy()
    passed = np.ones(count, dtype=bool) if mask is None else mask.copy()
    if bar is not None:
        passed &= scanner._first_round(sketches, probe, agreement) >= bar
    local = passed.nonzero()[0]
    return list(
        zip(local.tolist(), scanner._second_round(sketches, probe, local, agreement).tolist(), strict=True)
    )


@pytest.mark.parametrize("dim", [1, 15, 16, 17, 256, 1000])
def test_products_are_those_of_exact_arithmetic_up_to_rounding(dim: int) -> None:
    rng = np.random.default_rng(dim)
    codes = rng.integers(-127, 128, (50, dim), dtype=np.int8)
    query, scale = rng.standard_normal(dim).astype(np.float32), rng.random(50, dtype=np.float32)
    places = rng.permutation(50)[:20]
    out = np.empty(20, dtype=np.float32)
    native.coarse(codes, places, query, scale, out)
    exact = (codes[places].astype(np.float64) @ query) * scale[places]
    assert np.allclose(out, exact, rtol=1e-4, atol=1e-3)


def test_wrong_arrays_are_refused_before_anything_is_read() -> None:
    planes, floats = np.zeros((2, 10), np.uint64), np.zeros(10, np.float32)
    codes, worths = np.zeros((3, 2), np.uint64), np.ones(3, np.float32)
    slots, estimates = np.empty(10, np.int64), np.empty(10, np.float32)
    good: list[Any] = [planes, floats, floats, None, codes, worths, 1.0, 0.0, 0, slots, estimates]
    assert native.narrow(*good) == 10
    wrong: list[tuple[int, Any]] = [
        (0, np.zeros((5, 10), np.uint64)),  # more words than a sketch has
        (0, np.zeros((2, 20), np.uint64)[:, ::2]),  # not side by side
        (0, np.zeros(10, np.uint64)),
        (1, floats[:9]),
        (2, floats.astype(np.float64)),
        (3, np.ones(9, bool)),
        (4, np.zeros((4, 2), np.uint64)),
        (4, np.zeros((3, 1), np.uint64)),  # another number of words
        (5, worths[:2]),
        (9, slots[:9]),
        (10, estimates[:9]),
    ]
    for place, value in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            native.narrow(*good[:place], value, *good[place + 1 :])
    for place, value in ((0, None), (6, "x"), (7, "x"), (8, 1.5)):
        with pytest.raises(TypeError):
            native.narrow(*good[:place], value, *good[place + 1 :])
    with pytest.raises(TypeError, match="11 arguments"):
        native.narrow()
    readonly = slots.copy()
    readonly.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        native.narrow(*good[:9], readonly, estimates)
    rows, query, scale = np.zeros((4, 8), np.int8), np.zeros(8, np.float32), np.ones(4, np.float32)
    for places in ([4], [-1]):
        with pytest.raises(IndexError, match="no row"):
            native.coarse(rows, np.array(places), query, scale, np.empty(1, np.float32))
    with pytest.raises(ValueError, match="query"):
        native.coarse(rows, np.array([0]), query[:7], scale, np.empty(1, np.float32))
