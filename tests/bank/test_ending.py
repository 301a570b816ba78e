"""What has reached its end is expired in every answer at once; maintenance only writes it down."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import EmptyTextError
from skep.model import Memory

HOUR = 3600.0


@pytest.fixture
def ended(bank: Bank, clock: Clock) -> Memory:
    """A memory whose time is over, beside one that has none."""
    bank.remember("The office is in Rome")
    memory = bank.remember("The guest wifi code is 4411", ttl=HOUR, tags=("wifi",)).memory
    assert memory.status == "active"
    clock.pass_seconds(HOUR)
    return memory


def test_every_answer_calls_it_expired_before_maintenance_does(bank: Bank, ended: Memory) -> None:
    assert bank.get(ended.id).status == "expired"
    assert [memory.text for memory in bank.find()] == ["The office is in Rome"]
    assert [memory.id for memory in bank.find(status="expired")] == [ended.id]
    assert {memory.status for memory in bank.find(status=None)} == {"active", "expired"}
    assert bank.find(tags=("wifi",)).memories == ()
    assert (bank.status().by_status, bank.status().memories) == ({"active": 1, "expired": 1}, 1)
    assert [hit.memory.text for hit in bank.recall("guest wifi code")] == ["The office is in Rome"]
    assert bank.subgraph([ended.id]).memories[ended.id].status == "expired"


def test_maintenance_changes_no_answer(bank: Bank, ended: Memory) -> None:
    before = bank.find(status=None).memories, bank.status().by_status
    assert bank.maintain().changed == 1
    assert (bank.find(status=None).memories, bank.status().by_status) == before
    assert bank.maintain().changed == 0


def test_it_is_no_conflict_and_nothing_replaces_it(bank: Bank, ended: Memory) -> None:
    assert bank.remember("The guest wifi code is 9999").conflicts == ()
    assert bank.find_conflicts() == []
    bank.maintain()
    assert bank.get(ended.id).status == "expired"


@pytest.mark.parametrize("maintained", [False, True])
def test_restoring_it_or_making_it_active_takes_the_end_away(
    bank: Bank, ended: Memory, clock: Clock, maintained: bool
) -> None:
    if maintained:
        bank.maintain()
    assert bank.restore(ended.id).status == "active"
    assert bank.get(ended.id).expires_at is None
    again = bank.revise(ended.id, ttl=HOUR)
    assert again.status == "active"
    clock.pass_seconds(HOUR)
    assert bank.get(ended.id).status == "expired"
    assert bank.mark(ended.id, "active").status == "active"
    assert len(bank.find()) == 2


def test_a_new_end_brings_it_back(bank: Bank, ended: Memory) -> None:
    assert bank.revise(ended.id, ttl=HOUR).status == "active"
    assert bank.recall("guest wifi code")[0].memory.id == ended.id


def test_what_is_made_active_before_its_end_keeps_it(bank: Bank) -> None:
    memory = bank.remember("The guest wifi code is 4411", ttl=HOUR).memory
    bank.mark(memory.id, "expired")
    assert bank.mark(memory.id, "active").expires_at == memory.expires_at


def test_a_view_of_the_past_shows_it_as_it_was(bank: Bank, ended: Memory, clock: Clock) -> None:
    then = bank.as_of(ended.created_at + HOUR / 2)
    assert (then.get(ended.id).status, len(then.find())) == ("active", 2)
    assert then.status().by_status == {"active": 2}


def test_one_that_waits_to_be_embedded_is_counted_once(bank_path: Path, clock: Clock) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(16), now=clock) as bank:
        first = bank.remember("short lived", ttl=HOUR).memory
        bank.remember("long lived")
        space = bank.engine.store.active_space()
        assert space is not None
        bank.engine.store.connection.execute(
            "INSERT INTO pending(space, row) SELECT ?, row FROM memories", (space.number,)
        )
        clock.pass_seconds(2 * HOUR)
        assert bank.status().by_status == {"expired": 1, "pending": 1}
        assert bank.get(first.id).status == "expired"


def test_a_mark_that_is_refused_leaves_its_end_as_it_was(bank: Bank, ended: Memory) -> None:
    with pytest.raises(EmptyTextError):
        bank.mark(ended.id, "active", reason=" ")
    assert bank.get(ended.id).expires_at == ended.expires_at
    assert bank.mark(ended.id, "active", reason="it was renewed").expires_at is None
