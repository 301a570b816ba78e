"""Time: a hybrid logical clock, and the one place that reads the wall clock.

A stamp is one integer, milliseconds since the epoch shifted left by 16 bits plus a counter, so that stamps
sort as integers, stay close to real time, and never repeat or run backwards within one replica.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Now = Callable[[], float]
"""Seconds since the epoch. Injected everywhere, so that tests own time."""

LOGICAL_BITS = 16
AHEAD_SECONDS = 3600.0
"""A stamp further in the future than this was made by a clock that was ahead."""


def system_now() -> float:
    """The wall clock, in seconds since the epoch."""
    return time.time()


def pack(seconds: float, logical: int = 0) -> int:
    """The stamp of a moment."""
    return (int(seconds * 1000) << LOGICAL_BITS) | logical


def tick(last: int, seconds: float) -> int:
    """The next local stamp after `last`, given the wall clock.

    >>> tick(pack(10.0), 9.0) == pack(10.0) + 1
    True
    """
    now = pack(seconds)
    return now if now > last else last + 1
