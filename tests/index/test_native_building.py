"""The compiled loops of building give what numpy gives and never leave their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skep import runtime
from skep.index import quantisation, segment_builder
from skep.index.bm25 import count_terms, make_postings, pack_pairs
from skep.index.quantisation import constants
from skep.index.segment_builder import Occurrences

native: Any = runtime.native
if native is None:
    pytest.skip("needs the compiled core", allow_module_level=True)


@pytest.mark.parametrize(
    "dim", [1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 100, 255, 256, 384, 768, 1000, 1536, 3072]
)
def test_vectors_are_coded_alike(monkeypatch: pytest.MonkeyPatch, dim: int) -> None:
    rng = np.random.default_rng(dim)
    sizes = rng.choice(np.array([1e-20, 1e-3, 1, 50, 1e30], dtype=np.float32), size=(300, 1))
    vectors = rng.standard_normal((300, dim)).astype(np.float32) * sizes
    vectors[5] = 0
    vectors[6, 0], vectors[7, -1] = np.nan, np.inf
    vectors[8], vectors[9] = 0, 1
    vectors[8, 0] = -1
    monkeypatch.setattr(runtime, "native", None)
    plain = quantisation.encode(vectors)
    monkeypatch.setattr(runtime, "native", native)
    compiled = quantisation.encode(vectors)
    assert [each.dtype for each in plain] == [each.dtype for each in compiled]
    np.testing.assert_allclose(plain.scale, compiled.scale, rtol=1e-5)
    both = (quantisation.decode(codes) for codes in (plain, compiled))
    np.testing.assert_allclose(*both, atol=float(plain.scale.max()) / 15 * 1.01)  # a step of the lower half


@pytest.mark.parametrize("seed", range(60))
def test_terms_are_grouped_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts, distinct = int(rng.integers(0, 30)), int(rng.integers(1, 40))
    lengths = rng.integers(0, rng.choice([3, 10, 90]), texts)
    terms = rng.integers(0, distinct, int(lengths.sum())).astype(np.uint32)
    keys = np.sort(rng.choice(10**6, distinct, replace=False)).astype(np.uint64)
    kept = rng.permutation(texts)[: int(rng.integers(0, texts + 1))]
    place = np.full(texts, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    pairs = pack_pairs(terms, np.repeat(place.astype(np.uint32), lengths))[np.repeat(place >= 0, lengths)]

    wanted = make_postings(keys, *count_terms(pairs), lengths[kept])
    found, its_lengths = segment_builder.grouped(native.group, Occurrences(keys, terms, lengths), kept)

    np.testing.assert_array_equal(its_lengths, lengths[kept])
    for name in wanted._fields:
        one, two = getattr(wanted, name), getattr(found, name)
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two, err_msg=name)


def coded(**changed: Any) -> None:
    rows, (high, low, scale) = np.ones((3, 16), dtype=np.float32), quantisation.no_codes(3, 16)
    signs, unit, back, shrink = constants(16)
    given: dict[str, Any] = {
        "rows": rows, "sound": np.ones(3, dtype=bool), "signs": signs, "unit": unit, "back": back, "shrink": shrink,
        "high": high, "low": low, "scale": scale,
    } | changed  # fmt: skip
    native.encode(*given.values())


@pytest.mark.parametrize(
    "changed",
    [
        {"sound": np.ones(2, dtype=bool)},
        {"signs": np.ones(8, dtype=np.float32)},
        {"signs": np.ones(32, dtype=np.float32)},
        {"signs": np.ones(12, dtype=np.float32)},
        {"signs": np.ones(0, dtype=np.float32)},
        {"high": np.zeros((3, 15), dtype=np.int8)},
        {"high": np.zeros((2, 16), dtype=np.int8)},
        {"low": np.zeros((3, 16), dtype=np.uint8)},
        {"low": np.zeros((2, 8), dtype=np.uint8)},
        {"scale": np.zeros(2, dtype=np.float32)},
        {"rows": np.ones((3, 16), dtype=np.float64)},
        {"rows": np.ones((3, 32), dtype=np.float32)[:, ::2]},
    ],
)
def test_rows_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    coded()
    with pytest.raises(ValueError, match=next(iter(changed))):
        coded(**changed)


def sorted_out(**changed: Any) -> int:
    def small(*numbers: int) -> Any:
        return np.array(numbers, dtype=np.uint32)

    def large(*numbers: int) -> Any:
        return np.array(numbers, dtype=np.int64)

    given: dict[str, Any] = {
        "terms": small(1, 0, 1, 2), "ends": large(3, 4), "kept": large(0, 1), "doc_terms": small(0, 0, 0, 0),
        "doc_ends": large(0, 0), "docs": small(0, 0, 0, 0), "counts": small(0, 0, 0, 0), "found": large(9, 9, 9),
    }  # fmt: skip
    for name, numbers in changed.items():
        given[name] = (large if given[name].dtype == np.int64 else small)(*numbers)
    return native.group(*given.values())


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"terms": (1, 0, 1, 3)}, IndexError),
        ({"ends": (3, 5)}, ValueError),
        ({"ends": (3, 2)}, ValueError),
        ({"ends": (-1, 4)}, ValueError),
        ({"kept": (0, 2)}, IndexError),
        ({"kept": (-1, 0)}, IndexError),
        ({"kept": (0, 0, 0), "doc_ends": (0, 0, 0)}, ValueError),
        ({"doc_terms": (0, 0, 0)}, ValueError),
        ({"doc_ends": (0,)}, ValueError),
        ({"docs": (0, 0, 0)}, ValueError),
        ({"counts": (0, 0, 0)}, ValueError),
        ({"found": (0, 0)}, IndexError),
    ],
)
def test_terms_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception]) -> None:
    assert sorted_out() == 3
    with pytest.raises(error):
        sorted_out(**changed)
