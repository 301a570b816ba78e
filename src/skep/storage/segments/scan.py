"""The nearest vectors: signs narrow the field, products narrow it further, fine codes decide.

The first round counts, for every row, the signs of its sketch that agree with the query's. The best few by that
count, the *pilots*, are multiplied with the query, by the coarse half of their fine codes. They tell how far the count
can be trusted here (a line through both, and how far rows lie from it), and so which other rows may still belong to
the nearest; those are multiplied too. The exact cosines of the last ones decide. Few rows, and the tail, are
multiplied at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.codes import (
    TINY,
    WORD,
    FineCodes,
    Frame,
    Sketches,
    fine_cosines,
    pack,
)

if TYPE_CHECKING:
    from skep.storage.segments.filters import Admitted
    from skep.storage.segments.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]

MEAN_SIZE = 0.7979
"""The mean absolute value of a normal variable."""
BLOCK = 32768
"""Rows per step of the first round; what a step touches fits a processor's cache."""
ROWS = 512
"""Rows per step of the second round."""
SAMPLED = 4096
"""Rows from which the bar of the first round is read."""
FEW = 2500
"""So few rows are multiplied at once."""
GATHER_SHARE = 8
"""A filter that admits fewer than one row in so many skips the first round."""
PILOTS, PILOTS_EACH = 400, 8
"""Rows that are multiplied first: so many, and so many more for each one wanted."""
DOUBT = 4.2
"""How many standard deviations a row may lie above what its signs promise."""
LEAST_SLOPE = 0.4
"""What a row's signs are worth at least, as a share of what they are worth on average."""
LOWEST = float(np.finfo(np.float32).min)
"""Below every estimate but that of a row without a vector."""


def codes_of(table: Table, slots: Ints) -> Iterator[tuple[slice, FineCodes]]:
    """The fine codes of sorted slots, stretch by stretch; stretches without vectors are left out."""
    for number, part in table.parts(slots):
        local = slots[part] - table.bases[number]
        if number == len(table.segments):
            if table.dim:
                yield part, table.tail.codes(local)
        elif (held := table.segments[number].codes) is not None:
            yield part, held.pick(local)


def cosines_of(table: Table, slots: Ints, query: Floats) -> Floats:
    """The cosine of sorted slots with a unit query; nan where a row has no vector."""
    out = np.full(len(slots), np.nan, dtype=np.float32)
    for part, codes in codes_of(table, slots):
        found = fine_cosines(codes, query)
        found[codes.scale == 0] = np.nan
        out[part] = found
    return out


class Probe(NamedTuple):
    """A query as the sketches are asked: its signs along the axes of the frame."""

    bias_worth: np.float32
    """What bias counts against agreeing signs."""
    signs: list[np.uint64]
    """Per word."""


def make_probe(frame: Frame, query: Floats) -> Probe:
    """The signs of a query in the frame."""
    turned = np.vecdot(frame.axes, query - frame.mean)
    size = max(math.sqrt(np.vecdot(turned, turned) / len(turned)), TINY)
    return Probe(
        bias_worth=np.float32(1 / max(2 * float(frame.gain[0]) * size * MEAN_SIZE, TINY)),
        signs=list(pack(turned > 0)),
    )


