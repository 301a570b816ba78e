"""A Bloom digest never denies what was added and seldom claims what was not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import OutOfRangeError, SyncError
from skep.hive.gossip import Bloom


@given(st.sets(st.text(max_size=12), max_size=50))
def test_what_was_added_is_never_denied(items: set[str]) -> None:
    digest = Bloom.from_bytes(Bloom.of(items).to_bytes())

    assert all(item in digest for item in items)


def test_strangers_are_claimed_about_as_often_as_promised() -> None:
    digest = Bloom.of((f"m-{n}" for n in range(2000)), error=0.01)
    claimed = sum(f"x-{n}" in digest for n in range(5000))

    assert claimed / 5000 < 0.02
    assert len(digest.to_bytes()) < 2000 * 10 / 8 + 20


@given(st.binary(max_size=30))
def test_garbage_is_refused_or_harmless(data: bytes) -> None:
    try:
        digest = Bloom.from_bytes(data)
    except SyncError:
        return
    assert ("x" in digest) in (True, False)


def test_an_impossible_error_rate_is_refused() -> None:
    with pytest.raises(OutOfRangeError):
        Bloom(10, error=0.0)
