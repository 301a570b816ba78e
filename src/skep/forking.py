"""What a fork has to put right: a child has one thread, and whatever the others held or did is not there.

The locks named to `hold` are taken before a fork and given back after it, on both sides, so that no other thread is in
the middle of something when the process is copied. Things named to `watch` are told in the child.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    import threading
    from typing import Protocol

    class Forked(Protocol):
        """Something that a child must not use as it finds it."""

        def forked(self) -> None:
            """Called in a child, before anything else happens there."""
            ...


PATIENCE = 5.0
"""Seconds a fork waits for a lock, all together; whoever holds one for longer may be waiting for the forking thread."""

_watched: WeakSet[Forked] = WeakSet()
_locks: WeakSet[Any] = WeakSet()
_held: list[Any] = []
_missed: list[Any] = []


def watch(thing: Forked) -> None:
    """Have `thing.forked` called in every child, for as long as the thing is in use."""
    _watched.add(thing)


def hold(lock: threading.RLock) -> None:
    """Have a lock taken during every fork, for as long as it is in use."""
    _locks.add(lock)


def missed(lock: threading.RLock) -> bool:
    """In a child: whether another thread kept a lock through the fork, so that what it guards is in no known state."""
    return any(lock is each for each in _missed)


def _before() -> None:
    left = PATIENCE
    for lock in sorted(_locks, key=id):
        if lock.acquire(timeout=left):
            _held.append(lock)
        else:
            left = 0.01


def _in_parent() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _missed[:] = [lock for lock in _locks if not any(lock is each for each in _held)]
    _in_parent()
    for lock in _missed:
        lock._at_fork_reinit()
    for thing in list(_watched):
        thing.forked()
    _missed.clear()


if hasattr(os, "register_at_fork"):  # where there is no fork there is nothing to do
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
