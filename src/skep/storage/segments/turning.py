"""A fixed turn of the axes that makes coordinates alike, so that few bits describe each of them well.

Embeddings have a few large coordinates and many small ones. A Walsh-Hadamard matrix with some signs flipped
spreads every vector evenly and keeps angles. It holds nothing but ones and minus ones, and coordinates are
rounded to whole numbers small enough for their sums to be exact, so the turned vector is the same on every
machine and for any number of rows at once. A query is turned, and rows are turned back, in the same manner. Where
the dimension is no power of two, the largest one that fits is turned at the front, and then at the back.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from skep import kernels
from skep.digests import shake_128
from skep.linear import ALONE, product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]


EXACT_BITS, DOUBLE_BITS = 24, 53
"""Whole numbers of so many bits are exact in single and double precision, in whatever order they are added."""
STEP_BITS = 11
"""A fine code is a whole number of so many bits, and a sign."""


def turn(rows: Floats) -> Floats:
    """Rows of length 1 at most, in the turned axes; in blocks that stay in the cache and wake no thread."""
    out = np.empty_like(rows, order="C")
    size = 1 << (rows.shape[1].bit_length() - 1)
    block = max(1, ALONE // (size * max(_sides(size))))
    for start in range(0, len(rows), block):
        stretch = slice(start, start + block)
        out[stretch] = _turned(rows[stretch])
    return out


def _turned(rows: Floats) -> Floats:
    count, dim = rows.shape
    unit = _unit(dim)
    data = rows * unit
    for part in _parts(dim):
        np.rint(data, out=data)
        size = part.stop - part.start
        low, high = _sides(size)
        once = (data[:, part] * _signs(size)).reshape(count * high, low) @ _hadamard(low)
        twice = np.matmul(_hadamard(high), once.reshape(count, high, low))
        data[:, part] = twice.reshape(count, size) * _shrink(part)
    data *= 1 / unit
    return data


@lru_cache(maxsize=8)
def constants(dim: int) -> tuple[Floats, float, float, float]:
    """What a compiled turn needs: the signs, a length of 1 before rounding and back, and how much a part shrinks."""
    size, unit = 1 << (dim.bit_length() - 1), _unit(dim)
    return _signs(size), float(unit), float(1 / unit), float(_shrink(slice(0, size)))


def turn_back(steps: Floats) -> Floats:
    """Turned rows of whole numbers of 12 bits in the axes they came in.

    Rows that are turned twice are rounded in between, far below their own steps, so that every sum is exact here too.
    """
    data = steps.copy()
    dim = data.shape[1]
    for part in reversed(_parts(dim)):
        size = part.stop - part.start
        data[:, part] = _mixed(data[:, part]) * (_signs(size) * _shrink(part))
        if part.start:
            data[:, part] = np.rint(data[:, part] * grid(dim)) / grid(dim)
    return data


def turn_one(vector: Floats, length: float) -> tuple[Doubles, Floats]:
    """A single vector in the turned axes: in whole steps of one divided by `unit_of_one`, and of length 1."""
    dim = len(vector)
    if kernels.native is not None:
        made = packed(vector, length)
        return np.frombuffer(made, np.float64, dim), np.frombuffer(made, np.float32, dim, 8 * dim)
    signs, shrink, unit = _one(dim)
    data = vector / np.float32(length) * np.float64(unit)
    for part in _parts(dim):
        whole = np.rint(data[part]) * signs
        data[part] = _mixed(whole.reshape(1, -1))[0] * shrink
    np.rint(data, out=data)
    return data, (data * (1 / unit)).astype(np.float32)


def packed(vector: Floats, length: float) -> bytes:
    """The same as bytes, one after the other, as compiled searches take it."""
    return kernels.native.turn(vector, length, *_one(len(vector)))


@lru_cache(maxsize=8)
def _one(dim: int) -> tuple[Floats, float, float]:
    """What turning a single vector needs: the signs, how much a part shrinks, and a length of 1 in steps."""
    size = 1 << (dim.bit_length() - 1)
    return _signs(size), size**-0.5, unit_of_one(dim)


def turning_of(dim: int) -> tuple[Floats, float, float]:
    """What compiled loops need to turn back: the signs, what a sum shrinks by, and the grid."""
    size = 1 << (dim.bit_length() - 1)
    return _signs(size), float(_shrink(slice(0, size))), float(grid(dim))


@lru_cache(maxsize=8)
def unit_of_one(dim: int) -> float:
    """Steps of a single vector per length of 1: no sum of its products with rows of 12 bits leaves 53 bits."""
    return 2.0 ** (DOUBLE_BITS - STEP_BITS - 1 - (dim.bit_length() + 1) // 2)


def grid(dim: int) -> np.float32:
    """Steps per unit of a row that was turned back once: no sum of them leaves the exact range."""
    return np.float32(2.0 ** (EXACT_BITS - STEP_BITS - dim.bit_length()))


def _mixed(rows: Any) -> Any:
    """Rows times the Hadamard matrix of their length, as two small products: it is the Kronecker product of two."""
    count, size = rows.shape
    low, high = _sides(size)
    once = product(rows.reshape(count * high, low), _hadamard(low, rows.dtype.char)).reshape(count, high, low)
    twice = product(once.transpose(0, 2, 1).reshape(count * low, high), _hadamard(high, rows.dtype.char))
    return twice.reshape(count, low, high).transpose(0, 2, 1).reshape(count, size)


def _sides(size: int) -> tuple[int, int]:
    """The sizes of the two matrices."""
    low = 1 << (size.bit_length() - 1) // 2
    return low, size // low


def _unit(dim: int) -> np.float32:
    """What a length of 1 becomes before rounding: no sum of a unit vector's coordinates leaves the exact range."""
    return np.float32(2 ** int(np.log2(2**EXACT_BITS / (2 * dim**0.5))))


def _shrink(part: slice) -> np.float32:
    return np.float32((part.stop - part.start) ** -0.5)


def _parts(dim: int) -> list[slice]:
    size = 1 << (dim.bit_length() - 1)
    return [slice(0, size)] if size == dim else [slice(0, size), slice(dim - size, dim)]


@lru_cache(maxsize=8)
def _hadamard(size: int, kind: str = "f") -> Any:
    matrix = np.ones((1, 1), dtype=kind)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


@lru_cache(maxsize=4)
def _signs(size: int) -> Floats:
    """Which axes are flipped before they are mixed."""
    return flips(b"skep", size)


def flips(name: bytes, count: int) -> Floats:
    """Ones and minus ones as if by chance, the same wherever they are asked for by this name."""
    bits = np.unpackbits(np.frombuffer(shake_128(name).digest(count // 8 + 1), dtype=np.uint8))[:count]
    return bits.astype(np.float32) * 2 - 1
