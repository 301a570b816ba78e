"""What two texts are to each other."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.embedding.static_table import StaticEmbedder
from skep.semantics import pair_model
from skep.semantics.compare_texts import REASONS, THRESHOLDS, Verdict, compare
from skep.semantics.pair_features import blocks_of
from skep.semantics.pair_model import read_arrays
from skep.semantics.same_value import in_one_notation

EMBEDDER = StaticEmbedder()


def verdict(a: str, b: str, **given_: int) -> Verdict:
    left, right = EMBEDDER.embed([a, b])
    return compare(a, b, similarity=EMBEDDER.calibrate(float(left @ right)), **given_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("a", "b", "kind", "reason"),
    [
        ("Use ruff for linting", "Never use ruff for linting", "contradiction", "negation"),
        ("Use ruff for linting", "Don't use ruff for linting", "contradiction", "negation"),
        ("The office is in Berlin", "The office is no longer in Berlin", "contradiction", "negation"),
        ("Retry failed requests up to 3 times", "Do not retry failed requests", "contradiction", "negation"),
        ("The user likes tea", "The user dislikes tea", "contradiction", "antonym"),
        ("The cache is enabled by default", "The cache is disabled by default", "contradiction", "antonym"),
        ("Use ruff for linting", "Use flake8 for linting", "update", "value"),
        ("lives in Rome", "lives in Oslo", "update", "value"),
        ("The user lives in Rome", "The user lives in Oslo", "update", "value"),
        ("The database is PostgreSQL", "The database is MySQL", "update", "value"),
        ("Deploys happen on Monday", "Deploys happen on Tuesday", "update", "value"),
        (
            "Ada Lovelace was born in the city of London",
            "Ada Lovelace was born in the city of Paris",
            "update",
            "value",
        ),
        ("The server has 16 GB of RAM", "The server has 32 GB of RAM", "update", "number"),
        ("The meeting is at 3 pm", "The meeting is at 4 pm", "update", "number"),
        ("The build uses Node 18", "The build uses Node 20", "update", "number"),
        ("The deadline is 2024-03-01", "The deadline is 2024-04-15", "update", "number"),
    ],
)
def test_texts_that_cannot_both_hold_conflict_for_a_named_reason(
    a: str, b: str, kind: str, reason: str
) -> None:
    found = verdict(a, b)

    assert (kind, reason) == (found.kind, found.reason)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The server has 16 GB of RAM", "The server has 16384 MB of RAM"),
        ("The timeout is 30 seconds", "The timeout is 30000 ms"),
        ("The team has twelve members", "The team has 12 members"),
        ("Use ruff for linting", "use ruff for linting."),
        ("We don't deploy on Fridays", "We do not deploy on Fridays"),
        ("I'm on call this week and I've the pager", "I am on call this week and I have the pager"),
        ("Tests run with pytest", "Tests are run with pytest"),
    ],
)
def test_the_same_said_or_measured_differently_is_a_clear_duplicate(a: str, b: str) -> None:
    found = verdict(a, b)

    assert (found.kind, found.clear) == ("duplicate", True)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The cat sat on the mat", "Quarterly revenue grew by ten percent"),
        ("Bob works at Google", "Alice works at Google"),
        ("The user's dog is called Rex", "The user's cat is called Tom"),
    ],
)
def test_texts_about_other_things_are_neutral(a: str, b: str) -> None:
    assert verdict(a, b).kind == "neutral"


def test_opposite_polarities_of_near_texts_contradict_before_anything_else() -> None:
    found = compare("Use ruff", "Use ruff", similarity=1.0, polarity_a=1, polarity_b=-1)

    assert (found.kind, found.reason, found.clear) == ("contradiction", "polarity", True)


def test_opposite_polarities_of_unrelated_texts_do_not_contradict() -> None:
    found = verdict("The cat sat on the mat", "Quarterly revenue grew", polarity_a=1, polarity_b=-1)

    assert found.kind == "neutral"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Use ruff for linting", "Should I not use ruff for linting?"),
        ("Is the office in Berlin?", "The office is not in Berlin"),
        ("Why is the server slow?", "Why is the server not slow?"),
    ],
)
def test_a_question_never_contradicts(a: str, b: str) -> None:
    found = verdict(a, b)

    assert found.kind in ("duplicate", "neutral")
    assert found.probabilities["contradiction"] == 0.0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Send the report to Ana before Friday", "Send the report to Ana before Monday"),
        ("Meeting room 4 seats 12 people", "Meeting room 5 seats 12 people"),
        ("The client pays the server", "The server pays the client"),
        ("Only admins may delete projects", "Admins may delete projects"),
        ("Use ruff for linting", "Should I use ruff for linting?"),
        ("The user has four children", "The user is one of four children"),
        ("The user has two dogs and a cat", "The user has a dog and two cats"),
        ("How did you make it?", "Did you make it?"),
        ("My son plays football", "My son played football"),
        ("My mother stays home", "I am a mother who stays at home"),
        ("I would love to get a dog", "I love my dog"),
        ("The tool is written in C", "The tool is written in C++"),
        ("The offset is -5", "The offset is 5"),
        ("It is -12.5 degrees outside", "It is 12.5 degrees outside"),
        ("الاجتماع في الساعة ٣", "الاجتماع في الساعة ٤"),
    ],
)
def test_near_copies_in_which_something_clashes_are_never_clear_duplicates(a: str, b: str) -> None:
    found = verdict(a, b)

    assert not (found.kind == "duplicate" and found.clear)
    assert not (found.kind == "duplicate" and found.confidence >= THRESHOLDS.merge)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana speaks French", "Ana speaks German"),
        ("The user has visited Japan", "The user has visited Peru"),
        ("We support Python 3.11", "We support Python 3.12"),
        ("The user likes pizza", "The user likes sushi"),
        ("We use ruff", "We use pytest"),
        ("The user has a dog", "The user has a cat"),
        ("Ana is allergic to peanuts", "Ana is allergic to shellfish"),
    ],
)
def test_values_that_may_both_hold_never_replace_each_other_without_asking(a: str, b: str) -> None:
    found = verdict(a, b)

    assert not (found.kind == "update" and (found.clear or found.confidence >= 1 / 3))


WORDS = "use never ruff flake8 not the a server has 16 GB 32 lives in Rome Oslo no longer 2024-01-01 ?"
texts = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(WORDS.split()),
        max_size=9,
    ).map(" ".join),
)
similarities = st.floats(-1.0, 1.0)


@given(texts, texts, similarities)
def test_the_order_of_the_two_texts_does_not_matter(a: str, b: str, similarity: float) -> None:
    one, other = compare(a, b, similarity=similarity), compare(b, a, similarity=similarity)

    assert one.probabilities == pytest.approx(other.probabilities)
    assert one.reason == other.reason


@given(texts, texts, similarities)
def test_probabilities_sum_to_one_and_the_reason_is_a_known_one(a: str, b: str, similarity: float) -> None:
    found = compare(a, b, similarity=similarity)

    assert sum(found.probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    assert found.reason in REASONS
    assert 0.0 <= found.confidence <= 1.0


@given(st.text(min_size=1, max_size=80))
def test_a_text_repeats_itself(text: str) -> None:
    assert compare(text, text, similarity=1.0).kind == "duplicate"


def test_the_model_was_trained_with_the_table_that_ships() -> None:
    assert EMBEDDER.fingerprint == bytes(read_arrays(pair_model.MODEL_FILE)["fingerprint"]).decode()


@given(st.lists(st.sampled_from("abcdefgh"), max_size=7), st.lists(st.sampled_from("abcdefghij"), max_size=7))
def test_the_short_way_to_the_edits_is_that_of_difflib(left: list[str], right: list[str]) -> None:
    wanted = [
        tuple(each[1:]) for each in SequenceMatcher(None, left, right).get_opcodes() if each[0] != "equal"
    ]
    assert wanted == blocks_of(left, right)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Prefer tabs over spaces", "Prefer spaces over tabs"),
        ("Bob is older than Alice", "Alice is older than Bob"),
        ("Run the tests before deploying", "Deploy before running the tests"),
    ],
)
def test_the_sides_of_a_comparison_cannot_change_places(a: str, b: str) -> None:
    assert verdict(a, b).kind in ("contradiction", "update")


def test_a_phrase_that_only_moved_is_no_comparison_turned_round() -> None:
    assert (
        verdict("Before the release, run the tests", "Run the tests before the release").kind == "duplicate"
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Sales in 2022 were 5 million", "Sales in 2023 were 6 million"),
        ("Sales in May were 10", "Sales in June were 12"),
        ("Port 8080 is open", "Port 9090 is open"),
        ("PR #441 is merged", "PR #442 is merged"),
        ("node20 is used in CI", "node22 is used in CI"),
        ("DB_HOST is required", "DB_PORT is required"),
        (
            "The variable DB_HOST must be set before the start",
            "The variable DB_PORT must be set before the start",
        ),
        ("`parse_date()` returns None on error", "`parse_time()` returns None on error"),
        ("Fixed a bug in the parser", "Fixed a bug in the lexer"),
        ("Ran 5 km on Monday", "Ran 8 km on Tuesday"),
        ("Deployed v1.2 to production", "Deployed v1.3 to production"),
        ("On 2024-05-01 the site was down for 10 minutes", "On 2024-06-01 the site was down for 25 minutes"),
        ("On Monday we deployed v1", "On Tuesday we deployed v2"),
        ("2024-05-01: 12 orders came in", "2024-05-02: 15 orders came in"),
    ],
)
def test_what_is_said_of_two_times_or_two_things_of_a_kind_goes_together(a: str, b: str) -> None:
    assert verdict(a, b).kind == "neutral"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Bob moved to Oslo in 2019", "Bob moved to Oslo in 2020"),
        ("The server has 16 GB of RAM", "The server has 32 GB of RAM"),
        ("Revenue grew 10% last year", "Revenue fell 10% last year"),
        ("Bob works at Acme", "Bob left Acme"),
        ("The meeting is on Monday", "The meeting is on Tuesday"),
        ("Python 3.11 is required", "Python 3.12 is required"),
        ("Port 8080 is the default", "Port 9090 is the default"),
        ("Sprint 5 is the current sprint", "Sprint 6 is now the current sprint"),
        ("Gate 12 is our gate", "Gate 14 is our gate"),
        ("Version 2 is in production", "Version 3 is in production"),
        ("The gateway is at 192.168.1.10", "The gateway is at 192.168.1.11"),
        ("Ana's account number is 12345678901", "Ana's account number is 12345678902"),
        ("We run nginx 1.10", "We run nginx 1.1"),
        ("We build the frontend with node20", "We build the frontend with node22"),
        ("The stable endpoint is api-v1", "The stable endpoint is api-v2"),
        ("The parser lives in foo.py", "The parser lives in bar.py"),
        ("The entry point is main.py", "The entry point is app.py"),
        ("On Monday the backup runs", "On Tuesday the backup runs"),
    ],
)
def test_another_value_of_the_same_is_still_seen(a: str, b: str) -> None:
    found = verdict(a, b)

    assert found.kind in ("contradiction", "update")
    assert found.confidence > 1 / 3


DAY = ("2024-05-05", "5 May 2024", "May 5, 2024", "the 5th of May 2024", "may the 5th 2024")


@pytest.mark.parametrize("b", DAY[1:])
def test_a_day_in_two_notations_is_one_day(b: str) -> None:
    verdict = compare(f"The deadline is {DAY[0]}", f"The deadline is {b}", similarity=0.9)
    assert (verdict.kind, verdict.clear) == ("duplicate", True)


@pytest.mark.parametrize(
    "b", ["2024-06-05", "6 May 2024", "May 5, 2023", "2024-05-05T10:00", "5 May", "12024-05-05"]
)
def test_another_day_is_another_value(b: str) -> None:
    a, b = f"The deadline is {DAY[1]}", f"The deadline is {b}"
    verdict = compare(a, b, similarity=0.9)
    assert not (verdict.kind == "duplicate" and verdict.clear)
    assert in_one_notation(a, b) == (a, b)


@given(st.sampled_from(DAY), st.sampled_from(DAY), st.sampled_from(["", " at noon", " in Rome"]))
def test_notations_do_not_depend_on_the_order(one: str, other: str, rest: str) -> None:
    a, b = f"Due {one}{rest}", f"Due {other}"
    assert in_one_notation(a, b) == in_one_notation(b, a)[::-1]
