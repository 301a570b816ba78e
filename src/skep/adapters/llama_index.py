"""A bank as a memory block of LlamaIndex: messages that fall out of the short-term memory, recalled when they fit.

A `Memory.from_defaults(memory_blocks=[BankMemoryBlock(bank=bank, scope=...)])` calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from skep.errors import MissingExtraError
from skep.validation import clean_scope

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory.memory import BaseMemoryBlock
except ImportError as error:
    raise MissingExtraError("BankMemoryBlock", "llamaindex") from error

PER_TOKEN = 4
"""Characters, as the framework itself estimates."""


class BankMemoryBlock(BaseMemoryBlock[str]):
    """Memories of a bank that fit the last messages, one a line."""

    name: str = "skep"
    description: str | None = "What was said and learnt earlier."
    bank: Any
    """The bank, or an agent's bank in a hive."""
    scope: Any = None
    limit: int = 8
    levels: tuple[str, ...] = ("strong", "likely")
    """Only hits of these levels; a weak one is seldom an answer."""

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """The memories that fit the newest messages."""
        del block_kwargs
        asked = "\n".join(text for message in (messages or [])[-3:] if (text := message.content))
        if not asked.strip():
            return ""
        found = await asyncio.to_thread(
            self.bank.recall,
            asked,
            scope=self._scope(),
            include_shared=self.scope is not None,
            limit=self.limit,
        )
        return "\n".join(f"- {hit.memory.text}" for hit in found if hit.level in self.levels)

    async def _aput(self, messages: Sequence[ChatMessage]) -> None:
        """Keep messages as episodes; one that comes again is kept once."""
        items: list[dict[str, Any]] = []
        for message in messages:
            text, session = message.content, message.additional_kwargs.get("session_id")
            if text and text.strip():
                scope = clean_scope("scope", self.scope or {}, 200)
                where = {"user": scope.user, "project": scope.project, "session": session or scope.session}
                items.append(
                    {
                        "text": text,
                        "kind": "episode",
                        "scope": where,
                        "metadata": {"role": str(message.role.value)},
                    }
                )
        if items:
            await asyncio.to_thread(self.bank.remember_many, items)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Leave out the last lines, which fit least."""
        lines = content.split("\n")
        left = tokens_to_truncate * PER_TOKEN
        while lines and left > 0:
            left -= len(lines.pop()) + 1
        return "\n".join(lines) or None

    def _scope(self) -> Any:
        """The scope to search: of this user and project, in any session unless one is named."""
        if self.scope is None:
            return None
        scope = clean_scope("scope", self.scope, 200, asked=True)
        return {"user": scope.user, "project": scope.project, "session": scope.session or "*"}
