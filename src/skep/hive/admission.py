"""Which memories a filter admits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from skep.model import Memory
from skep.storage.base import Filter

DAY = 86_400.0


class Row(Protocol):
    """What of a memory a filter looks at, apart from what depends on the time of asking."""

    @property
    def status(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def domain(self) -> str | None: ...
    @property
    def agent(self) -> str | None: ...
    @property
    def tags(self) -> Sequence[str]: ...
    @property
    def created_at(self) -> float: ...
    @property
    def user(self) -> str | None: ...
    @property
    def project(self) -> str | None: ...
    @property
    def session(self) -> str | None: ...


def admits(where: Filter, row: Row) -> bool:
    """Whether a row passes the parts of a filter that do not depend on the time of asking."""
    scope = (row.user, row.project, row.session)
    return _admitted(where, row, scope)


def _admitted(where: Filter, row: Row | Memory, scope: tuple[str | None, str | None, str | None]) -> bool:
    if row.status not in where.statuses:
        return False
    if where.kinds and row.kind not in where.kinds:
        return False
    if where.domains and row.domain not in where.domains:
        return False
    if where.agents and row.agent not in where.agents:
        return False
    if any(not set(group).intersection(row.tags) for group in where.tags):
        return False
    if where.since is not None and row.created_at < where.since:
        return False
    if where.until is not None and row.created_at >= where.until:
        return False
    if where.scope is None:
        return True
    asked = (where.scope.user, where.scope.project, where.scope.session)
    if all(wanted in ("*", part) for part, wanted in zip(scope, asked, strict=True)):
        return True
    return where.include_shared and scope == (None, None, None)


def admits_memory(where: Filter, memory: Memory) -> bool:
    """Whether a memory passes a whole filter."""
    if not _admitted(where, memory, (memory.scope.user, memory.scope.project, memory.scope.session)):
        return False
    t = where.valid_at
    if t is not None:
        begun = memory.valid_from is None or memory.valid_from <= t
        ended = (memory.valid_to, memory.expires_at)
        if not begun or any(end is not None and end <= t for end in ended):
            return False
    if where.min_importance is not None and memory.importance < where.min_importance:
        return False
    days = max(0.0, where.now - memory.last_evidence_at) / DAY
    sure = memory.confidence * math.exp(-where.decay_per_day * days)
    return where.min_confidence is None or sure >= where.min_confidence
