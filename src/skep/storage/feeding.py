"""What the derived index is fed: the rows that changed, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from skep.errors import CorruptBankError
from skep.storage.base import IndexRow
from skep.storage.connection import Connection

_INDEX_ROWS = """
SELECT m.row, m.changed, m.title, m.text, v.vector, m.kind,
       CASE WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END,
       m.domain, m.agent, m.scope_user, m.scope_project, m.scope_session, m.tags, m.created_at, m.valid_from,
       m.valid_to, m.expires_at, m.confidence, m.last_evidence_at, m.importance, m.forgotten, m.id
FROM memories m
LEFT JOIN halves v ON v.key = (:space << 40) | m.row
LEFT JOIN pending p ON p.row = m.row AND p.space = :space
WHERE m.changed > :after AND m.changed <= :head ORDER BY m.changed LIMIT :batch
"""
BATCH = 1000
WHOLE = 1 << 15
"""Reading so many rows fills the cache with pages that nobody will ask for again."""
_tags = msgspec.json.Decoder(tuple[str, ...])


def index_rows(connection: Connection, space: int, seq: int, head: int) -> Iterator[IndexRow]:
    """The rows that changed after one change and up to another, with their vectors in a space."""
    read = 0
    while seq < head:
        rows = connection.rows(_INDEX_ROWS, {"space": space, "after": seq, "head": head, "batch": BATCH})
        for (
            row, changed, title, text, vector, kind, status, domain, agent, user, project, session, tags,
            created, start, end, expires, confidence, evidence_at, importance, forgotten, memory_id,
        ) in rows:  # fmt: skip
            yield IndexRow(
                row, changed, f"{title}\n{text}" if title else text, vector, kind, status, domain, agent, user,
                project, session, _decode_tags(tags), created, start, end, expires, confidence, evidence_at,
                importance, forgotten == 1, memory_id,
            )  # fmt: skip
        read += len(rows)
        seq = rows[-1][1] if len(rows) == BATCH else head
    if read >= WHOLE:
        connection.rows("PRAGMA shrink_memory")


@lru_cache(maxsize=1024)
def _decode_tags(tags: str) -> tuple[str, ...]:
    try:
        return () if tags == "[]" else _tags.decode(tags)
    except msgspec.MsgspecError as error:
        raise CorruptBankError(
            f"the tags of a memory are damaged ({error}); `skep doctor --mend` writes them anew from the log"
        ) from error
