"""What SQLite says when it fails, in our own words."""

from __future__ import annotations

from types import TracebackType

import apsw

from skep.errors import (
    BusyError,
    ClosedError,
    CorruptBankError,
    DiskFullError,
    NotABankError,
    ReadOnlyError,
    StorageError,
)

FAILED = (apsw.Error, UnicodeDecodeError)
"""What reading a file may raise; the second is text that is none, which only damage leaves."""


class translated:
    """SQLite's errors, in words that say what to do."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FAILED):
            raise explained(error, self._path) from error


def explained(error: apsw.Error | UnicodeDecodeError, path: str) -> StorageError:
    """One of SQLite's errors, in words that say what to do."""
    match error:
        case apsw.BusyError():
            return BusyError(
                f"another process kept {path} locked for too long; try again, or look for a stuck process"
            )
        case apsw.FullError():
            return DiskFullError(
                f"no space left while writing {path}; free some and try again, nothing was lost"
            )
        case apsw.ReadOnlyError():
            return ReadOnlyError(f"{path} cannot be written; check its permissions and those of its folder")
        case apsw.NotADBError():
            return NotABankError(f"{path} is not a skep bank; choose another path or restore a backup")
        case apsw.CorruptError() | UnicodeDecodeError():
            return CorruptBankError(
                f"{path} is damaged ({error}); run `skep doctor`, then put a backup in its place with `skep backup"
                " --restore`, or save what can be read with `skep export --salvage`"
            )
        case apsw.CantOpenError():
            return ReadOnlyError(f"{path} cannot be opened; check that its folder exists and may be written")
        case apsw.IOError():
            return StorageError(
                f"reading or writing {path} failed ({error}); check the disk with `skep doctor`"
            )
        case apsw.PermissionsError():
            return ReadOnlyError(f"access to {path} was refused; check its permissions")
        case apsw.ConnectionClosedError() | apsw.CursorClosedError():
            return ClosedError(f"{path} was closed; open the bank again with `Bank.open`")
        case apsw.SQLError() if "no such table" in str(error):
            return StorageError(
                f"the form of {path} is no longer the one that it was opened in ({error}): a newer skep has changed it;"
                " open the bank again"
            )
        case _:
            return StorageError(f"{path}: {error}")
