"""Summaries: made of whatever belongs together, level upon level, with what their sources share."""

from __future__ import annotations

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.lifecycle.maintain import STEPS, MaintainConfig
from skep.lifecycle.summarise import summary
from skep.model import Memory

REFLECT = MaintainConfig(steps=("embed", "reflect"))
TOLD = (
    "The nightly build failed because the disk was full on node 3",
    "The nightly build failed again because the disk was full on node 3",
    "The nightly build failed: the disk on node 3 was full once more",
    "The nightly build failed because node 3 had a full disk",
)


def tell(bank: Bank, *texts: str, **fields: object) -> list[Memory]:
    return [bank.remember(text, kind="episode", on_conflict="ignore", **fields).memory for text in texts]  # type: ignore[arg-type]


def summaries(bank: Bank) -> list[Memory]:
    return sorted((each for each in bank.find(kind="episode") if each.level), key=lambda each: each.level)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_whether_episodes_come_at_once_or_one_by_one_makes_no_difference(bank: Bank, size: int) -> None:
    told: list[Memory] = []
    for start in range(0, 4, size):
        told += tell(bank, *TOLD[start : start + size])
        if start + size in (2, 4):
            bank.maintain(REFLECT)
    (summary,) = summaries(bank)
    assert (summary.level, set(summary.evidence)) == (1, {each.id for each in told})


@pytest.mark.parametrize("consolidate", ["soft", "hard"])
def test_three_summaries_become_one_of_the_next_level_in_the_same_run(bank: Bank, consolidate: str) -> None:
    config = MaintainConfig(steps=STEPS, consolidate=consolidate)
    for _ in range(4):
        tell(bank, *TOLD[:3])
        bank.maintain(config)
        assert bank.maintain(config).events == 0
    assert [each.level for each in summaries(bank)] == [1, 2]
    first, second = summaries(bank)
    assert not first.stale
    assert not second.stale
    assert not any(fact.stale for fact in bank.find(kind="fact"))
    below = [each for each in bank.find(kind="episode", status=("superseded",)) if each.level == 1]
    assert [each.superseded_by for each in below] == [second.id] * (3 if consolidate == "soft" else 0)


def test_what_is_near_by_way_of_an_earlier_episode_belongs_to_it(bank: Bank) -> None:
    def near(a: Memory, b: Memory) -> bool:
        from skep.lifecycle.extract_facts import SAME_EVENT
        from skep.semantics.find_conflicts import neighbours

        found = neighbours(bank.engine, [a], threshold=SAME_EVENT, limit=16)
        return b.id in {other.id for other, _ in found[a.id]}

    a, b = tell(
        bank,
        "The boat left the harbour at dawn",
        "The boat left the harbour at dawn and the crew caught herring",
    )
    bank.maintain(REFLECT)
    (c,) = tell(bank, "The crew of the boat caught herring")
    bank.engine.embeddings.drain()
    bank.engine.index.refresh()
    assert (near(a, b), near(b, c), near(a, c)) == (True, True, False)
    bank.maintain(REFLECT)
    assert [set(each.evidence) for each in summaries(bank)] == [{a.id, b.id, c.id}]


@pytest.mark.parametrize(
    ("trusted", "signal"),
    [({"ana": 0.2, "bo": 1.6}, 0.1), ({"ana": 1.4, "bo": 1.6}, 0.7), ({"ana": 1.4}, 0.5)],
)
def test_a_summary_is_trusted_as_far_as_the_least_trusted_of_its_sources(
    bank: Bank, trusted: dict[str, float], signal: float
) -> None:
    for agent, trust in trusted.items():
        bank.set_setting(f"trust/{agent}", trust)
    for agent, text in zip(("ana", "bo", "ana"), TOLD, strict=False):
        tell(bank, text, agent=agent)
    bank.maintain(REFLECT)
    (hit,) = bank.recall("nightly build disk", preset="hive", kind="episode")
    assert hit.memory.agent is None
    assert hit.signals["trust"] == pytest.approx(signal)


