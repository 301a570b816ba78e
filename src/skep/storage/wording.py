"""The words and tags of rows, to search by.

Rows are put there many at a time, which costs a fraction of what it costs one by one. The newest rows, `TAIL` at most,
are not there yet: whoever searches looks at them one by one. Which they are follows from the full-text index itself,
namely all after the last row in it, so that a crash or another process changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from skep.storage.connection import Connection
from skep.storage.handover import FEW, Batch, Handover
from skep.storage.newest import Newest
from skep.storage.rows import WORDED, searched_text
from skep.words import joined_terms, terms

TAIL = 64
"""From so many rows on, what waits is put into the index."""

_TAGGED = "INSERT OR IGNORE INTO tags(tag, row) SELECT ?1, value FROM json_each(?2)"
"""Many rows have few tags. Some may be there already, where the full-text index was lost and is made again."""
_tags = msgspec.json.Decoder(tuple[str, ...]).decode

Worded = tuple[int, str, Sequence[str]]
"""A row, what is searched of it, and its tags."""


class Wording:
    """The full-text index and the tags. Every method is called inside a transaction."""

    def __init__(self, connection: Connection, newest: Newest, handover: Handover) -> None:
        self._c = connection
        self._newest = newest
        self._handover = handover

    def created(self, rows: Sequence[Worded], change: int | None = None) -> Batch | None:
        """Take note of new rows, the newest there are; what may be handed over of them to the index.

        Args:
            rows: The rows.
            change: The number of the first one's change, where rows and changes count up by one.
        """
        newest = self._newest
        if newest.row - newest.worded < TAIL:
            return None
        before = self._stored("row > ? AND row < ?", (newest.worded, rows[0][0]))
        newest.worded = newest.row
        if len(rows) < FEW:
            return self._add([*before, *rows])
        self._add(before)
        return self._add(rows, change)

    def retexted(self, row: int, before: str, after: str) -> None:
        """The text of a row is another now."""
        if row <= self._newest.worded:
            self._take_out(row, before)
            self._c.run("INSERT INTO words(rowid, terms) VALUES(?, ?)", (row, joined_terms(after)))

    def retagged(self, row: int, before: str, tags: Iterable[str]) -> None:
        """The tags of a row, which were `before` as its column has them, are others now."""
        if row <= self._newest.worded:
            self._untag(row, before)
            each = [(tag, row) for tag in dict.fromkeys(tags)]
            self._c.db.executemany("INSERT INTO tags(tag, row) VALUES(?,?)", each)

    def erase(self, row: int, text: str, tags: str) -> None:
        """Nothing of a row may be left: of its text, and of its tags as its column has them."""
        if row <= self._newest.worded:
            self._take_out(row, text)
            self._untag(row, tags)
            self._newest.worded = self._c.one(f"SELECT {WORDED}")

    def rebuild(self) -> None:
        """Make all of it anew."""
        self._c.run("INSERT INTO words(words) VALUES('delete-all')")
        self._c.run("DELETE FROM tags")
        self._add(self._stored("row > ?", (0,)))
        self._newest.worded = self._c.one(f"SELECT {WORDED}")

    def missing(self) -> int:
        """How many rows should be in the full-text index and are not."""
        return self._c.one(
            f"SELECT count(*) FROM memories m WHERE forgotten = 0 AND row <= {WORDED} AND NOT EXISTS"
            " (SELECT 1 FROM words_docsize d WHERE d.id = m.row)"
        )

    def _stored(self, condition: str, values: Sequence[int]) -> list[Worded]:
        sql = f"SELECT row, title, text, tags FROM memories WHERE {condition} AND forgotten = 0 ORDER BY row"
        return [
            (row, searched_text(title, text), _tags(tags))
            for row, title, text, tags in self._c.rows(sql, values)
        ]

    def _add(self, rows: Sequence[Worded], change: int | None = None) -> Batch | None:
        db = self._c.db
        texts = [text for _, text, _ in rows]
        if change is None:
            terms, batch = list(map(joined_terms, texts)), None
        else:
            terms, batch = self._handover.cut(texts, rows[0][0], change)
        db.executemany(
            "INSERT INTO words(rowid, terms) VALUES(?,?)",
            zip([row for row, _, _ in rows], terms, strict=True),
        )
        tagged: dict[str, list[int]] = {}
        for row, _, its in rows:
            for tag in its:
                tagged.setdefault(tag, []).append(row)
        if tagged:
            db.executemany(_TAGGED, [(tag, str(tagged[tag])) for tag in sorted(tagged)])
        return batch

    def _untag(self, row: int, tags: str) -> None:
        """Take the tags of a row out, by their names: looking for the row would mean reading every tag there is."""
        self._c.db.executemany(
            "DELETE FROM tags WHERE tag = ? AND row = ?", [(tag, row) for tag in _tags(tags)]
        )

    def _take_out(self, row: int, text: str) -> None:
        self._c.run(
            "INSERT INTO words(words, rowid, terms) VALUES('delete', ?, ?)", (row, joined_terms(text))
        )


def waiting(connection: Connection) -> list[tuple[int, frozenset[str]]]:
    """The rows that are not in the full-text index yet, with their terms, newest first.

    Ask for them before the index is asked: a row that goes there in between is then found twice, and not missed.
    """
    sql: str = (
        f"SELECT row, title, text FROM memories WHERE row > {WORDED} AND forgotten = 0 ORDER BY row DESC"
    )
    found: list[tuple[Any, ...]] = connection.rows(sql)
    return [(row, frozenset(terms(searched_text(title, text)))) for row, title, text in found]
