"""A bank as a memory block of LlamaIndex."""

from __future__ import annotations

import asyncio

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory

from skep.adapters.llama_index import BankMemoryBlock
from skep.bank.bank import Bank


def test_what_fell_out_of_the_short_term_memory_is_recalled(bank: Bank) -> None:
    block = BankMemoryBlock(bank=bank, scope={"user": "ana"})
    memory = Memory.from_defaults(
        session_id="s1",
        token_limit=60,
        chat_history_token_ratio=0.5,
        token_flush_size=10,
        memory_blocks=[block],
    )

    async def talk() -> str:
        await memory.aput(ChatMessage(role="user", content="The gate code of the house in Oslo is 4411"))
        for n in range(12):
            await memory.aput(
                ChatMessage(role="user", content=f"something else, number {n}, about the weather in May")
            )
            await memory.aput(
                ChatMessage(role="assistant", content=f"fine, that was number {n} about the weather")
            )
        return await block.aget(
            [ChatMessage(role="user", content="what is the gate code of the house in Oslo?")]
        )

    assert "The gate code of the house in Oslo is 4411" in asyncio.run(talk())


def test_nobody_sees_what_is_for_somebody_else(bank: Bank) -> None:
    said = [ChatMessage(role="user", content="The gate code is 4411")]
    asyncio.run(BankMemoryBlock(bank=bank, scope={"user": "ana"}).aput(said, session_id="s1"))
    asked = [ChatMessage(role="user", content="what is the gate code?")]
    assert "4411" in asyncio.run(BankMemoryBlock(bank=bank, scope={"user": "ana"}).aget(asked))
    assert asyncio.run(BankMemoryBlock(bank=bank, scope={"user": "bo"}).aget(asked)) == ""


def test_without_a_question_the_block_is_empty(bank: Bank) -> None:
    bank.remember("The gate code is 4411")
    assert asyncio.run(BankMemoryBlock(bank=bank).aget([])) == ""


def test_the_last_lines_are_left_out_first(bank: Bank) -> None:
    block = BankMemoryBlock(bank=bank)
    assert asyncio.run(block.atruncate("- the best\n- the next", 2)) == "- the best"
    assert asyncio.run(block.atruncate("- the best", 50)) is None
