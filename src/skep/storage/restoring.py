"""Putting a copy in the place of a bank."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from skep.errors import CorruptBankError, InvalidInputError, NotFoundError, StorageError
from skep.storage.connection import Connection
from skep.storage.opening import connect, copy_file, prepare
from skep.storage.runs import END, within
from skep.storage.sqlite import SqliteStore

WAIT_SECONDS = 5.0
FORGETTING = {"forget", "supersede", "merge"}
"""What `forget` writes into a copy."""


def put_back(copy: Path, bank: Path, now: float) -> Path | None:
    """Put a copy that `backup` made in the place of a bank; where what stood there is kept now.

    A write-ahead log that belongs to the old file would be played onto the new one, so it goes with the old one. The
    new bank knows of the old file, of the copies that were made of that, and of the copy it comes from, so that
    `forget` reaches them all.
    """
    bank = bank.resolve()  # where a link leads to, not the link, is what is replaced
    if copy.resolve() == bank:
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
        try:
            copy_file(source, beside)
            aside = _set_aside(bank)
            os.replace(beside, bank)
        finally:
            beside.unlink(missing_ok=True)
    finally:
        source.close()
    copies = {str(copy.resolve()): now}
    if aside is not None:
        copies |= _copies_of(aside) | {str(aside.resolve()): now}
    _make_known(bank, copies)
    return aside


def _set_aside(bank: Path) -> Path | None:
    """Keep a bank under another name, and take away what belongs to it alone.

    Its file stays in place until the new one takes it, so that there is a bank at every moment.
    """
    shutil.rmtree(f"{bank}.index", ignore_errors=True)
    if not bank.exists():
        for end in ("-wal", "-shm"):
            Path(f"{bank}{end}").unlink(missing_ok=True)
        return None
    number = 1
    while (aside := bank.with_name(f"{bank.name}.replaced-{number}")).exists():
        number += 1
    try:
        os.link(bank, aside)
    except OSError:  # a file system without such names
        shutil.copy2(bank, aside)
    for end in ("-wal", "-shm"):
        if os.path.exists(f"{bank}{end}"):
            os.replace(f"{bank}{end}", f"{aside}{end}")
    return aside


def _copies_of(aside: Path) -> dict[str, float]:
    """Where copies of a bank were made, and when; of a damaged one, what can be read of that."""
    try:
        connection = Connection(str(aside), busy_seconds=WAIT_SECONDS, read_only=True)
        try:
            return dict(connection.rows("SELECT path, made_at FROM backups"))  # type: ignore[arg-type]
        finally:
            connection.close()
    except StorageError:
        return {}


def _make_known(bank: Path, copies: dict[str, float]) -> None:
    connection = Connection(str(bank), busy_seconds=WAIT_SECONDS)
    try:
        with connection.transaction():
            for path, made_at in copies.items():
                connection.execute(
                    "INSERT OR REPLACE INTO backups(path, made_at) VALUES(?, ?)", (path, made_at)
                )
    finally:
        connection.close()


def lacking(copy: Path, store: SqliteStore) -> bool:
    """Whether a copy of a bank holds what the bank does not: it was written to as a bank of its own.

    What `forget` writes into a copy, and how often it was read, does not count.
    """
    connection = connect(prepare(str(copy), create=False), busy_seconds=WAIT_SECONDS, read_only=True)
    try:
        if connection.one("SELECT value FROM meta WHERE key = 'bank'") != store.bank_id:
            return True
        versions, scattered = store.log.versions(), store.log.scattered()
        for (actor,) in connection.rows("SELECT DISTINCT actor FROM runs"):
            beyond = connection.rows(
                within("e.counter, e.kind"),
                {"actor": actor, "low": versions.get(actor, 0) + 1, "high": END, "batch": -1},
            )
            here = set(scattered.get(actor, ()))  # what is here with a gap before it
            kinds = {kind for counter, kind in beyond if counter not in here}
            if kinds - {"use"} - (FORGETTING if "forget" in kinds else set()):
                return True
        return False
    finally:
        connection.close()


def forgotten_since(copy: Path, store: SqliteStore) -> list[str]:
    """What a bank has forgotten and a copy still holds. Whatever else was forgotten in the copy does not tell."""
    gone = [i for (i,) in store.connection.rows("SELECT id FROM memories WHERE forgotten = 1")]
    if not gone:
        return []
    connection = connect(prepare(str(copy), create=False), busy_seconds=WAIT_SECONDS, read_only=True)
    try:
        sql = "SELECT id FROM memories WHERE forgotten = 0 AND id IN (SELECT value FROM json_each(?))"
        return [i for (i,) in connection.rows(sql, (msgspec.json.encode(gone).decode(),))]
    finally:
        connection.close()
