"""What a verdict does to two memories, and what it must never do."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.errors import InvalidInputError
from skep.lifecycle.judge import DECISIONS, Case, Judge, RulesJudge, Verdicts, read_answer
from skep.lifecycle.maintain import MaintainConfig
from skep.lifecycle.resolve_conflicts import MOST_WAITING
from skep.model import STATUSES, Memory

HALVE = MaintainConfig(halve=True)
PASSES = "The test suite passes on Windows"
FAILS = "The test suite does not pass on Windows"


class Always:
    """A judge with one word for everything."""

    name = "always"

    def __init__(self, word: str) -> None:
        self.word = word

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        return Verdicts(decisions=(self.word,) * len(cases))  # type: ignore[arg-type]


def told(bank: Bank, clock: Clock, *texts: str, **options: object) -> list[str]:
    """The ids of texts that are stored one after another, unlooked at."""
    ids: list[str] = []
    for text in texts:
        ids.append(bank.remember(text, on_conflict="ignore", **options).memory.id)  # type: ignore[arg-type]
        clock.pass_seconds(10)
    return ids


def everything(bank: Bank) -> dict[str, Memory]:
    return {memory.id: memory for memory in bank.find(status=STATUSES, limit=10_000)}


def replayed(bank: Bank, clock: Clock, seed: int = 1) -> dict[str, Memory]:
    """The same bank from its events, in another order."""
    events = list(bank.events())
    random.Random(seed).shuffle(events)
    with Bank.open(":memory:", now=clock) as other:
        for event in events:
            other.apply([event])
        return everything(other)


@pytest.mark.parametrize(
    ("decision", "older", "newer"),
    [
        ("KEEP_BOTH", ("active", 0.8), ("active", 0.8)),
        ("SUPERSEDED", ("superseded", 0.4), ("active", 0.8)),
        ("MERGE", ("active", 0.8), ("merged", 0.8)),
        ("CONTRADICTION", ("active", 0.4), ("active", 0.4)),
    ],
)
def test_who_is_found_to_hold_gets_back_what_the_contradiction_took(
    bank: Bank, clock: Clock, decision: str, older: tuple[str, float], newer: tuple[str, float]
) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain(HALVE)
    assert [bank.get(i).confidence for i in (a, b)] == [0.4, 0.4]

    bank.maintain(HALVE, judge=lambda cases: [decision] * len(cases))

    assert [(bank.get(i).status, bank.get(i).confidence) for i in (a, b)] == [older, newer]
    linked = bank.neighbors(b, "contradicts").links
    assert bool(linked) is (decision in ("CONTRADICTION", "SUPERSEDED"))
    assert replayed(bank, clock) == everything(bank)
    clock.pass_days(40)
    bank.maintain()
    assert [bank.get(i).status for i in (a, b)] == [older[0], newer[0]]


def test_every_dispute_of_a_pair_is_taken_back_and_no_other(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain(HALVE)
    bank.dispute(a, by=b)
    bank.dispute(a, by="ana")
    bank.maintain(judge=lambda cases: ["KEEP_BOTH"] * len(cases))
    assert (bank.get(a).disputes, bank.get(a).confidence) == (1, 0.4)
    assert (bank.get(b).disputes, bank.get(b).confidence) == (0, 0.8)


def test_a_verdict_by_hand_gives_it_back_too(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain(HALVE)
    bank.resolve_judgement(a, b, "superseded")
    assert (bank.get(b).confidence, bank.get(b).disputes) == (0.8, 0)


def test_a_pair_that_waits_keeps_its_confidence(bank: Bank, clock: Clock) -> None:
    ids = told(bank, clock, PASSES, FAILS, "The test suite never passes on Windows")
    report = bank.maintain()
    assert report.queued
    clock.pass_days(400)
    assert bank.maintain().queued == report.queued
    assert [(bank.get(i).status, bank.get(i).confidence) for i in ids] == [("active", 0.8)] * 3


def test_what_an_older_skep_took_from_a_pair_that_waits_is_given_back(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain(HALVE)
    bank.dispute(a, by="ana")
    bank.maintain()
    assert [bank.get(i).confidence for i in (a, b)] == [0.4, 0.8]
    assert len(bank.pending_judgements()) == 1


def test_what_no_longer_waits_costs_nothing(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain(HALVE)
    bank.retract(b)
    bank.maintain()
    assert bank.pending_judgements() == []
    assert (bank.get(a).confidence, bank.get(a).disputes) == (0.8, 0)
    assert bank.maintain(MaintainConfig(steps=("prune",))).events == 0


@pytest.mark.parametrize("judge", [None, RulesJudge(), *(Always(word) for word in DECISIONS)])
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Ana lives in Rome", "Ana lives in Oslo"),
        (PASSES, FAILS),
        ("The house drink is tea", "The house drink is coffee"),
    ],
)
def test_a_pinned_memory_is_neither_replaced_nor_penalised(
    bank: Bank, clock: Clock, judge: Judge | None, older: str, newer: str
) -> None:
    (pinned,) = told(bank, clock, older, pinned=True)
    told(bank, clock, newer)
    bank.maintain()
    for _ in range(2):
        bank.maintain(judge=judge)
        assert (bank.get(pinned).status, bank.get(pinned).confidence) == ("active", 0.8)


def test_a_judgement_by_hand_on_a_pinned_memory_says_what_to_do_instead(bank: Bank, clock: Clock) -> None:
    (pinned,) = told(bank, clock, "Ana lives in Rome", pinned=True)
    (oslo,) = told(bank, clock, "Ana lives in Oslo")
    bank.maintain()
    with pytest.raises(InvalidInputError, match="skep supersede"):
        bank.resolve_judgement(pinned, oslo, "SUPERSEDED")
    bank.resolve_judgement(pinned, oslo, "MERGE")
    assert bank.get(oslo).merged_into == pinned


def test_a_merge_by_the_judge_keeps_tags_and_moves_links(bank: Bank, clock: Clock) -> None:
    tea, coffee = told(bank, clock, "The house drink is tea", "The house drink is coffee")
    bank.revise(coffee, tags=["survey"])
    (about,) = told(bank, clock, "See what was said of drinks in the canteen")
    bank.link(about, coffee, "about")
    bank.maintain(judge=Always("MERGE"))
    assert bank.get(coffee).merged_into == tea
    assert bank.get(tea).tags == ("survey",)
    assert [link.dst for link in bank.neighbors(about, "about").links] == [tea]


def test_decisions_on_one_memory_are_carried_out_one_after_another(bank: Bank, clock: Clock) -> None:
    ids = told(
        bank,
        clock,
        *(f"The house drink is {thing}" for thing in ("tea", "coffee", "cocoa", "juice", "water")),
    )
    for number, memory_id in enumerate(ids):
        bank.revise(memory_id, tags=["drinks", f"t{number}"])
    report = bank.maintain(judge=Always("MERGE"))
    claimed = [why for step in report.steps for why in step.actions if why.startswith("MERGE")]
    assert len(claimed) == sum(bank.get(i).status == "merged" for i in ids)
    while bank.maintain(judge=Always("MERGE")).events:
        pass
    (left,) = bank.find()
    assert set(left.tags) == {"drinks", *(f"t{number}" for number in range(5))}
    assert replayed(bank, clock) == everything(bank)


PHRASES = st.sampled_from(
    [
        PASSES,
        FAILS,
        "The test suite never passes on Windows",
        "The house drink is tea",
        "The house drink is coffee",
        "The house drink is cocoa",
    ]
)
SETTLED = ("evidence", "tags", "last_evidence_at", "embedder")


@settings(max_examples=40)
@given(
    st.lists(st.tuples(PHRASES, st.booleans(), st.sampled_from([0.5, 0.8])), min_size=2, max_size=6),
    st.lists(st.sampled_from([*DECISIONS, "PERHAPS"]), min_size=15, max_size=15),
)
def test_no_verdict_loses_a_memory_or_moves_a_pinned_one(
    items: list[tuple[str, bool, float]], words: list[str]
) -> None:
    clock, given_words = Clock(), iter(words * 40)
    with Bank.open(":memory:", now=clock) as bank:
        for text, pinned, confidence in items:
            told(bank, clock, text, pinned=pinned, confidence=confidence)
        before = everything(bank)
        for _ in range(3):
            bank.maintain(judge=lambda cases: [next(given_words) for _ in cases])
        after = everything(bank)
        assert set(after) == set(before)
        for memory in after.values():
            head, seen = memory, {memory.id}
            while (onward := head.superseded_by or head.merged_into) is not None:
                head = after[onward]
                assert head.id not in seen
                seen.add(head.id)
            assert head.status == "active" or (head.status == "deprecated" and head.disputes)
            assert 0 <= memory.confidence <= 1
            if memory.pinned:
                same = {name: getattr(memory, name) for name in (*SETTLED, "version")}
                assert memory == msgspec.structs.replace(before[memory.id], **same)
        assert replayed(bank, clock) == after
        bank.maintain()
        bank.maintain()
        assert bank.maintain().events == 0


def test_a_verdict_holds_for_the_words_it_was_given_on(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, "The API is public", "The API is private")
    asked: list[str] = []

    def judge(cases: Sequence[Case]) -> list[str]:
        asked.extend(case.kind for case in cases)
        return ["KEEP_BOTH"] * len(cases)

    bank.maintain(judge=judge)
    bank.revise(b, tags=["survey"], importance=0.9)
    bank.maintain(judge=judge)
    assert len(asked) == 1

    bank.revise(b, text="The API is public.")
    bank.maintain(judge=judge)
    assert len(asked) == 1
    assert sorted(bank.get(i).status for i in (a, b)) == ["active", "merged"]
    assert replayed(bank, clock) == everything(bank)


def test_what_waits_under_old_words_is_looked_at_anew(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, PASSES, FAILS)
    bank.maintain(HALVE)
    assert bank.get(a).confidence == 0.4
    bank.revise(b, text="The canteen closes at three on Fridays")
    assert bank.pending_judgements() == []
    bank.maintain()
    assert [(bank.get(i).status, bank.get(i).confidence) for i in (a, b)] == [
        ("active", 0.8),
        ("active", 0.8),
    ]
    assert bank.setting(f"judgement/{a}|{b}") is None

    bank.revise(b, text=FAILS)
    bank.maintain(HALVE)
    assert [bank.get(i).confidence for i in (a, b)] == [0.4, 0.4]
    assert len(bank.pending_judgements()) == 1


def test_judgements_of_an_older_skep_still_count(bank: Bank, clock: Clock) -> None:
    a, b = told(bank, clock, "The house drink is tea", "The house drink is coffee")
    old = {
        "older": a,
        "newer": b,
        "kind": "update",
        "similarity": 0.9,
        "confidence": 0.6,
        "decision": "KEEP_BOTH",
    }
    bank.set_setting(f"judgement/{a}|{b}", old)
    assert bank.maintain().queued == 0


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (["SUPERSEDED"], "the judge gave 1 decision for 2 pairs; both memories are kept"),
        (["SUPERSEDED"] * 3, "the judge gave 3 decisions for 2 pairs; both memories are kept"),
        (
            ["yes", "no"],
            "'yes' is none of MERGE, KEEP_BOTH, CONTRADICTION, SUPERSEDED; both memories are kept",
        ),
    ],
)
def test_an_answer_that_does_not_fit_the_pairs_decides_nothing_and_says_why(
    bank: Bank, clock: Clock, answers: list[str], problem: str
) -> None:
    told(bank, clock, "The user prefers tabs", "The user prefers spaces")
    told(bank, clock, "Feature X is enabled for EU users", "Feature X is disabled for EU users")
    report = bank.maintain(judge=lambda cases: answers)
    note = next(step.note for step in report.steps if step.step == "judge")
    assert (note, report.queued) == (f"2 pairs were not decided: {problem}", 2)
    assert {memory.status for memory in everything(bank).values()} == {"active"}


@pytest.mark.parametrize(
    ("answer", "decisions"),
    [
        ('[{"pair": 1, "decision": "MERGE"}, {"pair": 2, "decision": "KEEP_BOTH"}]', ("MERGE", "KEEP_BOTH")),
        (
            '{"decisions": [{"pair": 1, "decision": "MERGE"}, {"pair": 1, "decision": "KEEP_BOTH"}]}',
            (None, None),
        ),
        (
            '{"decisions": [{"pair": 1, "decision": "MERGE"}, {"pair": 1, "decision": "merge"}]}',
            ("MERGE", None),
        ),
    ],
)
def test_a_bare_list_is_read_and_who_contradicts_themselves_decides_nothing(
    answer: str, decisions: tuple[str | None, ...]
) -> None:
    assert read_answer(answer, 2) == decisions


def test_rules_keep_what_is_told_of_a_series_of_things(bank: Bank, clock: Clock) -> None:
    told(
        bank,
        clock,
        *(f"User {number} has the role {'admin' if number % 3 else 'viewer'}" for number in range(30)),
    )
    report = bank.maintain(judge=RulesJudge())
    assert (len(bank.find(limit=100)), report.queued) == (30, 0)


def test_of_a_memory_that_is_like_many_others_only_the_surest_pairs_wait(bank: Bank, clock: Clock) -> None:
    drinks = [f"{a}{b}sh" for a in "bcdfgklm" for b in "aeiou"]
    ids = told(bank, clock, *(f"The house drink is {drink}" for drink in drinks))
    report = bank.maintain()
    waits = [memory_id for case in bank.pending_judgements() for memory_id in (case.older.id, case.newer.id)]
    assert 0 < max(waits.count(memory_id) for memory_id in ids) <= MOST_WAITING
    note = next(step.note for step in report.steps if step.step == "conflicts")
    assert note.endswith("unsure pairs of memories that are like many others passed over")
    assert bank.maintain().events == 0
