from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from skep.retrieval.query import subject_matter, understand, wanted
from skep.text.dates import EVER, holds_until, spans

NOW = datetime(2025, 6, 18, 15, 30, tzinfo=UTC).timestamp()
"""A Wednesday."""


def day(year: int, month: int, number: int) -> float:
    return datetime(year, month, number, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("what changed on 2023-05-08?", (2023, 5, 8), (2023, 5, 9)),
        ("releases in 2023-05", (2023, 5, 1), (2023, 6, 1)),
        ("the outage of 8 May 2023", (2023, 5, 8), (2023, 5, 9)),
        ("the outage of May 8th, 2023", (2023, 5, 8), (2023, 5, 9)),
        ("what did we ship in May 2023?", (2023, 5, 1), (2023, 6, 1)),
        ("who joined in December 2024", (2024, 12, 1), (2025, 1, 1)),
        ("who owned it from 1811 to 1827?", (1811, 1, 1), (1828, 1, 1)),
        ("incidents in 2022", (2022, 1, 1), (2023, 1, 1)),
        ("what did I say yesterday?", (2025, 6, 17), (2025, 6, 18)),
        ("notes from today", (2025, 6, 18), (2025, 6, 19)),
        ("decisions of last week", (2025, 6, 9), (2025, 6, 16)),
        ("decisions of last month", (2025, 5, 1), (2025, 6, 1)),
        ("decisions of last year", (2024, 1, 1), (2025, 1, 1)),
        ("decisions of last quarter", (2025, 1, 1), (2025, 4, 1)),
        ("the call last Monday", (2025, 6, 16), (2025, 6, 17)),
        ("two weeks ago we moved", (2025, 6, 1), (2025, 6, 8)),
        ("3 days ago", (2025, 6, 15), (2025, 6, 16)),
        ("over the past 3 days", (2025, 6, 15), (2025, 6, 19)),
        ("what happened in September", (2024, 9, 1), (2024, 10, 1)),
        ("due May 8", (2025, 5, 8), (2025, 5, 9)),
        ("what changed on 2023/05/08?", (2023, 5, 8), (2023, 5, 9)),
        ("the letter of 8.5.2023", (2023, 5, 8), (2023, 5, 9)),
        ("the letter of 13/05/2023", (2023, 5, 13), (2023, 5, 14)),
        ("the letter of 05/13/2023", (2023, 5, 13), (2023, 5, 14)),
        ("what shipped between March and May?", (2025, 3, 1), (2025, 6, 1)),
        ("what shipped from November to February?", (2024, 11, 1), (2025, 3, 1)),
        ("what shipped from May to July 2023", (2023, 5, 1), (2023, 8, 1)),
        ("what shipped from November 2022 to January 2023", (2022, 11, 1), (2023, 2, 1)),
        ("between 3 May and 10 May 2023", (2023, 5, 3), (2023, 5, 11)),
        ("from the 3rd to the 10th of May", (2025, 5, 3), (2025, 5, 11)),
        ("between May 3 and May 10, 2023", (2023, 5, 3), (2023, 5, 11)),
        ("from December 28 to January 3", (2024, 12, 28), (2025, 1, 4)),
        ("revenue in Q3 2024", (2024, 7, 1), (2024, 10, 1)),
        ("revenue in Q3", (2024, 7, 1), (2024, 10, 1)),
        ("the third quarter of 2024", (2024, 7, 1), (2024, 10, 1)),
        ("where was I in May of last year", (2024, 5, 1), (2024, 6, 1)),
        ("where was I last June", (2024, 6, 1), (2024, 7, 1)),
        ("music of the 1990s", (1990, 1, 1), (2000, 1, 1)),
        ("in the past week", (2025, 6, 11), (2025, 6, 19)),
        ("over the past month", (2025, 5, 18), (2025, 6, 19)),
        ("half a year ago", (2024, 11, 3), (2025, 2, 2)),
        ("twenty days ago", (2025, 5, 29), (2025, 5, 30)),
        ("day before yesterday", (2025, 6, 16), (2025, 6, 17)),
        ("over the last couple of weeks", (2025, 6, 4), (2025, 6, 19)),
        ("in the last fortnight", (2025, 6, 4), (2025, 6, 19)),
        ("between Monday and Tuesday", (2025, 6, 16), (2025, 6, 18)),
        ("from last Friday to Sunday", (2025, 6, 13), (2025, 6, 16)),
        ("from Wednesday to Thursday", (2025, 6, 11), (2025, 6, 13)),
        ("born on Feb 29", (2024, 2, 29), (2024, 3, 1)),
    ],
)
def test_a_named_time_becomes_an_interval(
    text: str, start: tuple[int, int, int], end: tuple[int, int, int]
) -> None:
    (span,) = spans(text, NOW)

    assert (day(*start), day(*end)) == (span.start, span.end)


