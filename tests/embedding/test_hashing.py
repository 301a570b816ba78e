"""The hashing embedder: deterministic, and close where words are shared."""

from __future__ import annotations

import numpy as np
import pytest

from skep.embedding.embedder import open_embedder
from skep.embedding.static_table import HashingEmbedder
from skep.errors import ConfigError


def test_the_same_text_gives_the_same_row_in_every_process() -> None:
    """Golden values: a change here would orphan stored vectors."""
    row = HashingEmbedder(8).embed(["Use ruff for linting"])[0]

    golden = [0.065, 0.0, 0.028, 0.246, -0.458, 0.641, -0.502, 0.248]
    assert golden == [round(float(x), 3) for x in row]


def test_shared_words_and_word_forms_bring_texts_together() -> None:
    a, b, c, d = HashingEmbedder().embed(
        ["the parser fails on dates", "dates make the parser fail", "dated parsers", "a quiet lunch outside"]
    )

    assert a @ b > 0.5 > a @ c > 0.1 > a @ d


def test_rows_are_unit_or_zero() -> None:
    rows = HashingEmbedder(32).embed(["words here", "...", ""])

    np.testing.assert_allclose([1, 0, 0], np.linalg.norm(rows, axis=1), atol=1e-6)


def test_dimension_is_part_of_the_fingerprint() -> None:
    assert {"hash-64-v1", "hash-256-v1"} == {open_embedder(s).fingerprint for s in ("hash:64", "hash")}


@pytest.mark.parametrize("spec", ["hash:many", "hash:4", "hash:-1"])
def test_a_nonsensical_dimension_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        open_embedder(spec)
