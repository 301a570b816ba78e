from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skep.retrieval import currency
from skep.retrieval.currency import Facts, renew, tells_of_change


def facts(texts: list[str], ages: list[float], matched: list[list[int]], **more: bool) -> Facts:
    table = np.array(matched, dtype=bool)
    scores = np.linspace(1.0, 0.6, len(texts))
    return Facts(table, np.ones(table.shape[1]), texts, -np.array(ages, dtype=float), scores, **more)


def test_the_newer_of_two_values_takes_the_place_of_the_older() -> None:
    renewed = renew(
        facts(["Ana lives in Rome", "Teams meet weekly", "Ana lives in Oslo"], [9, 5, 1], [[1], [1], [1]])
    )

    assert renewed.order.tolist() == [2, 1, 0]
    assert renewed.outdated.tolist() == [True, False, False]


def test_a_repetition_is_no_rival() -> None:
    renewed = renew(facts(["Ana lives in Rome", "Ana still lives in Rome"], [9, 1], [[1], [1]]))

    assert renewed.order.tolist() == [0, 1]
    assert not renewed.outdated.any()


def test_a_told_change_replaces_what_was_said_otherwise() -> None:
    texts = ["The company CEO is R. Marte", "L. Wan was appointed CEO after the merger"]

    assert renew(facts(texts, [9, 1], [[1], [1]])).order.tolist() == [1, 0]
    assert renew(facts(texts, [9, 1], [[1], [1]], present=False)).order.tolist() == [0, 1]


def test_memories_that_hold_other_words_of_the_query_are_left_alone() -> None:
    texts = ["Ana lives in Rome", "Bob lives in Oslo"]

    assert renew(facts(texts, [9, 1], [[1, 0], [0, 1]])).order.tolist() == [0, 1]


def test_how_a_text_begins_is_looked_at_only_where_there_is_a_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    thing = currency._thing
    monkeypatch.setattr(currency, "_thing", lambda text: looked.append(text) or thing(text))
    texts = ["Ana lives in Rome", "Teams meet weekly", "Ana lives in Oslo"]

    renew(facts(texts[:2], [9, 5], [[1], [1]]))
    assert looked == []
    renew(facts(texts, [9, 5, 1], [[1], [1], [1]]))
    assert looked == [texts[0], texts[2]]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("libfoo: library for parsing XML", "libbar: library for parsing JSON"),
        ("Staging runs Postgres 15", "Production runs Postgres 14"),
        ("The Berlin office has 40 desks", "The Paris office has 25 desks"),
        ("Team A sits in the red room", "Team B sits in the blue room"),
        ("pytest failed in test_login", "pytest failed in test_logout"),
        ("The deploy crashed on web1", "The deploy crashed on web2"),
    ],
)
def test_texts_that_begin_with_two_names_are_about_two_things(older: str, newer: str) -> None:
    renewed = renew(facts([older, newer], [9, 1], [[1], [1]]))

    assert renewed.order.tolist() == [0, 1]
    assert not renewed.outdated.any()


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Team A sits in the red room", "Team A sits in the blue room"),
        ("The last deploy crashed on web1", "The last deploy crashed on web2"),
    ],
)
def test_texts_about_the_one_thing_of_a_name_or_the_last_failure_are_rivals(older: str, newer: str) -> None:
    assert renew(facts([older, newer], [9, 1], [[1], [1]])).outdated.tolist() == [True, False]


def test_a_new_one_of_the_same_kind_is_no_second_thing() -> None:
    texts = ["Old endpoint is api.one", "New endpoint is api.two"]

    assert renew(facts(texts, [9, 1], [[1], [1]])).outdated.tolist() == [True, False]


def test_equal_times_change_nothing() -> None:
    texts = ["Ana lives in Rome", "Ana lives in Oslo"]

    assert renew(facts(texts, [1, 1], [[1], [1]])).order.tolist() == [0, 1]


@pytest.mark.parametrize("text", ["It now runs on ARM", "We moved to Oslo", "The limit was raised to 5"])
def test_words_of_change_are_known(text: str) -> None:
    assert tells_of_change(text)


def asked_for_a_value(matched: list[list[int]], **more: Any) -> Facts:
    texts = ["I spent 43 of my 35 monthly book budget", "Which series fits a book budget of 50 a month?"]
    given = facts(texts, [1, 1], matched)._replace(
        score=np.array([1.0, 0.8]), holding=np.array([True, True]), rows=np.array([4, 9])
    )
    return given._replace(**more)


def test_a_question_for_a_value_gets_the_value_written_last() -> None:
    assert renew(asked_for_a_value([[1, 1], [1, 1]])).order.tolist() == [1, 0]
    assert renew(asked_for_a_value([[1, 1], [1, 1]])).outdated.tolist() == [True, False]


def test_a_value_of_something_else_changes_nothing() -> None:
    both = [[1, 1], [1, 1]]

    assert renew(asked_for_a_value([[1, 1], [1, 0]])).order.tolist() == [0, 1]
    assert renew(asked_for_a_value(both, holding=np.array([True, False]))).order.tolist() == [0, 1]
    assert renew(asked_for_a_value(both, holding=None)).order.tolist() == [0, 1]
    assert renew(asked_for_a_value(both, score=np.array([1.0, 0.5]))).order.tolist() == [0, 1]
    assert renew(asked_for_a_value(both, rows=np.array([9, 4]))).order.tolist() == [0, 1]
    assert renew(asked_for_a_value(both, present=False)).order.tolist() == [0, 1]
