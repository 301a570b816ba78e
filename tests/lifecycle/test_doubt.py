"""What is in doubt leads to nothing: no fact is made of it, and it supports none."""

from __future__ import annotations

import pytest

from skep.bank.bank import Bank
from skep.lifecycle.maintain import STEPS, MaintainConfig

SAID = ("The API costs 14 euros a month", "Seen again: the API costs 14 euros a month")


def episodes(bank: Bank, *texts: str) -> list[str]:
    return [bank.remember(text, kind="episode", on_conflict="ignore").memory.id for text in texts]


def put_in_doubt(bank: Bank, memory_id: str, how: str) -> None:
    other = bank.remember("Every interface is free of charge since the merger").memory.id
    if how == "linked":
        bank.link(other, memory_id, "contradicts")
    elif how == "disputed":
        bank.dispute(memory_id, other)
    else:
        bank.link(memory_id, other, "derived_from")
        bank.retract(other)


@pytest.mark.parametrize("how", ["linked", "disputed", "stale"])
def test_no_fact_is_made_of_an_episode_in_doubt(bank: Bank, how: str) -> None:
    first, second = episodes(bank, *SAID)
    put_in_doubt(bank, second, how)
    bank.maintain()
    assert [fact for fact in bank.find(kind="fact") if "API" in fact.text] == []
    (third,) = episodes(bank, "Noted once more: the API costs 14 euros a month")
    bank.maintain()
    (fact,) = [fact for fact in bank.find(kind="fact") if "API" in fact.text]
    assert (sorted(fact.evidence), fact.stale) == (sorted((first, third)), False)
    assert bank.maintain().events == 0


@pytest.mark.parametrize("how", ["linked", "disputed", "stale"])
def test_an_episode_in_doubt_supports_no_fact(bank: Bank, how: str) -> None:
    fact = bank.remember("The API costs 14 euros a month").memory
    (said,) = episodes(bank, SAID[1])
    put_in_doubt(bank, said, how)
    bank.maintain()
    assert (bank.get(fact.id).evidence, bank.get(fact.id).confidence) == ((), fact.confidence)
    assert bank.maintain().events == 0


@pytest.mark.parametrize("consolidate", ["soft", "hard"])
@pytest.mark.parametrize("how", ["linked", "disputed", "stale"])
def test_an_episode_in_doubt_is_not_summed_up(bank: Bank, how: str, consolidate: str) -> None:
    config = MaintainConfig(steps=STEPS, consolidate=consolidate)
    doubted, *others = episodes(
        bank,
        *(f"The nightly build failed{end}, the disk of node 3 was full" for end in ("", " again", "!", ".")),
    )
    put_in_doubt(bank, doubted, how)
    bank.maintain(config)
    (summary,) = [each for each in bank.find(kind="episode") if each.level]
    assert set(summary.evidence) == set(others)
    assert bank.get(doubted).status == "active"
    assert bank.maintain(config).events == 0


def test_an_episode_that_is_doubted_no_longer_is_looked_at_again(bank: Bank) -> None:
    _, second = episodes(bank, *SAID)
    put_in_doubt(bank, second, "disputed")
    bank.maintain()
    bank.undo(next(event.id for event in bank.history(second) if event.kind == "dispute"))
    bank.maintain()
    assert [fact.text for fact in bank.find(kind="fact") if "API" in fact.text] == [SAID[0]]
