"""The words of a memory, one by one, as similar memories are looked up by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.semantics.find_conflicts import (
    _by_word,  # pyright: ignore[reportPrivateUsage]
)
from skep.text.terms import STOP, query_terms

WORDS = st.lists(
    st.sampled_from(["ab", "AB", "a_1", "b", "9", "é", "the", "x-y", "fooBar", "don't"]), max_size=14
)


def joined(words: list[str], by: str) -> str:
    return by.join(words)


TEXTS = st.builds(joined, WORDS, st.sampled_from([" ", "\t", ".", "\x00", "\x1c", ", "]))


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
