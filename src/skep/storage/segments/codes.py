"""Vectors as codes: exact enough to rank with, small enough to scan.

A unit vector is kept twice. As a *fine code*: 8 + 8 bits per dimension (`high` and `low`) with one scale per row,
in the embedder's own axes, so that its cosine is the same wherever the row is stored. And as a *sketch*: the
signs of its coordinates after the bank's mean is taken away and the axes are turned, most telling axes first.
Signs are scanned by counting bits; the fine code decides.

The *frame* (mean and axes) only serves the sketch. All segments of one index share it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Words = NDArray[np.uint64]

WORD = 64
"""Signs per machine word."""
MAX_WORDS = 8
"""Axes beyond 512 tell next to nothing; the fine code sees them."""
SAMPLE = 16384
"""Rows the frame is fitted to."""
SEED = 20240229
_BLOCK = 8192
_LOW = 254.0
"""The low byte divides a step of the high one into this many."""


class FineCodes(NamedTuple):
    """Rows as two bytes per dimension; a scale of 0 marks a row without a vector."""

    high: NDArray[np.int8]
    low: NDArray[np.int8]
    scale: Floats


class Frame(NamedTuple):
    """The mean, the axes (one per row, most telling first) and what a sign is worth on each block of axes.

    Gains are per unit of `Sketches.spread`.
    """

    mean: Floats
    axes: Floats
    gains: Floats

    @property
    def words(self) -> int:
        """Machine words per sketch."""
        return len(self.axes) // WORD


class Sketches(NamedTuple):
    """Signs (one plane of words per block of axes), the length of the centred row, and its share of the mean."""

    planes: Words
    spread: Floats
    bias: Floats


def encode(vectors: NDArray[Any]) -> FineCodes:
    """The fine codes of some vectors. Rows that are zero, or not numbers, count as having none."""
    data = np.array(vectors, dtype=np.float32, order="C")
    with np.errstate(invalid="ignore", over="ignore"):
        norms = np.sqrt(np.vecdot(data, data))
        sound = np.isfinite(norms) & (norms > 0)
        data[~sound] = 0
        data /= np.where(sound, norms, 1)[:, None]
    scale = np.maximum(data.max(axis=1, initial=0), -data.min(axis=1, initial=0)) / np.float32(127)
    data /= np.where(sound, scale, 1)[:, None]
    high = np.rint(data)
    data -= high
    data *= np.float32(_LOW)
    return FineCodes(
        high.astype(np.int8), np.rint(data).astype(np.int8), np.where(sound, scale, 0).astype(np.float32)
    )


def decode(high: NDArray[np.int8], low: NDArray[np.int8], scale: Floats) -> Floats:
    """The vectors that fine codes stand for."""
    data = low.astype(np.float32)
    data /= np.float32(_LOW)
    data += high
    data *= scale[:, None]
    return data


def fine_cosines(
    high: NDArray[np.int8], low: NDArray[np.int8], scale: Floats, query: NDArray[np.float64]
) -> Floats:
    """Cosines with a unit query, the same to the last bit wherever the rows are stored."""
    data = low.astype(np.float64)
    data /= _LOW
    data += high
    return (np.vecdot(data, query) * scale).astype(np.float32)


def fit_frame(codes: FineCodes) -> Frame | None:
    """A frame for rows like these; None when none of them has a vector."""
    there = np.flatnonzero(codes.scale > 0)
    if not len(there):
        return None
    if len(there) > SAMPLE:
        there = there[np.linspace(0, len(there) - 1, SAMPLE).astype(np.int64)]
    rows = decode(codes.high[there], codes.low[there], codes.scale[there])
    mean = rows.mean(axis=0)
    rows -= mean
    axes = _axes(rows)
    turned = rows @ axes.T
    blocks = turned.reshape(len(turned), -1, WORD)
    size = np.abs(blocks).sum(axis=2)
    gains = (blocks * blocks).sum(axis=(0, 2)) / np.maximum(size.sum(axis=0), 1e-12)
    usual = max(float(np.sqrt(np.vecdot(turned, turned)).mean()), 1e-12)
    return Frame(mean, axes, (gains / usual).astype(np.float32))


def _axes(rows: Floats) -> Floats:
    """Principal axes, turned at random inside each block of 64 so that every sign tells as much."""
    dim = rows.shape[1]
    count = min(MAX_WORDS, max(1, -(-dim // WORD))) * WORD
    principal = np.linalg.eigh(rows.T @ rows)[1][:, ::-1].T[:count]
    axes = np.zeros((count, dim), dtype=np.float32)
    axes[: len(principal)] = principal
    random = np.random.default_rng(SEED)
    for start in range(0, count, WORD):
        turn = np.linalg.qr(random.standard_normal((WORD, WORD)))[0].astype(np.float32)
        axes[start : start + WORD] = turn @ axes[start : start + WORD]
    return axes


def sketch(codes: FineCodes, frame: Frame) -> Sketches:
    """The sketches of rows, in blocks so that little memory is needed."""
    count = len(codes.scale)
    planes = np.empty((frame.words, count), dtype=np.uint64)
    spread = np.empty(count, dtype=np.float32)
    bias = np.empty(count, dtype=np.float32)
    for start in range(0, count, _BLOCK):
        part = slice(start, min(start + _BLOCK, count))
        rows = decode(codes.high[part], codes.low[part], codes.scale[part])
        bias[part] = rows @ frame.mean
        rows -= frame.mean
        turned = rows @ frame.axes.T
        spread[part] = np.sqrt(np.vecdot(turned, turned))
        planes[:, part] = pack(turned > 0).T
    missing = codes.scale == 0
    spread[missing] = 0
    bias[missing] = -np.inf
    return Sketches(planes, spread, bias)


def pack(signs: NDArray[np.bool_]) -> Words:
    """Rows of booleans as rows of 64-bit words."""
    return np.packbits(signs, axis=-1, bitorder="little").view("<u8").astype(np.uint64, copy=False)
