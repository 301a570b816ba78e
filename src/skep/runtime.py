"""Shared state of a process: forks, the compiled core, patterns compiled on first use, products of matrices.

Every room may use it; it imports none of them.
"""

from __future__ import annotations

import gc
import marshal
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

if TYPE_CHECKING:
    import threading
    from typing import Protocol

    from numpy.typing import NDArray

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


SWITCH = "SKEP_NATIVE"
"""In the environment: 0 leaves everything to Python and numpy, 1 refuses to start without the compiled core."""


def load_core() -> Any:
    """Return the compiled core, or None where it was not built or is switched off."""
    wanted = os.environ.get(SWITCH)
    if wanted == "0" or sys.byteorder != "little":  # the core reads files as they lie in memory
        return None
    try:
        from skep import _core  # type: ignore[attr-defined]  # pyright: ignore
    except ImportError:  # not built, or not for this system
        if wanted == "1":
            raise
        return None
    return _core  # pyright: ignore[reportUnknownVariableType]


native: Any = load_core()


class _Lazy:
    """Stands in for a pattern; every method is looked up once and then as near as on the pattern itself."""

    def __init__(self, source: str, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def lazy(source: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled on first use.

    >>> word = lazy(r"[a-z]+")
    >>> word.findall("ab 12 c"), word.pattern
    (['ab', 'c'], '[a-z]+')
    """
    return cast("re.Pattern[str]", _Lazy(source, flags))


@contextmanager
def gc_paused() -> Generator[None]:
    """No search for garbage in rings meanwhile.

    Many rows are many objects that live on, none of them in a ring; looking through all of them again and again took
    a sixth of the time of a bulk load.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


PLAIN = 2
"""The form in which `marshal` writes equal values alike, wherever else they are used."""
_KNOWN = frozenset({str, int, float, bool, bytes, type(None), tuple, list, set, frozenset, dict})


def spelt(arguments: tuple[Any, ...]) -> bytes | None:
    """Bytes that are equal only if each argument is of the same type and says the same.

    None where one of them is no plain value, whose type and content say all there is to it. Within lists and mappings,
    what has a buffer is spelt by its bytes: a caller must refuse all but one of those that are spelt alike.

    >>> spelt((1, "a", {"b": [True]})) == spelt((1, "a", {"b": [True]}))
    True
    >>> spelt((1,)) == spelt((True,)), spelt((1,)) == spelt((1.0,)), spelt((iter("a"),)), spelt((bytearray(1),))
    (False, False, None, None)
    """
    if not _KNOWN.issuperset(map(type, arguments)):  # `marshal` takes whatever has a buffer for its bytes
        return None
    try:
        return marshal.dumps(arguments, PLAIN)
    except ValueError:
        return None


ALONE = 1 << 18
"""Multiplications up to which OpenBLAS uses one thread."""
MANY = 1 << 26
"""Multiplications from which threads are worth waking."""


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """`a @ b` of two matrices, on one thread where waking others costs more than they do.

    >>> import numpy as np
    >>> a, b = np.ones((60, 256), np.float32), np.ones((256, 60), np.float32)
    >>> bool((product(a, b) == a @ b).all())
    True
    """
    (rows, inner), columns = a.shape, b.shape[1]
    if rows * inner * columns <= ALONE or rows * inner * columns >= MANY:
        return a @ b
    return alone(a, b) if rows >= columns else alone(b.T, a.T).T


def alone(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """`a @ b` of however many rows on one thread, a few rows at a time; fastest where `b` is contiguous.

    >>> import numpy as np
    >>> a, b = np.ones((1001, 256), np.float32), np.ones((256, 60), np.float32)
    >>> bool((alone(a, b) == a @ b).all())
    True
    """
    import numpy as np

    (rows, inner), columns = a.shape, b.shape[1]
    step = max(1, ALONE // max(1, inner * columns))
    stacks = rows // step
    whole = stacks * step
    out = np.empty((rows, columns), dtype=np.result_type(a, b))
    np.matmul(a[:whole].reshape(stacks, step, inner), b, out=out[:whole].reshape(stacks, step, columns))
    np.matmul(a[whole:], b, out=out[whole:])
    return out
