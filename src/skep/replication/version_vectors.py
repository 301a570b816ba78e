"""Version vectors with exceptions: the events a replica has seen.

Events are numbered 1, 2, 3 … by each actor. A full replica of an actor has seen 1..n; a partial one (a shard,
a group that only gets what was promoted) has seen scattered numbers. Both are one thing here: per actor,
disjoint ranges of counters in ascending order. A full replica costs one range per actor, and the difference
of two replicas is computed from ranges, never from events.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

import msgspec

Range = tuple[int, int]
"""First and last counter, both included."""
Ranges = tuple[Range, ...]


def normalise(ranges: Iterable[Range]) -> Ranges:
    """Sort, drop the empty and join what touches or overlaps.

    >>> normalise([(5, 6), (1, 2), (3, 3), (9, 8)])
    ((1, 3), (5, 6))
    """
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if high < low:
            continue
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def union(a: Ranges, b: Ranges) -> Ranges:
    """The counters in either."""
    if not a or a == b:
        return b
    if not b:
        return a
    return normalise((*a, *b))


def subtract(a: Ranges, b: Ranges) -> Ranges:
    """The counters of `a` that are not in `b`.

    >>> subtract(((1, 10),), ((3, 4), (8, 20)))
    ((1, 2), (5, 7))
    """
    if not b or not a:
        return a
    left: list[Range] = []
    position = 0
    for low, high in a:
        while position < len(b) and b[position][1] < low:
            position += 1
        index = position
        while index < len(b) and b[index][0] <= high:
            if b[index][0] > low:
                left.append((low, b[index][0] - 1))
            low = b[index][1] + 1
            index += 1
        if low <= high:
            left.append((low, high))
    return tuple(left)


def holds(ranges: Ranges, counter: int) -> bool:
    """True if `counter` lies in one of the ranges."""
    index = bisect_right(ranges, (counter, 1 << 62)) - 1
    return index >= 0 and ranges[index][1] >= counter


def insert(ranges: Ranges, counter: int) -> Ranges:
    """`ranges` with one more counter; appending to the end is the cheap and common case."""
    if not ranges:
        return ((counter, counter),)
    low, high = ranges[-1]
    if counter == high + 1:
        return (*ranges[:-1], (low, counter))
    if counter > high:
        return (*ranges, (counter, counter))
    if holds(ranges, counter):
        return ranges
    return normalise((*ranges, (counter, counter)))


class Versions(msgspec.Struct, frozen=True):
    """The events one replica has seen, as ranges of counters per actor.

    >>> mine, theirs = Versions.contiguous({"a": 5, "b": 2}), Versions.contiguous({"a": 3})
    >>> mine.minus(theirs).ranges
    {'a': ((4, 5),), 'b': ((1, 2),)}
    """

    ranges: dict[str, Ranges] = msgspec.field(default_factory=dict[str, Ranges])

    @classmethod
    def contiguous(cls, counters: Mapping[str, int]) -> Versions:
        """From a plain version vector: everything up to the counter."""
        return cls({actor: ((1, counter),) for actor, counter in counters.items() if counter > 0})

    @classmethod
    def of(cls, dots: Iterable[tuple[str, int]]) -> Versions:
        """From single events, given as (actor, counter)."""
        found: dict[str, list[Range]] = {}
        for actor, counter in dots:
            found.setdefault(actor, []).append((counter, counter))
        return cls({actor: normalise(ranges) for actor, ranges in found.items()})

    def __contains__(self, dot: tuple[str, int]) -> bool:
        return holds(self.ranges.get(dot[0], ()), dot[1])

    def __bool__(self) -> bool:
        return any(self.ranges.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and _filled(self.ranges) == _filled(other.ranges)

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: Versions) -> bool:
        return not self.minus(other)

    def vector(self) -> dict[str, int]:
        """Per actor, the counter up to which nothing is missing."""
        return {actor: ranges[0][1] for actor, ranges in self.ranges.items() if ranges and ranges[0][0] <= 1}

    def merged(self, other: Versions) -> Versions:
        """Events that either has seen."""
        joined = dict(self.ranges)
        for actor, ranges in other.ranges.items():
            joined[actor] = union(joined.get(actor, ()), ranges)
        return Versions(joined)

    def minus(self, other: Versions) -> Versions:
        """Events that this one has seen and the other has not."""
        return Versions(
            {
                actor: left
                for actor, ranges in self.ranges.items()
                if (left := subtract(ranges, other.ranges.get(actor, ())))
            }
        )

    def common(self, other: Versions) -> Versions:
        """Events that both have seen."""
        return self.minus(self.minus(other))

    def with_dot(self, actor: str, counter: int) -> Versions:
        """With one more event seen."""
        return Versions({**self.ranges, actor: insert(self.ranges.get(actor, ()), counter)})

    def count(self) -> int:
        """The number of events."""
        return sum(high - low + 1 for ranges in self.ranges.values() for low, high in ranges)

    def dots(self) -> Iterator[tuple[str, int]]:
        """Every event as (actor, counter), by actor, then counter."""
        for actor in sorted(self.ranges):
            for low, high in self.ranges[actor]:
                for counter in range(low, high + 1):
                    yield actor, counter


def _filled(ranges: Mapping[str, Ranges]) -> dict[str, Ranges]:
    return {actor: found for actor, found in ranges.items() if found}
