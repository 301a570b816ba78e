"""What is marked in an answer: what conflicts, what is outdated; and what is neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.lifecycle.maintain import MaintainConfig


@pytest.fixture
def bank(clock: Clock) -> Iterator[Bank]:
    """An empty bank as a user gets it: with the bundled transformer."""
    with Bank.open(":memory:", embedder="minilm", now=clock) as opened:
        yield opened


def told(bank: Bank, clock: Clock, *texts: str, **how: object) -> list[str]:
    ids: list[str] = []
    for text in texts:
        ids.append(bank.remember(text, on_conflict="ignore", **how).memory.id)  # type: ignore[arg-type]
        clock.pass_days(1)
    bank.reembed()
    return ids


UPDATES = [
    ("Who is the CEO?", "The CEO is Jane Doe", "The CEO is John Smith"),
    ("which linter do we use?", "Use ruff for linting", "Use flake8 for linting"),
    ("what is the budget", "The budget is $5,000", "The budget is $7,500"),
    ("Where does Ana live?", "Ana lives in Rome", "Ana lives in Oslo"),
    ("is the API public?", "The API is public", "The API is not public"),
    ("which linting tool?", "Use ruff for linting", "Never use ruff for linting"),
]


DIRECTIONS = [(query, *pair) for query, one, other in UPDATES for pair in ((one, other), (other, one))]


@pytest.mark.parametrize(("query", "older", "newer"), DIRECTIONS)
def test_the_newest_value_comes_first_and_is_never_marked(
    bank: Bank, clock: Clock, query: str, older: str, newer: str
) -> None:
    was, now = told(bank, clock, older, newer)

    hits = bank.recall(query)

    assert [hit.memory.id for hit in hits] == [now, was]
    assert hits[0].score >= hits[1].score
    assert "outdated" not in hits[0].flags
    assert hits[1].updated_by in (None, now)


@pytest.mark.parametrize(("query", "older", "newer"), DIRECTIONS)
def test_however_few_are_asked_for_the_newest_value_is_the_first(
    bank: Bank, clock: Clock, query: str, older: str, newer: str
) -> None:
    _, now = told(bank, clock, older, newer)

    found = bank.recall(query, limit=1, explain=True)

    assert [hit.memory.id for hit in found] == [now]
    assert [(hit.flags, hit.conflicts_with) for hit in found] == [((), ())], (
        "of what is not shown nothing is said"
    )
    assert found.trace[-1].kept == 1
    assert bank.rank(query, limit=1).ids == (now,)


@pytest.mark.parametrize(
    ("query", "older", "newer"),
    [
        ("Is the API public?", "The API is public", "The API is private"),
        ("API public?", "The API is public", "The API is private"),
        ("Isn't the API private?", "The API is private", "The API is public"),
        ("is the feature flag enabled", "The feature flag is enabled", "The feature flag is disabled"),
        ("Do the tests pass on Windows?", "The tests pass on Windows", "The tests fail on Windows"),
        ("Are backups encrypted?", "Backups are encrypted", "Backups are unencrypted"),
    ],
)
@pytest.mark.parametrize("policy", ["ignore", "warn"])
def test_whether_something_is_so_is_answered_by_what_is_so_now(
    bank: Bank, clock: Clock, query: str, older: str, newer: str, policy: Any
) -> None:
    bank.remember_many(["The API returns JSON", "Backups go to the vault", "The tests take an hour"])
    clock.pass_days(1)
    was = bank.remember(older, on_conflict=policy).memory.id
    clock.pass_days(1)
    now = bank.remember(newer, on_conflict=policy).memory.id
    bank.reembed()

    first, second = bank.recall(query)[:2]

    assert [first.memory.id, second.memory.id] == [now, was]
    assert "outdated" not in first.flags
    assert bank.recall(query, limit=1)[0].memory.id == now


@pytest.mark.parametrize(
    ("query", "asked", "newer"),
    [
        ("Is the blue budget approved?", "The blue budget is approved", "The red budget is approved"),
        ("Is the endpoint slow?", "The endpoint is slow", "The endpoint is documented"),
        pytest.param("Does Bob speak French?", "Bob speaks French", "Bob speaks German"),
        ("Is the API of billing public?", "The API of billing is public", "The API of search is private"),
        pytest.param("Is it enabled in staging?", "It is enabled in staging", "It is enabled in production"),
    ],
)
def test_an_older_hit_stays_first_where_the_newer_does_not_say_whether(
    bank: Bank, clock: Clock, query: str, asked: str, newer: str
) -> None:
    told(bank, clock, asked, newer)

    assert bank.recall(query)[0].memory.text == asked


def test_of_copies_the_newest_comes_first_and_none_is_marked(bank: Bank, clock: Clock) -> None:
    for text in ("The API returns JSON", "the API returns JSON!", "The API returns JSON."):
        (newest,) = told(bank, clock, text)
        hits = bank.recall("what does the API return?")
        assert hits[0].memory.id == newest
        assert not any(hit.flags for hit in hits)


def test_of_one_moment_the_later_written_is_the_newer(bank: Bank) -> None:
    for number in range(12):  # ids of one and of two digits
        bank.remember(f"unrelated {'abcdefghijkl'[number] * 4}", on_conflict="ignore")
    values = [bank.remember(f"The budget is ${n},000", on_conflict="ignore").memory.id for n in (7, 5)]
    assert [hit.memory.id for hit in bank.recall("what is the budget", limit=2)] == values[::-1]


@pytest.mark.parametrize(
    ("query", "older", "newer"),
    [
        ("how old is Mia?", "Mia is 5 years old", "Mia is 6 years old"),
        ("how old is Mia now?", "Mia is 5", "Mia is 6"),
        ("where is the first aid kit?", "The first aid kit is in room 4", "The first aid kit is in room 9"),
        ("what is the initial capacity?", "The initial capacity is 16", "The initial capacity is 32"),
        (
            "when was the password last changed?",
            "The password was last changed in May",
            "The password was last changed in July",
        ),
    ],
)
def test_a_word_of_the_past_that_is_part_of_the_matter_does_not_ask_for_the_past(
    bank: Bank, clock: Clock, query: str, older: str, newer: str
) -> None:
    told(bank, clock, older, newer)

    hits = bank.recall(query)

    assert [hit.memory.text for hit in hits] == [newer, older]


@pytest.mark.parametrize(
    "query", ["what was the original budget?", "what was the old budget?", "what was the budget at first?"]
)
def test_a_word_of_the_past_that_no_memory_holds_asks_for_the_past(
    bank: Bank, clock: Clock, query: str
) -> None:
    older, _ = told(bank, clock, "The budget is $5,000", "The budget is $7,500")

    hits = bank.recall(query)

    assert hits[0].memory.id == older
    assert all("outdated" not in hit.flags for hit in hits)


def test_a_question_about_the_past_is_not_answered_with_the_newest_first(bank: Bank, clock: Clock) -> None:
    told(bank, clock, "The budget is $5,000", "The budget is $7,500")
    assert not any("outdated" in hit.flags for hit in bank.recall("what was the previous budget"))


@pytest.mark.parametrize(
    ("query", "asked", "newer"),
    [
        (
            "what is the limit of service-a?",
            "The limit of service-a is 100",
            "The limit of service-b was raised to 200",
        ),
        pytest.param(
            "what is ana@x.org's quota?",
            "The quota of ana@x.org is 5 GB",
            "The quota of bob@x.org was changed to 9 GB",
        ),
    ],
)
def test_a_change_of_something_else_outdates_no_identifier(
    bank: Bank, clock: Clock, query: str, asked: str, newer: str
) -> None:
    told(bank, clock, asked, newer)

    first = bank.recall(query)[0]

    assert first.memory.text == asked
    assert "outdated" not in first.flags


def test_an_older_hit_that_alone_holds_what_is_asked_stays_first(bank: Bank, clock: Clock) -> None:
    older, _newer = told(bank, clock, "The blue budget is $5,000", "The red budget is $7,500")
    assert bank.recall("what is the blue budget")[0].memory.id == older


@pytest.mark.parametrize(
    ("query", "one", "other"),
    [
        ("What is Ana allergic to?", "Ana is allergic to peanuts", "Ana is allergic to shellfish"),
        ("What does Ana like?", "Ana likes tea", "Ana likes coffee"),
        ("Which languages does Bob speak?", "Bob speaks French", "Bob speaks German"),
    ],
)
def test_values_that_hold_beside_each_other_are_not_marked(
    bank: Bank, clock: Clock, query: str, one: str, other: str
) -> None:
    told(bank, clock, one, other)
    assert [hit.flags for hit in bank.recall(query)] == [(), ()]


def test_what_two_people_say_of_themselves_does_not_conflict(bank: Bank, clock: Clock) -> None:
    for user, colour in (("ana", "red"), ("bob", "blue")):
        told(bank, clock, f"My favourite colour is {colour}", scope={"user": user})
    assert [hit.flags for hit in bank.recall("favourite colour")] == [(), ()]
    assert [hit.flags for hit in bank.recall("favourite colour", scope={"user": "*"})] == [(), ()]


def test_two_sessions_of_one_person_are_compared(bank: Bank, clock: Clock) -> None:
    texts = ("The deploy window of my team is Tuesday", "The deploy window of my team is Thursday")
    older, newer = (
        told(bank, clock, text, scope={"user": "ana", "session": session})[0]
        for session, text in zip("12", texts, strict=True)
    )
    hits = bank.recall("When is the deploy window of my team?")
    assert [(hit.memory.id, hit.conflicts_with) for hit in hits] == [(newer, (older,)), (older, (newer,))]


def test_a_memory_does_not_conflict_with_the_one_that_replaced_it(bank: Bank, clock: Clock) -> None:
    older, newer = told(bank, clock, "The deploy window is Tuesday", "The deploy window is Thursday")
    bank.supersede(older, newer)
    hits = bank.recall("deploy window", include_superseded=True)
    assert {hit.memory.id for hit in hits} == {older, newer}
    assert [hit.conflicts_with for hit in hits] == [(), ()]


def test_hits_that_a_link_sets_against_each_other_are_marked(bank: Bank, clock: Clock) -> None:
    one, other = told(bank, clock, "Backups are encrypted at rest", "Backups are readable by every intern")
    assert not any(hit.conflicts_with for hit in bank.recall("backups"))
    bank.link(one, other, "contradicts")

    marked = {hit.memory.id: (hit.flags, hit.conflicts_with) for hit in bank.recall("backups")}

    assert marked == {one: (("conflict",), (other,)), other: (("conflict",), (one,))}
    bank.unlink(one, other, "contradicts")
    assert not any(hit.conflicts_with for hit in bank.recall("backups"))


def test_a_link_that_maintenance_makes_is_looked_for(bank: Bank, clock: Clock) -> None:
    told(bank, clock, "Ben is a vegetarian", "Ben is not a vegetarian")
    assert bank.setting("recall/contradicts") is None
    bank.maintain(MaintainConfig(halve=True))
    assert bank.setting("recall/contradicts") is True
    assert bank.maintain(MaintainConfig(halve=True)).changed == 0
