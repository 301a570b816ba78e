"""What a process shares."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from skep.runtime import alone, gc_paused, product


def test_garbage_collection_pauses_and_goes_on_as_before() -> None:
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()

    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_garbage_collection_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), gc_paused():
        raise KeyError("x")
    assert gc.isenabled()


@pytest.mark.parametrize("shape", [(1, 4, 3), (700, 256, 60), (60, 256, 700), (0, 4, 3), (3, 0, 4)])
def test_products_on_one_thread_are_those_of_numpy(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(size).astype(np.float32) for size in (shape[:2], shape[1:]))

    for made in (product(a, b), alone(a, b)):
        np.testing.assert_allclose(made, a @ b, rtol=1e-4, atol=1e-4)
