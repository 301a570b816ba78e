"""Putting a copy in the place of a bank, and saving what can be read of a damaged one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from skep.errors import CorruptBankError, InvalidInputError, NotFoundError
from skep.model import Event
from skep.storage.connection import Connection
from skep.storage.log import COLUMNS
from skep.storage.opening import connect, copy_file, prepare
from skep.storage.rows import event_of
from skep.storage.sqlite import SqliteStore

WAIT_SECONDS = 5.0
STRETCH = 500
"""Events that are read together before they are tried one by one."""


def put_back(copy: Path, bank: Path, now: float) -> Path | None:
    """Put a copy that `backup` made in the place of a bank; where what stood there is kept now.

    A write-ahead log that belongs to the old file would be played onto the new one, so it goes with the old one. The
    new bank knows of the old file, so that `forget` reaches it.
    """
    if copy.resolve() == bank.resolve():
        raise InvalidInputError(f"{copy} is the bank itself; give the path of a copy", field="path")
    if not copy.is_file():
        raise NotFoundError(f"there is no file {copy}; give the path of a copy that `skep backup` made")
    source = connect(prepare(str(copy), create=False), busy_seconds=WAIT_SECONDS, read_only=True)
    try:
        problems = [row[0] for row in source.rows("PRAGMA quick_check(3)") if row[0] != "ok"]
        if problems:
            raise CorruptBankError(f"{copy} is damaged too ({'; '.join(problems)}); try an older copy")
        bank.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = bank.with_name(bank.name + ".restoring")
        copy_file(source, beside)
        aside = _set_aside(bank)
        os.replace(beside, bank)
    finally:
        source.close()
    if aside is not None:
        _make_known(bank, aside, now)
    return aside


def _set_aside(bank: Path) -> Path | None:
    """Move a bank and all that belongs to it out of the way."""
    shutil.rmtree(f"{bank}.index", ignore_errors=True)
    if not bank.exists():
        for end in ("-wal", "-shm"):
            Path(f"{bank}{end}").unlink(missing_ok=True)
        return None
    number = 1
    while (aside := bank.with_name(f"{bank.name}.replaced-{number}")).exists():
        number += 1
    for end in ("-wal", "-shm", ""):
        if os.path.exists(f"{bank}{end}"):
            os.replace(f"{bank}{end}", f"{aside}{end}")
    return aside


def _make_known(bank: Path, aside: Path, now: float) -> None:
    connection = Connection(str(bank), busy_seconds=WAIT_SECONDS)
    try:
        with connection.transaction():
            connection.execute(
                "INSERT OR REPLACE INTO backups(path, made_at) VALUES(?, ?)", (str(aside.resolve()), now)
            )
    finally:
        connection.close()


def readable(store: SqliteStore) -> Iterator[Event | None]:
    """Every event that can still be read, in order of arrival; None for each one that cannot."""
    last = store.connection.one("SELECT max(seq) FROM events") or 0
    for first in range(1, last + 1, STRETCH):
        final = min(first + STRETCH - 1, last)
        try:
            yield from _events(store, first, final)
        except CorruptBankError:
            for seq in range(first, final + 1):
                try:
                    yield from _events(store, seq, seq)
                except CorruptBankError:
                    yield None


def _events(store: SqliteStore, first: int, last: int) -> list[Event]:
    sql = f"SELECT {COLUMNS} FROM events WHERE seq BETWEEN ? AND ? ORDER BY seq"
    return [event_of(row) for row in store.connection.rows(sql, (first, last))]
