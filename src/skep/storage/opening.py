"""Creating, checking and migrating the file."""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING, Any

import apsw

from skep.errors import BankNotFoundError, BusyError, NewerVersionError, NotABankError, ReadOnlyError
from skep.storage.connection import MEMORY, Connection, translated
from skep.storage.schema import APPLICATION_ID, AS_IT_IS, STEPS, VERSION

if TYPE_CHECKING:
    from pathlib import Path

NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
FIRST_SECONDS = 2.0
"""How long a file may stay empty while another process makes a bank of it."""
_ALPHABET = "abcdefghjkmnpqrstvwxyz0123456789"
"""Thirty-two, so that the rest of a byte is as likely to be any of them."""


def new_actor() -> str:
    """A name for a replica that nobody else will draw."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(10))


def prepare(path: str | os.PathLike[str], *, create: bool) -> str:
    """Make sure there is a file to open, private to its owner."""
    path = os.fspath(path)
    if path == MEMORY:
        return MEMORY
    try:
        path.encode()
        mode = _mode(path)
    except (UnicodeEncodeError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8"
        raise NotABankError(f"{path!r:.200} cannot be a bank ({why}); choose another path") from error
    if stat.S_ISDIR(mode):
        raise NotABankError(f"{path} is a folder; give the path of the bank file inside it")
    if mode and not os.path.getsize(path):
        _refuse_emptied(path, create=create)
    if not mode:
        if not create:
            raise BankNotFoundError(f"there is no bank at {path}; create one with `skep init`")
        try:
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except (PermissionError, OSError) as error:
            raise ReadOnlyError(
                f"{path} cannot be created ({error.strerror}); choose a folder you may write"
            ) from error
    return path


def _refuse_emptied(path: str, *, create: bool) -> None:
    """Refuse an empty file, unless a bank is to be made of it and nothing shows that it was one before."""
    if not create:
        deadline = time.monotonic() + FIRST_SECONDS
        while not os.path.getsize(path):  # another process may be making it at this moment
            if time.monotonic() > deadline:
                raise NotABankError(
                    f"{path} is empty; put a backup in its place with `skep backup --restore`, or delete the file"
                )
            time.sleep(0.02)
    beside = [name for name in (f"{path}.index", f"{path}-wal") if os.path.exists(name)]
    if beside and not os.path.getsize(path) and any(os.path.isdir(n) or os.path.getsize(n) for n in beside):
        raise NotABankError(
            f"{path} is empty, but {' and '.join(beside)} beside it shows that it held memories; put a backup in its"
            " place with `skep backup --restore`, or delete all of them to begin anew"
        )


def _mode(path: str) -> int:
    """What there is at a path; 0 for nothing."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in NOT_THERE:
            return 0
        raise


