"""What every group of methods stands on."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from skep.engine.engine import Engine
from skep.errors import DiskFullError, NotFoundError, ReadOnlyError, SkepError, StorageError
from skep.events import mentioned
from skep.model import Event, Memory, ScopeLike
from skep.validation import clean_flag, clean_scope, public_text

if TYPE_CHECKING:
    from pathlib import Path


Sees = Callable[[Memory], bool]
"""Whether a read may show a memory."""
BULK = 2000
"""Memories per transaction in bulk work."""


@contextlib.contextmanager
def file_errors(path: Path) -> Generator[None]:
    """What the system says of a file, in words that say what to do."""
    try:
        yield
    except SkepError:
        raise
    except OSError as error:
        why = f"{path} cannot be read or written ({error.strerror or error})"
        if error.errno == errno.ENOSPC:
            raise DiskFullError(f"{why}; free some space and try again") from error
        if isinstance(error, PermissionError):
            raise ReadOnlyError(f"{why}; check its permissions and those of its folder") from error
        raise StorageError(f"{why}; choose a file in a folder that exists") from error


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
        return self._engine.actor

    def _sees(self, scope: ScopeLike | None, include_shared: bool) -> Sees | None:
        """What a read with a scope may show; None where everything is."""
        shared = clean_flag("include_shared", include_shared)
        if scope is None:
            return None
        asked = clean_scope("scope", scope, self._engine.settings.label_limit, asked=True)
        return lambda memory: asked.admits(memory.scope) or (shared and memory.scope.shared)

    def _seen(self, memory_id: str, sees: Sees | None) -> Memory:
        """A memory that a read may show. Of what lies outside its scope, a read does not even say that it exists."""
        if sees is None:
            return self._found(memory_id)
        try:
            memory = self._found(memory_id)
        except NotFoundError:
            memory = None
        if memory is None or not sees(memory):
            raise NotFoundError(
                f"there is no memory {memory_id!r} in that scope; ask without a scope, or with include_shared=True"
            )
        return memory

    def _found(self, memory_id: str) -> Memory:
        """A memory by id, wherever this looks for it."""
        return self._engine.memory(memory_id)

    def _shown(self, event: Event, sees: Sees | None) -> bool:
        """Whether a read may show an event: only if it may show every memory the event speaks of."""
        if sees is None:
            return True
        found = [self._engine.get(subject) for subject in mentioned(event)]
        return bool(found) and all(memory is not None and sees(memory) for memory in found)

    def _write(self, kind: str, body: dict[str, Any], reason: str | None = None) -> Event:
        if reason is not None:
            body["reason"] = public_text("reason", reason, self._engine.settings.text_limit)
        events, _ = self._engine.write([(kind, body)])
        return events[0]
