"""What the system says about the file of a bank."""

from __future__ import annotations

import os

from skep.kernels import native


def from_anywhere(path: str) -> str:
    """A path that means the same file from whatever folder; as it is written, for `..` after a link leads elsewhere."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


class Place:
    """The file that a name led to, and whether it still does. Every write and every recall asks."""

    __slots__ = ("_file", "_name", "_path")

    def __init__(self, path: str) -> None:
        self._path, self._name = path, os.fsencode(path)
        self._file = _file_at(path)

    def holds(self) -> bool:
        """Whether the name leads there still. Who may not look there, or not now, has not seen it go."""
        file = self._file
        if file is None:
            return True
        if native is not None:
            return native.lies_at(self._name, *file)
        try:
            return _file_at(self._path) == file
        except OSError:
            return True


def _file_at(path: str) -> tuple[int, int] | None:
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
