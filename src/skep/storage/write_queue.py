"""Who waits to write to a file: those who come later let them go first. `Connection` asks before it begins to write.

Whoever waits for SQLite's write lock holds a shared lock on a file beside the bank; whoever finds it held pauses before
it tries, so that it does not write again and again while others wait. The file is made when somebody first has to wait
and may be deleted at any time. The system lets go of the lock of a process that ends, however it ends. Where the system
has no such locks, the pauses of those who wait decide alone.
"""

from __future__ import annotations

import contextlib
import os

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


class WriteQueue:
    """Those who wait for the write lock of one file, as one of its connections sees them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._joined = False

    def somebody_waits(self) -> bool:
        """True if another connection waits to write."""
        file = self._opened(0)
        if file is None or fcntl is None:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)
        except BlockingIOError:
            return True
        except OSError:  # a file system without such locks
            pass
        return False

    def join(self) -> None:
        """Say that one waits; until `leave`."""
        file = None if self._joined else self._opened(os.O_CREAT)
        if file is not None and fcntl is not None:
            with contextlib.suppress(OSError):  # somebody looks just now: said at the next look
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._joined = True

    def leave(self) -> None:
        """Wait no more."""
        if self._joined and self._file is not None and fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
        self._joined = False

    def close(self) -> None:
        """Let go of the file; in the child of a fork its parent keeps it."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._joined = None, False

    def _opened(self, flags: int) -> int | None:
        if self._file is None and fcntl is not None:
            with contextlib.suppress(OSError):  # nobody had to wait yet, or the folder cannot be written
                self._file = os.open(self._path, os.O_RDWR | flags, 0o600)
        return self._file
