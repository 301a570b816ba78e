"""A bank as a memory store of Strands Agents: searched before a model call, written by the agent or from messages.

An `Agent(memory_manager=MemoryManager(stores=[BankStore(bank)]))` calls it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skep.errors import MissingExtraError

try:
    from strands.memory.types import AddMessagesContext, MemoryEntry, MemoryStore, SearchOptions
except ImportError as error:
    raise MissingExtraError("BankStore", "strands") from error

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank
    from skep.model import Hit, ScopeLike

DEFAULT_RESULTS = 5


class BankStore(MemoryStore):
    """A Strands memory store over a bank.

    Args:
        bank: The bank, or an agent's bank in a hive.
        name: The name that tools know it by.
        description: What it is for, in words for the model.
        scope: Whose memories these are; searches see this scope and what is for everybody.
        writable: Whether the agent may write.
        extraction: As for every store of Strands: `True` hands the messages of a turn to `add_messages`.
        max_search_results: Memories that a search gives, unless the caller says a number.
        levels: Only hits of these levels are handed over.
    """

    def __init__(
        self,
        bank: MemoryBank,
        *,
        name: str = "skep",
        description: str | None = "What was learnt in earlier sessions.",
        scope: ScopeLike | None = None,
        writable: bool = True,
        extraction: Any = None,
        max_search_results: int = DEFAULT_RESULTS,
        levels: Sequence[str] = ("strong", "likely", "weak"),
    ) -> None:
        self.bank = bank
        self.name = name
        self.description = description
        self.scope = scope
        self.writable = writable
        self.extraction = extraction
        self.max_search_results = max_search_results
        self.levels = tuple(levels)
        self._run = uuid.uuid4().hex
        """Numbers of messages begin at 0 in each run of an agent."""

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """The memories that fit, best first."""
        if not query.strip():
            return []
        limit = (options or {}).get("max_search_results") or self.max_search_results
        found = await asyncio.to_thread(
            self.bank.recall,
            query,
            scope=self.scope,
            include_shared=self.scope is not None,
            limit=limit,
        )
        return [_entry(hit) for hit in found if hit.level in self.levels]

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> str:
        """Remember one statement; a repeat confirms what is there. Returns its id."""
        done = await asyncio.to_thread(
            self.bank.remember, content, scope=self.scope, metadata=metadata, on_conflict="supersede"
        )
        return done.memory.id

    async def add_messages(self, messages: Sequence[Any], context: AddMessagesContext | None = None) -> None:
        """Remember what was said, as episodes. A batch that is tried again is stored once."""
        numbers = context.sequence_numbers if context is not None else None
        items: list[dict[str, Any]] = []
        for at, message in enumerate(messages):
            text = "\n".join(block["text"] for block in message["content"] if block.get("text")).strip()
            if text:
                item: dict[str, Any] = {"text": text, "kind": "episode", "scope": self.scope}
                item["metadata"] = {"role": message["role"]}
                if numbers is not None:
                    item["key"] = f"strands/{self._run}/{numbers[at]}"
                items.append(item)
        if items:
            await asyncio.to_thread(self.bank.remember_many, items)


def _entry(hit: Hit) -> MemoryEntry:
    told = {"id": hit.memory.id, "score": hit.score, "level": hit.level, "created_at": hit.memory.created_at}
    return MemoryEntry(content=hit.memory.text, metadata={**hit.memory.metadata, **told})
