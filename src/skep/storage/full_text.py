"""Texts that were just written in bulk, cut up already, for whoever builds the index in the same process.

Writing cuts every text into chunks to find its terms, and so does building the index; looking up each word once more
took a quarter of the time that takes. What is handed over belongs to one version of a row (its number and that of its
last change), so whatever somebody wrote since is not mistaken for it. Nothing depends on it being there.

The words and tags of rows, to search by.

Rows are put there many at a time, which costs a fraction of what it costs one by one. The newest rows, `TAIL` at most,
are not there yet: whoever searches looks at them one by one. Which they are follows from the full-text index itself,
namely all after the last row in it, so that a crash or another process changes nothing.

Words straight from the file: how rare each is, and which rows hold it. Needs no numpy and no index.

A fresh process that answers one question (a hook) cannot afford to load the index. Rare words are enough to find
what a prompt is about; the common ones only cost time.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from skep.storage.event_log import Newest
from skep.storage.memory_rows import WORDED, searched_text
from skep.storage.sqlite_connection import Connection
from skep.storage.sqlite_store import SqliteStore
from skep.text.terms import Numbering, joined_terms, numbering, terms

FEW = 256
"""Fewer rows at once are not worth it: they are not made into a segment of their own."""
ROWS = 1 << 17
"""Rows that are kept for the index at a time: about 100 bytes each."""
CHUNKS = 1 << 17
"""Distinct chunks that are kept at a time."""
SIGNS = 1 << 27
"""Signs of all texts that are kept at a time: of chunks as long as their texts, each is kept whole."""


class Batch(NamedTuple):
    """The texts of rows that were written together; rows and changes count up by one."""

    row: int
    change: int
    sizes: array[int]
    """Per row, how many chunks it has."""
    chunks: array[int]
    """The chunks of all rows, as numbers."""
    numbers: Numbering

    @property
    def end(self) -> int:
        """The change after the last of these."""
        return self.change + len(self.sizes)


class Piece(NamedTuple):
    """Some of the rows of a batch, one after the other."""

    batch: Batch
    start: int
    stop: int


class Handover:
    """What was written and not yet indexed. Every method is called with the lock of the connection held."""

    def __init__(self) -> None:
        self.numbers = numbering()
        self._batches: list[Batch] = []
        self._rows = 0
        self.signs = 0
        """How long all texts are that were cut up."""

    def cut(self, texts: Sequence[str], row: int, change: int) -> tuple[list[str], Batch | None]:
        """The terms of each text, joined by blanks; and their chunks, if there is room for them."""
        more = sum(map(len, texts))
        if not self._batches and (len(self.numbers) > CHUNKS or self.signs + more > SIGNS):
            self.numbers, self.signs = numbering(), 0  # of writes that were taken back
        signs = self.signs + more
        if self._rows + len(texts) > ROWS or len(self.numbers) > CHUNKS or signs > SIGNS:
            return list(map(joined_terms, texts)), None
        self.signs = signs
        terms, sizes, numbers = self.numbers.cut(texts)
        return terms, Batch(row, change, sizes, numbers, self.numbers)

    def keep(self, batch: Batch) -> None:
        """Take note of what is now on disk."""
        if batch.numbers is self.numbers:  # else somebody has taken what there was meanwhile
            self._batches.append(batch)
            self._rows += len(batch.sizes)

    def take(self) -> Handover | None:
        """All there is; none of it is kept here."""
        if not self._batches:
            return None
        taken = Handover()
        taken.numbers, taken._batches, taken.signs = self.numbers, self._batches, self.signs
        self.numbers, self._batches, self._rows, self.signs = numbering(), [], 0, 0
        return taken

    def pieces(self, rows: Sequence[int], changes: Sequence[int]) -> list[Piece] | None:
        """Where the chunks of these very versions of rows are; None unless all are here."""
        found: list[Piece] = []
        at = 0
        while at < len(rows):
            place = bisect_right(self._batches, changes[at], key=lambda batch: batch.change) - 1
            if place < 0 or changes[at] >= self._batches[place].end:
                return None
            batch = self._batches[place]
            start = changes[at] - batch.change
            count = min(len(rows) - at, len(batch.sizes) - start)
            if not _counts_up(changes[at : at + count], changes[at]) or not _counts_up(
                rows[at : at + count], batch.row + start
            ):
                return None
            found.append(Piece(batch, start, start + count))
            at += count
        return found


def _counts_up(numbers: Iterable[int], first: int) -> bool:
    """Whether these are all the numbers from the first on."""
    return all(map(int.__eq__, numbers, range(first, first + (1 << 62))))


def handed_over(source: object) -> Handover | None:
    """What a store, or anything else that an index is derived from, has to hand over."""
    give = getattr(source, "hand_over", None)
    return None if give is None else give()


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
