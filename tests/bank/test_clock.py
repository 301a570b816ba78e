"""A clock that was ahead: stamps stay ahead, for they never go back, but what is learnt afterwards is dated rightly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

YEAR = 365 * 86_400.0


@pytest.fixture
def bank(clock: Clock) -> Iterator[Bank]:
    with Bank.open(":memory:", embedder=HashingEmbedder(64), now=clock) as opened:
        yield opened


def written_ahead(bank: Bank, clock: Clock) -> str:
    clock.pass_seconds(YEAR)
    ahead = bank.remember("The lamp is red").memory.id
    clock.pass_seconds(60 - YEAR)
    return ahead


def troubles(bank: Bank) -> dict[str, str]:
    return {
        f.check: f.message
        for f in bank.doctor(deep=True)
        if f.level != "ok" and f.check in ("clock", "dates")
    }


def test_what_is_learnt_after_a_clock_was_ahead_is_dated_by_the_clock_as_it_is(
    bank: Bank, clock: Clock
) -> None:
    ahead = written_ahead(bank, clock)
    after = bank.remember("The chair is blue", ttl=3600).memory
    told = bank.remember("The desk is old", created_at=clock() - 5 * YEAR).memory
    many = bank.remember_many(["One cup is green", "Two cups are white"])
    assert bank.get(after.id).created_at == after.created_at == clock()
    assert after.expires_at == clock() + 3600
    assert told.created_at == clock() - 5 * YEAR
    assert {done.memory.created_at for done in many} == {clock()}
    assert bank.event(after.id).hlc > bank.event(ahead).hlc
    clock.pass_seconds(3601)
    assert bank.get(after.id).status == "expired"


def test_doctor_says_so_and_names_what_is_dated_in_the_future(bank: Bank, clock: Clock) -> None:
    bank.remember("The gate is shut")
    assert troubles(bank) == {}
    ahead = written_ahead(bank, clock)
    after = bank.remember("The chair is blue").memory.id
    found = troubles(bank)
    assert "8760 hours ahead" in found["clock"]
    assert ahead in found["dates"]
    assert after not in found["dates"]
    clock.pass_seconds(YEAR)
    assert troubles(bank) == {}


def test_a_clock_that_is_a_little_off_changes_nothing(bank: Bank, clock: Clock) -> None:
    clock.pass_seconds(600)
    first = bank.remember("The lamp is red").memory
    clock.pass_seconds(-600)
    assert bank.remember("The chair is blue").memory.created_at == pytest.approx(first.created_at)
    assert troubles(bank) == {}


def test_a_date_in_the_future_counts_as_now_for_recency(bank: Bank, clock: Clock) -> None:
    ahead = written_ahead(bank, clock)
    bank.remember("The chair is red")
    hits = bank.recall("red", config={"weights": {"lexical": 1.0, "recency": 1.0}})
    recency = {hit.memory.id: hit.signals["recency"] for hit in hits}
    assert recency.pop(ahead) == pytest.approx(1.0)
    assert list(recency.values()) == [pytest.approx(1.0)]


def test_what_was_learnt_after_a_clock_was_ahead_is_the_newer_one(bank: Bank, clock: Clock) -> None:
    before = bank.remember("The port of the gateway is 70").memory.id
    clock.pass_seconds(YEAR)
    ahead = bank.remember("The port of the gateway is 80").memory.id
    clock.pass_seconds(60 - YEAR)
    after = bank.remember("The port of the gateway is 90").memory.id
    clock.pass_seconds(60)
    assert bank.recall("What is the port of the gateway?")[0].memory.id == after

    bank.maintain()
    assert {link.src for link in bank.neighbors(before, "updates").links} == {ahead, after}
    assert [link.src for link in bank.neighbors(ahead, "updates").links if link.dst == ahead] == [after]
    assert bank.recall("What is the port of the gateway?")[0].memory.id == after


def test_a_memory_that_claims_to_be_learnt_in_the_far_future_counts_from_when_it_was_told(
    bank_path: Path,
) -> None:
    now = 1_750_000_000.0
    with Bank.open(bank_path, embedder=HashingEmbedder(16), now=lambda: now) as bank:
        told = bank.remember("The gate opens at six", created_at="9999-01-01").memory
        assert told.created_at == bank.get(told.id).created_at == now
        slightly = bank.remember("The clock is a little fast", created_at=now + 60).memory
        assert slightly.created_at == now + 60
        assert [f for f in bank.doctor(deep=True) if f.level == "error"] == []
