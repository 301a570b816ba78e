"""Bad input gets a named error that says what to do, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import (
    BadTextError,
    EmptyTextError,
    InvalidInputError,
    OutOfRangeError,
    TextTooLongError,
    UnknownKeyError,
    WrongTypeError,
)

BAD: list[tuple[dict[str, Any], type[InvalidInputError], str]] = [
    ({"text": ""}, EmptyTextError, "text"),
    ({"text": "  \n\t "}, EmptyTextError, "text"),
    ({"text": "x" * 70_000}, TextTooLongError, "split"),
    ({"text": "a\x00b"}, BadTextError, "U+0000"),
    ({"text": "a\x1bb"}, BadTextError, "U+001B"),
    ({"text": "a\ud800b"}, BadTextError, "U+D800"),
    ({"text": "a\x85b"}, BadTextError, "U+0085"),
    ({"text": "a\x9bb"}, BadTextError, "U+009B"),
    ({"text": "\u200b \u200d"}, EmptyTextError, "visible"),
    ({"text": "a", "tags": ["two\nlines"]}, BadTextError, "one line"),
    ({"text": "a", "domain": "two\nlines"}, BadTextError, "one line"),
    ({"text": "a", "scope": {"user": "a\tb"}}, BadTextError, "one line"),
    ({"text": "a", "metadata": {1: 2}}, WrongTypeError, "key"),
    ({"text": "a", "metadata": {"x": {1, 2}}}, WrongTypeError, "set"),
    ({"text": "a", "metadata": {"x": [b"y"]}}, WrongTypeError, "bytes"),
    ({"text": "a", "metadata": {"x": "\x1b[31m"}}, BadTextError, "U+001B"),
    ({"text": "a", "title": "t" * 5000}, TextTooLongError, "shorten"),
    ({"text": 7}, WrongTypeError, "string"),
    ({"text": None}, WrongTypeError, "string"),
    ({"text": "a", "confidence": 1.5}, OutOfRangeError, "between 0 and 1"),
    ({"text": "a", "confidence": float("nan")}, OutOfRangeError, "confidence"),
    ({"text": "a", "importance": -0.1}, OutOfRangeError, "importance"),
    ({"text": "a", "importance": "high"}, WrongTypeError, "number"),
    ({"text": "a", "importance": True}, WrongTypeError, "number"),
    ({"text": "a", "polarity": 2}, OutOfRangeError, "-1, 0 or 1"),
    ({"text": "a", "kind": "facts"}, InvalidInputError, "did you mean 'fact'"),
    ({"text": "a", "scope": {"usr": "ana"}}, UnknownKeyError, "did you mean 'user'"),
    ({"text": "a", "scope": {"user": "*"}}, InvalidInputError, "only for asking"),
    ({"text": "a", "scope": "ana"}, WrongTypeError, "mapping"),
    ({"text": "a", "tags": {"a": 1}}, WrongTypeError, "list"),
    ({"text": "a", "tags": ["ok", 3]}, WrongTypeError, "string"),
    ({"text": "a", "tags": [f"t{i}" for i in range(65)]}, OutOfRangeError, "limit"),
    ({"text": "a", "valid_from": "yesterday"}, InvalidInputError, "ISO 8601"),
    ({"text": "a", "valid_from": float("inf")}, OutOfRangeError, "between the years"),
    ({"text": "a", "valid_from": 20.0, "valid_to": 10.0}, OutOfRangeError, "before valid_to"),
    ({"text": "a", "ttl": 0}, OutOfRangeError, "ttl"),
    ({"text": "a", "metadata": {"x": float("nan")}}, InvalidInputError, "metadata"),
    ({"text": "a", "metadata": {"x": object()}}, InvalidInputError, "JSON"),
    ({"text": "a", "metadata": [1]}, WrongTypeError, "mapping"),
    ({"text": "a", "metadata": {"x": "y" * 70_000}}, TextTooLongError, "bytes"),
    ({"text": "a", "title": ""}, EmptyTextError, "title"),
]


@pytest.mark.parametrize(("given", "error", "says"), BAD, ids=[str(case[0])[:40] for case in BAD])
def test_bad_input_is_refused_by_name_and_writes_nothing(
    plain_bank: Bank, given: dict[str, Any], error: type[InvalidInputError], says: str
) -> None:
    with pytest.raises(error) as caught:
        plain_bank.remember(**given)

    assert says in str(caught.value)
    assert plain_bank.status().events == 0


def test_one_bad_item_keeps_the_whole_batch_out_and_is_named(plain_bank: Bank) -> None:
    with pytest.raises(UnknownKeyError, match=r"item 1.*did you mean 'importance'"):
        plain_bank.remember_many(["good", {"text": "bad", "importnce": 1.0}])

    assert plain_bank.status().events == 0


def test_an_unknown_field_to_revise_is_refused(plain_bank: Bank) -> None:
    memory = plain_bank.remember("a fact").memory

    with pytest.raises(UnknownKeyError, match="did you mean 'title'"):
        plain_bank.revise(memory.id, titel="x")
    with pytest.raises(InvalidInputError, match="nothing to revise"):
        plain_bank.revise(memory.id)

    assert plain_bank.get(memory.id) == memory


@given(st.text(max_size=60), st.floats(), st.lists(st.text(max_size=10), max_size=3))
def test_any_text_is_stored_faithfully_or_refused(text: str, confidence: float, tags: list[str]) -> None:
    with Bank.open(":memory:", embedder=HashingEmbedder(16)) as bank:
        try:
            memory = bank.remember(text, confidence=confidence, tags=tags, on_conflict="ignore").memory
        except InvalidInputError:
            assert bank.status().events == 0
        else:
            again = bank.get(memory.id)
            assert (text, confidence, tuple(dict.fromkeys(tags))) == (
                again.text,
                again.confidence,
                again.tags,
            )
