"""Which hits are worth comparing is found alike with and without the compiled loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.recall.conflict_marks import ROUGHLY, roughly_alike

TEXTS = st.lists(st.text(alphabet="abAB \t\n\x0b\x1c\x1f\x00.,éİ", max_size=30), max_size=12)


def in_python(texts: list[str]) -> list[tuple[int, int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "native", None)
        return roughly_alike(texts)


def test_texts_that_share_some_of_their_words_are_alike_whatever_their_case() -> None:
    texts = ["Use ruff for linting", "never use Ruff for linting", "the office has a cat", "use\u2003RUFF"]

    assert in_python(texts) == [(0, 1), (0, 3), (1, 3)]
    assert in_python(texts) == roughly_alike(texts)


@pytest.fixture(scope="module")
def sharing() -> Any:
    if runtime.native is None:
        pytest.skip("needs the compiled core")
    return runtime.native.sharing


@given(texts=TEXTS)
def test_the_compiled_loop_finds_the_same_pairs_or_leaves_it_to_us(sharing: Any, texts: list[str]) -> None:
    found = sharing(texts, ROUGHLY)

    assert found == (in_python(texts) if all(text.isascii() for text in texts) else None)


def test_the_compiled_loop_leaves_what_is_long_or_many_to_us_and_refuses_what_is_no_text(
    sharing: Any,
) -> None:
    assert sharing(["x" * 16_384], ROUGHLY) == []
    assert sharing(["x" * 16_384, "y"], ROUGHLY) is None
    assert sharing(["x"] * 33, ROUGHLY) is None
    assert sharing(["half a pair \ud800", "y"], ROUGHLY) is None
    assert sharing(list("abcdefghijklmnopqrstuvwxyz012345"), ROUGHLY) == []
    for wrong in ([1], ["a", None], ("a", "b"), "ab"):
        with pytest.raises(TypeError):
            sharing(wrong, ROUGHLY)
