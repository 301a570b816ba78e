"""Settings of which nothing was said before, written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from skep.model import Event
from skep.storage.connection import Connection
from skep.storage.subjects import SETTING

SET = "INSERT OR REPLACE INTO settings(key, value, seq) VALUES(?,?,?)"


def set_first(
    connection: Connection, settings: Sequence[str], events: Mapping[str, Sequence[Event]], seq: int
) -> set[str]:
    """Write those settings of a batch of which nothing was said before; which they are."""
    sql = (
        "SELECT subject FROM subjects WHERE subject IN (SELECT value FROM json_each(?))"
        " GROUP BY subject HAVING count(*) = 1"
    )
    found = connection.rows(sql, (msgspec.json.encode(settings).decode(),))
    values = {subject: events[subject][0].body.get("value") for (subject,) in found}
    first = {subject: value for subject, value in values.items() if value is not None}
    connection.db.executemany(
        SET,
        [
            (subject.removeprefix(SETTING), msgspec.json.encode(value).decode(), seq)
            for subject, value in first.items()
        ],
    )
    return set(first)
