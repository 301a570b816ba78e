"""The ids of memories as numbers, so that an order can be told without reading a row of the store.

A memory bears the id of the event that made it: the name of an actor and a counter. Few actors write a bank, so a row
takes the place of a name, which is stored once where all rows share it, and the counter. An id of any other form is a
name of its own, with no counter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Ints = NDArray[np.int64]

NONE = -1
"""In place of a counter: the name is the whole id."""
DIGITS = 18
"""Counters of more may not fit."""


class Ids(NamedTuple):
    """The ids of some rows, one entry per row in both arrays."""

    names: tuple[str, ...]
    """Each once."""
    whose: Array
    """The place of its name, per row."""
    counters: Array

    def pick(self, at: Array) -> Ids:
        """Those of some rows, with no other name than theirs."""
        whose = self.whose[at]
        used = np.flatnonzero(np.bincount(whose, minlength=len(self.names)))
        place = np.zeros(len(self.names), dtype=np.uint32)
        place[used] = np.arange(len(used))
        return Ids(tuple(self.names[i] for i in used.tolist()), place[whose], self.counters[at])

    def told(self, at: Array | None = None) -> list[str]:
        """The ids themselves: of all rows, or of some."""
        counters = (self.counters if at is None else self.counters.take(at)).tolist()
        if len(self.names) == 1 and self.names[0] and NONE not in counters:  # as nearly everywhere
            name = self.names[0]
            return [f"{name}-{counter}" for counter in counters]
        whose = (self.whose if at is None else self.whose.take(at)).tolist()
        named = zip(map(self.names.__getitem__, whose), counters, strict=True)
        return [name if counter == NONE else f"{name}-{counter}" for name, counter in named]


def numbered(ids: Sequence[str]) -> Ids:
    """Ids as numbers. Those of one actor, as most are, are taken apart together."""
    name = ids[0].rpartition("-")[0] if ids else ""
    start = len(name) + 1
    try:
        counters = [int(each[start:]) for each in ids]
        if list(ids) == [f"{name}-{counter}" for counter in counters] and max(counters, default=0) >= 0:
            return Ids((name,), np.zeros(len(ids), np.uint32), np.array(counters, dtype=np.int64))
    except (ValueError, OverflowError):
        pass  # several actors, or ids of another form: one by one
    places: dict[str, int] = {}
    parted = [_parted(each) for each in ids]
    whose = [places.setdefault(name, len(places)) for name, _ in parted]
    return Ids(
        tuple(places),
        np.array(whose, dtype=np.uint32),
        np.array([counter for _, counter in parted], dtype=np.int64),
    )


def _parted(memory_id: str) -> tuple[str, int]:
    name, dash, number = memory_id.rpartition("-")
    if dash and number.isascii() and number.isdigit() and len(number) <= DIGITS:
        counter = int(number)
        if str(counter) == number:
            return name, counter
    return memory_id, NONE


def joined(parts: Sequence[Ids]) -> Ids:
    """Several in one, in their order."""
    places: dict[str, int] = {}
    whose: list[Array] = [np.zeros(0, dtype=np.uint32)]
    for part in parts:
        mine = np.array([places.setdefault(name, len(places)) for name in part.names], dtype=np.uint32)
        whose.append(mine[part.whose])
    counters = [np.zeros(0, dtype=np.int64), *(part.counters for part in parts)]
    return Ids(tuple(places), np.concatenate(whose), np.concatenate(counters))


def as_arrays(ids: Ids) -> dict[str, Array]:
    """What stands in the file, by name; counters take four bytes where they fit."""
    spelt = [name.encode("utf-8", "surrogatepass") for name in ids.names]
    small = not len(ids.counters) or int(ids.counters.max()) < 1 << 31
    return {
        "ids.names": np.frombuffer(b"".join(spelt), dtype=np.uint8),
        "ids.ends": np.cumsum([len(name) for name in spelt], dtype=np.int64),
        "ids.whose": ids.whose[:1] if len(ids.names) == 1 else ids.whose,
        "ids.counters": ids.counters.astype(np.int32 if small else np.int64),
    }


def from_arrays(arrays: Mapping[str, Array]) -> Ids:
    """The same as it was stored. Names are spelt out now; of the rest nothing is read yet."""
    spelt, ends, whose, counters = (arrays[f"ids.{part}"] for part in ("names", "ends", "whose", "counters"))
    data, starts = spelt.tobytes(), [0, *ends.tolist()]
    names = (data[start:end] for start, end in pairwise(starts))
    if len(whose) != len(counters):
        whose = np.broadcast_to(whose[0], len(counters))
    return Ids(tuple(name.decode("utf-8", "surrogatepass") for name in names), whose, counters)