def test_trust_in_a_summary_reaches_the_next_level(bank: Bank) -> None:
    bank.set_setting("trust/ana", 0.2)
    for agent in ("ana", "bo", "cy"):
        for text in TOLD[:3]:
            tell(bank, text, agent=agent if text == TOLD[0] else None)
        bank.maintain(REFLECT)
    (summary,) = summaries(bank)
    assert (summary.level, summary.metadata) == (2, {"trust": 0.2})


def test_one_author_stays_the_author_and_is_trusted_as_they_are_now(bank: Bank) -> None:
    tell(bank, *TOLD, agent="ana")
    bank.maintain(REFLECT)
    bank.set_setting("trust/ana", 0.4)
    (hit,) = bank.recall("nightly build disk", preset="hive", kind="episode")
    assert (hit.memory.agent, hit.signals["trust"]) == ("ana", pytest.approx(0.2))


def test_what_all_sources_share_is_kept(bank: Bank) -> None:
    for number, text in enumerate(TOLD):
        tell(bank, text, domain="ci", tags=["build", f"run-{number}"], scope={"project": "x"})
    bank.maintain(REFLECT)
    (hit,) = bank.recall("nightly build disk", domain="ci", kind="episode", scope={"project": "x"})
    assert (hit.memory.level, hit.memory.domain, hit.memory.tags) == (1, "ci", ("build",))


def test_what_expires_is_not_summed_up_and_what_is_distilled_from_it_ends_with_it(
    bank: Bank, clock: Clock
) -> None:
    first, *_ = tell(bank, *TOLD[:2], ttl=3600) + tell(bank, *TOLD[2:], ttl=7200)
    bank.maintain(MaintainConfig(steps=STEPS))
    assert summaries(bank) == []
    (fact,) = bank.find(kind="fact")
    assert fact.expires_at == first.expires_at
    clock.pass_seconds(7201)
    bank.maintain(MaintainConfig(steps=STEPS))
    assert list(bank.find()) == []
    assert not bank.recall("why did the nightly build fail?")


def test_what_expires_does_not_shorten_the_life_of_what_lasts(bank: Bank, clock: Clock) -> None:
    tell(bank, TOLD[0], ttl=3600)
    tell(bank, *TOLD[1:3])
    bank.maintain(MaintainConfig(steps=STEPS))
    clock.pass_seconds(7200)
    bank.maintain(MaintainConfig(steps=STEPS))
    (fact,) = bank.find(kind="fact")
    assert (fact.expires_at, len(fact.evidence)) == (None, 3)
    assert fact.text in TOLD[1:3]


def test_what_was_distilled_and_is_over_may_be_said_again(bank: Bank, clock: Clock) -> None:
    for _ in range(2):
        tell(bank, *TOLD[:2], ttl=3600)
        bank.maintain()
        assert len(list(bank.find(kind="fact"))) == 1
        clock.pass_seconds(3601)
        bank.maintain()
        assert list(bank.find(kind="fact")) == []


def test_a_summary_and_its_restored_source_are_not_two_episodes(bank: Bank) -> None:
    told = tell(
        bank, *(f"The {what} of the ship in Oslo was painted in May" for what in ("hull", "mast", "deck"))
    )
    bank.maintain(REFLECT)
    (summary,) = summaries(bank)
    back = bank.restore(told[0].id)
    report = bank.maintain(MaintainConfig(steps=("embed", "extract")))
    assert back.status == "active"
    assert summary.status == "active"
    assert report.changed == 0


def test_a_summary_passes_over_small_talk_and_says_who_spoke() -> None:
    texts = (
        "User: hi there\nAssistant: The disk on node 3 was full. I cleaned /var/tmp. Let me know if it happens again!",
        "User: thanks!\nAssistant: You're welcome! The disk on node 3 is 40 GB. Anything else?",
    )
    assert summary(texts) == (
        "Assistant: The disk on node 3 was full. Assistant: I cleaned /var/tmp. The disk on node 3 is 40 GB."
    )
    assert summary(("Thanks!", "Thanks a lot!")) == "Thanks a lot!"
