"""The row of a new memory holds what the fold of its events gives."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.errors import InvalidInputError
from skep.storage.fold import fold
from skep.storage.memory_rows import STATE_COLUMNS, state_values
from skep.validation import REMEMBER_KEYS

EVERY: dict[str, Any] = {
    "text": "the ledger closes on Friday",
    "kind": "procedure",
    "title": "closing",
    "domain": "billing",
    "agent": "ada",
    "scope": {"user": "u", "session": "s"},
    "tags": ("a", "b"),
    "source": "notes/1",
    "confidence": 0.6,
    "importance": 0.9,
    "polarity": -1,
    "pinned": True,
    "level": 2,
    "created_at": 1_700_000_000.0,
    "valid_from": 1_700_000_100.0,
    "valid_to": 1_900_000_000.0,
    "ttl": 5e8,
    "evidence": ("x-1", "x-2"),
    "metadata": {"n": [1, 2]},
    "key": "closing-day",
}


def assert_rows_are_the_fold(bank: Bank, count: int) -> None:
    store = bank.engine.store
    rows = store.connection.rows(f"SELECT id, status, stale, {', '.join(STATE_COLUMNS)} FROM memories")
    assert len(rows) == count
    for memory_id, status, stale, *stored in rows:
        state = fold(memory_id, store.log.of(memory_id))
        assert state is not None
        assert stored == state_values(state)
        assert (status, stale) == (state.memory.status, 0)


def test_every_key_has_an_example() -> None:
    assert set(EVERY) == set(REMEMBER_KEYS)


@pytest.mark.parametrize("key", [key for key in REMEMBER_KEYS if key != "text"])
def test_one_field_alone_and_all_but_one(plain_bank: Bank, key: str) -> None:
    plain_bank.remember_many([{"text": "one", key: EVERY[key]}, "another"])
    plain_bank.remember_many([{name: value for name, value in EVERY.items() if name != key}])
    assert_rows_are_the_fold(plain_bank, 3)


def test_a_batch_of_all_sorts(plain_bank: Bank) -> None:
    items: list[Any] = [{"text": f"note {key}", key: value} for key, value in EVERY.items() if key != "text"]
    done = plain_bank.remember_many([*items, EVERY, "bare"])
    assert_rows_are_the_fold(plain_bank, len(items) + 2)
    assert [result.memory for result in done] == [plain_bank.get(result.memory.id) for result in done]


def test_the_order_of_what_is_given_says_nothing(plain_bank: Bank) -> None:
    given = dict(reversed(EVERY.items()))
    one, two = plain_bank.remember_many([EVERY, given])
    first, second = (plain_bank.engine.store.log.of(each.memory.id)[0].body for each in (one, two))
    assert list(first) == list(second)
    assert first == second


def test_the_collector_is_left_as_it_was(plain_bank: Bank) -> None:
    assert gc.isenabled()
    plain_bank.remember_many(["one", "two"])
    assert gc.isenabled()
    with pytest.raises(InvalidInputError, match="item 1"):
        plain_bank.remember_many(["three", ""])
    assert gc.isenabled()
    gc.disable()
    try:
        plain_bank.remember_many(["four"])
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_tags_that_were_checked_before_are_checked_against_the_limits_of_this_bank(plain_bank: Bank) -> None:
    from skep.config import Settings
    from skep.embedding.static_table import HashingEmbedder

    plain_bank.remember("one", tags=("a", "b", "c"))
    with (
        Bank.open(":memory:", embedder=HashingEmbedder(8), settings=Settings(tags_limit=2)) as strict,
        pytest.raises(InvalidInputError, match="over the limit of 2"),
    ):
        strict.remember("two", tags=("a", "b", "c"))
