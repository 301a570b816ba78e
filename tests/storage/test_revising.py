"""A revision leaves in the row what the fold of the whole history gives."""

from __future__ import annotations

from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.errors import ForgottenError, NotFoundError
from skep.model import Memory
from skep.storage.fold import fold
from skep.storage.memory_rows import STATE_COLUMNS, state_values
from skep.validation import CLEARED, REVISABLE

CHANGED: dict[str, Any] = {
    "text": "the ledger closes on Monday",
    "title": "closing day",
    "domain": "billing",
    "scope": {"user": "u"},
    "tags": ("b", "a"),
    "source": "notes/2",
    "confidence": 0.3,
    "importance": 0.9,
    "polarity": -1,
    "pinned": True,
    "valid_from": 1_700_000_100.0,
    "valid_to": 1_900_000_000.0,
    "ttl": 5e8,
    "metadata": {"n": [1, 2]},
    "key": "closing-day",
}


def assert_is_the_fold(bank: Bank, memory: Memory) -> None:
    store = bank.engine.store
    (row,) = store.connection.rows(
        f"SELECT {', '.join(STATE_COLUMNS)} FROM memories WHERE id = ?", (memory.id,)
    )
    state = fold(memory.id, store.log.of(memory.id))
    assert state is not None
    assert list(row) == state_values(state)
    assert memory == bank.get(memory.id)


def test_every_field_has_an_example() -> None:
    assert set(CHANGED) == set(REVISABLE)


@pytest.mark.parametrize("field", REVISABLE)
def test_one_field_is_changed_changed_back_and_cleared(plain_bank: Bank, field: str) -> None:
    memory = plain_bank.remember("the ledger closes on Friday", tags=("a", "b"), scope={"user": "v"}).memory
    changed = plain_bank.revise(memory.id, **{field: CHANGED[field]})
    assert changed != memory
    assert_is_the_fold(plain_bank, changed)
    assert_is_the_fold(plain_bank, plain_bank.revise(memory.id, **{field: CHANGED[field]}))
    if field in CLEARED:
        assert_is_the_fold(plain_bank, plain_bank.revise(memory.id, **{field: None}))


def test_all_fields_at_once_and_over_and_over(plain_bank: Bank) -> None:
    memory = plain_bank.remember("the ledger closes on Friday").memory
    assert_is_the_fold(plain_bank, plain_bank.revise(memory.id, **CHANGED))
    for number in range(12):
        revised = plain_bank.revise(memory.id, importance=number / 20, text=f"ledger {number}")
        assert_is_the_fold(plain_bank, revised)


def test_what_was_said_otherwise_stays_said(plain_bank: Bank) -> None:
    one, two = (plain_bank.remember(f"the ledger of {name}").memory for name in ("ada", "grace"))
    plain_bank.confirm(one.id, by="grace")
    plain_bank.dispute(one.id, by="ada")
    assert_is_the_fold(plain_bank, plain_bank.revise(one.id, importance=0.9))
    plain_bank.supersede(one.id, two.id)
    replaced = plain_bank.revise(one.id, importance=0.2)
    assert (replaced.status, replaced.superseded_by) == ("superseded", two.id)
    assert_is_the_fold(plain_bank, replaced)
    plain_bank.retract(two.id)
    assert_is_the_fold(plain_bank, plain_bank.revise(two.id, confidence=0.9))


def test_after_an_undo_the_fold_decides(plain_bank: Bank) -> None:
    memory = plain_bank.remember("the ledger closes on Friday").memory
    plain_bank.revise(memory.id, importance=0.9)
    plain_bank.undo(plain_bank.history(memory.id)[-1].id)
    assert plain_bank.revise(memory.id, domain="billing").importance == 0.5
    assert_is_the_fold(plain_bank, plain_bank.revise(memory.id, confidence=0.2))


def test_use_is_still_counted(plain_bank: Bank) -> None:
    memory = plain_bank.remember("the ledger closes on Friday").memory
    plain_bank.engine.note_uses([memory.id])
    plain_bank.engine.flush_uses()
    assert plain_bank.revise(memory.id, importance=0.9).uses == 1


def test_nothing_is_written_about_what_is_not_there(plain_bank: Bank) -> None:
    memory = plain_bank.remember("the ledger closes on Friday").memory
    plain_bank.forget(memory.id)
    last = plain_bank.engine.store.last_seq()
    with pytest.raises(NotFoundError, match="no memory 'nobody-1'"):
        plain_bank.revise("nobody-1", importance=0.9)
    with pytest.raises(ForgottenError):
        plain_bank.revise(memory.id, importance=0.9)
    assert plain_bank.engine.store.last_seq() == last
    assert plain_bank.remember("the ledger closes on Monday").memory.text in str(plain_bank.find().memories)
