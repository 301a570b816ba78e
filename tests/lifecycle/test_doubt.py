"""What is in doubt leads to nothing: no fact is made of it, and it supports none."""

from __future__ import annotations

import pytest

from skep.bank import Bank

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


def test_an_episode_that_is_doubted_no_longer_is_looked_at_again(bank: Bank) -> None:
    _, second = episodes(bank, *SAID)
    put_in_doubt(bank, second, "disputed")
    bank.maintain()
    bank.undo(next(event.id for event in bank.history(second) if event.kind == "dispute"))
    bank.maintain()
    assert [fact.text for fact in bank.find(kind="fact") if "API" in fact.text] == [SAID[0]]