@pytest.mark.parametrize(
    "text",
    [
        *("you may deploy", "port 8080", "march on", "step 3", "the letter of 03/04/2023", "port 1.2.3.2023"),
        *("valid to 9999-12-31", "valid to 31.12.9999", "valid to 12/31/9999", "until 31 December 9999"),
        "from 30 to 31 December 9999",
    ],
)
def test_what_is_no_time_is_not_read_as_one(text: str) -> None:
    assert spans(text, NOW) == ()


def test_times_are_relative_to_the_injected_now() -> None:
    later = NOW + 86_400

    assert spans("yesterday", later)[0].start == spans("today", NOW)[0].start


def test_a_text_with_a_date_can_answer_when_and_one_with_a_number_how_many() -> None:
    assert wanted("time", ["We met last week", "We met"]).tolist() == [1.0, 0.0]
    assert wanted("number", ["Three of us met", "We met"]).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("When did we migrate?", "time"),
        ("What is the deadline for the draft?", "time"),
        ("How many workers run?", "number"),
        ("What is the error rate?", "number"),
        ("Who leads Atlas?", "thing"),
        ("Which queue do we use?", "thing"),
    ],
)
def test_the_kind_of_answer_is_seen(text: str, wants: str) -> None:
    assert wants == understand(text, NOW).wants


@pytest.mark.parametrize(
    "text",
    ["What was the limit originally?", "Where did Ana use to live before?", "What was the previous port?"],
)
def test_a_question_for_before_is_seen(text: str) -> None:
    assert understand(text, NOW).of_before([])


@pytest.mark.parametrize("text", ["Who leads Atlas?", "What is the limit now?", "How old is the bridge?"])
def test_a_question_for_now_is_none_for_before(text: str) -> None:
    assert not understand(text, NOW).of_before([])


def test_a_word_that_the_hits_share_names_a_thing_and_asks_for_nothing_before() -> None:
    asked = understand("Where is the first aid kit?", NOW)

    assert not asked.of_before(["The first aid kit is red", "First aid courses are in May"])
    assert understand("What was the first limit?", NOW).of_before(["The limit is 5", "The limit is 7"])


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (
            "List the order in which I brought up the garden across our conversations, in order? "
            "Mention ONLY and ONLY five items.",
            "the garden , ? .",
        ),
        ("Give me a short summary of how the budget has grown so far", "the budget has grown"),
        ("Summarize what we've discussed about ovens", "about ovens"),
        ("Where is the summary of the audit?", "Where is the summary of the audit?"),
        ("What do I need in order to travel?", "What do I need in order to travel?"),
        ("Summarize what we've discussed so far", "Summarize what we've discussed so far"),
        ("How many sessions did the server keep?", "How many sessions did the server keep?"),
    ],
)
def test_what_only_says_how_to_answer_is_left_out(text: str, about: str) -> None:
    assert subject_matter(text) == about