class Scanner:
    """Finds near rows; keeps the buffers it needs between searches."""

    def __init__(self) -> None:
        self._crossed = np.empty(BLOCK, dtype=np.uint64)
        self._counts = np.empty(BLOCK, dtype=np.uint8)
        self._differing = np.empty(BLOCK, dtype=np.uint8)
        self._spare = np.empty(BLOCK, dtype=np.float32)
        self._estimates = np.empty(0, dtype=np.float32)
        self._bytes = np.empty((0, 0), dtype=np.int8)
        self._singles = np.empty((0, 0), dtype=np.float32)

    def near(self, table: Table, query: Floats, admitted: Admitted, k: int) -> Ints:
        """Sorted slots that hold, all but surely, the `k` nearest of the admitted rows."""
        wanted = k + k // 4 + 16
        if admitted.count <= FEW or admitted.count * GATHER_SHARE < table.count or table.frame is None:
            slots = admitted.slots
            if not table.all_vectors:
                slots = slots[table.has_vector[slots]]
            if len(slots) <= wanted:
                return slots
            scores = self._products(table, slots, query)
        else:
            slots, scores = self._narrow(table, query, table.frame, admitted, k)
        return slots[_top(scores, wanted)]

    def _narrow(
        self, table: Table, query: Floats, frame: Frame, admitted: Admitted, k: int
    ) -> tuple[Ints, Floats]:
        """The sorted slots that may be among the `k` nearest, with their products."""
        probe = make_probe(frame, query)
        estimates = self._estimated(table, probe)
        mask = None if admitted.count == table.count else admitted.mask
        bar = _bar(estimates, mask, admitted.count, PILOTS + PILOTS_EACH * k)
        slots = _reaching(estimates, mask, bar)
        scores = self._products(table, slots, query)
        if len(slots) > k:
            bar, upper = _trusted(estimates[slots], scores, k, 1 / float(probe.bias_worth)), bar
            if bar < upper:
                more = _reaching(estimates, mask, bar)
                more = more[estimates[more] < upper]
                slots = np.concatenate([slots, more])
                scores = np.concatenate([scores, self._products(table, more, query)])
                order = slots.argsort()
                slots, scores = slots[order], scores[order]
        tail = np.flatnonzero(admitted.mask[table.base :] & table.has_vector[table.base : table.count])
        if len(tail):
            tail += table.base
            slots = np.concatenate([slots, tail])
            scores = np.concatenate([scores, self._products(table, tail, query)])
        return slots, scores

    def _estimated(self, table: Table, probe: Probe) -> Floats:
        """What the signs of every row of the segments promise; minus infinity for rows without a vector."""
        if len(self._estimates) < table.base:
            self._estimates = np.empty(table.base, dtype=np.float32)
        out = self._estimates[: table.base]
        for base, segment in zip(table.bases, table.segments, strict=False):
            if segment.sketches is None:
                out[base : base + segment.count] = -np.inf
                continue
            for start in range(0, segment.count, BLOCK):
                stop = min(start + BLOCK, segment.count)
                self._promised(
                    segment.sketches.stretch(slice(start, stop)), probe, out[base + start : base + stop]
                )
        return out

    def _promised(self, sketches: Sketches, probe: Probe, out: Floats) -> None:
        """Agreeing signs of a block, given the spread and bias of each row."""
        np.copyto(out, self._agreeing(sketches.planes, probe.signs, len(out)))
        out *= sketches.spread
        out += np.multiply(sketches.bias, probe.bias_worth, out=self._spare[: len(out)])

    def _agreeing(self, planes: Words, signs: list[np.uint64], size: int) -> Bytes:
        """Per row, half the signs less those that differ (and one less, so that it fits a byte).

        One-dimensional calls, because numpy sets them up several times faster than others.
        """
        crossed, counts, differing = self._crossed[:size], self._counts[:size], self._differing[:size]
        differing.fill(0)
        for plane, sign in zip(planes, signs, strict=True):
            np.bitwise_count(np.bitwise_xor(plane, sign, out=crossed), out=counts)
            differing += counts
        np.subtract(np.uint8(len(signs) * WORD // 2 - 1), differing, out=differing)
        return differing.view(np.int8)

    def _products(self, table: Table, slots: Ints, query: Floats) -> Floats:
        """Cosines of sorted slots from the coarse half of their fine codes."""
        out = np.full(len(slots), -np.inf, dtype=np.float32)
        for number, part in table.parts(slots):
            local = slots[part] - table.bases[number]
            if number == len(table.segments):
                high, scale = table.tail.high[local], table.tail.scale[local]
                np.multiply(np.vecdot(high, query), scale, out=out[part])
            elif (held := table.segments[number].codes) is not None:
                here = self._multiplied(held.high, local, query)
                np.multiply(here, held.scale.take(local), out=out[part])
        return out

    def _multiplied(self, high: Bytes, places: Ints, query: Floats) -> Floats:
        """The products of some rows, a step at a time; rows side by side are read where they lie."""
        if self._bytes.shape[1] != len(query):
            self._bytes = np.empty((ROWS, len(query)), dtype=np.int8)
            self._singles = np.empty((ROWS, len(query)), dtype=np.float32)
        out = np.empty(len(places), dtype=np.float32)
        dense = len(places) > 0 and int(places[-1]) - int(places[0]) + 1 == len(places)
        for start in range(0, len(places), ROWS):
            piece = places[start : start + ROWS]
            if dense:
                rows = high[piece[0] : piece[0] + len(piece)]
            else:
                rows = high.take(piece, axis=0, out=self._bytes[: len(piece)], mode="clip")
            singles = self._singles[: len(piece)]
            np.copyto(singles, rows)
            np.vecdot(singles, query, out=out[start : start + ROWS])
        return out


def _bar(estimates: Floats, mask: Mask | None, count: int, wanted: int) -> float:
    """What about `wanted` of the admitted rows reach in the first round, read from a sample."""
    stride = max(1, -(-len(estimates) // SAMPLED))
    values = estimates[::stride]
    if mask is not None:
        values = values[mask[: len(estimates) : stride]]
    above = min(len(values), max(1, round(len(values) * wanted / count)))
    if not above:
        return LOWEST
    return max(LOWEST, float(np.partition(values, len(values) - above)[len(values) - above]))


def _reaching(estimates: Floats, mask: Mask | None, bar: float) -> Ints:
    """The admitted rows that reach the bar, sorted."""
    passed = estimates >= np.float32(bar)
    if mask is not None:
        passed &= mask[: len(passed)]
    return passed.nonzero()[0]


def _trusted(estimates: Floats, scores: Floats, k: int, worth: float) -> float:
    """The estimate below which a row is hardly among the `k` nearest.

    A line through the estimates and products of the pilots says what to expect of an estimate, and how far off it is.

    Args:
        estimates: Of the pilots.
        scores: Their products.
        k: How many are wanted.
        worth: What one more in an estimate is worth on average.
    """
    middle, level = float(estimates.mean()), float(scores.mean())
    across, along = estimates - np.float32(middle), scores - np.float32(level)
    spread = float(np.vecdot(across, across))
    slope = max(float(np.vecdot(across, along)) / max(spread, TINY), LEAST_SLOPE * worth)
    off = along - np.float32(slope) * across
    error = math.sqrt(float(np.vecdot(off, off)) / len(off))
    kth = float(np.partition(scores, len(scores) - k)[len(scores) - k])
    return max(LOWEST, middle + (kth - DOUBT * error - level) / slope)


def _top(scores: Floats, wanted: int) -> Ints:
    """The places of the best `wanted` scores, ascending, with all that tie with the last."""
    if len(scores) <= wanted:
        return np.arange(len(scores))
    at = len(scores) - wanted
    return np.flatnonzero(scores >= np.partition(scores, at)[at])
