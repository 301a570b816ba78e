"""The columns of a row that filters and ranking read, as numbers.

Each column has a default; a segment in which every row has it does not store the column. Where every row has the same
other value, that is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from skep.model import KINDS, STATUSES
from skep.storage.base import IndexRow
from skep.storage.segments.hashing import maybe_key, scope_key
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

UNKNOWN = 255
KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
STATUS_CODES = {status: code for code, status in enumerate(STATUSES)}
SCHEMA = ",".join((*KINDS, "|", *STATUSES))
"""Part of what a file must agree on: codes are places in these lists."""


class Column(NamedTuple):
    """How a column is stored, and the number that stands for the values of some fields of a row."""

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
