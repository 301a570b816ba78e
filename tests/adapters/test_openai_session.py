"""A bank as a session of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents.memory import Session

from skep.adapters.openai_agents import BankSession
from skep.bank.bank import Bank
from skep.errors import InvalidInputError

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "What is the gate code?"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "4411"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "The gate code is 4411."}]},
]


def test_items_come_back_as_they_were_in_order(file_bank: Bank) -> None:
    async def talk() -> None:
        session = BankSession("chat-1", file_bank, scope={"user": "ana"})
        assert isinstance(session, Session)
        await session.add_items(ITEMS)
        assert await session.get_items() == ITEMS
        assert await session.get_items(limit=2) == ITEMS[2:]
        assert await session.get_items(limit=0) == []
        assert await BankSession("chat-2", file_bank, scope={"user": "ana"}).get_items() == []
        assert await session.pop_item() == ITEMS[-1]
        assert await session.get_items() == ITEMS[:-1]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None

    asyncio.run(talk())


def test_what_was_said_is_recalled_in_every_session_of_the_user(bank: Bank) -> None:
    asyncio.run(BankSession("chat-1", bank, scope={"user": "ana"}).add_items(ITEMS))
    found = bank.recall("gate code", scope={"user": "ana", "session": "*"})
    assert "The gate code is 4411." in [hit.memory.text for hit in found]


def test_the_settings_of_a_session_limit_what_is_given_back(bank: Bank) -> None:
    async def talk() -> None:
        session = BankSession("chat-1", bank, session_settings={"limit": 1})
        await session.add_items(ITEMS)
        assert await session.get_items() == ITEMS[-1:]
        assert await session.get_items(limit=3) == ITEMS[1:]

    asyncio.run(talk())


def test_a_session_is_named_once(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="session_id names it"):
        BankSession("chat-1", bank, scope={"session": "chat-2"})
