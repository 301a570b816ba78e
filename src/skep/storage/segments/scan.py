"""The nearest vectors: sketches narrow the field in two rounds, fine codes decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from skep.storage.segments.codes import FineCodes, fine_cosines

if TYPE_CHECKING:
    from skep.storage.segments.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

LEADING = 2
"""Words of the sketch that the first round reads, two query bits each."""
STEPS = {2: 0.4978, 3: 0.2930, 4: 0.1676}
"""Half the best step of a uniform code of so many bits, in standard deviations of a normal variable."""
BLOCK = 16384
EXHAUSTIVE = 1500
"""So few rows are not worth sketching."""


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


def near(table: Table, query: NDArray[np.float64], mask: Mask, k: int) -> Ints:
    """Sorted slots that hold, all but surely, the `k` nearest rows that the mask admits."""
    slots = np.flatnonzero(mask & table.has_vector[: table.count])
    return slots
