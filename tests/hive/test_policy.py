"""What is promoted, quarantined or rejected, and how fast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import ConfigError
from skep.hive.gateway import (
    PROMOTE_AT,
    Decision,
    HivePolicy,
    PromotionPolicy,
    RateLimit,
    Standing,
    assess,
)
from skep.model import Conflict, Memory

GOOD = "The staging database runs PostgreSQL 16 on port 5433."


def memory(text: str = GOOD, confidence: float = 0.8) -> Memory:
    return Memory(id="a-1", kind="fact", text=text, confidence=confidence, agent="ana")


def standing(
    trust: float = 1.0, *, within_rate: bool = True, text: str = GOOD, conflict: bool = False
) -> Standing:
    existing = Memory(id="b-1", kind="fact", text="The staging database runs MySQL.")
    found = Conflict(
        existing=existing, memory=None, kind="contradiction", similarity=0.9, reason="value", confidence=0.9
    )
    return Standing(
        trust=trust, within_rate=within_rate, quality=assess(text), conflicts=(found,) if conflict else ()
    )


@pytest.mark.parametrize(
    "text", ["", "ok", "yes", "it works now", "aaaaaaaaaa", "???", "thanks a lot", "stuff"]
)
def test_empty_talk_is_below_the_bar(text: str) -> None:
    assert assess(text).score < PROMOTE_AT


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "Use ruff for linting",
        "Ana prefers short answers in the morning.",
        "server-7 has 10.0.3.7 as its address",
        "Deploys happen on Tuesdays after the review.",
        "部署在每个星期二进行",
    ],
)
def test_plain_facts_are_above_the_bar(text: str) -> None:
    assert assess(text).score >= PROMOTE_AT


@given(st.text(max_size=300))
def test_quality_stays_between_nothing_and_one_for_any_text(text: str) -> None:
    assert 0.0 <= assess(text).score <= 1.0


def test_a_good_memory_of_a_trusted_author_is_promoted() -> None:
    assert PromotionPolicy().decide(memory(), standing()) == Decision(verdict="promoted")


def test_a_very_sure_memory_is_broadcast_unless_its_author_is_little_trusted() -> None:
    sure = memory(confidence=0.95)

    assert PromotionPolicy().decide(sure, standing()).broadcast
    assert not PromotionPolicy().decide(sure, standing(trust=0.5)).broadcast


def test_every_reason_for_a_rejection_is_given() -> None:
    decision = PromotionPolicy().decide(memory("ok", confidence=0.1), standing(text="ok"))

    assert decision.verdict == "rejected"
    assert len(decision.reasons) == 2
    assert "confidence 0.10 is below 0.3" in decision.why()


def test_low_trust_floods_and_contradictions_wait_for_review() -> None:
    decision = PromotionPolicy().decide(memory(), standing(trust=0.2, within_rate=False, conflict=True))

    assert decision.verdict == "quarantined"
    assert len(decision.reasons) == 3
    assert "b-1" in decision.why()


def test_contradictions_may_be_allowed_or_rejected_instead() -> None:
    allow = PromotionPolicy(HivePolicy(contradiction="allow"))
    reject = PromotionPolicy(HivePolicy(contradiction="reject"))

    assert allow.decide(memory(), standing(conflict=True)).verdict == "promoted"
    assert reject.decide(memory(), standing(conflict=True)).verdict == "rejected"


def test_an_author_without_any_trust_is_rejected() -> None:
    assert PromotionPolicy().decide(memory(), standing(trust=0.0)).verdict == "rejected"


def test_a_subclass_may_change_one_rule() -> None:
    class Everything(PromotionPolicy):
        def reject(self, memory: Memory, standing: Standing) -> list[str]:
            return []

    assert Everything().decide(memory("ok", 0.0), standing(text="ok")).verdict == "promoted"


def test_a_flood_is_cut_at_the_burst_and_then_at_the_rate() -> None:
    limit = RateLimit(HivePolicy(rate=60, burst=5))

    assert sum(limit.allows("mallory", 1.0, 100.0) for _ in range(50)) == 5
    assert sum(limit.allows("mallory", 1.0, 110.0) for _ in range(50)) == 5
    assert limit.allows("ana", 1.0, 110.0)


def test_less_trust_means_a_lower_rate_and_a_clock_that_jumps_back_gains_nothing() -> None:
    limit = RateLimit(HivePolicy(rate=60, burst=10))

    assert sum(limit.allows("m", 0.5, 100.0) for _ in range(50)) == 5
    assert not limit.allows("m", 0.5, 50.0)


def test_impossible_policies_are_refused_with_every_problem() -> None:
    with pytest.raises(ConfigError, match=r"promote_at.*replication"):
        HivePolicy(promote_at=1.5, replication=0)
    with pytest.raises(ConfigError, match="ttl"):
        HivePolicy(ttl=-1)
