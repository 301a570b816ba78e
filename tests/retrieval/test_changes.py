"""A text that says a value has changed: which values, of what, and whose."""

from __future__ import annotations

import numpy as np
import pytest

from skep.retrieval.currency import Facts, around_changes, of_a_namesake, renew
from skep.retrieval.query import understand


@pytest.mark.parametrize(
    "text",
    [
        "the quota was raised to 40 seats",
        "the quota dropped from 60 to 40",
        "I'm trimming the quota to about 40",
        "with the updated quota of 40",
        "the quota has now reached 40",
        "the quota is now 40",
    ],
)
def test_a_changed_number_is_told_with_what_it_is_of(text: str) -> None:
    assert {"quota", "40"} <= around_changes("number", text)


@pytest.mark.parametrize(
    "text",
    [
        "the hearing was postponed to June 3",
        "the hearing got moved to Friday",
        "our new June 3 hearing",
        "they brought the hearing forward to 9 am",
    ],
)
def test_a_changed_time_is_told_with_what_it_is_of(text: str) -> None:
    assert "hear" in around_changes("time", text)


@pytest.mark.parametrize(
    "text",
    [
        "the quota is 40",
        "the quota was raised by 40",
        "raised. The quota is 40",
        "now that the quota of 40 is set",
    ],
)
def test_a_value_that_only_stands_there_has_not_changed(text: str) -> None:
    assert not around_changes("number", text)


def test_words_far_from_the_value_are_not_what_it_is_of() -> None:
    text = "The annual report on bicycles is late because of the weather and much else that happened in between. "
    assert "bicycl" not in around_changes("number", text + "The quota was raised to 40.")


def test_a_part_of_a_name_is_another_name() -> None:
    assert of_a_namesake(["Ana Reyes"], "Bob Reyes has moved")
    assert not of_a_namesake(["Ana Reyes"], "Ana Reyes has moved")
    assert not of_a_namesake(["Ana"], "Bob has moved")


FIRST = (
    "The Lakeside team quota of 60 seats holds for the spring term, and I wonder how we could seat those who come "
    "late, whether there are chairs enough in the hall, and whom to ask for the keys of the small room behind it"
)
TEXTS = [FIRST, "By the way, the team quota was raised to 40"]
QUESTION = "What is the Lakeside team quota for the spring term?"


def _asked(texts: list[str] = TEXTS, question: str = QUESTION, *, score: float = 0.55) -> list[int]:
    query = understand(question, 0.0)
    matched = np.array([[1, 1, 1, 1], [0, 1, 1, 0]], dtype=bool)
    facts = Facts(
        matched,
        np.ones(4),
        texts,
        np.array([1.0, 2.0]),
        np.array([1.0, score]),
        holding=np.array([True, True]),
        rows=np.array([1, 2]),
        wants="number",
        asked=frozenset(query.terms),
        names=query.names,
        over_all=query.over_all,
    )
    return renew(facts).order.tolist()


def test_a_later_change_of_the_value_comes_first_though_it_ranks_far_behind() -> None:
    assert _asked() == [1, 0]
    assert _asked(score=0.45) == [0, 1]


def test_without_a_word_of_change_it_must_rank_close() -> None:
    assert _asked([TEXTS[0], "By the way, the team quota is 40"]) == [0, 1]


def test_the_change_must_be_of_what_is_asked_for() -> None:
    assert _asked([TEXTS[0], "By the way, the room count was raised to 40. Our team has a quota."]) == [0, 1]


def test_a_question_over_several_memories_keeps_them_in_place() -> None:
    assert understand("How many seats in total does the Lakeside team quota allow?", 0.0).over_all
    assert _asked(question="What do the Lakeside team quota and the spring term cost in total?") == [0, 1]
