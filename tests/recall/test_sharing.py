"""Hits worth comparing share some of their words."""

from __future__ import annotations

from skep.recall.conflict_marks import roughly_alike


def test_texts_that_share_some_of_their_words_are_alike_whatever_their_case() -> None:
    texts = ["Use ruff for linting", "never use Ruff for linting", "the office has a cat", "use\u2003RUFF"]

    assert [(0, 1), (0, 3), (1, 3)] == roughly_alike(texts)
