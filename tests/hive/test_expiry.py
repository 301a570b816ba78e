"""Time in a hive: fading, expiring, collecting, refreshing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.confidence import effective
from skep.errors import InvalidInputError
from skep.filters import Filter
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.hive.hive_recall import faded

from .conftest import FAST, MakeHive

DAY = 86_400.0
TTL = msgspec.structs.replace(FAST, ttl=2 * DAY)
FADES = msgspec.structs.replace(FAST, ttl=30 * DAY, decay_per_hour=0.01)
TEXT = "The staging database listens on port 5433."


def faded_to(policy: HivePolicy, now: float) -> float:
    where = faded(Filter(), policy)
    return effective(0.8, 0.0, now, per_day=where.decay_per_day)


def test_age_alone_costs_no_confidence() -> None:
    assert faded_to(HivePolicy(), 300 * DAY) == faded_to(TTL, 300 * DAY) == 0.8


def test_a_policy_that_names_a_rate_makes_memories_fade_by_the_hour() -> None:
    assert faded_to(FADES, 36_000.0) == pytest.approx(0.8 * 0.9048, abs=0.001)
    assert faded_to(FADES, -5.0) == 0.8


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_what_has_expired_is_out_of_every_recall_and_collected_once(
    make_hive: MakeHive, clock: Any, kind: str
) -> None:
    hive = make_hive(kind, policy=TTL)
    stored = hive.agent("ana").remember(TEXT, confidence=0.95).memory
    assert hive.gc() == []
    clock.pass_days(3)

    fay = hive.agent("fay")
    assert fay.recall("staging database").hits == ()
    assert (fay.get(stored.id).status, fay.find().memories) == ("expired", ())
    assert (fay.status().memories, fay.status().by_status) == (0, {"expired": 1})
    assert hive.gc() == [stored.id]
    assert fay.status().by_status == {"expired": 1}
    found = (member.get(stored.id) for member in hive.members.values())
    assert {memory.status for memory in found if memory is not None} == {"expired"}
    assert hive.gc() == []


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_a_refreshed_memory_lives_on_in_every_copy(make_hive: MakeHive, clock: Any, kind: str) -> None:
    hive = make_hive(kind, policy=TTL)
    stored = hive.agent("ana").remember(TEXT, confidence=0.95).memory
    clock.pass_days(1.5)
    hive.refresh(stored.id)
    clock.pass_days(1.5)

    assert hive.gc() == []
    assert [h.memory.id for h in hive.agent("fay").recall("staging database", min_confidence=0.1)] == [
        stored.id
    ]


def test_a_collected_memory_can_be_refreshed_too(make_hive: MakeHive, clock: Any) -> None:
    hive = make_hive("sharded", policy=TTL)
    stored = hive.agent("ana").remember(TEXT).memory
    clock.pass_days(3)
    hive.gc()

    assert hive.refresh(stored.id).status == "active"


def test_refreshing_needs_a_time(hive: Hive) -> None:
    stored = hive.agent("ana").remember(TEXT).memory

    with pytest.raises(InvalidInputError, match="no ttl"):
        hive.refresh(stored.id)
    assert hive.refresh(stored.id, ttl=60).expires_at is not None


def test_a_ttl_removes_exactly_at_its_end(make_hive: MakeHive, clock: Any) -> None:
    hive = make_hive("sharded", policy=msgspec.structs.replace(FAST, ttl=30 * DAY))
    hive.agent("ana").remember(TEXT, confidence=0.8)
    clock.pass_seconds(30 * DAY - 1)
    assert len(hive.agent("bob").recall("staging database")) == 1
    clock.pass_seconds(1)

    assert len(hive.agent("bob").recall("staging database")) == 0


def test_a_memory_fades_out_of_recall_where_the_policy_names_a_rate(make_hive: MakeHive, clock: Any) -> None:
    hive = make_hive("sharded", policy=FADES)
    hive.agent("ana").remember(TEXT, confidence=0.8)
    clock.pass_days(3)
    assert len(hive.agent("bob").recall("staging database")) == 1
    clock.pass_days(3)

    assert len(hive.agent("bob").recall("staging database")) == 0
