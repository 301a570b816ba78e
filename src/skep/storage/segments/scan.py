"""The nearest vectors: sketches narrow the field in two rounds, fine codes decide.

The first round reads the leading words of every sketch against the signs of the query; the second reads the whole
sketch of the rows that are left against three bits per axis; the third multiplies the coarse half of their fine
codes. Each keeps several times more rows than are wanted, and the exact cosines of the last ones decide. Few
rows, and the tail, go straight to the third round.

Compiled loops (see `kernels`) do the first two rounds in one pass. What they give is the same to the last bit, but for
the probe and the third round, where they round elsewhere: that moves at most which rows exact cosines will look at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from skep import kernels
from skep.storage.segments.codes import (
    MAX_WORDS,
    TINY,
    WORD,
    FineCodes,
    Frame,
    Query,
    Sketches,
    fine_cosines,
    original,
    pack,
)
from skep.storage.segments.turning import turning_of
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.storage.segments.filters import Admitted
    from skep.storage.segments.table import Table

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]
    Mask = NDArray[np.bool_]
    Words = NDArray[np.uint64]


BITS = 3
"""Bits per axis of the query in the second round."""
STEP = 0.2930
"""Half the best step of a uniform code of so many bits, in standard deviations of a normal variable."""
MEAN_SIZE = 0.7979
"""The mean absolute value of a normal variable."""
BLOCK = 32768
"""Rows per step of the first two rounds; what a step touches fits a processor's cache."""
ROWS = 512
"""Rows per step of the third round."""
SAMPLED = 4096
"""Rows on which the bar of the first round is found."""
FEW = 2000
"""So few rows are multiplied at once."""
FIRST_ROOT, FIRST_BASE, FIRST_SHARE = 44, 13000, 100
"""Rows after the first round: so many times the root of how many there are; in large banks, fewer."""
SECOND, SECOND_SHARE = 1200, 24
"""Rows after the second round, or a multiple of what is wanted."""
GATHER_SHARE = 7
"""A filter that admits fewer than one row in so many skips the first round."""
_BITS = (1 << np.arange(BITS - 1, -1, -1)).astype(np.uint8)[:, None]


def stretches(table: Table, slots: Ints) -> Iterator[tuple[slice, FineCodes, Ints, int]]:
    """Where the fine codes of sorted slots lie, stretch by stretch; stretches without vectors are left out.

    The stretch, the codes of a part of the table, the slots of the stretch, and where the part begins.
    """
    for number, part in table.parts(slots):
        last = number == len(table.segments)
        held = (table.tail.codes if table.dim else None) if last else table.segments[number].codes
        if held is not None:
            yield part, held, slots[part], table.bases[number]


def codes_of(table: Table, slots: Ints) -> Iterator[tuple[slice, FineCodes]]:
    """The fine codes of sorted slots, stretch by stretch; stretches without vectors are left out."""
    for part, codes, mine, base in stretches(table, slots):
        yield part, codes.pick(mine - base)


def cosines_of(table: Table, slots: Ints, query: Query) -> Floats:
    """The cosine of sorted slots with a query; nan where a row has no vector."""
    out = np.full(len(slots), np.nan, dtype=np.float32)
    for part, codes, mine, base in stretches(table, slots):
        if kernels.native is not None:
            kernels.native.cosines(*codes, mine, base, query.steps, query.worth, out[part])
        else:
            out[part] = fine_cosines(codes.pick(mine - base), query)
    return out


def vectors_of(table: Table, slots: Ints) -> Floats:
    """The vectors of sorted slots as they came, nearly exact; zeros where there is none."""
    out = np.zeros((len(slots), table.dim), dtype=np.float32)
    for part, codes, mine, base in stretches(table, slots):
        if kernels.native is not None:
            kernels.native.vectors(*codes, mine, base, *turning_of(table.dim), out[part])
        else:
            out[part] = original(codes.pick(mine - base))
    return out


