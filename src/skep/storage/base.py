"""What the derived index needs from the truth, and what a search may be narrowed to.

Invariants of every store:

1. An event and everything it changes are written in one transaction, or not at all.
2. The state is a function of the *set* of events: replayed in any order, it is the same.
3. `changed_since(seq)` yields every memory whose searchable columns changed after event `seq`, in its present
   form, so that whoever has seen `seq` can catch up. Nothing is ever missing from it.
4. What was forgotten is nowhere: not in rows, log, words, vectors or links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.confidence import DECAY_PER_DAY
from skep.model import CURRENT, Scope


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Exact conditions that apply to words and vectors alike, before scoring."""

    scope: Scope | None = None
    """None sees every scope; otherwise exactly what `scope.admits`."""
    include_shared: bool = False
    """With a scope: also memories that have none."""
    kinds: tuple[str, ...] = ()
    statuses: tuple[str, ...] = CURRENT
    tags: tuple[tuple[str, ...], ...] = ()
    """Every group must be met by at least one of its tags."""
    domains: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    since: float | None = None
    """created_at >= since"""
    until: float | None = None
    """created_at < until"""
    valid_at: float | None = None
    """valid_from <= t < valid_to, absent bounds open; and not expired at t."""
    min_confidence: float | None = None
    """Effective confidence at `now`: confidence * exp(-decay * days since last evidence)."""
    min_importance: float | None = None
    now: float = 0.0
    decay_per_day: float = DECAY_PER_DAY


class IndexRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One memory as the derived index sees it."""

    row: int
    """A stable integer key, local to this bank, never reused."""
    seq: int
    """The event that last changed it."""
    text: str
    """Title and text, as searched."""
    vector: bytes | None
    """float32 little-endian, unit length; None while pending."""
    kind: str
    status: str
    domain: str | None
    agent: str | None
    user: str | None
    project: str | None
    session: str | None
    tags: tuple[str, ...]
    created_at: float
    valid_from: float | None
    valid_to: float | None
    expires_at: float | None
    confidence: float
    last_evidence_at: float
    importance: float
    gone: bool = False
    """Forgotten: drop every trace of this row."""
    id: str = ""
    """Of the memory; empty where no order is told from the index alone."""


if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    class IndexSource(Protocol):
        """The part of a store that the derived index reads."""

        def head(self) -> int:
            """The position of the newest change that the index must know of. Cheap: asked before every search."""
            ...

        def changed_since(self, seq: int) -> Iterator[IndexRow]:
            """Rows changed after `seq`, in order of their `seq`; each at most once, in its present form."""
            ...

        def fingerprint(self) -> str:
            """The embedder whose vectors `changed_since` carries. A different one means: rebuild."""
            ...

        def dim(self) -> int:
            """The length of those vectors; 0 when there are none."""
            ...

        def identity(self) -> str:
            """Changes when the file is replaced by another bank: segments of another identity are not used."""
            ...
