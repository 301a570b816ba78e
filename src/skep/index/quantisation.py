"""Quantisation: vectors as codes, exact enough to rank with and small enough to scan.

A unit vector is first rotated: a Walsh-Hadamard matrix with some signs flipped spreads its few large coordinates
evenly and keeps angles. Coordinates are rounded to whole numbers small enough for their sums to be exact, so the
rotated vector is the same on every machine and for any number of rows at once. Where the dimension is no power of
two, the largest one that fits is rotated at the front, and then at the back.

Then it is kept twice. As a *fine code*: 8 + 4 bits per dimension (`high` and `low`) with one scale per row, which
depends on nothing else, so that its cosine is the same wherever the row is stored. And as a *sketch*: the signs of
its coordinates after the bank's mean is taken away and the axes are rotated once more. Of long vectors only the 256
axes along which the bank varies most are sketched. The *frame* (mean and axes) only serves the sketch; all segments
of one index share it.

`segment_builder` and the tail encode, searches decode. Pure functions of arrays; the compiled core encodes many
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import shake_128
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skep import runtime
from skep.runtime import ALONE, alone

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]
    Words = NDArray[np.uint64]

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
    """Constants of a compiled rotation: the signs, a length of 1 before rounding and back, the factor of a part."""
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
    if runtime.native is not None:
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
    return runtime.native.turn(vector, length, *_one(len(vector)))


@lru_cache(maxsize=8)
def _one(dim: int) -> tuple[Floats, float, float]:
    """Constants of rotating one vector: the signs, the factor of a part, and a length of 1 in steps."""
    size = 1 << (dim.bit_length() - 1)
    return _signs(size), size**-0.5, unit_of_one(dim)


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
    kind = rows.dtype.char
    mixed = _hadamard(high, kind) @ (rows.reshape(count, high, low) @ _hadamard(low, kind))
    return mixed.reshape(count, size)


def _sides(size: int) -> tuple[int, int]:
    """The sizes of the two matrices."""
    low = 1 << (size.bit_length() - 1) // 2
    return low, size // low


def _unit(dim: int) -> np.float32:
    """A length of 1 before rounding: no sum of a unit vector's coordinates leaves the exact range."""
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
    """Signs: the axes that are flipped before they are mixed."""
    return flips(b"skep", size)


