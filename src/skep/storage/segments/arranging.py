"""The order of a segment's rows: those with like vectors stand near each other.

What a search looks at closely is alike, so it lies in fewer pieces of the file, of which the system keeps in memory
those that were touched. In the order in which they came, the candidates of one question are all over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skep.linear import alone
from skep.storage.segments.codes import AXES_SAMPLE, FineCodes, foremost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

FEW = 8192
"""Fewer rows are left in the order of their keys: there is little to gain, and looking a row up is a little quicker."""
AXES = 16
"""Axes along which rows are parted: the foremost."""
LEAF = 512
"""So few rows are not parted any more."""
SEEN = 256
"""Rows from which the axis is chosen along which some are parted."""
BLOCK = 2048


def arranged(codes: FineCodes | None) -> Ints | None:
    """The places of rows in an order in which like ones are neighbours; None where they may stay as they are."""
    if codes is None or len(codes.scale) < FEW or not (codes.scale > 0).any():
        return None
    along = _along(codes)
    order = np.arange(len(along))
    waiting = [(0, len(order))]
    while waiting:
        start, stop = waiting.pop()
        if stop - start <= LEAF:
            continue
        here = order[start:stop]
        axis = int(along[here[:: -(-len(here) // SEEN)]].var(axis=0).argmax())
        half = len(here) // 2
        order[start:stop] = here[np.argpartition(along[here, axis], half)]
        waiting += [(start, start + half), (start + half, stop)]
    return order


def _along(codes: FineCodes) -> Floats:
    """How far each row reaches along the foremost axes, from the coarse half of its code."""
    count = len(codes.scale)
    sample = _some(codes, slice(None, None, -(-count // AXES_SAMPLE)))
    axes = np.ascontiguousarray(foremost(sample - sample.mean(axis=0), AXES).T)
    out = np.empty((count, axes.shape[1]), dtype=np.float32)
    for start in range(0, count, BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = alone(_some(codes, part), axes)
    return out


def _some(codes: FineCodes, part: slice) -> Floats:
    return codes.high[part] * codes.scale[part, None]
