"""A bank as a session of the OpenAI Agents SDK: the items of a conversation, in order, each an episode of the bank.

A program that calls `Runner.run(agent, text, session=BankSession("chat-1", bank))` uses it. What was said is also found
by `recall`, in this session or over all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from skep.errors import InvalidInputError, MissingExtraError
from skep.model import Memory, Scope, ScopeLike
from skep.validation import clean_scope

try:
    from agents.memory.session_settings import (
        SessionSettings,
        coerce_session_settings,
        resolve_session_limit,
    )
except ImportError as error:
    raise MissingExtraError("BankSession", "openai-agents") from error

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

Item = dict[str, Any]
TAG = "openai-agents"
LONGEST = 20_000
"""Characters of an item that are searched; the whole item is in the metadata."""
PAGE = 1000


class BankSession:
    """The history of one conversation in a bank. It implements the `Session` protocol.

    Args:
        session_id: The name of the conversation; it is the session of the scope.
        bank: The bank, or an agent's bank in a hive. An item may have `Settings.metadata_limit` bytes.
        scope: User and project of the conversation.
        session_settings: As for the SDK's own sessions: `limit` items are given back, if the caller names no number.
    """

    def __init__(
        self,
        session_id: str,
        bank: MemoryBank,
        *,
        scope: ScopeLike | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        whose = Scope() if scope is None else clean_scope("scope", scope, 200)
        if whose.session is not None:
            raise InvalidInputError("leave the session out of the scope; session_id names it", field="scope")
        self.session_id = session_id
        self.bank = bank
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self.scope = Scope(user=whose.user, project=whose.project, session=session_id)

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The newest items, at most so many, in the order in which they were added."""
        return await asyncio.to_thread(self._items, resolve_session_limit(limit, self.session_settings))

    async def add_items(self, items: Sequence[Item]) -> None:
        """Put items at the end; all of them or none."""
        memories = [
            {
                "text": _text(item),
                "kind": "episode",
                "tags": (TAG,),
                "scope": self.scope,
                "metadata": {"item": item},
            }
            for item in items
        ]
        if memories:
            await asyncio.to_thread(self.bank.remember_many, memories)

    async def pop_item(self) -> Item | None:
        """Take the newest item out, for good."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        """Take every item out, for good."""
        await asyncio.to_thread(self._clear)

    def _stored(self) -> Iterator[Memory]:
        """The items, newest first."""
        cursor: str | None = None
        while True:
            page = self.bank.find(scope=self.scope, tags=(TAG,), kind="episode", limit=PAGE, cursor=cursor)
            yield from page
            if (cursor := page.cursor) is None:
                return

    def _items(self, limit: int | None) -> list[Item]:
        if limit is not None and limit <= 0:
            return []
        newest = list(itertools.islice(self._stored(), limit))
        return [memory.metadata["item"] for memory in reversed(newest)]

    def _pop(self) -> Item | None:
        newest = next(self._stored(), None)
        if newest is None:
            return None
        self.bank.forget(newest.id)
        return newest.metadata["item"]

    def _clear(self) -> None:
        found = [memory.id for memory in self._stored()]
        if found:
            self.bank.forget(found)


def _text(item: Item) -> str:
    """The words of an item, to be searched."""
    content: Any = item.get("content")
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        content = "\n".join(
            str(cast("Item", part)["text"]) for part in parts if isinstance(part, dict) and part.get("text")
        )
    if not isinstance(content, str) or not content.strip():
        content = json.dumps(item, ensure_ascii=False, default=str)
    return content[:LONGEST]
