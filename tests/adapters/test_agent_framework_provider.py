"""A bank as a context provider of Microsoft's Agent Framework."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import AgentResponse, AgentSession, Message, SessionContext

from skep.adapters.agent_framework import BankContextProvider
from skep.bank.bank import Bank


def turn(provider: BankContextProvider, asked: str, answer: str = "") -> list[str]:
    """One run of an agent that answers so; the texts that the provider put before it."""

    async def work() -> list[str]:
        context = SessionContext(input_messages=[Message("user", [asked])])
        session, agent = AgentSession(), _nobody()
        await provider.before_run(agent=agent, session=session, context=context, state={})
        given = [m.text for messages in context.context_messages.values() for m in messages]
        if answer:
            context._response = AgentResponse(messages=[Message("assistant", [answer])])
        await provider.after_run(agent=agent, session=session, context=context, state={})
        return given

    return asyncio.run(work())


def _nobody() -> Any:
    return None


def test_what_one_run_said_the_next_one_knows(bank: Bank) -> None:
    provider = BankContextProvider(bank, scope={"user": "ana"})
    assert turn(provider, "The gate code is 4411", "Noted.") == []
    (given,) = turn(provider, "What is the gate code?")
    assert "The gate code is 4411" in given


def test_without_a_scope_nothing_is_searched_and_nothing_is_kept(bank: Bank) -> None:
    bank.remember("The gate code is 4411", scope={"user": "ana"})
    assert turn(BankContextProvider(bank), "What is the gate code?", "I do not know") == []
    assert bank.status().memories == 1


def test_nobody_sees_what_is_for_somebody_else(bank: Bank) -> None:
    turn(BankContextProvider(bank, scope={"user": "ana"}), "The gate code is 4411")
    assert turn(BankContextProvider(bank, scope={"user": "bo"}), "What is the gate code?") == []


def test_memories_take_no_more_of_the_context_than_allowed(bank: Bank) -> None:
    bank.remember_many(
        {"text": f"The gate code of house {n} is {4000 + n}", "scope": {"user": "ana"}} for n in range(40)
    )
    (given,) = turn(
        BankContextProvider(bank, search_scope={"user": "ana"}, max_tokens=60), "What is the gate code?"
    )
    assert len(given.split()) < 90
