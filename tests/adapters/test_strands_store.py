"""A bank as a memory store of Strands Agents."""

from __future__ import annotations

import asyncio
from typing import Any

from strands.memory.memory_manager import MemoryManager
from strands.memory.types import AddMessagesContext

from skep.adapters.strands import BankStore
from skep.bank.bank import Bank


def message(role: str, text: str) -> Any:
    return {"role": role, "content": [{"text": text}]}


def test_the_manager_of_the_framework_writes_and_finds(bank: Bank) -> None:
    async def work() -> list[str]:
        manager = MemoryManager(stores=[BankStore(bank, scope={"user": "ana"})])
        await manager.add("Ana edits in Helix")
        return [entry.content for entry in await manager.search("which editor")]

    assert asyncio.run(work()) == ["Ana edits in Helix"]


def test_what_is_said_twice_is_no_second_memory(bank: Bank) -> None:
    async def work() -> tuple[str, str]:
        store = BankStore(bank)
        return await store.add("Ana edits in Helix"), await store.add("Ana edits in Helix")

    first, second = asyncio.run(work())
    assert first == second
    assert bank.status().memories == 1


def test_a_batch_that_is_tried_again_is_stored_once_and_equal_messages_twice(bank: Bank) -> None:
    batch = [message("user", "ok"), message("assistant", "done"), message("user", "ok")]
    context = AddMessagesContext(sequence_numbers=[0, 1, 4])

    async def work() -> None:
        store = BankStore(bank)
        await store.add_messages(batch, context)
        await store.add_messages(batch, context)

    asyncio.run(work())
    assert sorted(memory.text for memory in bank.find()) == ["done", "ok", "ok"]


def test_a_store_gives_as_many_as_it_is_asked_for_and_says_why(bank: Bank) -> None:
    bank.remember_many(f"note {n} on the backup" for n in range(9))
    store = BankStore(bank, max_search_results=2)
    assert len(asyncio.run(store.search("backup"))) == 2
    entries = asyncio.run(store.search("backup", {"max_search_results": 4}))
    assert len(entries) == 4
    assert entries[0].metadata is not None
    assert {"id", "score", "level"} <= set(entries[0].metadata)
