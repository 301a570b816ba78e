"""Episodes that say what a fact says raise its confidence, once each; nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.confidence import supported
from skep.lifecycle.maintain import STEPS, MaintainConfig

EVIDENCE = MaintainConfig(steps=("embed", "evidence"))


@pytest.mark.parametrize(
    ("fact", "episode"),
    [
        ("The release is on Friday", "Is the release on Friday?"),
        ("Deploys need two approvals", "If the budget is cut, deploys need two approvals"),
        ("The Berlin office has 40 desks", "The Munich office has 40 desks"),
        ("Use ruff for linting", "We talked about whether to use ruff or flake8 for linting"),
    ],
)
def test_what_does_not_say_it_does_not_support_it(bank: Bank, fact: str, episode: str) -> None:
    stored = bank.remember(fact, confidence=0.6).memory
    bank.remember(episode, kind="episode", on_conflict="ignore")
    bank.maintain(EVIDENCE)
    assert bank.get(stored.id).confidence == 0.6


@pytest.mark.parametrize("first", ["fact", "episode"])
def test_support_counts_whichever_came_first(bank: Bank, first: str) -> None:
    said = {
        "fact": "Deploys need two approvals",
        "episode": "The auditor wrote that deploys need two approvals",
    }
    actions: tuple[str, ...] = ()
    for kind in (first, *(set(said) - {first})):
        bank.remember(said[kind], kind=kind, confidence=0.6, on_conflict="ignore")
        actions = bank.maintain(EVIDENCE).steps[-1].actions
    (fact,), (episode,) = bank.find(kind="fact"), bank.find(kind="episode")
    assert (fact.evidence, fact.confidence) == ((episode.id,), supported(0.6))
    assert actions == ("1 episode supports 'Deploys need two approvals'",)
    bank.revise(fact.id, importance=0.9)
    bank.maintain(EVIDENCE)
    assert bank.get(fact.id).confidence == fact.confidence


def test_a_summary_is_no_evidence_beside_what_it_sums_up(bank: Bank, clock: Clock) -> None:
    for text in (
        "The nightly build failed because the disk was full on node 3",
        "The nightly build failed again because the disk was full on node 3",
        "The nightly build failed: the disk on node 3 was full once more",
        "The nightly build failed because node 3 had a full disk",
    ):
        bank.remember(text, kind="episode", on_conflict="ignore")
        clock.pass_seconds(60)
    bank.maintain(MaintainConfig(steps=STEPS))
    (fact,) = bank.find(kind="fact")
    assert len(fact.evidence) == 4
    assert bank.maintain(MaintainConfig(steps=STEPS)).events == 0
    assert bank.get(fact.id) == fact


WORDS = st.sampled_from(
    [
        "The port is 80",
        "The port is 90",
        "Note: the port is 80",
        "Is the port 80?",
        "The port is not 80",
        "Ana met Bo",
    ]
)


@settings(max_examples=25)
@given(st.lists(st.tuples(WORDS, st.sampled_from(["fact", "episode"]), st.booleans()), max_size=8))
def test_evidence_never_lowers_confidence_and_counts_each_episode_once(
    items: list[tuple[str, str, bool]],
) -> None:
    clock = Clock()
    with Bank.open(":memory:", now=clock) as bank:
        for text, kind, then in items:
            bank.remember(text, kind=kind, confidence=0.6, on_conflict="ignore")
            clock.pass_seconds(1)
            before = {fact.id: fact for fact in bank.find(kind="fact")}
            if then:
                bank.maintain(EVIDENCE)
            for fact in bank.find(kind="fact"):
                assert before[fact.id].confidence <= fact.confidence <= 1.0
                expected = 0.6
                for _ in fact.evidence:
                    expected = supported(expected)
                assert fact.confidence == pytest.approx(expected)
                assert len(set(fact.evidence)) == len(fact.evidence)


def test_what_a_run_wrote_itself_is_not_looked_at_again(bank: Bank) -> None:
    bank.remember_many(
        [
            "The build takes nine minutes",
            "The build takes nine minutes.",
            {"text": "The port is 80", "kind": "episode"},
            {"text": "Note: the port is 80", "kind": "episode"},
        ]
    )
    assert bank.maintain().changed == 2
    assert {step.step: step.looked_at for step in bank.maintain().steps if step.looked_at} == {}
