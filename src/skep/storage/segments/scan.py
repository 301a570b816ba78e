"""The nearest vectors: sketches narrow the field in two rounds, fine codes decide.

The first round reads the leading words of every sketch against the signs of the query; the second reads the whole
sketch of the rows that are left against three bits per axis; the third multiplies the coarse half of their fine
codes. Each keeps several times more rows than are wanted, and the exact cosines of the last ones decide. Few
rows, and the tail, go straight to the third round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.codes import LEADING, TINY, WORD, FineCodes, Frame, Sketches, fine_cosines, pack

if TYPE_CHECKING:
    from skep.storage.segments.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

BITS = 3
"""Bits per axis of the query in the second round."""
STEP = 0.2930
"""Half the best step of a uniform code of so many bits, in standard deviations of a normal variable."""
MEAN_SIZE = 0.7979
"""The mean absolute value of a normal variable."""
BLOCK = 16384
FEW = 2000
"""So few rows are multiplied at once."""
FIRST_ROOT = 32
"""Rows after the first round: this times the root of how many there are."""
SECOND = 1000
"""Rows after the second round, or twenty times what is wanted."""
GATHER_SHARE = 6
"""A filter that admits fewer than one row in so many skips the first round."""
_SHIFTS = np.arange(BITS - 1, -1, -1, dtype=np.uint8)[:, None, None]


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


class Scanner:
    """Finds near rows; keeps the buffers it needs between searches."""

    def __init__(self) -> None:
        self._estimates: Floats = np.zeros(0, dtype=np.float32)
        self._crossed = np.empty((LEADING, BLOCK), dtype=np.uint64)
        self._counts = np.empty((LEADING, BLOCK), dtype=np.uint8)
        self._spare = np.empty(BLOCK, dtype=np.float32)

    def near(self, table: Table, query: NDArray[np.float64], mask: Mask, k: int) -> Ints:
        """Sorted slots that hold, all but surely, the `k` nearest rows that the mask admits."""
        sketched = mask[: table.base]
        count = int(np.count_nonzero(sketched))
        single = query.astype(np.float32)
        if count > FEW and table.frame is not None:
            slots = self._narrow(table, table.frame, single, sketched, count, k)
        else:
            slots = np.flatnonzero(sketched & table.has_vector[: table.base])
        if table.count > table.base:
            tail = np.flatnonzero(mask[table.base :] & table.has_vector[table.base : table.count])
            slots = np.concatenate([slots, tail + table.base])
        wanted = k + k // 2 + 32
        return slots if len(slots) <= wanted else slots[_top(_coarse(table, slots, single), wanted)]

    def _narrow(self, table: Table, frame: Frame, query: Floats, mask: Mask, count: int, k: int) -> Ints:
        """Two rounds over the sketches."""
        turned = np.vecdot(frame.axes, query - frame.mean)
        if count * GATHER_SHARE < len(mask):
            slots = np.flatnonzero(mask)
        else:
            wanted = max(int(FIRST_ROOT * count**0.5), 40 * k)
            slots = self._first_round(table, frame, turned, mask, count, wanted)
        estimates = _second_round(table, frame, turned, slots)
        return slots[_top(estimates, max(SECOND, 20 * k))]

    def _first_round(
        self, table: Table, frame: Frame, turned: Floats, mask: Mask, count: int, wanted: int
    ) -> Ints:
        """About `wanted` admitted slots, by the signs of the leading words."""
        if len(self._estimates) < len(mask):
            self._estimates = np.empty(len(mask), dtype=np.float32)
        estimates = self._estimates[: len(mask)]
        leading = turned[: LEADING * WORD]
        signs = pack(leading > 0)[:, None]
        size = float(np.sqrt(np.vecdot(leading, leading) / len(leading)))
        worth = 2 * float(frame.gains[0]) * size * MEAN_SIZE
        for base, segment in zip(table.bases, table.segments, strict=False):
            here = estimates[base : base + segment.count]
            if segment.sketches is None:
                here.fill(-np.inf)
            else:
                self._scan(segment.sketches, signs, 1 / max(worth, TINY), here)
        kept = estimates >= _bar(estimates, mask, count, wanted)
        if count < len(mask):
            kept &= mask
        return np.flatnonzero(kept)

    def _scan(self, sketches: Sketches, signs: NDArray[np.uint64], bias_worth: float, out: Floats) -> None:
        """Rank every row of a segment: by how many signs agree, given its spread and bias."""
        planes, spread, bias = sketches
        words = len(signs)
        middle = np.uint8(words * WORD // 2 - 1)
        for start in range(0, len(out), BLOCK):
            end = min(start + BLOCK, len(out))
            crossed = self._crossed[:words, : end - start]
            counts = self._counts[:words, : end - start]
            np.bitwise_xor(planes[:words, start:end], signs, out=crossed)
            np.bitwise_count(crossed, out=counts)
            differing = counts[0]
            for each in counts[1:]:
                differing += each
            np.subtract(middle, differing, out=differing)
            here, spare = out[start:end], self._spare[: end - start]
            np.multiply(differing.view(np.int8), spread[start:end], out=here)
            np.multiply(bias[start:end], bias_worth, out=spare)
            here += spare


def _second_round(table: Table, frame: Frame, turned: Floats, slots: Ints) -> Floats:
    """Estimates of the cosine of sorted slots from their whole sketches, up to a constant."""
    blocks = turned.reshape(-1, WORD)
    half = np.sqrt(np.vecdot(blocks, blocks) / WORD) * np.float32(STEP)
    levels = blocks * (0.5 / np.maximum(half, TINY))[:, None] + (1 << BITS - 1)
    levels = levels.clip(0, (1 << BITS) - 1).astype(np.uint8)
    planes = pack(((levels >> _SHIFTS) & 1).view(bool))
    worth = frame.gains * half
    base = float(worth.sum()) * WORD * ((1 << BITS) - 1)
    out = np.full(len(slots), -np.inf, dtype=np.float32)
    for number, part in table.parts(slots):
        held = table.segments[number].sketches
        if held is not None:
            local = slots[part] - table.bases[number]
            counts = np.bitwise_count(held.planes.take(local, axis=1) ^ planes)
            total = counts[0].astype(np.uint16)
            for each in counts[1:]:
                total += total
                total += each
            found = np.full(len(local), base, dtype=np.float32)
            for word, step in enumerate((2 * worth).tolist()):
                found -= total[word] * np.float32(step)
            found *= held.spread.take(local)
            found += held.bias.take(local)
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
