"""Texts that share most of their words are found alike with and without the compiled loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.lifecycle.similar_memories import (
    _by_word,
    _few_words,
    _sharing,  # pyright: ignore[reportPrivateUsage]
)
from skep.text.terms import STOP, query_terms

WORDS = st.lists(
    st.sampled_from(["ab", "AB", "a_1", "b", "9", "é", "the", "x-y", "fooBar", "don't"]), max_size=14
)


def joined(words: list[str], by: str) -> str:
    return by.join(words)


TEXTS = st.builds(joined, WORDS, st.sampled_from([" ", "\t", ".", "\x00", "\x1c", ", "]))


def plainly(work: Any, *given: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "native", None)
        return work(*given)


@given(text=TEXTS, others=st.lists(TEXTS, max_size=6), least=st.sampled_from([0.2, 1 / 3, 0.5, 1.0]))
def test_the_compiled_loop_finds_the_same_texts_or_leaves_it_to_us(
    native: Any, text: str, others: list[str], least: float
) -> None:
    found = native.alike(text, others, least)
    wanted = plainly(_sharing, text, others, least)

    assert found == (wanted if all(each.isascii() for each in (text, *others)) else None)
    assert _sharing(text, others, least) == wanted


@given(text=TEXTS, most=st.integers(0, 9))
def test_words_are_counted_alike(native: Any, text: str, most: int) -> None:
    assert native.few_words(text, most) == (plainly(_few_words, text, most) if text.isascii() else None)
    assert _few_words(text, most) == plainly(_few_words, text, most)


def test_the_compiled_loop_leaves_what_is_long_to_us_and_refuses_what_is_no_text(native: Any) -> None:
    long = " ".join(map(str, range(200)))
    assert native.alike(long, ["y"], 0.5) is None
    assert native.alike("y", [long, "Y"], 0.5) == [1]
    assert native.alike("y", ["half a pair \ud800"], 0.5) is None
    assert native.alike("y", ["y"], 0.0) is None
    assert native.few_words(long, 128) is False
    assert native.few_words(long, 129) is None
    assert _few_words(long, 200)
    for wrong in (["y", [1]], ["y", ("y",)], [1, ["y"]]):
        with pytest.raises(TypeError):
            native.alike(*wrong, 0.5)
    with pytest.raises(TypeError):
        native.few_words(1, 2)


@given(text=TEXTS)
def test_word_by_word_a_text_has_the_terms_that_are_looked_up(text: str) -> None:
    (spoken,) = _by_word([text])
    terms = [term for word in spoken for term in word]

    assert len(set(terms)) == len(terms)
    assert set(query_terms(text)) <= set(terms)
    if set(terms) != set(query_terms(text)):  # a common word that is part of another
        assert all(term in STOP for term in set(terms) - set(query_terms(text)))


def test_an_identifier_is_one_word_and_common_words_count_where_there_are_no_others() -> None:
    assert _by_word(["the foo_bar of Oslo", "it is the", "Zoë lives", ""]) == [
        [["foo_bar", "foo", "bar"], ["oslo"]],
        [["it"], ["is"], ["the"]],
        [["zoe"], ["live"]],
        [],
    ]
