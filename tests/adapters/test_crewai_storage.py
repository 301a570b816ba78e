"""A bank as the storage of CrewAI's memory."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from unittest.mock import MagicMock

import pytest
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory

from skep.adapters.crewai import BankStorage
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import InvalidInputError


@pytest.fixture
def storage(bank: Bank) -> BankStorage:
    return BankStorage(bank, embedder=HashingEmbedder(64))


def record(text: str, scope: str = "/", **about: Any) -> MemoryRecord:
    return MemoryRecord(content=text, scope=scope, **about)


def test_the_memory_of_the_framework_writes_and_finds(storage: BankStorage) -> None:
    memory = Memory(storage=storage, embedder=storage, llm=MagicMock())
    known = {"categories": ["infra"], "importance": 0.7, "metadata": {}}
    memory.remember("The staging database runs PostgreSQL 16", scope="/team/db", **known)
    memory.remember("Deploys happen on Tuesdays", scope="/team", **known)

    found = memory.recall("which PostgreSQL does staging run?", depth="shallow", limit=1)

    assert isinstance(storage, StorageBackend)
    assert [match.record.content for match in found] == ["The staging database runs PostgreSQL 16"]
    assert (found[0].record.scope, found[0].record.categories) == ("/team/db", ["infra"])


def test_a_scope_holds_what_lies_below_it_and_nothing_beside_it(storage: BankStorage) -> None:
    storage.save([record("a", "/team"), record("b", "/team/db"), record("c", "/teamwork"), record("d")])

    assert {each.content for each in storage.list_records("/team")} == {"a", "b"}
    assert storage.count() == 4
    assert storage.list_scopes("/") == ["/team", "/teamwork"]
    assert storage.get_scope_info("/team").child_scopes == ["/team/db"]
    storage.reset("/team")
    assert {each.content for each in storage.list_records()} == {"c", "d"}


def test_a_record_comes_back_as_it_was_saved_and_one_of_the_same_id_replaces_it(storage: BankStorage) -> None:
    made = record("Ana likes mint tea", "/people/ana", categories=["taste"], metadata={"n": 1}, source="ana",
                  private=True, importance=0.3, created_at=datetime(2026, 1, 2))  # fmt: skip
    storage.save([made])
    back = storage.get_record(made.id)
    storage.update(made.model_copy(update={"content": "Ana likes green tea", "scope": "/people"}))
    after = storage.get_record(made.id)

    assert back is not None
    assert back.model_dump(exclude={"last_accessed"}) == made.model_dump(exclude={"last_accessed"})
    assert after is not None
    assert (after.content, after.scope, after.created_at) == (
        "Ana likes green tea",
        "/people",
        made.created_at,
    )
    assert storage.count() == 1


def test_filters_narrow_a_search_and_an_erasure(storage: BankStorage) -> None:
    days = [datetime(2026, month, 1) for month in (1, 2, 3)]
    storage.save(
        [
            record("tea one", categories=["x", "y"], metadata={"n": 1}, created_at=days[0]),
            record("tea two", categories=["y"], metadata={"n": 2}, created_at=days[1]),
            record("tea three", categories=["z"], metadata={"n": 1}, created_at=days[2]),
        ]
    )
    [tea] = storage(["tea"])

    def found(**given: Any) -> set[str]:
        return {each.content for each, _ in storage.search(tea, **given)}

    assert found(categories=["x", "z"]) == {"tea one", "tea three"}
    assert found(metadata_filter={"n": 1}, categories=["y"]) == {"tea one"}
    assert storage.delete(older_than=days[1]) == 1
    assert storage.delete(metadata_filter={"n": 1}, categories=["y"]) == 0
    assert storage.delete(categories=["z"]) == 1
    assert [each.content for each in storage.list_records()] == ["tea two"]


def test_a_vector_that_the_storage_did_not_make_is_refused_with_what_to_do(storage: BankStorage) -> None:
    with pytest.raises(InvalidInputError, match="embedder=storage"):
        storage.search([0.5] * 64)
