"""A bank as a memory service of Google's ADK: what was said in sessions, found in later ones.

A `Runner(memory_service=BankMemoryService(bank))` calls it. An event of a session is an episode; app and user are
project and user of its scope. A session may be added as often as one likes: an event is known by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skep.errors import MissingExtraError
from skep.model import Hit, Scope

try:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.genai.types import Content, Part
except ImportError as error:
    raise MissingExtraError("BankMemoryService", "adk") from error

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

    from skep.bank.memory_bank import MemoryBank


class BankMemoryService(BaseMemoryService):
    """ADK's memory service over a bank.

    Args:
        bank: The bank, or an agent's bank in a hive.
        limit: Memories that a search gives at most.
    """

    def __init__(self, bank: MemoryBank, *, limit: int = 10) -> None:
        self.bank = bank
        self.limit = limit

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember the events of a session that say something; those that are known already are not repeated."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember some events of a session."""
        scope = Scope(user=user_id, project=app_name, session=session_id)
        said = [(event, text) for event in events if (text := _text(event.content))]
        await self._remember(
            {
                "text": text,
                "kind": "episode",
                "scope": scope,
                "key": f"{session_id or ''}/{event.id}",
                "created_at": event.timestamp,
                "metadata": {**(custom_metadata or {}), "author": event.author},
            }
            for event, text in said
        )

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember facts about a user."""
        scope = Scope(user=user_id, project=app_name)
        await self._remember(
            {
                "text": text,
                "scope": scope,
                "metadata": {
                    **(custom_metadata or {}),
                    **({"author": memory.author} if memory.author else {}),
                },
                "on_conflict": "supersede",
            }
            for memory in memories
            if (text := _text(memory.content))
        )

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """The memories of a user in an app that fit a question, from all of their sessions."""
        if not query.strip():
            return SearchMemoryResponse()
        scope = Scope(user=user_id, project=app_name, session="*")
        found = await asyncio.to_thread(self.bank.recall, query, scope=scope, limit=self.limit)
        return SearchMemoryResponse(memories=[_entry(hit) for hit in found])

    async def _remember(self, items: Iterable[Mapping[str, Any]]) -> None:
        listed = list(items)
        if listed:
            await asyncio.to_thread(self.bank.remember_many, listed)


def _entry(hit: Hit) -> MemoryEntry:
    memory = hit.memory
    return MemoryEntry(
        content=Content(role="user", parts=[Part(text=memory.text)]),
        author=memory.metadata.get("author"),
        timestamp=datetime.fromtimestamp(memory.created_at, UTC).isoformat(),
    )


def _text(content: Content | None) -> str:
    """The words of a message; calls of tools are none."""
    parts = (content.parts if content else None) or []
    return "\n".join(part.text for part in parts if part.text).strip()
