"""What every group of methods stands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skep.engine import Engine
from skep.model import Event, Scope
from skep.validation import clean_text

ScopeLike = Scope | Mapping[str, str | None]
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

    def _write(self, kind: str, body: dict[str, Any], reason: str | None = None) -> Event:
        if reason is not None:
            body["reason"] = clean_text("reason", reason, self._engine.settings.text_limit)
        events, _ = self._engine.write([(kind, body)])
        return events[0]
