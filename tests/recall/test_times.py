"""Questions that name a time: what is of that time answers, and the newest of that time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank


def at(year: int, month: int, day: int) -> float:
    return datetime(year, month, day, tzinfo=UTC).timestamp()


@pytest.fixture
def dated() -> Iterator[Bank]:
    """Opened on 15 January 2026."""
    with Bank.open(":memory:", embedder="minilm", now=Clock(at(2026, 1, 15))) as bank:
        for text, created_at in (
            ("Shipped the login rewrite", at(2023, 5, 9)),
            ("Shipped the search rewrite", at(2025, 11, 3)),
            ("Shipped the billing rewrite", at(2025, 12, 3)),
            ("Ana lives in Rome", at(2023, 2, 3)),
            ("Ana lives in Oslo", at(2025, 4, 1)),
        ):
            bank.remember(text, created_at=created_at, on_conflict="ignore")
        bank.reembed()
        yield bank


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("what did we ship last month", "Shipped the billing rewrite"),
        ("what did we ship in May 2023", "Shipped the login rewrite"),
        ("what did we ship two months ago?", "Shipped the search rewrite"),
    ],
)
def test_a_memory_need_not_say_of_which_time_it_is(dated: Bank, question: str, answer: str) -> None:
    found = dated.recall(question)

    assert found.hits
    assert found[0].memory.text == answer


def test_where_nothing_is_of_that_time_the_nearest_comes_all_the_same(dated: Bank) -> None:
    found = dated.recall("what did we ship two weeks ago?", limit=3)

    assert all(hit.memory.text.startswith("Shipped") for hit in found)
    assert all("time" not in hit.signals or not hit.signals["time"] for hit in found)
    assert not dated.recall("what did we ship two weeks ago?", config={"temporal": "filter"})


@pytest.mark.parametrize(
    ("question", "order"),
    [
        ("where does Ana live?", ["Ana lives in Oslo", "Ana lives in Rome"]),
        ("where did Ana live in 2023?", ["Ana lives in Rome", "Ana lives in Oslo"]),
        ("where did Ana live last year?", ["Ana lives in Oslo", "Ana lives in Rome"]),
    ],
)
def test_what_came_later_does_not_go_before_what_was_asked_for(
    dated: Bank, question: str, order: list[str]
) -> None:
    found = dated.recall(question, limit=2)

    assert [hit.memory.text for hit in found] == order
    assert "outdated" not in found[0].flags


@pytest.fixture
def moved() -> Iterator[Bank]:
    """An office that moved at the beginning of 2023; opened on 15 January 2026."""
    with Bank.open(":memory:", now=Clock(at(2026, 1, 15))) as bank:
        bank.remember("The office is in Rome", valid_from=at(2020, 1, 1), valid_to=at(2023, 1, 1))
        bank.remember("The office is in Oslo", valid_from=at(2023, 1, 1), on_conflict="ignore")
        yield bank


@pytest.mark.parametrize(
    ("when", "answer"),
    [(None, "Oslo"), (at(2021, 6, 1), "Rome"), ("2021-06-01", "Rome"), (at(2024, 6, 1), "Oslo")],
)
def test_what_held_at_a_time_is_found_by_that_time(
    moved: Bank, when: float | str | None, answer: str
) -> None:
    found = moved.recall("where is the office?", valid_at=when)

    assert [hit.memory.text for hit in found] == [f"The office is in {answer}"]
    assert list(moved.rank("where is the office?", valid_at=when).ids) == [hit.memory.id for hit in found]
    assert not moved.recall("where is the office?", valid_at=at(2019, 1, 1))


def test_a_time_that_was_said_stays_that_time_though_it_was_the_present_when_it_was_first_said() -> None:
    clock = Clock(at(2021, 6, 1))
    with Bank.open(":memory:", now=clock) as bank:
        bank.remember("The office is in Rome", valid_from=at(2020, 1, 1), valid_to=at(2023, 1, 1))
        for _ in range(2):
            (hit,) = bank.recall("where is the office?", valid_at=at(2021, 6, 1))
            assert hit.memory.text == "The office is in Rome"
            clock.pass_days(900)
        assert not bank.recall("where is the office?")
