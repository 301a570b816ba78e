"""A bank as a context provider of Microsoft's Agent Framework: memories before a run, what was said after it.

An agent with `context_providers=[BankContextProvider(bank, scope=...)]` calls it. Where it searches and where it writes
are two things: without a search scope nothing is searched, so that nobody's memories reach somebody else by default.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from skep.errors import MissingExtraError
from skep.recall.context_budget import build_context

try:
    from agent_framework import ContextProvider, Message
except ImportError as error:
    raise MissingExtraError("BankContextProvider", "agent-framework") from error

if TYPE_CHECKING:
    from agent_framework import AgentSession, SessionContext, SupportsAgentRun

    from skep.bank.memory_bank import MemoryBank
    from skep.model import ScopeLike

PROMPT = "What earlier sessions have left; the most recent line holds. A sample: ask the memory for more."


class BankContextProvider(ContextProvider):
    """Memories of a bank in the context of an agent.

    Args:
        bank: The bank, or an agent's bank in a hive.
        source_id: The name under which its messages are marked.
        scope: Where what is said is kept; nothing is kept without one.
        search_scope: Where it searches, if that is elsewhere.
        max_tokens: The most that memories may take of the context.
        prompt: The line before the memories.
    """

    def __init__(
        self,
        bank: MemoryBank,
        source_id: str = "skep",
        *,
        scope: ScopeLike | None = None,
        search_scope: ScopeLike | None = None,
        max_tokens: int = 800,
        prompt: str = PROMPT,
    ) -> None:
        super().__init__(source_id)
        self.bank = bank
        self.scope = scope
        self.search_scope = scope if search_scope is None else search_scope
        self.max_tokens = max_tokens
        self.prompt = prompt

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Put the memories that fit the new messages into the context."""
        del agent, session, state
        asked = "\n".join(message.text for message in context.input_messages if message.text).strip()
        if self.search_scope is None or not asked:
            return
        found = await asyncio.to_thread(
            self.bank.recall, asked, scope=self.search_scope, include_shared=True, limit=20
        )
        good = [hit for hit in found if hit.level != "weak"]
        facts = [hit for hit in good if hit.memory.kind != "episode"]
        episodes = [hit for hit in good if hit.memory.kind == "episode"]
        told = build_context(facts=facts, episodes=episodes, budget=self.max_tokens)
        if good:
            context.extend_messages(self.source_id, [Message("user", [f"{self.prompt}\n{told.render()}"])])

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Keep what was said, one episode per message."""
        del agent, session, state
        if self.scope is None:
            return
        answers = context.response.messages if context.response is not None else []
        said = [message for message in (*context.input_messages, *answers) if message.text.strip()]
        items = [
            {
                "text": message.text,
                "kind": "episode",
                "scope": self.scope,
                "metadata": {"role": str(message.role)},
            }
            for message in said
            if str(message.role) in ("user", "assistant")
        ]
        if items:
            await asyncio.to_thread(self.bank.remember_many, items)
