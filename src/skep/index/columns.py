"""Columns: the fields of a row that filters and ranking read, as numbers; timelines, read off the columns.

Strings become 64-bit keys. Keys need no dictionary, so opening an index parses nothing, and no word stands in it in
the clear. Zero means "no value". Two of a million strings share a key with a probability below one in ten million.

Each column has a default; a segment in which every row has it does not store the column. Where every row has the
same other value, that is stored once.

The rows of a scope in the order of their times are its *timeline*; a pause or another kind of memory parts it.
Recalls ask for the same few scopes again and again, so the timelines of the last question are kept until a row
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skep.filters import IndexRow
from skep.index.bm25 import key_of
from skep.model import KINDS, STATUSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.row_table import Table

    Array = NDArray[Any]
    Ints = NDArray[np.int64]


@lru_cache(maxsize=1 << 12)
def maybe_key(text: str | None) -> int:
    """The key of an optional string; 0 for none."""
    return 0 if text is None else key_of(text)


@lru_cache(maxsize=1 << 10)
def scope_key(user: str | None, project: str | None, session: str | None) -> int:
    """One key for the three parts of a scope; 0 for the shared one."""
    if user is None and project is None and session is None:
        return 0
    parts = (
        b"\0" if part is None else b"\1" + part.encode("utf-8", "surrogatepass")
        for part in (user, project, session)
    )
    joined = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return int.from_bytes(blake2b(joined, digest_size=8).digest(), "little") or 1


UNKNOWN = 255
KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
STATUS_CODES = {status: code for code, status in enumerate(STATUSES)}
SCHEMA = ",".join((*KINDS, "|", *STATUSES))
"""Part of what a file must agree on: codes are places in these lists."""


class Column(NamedTuple):
    """The storage type of a column, and the number that stands for the values of some fields of a row."""

    dtype: str
    default: float
    fields: tuple[str, ...]
    number: Callable[..., float]

    def value(self, row: IndexRow) -> float:
        """The number of one row."""
        fields = self.fields
        if len(fields) == 1:
            return self.number(getattr(row, fields[0]))
        return self.number(*[getattr(row, field) for field in fields])

    def values(self, columns: Sequence[Sequence[Any]]) -> Array:
        """The numbers of many rows, from the values of each field. Most values are few, so each is looked at once."""
        if self.number is _own:
            return np.array(columns[0], dtype=self.dtype)
        if columns[0] and all(column.count(column[0]) == len(column) for column in columns):
            return np.full(len(columns[0]), self.number(*(column[0] for column in columns)), dtype=self.dtype)
        known = _Known(self.number, one=len(columns) == 1)
        rows: Iterable[Any] = columns[0] if known.one else zip(*columns, strict=True)
        return np.fromiter(map(known.__getitem__, rows), dtype=self.dtype, count=len(columns[0]))


class _Known(dict[Any, float]):
    """Numbers of values already seen."""

    def __init__(self, number: Callable[..., float], *, one: bool) -> None:
        super().__init__()
        self.number = number
        self.one = one

    def __missing__(self, value: Any) -> float:
        found = self[value] = self.number(value) if self.one else self.number(*value)
        return found


def _kind(kind: str) -> int:
    return KIND_CODES.get(kind, UNKNOWN)


def _status(status: str) -> int:
    return STATUS_CODES.get(status, UNKNOWN)


def _own(value: float) -> float:
    return value


def _since(moment: float | None) -> float:
    return -inf if moment is None else moment


def _until(moment: float | None) -> float:
    return inf if moment is None else moment


COLUMNS: dict[str, Column] = {
    "created_at": Column("f8", 0, ("created_at",), _own),
    "last_evidence_at": Column("f8", 0, ("last_evidence_at",), _own),
    "confidence": Column("f8", 0, ("confidence",), _own),
    "importance": Column("f8", 0, ("importance",), _own),
    "valid_from": Column("f8", -inf, ("valid_from",), _since),
    "valid_to": Column("f8", inf, ("valid_to",), _until),
    "expires_at": Column("f8", inf, ("expires_at",), _until),
    "kind": Column("u1", 0, ("kind",), _kind),
    "status": Column("u1", STATUS_CODES["active"], ("status",), _status),
    "domain": Column("u8", 0, ("domain",), maybe_key),
    "agent": Column("u8", 0, ("agent",), maybe_key),
    "user": Column("u8", 0, ("user",), maybe_key),
    "project": Column("u8", 0, ("project",), maybe_key),
    "session": Column("u8", 0, ("session",), maybe_key),
    "scope": Column("u8", 0, ("user", "project", "session"), scope_key),
}


def column_of(name: str, rows: Sequence[IndexRow]) -> Array:
    """One column of some rows."""
    column = COLUMNS[name]
    return column.values([[getattr(row, field) for row in rows] for field in column.fields])


def defaults(name: str, count: int) -> Array:
    """A column in which every row has the default; it takes no room."""
    column = COLUMNS[name]
    return repeated(np.array(column.default, dtype=column.dtype), count)


def repeated(value: Array, count: int) -> Array:
    """One value over and over, which takes no room: what `np.broadcast_to` gives, in a tenth of its time."""
    out: Array = np.ndarray((count,), value.dtype, value, strides=(0,))
    out.flags.writeable = False
    return out


def worth_storing(columns: dict[str, Array]) -> dict[str, Array]:
    """The columns in which some row differs from the default; of one that is the same in every row, a single value."""
    stored = {name: array for name, array in columns.items() if (array != COLUMNS[name].default).any()}
    return {name: array[:1] if (array == array[0]).all() else array for name, array in stored.items()}


def spread(stored: Array, count: int) -> Array:
    """A column as it was stored, over every row."""
    return stored if len(stored) == count else repeated(stored[:1], count)


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
    """The place of each member in the lines."""
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
