"""The full-text index and the table of tags, and a search by rare words straight from the file.

`memory_tables` keeps both tables true, a row at a time, inside the transaction that changes the row. The search by rare
words serves hooks: a fresh process that answers one question cannot afford to load the derived index. It needs neither
numpy nor that index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.storage.memory_rows import decode_list, searched_text
from skep.storage.sqlite_connection import Connection
from skep.text.terms import joined_terms, terms

if TYPE_CHECKING:
    from skep.storage.sqlite_store import SqliteStore

RARE_ROWS = 2000
"""Rows fetched for one word at most; a word in more rows than this says little."""
RARE_WORDS = 8


class FullText:
    """Writes the full-text index and the tags. Every method is called inside a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def add(self, rows: Sequence[tuple[int, str, Iterable[str]]]) -> None:
        """Index new rows: the number of each, its searched text and its tags."""
        self._c.execute_many(
            "INSERT INTO words(rowid, terms) VALUES(?,?)",
            [(row, joined_terms(text)) for row, text, _ in rows],
        )
        tags = [(tag, row) for row, _, its in rows for tag in dict.fromkeys(its)]
        if tags:
            self._c.execute_many("INSERT OR IGNORE INTO tags(tag, row) VALUES(?,?)", tags)

    def retext(self, row: int, before: str, after: str) -> None:
        """Index another text of a row."""
        self._remove_words(row, before)
        self._c.execute("INSERT INTO words(rowid, terms) VALUES(?, ?)", (row, joined_terms(after)))

    def retag(self, row: int, before: str, tags: Iterable[str]) -> None:
        """Replace the tags of a row; `before` is the JSON in its column."""
        self._remove_tags(row, before)
        self._c.execute_many(
            "INSERT INTO tags(tag, row) VALUES(?,?)", [(t, row) for t in dict.fromkeys(tags)]
        )

    def erase(self, row: int, text: str, tags: str) -> None:
        """Remove every trace of a row: of its text, and of its tags as its column has them."""
        self._remove_words(row, text)
        self._remove_tags(row, tags)

    def rebuild(self) -> None:
        """Make all of it anew from the memories."""
        self._c.execute("INSERT INTO words(words) VALUES('delete-all')")
        self._c.execute("DELETE FROM tags")
        self.catch_up()

    def catch_up(self) -> None:
        """Index the newest rows, which banks of schema 3 to 7 kept back."""
        self.add(_unindexed(self._c))

    def missing(self) -> int:
        """The number of rows that should be in the full-text index and are not."""
        return self._c.one(
            "SELECT count(*) FROM memories m WHERE forgotten = 0 AND NOT EXISTS"
            " (SELECT 1 FROM words_docsize d WHERE d.id = m.row)"
        )

    def _remove_tags(self, row: int, tags: str) -> None:
        """Remove the tags of a row by their names: looking for the row would mean reading every tag there is."""
        try:
            known = decode_list(tags)
        except msgspec.MsgspecError:  # the column is damaged, and is about to be mended
            self._c.execute("DELETE FROM tags WHERE row = ?", (row,))
        else:
            self._c.execute_many("DELETE FROM tags WHERE tag = ? AND row = ?", [(t, row) for t in known])

    def _remove_words(self, row: int, text: str) -> None:
        self._c.execute(
            "INSERT INTO words(words, rowid, terms) VALUES('delete', ?, ?)", (row, joined_terms(text))
        )


def _unindexed(connection: Connection) -> list[tuple[int, str, tuple[str, ...]]]:
    """The rows after the last one in the full-text index, with their searched text and tags."""
    rows = connection.rows(
        "SELECT row, title, text, tags FROM memories WHERE forgotten = 0"
        " AND row > (SELECT coalesce(max(id), 0) FROM words_docsize) ORDER BY row"
    )
    return [(row, searched_text(title, text), decode_list(tags)) for row, title, text, tags in rows]


def waiting(connection: Connection) -> list[tuple[int, frozenset[str]]]:
    """Rows with their terms that an older bank, read as it is, has not indexed yet; none in a bank of today."""
    if not connection.older:
        return []
    return [(row, frozenset(terms(text))) for row, text, _tags in reversed(_unindexed(connection))]


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
    sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
    for term in rare:
        rows: set[Any] = {row for (row,) in store.connection.rows(sql, (quoted(term), RARE_ROWS))}
        for row in rows.union(row for row, its in newest if term in its):
            held[row] = held.get(row, 0.0) + weights[term]
    return sorted(held, key=lambda row: (-held[row], -row))[:limit]


def quoted(term: str) -> str:
    """A term as a query of the full-text index."""
    return '"' + term.replace('"', '""') + '"'
