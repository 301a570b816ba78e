"""A fixed turn of the axes that makes coordinates alike, so that few bits describe each of them well.

Embeddings have a few large coordinates and many small ones. A Walsh-Hadamard matrix with some signs flipped
spreads every vector evenly and keeps angles. It holds nothing but ones and minus ones, and coordinates are
rounded to whole numbers small enough for their sums to be exact, so the turned vector is the same on every
machine and for any number of rows at once. Where the dimension is no power of two, the largest one that fits
is turned at the front, and then at the back.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import shake_128

import numpy as np
from numpy.typing import NDArray

from skep.linear import product

Floats = NDArray[np.float32]

EXACT_BITS = 24
"""Whole numbers of so many bits are exact in single precision, in whatever order they are added."""


def turn(rows: Floats) -> Floats:
    """Rows of length 1 at most, in the turned axes."""
    dim = rows.shape[1]
    unit = _unit(dim)
    data = rows * unit
    for part in _parts(dim):
        np.rint(data, out=data)
        data[:, part] = product(data[:, part], _matrix(part.stop - part.start)) * _shrink(part)
    data *= 1 / unit
    return data


def turn_back(rows: Floats) -> Floats:
    """Turned rows in the axes they came in."""
    data = rows.copy()
    for part in reversed(_parts(rows.shape[1])):
        data[:, part] = product(data[:, part], _matrix(part.stop - part.start).T) * _shrink(part)
    return data


def turn_one(vector: Floats) -> Floats:
    """A single vector in the turned axes, without waking threads for it."""
    data = vector.copy()
    for part in _parts(len(vector)):
        data[part] = np.vecdot(_matrix(part.stop - part.start).T, data[part]) * _shrink(part)
    return data


def _unit(dim: int) -> np.float32:
    """What a length of 1 becomes before rounding: no sum of a unit vector's coordinates leaves the exact range."""
    return np.float32(2 ** int(np.log2(2**EXACT_BITS / (2 * dim**0.5))))


def _shrink(part: slice) -> np.float32:
    return np.float32((part.stop - part.start) ** -0.5)


def _parts(dim: int) -> list[slice]:
    size = 1 << (dim.bit_length() - 1)
    return [slice(0, size)] if size == dim else [slice(0, size), slice(dim - size, dim)]


@lru_cache(maxsize=4)
def _matrix(size: int) -> Floats:
    """A Hadamard matrix with the signs of some columns and rows flipped, column by column in memory."""
    matrix = np.ones((1, 1), dtype=np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    bits = np.unpackbits(np.frombuffer(shake_128(b"skep").digest(size // 8 + 1), dtype=np.uint8))[:size]
    signs = bits.astype(np.float32) * 2 - 1
    return np.asfortranarray(matrix * signs[:, None])