def flips(name: bytes, count: int) -> Floats:
    """Ones and minus ones as if by chance, the same wherever they are asked for by this name."""
    bits = np.unpackbits(np.frombuffer(shake_128(name).digest(count // 8 + 1), dtype=np.uint8))[:count]
    return bits.astype(np.float32) * 2 - 1


WORD = 64
"""Signs per machine word."""
MAX_WORDS = 4
"""Words of a sketch."""
SAMPLE = 16384
"""Rows the mean is taken from."""
AXES_SAMPLE = 4096
"""Rows the foremost axes of long vectors are found from."""
TINY = 1e-12
COMPILED = 16
"""Shorter vectors are left to numpy: the compiled loop rounds no number as large as theirs become."""
_BLOCK = 2048
_PARTS = np.float32(15)
"""The low half divides a step of the high one into this many."""
_MIDDLE = np.float32(8)
"""The low half of a row that the high half describes exactly."""


class FineCodes(NamedTuple):
    """Rows as a byte and a half per dimension; a scale of 0 marks a row without a vector."""

    high: NDArray[np.int8]
    low: NDArray[np.uint8]
    """Two dimensions per byte: those of the first half of the vector in the lower bits."""
    scale: Floats

    def pick(self, places: NDArray[np.int64]) -> FineCodes:
        """Some of the rows."""
        return FineCodes(
            self.high.take(places, axis=0), self.low.take(places, axis=0), self.scale.take(places)
        )


def join(parts: Sequence[FineCodes]) -> FineCodes:
    """All rows of several, in order."""
    return FineCodes(
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.scale for part in parts]),
    )


class Query(NamedTuple):
    """A query of length 1 in the turned axes."""

    steps: NDArray[np.float64]
    """Whole numbers, so that sums of products with fine codes are exact in any order."""
    single: Floats
    """The same, of length 1."""

    @property
    def worth(self) -> float:
        """The product of a step of it and a step of a fine code, per unit of the row's scale."""
        return worth_of(len(self.steps))


@lru_cache(maxsize=8)
def worth_of(dim: int) -> float:
    """The same for vectors of a length."""
    return 1 / (unit_of_one(dim) * float(_PARTS))


class Frame(NamedTuple):
    """The mean, the axes (one per row) and what an agreeing sign is worth per unit of spread."""

    mean: Floats
    axes: Floats
    gain: Floats
    """A single number."""

    @property
    def words(self) -> int:
        """Machine words per sketch."""
        return len(self.axes) // WORD


class Sketches(NamedTuple):
    """Signs (one plane per word), the length of the centred row, and its share of the mean."""

    planes: Words
    spread: Floats
    bias: Floats
    """Minus infinity for rows without a vector."""

    def stretch(self, part: slice) -> Sketches:
        """Some of the rows, as views."""
        return Sketches(self.planes[:, part], self.spread[part], self.bias[part])

    def pick(self, places: NDArray[np.int64]) -> Sketches:
        """Some of the rows."""
        return Sketches(self.planes.take(places, axis=1), self.spread.take(places), self.bias.take(places))


def encode(vectors: NDArray[Any]) -> FineCodes:
    """The fine codes of some vectors. Rows that are zero, or not numbers, count as having none."""
    data = np.array(vectors, dtype=np.float32, order="C")
    with np.errstate(invalid="ignore", over="ignore"):
        norms = np.sqrt(np.vecdot(data, data))
        sound = np.isfinite(norms) & (norms > 0)
        if not sound.all():
            data[~sound] = 0
            norms[~sound] = 1
        data /= norms[:, None]
    if runtime.native is not None and data.shape[1] >= COMPILED:
        codes = no_codes(*data.shape)
        runtime.native.encode(data, sound, *constants(data.shape[1]), *codes)
        return codes
    data = turn(data)
    scale = np.maximum(data.max(axis=1, initial=0), -data.min(axis=1, initial=0)) / np.float32(127)
    data /= np.where(sound, scale, 1)[:, None]
    high = np.rint(data)
    data -= high
    data *= _PARTS
    np.rint(data, out=data)
    data += _MIDDLE
    parts = data.clip(0, 15).astype(np.uint8)
    half = -(-data.shape[1] // 2)
    low = parts[:, :half].copy()
    low[:, : data.shape[1] - half] |= parts[:, half:] << 4
    return FineCodes(high.astype(np.int8), low, np.where(sound, scale, 0).astype(np.float32))


def no_codes(count: int, dim: int) -> FineCodes:
    """The codes of rows without a vector, to be filled in."""
    return FineCodes(
        np.zeros((count, dim), dtype=np.int8),
        np.zeros((count, -(-dim // 2)), dtype=np.uint8),
        np.zeros(count, dtype=np.float32),
    )


def _spread_out(codes: FineCodes, kind: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """High and low halves put together, in steps of the low one, each too large by `_MIDDLE`."""
    count, dim = codes.high.shape
    half = codes.low.shape[1]
    data = np.empty((count, dim), dtype=kind)
    data[:, :half] = codes.low & 15
    data[:, half:] = codes.low[:, : dim - half] >> 4
    data += codes.high * _PARTS
    return data


def decode(codes: FineCodes) -> Floats:
    """The vectors that fine codes stand for, in the turned axes."""
    data = _spread_out(codes)
    data -= _MIDDLE
    data *= (codes.scale / _PARTS)[:, None]
    return data


def original(codes: FineCodes, places: NDArray[np.int64]) -> Floats:
    """The vectors that some of the fine codes stand for, in the axes they came in."""
    codes = codes.pick(places)
    data = _spread_out(codes)
    data -= _MIDDLE
    data = turn_back(data)
    data *= (codes.scale / _PARTS)[:, None]
    return data


def turned(vector: Floats, length: float) -> Query:
    """A query of some length as fine codes are asked."""
    return Query(*turn_one(vector, length))


def fine_cosines(codes: FineCodes, places: NDArray[np.int64], query: Query) -> Floats:
    """Cosines of some rows with a query, the same to the last bit wherever they are stored; nan without a vector."""
    codes = codes.pick(places)
    found = np.vecdot(_spread_out(codes, np.float64), query.steps)
    found -= float(_MIDDLE) * query.steps.sum()
    found *= query.worth
    found *= codes.scale
    found[codes.scale == 0] = np.nan
    return found.astype(np.float32)


def fit_frame(codes: FineCodes) -> Frame | None:
    """A frame for rows like these; None when none of them has a vector."""
    there = np.flatnonzero(codes.scale > 0)
    if not len(there):
        return None
    if len(there) > SAMPLE:
        there = there[np.linspace(0, len(there) - 1, SAMPLE).astype(np.int64)]
    rows = np.empty((len(there), codes.high.shape[1]), dtype=np.float32)
    for start in range(0, len(there), _BLOCK):
        rows[start : start + _BLOCK] = decode(codes.pick(there[start : start + _BLOCK]))
    mean = rows.mean(axis=0)
    rows = rows[:: max(1, len(rows) // AXES_SAMPLE)] - mean
    axes = _axes(rows)
    sizes = np.abs(alone(rows, np.ascontiguousarray(axes.T)))
    spread = np.sqrt(np.vecdot(sizes, sizes))
    gain = float((spread * spread).sum()) / max(float(sizes.sum()) * float(spread.mean()), TINY)
    return Frame(mean, axes, np.array([gain], dtype=np.float32))


def _axes(rows: Floats) -> Floats:
    """Axes to take signs along: the foremost of the rows, turned so that each says as much as any other."""
    dim = rows.shape[1]
    count = min(MAX_WORDS, -(-dim // WORD)) * WORD
    axes = np.zeros((count, dim), dtype=np.float32)
    axes[: min(dim, count)] = foremost(rows, count) if dim > count else np.eye(dim, dtype=np.float32)
    signs = flips(b"axes", 3 * count).reshape(3, count)
    return turn(turn(turn(np.diag(signs[0])) * signs[1]) * signs[2]) @ axes


def foremost(rows: Floats, count: int) -> Floats:
    """About the `count` axes along which rows vary most, foremost first, by orthogonal iteration."""
    count = min(count, rows.shape[1])
    found = flips(b"foremost", rows.shape[1] * count).reshape(-1, count)
    for _ in range(3):
        found = np.linalg.qr(rows.T @ (rows @ found))[0]
    return found.T


def sketch(codes: FineCodes, frame: Frame) -> Sketches:
    """The sketches of rows, in blocks so that little memory is needed."""
    count = len(codes.scale)
    planes = np.empty((frame.words, count), dtype=np.uint64)
    spread = np.empty(count, dtype=np.float32)
    bias = np.empty(count, dtype=np.float32)
    axes = np.ascontiguousarray(frame.axes.T)
    for start in range(0, count, _BLOCK):
        part = slice(start, min(start + _BLOCK, count))
        rows = decode(FineCodes(codes.high[part], codes.low[part], codes.scale[part]))
        bias[part] = np.vecdot(rows, frame.mean)
        rows -= frame.mean
        turned = alone(rows, axes)
        spread[part] = np.sqrt(np.vecdot(turned, turned))
        planes[:, part] = pack(turned > 0).T
    missing = codes.scale == 0
    spread[missing] = 0
    bias[missing] = -np.inf
    return Sketches(planes, spread, bias)


def pack(signs: NDArray[np.bool_] | NDArray[np.uint8]) -> Words:
    """Rows of flags (zero or not) as rows of 64-bit words."""
    return np.packbits(signs, axis=-1, bitorder="little").view("<u8").astype(np.uint64, copy=False)
