"""Rows that are inserted many by a statement: each once, in their order, whatever their number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import SkepError
from skep.storage.sqlite_connection import MEMORY, TOGETHER, Connection, together

ONE = "INSERT INTO things(kind, number, name) VALUES('thing', ?, ?)"
COUNTS = (0, 1, 2, TOGETHER - 1, TOGETHER, TOGETHER + 1, 3 * TOGETHER, 4 * TOGETHER + 7)


def things(count: int) -> list[tuple[int, str | None]]:
    return [(number, f"name {number}" if number % 3 else None) for number in range(count)]


@pytest.fixture
def connection() -> Connection:
    made = Connection(MEMORY, busy_seconds=0.0)
    made.run("CREATE TABLE things(number INTEGER PRIMARY KEY, kind TEXT, name TEXT UNIQUE)")
    return made


@pytest.mark.parametrize("count", COUNTS)
def test_every_row_is_inserted_once_and_as_it_is(connection: Connection, count: int) -> None:
    connection.insert_each(ONE, things(count))

    assert connection.rows("SELECT number, name FROM things ORDER BY number") == things(count)
    assert connection.rows("SELECT DISTINCT kind FROM things") == ([("thing",)] if count else [])


@pytest.mark.parametrize("count", COUNTS)
def test_rows_share_statements(connection: Connection, count: int) -> None:
    ran: list[tuple[str, Any]] = []
    connection.trace = lambda sql, bindings: ran.append((sql, bindings))
    connection.insert_each(ONE, things(count))
    connection.trace = None

    assert len(ran) == count // TOGETHER + count % TOGETHER
    given = [value for row in things(count) for value in row]
    assert [value for _, bindings in ran for value in bindings] == given


def test_there_are_two_forms_of_a_statement_at_most() -> None:
    parts = list(together(ONE, things(2 * TOGETHER + 3)))

    assert [len(some) for _, some in parts] == [2, 3]
    assert [sql.count("?") for sql, _ in parts] == [2 * TOGETHER, 2]


def test_a_row_that_is_refused_leaves_nothing_of_a_transaction(connection: Connection) -> None:
    rows = things(3 * TOGETHER)
    rows[-2] = rows[0]

    with pytest.raises(SkepError), connection.transaction():
        connection.insert_each(ONE, rows)

    assert connection.one("SELECT count(*) FROM things") == 0


@pytest.mark.parametrize("count", [TOGETHER - 1, 2 * TOGETHER, 2 * TOGETHER + 1])
def test_a_bulk_load_says_the_same_as_single_writes(tmp_path: Path, count: int) -> None:
    texts = [f"note {number} on the harbour office" for number in range(count)]
    read: list[list[tuple[Any, ...]]] = []
    for how in ("many", "single"):
        with Bank.open(tmp_path / f"{how}.skep", embedder=HashingEmbedder(32), now=lambda: 1.75e9) as bank:
            if how == "many":
                given = {"kind": "fact", "tags": ("a",)}
                bank.remember_many({**given, "text": text, "source": text[:6]} for text in texts)
            else:
                for text in texts:
                    bank.remember(text, tags=("a",), source=text[:6], on_conflict="ignore")
            store = bank.engine.store
            read.append(
                store.connection.rows(
                    "SELECT m.row, m.changed, m.text, m.tags, m.source, m.status, e.counter, e.kind, e.body, v.vector"
                    " FROM memories m JOIN events e ON e.actor || '-' || e.counter = m.id"
                    " JOIN halves v ON v.key & 0xffffffffff = m.row ORDER BY m.row"
                )
            )

    assert len(read[0]) == count
    assert read[0] == read[1]
