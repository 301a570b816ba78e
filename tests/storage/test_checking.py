"""Events from elsewhere: what no bank would write is refused, and what no event may say is not heard."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from skep.bank.bank import Bank
from skep.errors import SyncError
from skep.model import Event


def _with(event: Event, **more: Any) -> Event:
    return msgspec.structs.replace(event, body={**event.body, **more})


@pytest.fixture
def made(plain_bank: Bank) -> Event:
    return plain_bank.event(plain_bank.remember("The office is in Rome").memory.id)


@pytest.mark.parametrize(
    "wrong",
    [{"level": 2**70}, {"level": -1}, {"ttl": math.nan}, {"confidence": math.nan}, {"tags": ["\ud800"]}],
)
def test_a_memory_that_cannot_be_is_refused(made: Event, wrong: dict[str, Any]) -> None:
    with Bank.open(":memory:") as peer:
        with pytest.raises(SyncError, match="nothing of this batch"):
            peer.apply([_with(made, **wrong)])
        assert peer.status().events == 0


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf])
def test_an_outcome_that_no_other_replica_could_take_is_refused(plain_bank: Bank, figure: float) -> None:
    used = plain_bank.remember("Run the migrations first").memory
    plain_bank.learn("deploy", True, used=[used.id], metrics={"seconds": 1.0})
    events = [
        _with(event, metrics={"seconds": figure}) if event.kind == "outcome" else event
        for event in plain_bank.events()
    ]

    with Bank.open(":memory:") as peer, pytest.raises(SyncError, match="metrics"):
        peer.apply(events)


def test_an_event_sets_no_field_that_others_decide(made: Event) -> None:
    forged = {"id": "other-1", "uses": 9, "superseded_by": "x-1", "stale": True, "embedder": "none"}

    with Bank.open(":memory:") as peer:
        peer.apply([_with(made, **forged)])
        memory = peer.get(made.id)

        assert (memory.id, memory.uses, memory.superseded_by, memory.stale) == (made.id, 0, None, False)
        assert [finding for finding in peer.doctor(deep=True) if finding.level != "ok"] == []