def test_words_are_looked_up_from_the_subject_matter_alone() -> None:
    asked = understand("Summarize how the oven project went across our conversations", NOW)

    assert asked.terms == ("oven", "project", "went")
    assert asked.text.startswith("Summarize")


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("before June 2023", None, "2023-06-01"),
        ("what did we decide before 2020?", None, "2020-01-01"),
        ("until March 2021", None, "2021-04-01"),
        ("after May 2023", "2023-06-01", "2023-11-15"),
        ("since 2021", "2021-01-01", "2023-11-15"),
        ("before June", None, "2023-06-01"),
        ("since last month", "2023-10-01", "2023-11-15"),
        ("between May 2022 and July 2022", "2022-05-01", "2022-08-01"),
        ("between May 2022 and 2022-07-05", "2022-05-01", "2022-07-06"),
        ("from last month until yesterday", "2023-10-01", "2023-11-14"),
        ("after March 2022 and before May 2022", "2022-04-01", "2022-05-01"),
        ("before May 2022 but after March 2022", "2022-04-01", "2022-05-01"),
        ("since May 2022, until July 2022", "2022-05-01", "2022-08-01"),
        ("from 2022-05-01 to 2022-06-01", "2022-05-01", "2022-06-02"),
        ("logged at 2022-05-08T10:00", "2022-05-08", "2022-05-09"),
        ("since Monday", "2023-11-13", "2023-11-15"),
        ("since Tuesday", "2023-11-07", "2023-11-15"),
        ("after Friday", "2023-11-11", "2023-11-15"),
        ("before Friday", None, "2023-11-10"),
        ("until Friday", None, "2023-11-11"),
    ],
)
def test_words_before_a_time_open_it_or_join_it_with_another(text: str, start: str | None, end: str) -> None:
    def at(day: str) -> float:
        return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()

    (span,) = spans(text, at("2023-11-14"))

    assert (span.start, span.end) == (EVER if start is None else at(start), at(end))


@pytest.mark.parametrize("text", ["1.5 years ago", "twenty-one days ago", "1.5 hours ago"])
def test_a_part_of_a_number_is_not_read_as_a_count(text: str) -> None:
    assert spans(text, 1.7e9) == ()


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("in the last 24 hours", -24, 1),
        ("over the past hour", -1, 1),
        ("in the last couple of hours", -2, 1),
        ("three hours ago", -4, -2),
        ("48 hours ago", -60, -36),
    ],
)
def test_hours_are_counted_from_the_moment_itself(text: str, start: int, end: int) -> None:
    early = NOW // 86_400 * 86_400 + 1800  # half past midnight

    (span,) = spans(text, early)

    assert (span.start, span.end) == (early + 3600 * start, early + 3600 * end)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("in the last 30 minutes", -30, 60),
        ("a few minutes ago", -8, 2),
        ("40 minutes ago", -50, -30),
    ],
)
def test_minutes_are_counted_like_hours(text: str, start: int, end: int) -> None:
    (span,) = spans(text, NOW)

    assert (span.start - NOW, span.end - NOW) == (60 * start, 60 * end)


@pytest.mark.parametrize("text", ["a last minute change", "10 minutes before the meeting"])
def test_minutes_that_say_how_long_are_no_time(text: str) -> None:
    assert spans(text, NOW) == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("who was here in the last 24 hours?", 0),
        ("what broke 20 minutes ago?", 0),
        ("what happened between yesterday and 2 hours ago?", 0),
        ("what happened since the last hour?", 0),
        ("what is due today?", 3600),
        ("what did we do this morning, and what on Monday?", 3600),
        ("what are the office hours?", math.inf),
        ("the hourly rate, 24 hours a day", math.inf),
    ],
)
def test_a_text_says_how_long_it_names_the_same_times(text: str, seconds: float) -> None:
    late = NOW // 86_400 * 86_400 + 23 * 3600  # an hour before midnight

    assert holds_until(text, late) == late + seconds
    for moved in (0.25, 0.5, 0.99):
        if seconds:
            then = late + moved * min(seconds, 3600)
            assert spans(text, then) == spans(text, late)
