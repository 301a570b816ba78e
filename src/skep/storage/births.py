"""New memories as rows of their table.

A memory that was just created has been neither judged nor replaced, and most of its fields are empty. So only those
columns are written that some memory of the batch fills; the others have what the table says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from skep.model import Event, Memory
from skep.storage.rows import encode_body

_ALWAYS = ("kind", "text", "confidence", "importance", "created_at", "last_evidence_at")
_FILLED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("text", "kind", "confidence", "importance", "created_at", "tags"), ()),
    **{
        name: (name,)
        for name in (
            *("title", "domain", "agent", "source", "polarity", "pinned", "level", "valid_from", "valid_to"),
            *("evidence", "metadata"),
        )
    },
    "scope": ("scope.user", "scope.project", "scope.session"),
    "ttl": ("expires_at",),
}
"""Per key in the body of a `remember`, the fields of the memory that it fills, beyond those always written."""


TIMES = frozenset(("valid_from", "valid_to", "expires_at"))
"""Columns that say from and until when a memory holds."""


class Form(NamedTuple):
    """How the memories of a batch are written."""

    sql: str
    fields: Callable[[Memory], tuple[Any, ...]]
    packed: tuple[tuple[str, str], ...]
    """Fields that are kept as JSON, each with what an empty one is."""
    timed: bool
    """Whether any of them may begin or cease to hold."""

    def values(self, memory: Memory, row: int, change: int) -> tuple[Any, ...]:
        """The values of one row."""
        tags = encode_body(memory.tags) if memory.tags else "[]"  # type: ignore[arg-type]
        plain = (row, memory.id, change, change, tags, *self.fields(memory))
        if not self.packed:
            return plain
        found = [(getattr(memory, name), empty) for name, empty in self.packed]
        return (*plain, *(encode_body(value) if value else empty for value, empty in found))


def form_of(events: Sequence[Event]) -> Form | None:
    """How to write what these events create; None if one says more than a `remember` of today does, or has no text."""
    if len(events) == 1:
        return _form(tuple(events[0].body))
    bodies = [event.body for event in events]
    keys = set[str]().union(*bodies)
    return _form(tuple(sorted(keys))) if all("text" in body for body in bodies) else None


@lru_cache(maxsize=64)
def _form(keys: tuple[str, ...]) -> Form | None:
    if not _FILLED.keys() >= set(keys) or "text" not in keys:
        return None
    filled = [name for key, names in _FILLED.items() if key in keys for name in names]
    empty = {"evidence": "[]", "metadata": "{}"}
    fields = (*_ALWAYS, *(name for name in filled if name not in empty))
    packed = tuple((name, empty[name]) for name in filled if name in empty)
    columns = ("row", "id", "changed", "born", "tags", *fields, *(name for name, _ in packed))
    return Form(
        f"INSERT INTO memories(status, own_status, {', '.join(columns).replace('.', '_')})"
        f" VALUES('active', 'active', {', '.join('?' * len(columns))})",
        attrgetter(*fields),
        packed,
        not TIMES.isdisjoint(fields),
    )
