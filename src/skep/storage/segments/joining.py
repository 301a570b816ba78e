"""Which rows are near which: the neighbours of many rows in one pass over the bank.

One product of matrices per block of rows replaces a search per row. It multiplies the coarse part of the fine codes,
and where the bar is high only every row's first half: the axes are turned so that any half stands for the whole. The
whole codes of the pairs that are left decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.codes import FineCodes, decode, join
from skep.storage.segments.scan import codes_of

if TYPE_CHECKING:
    from skep.storage.segments.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

BLOCK = 2048
"""Rows of the bank per product."""
ASKED = 1024
"""Rows asked for per product."""
COARSE = 0.02
"""How far the coarse half may be from the whole code."""
SPREAD = 4.0
"""How far the estimate from half the axes may be off, as a multiple of one over the root of the dimension: three times
its standard deviation and more."""
LOWEST = 0.4
"""Bars for half the axes below this would let too many pairs pass; then all axes are multiplied."""
DENSE = 64
"""Pairs per row from which they are scored as one product."""
MANY = 200_000
"""Pairs held before all but the nearest of each row are let go."""


class Near(NamedTuple):
    """Pairs of rows: the place of one among those asked for, the slot of the other, their cosine; nearest first."""

    asked: Ints
    slots: Ints
    cosine: Floats


def near_pairs(table: Table, asked: Ints, slots: Ints, *, least: float, most: int) -> Near:
    """For each slot asked for, at most `most` others among `slots` with a cosine of at least `least`.

    Args:
        table: Where the rows are.
        asked: Slots; -1 and slots without a vector have no neighbours.
        slots: Where to look, ascending.
        least: The bar.
        most: How many to keep for each, nearest first, ties broken by row.
    """
    found = [
        _nearest(table, _pairs(table, asked[start : start + ASKED], slots, least, most), most, start)
        for start in range(0, len(asked), ASKED)
    ]
    return Near(*(np.concatenate(parts) for parts in zip(*found, strict=True))) if found else _nothing()


def _nothing() -> Near:
    none = np.zeros(0, dtype=np.int64)
    return Near(none, none, np.zeros(0, dtype=np.float32))


def _pairs(table: Table, asked: Ints, slots: Ints, least: float, most: int) -> Near:
    queries = _vectors(table, asked)
    used, bar = table.dim, least - COARSE
    if bar - SPREAD / table.dim**0.5 >= LOWEST:
        used = table.dim // 2
        bar = (bar - SPREAD / table.dim**0.5) * used / table.dim
    short = np.ascontiguousarray(queries[:, :used].T)
    held: list[Near] = []
    count = 0
    for number, part in table.parts(slots):
        local = slots[part] - table.bases[number]
        segment = table.segments[number] if number < len(table.segments) else None
        if segment is not None and segment.codes is None:
            continue
        for start in range(0, len(local), BLOCK):
            piece = local[start : start + BLOCK]
            if segment is None:
                high, scale = table.tail.high[piece, :used], table.tail.scale[piece]
            else:
                assert segment.codes is not None
                whole = len(piece) == piece[-1] - piece[0] + 1
                chosen = slice(int(piece[0]), int(piece[-1]) + 1) if whole else piece
                high = segment.codes.high[chosen, :used].astype(np.float32)
                scale = segment.codes.scale[chosen]
            bars = np.full(len(piece), np.inf, dtype=np.float32)
            np.divide(np.float32(bar), scale, out=bars, where=scale > 0)
            hits, columns = np.divmod(np.flatnonzero(high @ short >= bars[:, None]), len(queries))
            if len(hits):
                pairs = _exact(table, asked, queries, columns, piece[hits] + table.bases[number], least)
                held.append(pairs)
                count += len(pairs.asked)
            if count > MANY:
                held = [_nearest(table, _all(held), most, 0)]
                count = len(held[0].asked)
    return _all(held)


def _all(held: list[Near]) -> Near:
    return Near(*(np.concatenate(parts) for parts in zip(*held, strict=True))) if held else _nothing()


def _vectors(table: Table, slots: Ints) -> Floats:
    """The vectors of slots, in the turned axes; zeros where there is none."""
    out = np.zeros((len(slots), table.dim), dtype=np.float32)
    order = np.argsort(slots, kind="stable")
    order = order[slots[order] >= 0]
    for part, codes in codes_of(table, slots[order]):
        out[order[part]] = decode(codes)
    norms = np.sqrt(np.vecdot(out, out))
    out /= np.where(norms > 0, norms, 1)[:, None]
    return out


def _exact(table: Table, asked: Ints, queries: Floats, columns: Ints, slots: Ints, least: float) -> Near:
    """The pairs whose whole codes reach the bar; a row is not its own neighbour."""
    other = asked[columns] != slots
    columns, slots = columns[other], slots[other]
    rows, row = np.unique(slots, return_inverse=True)  # one row is in many pairs where many are alike
    codes: FineCodes = (
        join([part for _, part in codes_of(table, rows)]) if len(rows) else _no_codes(table.dim)
    )
    vectors = decode(codes)
    if len(slots) > DENSE * len(rows):  # where many are alike, all against all costs less than pair by pair
        cosine = (vectors @ queries.T)[row, columns]
    else:
        cosine = np.vecdot(vectors[row], queries[columns])
    good = cosine >= least
    return Near(columns[good], slots[good], cosine[good].astype(np.float32))


def _no_codes(dim: int) -> FineCodes:
    return FineCodes(
        np.zeros((0, dim), np.int8), np.zeros((0, -(-dim // 2)), np.uint8), np.zeros(0, np.float32)
    )


def _nearest(table: Table, pairs: Near, most: int, start: int) -> Near:
    """The nearest of each, nearest first."""
    order = np.lexsort((table.rows[pairs.slots], -pairs.cosine, pairs.asked))
    asked = pairs.asked[order]
    first = np.searchsorted(asked, asked)
    order = order[np.arange(len(asked)) - first < most]
    return Near(pairs.asked[order] + start, pairs.slots[order], pairs.cosine[order])
