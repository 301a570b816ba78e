"""Neighbour join: which rows are near which, for many rows in one pass over the bank.

Products of matrices replace a search per row. Where many rows are asked for, they are seen through a *lens*: the
axes along which the bank's rows reach furthest, a quarter of all. What the other axes could add is at most the
product of the lengths that two rows have there (Cauchy and Schwarz), so no pair is lost. The whole codes of the
pairs that are left decide. The compiled loop (`core/near_pairs.c`) sees rows through a lens in small whole numbers
and adds what rounding may cost to the bound; it is three times as fast.

All against all grows with the square of the bank. Beyond `EXACT` products the bank is put into cells of rows that lie
together (k-means on a sample), and each row asked for looks into the `PROBES` cells nearest to it: the work grows
with the bank, and a few of the farther neighbours are missed. `index` calls this for maintenance and for a search
for conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep import runtime
from skep.index.quantisation import decode, join, turn
from skep.index.vector_search import codes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.row_table import Table

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]
    Codes = tuple[NDArray[np.int8], Floats]

BLOCK = 256
"""Rows of the bank that are read and multiplied at once; what is made of them stays in a processor's cache."""
ASKED = 1024
"""Rows asked for per product."""
TURN = 8192
"""Rows asked for per pass over the bank."""
LOW = 8 / 15
"""Largest error of the coarse half of a code along one axis, in steps of its scale."""
ROUNDED = 0.002
"""Largest sum of the roundings of a product."""
COLUMNS, SHARE = 64, 4
"""Columns of a lens: so many, or a quarter of the dimension if that is more. Two of them are no axes."""
UNSEEN = 0.95
"""The most that the cosine of the unseen parts of two rows is taken for. Those of pairs near the bar are about as
alike as the whole rows; a pair could only be lost if they were nearly parallel and it stood above the bar by a
fiftieth or less."""
SMALL = 128
"""Up to this dimension, and for fewer rows than `FEW`, a lens is not worth grinding."""
FEW = 400
SAMPLE = 2048
"""Rows a lens is made from."""
ROUNDS = 4
"""Rounds in which it is ground."""
TRIED = 128
"""Rows asked for on which it is tried."""
WASTE = 1 / 256
"""A lens that lets pass more pairs than this in vain is not used."""
PASSED = 16_384
"""Pairs that are collected before they are scored."""
AT_ONCE = 256
"""Pairs that are looked at more closely at once; so many rows stay in the cache."""
DENSE = 32
"""Pairs per row from which they are scored as one product."""
MANY = 200_000
"""Pairs held before all but the nearest of each row are let go."""
ROOM = 65_536
"""Pairs that compiled loops put down at once, or those of `PANEL` rows, if that is more."""
TOP = 127
"""The largest number of a row asked for, in compiled loops."""
SIXTEEN = 16
"""Compiled loops take so many axes at once."""
PANEL = 64
"""Rows that they take at once, at most."""
WIDEST = 4096
"""The largest dimension they know."""


EXACT = 400_000_000
"""Products of a row asked for and a row of the bank up to which all are compared with all."""
CELL = 1024
"""Rows in a cell on average; one of four times as many is divided again."""
PROBES = 8
"""Cells that each row asked for looks into."""
TRAINED = 48
"""Rows per cell from which the centres are made."""
SETTLED = 6
"""Rounds of k-means."""
DIVISIONS = 4
"""Rounds in which cells that are too large are divided."""


class Near(NamedTuple):
    """Pairs of rows: the place of one among those asked for, the slot of the other, their cosine; nearest first."""

    asked: Ints
    slots: Ints
    cosine: Floats


class Rows(NamedTuple):
    """Some rows of the bank: the coarse half of their codes as numbers, and the scale of each."""

    slots: Ints
    high: Floats
    """Written over when the next rows are read: fresh memory for each would cost more than what is done with it."""
    scale: Floats


