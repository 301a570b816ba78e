"""The columns of a row that filters and ranking read, as numbers.

Each column has a default; a segment in which every row has it does not store the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skep.model import KINDS, STATUSES
from skep.storage.base import IndexRow
from skep.storage.segments.hashing import maybe_key, scope_key

Array = NDArray[Any]
UNKNOWN = 255
KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
STATUS_CODES = {status: code for code, status in enumerate(STATUSES)}
SCHEMA = ",".join((*KINDS, "|", *STATUSES))
"""Part of what a file must agree on: codes are places in these lists."""


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is stored, and where its value comes from."""

    dtype: str
    default: float
    value: Callable[[IndexRow], float]


COLUMNS: dict[str, Column] = {
    "created_at": Column("f8", 0, lambda r: r.created_at),
    "last_evidence_at": Column("f8", 0, lambda r: r.last_evidence_at),
    "confidence": Column("f8", 0, lambda r: r.confidence),
    "importance": Column("f8", 0, lambda r: r.importance),
    "valid_from": Column("f8", -inf, lambda r: -inf if r.valid_from is None else r.valid_from),
    "valid_to": Column("f8", inf, lambda r: inf if r.valid_to is None else r.valid_to),
    "expires_at": Column("f8", inf, lambda r: inf if r.expires_at is None else r.expires_at),
    "kind": Column("u1", 0, lambda r: KIND_CODES.get(r.kind, UNKNOWN)),
    "status": Column("u1", STATUS_CODES["active"], lambda r: STATUS_CODES.get(r.status, UNKNOWN)),
    "domain": Column("u8", 0, lambda r: maybe_key(r.domain)),
    "agent": Column("u8", 0, lambda r: maybe_key(r.agent)),
    "user": Column("u8", 0, lambda r: maybe_key(r.user)),
    "project": Column("u8", 0, lambda r: maybe_key(r.project)),
    "session": Column("u8", 0, lambda r: maybe_key(r.session)),
    "scope": Column("u8", 0, lambda r: scope_key(r.user, r.project, r.session)),
}


def column_of(name: str, rows: Sequence[IndexRow]) -> Array:
    """One column of some rows."""
    column = COLUMNS[name]
    value = column.value
    return np.array([value(row) for row in rows], dtype=column.dtype)


def defaults(name: str, count: int) -> Array:
    """A column in which every row has the default."""
    column = COLUMNS[name]
    return np.full(count, column.default, dtype=column.dtype)


def worth_storing(columns: dict[str, Array]) -> dict[str, Array]:
    """The columns in which some row differs from the default."""
    return {name: array for name, array in columns.items() if (array != COLUMNS[name].default).any()}
