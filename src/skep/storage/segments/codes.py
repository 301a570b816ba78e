"""Vectors as codes: exact enough to rank with, small enough to scan.

A unit vector is first turned (see `turning`) and then kept twice. As a *fine code*: 8 + 4 bits per dimension
(`high` and `low`) with one scale per row, which depends on nothing else, so that its cosine is the same wherever
the row is stored. And as a *sketch*: the signs of its coordinates after the bank's mean is taken away and the axes
are turned once more. Signs are scanned by counting bits; the fine code decides. Of long vectors only the
256 axes along which the bank varies most are sketched.

The *frame* (mean and axes) only serves the sketch. All segments of one index share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from skep import kernels
from skep.linear import alone
from skep.storage.segments.turning import constants, flips, turn, turn_back, turn_one, unit_of_one
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Words = NDArray[np.uint64]


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
        """What a step of it times a step of a fine code is worth, per unit of the row's scale."""
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
    if kernels.native is not None and data.shape[1] >= COMPILED:
        codes = no_codes(*data.shape)
        kernels.native.encode(data, sound, *constants(data.shape[1]), *codes)
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


def original(codes: FineCodes) -> Floats:
    """The vectors that fine codes stand for, in the axes they came in."""
    data = _spread_out(codes)
    data -= _MIDDLE
    data = turn_back(data)
    data *= (codes.scale / _PARTS)[:, None]
    return data


def turned(vector: Floats, length: float) -> Query:
    """A query of some length as fine codes are asked."""
    return Query(*turn_one(vector, length))


def fine_cosines(codes: FineCodes, query: Query) -> Floats:
    """Cosines with a query, the same to the last bit wherever the rows are stored; nan for rows without a vector."""
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
