"""Taking a text apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.semantics import lexicon as lx
from skep.semantics.parse_text import MAX_TOKENS, Quantity, analyse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16GB", Quantity(16 * 2**30, "bytes")),
        ("16 GB", Quantity(16 * 2**30, "bytes")),
        ("twenty five", Quantity(25, "")),
        ("$3.1 million", Quantity(3.1e6, "money")),
        ("2 hours", Quantity(7200, "second")),
        ("120 minutes", Quantity(7200, "second")),
        ("in 1999", Quantity(1999, "year")),
        ("at 3 pm", Quantity(15, "time")),
        ("15,200 km", Quantity(15_200_000, "metre")),
        ("#4521", Quantity(4521, "id")),
    ],
)
def test_numbers_are_read_in_base_units(text: str, expected: Quantity) -> None:
    (found,) = analyse(text).quantities.values()

    assert expected == Quantity(pytest.approx(found.value), found.dimension)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["I don't know", "I do n't know", "I do not know", "I don’t know"])
def test_every_spelling_of_a_negation_is_one_negation(text: str) -> None:
    assert analyse(text).words == ("i", "do", "not", "know")
    assert analyse(text).negations == 1


@pytest.mark.parametrize(
    "text", ["N't is short", "(n't) is short", "`n't` is short", "'n't' is short", "n’t is short"]
)
def test_half_a_contraction_is_the_negation_alone(text: str) -> None:
    assert [word for word in analyse(text).words if word.isalpha()] == ["not", "is", "short"]


def test_a_negation_reaches_to_the_end_of_its_clause() -> None:
    found = analyse("I do not like tea; I like coffee")
    negated = [w for w, n in zip(found.words, found.negated, strict=True) if n]

    assert negated == ["like", "tea"]


def test_two_negations_cancel_out() -> None:
    found = analyse("never not working")

    assert not any(found.negated)


@pytest.mark.parametrize("text", ["How do I lint?", "Is it open?", "why is it slow", "Really?"])
def test_questions_are_seen(text: str) -> None:
    assert analyse(text).question


@pytest.mark.parametrize(
    "text", ["Use ruff", "I ran the tests today and all passed, can you check?", "What a day"]
)
def test_statements_are_not_questions(text: str) -> None:
    assert not analyse(text).question


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.0.0.1", "10.0.0.2"),
        ("192.168.1.10", "192.168.1.11"),
        ("12345678901", "12345678902"),
        ("10.0.19045", "10.19.45"),
        ("12,345,678,901", "12,345,678,902"),
        ("3.10", "3.1"),
        ("٣", "٤"),
        ("５", "６"),
    ],
)
def test_numbers_that_differ_anywhere_are_two_words(one: str, other: str) -> None:
    assert analyse(f"it is {one}").words != analyse(f"it is {other}").words


@pytest.mark.parametrize(
    ("one", "other"),
    [("0.50", "0.5"), ("2.0", "2"), ("$1.50", "$1.5"), ("1.50 m", "1.5 m"), ("15,200", "15200")],
)
def test_the_same_number_is_one_word(one: str, other: str) -> None:
    assert analyse(f"it is {one}").words == analyse(f"it is {other}").words


def test_digits_of_every_script_are_numbers() -> None:
    assert analyse("سعر ٢٥").words[-1] == analyse("price 25").words[-1]


def test_a_sign_before_a_number_is_a_mark_and_a_hyphen_is_none() -> None:
    assert analyse("the offset is -5").marks == "-"
    assert analyse("pages 5-10 of the x-5").marks == ""


def test_names_with_digits_stay_one_word() -> None:
    assert analyse("Use flake8 or log4j.core").words == ("use", "flake8", "or", "log4j.core")


@pytest.mark.parametrize(
    "forms",
    [("run", "runs", "running"), ("live", "lives", "living", "lived"), ("create", "creates", "creating")],
)
def test_inflected_forms_meet_in_one_stem(forms: tuple[str, ...]) -> None:
    assert len({lx.stem(f) for f in forms}) == 1


@given(st.text())
def test_any_text_can_be_taken_apart(text: str) -> None:
    found = analyse(text)

    assert len(found.words) == len(found.stems) == len(found.negated) == len(found.capital) <= MAX_TOKENS + 1
