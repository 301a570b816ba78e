"""Who keeps what: rendezvous hashing.

Every member scores every key; the members with the highest scores own it. Nobody keeps a table, all members
agree, and when one leaves only its own keys move, each to the next in its own order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b

from skep.errors import OutOfRangeError

REPLICATION = 3
MANY = 50
"""Members from which each sends only its share of the candidates."""


def score(key: str, member: str, weight: float = 1.0) -> float:
    """How strongly a member claims a key; a member of weight 2 gets twice the keys."""
    digest = blake2b(key.encode(), digest_size=8, person=_person(member)).digest()
    uniform = (int.from_bytes(digest, "big") + 0.5) / 2.0**64
    return -weight / math.log(uniform)


def owners(
    key: str,
    members: Iterable[str],
    *,
    replication: int = REPLICATION,
    weights: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """The members that keep a key, the first one first.

    >>> keep = owners("m-1", ["a", "b", "c", "d"], replication=2)
    >>> keep == owners("m-1", ["d", "c", "b", "a"], replication=2), len(keep)
    (True, 2)
    """
    if replication < 1:
        raise OutOfRangeError("replication must be at least 1", field="replication")
    ranked = sorted(members, key=lambda m: (-score(key, m, (weights or {}).get(m, 1.0)), m))
    return tuple(ranked[:replication])


class Ring:
    """The owners of keys among a fixed set of members, remembered per key."""

    def __init__(
        self,
        members: Iterable[str],
        *,
        replication: int = REPLICATION,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.members = tuple(sorted(set(members)))
        self.replication = replication
        self.weights = dict(weights or {})
        self._owners = lru_cache(maxsize=200_000)(self._compute)

    def _compute(self, key: str) -> tuple[str, ...]:
        return owners(key, self.members, replication=self.replication, weights=self.weights)

    def owners(self, key: str) -> tuple[str, ...]:
        """The members that keep a key, the first one first."""
        return self._owners(key)

    def first(self, key: str, *, without: Iterable[str] = ()) -> str | None:
        """The first owner that is not among `without`; None when no owner is left."""
        absent = set(without)
        return next((member for member in self.owners(key) if member not in absent), None)


def share(wanted: int, members: int) -> int:
    """How many of its best each of many members must send so that the best of all are surely among them.

    Hashing deals memories out evenly, so one member holds about `wanted / members` of them; six deviations and
    sixteen more leave no room for chance. Few members send everything that is wanted.

    >>> share(200, 100), share(200, 10)
    (27, 200)
    """
    if members < MANY:
        return wanted
    mean = wanted / members
    return min(wanted, math.ceil(mean + 6 * math.sqrt(mean) + 16))


@lru_cache(maxsize=100_000)
def _person(member: str) -> bytes:
    return blake2b(member.encode(), digest_size=16).digest()
