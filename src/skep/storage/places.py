"""What the system says about the file of a bank."""

from __future__ import annotations

import os


def from_anywhere(path: str) -> str:
    """A path that means the same file from whatever folder; as it is written, for `..` after a link leads elsewhere."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def file_at(path: str) -> tuple[int, int] | None:
    """Which file a name leads to; None if it leads nowhere, and where an open file keeps its name anyway."""
    if os.name == "nt":
        return None
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def unchanging(path: str) -> bool:
    """Whether a file lies where nobody can write, and is complete: SQLite then needs no shared memory beside it."""
    try:
        closed = os.statvfs(path).f_flag & os.ST_RDONLY
        return bool(closed) and not (os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"))
    except (OSError, AttributeError):  # not there, or a system without such flags
        return False
