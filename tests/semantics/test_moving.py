"""Changes of names that are told by a verb: what counts as one, and which older texts it concerns."""

from __future__ import annotations

import pytest

from skep.bank.bank import Bank
from skep.semantics.value_changes import moves, moves_on

OVER = [
    ("We switched from Jenkins to GitHub Actions", "We use Jenkins for CI"),
    ("We migrated the ledger from MySQL to Postgres last week", "The ledger runs on MySQL"),
    ("We moved the meeting from Monday to Friday", "The meeting is on Monday"),
    ("We moved from Berlin to Rome", "Our office is in Berlin"),
    ("We renamed master to main", "The default branch is master"),
    ("Carla took over from Bob as team lead", "Bob is the team lead"),
    ("Dana Reed replaced Omar as treasurer", "Omar is the treasurer of the club"),
    ("Ana left Acme and joined Globex", "Ana works at Acme"),
    ("I've left Siemens", "I work for Siemens"),
    ("I moved to Munich in September", "I live in Hamburg"),
    ("Tim has moved back to Oslo", "Tim lives in Rome"),
]
STANDS = [
    ("I moved the meeting to Friday", "I live in Hamburg"),
    ("We switched seats", "We use Jenkins for CI"),
    ("We switched seats from left to right", "We use the left lane"),
    ("We switched from Jenkins to GitHub Actions", "Jenkins is written in Java"),
    ("We switched from Jenkins to GitHub Actions", "We do not use Jenkins"),
    ("We switched from Jenkins to GitHub Actions", "We use Jenkins and GitHub Actions"),
    ("We drove from Berlin to Rome", "Our office is in Berlin"),
    ("Ana left the party", "Ana works at Acme"),
    ("Ana left Berlin", "Ana works at Acme"),
    ("Ben left Acme", "Ana works at Acme"),
    ("Ana moved to the Security team", "Ana lives in Rome"),
    ("Ana moved to Security", "Ana lives in Rome"),
    ("Ana moved to Oslo", "Ben lives in Rome"),
    ("Ana moved to Oslo.", "Ana lives in Oslo."),
    ("I moved to Orange County 15 years ago.", "I live in Boston"),
    ("I moved to Orange County", "I live in the US"),
    ("Carla took over from Bob as team lead", "Bob is the best cook"),
    ("We renamed master to main", "The master bedroom is upstairs"),
]

OTHERS = ("The cat is called Momo", "Lunch is at noon", "The printer is upstairs", "The garden needs water")


@pytest.mark.parametrize(("newer", "older"), OVER)
def test_a_change_that_is_told_by_a_verb_concerns_what_was(newer: str, older: str) -> None:
    assert moves_on(newer, older)
    assert not moves_on(older, newer)


@pytest.mark.parametrize(("newer", "older"), STANDS)
def test_other_things_and_other_people_stay_as_they_were(newer: str, older: str) -> None:
    assert not moves_on(newer, older)


def test_most_texts_tell_of_no_change() -> None:
    assert not moves("The deadline is Friday")
    assert not moves("Turn left at the light")


@pytest.mark.parametrize(
    ("older", "newer", "question"),
    [
        ("Ana works at Acme", "Ana left Acme and joined Globex", "does Ana work at Acme?"),
        ("Bob is the team lead", "Carla took over from Bob as team lead", "who is the team lead?"),
    ],
)
def test_after_maintenance_the_newer_comes_first_and_the_older_is_marked(
    older: str, newer: str, question: str
) -> None:
    with Bank.open(":memory:") as bank:
        bank.remember_many([{"text": text, "created_at": 1.6e9} for text in OTHERS])
        bank.remember(older, created_at=1.7e9)
        bank.remember(newer, created_at=1.7e9 + 86_400)
        bank.maintain()
        first, second = bank.recall(question)
    assert (first.memory.text, second.memory.text) == (newer, older)
    assert "outdated" in second.flags
    assert "outdated" not in first.flags
