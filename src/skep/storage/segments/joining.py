"""Which rows are near which: the neighbours of many rows in one pass over the bank.

Products of matrices replace a search per row. Where many rows are asked for, they are seen through a *lens*: the axes
along which the bank's rows reach furthest, a quarter of all. What the other axes could add is at most the product of
the lengths that two rows have there (Cauchy and Schwarz). The whole codes of the pairs that are left decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.codes import SEED, decode, join
from skep.storage.segments.scan import codes_of

if TYPE_CHECKING:
    from skep.storage.segments.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

READ = 2048
"""Rows of the bank that are made ready at once."""
BLOCK = 256
"""Rows of the bank per product; with `ASKED` rows the result stays in a processor's cache."""
ASKED = 1024
"""Rows asked for per product."""
TURN = 8192
"""Rows asked for per pass over the bank."""
LOW = 8 / 15
"""How far the coarse half of a code may be from the whole along one axis, in steps of its scale."""
ROUNDED = 0.002
"""What the roundings of a product may come to."""
AXES, AXES_SHARE = 62, 4
"""Axes of a lens: so many, or one in so many if that is more. With two columns more, products are quickest."""
UNSEEN = 0.95
"""The most that the cosine of the unseen parts of two rows is taken for. Those of pairs near the bar are about as
alike as the whole rows; a pair could only be lost if they were nearly parallel and it stood above the bar by a
fiftieth or less."""
SMALL = 128
"""Up to this dimension, and for fewer rows than `FEW`, a lens is not worth grinding."""
FEW = 400
SAMPLE = 2048
"""Rows a lens is made from."""
TRIED = 128
"""Rows asked for on which it is tried."""
WASTE = 1 / 256
"""A lens that lets pass more pairs than this in vain is not used."""
PASSED = 16_384
"""Pairs that are collected before they are scored."""
AT_ONCE = 1024
"""Pairs that are scored at once; so many rows stay in the cache."""
DENSE = 64
"""Pairs per row from which they are scored as one product."""
MANY = 200_000
"""Pairs held before all but the nearest of each row are let go."""


class Near(NamedTuple):
    """Pairs of rows: the place of one among those asked for, the slot of the other, their cosine; nearest first."""

    asked: Ints
    slots: Ints
    cosine: Floats


class Rows(NamedTuple):
    """Some rows of the bank: the coarse half of their codes as numbers, and the scale of each."""

    slots: Ints
    high: Floats
    scale: Floats


class Lens(NamedTuple):
    """Orthonormal axes as columns, and two of zeros; without any, rows are seen as they are."""

    axes: Floats

    def asked(self, vectors: Floats) -> Floats:
        """Unit rows as one side of a product."""
        if not self.axes.shape[1]:
            return vectors
        out = self._seen(vectors, -1.0)
        out[:, -2] *= np.float32(UNSEEN)
        return out

    def held(self, rows: Rows, least: float) -> tuple[Floats, Floats]:
        """Rows of the bank as its other side, and what the product is at least where a cosine reaches the bar.

        Through a lens that is nothing: the bar is part of the product, which is quicker.
        """
        bars = np.float32(least - ROUNDED) / rows.scale - np.float32(LOW * rows.high.shape[1] ** 0.5)
        if not self.axes.shape[1]:
            return rows.high, bars[:, None]
        return self._seen(rows.high, bars), np.zeros((1, 1), np.float32)

    def _seen(self, rows: Floats, bars: Floats | float) -> Floats:
        """Rows along the axes, the length of the rest, and a bar."""
        out = rows @ self.axes
        out[:, -2] = np.sqrt(np.maximum(np.vecdot(rows, rows) - np.vecdot(out, out), 0))
        out[:, -1] = bars
        return out


