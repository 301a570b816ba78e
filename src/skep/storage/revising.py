"""Revisions that come after all else that speaks of a memory: the columns they change, and nothing else.

The law is that this gives what the fold of the whole history gives. Where more may hang on it (something was undone,
the memory was replaced, or where its long history ended is kept), the fold decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from skep.model import Event, Memory
from skep.storage.connection import Connection
from skep.storage.fold import unit
from skep.storage.rows import SHOWN, USUAL, encode_body, memory_of, searched_text, together
from skep.storage.subjects import order

_NAMES = (*SHOWN, "p.row", "m.row", *(f"m.{name}" for name in USUAL))
_PLACES = {name.removeprefix("m."): place for place, name in enumerate(_NAMES) if name.startswith("m.")}
_FOUND = (
    "SELECT m.own_status, m.forgotten, (SELECT kept FROM folds WHERE subject = m.id),"
    " EXISTS (SELECT 1 FROM events WHERE kind = 'undo'),"
    " (SELECT fingerprint FROM spaces WHERE state = 'active'),"
    f" {', '.join(_NAMES)} FROM memories m LEFT JOIN uses u ON u.memory = m.id LEFT JOIN pending p ON p.row = m.row"
    " AND p.space = (SELECT space FROM spaces WHERE state = 'active') WHERE m.id = ?"
)
_EXTRA = 5


def _packed(empty: str) -> Callable[[Any], str]:
    return lambda value: encode_body(value) if value else empty


def _same(value: Any) -> Any:
    return value


_COLUMNS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("text", "title", "domain", "agent", "source", "polarity", "pinned"), _same),
    **dict.fromkeys(("valid_from", "valid_to", "expires_at"), _same),
    **dict.fromkeys(("confidence", "importance"), unit),
    "tags": _packed("[]"),
    "metadata": _packed("{}"),
}
"""Per key of a revision that has a column of its own, what stands there."""


class Revised(NamedTuple):
    """A memory after its revisions."""

    row: int
    columns: dict[str, Any]
    """Those that are others now."""
    before: str
    after: str
    """What is searched of it."""
    tags: str
    """As its column had them before."""
    memory: Memory
    """As reading it back would give it, if `before` and `after` are the same."""


def revised_row(connection: Connection, memory_id: str, events: Sequence[Event]) -> Revised | None:
    """What revisions minted here make of a memory; None if that is for the fold to say."""
    changed = _changes(events)
    found = connection.rows(_FOUND, (memory_id,)) if changed is not None else ()
    if changed is None or not found:
        return None
    own_status, forgotten, kept, undone, fingerprint = found[0][:_EXTRA]
    row = list(found[0][_EXTRA:])
    if forgotten or undone or kept is not None:
        return None
    if row[_PLACES["replaced_by"]] is not None or row[_PLACES["status"]] != own_status:
        return None
    before, tags = searched_text(row[_PLACES["title"]], row[_PLACES["text"]]), row[_PLACES["tags"]]
    columns: dict[str, Any] = {}
    for name, value in changed.items():
        place = _PLACES[name]
        if row[place] != value:
            columns[name] = row[place] = value
    if "pinned" in columns:  # what is derived from it may hang on that
        return None
    after = searched_text(row[_PLACES["title"]], row[_PLACES["text"]])
    *shown, pending, number = row[: -len(USUAL)]
    memory = memory_of((*shown, together(row[-len(USUAL) :]), pending, number), fingerprint)
    return Revised(number, columns, before, after, tags, memory)


def _changes(events: Iterable[Event]) -> dict[str, Any] | None:
    """What stands in the columns that revisions speak of; None if they say more than those of today do."""
    columns: dict[str, Any] = {}
    for event in sorted(events, key=order):
        if event.kind != "revise":
            return None
        changes = dict(event.body.get("changes", {}))
        if "ttl" in changes:
            columns["expires_at"] = event.at + changes.pop("ttl")
        scope = changes.pop("scope", None)
        if scope is not None:
            columns |= {f"scope_{part}": scope.get(part) for part in ("user", "project", "session")}
        for key, value in changes.items():
            stored = _COLUMNS.get(key)
            if stored is None:
                return None
            columns[key] = stored(value)
    return columns
