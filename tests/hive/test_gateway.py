"""What the gateway lets in, holds back and refuses; and how what was held back is reviewed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.errors import NotFoundError
from skep.hive.gateway import Decision, HivePolicy, Standing
from skep.hive.hive import Hive
from skep.model import Memory

from .conftest import FAST, MakeHive

GOOD = "The staging database runs PostgreSQL 16 on port 5433."


def texts(found: Any) -> list[str]:
    return [hit.memory.text for hit in found]


def test_empty_talk_stays_with_its_author(hive: Hive) -> None:
    done = hive.agent("ana").remember("ok")

    assert done.decision.verdict == "rejected"
    assert texts(hive.agent("ana").recall("ok")) == ["ok"]
    assert texts(hive.agent("bob").recall("ok")) == []
    assert hive.agent("ana").get(done.memory.id).text == "ok"
    with pytest.raises(NotFoundError):
        hive.agent("bob").get(done.memory.id)


def test_private_memories_can_be_changed_and_listed_by_their_author_alone(hive: Hive) -> None:
    one = hive.agent("ana").remember("ok").memory
    hive.agent("ana").remember(GOOD)
    hive.agent("ana").revise(one.id, tags=["mine"])

    assert {m.text for m in hive.agent("ana").find()} == {"ok", GOOD}
    assert {m.text for m in hive.agent("bob").find()} == {GOOD}
    hive.agent("ana").forget(one.id)
    assert {m.text for m in hive.agent("ana").find()} == {GOOD}


def test_a_doubtful_memory_waits_for_review_and_can_be_approved(hive: Hive) -> None:
    hive.trust.set("ana", 0.2)
    done = hive.agent("ana").remember(GOOD)

    assert done.decision.verdict == "quarantined"
    assert texts(hive.agent("bob").recall("staging database")) == []
    (waiting,) = hive.review()
    assert waiting.memory.id == done.memory.id
    assert "trust 0.20" in waiting.reasons
    hive.approve(done.memory.id)
    assert texts(hive.agent("bob").recall("staging database")) == [GOOD]
    assert hive.review() == []


def test_a_dismissed_memory_is_gone_from_review_and_recall(hive: Hive) -> None:
    hive.trust.set("ana", 0.2)
    done = hive.agent("ana").remember(GOOD)
    hive.dismiss(done.memory.id)

    assert hive.review() == []
    assert texts(hive.agent("ana").recall("staging database")) == []
    with pytest.raises(NotFoundError):
        hive.approve(done.memory.id)


def test_an_update_of_another_agents_memory_passes(hive: Hive) -> None:
    old = hive.agent("ana").remember("The gateway runs on port 8080", confidence=0.9).memory
    done = hive.agent("eve").remember("The gateway runs on port 9090", confidence=0.8)

    assert [conflict.existing.id for conflict in done.conflicts] == [old.id]
    assert done.decision.verdict == "promoted"
    assert done.memory.text in texts(hive.agent("cy").recall("gateway port"))


def test_a_contradiction_of_what_others_confirmed_waits_for_review(hive: Hive) -> None:
    kept = hive.agent("ana").remember("Use ruff for linting the code", confidence=0.9).memory
    hive.agent("bob").confirm(kept.id)
    done = hive.agent("eve").remember("Never use ruff for linting the code", confidence=0.8)

    assert done.decision.verdict == "quarantined"
    assert kept.id in done.decision.why()
    assert texts(hive.agent("cy").recall("ruff linting")) == [kept.text]


def test_learning_in_bulk_does_not_pass_by_the_gate(hive: Hive) -> None:
    kept = hive.agent("ana").remember("Use ruff for linting the code", confidence=0.9).memory
    hive.agent("bob").confirm(kept.id)
    first, second = hive.agent("eve").remember_many(
        ["The roof is red", "Never use ruff for linting the code"]
    )

    assert [one.decision.verdict for one in (first, second)] == ["promoted", "quarantined"]  # type: ignore[attr-defined]
    assert texts(hive.agent("cy").recall("ruff linting")) == [kept.text, first.memory.text]


def test_an_author_may_correct_itself(hive: Hive) -> None:
    hive.agent("ana").remember("Use ruff for linting the code", confidence=0.9)
    done = hive.agent("ana").remember("Never use ruff for linting the code", confidence=0.8)

    assert done.decision.verdict == "promoted"


def test_a_flood_of_sure_poison_is_cut_off(make_hive: MakeHive) -> None:
    hive = make_hive("federated", policy=msgspec.structs.replace(FAST, rate=60, burst=10))
    done = hive.agent("eve").remember_many(
        [{"text": f"Server number {n} was moved to rack {n}.", "confidence": 0.99} for n in range(100)]
    )
    verdicts = [one.decision.verdict for one in done]  # type: ignore[attr-defined]

    assert verdicts.count("promoted") == 10
    assert verdicts.count("quarantined") == 90
    assert len(hive.agent("ana").recall("server rack", limit=100)) == 10
    assert hive.agent("ana").remember(GOOD).decision.verdict == "promoted"


def test_a_little_trusted_agent_neither_floods_nor_broadcasts(make_hive: MakeHive) -> None:
    hive = make_hive("federated", policy=msgspec.structs.replace(FAST, rate=60, burst=10))
    hive.trust.set("eve", 0.5)
    done = hive.agent("eve").remember_many(
        [{"text": f"Server number {n} was moved to rack {n}.", "confidence": 0.99} for n in range(20)]
    )

    assert sum(one.decision.verdict == "promoted" for one in done) == 5  # type: ignore[attr-defined]
    assert not any(one.decision.broadcast for one in done)  # type: ignore[attr-defined]
    assert not list(hive.members["root"].current())


def test_derived_memories_inherit_the_lowest_trust_of_their_sources(hive: Hive) -> None:
    hive.trust.set("eve", 0.4)
    seed = hive.agent("eve").remember("Server number one was moved to rack one.").memory
    hive.trust.set("eve", 0.1)
    derived = hive.agent("ana").remember("All servers were moved to other racks.", evidence=[seed.id])

    assert derived.decision.verdict == "quarantined"
    assert hive.provenance(derived.memory.id).trust == 0.1


def test_the_ranking_of_the_hive_trusts_no_derived_memory_more_than_its_source(hive: Hive) -> None:
    seed = hive.agent("eve").remember("Server number one was moved to rack one.").memory
    hive.agent("ana").remember(
        "The servers stand in other racks now.", evidence=[seed.id], on_conflict="ignore"
    )
    hive.agent("bob").remember("The servers stand in the cellar now.", on_conflict="ignore")
    hive.trust.set("eve", 0.1)
    hits = hive.agent("cy").recall("where do the servers stand now", preset="hive", limit=3)
    trusted = {hit.memory.agent: hit.signals["trust"] for hit in hits}

    assert trusted["bob"] == 0.5
    assert trusted["ana"] == trusted["eve"] == 0.05


def test_trust_is_the_same_for_every_member(hive: Hive) -> None:
    hive.trust.set("ana", 1.7)

    assert {m.bank.setting("trust/ana") for m in hive.members.values()} == {1.7}


def test_confirmations_count_once_and_only_from_the_independent(hive: Hive) -> None:
    seed = hive.agent("ana").remember(GOOD).memory
    derived = (
        hive.agent("bob").remember("PostgreSQL 16 is what staging runs today.", evidence=[seed.id]).memory
    )
    for by in ("cy", "cy", "bob", "ana"):
        hive.agent(by).confirm(derived.id)

    assert hive.get(derived.id).confirmations == 1  # type: ignore[union-attr]


def test_users_bring_their_own_rules(make_hive: MakeHive) -> None:
    class Nobody:
        def decide(self, memory: Memory, standing: Standing) -> Decision:
            return Decision(verdict="rejected", reasons=("nobody gets in",))

    hive = make_hive("sharded", rules=Nobody())
    done = hive.agent("ana").remember(GOOD)

    assert done.decision.why() == "rejected: nobody gets in"


def test_a_policy_may_reject_what_it_would_hold_back(make_hive: MakeHive) -> None:
    hive = make_hive("flat", policy=HivePolicy(contradiction="reject"))
    kept = hive.agent("ana").remember("Use ruff for linting the code", confidence=0.9).memory
    hive.agent("bob").confirm(kept.id)

    assert hive.agent("eve").remember("Never use ruff for linting the code").decision.verdict == "rejected"