class Probe(NamedTuple):
    """A query as the sketches are asked: its axes coded with `BITS` bits each, of which the first is the sign."""

    bias_worth: np.float32
    """What bias counts against agreeing signs."""
    signs: Words
    """Per bit, most significant first, per word."""
    worths: Floats
    """Per bit, what an agreeing sign is worth."""


def make_probe(frame: Frame, query: Floats) -> Probe:
    """Turn a query into the frame and code it."""
    if kernels.native is not None:
        signs = np.empty((BITS, frame.words), dtype=np.uint64)
        size = kernels.native.probe(frame.axes, frame.mean, query, STEP, signs)
    else:
        turned = np.vecdot(frame.axes, query - frame.mean)
        size = max(math.sqrt(np.vecdot(turned, turned) / len(turned)), TINY)
        levels = turned * np.float32(0.5 / (STEP * size))
        levels += np.float32(1 << BITS - 1)
        np.clip(levels, 0, (1 << BITS) - 1, out=levels)
        signs = pack(levels.astype(np.uint8) & _BITS)
    gain = 2 * float(frame.gain[0])
    return Probe(
        bias_worth=np.float32(1 / max(gain * size * MEAN_SIZE, TINY)),
        signs=signs,
        worths=np.array([gain * STEP * size * (1 << bit) for bit in range(BITS - 1, -1, -1)], np.float32),
    )


