"""One statement said twice is one statement; anything that could be another is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.semantics.parse_text import analyse
from skep.semantics.same_statement import said_twice


def twice(a: str, b: str) -> bool:
    return said_twice(analyse(a), analyse(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Last week, the team met the auditors", "The team met the auditors last week"),
        ("The gateway restarts at night in Oslo", "At night the gateway restarts in Oslo"),
        ("If the queue is full, drop the oldest job", "Drop the oldest job if the queue is full"),
        ("Ana bought a bike", "Ana purchased a bike"),
        ("The user wants a quick answer", "The user wants a fast answer"),
        ("Please note that the office is closed", "The office is closed"),
        ("The office is closed (confirmed)", "The office is closed."),
        ("She really likes her garden", "She likes her garden"),
        ("We can't deploy in June", "In June we cannot deploy"),
        ("I like tea and toast", "I like toast and tea"),
        ("The office is close to the station", "The office is near the station"),
        ("The team has twelve members", "Note: the team has 12 members"),
    ],
)
def test_openings_fillers_synonyms_and_a_moved_phrase_say_nothing_new(a: str, b: str) -> None:
    assert twice(a, b)
    assert twice(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The client pays the server", "The server pays the client"),
        ("After lunch Ana left", "Ana left before lunch"),
        ("Ana bought a bike", "Ana buys a bike"),
        ("Delta pays its bills", "Delta paid its bills"),
        ("I have a horse", "I have horses"),
        ("The user has two dogs and a cat", "The user has two cats and a dog"),
        ("I do not really like tea", "I do not like tea"),
        ("It is not just a test", "It is not a test"),
        ("Only admins may delete projects", "Admins may delete projects"),
        ("Rose met Ana", "Pink met Ana"),
        ("Deploy on Monday", "Deploy on Tuesday"),
        ("Did Ana buy a bike", "Did Ana purchase a bike?"),
        ("I think the office is closed", "The office is closed"),
        ("The tool is written in C", "The tool is written in C++"),
        ("When Ana left, Bo cried", "When Bo cried, Ana left"),
    ],
)
def test_what_could_mean_something_else_is_left_to_the_judge(a: str, b: str) -> None:
    assert not twice(a, b)
    assert not twice(b, a)


WORDS = [
    "in",
    "May",
    "Ana",
    "bought",
    "sold",
    "a",
    "two",
    "tents",
    "not",
    "the",
    "old",
    "big",
    "for",
    "Bo",
    "and",
]


@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_every_text_of_two_words_or_more_repeats_itself_and_never_its_denial(words: list[str]) -> None:
    text = " ".join(words)
    said = analyse(text)
    assert twice(text, f"not {text}") is False
    if len([w for w in words if w not in ("a", "the")]) >= 2 and not said.question:
        assert twice(text, text)
