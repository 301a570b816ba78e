"""What the derived index is fed: the rows that changed, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter

import msgspec

from skep.errors import CorruptBankError
from skep.storage.base import IndexRow
from skep.storage.connection import Connection

_ROWS = """
SELECT m.row, m.changed, m.title, m.text, v.vector, m.kind,
       CASE WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END,
       m.domain, m.agent, m.scope_user, m.scope_project, m.scope_session, m.tags, m.created_at, m.valid_from,
       m.valid_to, m.expires_at, m.confidence, m.last_evidence_at, m.importance, m.forgotten, m.id, {is_new}
FROM {which} m
LEFT JOIN halves v ON v.key = (:space << 40) | m.row
LEFT JOIN pending p ON p.row = m.row AND p.space = :space
WHERE m.changed > :after AND m.changed <= :head {more} LIMIT :batch
"""
_NEW = _ROWS.format(which="newborn", is_new=1, more="AND m.row > :row ORDER BY m.row")
_ALTERED = _ROWS.format(which="altered", is_new=0, more="ORDER BY m.changed")
_BOTH = f"SELECT * FROM ({_NEW}) UNION ALL SELECT * FROM ({_ALTERED})"
"""In one statement, which costs a little more for each row."""
BATCH = 1000
WHOLE = 1 << 15
"""Reading so many rows fills the cache with pages that nobody will ask for again."""
_tags = msgspec.json.Decoder(tuple[str, ...])
_change = itemgetter(1)


def index_rows(connection: Connection, space: int, seq: int, head: int, newest: int) -> Iterator[IndexRow]:
    """The rows that changed after one change and up to another, with their vectors in a space.

    Rows up to `newest` are known not to be new.
    """
    read = 0
    while seq < head:
        bound = {"space": space, "row": newest, "after": seq, "head": head, "batch": BATCH}
        if head - seq < BATCH:
            rows = connection.rows(_BOTH, bound)
        else:  # of each kind as many as a batch has, each in the order of its changes
            rows = [*connection.rows(_NEW, bound), *connection.rows(_ALTERED, bound)]
        new = sum(row[-1] for row in rows)
        seq = head
        if new == BATCH:
            seq = rows[new - 1][1]
        if len(rows) - new == BATCH:
            seq = min(seq, rows[-1][1])
        if new < len(rows):  # the rest of what is new comes again, after what was altered before it
            rows = sorted((row for row in rows if row[1] <= seq), key=_change)
        for (
            row, changed, title, text, vector, kind, status, domain, agent, user, project, session, tags,
            created, start, end, expires, confidence, evidence_at, importance, forgotten, memory_id, is_new,
        ) in rows:  # fmt: skip
            if is_new:
                newest = row
            yield IndexRow(
                row, changed, f"{title}\n{text}" if title else text, vector, kind, status, domain, agent, user,
                project, session, _decode_tags(tags), created, start, end, expires, confidence, evidence_at,
                importance, forgotten == 1, memory_id,
            )  # fmt: skip
        read += len(rows)
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
