"""What stands in quotes in a query is looked for word for word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skep import Bank
from skep.retrieval.query import holding

TEXTS = (
    "The blue green deployment went out on Friday",
    "Green paint and blue curtains for the office",
    "We paint the office green; the sky is blue",
)


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with Bank.open(tmp_path / "bank.db") as opened:
        opened.remember_many(TEXTS)
        yield opened


@pytest.mark.parametrize(
    "query", ['"blue green"', "“Blue  Green”", "`blue green`", "what of the 'blue green'?"]
)
def test_a_phrase_comes_before_its_words_in_another_order(bank: Bank, query: str) -> None:
    assert bank.recall("blue green")[0].memory.text != TEXTS[0]
    found = bank.recall(query, explain=True)
    assert found[0].memory.text == TEXTS[0]
    assert found[0].signals["phrase"] == 1.0
    assert any(stage.name == "phrases" for stage in found.trace)


@pytest.mark.parametrize(
    ("query", "older", "newer"),
    [
        (
            '"connection reset by peer"',
            "Error: connection reset by peer in job 7",
            "The peer reset the connection of job 8",
        ),
        ('who said "ship it"?', "Dana said: ship it when it's ready", "It's ready to ship, said Dana"),
        ('is "the API public"?', "Is the API public? It is", "The API is not public"),
    ],
)
def test_what_is_newer_does_not_go_before_a_phrase(query: str, older: str, newer: str) -> None:
    with Bank.open(":memory:", now=lambda: 1.1e9) as bank:
        for at, text in enumerate((older, newer)):
            bank.remember(text, created_at=1e9 + at, on_conflict="ignore")

        assert bank.recall(query)[0].memory.text == older


def test_a_phrase_that_nobody_wrote_lifts_nothing(bank: Bank) -> None:
    plain, quoted = bank.recall("green blue"), bank.recall('"green blue"')
    assert [hit.memory.id for hit in quoted] == [hit.memory.id for hit in plain]
    assert all("phrase" not in hit.signals for hit in quoted)


def test_a_phrase_is_found_in_a_crowd_of_its_words(tmp_path: Path) -> None:
    """So many hold both words, and more often, that by words alone it would not be among the candidates."""
    with Bank.open(tmp_path / "bank.db") as bank:
        bank.remember_many([f"green blue green blue, note {n}" for n in range(200)])
        there = bank.remember("Of all the ways to roll out we took blue green in the end").memory.id
        assert there not in {hit.memory.id for hit in bank.recall("blue green")}
        assert bank.recall('"took blue green"')[0].memory.id == there


def test_a_phrase_of_what_was_replaced_leads_to_what_replaced_it(bank: Bank) -> None:
    old = bank.remember("Roll outs are dark red on Mondays", on_conflict="ignore").memory.id
    new = bank.remember("We ship behind flags", on_conflict="ignore").memory.id
    bank.supersede(old, new)
    assert bank.recall('"dark red on Mondays"')[0].memory.id == new


def test_presets_that_are_a_formula_know_no_phrases(bank: Bank) -> None:
    ranked = {query: bank.recall(query, preset="hybrid") for query in ("blue green", '"blue green"')}
    assert all("phrase" not in hit.signals for found in ranked.values() for hit in found)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("a blue green deploy", True),
        ("BLUE\ngreen", True),
        ("(blue green)", True),
        ("a blue greenhouse", False),
        ("a skyblue green", False),
        ("blue greenhouse, blue green", True),
        ("green blue", False),
    ],
)
def test_neither_case_nor_blanks_count_and_words_stay_whole(text: str, held: bool) -> None:
    assert holding(["blue green"], [text]).tolist() == [float(held)]


def test_of_several_phrases_the_share_that_is_held_counts() -> None:
    assert holding(["blue", "red"], ["blue and red", "blue", "green"]).tolist() == [1.0, 0.5, 0.0]
