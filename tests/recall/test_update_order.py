"""The update of a memory takes its place in an answer; nothing is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.recall.update_order import placed

OLD, NEW = "The gateway listens on port 8080", "The gateway listens on port 9090 now"


@pytest.fixture
def told(clock: Clock) -> Iterator[Bank]:
    """A bank with the bundled transformer that knows a value, its update, and other things."""
    with Bank.open(":memory:", embedder="minilm", now=clock) as bank:
        for text in (
            *(
                "The gateway was written in Go",
                "The printer listens on port 9100",
                "Ana looks after the gateway",
            ),
            *("Lunch is at noon", OLD, NEW),
        ):
            bank.remember(text, on_conflict="ignore")
            clock.pass_days(10)
        bank.reembed()
        yield bank


def texts(bank: Bank, question: str, **how: object) -> list[str]:
    return [hit.memory.text for hit in bank.recall(question, limit=10, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "question",
    ["Which port does the gateway listen on?", "What is the current port of the gateway?", "gateway port"],
)
def test_the_update_comes_first(told: Bank, question: str) -> None:
    assert texts(told, question)[:2] == [NEW, OLD]


def test_facts_of_one_text_keep_their_places(clock: Clock) -> None:
    facts = {
        "When does the museum open?": "The museum opens at ten",
        "What does the museum shop sell?": "The museum shop sells posters",
        "What do museum tickets cost?": "Tickets for the museum cost nine euros",
        "Who guides groups?": "Greta guides groups through the museum",
        "Which languages does Greta speak?": "Greta speaks Danish and Polish",
        "Which days do we deploy?": "We deploy on Tuesdays and Thursdays",
        "What is the new build server called?": "The new build server is called forge",
    }
    with Bank.open(":memory:", embedder="minilm", now=clock) as bank:
        bank.remember_many(facts.values())
        bank.reembed()
        assert {question: texts(bank, question)[0] for question in facts} == facts


@pytest.mark.parametrize(
    "question",
    [
        "Which port did the gateway use to listen on?",
        "Which port did the gateway listen on before?",
        "What was the previous port of the gateway?",
        "What was the port of the gateway originally?",
    ],
)
def test_a_question_for_before_turns_the_order_round(told: Bank, question: str) -> None:
    assert texts(told, question)[:2] == [OLD, NEW]


def test_nothing_is_hidden(told: Bank) -> None:
    question = "Which port does the gateway listen on?"

    assert sorted(texts(told, question)) == sorted(texts(told, question, config={"updates": False}))


def test_scores_fall_from_hit_to_hit_whatever_was_moved(told: Bank) -> None:
    scores = [hit.score for hit in told.recall("Which port does the gateway listen on?", limit=10)]

    assert scores == sorted(scores, reverse=True)


def test_other_presets_keep_their_order(told: Bank) -> None:
    for preset in ("semantic", "hybrid", "rrf"):
        question = "Which port does the gateway listen on?"
        assert all(hit.updated_by is None for hit in told.recall(question, preset=preset))


def linked(bank: Bank, clock: Clock, *, kind: str = "fact") -> tuple[str, str]:
    """A memory, and another in other words that a link calls its update."""
    old = bank.remember("The snack budget for the movie night is $50", kind=kind).memory.id
    clock.pass_days(1)
    new = bank.remember("Drinks on Friday cost up to $75", kind=kind).memory.id
    bank.link(new, old, "updates")
    return old, new


ASKED = "What is the snack budget for the movie night?"


def test_a_link_is_certain_and_marks_what_it_updates(bank: Bank, clock: Clock) -> None:
    old, new = linked(bank, clock)

    first, second = bank.recall(ASKED)

    assert (first.memory.id, first.flags) == (new, ())
    assert (second.memory.id, second.flags, second.updated_by) == (old, ("outdated",), new)
    assert new in second.why()


def test_without_the_link_the_memory_has_its_place_back(bank: Bank, clock: Clock) -> None:
    old, new = linked(bank, clock)
    bank.unlink(new, old, "updates")

    first, second = bank.recall(ASKED)

    assert [first.memory.id, second.memory.id] == [old, new]
    assert (first.flags, second.flags) == ((), ())


def test_an_update_that_the_filter_does_not_admit_moves_nothing(bank: Bank, clock: Clock) -> None:
    old, _new = linked(bank, clock)
    bank.revise(old, tags=["money"])

    assert [(hit.memory.id, hit.flags) for hit in bank.recall(ASKED, tags=["money"])] == [(old, ())]


def test_a_chain_of_updates_is_shown_newest_first(bank: Bank, clock: Clock) -> None:
    ids: list[str] = []
    for text in ("The mascot of the club is a heron", "They voted for an otter", "It became a badger"):
        ids.append(bank.remember(text, on_conflict="ignore").memory.id)
        clock.pass_days(1)
    for older, newer in pairwise(ids):
        bank.link(newer, older, "updates")

    found = [hit.memory.id for hit in bank.recall("What is the mascot of the club?")]

    assert found == ids[::-1]


@given(
    st.integers(1, 8).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12),
        )
    ),
    st.booleans(),
)
def test_every_candidate_keeps_a_place_even_where_links_form_a_ring(
    given: tuple[int, list[tuple[int, int]]], former: bool
) -> None:
    count, pairs = given
    order = placed([one for one, _ in pairs], [other for _, other in pairs], count, former=former)

    assert sorted(order) == list(range(count))


def test_each_newer_one_stands_before_its_older_one_or_behind_it_for_before() -> None:
    assert placed([0], [2], 4, former=False) == [2, 0, 1, 3]
    assert placed([2], [0], 4, former=True) == [2, 0, 1, 3]
    assert placed([0, 1], [1, 2], 3, former=False) == [2, 1, 0]


def test_an_update_of_an_update_stays_before_both_when_one_of_them_moves() -> None:
    assert placed([0, 2], [2, 1], 3, former=False) == [1, 2, 0]
