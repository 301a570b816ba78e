"""Who came just before and just after whom, read off the columns.

The rows of a scope, in the order of their times, are its timeline; a pause or another kind of memory parts it. Recalls
ask for the same few scopes again and again, so the timelines of the last question are kept until a row changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.storage.segments.table import Table

    Ints = NDArray[np.int64]


MOST = 1 << 22
"""Entries of columns that one question may look at."""
FEW = 8
"""Fewer than one slot in so many are sorted as they are found."""


class Lines(NamedTuple):
    """The timelines of some scopes, one after the other."""

    scopes: frozenset[int]
    members: Ints
    """The slots of all of them, ascending."""
    place: Ints
    """Where in the lines each member stands."""
    slots: Ints
    """The members in the order of scope, time and row."""
    part: Ints
    """The stretch without a pause that each place belongs to."""


class Timelines:
    """The timelines that were asked for last."""

    def __init__(self) -> None:
        self._lines: tuple[Table, int, float, Lines] | None = None

    def around(self, table: Table, slots: Ints, window: int, pause: float) -> Ints | None:
        """The slots around each slot: columns -window..-1, 1..window; -1 where there is none.

        Slots of no scope, and slot -1, have no neighbours. None where this would take longer than asking the store.
        """
        found = np.full((len(slots), 2 * window), -1, dtype=np.int64)
        scope = np.where(slots >= 0, table.values("scope", slots), 0)
        asked = np.flatnonzero(scope)
        if not len(asked):
            return found
        lines = self._of(table, frozenset(scope[asked].tolist()), pause)
        if lines is None:
            return None
        steps = np.array([*range(-window, 0), *range(1, window + 1)])
        here = lines.place[lines.members.searchsorted(slots[asked])][:, None]
        there = here + steps
        inside = np.clip(there, 0, len(lines.slots) - 1)
        joined = (there == inside) & (lines.part[inside] == lines.part[here])
        found[asked] = np.where(joined, lines.slots[inside], -1)
        return found

    def _of(self, table: Table, scopes: frozenset[int], pause: float) -> Lines | None:
        if self._lines is not None:
            of, version, parted, lines = self._lines
            if of is table and version == table.version and parted == pause and scopes <= lines.scopes:
                return lines
        if len(scopes) * table.count > MOST:
            return None
        lines = timelines(table, scopes, pause)
        self._lines = (table, table.version, pause, lines)
        return lines


def timelines(table: Table, scopes: frozenset[int], pause: float) -> Lines:
    """The live rows of some scopes, in the order of time."""
    column = table.column("scope")
    mask = np.zeros(table.count, dtype=bool)
    for scope in scopes:
        mask |= column == np.uint64(scope)
    mask &= table.alive[: table.count]
    members = np.flatnonzero(mask)
    slots = members
    if len(members) * FEW > table.count:  # many are sorted quicker where they are nearly in the order of time
        came = table.as_they_came()
        slots = came[mask[came]]
    slots = slots[np.lexsort((table.rows[slots], table.column("created_at")[slots], column[slots]))]
    places = np.empty(table.count, dtype=np.int64)
    places[slots] = np.arange(len(slots))
    place = places[members]
    scope, kind, at = (table.column(name)[slots] for name in ("scope", "kind", "created_at"))
    parted = (scope[1:] != scope[:-1]) | (kind[1:] != kind[:-1]) | (at[1:] - at[:-1] > pause)
    part = np.concatenate([[0], np.cumsum(parted)])
    return Lines(scopes, members, place, slots, part)
