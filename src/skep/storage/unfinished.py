"""Files that appear complete or not at all, also when several processes make the same one at a time."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
from collections.abc import Callable, Generator
from pathlib import Path

ENDING = ".partial"


@contextlib.contextmanager
def unfinished(
    target: Path, alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
) -> Generator[Path]:
    """An empty file beside the target, private to its owner, that takes the target's place when the block is over.

    That happens within `alone`, which keeps off whoever might open the old one. Each maker has one of its own, and
    holds its lock. Those without a maker were left by one that was killed; they may hold texts, and go with the next.
    """
    clear(target)
    descriptor, partial = _begun(target)
    try:
        yield partial
        os.fsync(descriptor)
        if os.name == "nt":  # where what is open cannot be renamed
            os.close(descriptor)
            descriptor = -1
        with alone():
            os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def clear(target: Path) -> None:
    """Remove what was begun for a target and will not be finished."""
    for name in glob.glob(glob.escape(str(target)) + ENDING + "-????????"):
        with contextlib.suppress(OSError):  # gone meanwhile, or, where there are no such locks, in use
            descriptor = os.open(name, os.O_RDWR)
            try:
                if _locked(descriptor):
                    os.unlink(name)
                    os.unlink(f"{name}-journal")  # where SQLite was at work
            finally:
                os.close(descriptor)


def _begun(target: Path) -> tuple[int, Path]:
    while True:
        partial = target.with_name(f"{target.name}{ENDING}-{secrets.token_hex(4)}")
        descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        if _locked(descriptor) and partial.exists():
            return descriptor, partial
        os.close(descriptor)  # somebody cleared it away before it was locked


def _locked(descriptor: int) -> bool:
    """Whether the lock of a file was to be had. The system gives it back when the process dies."""
    if os.name == "nt":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