def connect(path: str, *, busy_seconds: float, read_only: bool = False, copies: bool = True) -> Connection:
    """A connection to a bank whose schema is current; with `copies`, a copy is kept of one that was not.

    Switching a new file to write-ahead logging needs it alone for a moment, and SQLite does not wait for that by
    itself; when many processes open a new bank at once, all but one try again.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            return _connected(path, busy_seconds=busy_seconds, read_only=read_only, copies=copies)
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _connected(path: str, *, busy_seconds: float, read_only: bool, copies: bool) -> Connection:
    connection = Connection(path, busy_seconds=busy_seconds, read_only=read_only)
    try:
        _check(connection)  # before anything is written: what is not a bank stays as it is, to the byte
        if read_only:
            _read_as_it_is(connection)
        else:
            connection.log_ahead()
            migrate(connection, copies=copies)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: Connection) -> None:
    with translated(connection.path):
        application = connection.db.pragma("application_id")
        version = connection.db.pragma("user_version")
        if application == APPLICATION_ID:
            if version > VERSION:
                raise NewerVersionError(
                    f"{connection.path} was written by a newer skep (schema {version}, this one knows {VERSION});"
                    " upgrade skep to open it"
                )
            return
        tables = connection.one("SELECT count(*) FROM sqlite_schema")
        if tables or application:
            raise NotABankError(
                f"{connection.path} is an SQLite file, but not a skep bank; choose another path"
            )
        if connection.read_only:
            raise NotABankError(f"{connection.path} is empty; there is nothing to read")


def _read_as_it_is(connection: Connection) -> None:
    version = connection.db.pragma("user_version")
    with translated(connection.path):
        for last, views in AS_IT_IS.items():
            if version <= last:
                connection.begin_with(views)


def migrate(connection: Connection, *, copies: bool) -> None:
    """Bring a file to this version's schema, after a copy where those are wanted."""
    version = connection.db.pragma("user_version")
    if version == VERSION:
        return
    copy: Path | None = None
    if version and copies:
        from pathlib import Path

        copy = Path(f"{connection.path}.before-v{VERSION}")
        if not copy.exists():
            copy_file(connection, copy)
    with connection.transaction():
        version = connection.db.pragma("user_version")
        for number in range(version, VERSION):
            connection.db.execute(STEPS[number])
        if version == 0:
            connection.execute("INSERT INTO meta(key, value) VALUES('bank', ?)", (os.urandom(16).hex(),))
            connection.execute("INSERT INTO meta(key, value) VALUES('actor', ?)", (new_actor(),))
            if connection.path != MEMORY:
                connection.execute("INSERT INTO meta(key, value) VALUES('place', ?)", (_place(connection),))
        if copy is not None:  # `forget` has to reach it
            connection.execute(
                "INSERT OR REPLACE INTO backups(path, made_at) VALUES(?, ?)",
                (str(copy.resolve()), copy.stat().st_mtime),
            )
        connection.db.pragma("user_version", VERSION)
        connection.db.pragma("application_id", APPLICATION_ID)


def actor_of(connection: Connection) -> tuple[str, bool]:
    """The name in the file, and whether it may be written under.

    A file that was copied would otherwise go on under the name of the original, and two replicas would give
    different events the same id; so a file that is no longer where its name was drawn draws a new one, by
    `claim_actor`, before it writes or says who it is. Reading alone leaves it as it is.
    """
    found = dict(connection.rows("SELECT key, value FROM meta WHERE key IN ('actor', 'place')"))  # type: ignore[arg-type]
    ours = connection.path == MEMORY or connection.read_only or found.get("place") == _place(connection)
    return found["actor"], ours


def claim_actor(connection: Connection) -> str:
    """The name under which this file writes; drawn here if the one in the file is not its own."""
    with connection.transaction():
        actor, ours = actor_of(connection)
        if not ours:
            if connection.one("SELECT 1 FROM meta WHERE key = 'place'"):
                actor = new_actor()
                connection.execute("UPDATE meta SET value = ? WHERE key = 'actor'", (actor,))
            connection.execute(
                "INSERT OR REPLACE INTO meta(key, value) VALUES('place', ?)", (_place(connection),)
            )
    return actor


def _place(connection: Connection) -> str:
    found = os.stat(connection.where)
    return f"{found.st_dev}:{found.st_ino}"


def copy_file(connection: Connection, target: Path) -> None:
    """An online, consistent copy, complete or not there at all."""
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_RDWR, 0o600))
    with translated(str(target)):
        copy: Any = apsw.Connection(str(partial))
        try:
            with copy.backup("main", connection.db, "main") as backup:
                while not backup.done:
                    backup.step(2048)
            copy.execute("PRAGMA journal_mode=DELETE")
            copy.execute(
                "UPDATE meta SET value = 'copy' WHERE key = 'place'"
            )  # wherever it is opened, a new name
        except BaseException:
            copy.close(True)
            partial.unlink(missing_ok=True)
            raise
        copy.close()
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, target)


def free_bytes(path: Path) -> int:
    """Space left on the disk of a file."""
    import shutil

    return shutil.disk_usage(path.parent).free