class Lens(NamedTuple):
    """Orthonormal axes as columns, and two of zeros; without any, rows are seen as they are."""

    axes: Floats

    @property
    def plain(self) -> bool:
        """True if there are no axes."""
        return not self.axes.shape[1]

    def asked(self, vectors: Floats) -> Floats:
        """Unit rows as one side of a product."""
        if self.plain:
            return vectors
        out = self._seen(vectors, -1.0)
        out[:, -2] *= np.float32(UNSEEN)
        return out

    def held(self, rows: Rows, least: float) -> tuple[Floats, Floats]:
        """Rows of the bank as its other side, and what the product is at least where a cosine reaches the bar.

        Through a lens that is nothing: the bar is part of the product, which is quicker.
        """
        bars = np.float32(least - ROUNDED) / rows.scale - np.float32(LOW * rows.high.shape[1] ** 0.5)
        if self.plain:
            return rows.high, bars[:, None]
        return self._seen(rows.high, bars), np.zeros((1, 1), np.float32)

    def level(self) -> Floats:
        """The axes alone, turned within what they span so that rows reach about as far along each."""
        count = self.axes.shape[1] - 2
        axes = np.zeros((len(self.axes), -(-count // SIXTEEN) * SIXTEEN), dtype=np.float32)
        axes[:, :count] = self.axes[:, :count]
        return turn(axes)

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
    if len(there) * len(slots) <= EXACT:
        return _all_pairs(table, asked, there, slots, least, most)
    found: list[Near] = []
    for places, cell in _cells(table, asked[there], slots):
        found.append(_all_pairs(table, asked, there[places], cell, least, most, plain=True))
        if sum(len(pairs.asked) for pairs in found[1:]) > MANY + len(found[0].asked):
            found = [_nearest(table, _all(found), most)]
    return _nearest(table, _all(found), most)


def _cells(table: Table, asked: Ints, slots: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The bank in cells: for each the places of the rows asked for that look into it, and its slots."""
    centres = _centres(table, slots, -(-len(slots) // CELL))
    home = _nearest_centres(table, slots, centres, 1)[:, 0]
    for _ in range(DIVISIONS):
        sizes = np.bincount(home, minlength=len(centres))
        large = np.flatnonzero(sizes > 4 * CELL)
        if not len(large):
            break
        parts = [_centres(table, slots[home == one], -(-int(sizes[one]) // CELL)) for one in large]
        centres = np.concatenate([np.delete(centres, large, axis=0), *parts])
        home = _nearest_centres(table, slots, centres, 1)[:, 0]
    looked_into = _nearest_centres(table, asked, centres, min(PROBES, len(centres)))
    rows, askers = np.argsort(home, kind="stable"), np.argsort(looked_into.ravel(), kind="stable")
    row_ends = np.cumsum(np.bincount(home, minlength=len(centres)))
    asker_ends = np.cumsum(np.bincount(looked_into.ravel(), minlength=len(centres)))
    for here, there in zip(np.split(rows, row_ends[:-1]), np.split(askers, asker_ends[:-1]), strict=True):
        places = np.sort(there // looked_into.shape[1])
        for start in range(0, len(here), 8 * CELL):  # rows that are all alike cannot be divided
            yield places, slots[here[start : start + 8 * CELL]]


def _centres(table: Table, slots: Ints, count: int) -> Floats:
    """Centres of about `count` groups of rows, by spherical k-means on an even sample of them."""
    sample = _vectors(table, slots[:: max(1, len(slots) // (TRAINED * count))])
    centres = sample[:: max(1, len(sample) // count)][:count].copy()
    for _ in range(SETTLED):
        home = np.argmax(sample @ centres.T, axis=1)
        order = np.argsort(home, kind="stable")
        _, first = np.unique(home[order], return_index=True)
        centres = np.add.reduceat(sample[order], first, axis=0)
        centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-9)
    return centres


def _nearest_centres(table: Table, slots: Ints, centres: Floats, count: int) -> Ints:
    """The places of the `count` nearest centres of each row."""
    out = np.empty((len(slots), count), dtype=np.int64)
    for start in range(0, len(slots), TURN):
        near = _vectors(table, slots[start : start + TURN]) @ centres.T
        out[start : start + TURN] = np.argpartition(near, -count, axis=1)[:, -count:]
    return out


def _all_pairs(
    table: Table, asked: Ints, there: Ints, slots: Ints, least: float, most: int, *, plain: bool = False
) -> Near:
    """Some of the rows asked for (by their places) against all of some slots; `plain` grinds no lens."""
    found: list[Near] = []
    lens = Lens(np.zeros((table.dim, 0), np.float32)) if plain else None
    compiled = runtime.native is not None and table.dim <= WIDEST
    for start in range(0, len(there), TURN):
        part = there[start : start + TURN]
        queries = _vectors(table, asked[part])
        lens = lens or _lens(table, queries, slots, least)
        if compiled and not lens.plain:
            pairs = _pairs_compiled(
                table, asked[part], queries, slots, Small.of(lens, queries, least), least, most
            )
        else:
            pairs = _pairs(table, asked[part], queries, slots, lens, least, most)
        pairs = _nearest(table, pairs, most)
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
    closer = None if lens.plain else Closer(queries, least)
    passed = Passed()
    kept: list[Near] = []
    room = MANY
    for rows in _reading(table, slots):
        right, bars = lens.held(rows, least)
        for number, left in enumerate(lefts):
            shape = len(right), left.shape[1]
            size = shape[0] * shape[1]
            product = np.matmul(right, left, out=products[:size].reshape(shape))
            np.greater_equal(product, bars, out=reached[:size].reshape(shape))
            row, column = np.divmod(reached[:size].nonzero()[0], shape[1])
            column += number * ASKED
            if closer is not None:
                near = closer.look(rows, row, column)
                row, column = row[near], column[near]
            passed.add(column, rows.slots[row])
        if passed.count > PASSED:
            kept.append(_exact(table, asked, queries, passed, least))
            passed = Passed()
        if sum(len(pairs.asked) for pairs in kept) > room:
            kept = [_nearest(table, _all(kept), most)]
            room = max(MANY, 2 * len(kept[0].asked))
    kept.append(_exact(table, asked, queries, passed, least))
    return _all(kept)


def _pairs_compiled(
    table: Table, asked: Ints, queries: Floats, slots: Ints, seen: Small, least: float, most: int
) -> Near:
    """The same in one pass over the codes; no pair is lost, whatever the unseen parts of two rows are."""
    room = max(ROOM, PANEL * len(queries))
    columns, places = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    passed = Passed()
    kept: list[Near] = []
    held = 0
    for number, part in table.parts(slots):
        codes = _bytes_of(table, number)
        if codes is None:
            continue
        local = slots[part] - table.bases[number]
        while len(local):
            done, found = seen.join(codes, local, queries, columns, places)
            passed.add(columns[:found].copy(), places[:found] + table.bases[number])
            local = local[done:]
            if passed.count > PASSED:
                kept.append(_exact(table, asked, queries, passed, least))
                passed = Passed()
                held += len(kept[-1].asked)
            if held > MANY:
                kept = [_nearest(table, _all(kept), most)]
                held = len(kept[0].asked) // 2
    kept.append(_exact(table, asked, queries, passed, least))
    return _all(kept)


def _bytes_of(table: Table, number: int) -> Codes | None:
    """The coarse half of the codes of a segment or of the tail, and the scale of each row."""
    codes = table.codes(number)
    return None if codes is None else (codes.high, codes.scale)


class Small(NamedTuple):
    """A lens, and rows seen through it, in small numbers."""

    axes: NDArray[np.int16]
    """By half of the dimension, axis and parity."""
    numbers: Floats
    """A step of the axes; how far they are from the exact ones; how far the coarse half of a code may be from the
    whole; what the rows asked for are off, at most; their greatest length; the bar."""
    seen: NDArray[np.int8]
    worth: Floats
    """Per row asked for: the length that is not seen, 1 and the bar, all in steps of its numbers."""

    @classmethod
    def of(cls, lens: Lens, queries: Floats, least: float) -> Small:
        """Make them."""
        axes = lens.level()
        dim, count = axes.shape
        step = max(float(np.abs(axes).max()) / 0x7FFF, 127 * dim**0.5 / 0x7FFFFF00)
        rounded = np.zeros((dim + dim % 2, count), dtype=np.float32)
        np.rint(axes / np.float32(step), out=rounded[:dim])
        bent = float(np.linalg.norm(rounded[:dim] * np.float32(step) - axes))
        along = queries @ axes
        steps = np.maximum(np.abs(along).max(axis=1), np.float32(1e-6)) / np.float32(TOP)
        seen = np.rint(along / steps[:, None])
        off = along - seen * steps[:, None]
        unseen = np.sqrt(np.maximum(1 - np.vecdot(along, along), 0))
        loose = bent + float(np.sqrt(np.vecdot(off, off).max(initial=0)))
        longest = float(np.sqrt(np.vecdot(along, along).max(initial=0))) + loose
        low = LOW * dim**0.5
        bar = least - ROUNDED
        return cls(
            rounded.reshape(-1, 2, count).transpose(0, 2, 1).astype(np.int16, order="C"),
            np.array([step, bent, low, loose, longest, bar], dtype=np.float32),
            seen.astype(np.int8),
            (np.stack([unseen, np.ones_like(unseen), np.full_like(unseen, bar)], axis=1) / steps[:, None]),
        )

    def join(
        self, codes: Codes, local: Ints, queries: Floats, columns: Ints, places: Ints
    ) -> tuple[int, int]:
        """Put the pairs that may be near into two arrays; returns the rows looked at and the pairs found."""
        return runtime.native.join(*codes, local, *self, queries, columns, places)


class Closer:
    """Looks at pairs that passed a lens through the whole coarse half of the codes."""

    def __init__(self, queries: Floats, least: float) -> None:
        self._queries = queries
        self._least = least
        self._one = np.empty((AT_ONCE, queries.shape[1]), dtype=np.float32)
        self._other = np.empty_like(self._one)

    def look(self, rows: Rows, row: Ints, column: Ints) -> NDArray[np.bool_]:
        """One flag per pair: it may still reach the bar."""
        if len(row) > DENSE * len(
            rows.slots
        ):  # where many are alike, all against all costs less than pair by pair
            dots = (rows.high @ self._queries.T)[row, column]
        else:
            dots = np.empty(len(row), dtype=np.float32)
            for start in range(0, len(row), AT_ONCE):
                some = slice(start, start + AT_ONCE)
                size = len(row[some])
                one = rows.high.take(row[some], axis=0, out=self._one[:size], mode="clip")
                other = self._queries.take(column[some], axis=0, out=self._other[:size], mode="clip")
                np.vecdot(one, other, out=dots[some])
        dots += np.float32(LOW * rows.high.shape[1] ** 0.5)
        dots *= rows.scale[row]
        return dots >= self._least - ROUNDED


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
    """The rows of sorted slots, some at a time, each time in the same place."""
    packed = np.empty((BLOCK, table.dim), dtype=np.int8)
    single = np.empty((BLOCK, table.dim), dtype=np.float32)
    for number, part in table.parts(slots):
        local = slots[part] - table.bases[number]
        codes = table.codes(number)
        if codes is None:
            continue
        for start in range(0, len(local), BLOCK):
            piece = local[start : start + BLOCK]
            high = single[: len(piece)]
            if len(piece) == piece[-1] - piece[0] + 1:
                np.copyto(high, codes.high[piece[0] : piece[-1] + 1])
            elif codes is table.tail:
                np.copyto(high, codes.high[piece])
            else:
                np.copyto(high, codes.high.take(piece, axis=0, out=packed[: len(piece)], mode="clip"))
            yield Rows(piece + table.bases[number], high, codes.scale[piece])


def _lens(table: Table, queries: Floats, slots: Ints, least: float) -> Lens:
    """The lens for a bank, or none where it would cost more than it saves."""
    plain = Lens(np.zeros((table.dim, 0), np.float32))
    if table.dim <= SMALL or len(queries) < FEW or not len(slots):
        return plain
    sample = [
        rows._replace(high=rows.high.copy()) for rows in _reading(table, slots[:: -(-len(slots) // SAMPLE)])
    ]
    rows = np.concatenate([part.high * part.scale[:, None] for part in sample])
    axes = _foremost(rows, max(COLUMNS, table.dim // SHARE) - 2)
    lens = Lens(np.hstack([axes, np.zeros((table.dim, 2), np.float32)]))
    tried = queries[:: -(-len(queries) // TRIED)]
    left = lens.asked(tried).T
    passed = sum(np.count_nonzero(lens.held(part, least)[0] @ left >= 0) for part in sample)
    wasted = passed - np.count_nonzero(tried @ rows.T >= least)
    return lens if wasted <= WASTE * len(tried) * len(rows) else plain


def _foremost(rows: Floats, count: int) -> Floats:
    """About the axes along which rows reach furthest, orthonormal, by orthogonal iteration from some of the rows."""
    products = rows.T @ rows
    found = rows[:: max(1, len(rows) // count)][:count].T
    for _ in range(ROUNDS):
        found = np.linalg.qr(products @ found)[0]
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
    vectors = decode(join([part for _, part in codes_of(table, rows)]))
    if len(slots) > DENSE * len(rows):
        cosine = (vectors @ queries.T)[row, columns]
    else:
        cosine = np.vecdot(vectors[row], queries[columns])
    good = cosine >= least
    return Near(columns[good], slots[good], cosine[good].astype(np.float32))


def _nearest(table: Table, pairs: Near, most: int) -> Near:
    """The nearest of each, nearest first."""
    order = np.lexsort((table.rows[pairs.slots], -pairs.cosine, pairs.asked))
    asked = pairs.asked[order]
    first = np.searchsorted(asked, asked)
    order = order[np.arange(len(asked)) - first < most]
    return Near(pairs.asked[order], pairs.slots[order], pairs.cosine[order])
