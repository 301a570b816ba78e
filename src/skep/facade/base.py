"""What every group of methods stands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skep.engine import Engine
from skep.errors import NotFoundError
from skep.model import Event, Memory, Scope
from skep.storage.fold import mentioned
from skep.validation import clean_scope, clean_text

ScopeLike = Scope | Mapping[str, str | None]
Sees = Callable[[Memory], bool]
"""Whether a read may show a memory."""
BULK = 2000
"""Memories per transaction in bulk work."""


class Base:
    """Holds the engine."""

    _engine: Engine

    @property
    def engine(self) -> Engine:
        """The parts this bank is made of, for the rooms built on top of it."""
        return self._engine

    @property
    def actor(self) -> str:
        """The name under which this bank writes to the log."""
        return self._engine.store.actor

    def _sees(self, scope: ScopeLike | None, include_shared: bool) -> Sees | None:
        """What a read with a scope may show; None where everything is."""
        if scope is None:
            return None
        asked = clean_scope("scope", scope, self._engine.settings.label_limit, asked=True)
        return lambda memory: asked.admits(memory.scope) or (bool(include_shared) and memory.scope.shared)

    def _seen(self, memory_id: str, sees: Sees | None) -> Memory:
        """A memory that a read may show. Of what lies outside its scope, a read does not even say that it exists."""
        if sees is None:
            return self._engine.memory(memory_id)
        try:
            memory = self._engine.memory(memory_id)
        except NotFoundError:
            memory = None
        if memory is None or not sees(memory):
            raise NotFoundError(
                f"there is no memory {memory_id!r} in that scope; ask without a scope, or with include_shared=True"
            )
        return memory

    def _shown(self, event: Event, sees: Sees | None) -> bool:
        """Whether a read may show an event: only if it may show every memory the event speaks of."""
        if sees is None:
            return True
        found = [self._engine.store.get(subject) for subject in mentioned(event)]
        return bool(found) and all(memory is not None and sees(memory) for memory in found)

    def _write(self, kind: str, body: dict[str, Any], reason: str | None = None) -> Event:
        if reason is not None:
            body["reason"] = clean_text("reason", reason, self._engine.settings.text_limit)
        events, _ = self._engine.write([(kind, body)])
        return events[0]
