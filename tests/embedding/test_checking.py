"""What an embedder gives is looked at once, before any of it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skep.embedding.embedder import checked, guarded
from skep.errors import EmbedderFailedError, EmbedderMismatchError, EmbeddingError


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (None, "gave nothing"),
        (np.ones((1, 4), np.float32), "1 x 4 for 2 texts"),
        (np.ones((2, 3), np.float32), "2 x 3 for 2 texts of 4 dimensions"),
        (np.ones(4, np.float32), "an array of 4"),
        (1.0, "one number"),
        ([[1.0] * 4, [1.0] * 3], "not numbers"),
        ([["a"] * 4] * 2, "not numbers"),
    ],
)
def test_a_wrong_shape_is_named_and_refused(given: Any, hint: str) -> None:
    with pytest.raises(EmbedderMismatchError, match=hint) as caught:
        checked(given, 2, 4, "mine-4")
    assert str(caught.value).startswith("mine-4 gave")


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(odd: float) -> None:
    rows = np.zeros((2, 4), np.float32)
    rows[1, 2] = odd

    with pytest.raises(EmbeddingError, match="not finite"):
        checked(rows, 2, 4, "mine-4")


@pytest.mark.parametrize(
    "as_given", [lambda rows: rows.tolist(), lambda rows: rows.astype(np.float64), lambda r: r]
)
def test_lists_and_other_numbers_will_do(as_given: Callable[[Any], Any]) -> None:
    rows = np.eye(2, 4, dtype=np.float32)
    found = checked(as_given(rows), 2, 4, "mine-4")

    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, rows)


def test_what_an_embedder_raises_comes_out_as_one_of_our_errors() -> None:
    def raises(error: Exception) -> Callable[[], None]:
        def call() -> None:
            raise error

        return call

    with pytest.raises(EmbedderFailedError, match="mine-4 failed: ConnectionError: net"):
        guarded("mine-4", raises(ConnectionError("net")))
    with pytest.raises(EmbeddingError, match="too long") as caught:
        guarded("mine-4", raises(ValueError("too long")))
    assert not isinstance(caught.value, EmbedderFailedError)
    ours = EmbeddingError("refused")
    with pytest.raises(EmbeddingError) as again:
        guarded("mine-4", raises(ours))
    assert again.value is ours