def near_pairs(table: Table, asked: Ints, slots: Ints, *, least: float, most: int) -> Near:
    """For each slot asked for, at most `most` others among `slots` with a cosine of at least `least`.

    Args:
        table: Where the rows are.
        asked: Slots; -1 and slots without a vector have no neighbours.
        slots: Where to look, ascending; all of them have a vector.
        least: The bar.
        most: How many to keep for each, nearest first, ties broken by row.
    """
    there = np.flatnonzero((asked >= 0) & table.has_vector[asked])
    found: list[Near] = []
    lens: Lens | None = None
    for start in range(0, len(there), TURN):
        part = there[start : start + TURN]
        queries = _vectors(table, asked[part])
        lens = lens or _lens(table, queries, slots, least)
        pairs = _nearest(table, _pairs(table, asked[part], queries, slots, lens, least, most), most)
        found.append(pairs._replace(asked=part[pairs.asked]))
    return _all(found)


def _pairs(
    table: Table, asked: Ints, queries: Floats, slots: Ints, lens: Lens, least: float, most: int
) -> Near:
    lefts = [
        np.ascontiguousarray(lens.asked(queries[i : i + ASKED]).T) for i in range(0, len(queries), ASKED)
    ]
    products = np.empty(BLOCK * ASKED, dtype=np.float32)
    reached = np.empty(BLOCK * ASKED, dtype=bool)
    passed = Passed()
    kept: list[Near] = []
    room = MANY
    for rows in _reading(table, slots):
        right, bars = lens.held(rows, least)
        for start in range(0, len(right), BLOCK):
            block = right[start : start + BLOCK]
            for number, left in enumerate(lefts):
                shape = len(block), left.shape[1]
                size = shape[0] * shape[1]
                product = np.matmul(block, left, out=products[:size].reshape(shape))
                bar = bars[start : start + BLOCK] if len(bars) > 1 else bars[0, 0]
                np.greater_equal(product, bar, out=reached[:size].reshape(shape))
                row, column = np.divmod(reached[:size].nonzero()[0], shape[1])
                passed.add(column + number * ASKED, rows.slots[start + row])
            if passed.count > PASSED:
                kept.append(_exact(table, asked, queries, passed, least))
                passed = Passed()
            if sum(len(pairs.asked) for pairs in kept) > room:
                kept = [_nearest(table, _all(kept), most)]
                room = max(MANY, 2 * len(kept[0].asked))
    kept.append(_exact(table, asked, queries, passed, least))
    return _all(kept)


