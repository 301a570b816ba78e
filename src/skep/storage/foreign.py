"""Read other programs' SQLite files, and nothing else: they are never written to, not even by a lock file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from skep.errors import InvalidInputError

MAGIC = b"SQLite format 3\0"


def is_sqlite(path: Path) -> bool:
    """Whether a file is a SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class ForeignFile:
    """One database of another program, open for reading."""

    def __init__(self, path: Path) -> None:
        log = path.with_name(path.name + "-wal")
        busy = log.exists() and log.stat().st_size > 0
        mode = "mode=ro" if busy else "immutable=1"
        try:
            self._db: Any = apsw.Connection(
                f"file:{quote(str(path.resolve()))}?{mode}",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
            self.tables = {str(name): self._columns(str(name)) for (name,) in self._names()}
        except apsw.Error as error:
            raise InvalidInputError(f"{path} is not a readable SQLite file: {error}") from error
        self._path = path

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """The rows of a table in the order in which they were written; columns it lacks are None."""
        present = [column for column in columns if column in self.tables.get(table, ())]
        if not present:
            return
        wanted = ", ".join(f'"{column}"' for column in present)
        absent = dict.fromkeys(columns)
        try:
            for row in self._db.execute(f'SELECT {wanted} FROM "{table}" ORDER BY rowid'):
                yield {**absent, **dict(zip(present, row, strict=True))}
        except apsw.Error as error:
            raise InvalidInputError(f"{self._path} is damaged: {error}") from error

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> ForeignFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _names(self) -> list[tuple[Any, ...]]:
        return list(self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))

    def _columns(self, table: str) -> tuple[str, ...]:
        quoted = table.replace('"', '""')
        return tuple(str(row[1]) for row in self._db.execute(f'PRAGMA table_info("{quoted}")'))
