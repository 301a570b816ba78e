"""The comparer: a change is understood however it is told, and look-alikes are left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.semantics.find_conflicts import REPORTED, SURE, same_words
from skep.semantics.pair_judge import BATCH, KINDS, WIDTH, Pair, judge, judge_many, update_scores

AGAINST = ("updates", "contradicts")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The boiler is serviced every 12 months", "The boiler is serviced every 18 months"),
        ("The garage code is 5512", "The garage code is 8830"),
        ("Deniz lives in Tirana", "Deniz lives in Skopje"),
        ("The rowing club is based in Linz", "The rowing club is based in Steyr now"),
        ("Use pnpm for the frontend", "Never use pnpm for the frontend"),
        ("Comments are moderated", "Comments are not moderated"),
    ],
)
def test_a_new_value_or_a_denial_goes_against_the_earlier_memory(earlier: str, later: str) -> None:
    verdict = judge(earlier, later, 0.85)
    assert verdict.kind in AGAINST
    assert verdict.probability >= REPORTED


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The staging cluster has 3 nodes", "The production cluster has 9 nodes"),
        ("Marta takes the tram to work", "Edon cycles to work"),
        ("On Android the cache is cleared weekly", "On iOS the cache is cleared daily"),
        ("Use attrs", "Do not use pydantic"),
        ("Bed 3 gets compost in March", "Bed 4 gets lime in March"),
        ("Selma speaks Bosnian", "Selma speaks Danish"),
        ("The pump on deck four leaks", "The pump on deck four leaks, says the mate"),
        ("The ferry goes from Split to Ancona", "The ferry goes from Ancona to Split"),
        ("Visitors in 2021 numbered 4,100", "Visitors in 2022 numbered 5,300"),
        ("The kiln fires at 1,240 degrees", "Is the kiln fired at 1,100 degrees?"),
    ],
)
def test_look_alikes_are_neither_updates_nor_repetitions(earlier: str, later: str) -> None:
    verdict = judge(earlier, later, 0.8)
    assert verdict.kind not in AGAINST or verdict.probability < REPORTED
    assert verdict.kind != "same" or verdict.probability < SURE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The kiln needs nine hours", "the kiln needs 9 hours."),
        ("Note: the kiln needs 9 hours", "Kiln needs 9 hours!"),
        ("By the way, backups are really kept for 30 days", "Backups are kept for 30 days"),
    ],
)
def test_the_same_statement_in_other_spelling_is_the_same(one: str, other: str) -> None:
    assert same_words(one, other)
    assert judge(one, other)[:2] == ("same", 1.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Copy the files from alpha to beta", "Copy the files from beta to alpha"),
        ("The freezer is at -18", "The freezer is at 18"),
        ("Write it in C++", "Write it in C"),
        ("The server was down", "The server is down"),
        ("The light is on", "The light is off"),
        ("Ana pays", "Ana pays?"),
    ],
)
def test_order_signs_and_small_words_make_another_statement(one: str, other: str) -> None:
    assert not same_words(one, other)
    assert judge(one, other, 0.99).probability < 1.0 or judge(one, other, 0.99).kind != "same"


def test_opposite_marks_of_the_writers_come_first() -> None:
    verdict = judge_many([Pair("Tea at four", "Tea at four", 0.99, polarity=-1)])[0]
    assert (verdict.kind, verdict.reason) == ("contradicts", "polarity")


def test_a_change_told_by_a_verb_scores_above_its_look_alike() -> None:
    earlier = ["Hedda runs the accounts"] * 2
    scores = update_scores(earlier, ["Hedda left, Ivo does the accounts now", "Ivo runs the archive"])
    assert scores[0] > scores[1]


def test_a_pair_is_judged_alike_alone_and_among_many() -> None:
    pairs = [Pair(f"Shelf {n} holds paint", f"Shelf {n} holds brushes", 0.7) for n in range(BATCH + 3)]
    for pair, verdict in zip(pairs, judge_many(pairs), strict=True):
        alone = judge_many([pair])[0]
        assert alone.kind == verdict.kind
        assert alone.probability == pytest.approx(verdict.probability, abs=1e-4)


def test_vectors_of_another_width_are_left_out_of_the_score() -> None:
    texts = ["The gate opens at 8"], ["The gate opens at 9 now"]
    other = np.ones((1, 256), np.float32)
    assert update_scores(*texts, other, other) == pytest.approx(update_scores(*texts), abs=1e-6)
    own = np.full((1, WIDTH), WIDTH**-0.5, np.float32)
    assert update_scores(*texts, own, own) != pytest.approx(update_scores(*texts), abs=1e-6)


def test_no_pairs_are_no_work() -> None:
    assert judge_many([]) == []
    assert len(update_scores([], [])) == 0


@given(st.lists(st.tuples(st.text(), st.text(), st.none() | st.floats(-1, 1)), max_size=5))
def test_any_texts_have_a_verdict_with_a_probability(pairs: list[tuple[str, str, float | None]]) -> None:
    for verdict in judge_many([Pair(*pair) for pair in pairs]):
        assert verdict.kind in KINDS
        assert 0 <= verdict.probability <= 1