class Passed:
    """Pairs that are still to be scored."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: list[Ints] = []
        self._slots: list[Ints] = []

    def add(self, columns: Ints, slots: Ints) -> None:
        """Take in some: places among the rows asked for, and slots."""
        if len(columns):
            self.count += len(columns)
            self._columns.append(columns)
            self._slots.append(slots)

    def pairs(self) -> tuple[Ints, Ints]:
        """All of them."""
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *self._columns]), np.concatenate([none, *self._slots])


def _reading(table: Table, slots: Ints) -> Iterator[Rows]:
    """The rows of sorted slots, some at a time."""
    for number, part in table.parts(slots):
        local = slots[part] - table.bases[number]
        segment = table.segments[number] if number < len(table.segments) else None
        if segment is not None and segment.codes is None:
            continue
        for start in range(0, len(local), READ):
            piece = local[start : start + READ]
            if segment is None:
                high, scale = table.tail.high[piece], table.tail.scale[piece]
            else:
                assert segment.codes is not None
                whole = len(piece) == piece[-1] - piece[0] + 1
                chosen = slice(int(piece[0]), int(piece[-1]) + 1) if whole else piece
                high = segment.codes.high[chosen].astype(np.float32)
                scale = segment.codes.scale[chosen]
            yield Rows(piece + table.bases[number], high, scale)


def _lens(table: Table, queries: Floats, slots: Ints, least: float) -> Lens:
    """The lens for a bank, or none where it would cost more than it saves."""
    plain = Lens(np.zeros((table.dim, 0), np.float32))
    if table.dim <= SMALL or len(queries) < FEW or not len(slots):
        return plain
    sample = list(_reading(table, slots[:: -(-len(slots) // SAMPLE)]))
    rows = np.concatenate([part.high * part.scale[:, None] for part in sample])
    axes = _foremost(rows, max(AXES, table.dim // AXES_SHARE))
    lens = Lens(np.hstack([axes, np.zeros((table.dim, 2), np.float32)]))
    tried = queries[:: -(-len(queries) // TRIED)]
    left = lens.asked(tried).T
    passed = sum(np.count_nonzero(lens.held(part, least)[0] @ left >= 0) for part in sample)
    wasted = passed - np.count_nonzero(tried @ rows.T >= least)
    return lens if wasted <= WASTE * len(tried) * len(rows) else plain


def _foremost(rows: Floats, count: int) -> Floats:
    """About the axes along which rows reach furthest, orthonormal, by orthogonal iteration."""
    found = np.random.default_rng(SEED).standard_normal((rows.shape[1], count)).astype(np.float32)
    for _ in range(3):
        found = np.linalg.qr(rows.T @ (rows @ found))[0]
    return found


def _nothing() -> Near:
    none = np.zeros(0, dtype=np.int64)
    return Near(none, none, np.zeros(0, dtype=np.float32))


def _all(held: list[Near]) -> Near:
    return Near(*(np.concatenate(parts) for parts in zip(*held, strict=True))) if held else _nothing()


def _vectors(table: Table, slots: Ints) -> Floats:
    """The unit vectors of slots, in the turned axes."""
    out = np.zeros((len(slots), table.dim), dtype=np.float32)
    order = np.argsort(slots, kind="stable")
    for part, codes in codes_of(table, slots[order]):
        out[order[part]] = decode(codes)
    norms = np.sqrt(np.vecdot(out, out))
    out /= np.where(norms > 0, norms, 1)[:, None]
    return out


def _exact(table: Table, asked: Ints, queries: Floats, passed: Passed, least: float) -> Near:
    """The pairs whose whole codes reach the bar; a row is not its own neighbour."""
    columns, slots = passed.pairs()
    other = asked[columns] != slots
    columns, slots = columns[other], slots[other]
    if not len(slots):
        return _nothing()
    rows, row = np.unique(slots, return_inverse=True)  # one row is in many pairs where many are alike
    if len(slots) > DENSE * len(rows):  # where many are alike, all against all costs less than pair by pair
        vectors = decode(join([part for _, part in codes_of(table, rows)]))
        cosine = (vectors @ queries.T)[row, columns]
    else:
        near = _coarsely(table, queries, columns, rows, row, least)
        columns, slots = columns[near], slots[near]
        rows, row = np.unique(slots, return_inverse=True)
        if not len(rows):
            return _nothing()
        vectors = decode(join([part for _, part in codes_of(table, rows)]))
        cosine = np.vecdot(vectors[row], queries[columns])
    good = cosine >= least
    return Near(columns[good], slots[good], cosine[good].astype(np.float32))


def _coarsely(table: Table, queries: Floats, columns: Ints, rows: Ints, row: Ints, least: float) -> Ints:
    """Which of some pairs may reach the bar, as far as the coarse half of the codes of sorted rows tells."""
    order = np.argsort(row, kind="stable")
    good = np.zeros(len(row), dtype=bool)
    first = 0
    for part in _reading(table, rows):
        last = first + len(part.slots)
        here = order[np.searchsorted(row, first, sorter=order) : np.searchsorted(row, last, sorter=order)]
        for start in range(0, len(here), AT_ONCE):
            some = here[start : start + AT_ONCE]
            at = row[some] - first
            dots = np.vecdot(part.high[at], queries[columns[some]])
            dots += np.float32(LOW * table.dim**0.5)
            dots *= part.scale[at]
            good[some] = dots >= least - ROUNDED
        first = last
    return np.flatnonzero(good)


def _nearest(table: Table, pairs: Near, most: int) -> Near:
    """The nearest of each, nearest first."""
    order = np.lexsort((table.rows[pairs.slots], -pairs.cosine, pairs.asked))
    asked = pairs.asked[order]
    first = np.searchsorted(asked, asked)
    order = order[np.arange(len(asked)) - first < most]
    return Near(pairs.asked[order], pairs.slots[order], pairs.cosine[order])
