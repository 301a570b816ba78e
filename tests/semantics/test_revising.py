"""Announced changes: what counts as one, and which older texts it concerns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.semantics.value_changes import announced, revises

REVISED = [
    ("The studio rent was raised to $980, can you redo my plan?", "My studio rent is $900, due on the first"),
    (
        "I moved the dentist appointment to June 4, what else is on that day?",
        "Dentist appointment on June 1 at noon",
    ),
    ("We have a new launch deadline of August 3, help me plan", "The launch has a deadline of July 20"),
    (
        "I won't make the revised July 9 deadline for the grant",
        "My grant application: the deadline is July 1",
    ),
    ("Our test coverage has been increased to 85% this week", "Right now the test coverage is 70% or so"),
    ("We cut the sync interval from 30 minutes to 5 minutes", "The sync interval is 30 minutes"),
    ("The holiday fund, which has now reached $2,400, is growing", "There are $1,900 in the holiday fund"),
    ("Team size went up: we expanded the support team from 4 to 7", "The support team has 4 people"),
]
APART = [
    ("The rent was raised to $980", "The phone bill is $40"),
    (
        "The budget was raised to $980",
        "For the party I have a budget of $90",
    ),  # one word, and nothing else in common
    ("The rent was raised to $980", "My rent went up to $980 in May"),
    ("The rent is $980", "The rent is $900"),
    ("I moved the dentist appointment to June 4", "I moved to Leeds on June 1"),
    ("I read 3 new papers on June 4", "The papers are due on June 1"),
    ("We cut the sync interval from 30 minutes to 5 minutes", "The sync interval was 45 minutes once"),
    (
        "Update on Delta: the team was expanded from 8 to 10",
        "Update on Beacon: the team was expanded from 6 to 8",
    ),
    ("The schedule has been updated to include 3 sets of squats", "Add 10 sets of squats to the schedule"),
    ("Moved the release notes to 3.2", "Finalised the release notes of 4.0"),
    ("We've already increased the food budget to $500", "The food budget is $550 from now on"),
]


@pytest.mark.parametrize(("newer", "older"), REVISED)
def test_an_announced_change_revises_a_text_that_holds_another_value_of_the_same_thing(
    newer: str, older: str
) -> None:
    assert revises(newer, older)


@pytest.mark.parametrize(("newer", "older"), APART)
def test_other_things_values_that_were_known_and_plain_statements_are_left_alone(
    newer: str, older: str
) -> None:
    assert not revises(newer, older)


def test_a_change_says_what_changed_from_what_to_what() -> None:
    (change,) = announced("I lowered the screen time limit from 3 hours to 90 minutes a day")
    assert (change.kind, change.value, change.was) == ("span", "90minutes", "3hours")
    assert change.thing == ("screen", "time", "limit")


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_texts_can_be_asked_about(newer: str, older: str) -> None:
    assert revises(newer, older) in (True, False)
    assert not revises(newer, newer)
