"""Work on many rows at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def uncollected(work: Callable[[], T]) -> T:
    """Do a stretch of work without looking for garbage in rings meanwhile.

    Many rows are many objects that live on, none of them in a ring; looking through all of them again and again took
    a tenth of the time. Whoever had switched the collector off finds it so afterwards.
    """
    was = gc.isenabled()
    try:
        gc.disable()
        return work()
    finally:
        if was:
            gc.enable()