class Scanner:
    """Finds near rows; keeps the buffers it needs between searches."""

    def __init__(self) -> None:
        self._crossed = np.empty(BLOCK, dtype=np.uint64)
        self._own = np.empty(MAX_WORDS * BLOCK, dtype=np.uint64)
        self._counts = np.empty(BLOCK, dtype=np.uint8)
        self._differing = np.empty(BLOCK, dtype=np.uint8)
        self._estimates = np.empty(BLOCK, dtype=np.float32)
        self._spare = np.empty(BLOCK, dtype=np.float32)
        self._flags = np.empty(BLOCK, dtype=bool)
        self._slots = np.empty(0, dtype=np.int64)
        self._reached = np.empty(0, dtype=np.float32)
        self._bytes = np.empty((0, 0), dtype=np.int8)
        self._singles = np.empty((0, 0), dtype=np.float32)
        self._sample = Sample(None)

    def forget(self) -> None:
        """Let go of the table that was searched last."""
        self._sample = Sample(None)

    def near(self, table: Table, query: Query, admitted: Admitted, k: int) -> Ints:
        """Sorted slots that hold, all but surely, the `k` nearest of the admitted rows."""
        if admitted.count <= FEW or table.frame is None:
            slots = admitted.slots
            if not table.all_vectors:
                slots = slots[table.has_vector[slots]]
        else:
            slots = self._narrow(table, make_probe(table.frame, query.single), admitted, k)
            if table.count > table.base:
                tail = admitted.mask[table.base :] & table.has_vector[table.base : table.count]
                slots = np.concatenate([slots, np.flatnonzero(tail) + table.base])
        wanted = k + k // 4 + 16
        return (
            slots if len(slots) <= wanted else _top(self._coarse(table, slots, query.single), wanted, slots)
        )

    def _narrow(self, table: Table, probe: Probe, admitted: Admitted, k: int) -> Ints:
        """Two rounds over the sketches, block by block while a block is in the cache."""
        mask = admitted.mask[: table.base]
        count = max(int(np.count_nonzero(mask)), 1)
        if count * GATHER_SHARE < len(mask):
            slots = admitted.slots[: int(np.searchsorted(admitted.slots, table.base))]
            found = slots, self._weighed(table, probe, slots)
        else:
            wanted = max(min(FIRST_ROOT * count**0.5, FIRST_BASE + count / FIRST_SHARE), 40.0 * k)
            bar = self._bar(table, probe, mask, count, wanted)
            passing = self._passing if kernels.native is None else self._passing_compiled
            found = passing(table, probe, None if count == len(mask) else mask, bar)
        return _top(found[1], max(SECOND, SECOND_SHARE * k), found[0])

    def _weighed(self, table: Table, probe: Probe, slots: Ints) -> Floats:
        """What some sorted slots reach in the second round."""
        out = np.full(len(slots), -np.inf, dtype=np.float32)
        for number, part in table.parts(slots):
            base, sketches = table.bases[number], table.segments[number].sketches
            if sketches is None:
                continue
            if kernels.native is not None:
                kernels.native.weigh(*sketches, probe.signs, probe.worths, slots[part], base, out[part])
                continue
            local, here = slots[part] - base, out[part]
            for start in range(0, len(local), BLOCK):
                step = slice(start, start + BLOCK)
                here[step] = self._second_round(sketches, probe, local[step], None)
        return out

    def _passing(self, table: Table, probe: Probe, mask: Mask | None, bar: float) -> tuple[Ints, Floats]:
        """The slots that reach the bar in the first round, and what they reach in the second."""
        slots: list[Ints] = [np.zeros(0, dtype=np.int64)]
        estimates: list[Floats] = [np.zeros(0, dtype=np.float32)]
        for base, segment in zip(table.bases, table.segments, strict=False):
            if segment.sketches is None:
                continue
            for start in range(0, segment.count, BLOCK):
                stop = min(start + BLOCK, segment.count)
                sketches = segment.sketches.stretch(slice(start, stop))
                agreement = self._agreeing(sketches.planes, probe.signs[0], stop - start)
                passed = self._flags[: stop - start]
                np.greater_equal(self._first_round(sketches, probe, agreement), bar, out=passed)
                if mask is not None:
                    passed &= mask[base + start : base + stop]
                local = passed.nonzero()[0]
                if len(local):
                    estimates.append(self._second_round(sketches, probe, local, agreement))
                    local += base + start
                    slots.append(local)
        return np.concatenate(slots), np.concatenate(estimates)

    def _passing_compiled(
        self, table: Table, probe: Probe, mask: Mask | None, bar: float
    ) -> tuple[Ints, Floats]:
        """The same in one pass."""
        if len(self._slots) < table.base:
            self._slots = np.empty(table.base, dtype=np.int64)
            self._reached = np.empty(table.base, dtype=np.float32)
        found = 0
        for base, segment in zip(table.bases, table.segments, strict=False):
            if segment.sketches is None:
                continue
            found += kernels.native.narrow(
                *segment.sketches,
                None if mask is None else mask[base : base + segment.count],
                *(probe.signs, probe.worths, probe.bias_worth, bar, base),
                *(self._slots[found:], self._reached[found:]),
            )
        return self._slots[:found], self._reached[:found]

    def _bar(self, table: Table, probe: Probe, mask: Mask, count: int, wanted: float) -> float:
        """What about `wanted` of the admitted rows reach in the first round, found on a sample."""
        if self._sample.table is not table:
            self._sample = Sample(table)
        sample = self._sample
        if not len(sample.slots):
            return -np.inf
        if kernels.native is not None:
            values = self._estimates[: len(sample.slots)]
            kernels.native.rank(*sample.sketches, probe.signs, probe.worths, probe.bias_worth, values)
        else:
            agreement = self._agreeing(sample.sketches.planes, probe.signs[0], len(sample.slots))
            values = self._first_round(sample.sketches, probe, agreement)
        if count < len(mask):
            values = values[mask[sample.slots]]
        above = min(len(values), max(1, round(len(values) * wanted / count)))
        return _reached(values, above) if above else -np.inf

    def _first_round(self, sketches: Sketches, probe: Probe, agreement: NDArray[np.int8]) -> Floats:
        """Rank a block by how many signs agree, given the spread and bias of each row."""
        size = len(agreement)
        here, spare = self._estimates[:size], self._spare[:size]
        np.copyto(here, agreement)
        here *= sketches.spread
        here += np.multiply(sketches.bias, probe.bias_worth, out=spare)
        return here

    def _second_round(
        self, sketches: Sketches, probe: Probe, local: Ints, agreement: NDArray[np.int8] | None
    ) -> Floats:
        """Estimate, up to a constant, the cosines of some rows of a block, whose signs may be counted already."""
        planes, spread, bias = sketches
        words, size = len(planes), len(local)
        out = np.zeros(size, dtype=np.float32)
        known = 0
        if agreement is not None:
            np.copyto(out, agreement.take(local))
            out *= probe.worths[0]
            known = 1
        own = self._own[: words * size].reshape(words, size)
        for plane, row in zip(planes, own, strict=True):
            plane.take(local, out=row, mode="clip")
        spare = self._spare[:size]
        for signs, worth in zip(probe.signs[known:], probe.worths[known:], strict=True):
            np.copyto(spare, self._agreeing(own, signs, size))
            spare *= worth
            out += spare
        out *= spread.take(local)
        out += bias.take(local)
        return out

    def _agreeing(self, planes: Words, signs: Words, size: int) -> NDArray[np.int8]:
        """Per row, half the signs less those that differ (and one less, so that it fits a byte).

        One-dimensional calls, because numpy sets them up several times faster than others.
        """
        crossed, counts, differing = self._crossed[:size], self._counts[:size], self._differing[:size]
        into = differing
        for plane, sign in zip(planes, signs, strict=True):
            np.bitwise_count(np.bitwise_xor(plane, sign, out=crossed), out=into)
            if into is counts:
                differing += counts
            into = counts
        np.subtract(np.uint8(len(signs) * WORD // 2 - 1), differing, out=differing)
        return differing.view(np.int8)

    def _coarse(self, table: Table, slots: Ints, query: Floats) -> Floats:
        """Cosines of sorted slots from the coarse half of their fine codes."""
        out = np.full(len(slots), -np.inf, dtype=np.float32)
        for part, codes, mine, base in stretches(table, slots):
            if kernels.native is not None:
                kernels.native.coarse(codes.high, mine, base, query, codes.scale, out[part])
            else:
                self._multiplied(codes, mine - base, query, out[part])
        return out

    def _multiplied(self, held: FineCodes, local: Ints, query: Floats, out: Floats) -> None:
        if self._bytes.shape[1] != len(query):
            self._bytes = np.empty((ROWS, len(query)), dtype=np.int8)
            self._singles = np.empty((ROWS, len(query)), dtype=np.float32)
        for start in range(0, len(local), ROWS):
            piece = local[start : start + ROWS]
            packed, single = self._bytes[: len(piece)], self._singles[: len(piece)]
            held.high.take(piece, axis=0, out=packed, mode="clip")
            np.copyto(single, packed)
            np.vecdot(single, query, out=out[start : start + ROWS])
        out *= held.scale.take(local)


class Sample:
    """The sketches of some rows from all over a table, side by side."""

    def __init__(self, table: Table | None) -> None:
        self.table = table
        self.slots = np.zeros(0, dtype=np.int64)
        parts: list[Sketches] = []
        if table is not None:
            stride = -(-table.base // SAMPLED)
            slots: list[Ints] = []
            for base, segment in zip(table.bases, table.segments, strict=False):
                if segment.sketches is not None:
                    parts.append(segment.sketches.stretch(slice(None, None, stride)))
                    slots.append(np.arange(base, base + segment.count, stride, dtype=np.int64))
            self.slots = np.concatenate(slots) if slots else self.slots
        self.sketches = Sketches(
            np.concatenate([part.planes for part in parts], axis=1) if parts else np.zeros((0, 0), np.uint64),
            np.concatenate([part.spread for part in parts] or [np.zeros(0, np.float32)]),
            np.concatenate([part.bias for part in parts] or [np.zeros(0, np.float32)]),
        )


def _top(scores: Floats, wanted: int, slots: Ints) -> Ints:
    """The slots of the best `wanted` scores, in their order, with all that tie with the last."""
    if len(scores) <= wanted:
        return slots
    if kernels.native is not None:
        out = np.empty(len(slots), dtype=np.int64)
        return out[: kernels.native.top(scores, wanted, slots, out)]
    return slots[scores >= _reached(scores, wanted)]


def _reached(scores: Floats, wanted: int) -> float:
    """What the best `wanted` scores reach."""
    if kernels.native is not None:
        return kernels.native.reach(scores, wanted)
    return float(np.partition(scores, len(scores) - wanted)[len(scores) - wanted])
