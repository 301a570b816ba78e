"""The nearest vectors: sketches narrow the field in two rounds, fine codes decide.

The first round reads the leading words of every sketch against two bits per axis of the query; the second reads
the whole sketch of the rows that are left against four bits; the third multiplies the coarse half of their fine
codes. Each keeps a few times more rows than the next can tell apart, and the exact cosine of the last ones is
what is returned. Few rows, and the tail, go straight to the third round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.codes import WORD, FineCodes, Frame, Sketches, fine_cosines, pack

if TYPE_CHECKING:
    from skep.storage.segments.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

LEADING = 2
"""Words of the sketch that the first round reads."""
FIRST_BITS, SECOND_BITS = 2, 4
"""Bits per axis of the query in either round."""
STEPS = {1: 0.7979, 2: 0.4978, 3: 0.2930, 4: 0.1676}
"""Half the best step of a uniform code of so many bits, in standard deviations of a normal variable."""
BLOCK = 16384
FEW = 1500
"""So few rows are multiplied at once."""
FIRST_SHARE, FIRST_LEAST = 12, 4000
"""After the first round: one row in so many, but not fewer than that."""
SECOND_LEAST = 1000
"""After the second round, for 50 wanted rows."""
GATHER_SHARE = 5
"""A filter that admits fewer than one row in so many is scanned by gathering."""


def codes_of(table: Table, slots: Ints) -> Iterator[tuple[slice, FineCodes]]:
    """The fine codes of sorted slots, stretch by stretch; stretches without vectors are left out."""
    for number, part in table.parts(slots):
        local = slots[part] - table.bases[number]
        if number == len(table.segments):
            if table.dim:
                yield part, table.tail.codes(local)
        elif (held := table.segments[number].codes) is not None:
            yield part, FineCodes(held.high[local], held.low[local], held.scale[local])


def cosines_of(table: Table, slots: Ints, query: NDArray[np.float64]) -> Floats:
    """The cosine of sorted slots with a unit query; nan where a row has no vector."""
    out = np.full(len(slots), np.nan, dtype=np.float32)
    for part, codes in codes_of(table, slots):
        found = fine_cosines(*codes, query)
        found[codes.scale == 0] = np.nan
        out[part] = found
    return out


class Probe(NamedTuple):
    """A query in the axes of a frame, with so many bits per axis.

    A sketch is worth `base - sum(steps * counts)` times its spread, plus its bias, where a count adds up, over
    the bits of the query, how many signs of a word differ, weighted by the worth of the bit.
    """

    planes: NDArray[np.uint64]
    """Bits (most significant first) by words by one."""
    steps: Floats
    """Per word."""
    base: float


def probe(turned: Floats, gains: Floats, bits: int) -> Probe:
    """Code a turned query."""
    blocks = turned.reshape(-1, WORD)
    half = np.sqrt(np.vecdot(blocks, blocks) / WORD) * np.float32(STEPS[bits])
    top = (1 << bits) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.nan_to_num(np.floor(blocks / (2 * half[:, None]))) + (top + 1) // 2
    levels = np.clip(levels, 0, top).astype(np.uint8)
    planes = np.stack([pack((levels >> bit) & 1 > 0)[:, 0] for bit in range(bits - 1, -1, -1)])
    worth = gains[: len(blocks)] * half
    return Probe(planes[:, :, None], 2 * worth, float(worth.sum()) * WORD * top)


class Scanner:
    """Finds near rows; keeps the buffers it needs between searches."""

    def __init__(self) -> None:
        self._estimates: Floats = np.zeros(0, dtype=np.float32)
        self._crossed = np.empty((FIRST_BITS * LEADING, BLOCK), dtype=np.uint64)
        self._counts = np.empty((FIRST_BITS * LEADING, BLOCK), dtype=np.uint8)
        self._spare = np.empty(BLOCK, dtype=np.float32)

    def near(self, table: Table, query: NDArray[np.float64], mask: Mask, k: int) -> Ints:
        """Sorted slots that hold, all but surely, the `k` nearest rows that the mask admits."""
        sketched = mask[: table.base]
        count = int(np.count_nonzero(sketched))
        tail = np.flatnonzero(mask[table.base :] & table.has_vector[table.base : table.count]) + table.base
        if count > FEW and table.frame is not None:
            slots = self._narrow(table, table.frame, query.astype(np.float32), sketched, count, k)
        else:
            slots = np.flatnonzero(sketched & table.has_vector[: table.base])
        slots = np.concatenate([slots, tail])
        wanted = k + k // 2 + 32
        if len(slots) <= wanted:
            return slots
        scores = _coarse(table, slots, query.astype(np.float32))
        return slots[_top(scores, wanted)]

    def _narrow(
        self, table: Table, frame: Frame, query: Floats, mask: Mask, count: int, k: int
    ) -> Ints:
        """Two rounds over the sketches."""
        turned = np.vecdot(frame.axes, query - frame.mean)
        first = probe(turned[: LEADING * WORD], frame.gains, FIRST_BITS)
        second = probe(turned, frame.gains, SECOND_BITS)
        wanted = max(count // FIRST_SHARE, FIRST_LEAST, 20 * k)
        if count * GATHER_SHARE < len(mask):
            slots = np.flatnonzero(mask)
        else:
            slots = self._first_round(table, first, mask, count, wanted)
        estimates = _weighed(table, slots, second)
        return slots[_top(estimates, max(SECOND_LEAST, 20 * k))]

    def _first_round(self, table: Table, query: Probe, mask: Mask, count: int, wanted: int) -> Ints:
        if len(self._estimates) < len(mask):
            self._estimates = np.empty(len(mask), dtype=np.float32)
        estimates = self._estimates[: len(mask)]
        for base, segment in zip(table.bases, table.segments, strict=False):
            here = estimates[base : base + segment.count]
            if segment.sketches is None:
                here.fill(-np.inf)
            else:
                self._scan(segment.sketches, query, here)
        bar = _bar(estimates, mask, count, wanted)
        kept = estimates >= bar
        if count < len(mask):
            kept &= mask
        return np.flatnonzero(kept)

    def _scan(self, sketches: Sketches, query: Probe, out: Floats) -> None:
        """Estimate the cosine of every row of a segment from the leading words of its sketch."""
        planes, spread, bias = sketches
        bits, words, _ = query.planes.shape
        for start in range(0, len(out), BLOCK):
            end = min(start + BLOCK, len(out))
            size = end - start
            crossed = self._crossed[: bits * words, :size].reshape(bits, words, size)
            counts = self._counts[: bits * words, :size].reshape(bits, words, size)
            np.bitwise_xor(planes[:words, start:end], query.planes, out=crossed)
            np.bitwise_count(crossed, out=counts)
            spare, here = self._spare[:size], out[start:end]
            here.fill(query.base)
            for word in range(words):
                held = counts[0, word]
                for bit in range(1, bits):
                    held += held
                    held += counts[bit, word]
                np.multiply(held, query.steps[word], out=spare)
                here -= spare
            here *= spread[start:end]
            here += bias[start:end]


def _weighed(table: Table, slots: Ints, query: Probe) -> Floats:
    """Estimates of the cosine of sorted slots from their whole sketches."""
    out = np.full(len(slots), -np.inf, dtype=np.float32)
    for number, part in table.parts(slots):
        held = table.segments[number].sketches
        if held is None:
            continue
        local = slots[part] - table.bases[number]
        crossed = held.planes.take(local, axis=1) ^ query.planes
        counts = np.bitwise_count(crossed)
        total = counts[0].astype(np.uint16)
        for each in counts[1:]:
            total += total
            total += each
        found = np.full(len(local), query.base, dtype=np.float32)
        for word, step in enumerate(query.steps):
            found -= total[word] * step
        found *= held.spread[local]
        found += held.bias[local]
        out[part] = found
    return out


def _coarse(table: Table, slots: Ints, query: Floats) -> Floats:
    """Cosines of sorted slots from the coarse half of their fine codes."""
    out = np.full(len(slots), -np.inf, dtype=np.float32)
    for number, part in table.parts(slots):
        local = slots[part] - table.bases[number]
        if number == len(table.segments):
            high, scale = table.tail.high[local], table.tail.scale[local]
        else:
            held = table.segments[number].codes
            if held is None:
                continue
            high, scale = held.high.take(local, axis=0).astype(np.float32), held.scale[local]
        np.multiply(np.vecdot(high, query), scale, out=out[part])
    return out


def _bar(estimates: Floats, mask: Mask, count: int, wanted: int) -> float:
    """A bar that about `wanted` of the admitted rows pass, found on a sample."""
    stride = max(1, len(estimates) // 8192)
    sample = estimates[::stride]
    if count < len(mask):
        sample = sample[mask[::stride]]
    above = min(len(sample) - 1, max(1, round(len(sample) * wanted / count)))
    return float(np.partition(sample, len(sample) - 1 - above)[len(sample) - 1 - above])


def _top(scores: Floats, wanted: int) -> Ints:
    """The places of the best `wanted` scores, ascending, with all that tie with the last."""
    if len(scores) <= wanted:
        return np.arange(len(scores))
    at = len(scores) - wanted
    return np.flatnonzero(scores >= np.partition(scores, at)[at])
