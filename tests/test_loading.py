"""Loading leaves the collector and the environment as they were."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Generator

import pytest

from skep.runtime import BLAS_TIMEOUT, undisturbed


@pytest.fixture
def collections() -> Generator[list[int]]:
    seen: list[int] = []
    callback: Callable[[str, dict[str, int]], None] = lambda phase, about: (  # noqa: E731
        seen.append(about["generation"]) if phase == "start" else None
    )
    gc.callbacks.append(callback)
    yield seen
    gc.callbacks.remove(callback)
    gc.enable()


def test_what_is_loaded_is_never_gone_over(collections: list[int]) -> None:
    with undisturbed():
        kept = [[number] for number in range(50_000)]
    young = len(gc.get_objects(generation=0))

    assert collections == []
    assert len(kept) > young
    assert gc.isenabled()


def test_garbage_made_meanwhile_is_still_collected() -> None:
    class Ring:
        gone = 0

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            Ring.gone += 1

    with undisturbed():
        Ring()
    gc.collect()

    assert Ring.gone == 1


def test_a_collector_that_was_off_stays_off_and_what_was_frozen_stays_frozen() -> None:
    gc.disable()
    with undisturbed():
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()

    gc.freeze()
    frozen = gc.get_freeze_count()
    with undisturbed():
        pass
    assert frozen == gc.get_freeze_count() > 0
    gc.unfreeze()


def test_blocks_may_lie_within_one_another() -> None:
    with undisturbed():
        with undisturbed():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


PROBE = """
import os, sys
from skep.runtime import BLAS_TIMEOUT, undisturbed
with undisturbed():
    during = os.environ.get(BLAS_TIMEOUT)
    import numpy
    with undisturbed():
        pass
print(during, os.environ.get(BLAS_TIMEOUT))
with undisturbed():
    print(os.environ.get(BLAS_TIMEOUT))
"""


@pytest.mark.parametrize(
    ("given", "seen"),
    [(None, ["20", "None", "None"]), ("26", ["26", "26", "26"])],
    ids=["nobody", "the user"],
)
def test_threads_of_the_blas_sleep_soon_unless_somebody_says_otherwise(
    given: str | None, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(BLAS_TIMEOUT, raising=False)
    if given is not None:
        monkeypatch.setenv(BLAS_TIMEOUT, given)

    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)

    assert done.stdout.split() == seen
