"""Vector search: sketches narrow the field in two rounds, fine codes decide.

The first round reads the leading words of every sketch against the signs of the query; the second reads the whole
sketch of the rows that are left against three bits per axis; the third multiplies the coarse half of their fine
codes. Each keeps several times more rows than are wanted, and the exact cosines of the last ones decide. Few rows,
and the tail, go straight to the third round.

`index` asks. A compiled table (`core/vector_search.c`) does all rounds in one call; the numpy code here is its
oracle, and differs from it by rounding alone: that moves at most which rows the exact cosines look at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skep.index.bm25 import best_of, distinct_sorted
from skep.index.quantisation import (
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
    worth_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.filter_masks import Admitted
    from skep.index.row_table import Table

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
    """The fine codes of sorted slots, stretch by stretch; stretches without vectors are left out.

    The stretch, the codes of a part of the table, the slots of the stretch, and where the part begins.
    """
    for number, part in table.parts(slots):
        held = table.codes(number)
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
        out[part] = fine_cosines(codes, mine - base, query)
    return out


def vectors_of(table: Table, slots: Ints) -> Floats:
    """The vectors of sorted slots as they came, nearly exact; zeros where there is none."""
    out = np.zeros((len(slots), table.dim), dtype=np.float32)
    for part, codes, mine, base in stretches(table, slots):
        out[part] = original(codes, mine - base)
    return out


def wanted_of(k: int) -> int:
    """Rows whose exact cosines decide about the `k` nearest."""
    return k + k // 4 + 16


class Probe(NamedTuple):
    """A query as the sketches are asked: its axes coded with `BITS` bits each, of which the first is the sign."""

    bias_worth: np.float32
    """The weight of the bias against agreeing signs."""
    signs: Words
    """Per bit, most significant first, per word."""
    worths: Floats
    """Per bit, what an agreeing sign is worth."""


def make_probe(frame: Frame, query: Floats) -> Probe:
    """Turn a query into the frame and code it."""
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
        self._sample = Sample(None)
        self._steps: _Steps | None = None

    def forget(self) -> None:
        """Let go of the table that was searched last."""
        self._sample = Sample(None)

    def pool(
        self, table: Table, query: Query, admitted: Admitted, chosen: Ints, k: int
    ) -> tuple[Ints, Floats]:
        """The `k` nearest of the admitted rows, and those chosen before: slots in the order of their rows, and cosines.

        Ties go to the smaller row.
        """
        near = self._near(table, query, admitted, k, wanted_of(k))
        field = distinct_sorted(np.concatenate([near, chosen]))
        cosine = cosines_of(table, field, query)
        there = np.flatnonzero(~np.isnan(cosine))
        nearest = best_of(cosine[there], table.rows, field[there], k)
        slots = distinct_sorted(np.concatenate([chosen, nearest]))
        slots = slots[np.argsort(table.rows[slots], kind="stable")]
        return slots, cosine[field.searchsorted(slots)]

    def _plan(self, table: Table, admitted: Admitted, k: int) -> _Plan:
        """The rounds to go through."""
        if admitted.count <= FEW or table.frame is None:
            return _Plan(None, admitted.slots, 1, 0.0)
        base = table.base
        tail = int(np.count_nonzero(admitted.mask[base:])) if table.count > base else 0
        count = max(admitted.count - tail, 1)
        if count * GATHER_SHARE < base:
            slots = admitted.slots
            return _Plan(table.frame, slots[: int(slots.searchsorted(base))], count, 0.0)
        wanted = max(min(FIRST_ROOT * count**0.5, FIRST_BASE + count / FIRST_SHARE), 40.0 * k)
        return _Plan(table.frame, None, count, wanted)

    def near(self, table: Table, query: bytes, admitted: Admitted, k: int) -> tuple[Any, ...]:
        """The arguments with which a compiled search finds the `k` nearest of the admitted rows in the same rounds."""
        if admitted.count <= FEW or table.frame is None:
            given = None if admitted.all else admitted.slots
            return query, worth_of(table.dim), given, (False, 0.0, 1.0, False, 1, wanted_of(k), k)
        frame, slots, count, first = self._plan(table, admitted, k)
        compiled = table.compiled
        if frame is not None and not compiled.framed:
            compiled.frame(self._sampled(table).framed(frame))
        rounds = (
            True,
            first,
            float(count),
            count < table.base,
            max(SECOND, SECOND_SHARE * k),
            wanted_of(k),
            k,
        )
        return query, worth_of(table.dim), slots, rounds

    def _sampled(self, table: Table) -> Sample:
        if self._sample.table is not table:
            self._sample = Sample(table)
        return self._sample

    def _near(self, table: Table, query: Query, admitted: Admitted, k: int, wanted: int) -> Ints:
        """Sorted slots that hold, all but surely, the `k` nearest of the admitted rows."""
        plan = self._plan(table, admitted, k)
        if self._steps is None:
            self._steps = _Steps()
        if plan.frame is None:
            slots = admitted.slots
        else:
            probe = make_probe(plan.frame, query.single)
            if plan.slots is not None:
                found = plan.slots, self._steps.weighed(table, probe, plan.slots)
            else:
                mask = admitted.mask[: table.base] if plan.admitted < table.base else None
                bar = self._steps.bar(self._sampled(table), probe, mask, plan)
                found = self._steps.passing(table, probe, mask, bar)
            slots = _top(found[1], max(SECOND, SECOND_SHARE * k), found[0])
            if table.count > table.base:
                tail = admitted.mask[table.base :] & table.has_vector[table.base : table.count]
                slots = np.concatenate([slots, np.flatnonzero(tail) + table.base])
        if not table.all_vectors:  # one without would come before those that point away from the query
            slots = slots[table.has_vector[slots]]
        if len(slots) <= wanted:
            return slots
        return _top(self._steps.coarse(table, slots, query.single), wanted, slots)


class _Plan(NamedTuple):
    frame: Frame | None
    """None: too few rows for sketches."""
    slots: Ints | None
    """The slots to begin with; None for all that the mask admits."""
    admitted: int
    """The number of admitted rows outside the tail."""
    wanted: float
    """About how many should pass the first round."""


class _Steps:
    """The rounds in numpy."""

    def __init__(self) -> None:
        self._crossed = np.empty(BLOCK, dtype=np.uint64)
        self._own = np.empty(MAX_WORDS * BLOCK, dtype=np.uint64)
        self._counts = np.empty(BLOCK, dtype=np.uint8)
        self._differing = np.empty(BLOCK, dtype=np.uint8)
        self._estimates = np.empty(BLOCK, dtype=np.float32)
        self._spare = np.empty(BLOCK, dtype=np.float32)
        self._flags = np.empty(BLOCK, dtype=bool)
        self._bytes = np.empty((0, 0), dtype=np.int8)
        self._singles = np.empty((0, 0), dtype=np.float32)

    def weighed(self, table: Table, probe: Probe, slots: Ints) -> Floats:
        """Estimates of some sorted slots in the second round."""
        out = np.full(len(slots), -np.inf, dtype=np.float32)
        for number, part in table.parts(slots):
            base, sketches = table.bases[number], table.segments[number].sketches
            if sketches is None:
                continue
            local, here = slots[part] - base, out[part]
            for start in range(0, len(local), BLOCK):
                step = slice(start, start + BLOCK)
                here[step] = self._second_round(sketches, probe, local[step], None)
        return out

    def passing(self, table: Table, probe: Probe, mask: Mask | None, bar: float) -> tuple[Ints, Floats]:
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

    def bar(self, sample: Sample, probe: Probe, mask: Mask | None, plan: _Plan) -> float:
        """The bar of the first round that about as many admitted rows reach as are wanted, found on a sample."""
        if not len(sample.slots):
            return -np.inf
        agreement = self._agreeing(sample.sketches.planes, probe.signs[0], len(sample.slots))
        values = self._first_round(sample.sketches, probe, agreement)
        if mask is not None:
            values = values[mask[sample.slots]]
        above = min(len(values), max(1, round(len(values) * plan.wanted / plan.admitted)))
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

    def coarse(self, table: Table, slots: Ints, query: Floats) -> Floats:
        """Cosines of sorted slots from the coarse half of their fine codes."""
        out = np.full(len(slots), -np.inf, dtype=np.float32)
        for part, codes, mine, base in stretches(table, slots):
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
        self._framed: tuple[Any, ...] = ()

    def framed(self, frame: Frame) -> tuple[Any, ...]:
        """The frame and this sample as compiled calls take them."""
        if not self._framed:
            gain = float(frame.gain[0])
            self._framed = (frame.axes, frame.mean, gain, STEP, MEAN_SIZE, BITS, *self.sketches, self.slots)
        return self._framed


def _top(scores: Floats, wanted: int, slots: Ints) -> Ints:
    """The slots of the best `wanted` scores, in their order, with all that tie with the last."""
    if len(scores) <= wanted:
        return slots
    return slots[scores >= _reached(scores, wanted)]


def _reached(scores: Floats, wanted: int) -> float:
    """The least of the best `wanted` scores."""
    return float(np.partition(scores, len(scores) - wanted)[len(scores) - wanted])
