"""The memories of one scope, where they are few: a bank may hold those of thousands of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skep.model import ANY, Scope
from skep.storage.connection import Connection

FEW = 200
"""With more of them, whoever wants the newest finds enough by going back from the end."""
_PARTS = ("user", "project", "session")


def few_of_scope(connection: Connection, scope: Scope) -> list[int] | None:
    """The rows of everything of exactly a scope, what was forgotten included; None if that is much, or all of it
    would have to be read to know.
    """
    asked: dict[str, Any] = {part: getattr(scope, part) for part in _PARTS}
    if asked["user"] == ANY or not any(value not in (None, ANY) for value in asked.values()):
        return None  # the index begins with the user, and has nothing of what is shared
    parts = [
        f"scope_{part} IS NULL" if value is None else f"scope_{part} = :{part}"
        for part, value in asked.items()
        if value != ANY
    ]
    rows = connection.rows(
        f"SELECT row FROM memories INDEXED BY memories_scope WHERE {' AND '.join(parts)} LIMIT {FEW + 1}",
        {part: value for part, value in asked.items() if value not in (None, ANY)},
    )
    return [row for (row,) in rows] if len(rows) <= FEW else None


def ids_of(connection: Connection, rows: Sequence[int]) -> list[str]:
    """The ids of some rows."""
    sql = "SELECT id FROM memories WHERE row IN (SELECT value FROM json_each(?))"
    return [memory_id for (memory_id,) in connection.rows(sql, (msgspec.json.encode(rows).decode(),))]
