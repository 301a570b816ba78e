"""Which memories a filter admits."""

from __future__ import annotations

import math
from typing import NamedTuple

from skep.model import Memory
from skep.storage.base import Filter

DAY = 86_400.0
BETWEEN = "\x1f"
"""Stands between user, project and session in the name of a conversation."""


class Facets(NamedTuple):
    """What a filter looks at; shared by all rows of which it is the same."""

    status: str
    kind: str
    domain: str | None
    agent: str | None
    tags: tuple[str, ...]
    user: str | None
    project: str | None
    session: str | None
    created_at: float = 0.0
    """Always 0: the time is a column of its own."""

    @property
    def key(self) -> str:
        """The conversation; empty for what belongs to none."""
        scope = (self.user, self.project, self.session)
        return "" if scope == (None, None, None) else BETWEEN.join(part or "" for part in scope)


def admits(where: Filter, facets: Facets) -> bool:
    """Whether a row passes the parts of a filter that do not depend on the time of asking."""
    return _admitted(where, facets, (facets.user, facets.project, facets.session))


def _admitted(where: Filter, row: Facets | Memory, scope: tuple[str | None, str | None, str | None]) -> bool:
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
