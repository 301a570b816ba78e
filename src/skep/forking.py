"""What a forked child has to put right: locks that nobody will give back, and work that only the parent does."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Something that threads share."""

    def forked(self) -> None:
        """Called in a forked child, before anything else happens there."""
        ...


_watched: WeakSet[Forked] = WeakSet()


def watch(thing: Forked) -> None:
    """Have `thing.forked` called in every child, for as long as the thing is in use."""
    _watched.add(thing)


def free(lock: threading.RLock | threading.Lock) -> None:
    """Let go of a lock that a thread of the parent held at the moment of the fork; the forking thread keeps its own."""
    held: Any = lock
    if not (hasattr(held, "_is_owned") and held._is_owned()):
        held._at_fork_reinit()


def _in_child() -> None:
    for thing in list(_watched):
        thing.forked()


if hasattr(os, "register_at_fork"):  # where there is no fork there is nothing to do
    os.register_at_fork(after_in_child=_in_child)
