"""Words straight from the file: how rare each is, and which rows hold it. Needs no numpy and no index.

A fresh process that answers one question (a hook) cannot afford to load the index. Rare words are enough to find
what a prompt is about; the common ones only cost time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from skep.storage.sqlite import SqliteStore
from skep.storage.wording import waiting

RARE_ROWS = 2000
"""Rows fetched for one word at most; a word in more rows than this says little."""
RARE_WORDS = 8


def rarities(store: SqliteStore, terms: Sequence[str]) -> dict[str, float]:
    """The weight of each term: ln(1 + (N - df + 0.5) / (df + 0.5)), as in BM25."""
    connection = store.connection
    total = connection.one("SELECT max(row) FROM memories") or 0
    connection.rows(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab('main', 'words', 'row')"
    )
    newest = waiting(connection)
    found: dict[str, float] = {}
    for term in dict.fromkeys(terms):
        rows = connection.one("SELECT doc FROM temp.vocabulary WHERE term = ?", (term,)) or 0
        rows = min(total, rows + sum(term in its for _row, its in newest))
        found[term] = math.log(1 + (total - rows + 0.5) / (rows + 0.5))
    return found


def rows_by_rare_words(store: SqliteStore, weights: dict[str, float], limit: int) -> list[int]:
    """Rows that hold the rarest of these words, most weight first, newest first among equals."""
    rare = sorted(weights, key=lambda term: -weights[term])[:RARE_WORDS]
    held: dict[int, float] = {}
    newest = waiting(store.connection)
    for term in rare:
        quoted = '"' + term.replace('"', '""') + '"'
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
        rows = {row for (row,) in store.connection.rows(sql, (quoted, RARE_ROWS))}
        for row in rows.union(row for row, its in newest if term in its):
            held[row] = held.get(row, 0.0) + weights[term]
    return sorted(held, key=lambda row: (-held[row], -row))[:limit]
