"""Laws of maintenance, over random banks: twice is once, replay gives the same, age costs nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.lifecycle.judge import RulesJudge
from skep.lifecycle.maintain import STEPS, MaintainConfig
from skep.model import STATUSES, Memory

TEXTS = st.sampled_from(
    [
        "The nightly build failed because the disk was full on node 3",
        "The nightly build failed again because the disk was full on node 3",
        "The nightly build failed: the disk on node 3 was full once more",
        "The nightly build failed because node 3 had a full disk",
        "Did the nightly build fail because the disk was full on node 3?",
        "The staging database runs Postgres 14",
        "As seen today, the staging database runs Postgres 14",
        "The staging database runs Postgres 16",
        "As seen today, the staging database runs Postgres 16",
        "The staging database does not run Postgres 16",
        "Use ruff for linting",
        "Never use ruff for linting",
    ]
)
MEMORIES = st.fixed_dictionaries(
    {"text": TEXTS, "kind": st.sampled_from(["fact", "episode", "episode", "episode"])},
    optional={
        "pinned": st.just(True),
        "ttl": st.sampled_from([2.0, 1e6]),
        "scope": st.just({"user": "ana"}),
        "agent": st.sampled_from(["ana", "bo"]),
        "confidence": st.sampled_from([0.35, 0.9]),
    },
)
CONFIG = {"weights": {"semantic": 0.5, "confidence": 0.5}}
ROUNDS = st.lists(st.lists(MEMORIES, max_size=7), min_size=1, max_size=3)


def everything(bank: Bank) -> dict[str, Memory]:
    return {m.id: m for m in bank.find(status=STATUSES, limit=10_000)}


@settings(max_examples=40)
@given(ROUNDS, st.sampled_from(["soft", "hard"]), st.booleans())
def test_running_every_step_twice_equals_running_it_once(
    rounds: list[list[dict[str, Any]]], consolidate: str, judged: bool
) -> None:
    clock = Clock()
    config = MaintainConfig(steps=STEPS, consolidate=consolidate)
    judge = RulesJudge() if judged else None
    with Bank.open(":memory:", now=clock) as bank:
        for memories in rounds:
            for memory in memories:
                bank.remember(on_conflict="ignore", **memory)
                clock.pass_seconds(1)
            bank.maintain(config, judge=judge)
            once = everything(bank)
            again = bank.maintain(config, judge=judge)
            assert [(step.step, step.actions) for step in again.steps if step.actions] == []
            assert again.events == 0
            assert everything(bank) == once
            clock.pass_days(3)
        with Bank.open(":memory:", now=clock) as other:
            other.apply(bank.events())
            assert everything(other) == everything(bank)


@settings(max_examples=40)
@given(ROUNDS)
def test_nothing_that_is_evidence_contradicts_and_nothing_derived_outlives_its_sources(
    rounds: list[list[dict[str, Any]]],
) -> None:
    clock = Clock()
    with Bank.open(":memory:", now=clock) as bank:
        for memories in rounds:
            for memory in memories:
                bank.remember(on_conflict="ignore", **memory)
                clock.pass_seconds(1)
            bank.maintain(MaintainConfig(steps=STEPS))
        known = everything(bank)
        for made in known.values():
            if not (made.source or "").startswith("maintenance:"):
                continue
            sources = [
                known[link.dst]
                for link in bank.neighbors(made.id, "derived_from").links
                if link.src == made.id
            ]
            assert {source.scope for source in sources} <= {made.scope}
            if made.kind == "fact":
                said = " ".join((made.text, *(source.text for source in sources)))
                assert not ("Postgres 14" in said and "Postgres 16" in said)
            if made.expires_at is None:
                assert all(source.expires_at is None for source in sources)


@settings(max_examples=30)
@given(
    st.floats(0.35, 1.0),
    st.lists(st.integers(0, 1440), min_size=1, max_size=4),
    st.booleans(),
)
def test_age_alone_costs_no_confidence_however_often_it_is_read(
    confidence: float, hours: list[int], maintained: bool
) -> None:
    asked = "which database does staging run?"

    def read(bank: Bank) -> float:
        (hit,) = bank.recall(asked, config=CONFIG, min_confidence=0.0)
        return hit.signals["confidence"]

    often, seldom = Clock(), Clock()
    with Bank.open(":memory:", now=often) as one, Bank.open(":memory:", now=seldom) as other:
        for bank in (one, other):
            bank.remember("The staging database runs Postgres 16", confidence=confidence)
        told = 0.0
        for each in hours:
            often.pass_seconds(3600 * each)
            if maintained:
                one.maintain()
            told = read(one)
        seldom.now = often.now
        assert told == read(other) == pytest.approx(confidence)
