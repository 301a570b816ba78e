"""Many rows by one statement, which takes a third less time than a statement for each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from skep.storage.connection import Connection

TOGETHER = 25
"""Rows that one statement inserts; with more nothing is gained."""


def insert_each(connection: Connection, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows into a table. The caller holds the lock.

    Not for full-text tables: at every statement with several rows they write out what they hold back until the commit.

    Args:
        connection: To the bank.
        sql: The statement for one row; it ends with its values.
        rows: The bindings of each.
    """
    whole = len(rows) - len(rows) % TOGETHER
    if whole:
        starts = range(0, whole, TOGETHER)
        many = [tuple(chain.from_iterable(rows[start : start + TOGETHER])) for start in starts]
        connection.run_each(_together(sql), many)
    if whole < len(rows):
        connection.run_each(sql, rows[whole:] if whole else rows)


@lru_cache(maxsize=64)
def _together(sql: str) -> str:
    """The statement for one row, for many."""
    into, values, one = sql.rpartition(" VALUES")
    return f"{into}{values}{','.join([one] * TOGETHER)}"
