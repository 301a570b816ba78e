"""Word pieces of texts, and how close they come to those of a query."""

from __future__ import annotations

import numpy as np
import pytest

from skep.embedding.static_table import StaticEmbedder
from skep.embedding.wordpiece import _normal_form  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def test_what_a_character_becomes_has_no_other_blank_than_a_space() -> None:
    codes = range(0x32000)  # beyond it there are marks and what is left out
    blanks = {char for char in map(chr, codes) if char.isspace()}
    forms = map(_normal_form, codes)
    assert blanks & set("".join(forms)) == {" "}


def test_pieces_of_many_texts_are_those_of_each_up_to_the_most(embedder: StaticEmbedder) -> None:
    texts = ["The café is of Ana 👍", "", "[PAD] of tea" * 9, "The café is of Ana 👍"]
    for most in (0, 3, 256):
        ids, sizes = embedder.pieces(texts, most)
        wanted = [embedder.tokens(text)[:most] for text in texts]
        assert ids.tolist() == [each for one in wanted for each in one]
        assert sizes.tolist() == [len(one) for one in wanted]
        assert ids.dtype == sizes.dtype == np.int32
    assert [each.tolist() for each in embedder.pieces([], 9)] == [[], []]


@pytest.mark.parametrize("asked", [1, 3, 40])
def test_the_closest_is_the_highest_cosine_in_each_stretch(embedder: StaticEmbedder, asked: int) -> None:
    rng = np.random.default_rng(asked)
    pieces = rng.integers(0, 30_522, 600).astype(np.int32)
    wanted = [*pieces[:asked].tolist(), 0]  # the last has no meaning: a row of zeros
    lengths = np.diff(np.sort(rng.integers(0, 601, 50)), prepend=0, append=600).astype(np.int32)

    found = embedder.closest(wanted, pieces, lengths, 12)

    cosines = embedder.token_vectors(wanted) @ embedder.token_vectors(pieces.tolist()).T
    starts = [
        (int(first + at), int(min(first + at + 12, first + size)))
        for first, size in zip(np.cumsum(lengths) - lengths, lengths, strict=True)
        for at in range(0, size, 12)
    ]
    best = np.stack([cosines[:, start:end].max(axis=1) for start, end in starts], axis=1)
    np.testing.assert_allclose(found, best, atol=1e-5)


def test_nothing_is_close_to_nothing(embedder: StaticEmbedder) -> None:
    none, tea = np.zeros(0, np.int32), np.array([5572], np.int32)
    for asked, pieces, lengths in (([], tea, [1]), ([5572], none, [0, 0]), ([], none, [])):
        found = embedder.closest(asked, pieces, np.array(lengths, np.int32), 12)
        assert found.shape == (len(asked), len(pieces))
