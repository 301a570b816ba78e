"""BM25 from counts, so that counts of many shelves can be added up before anything is scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

K1, B = 1.2, 0.75


def inverse_frequency(held: int, having: Any) -> NDArray[np.float64]:
    """ln(1 + (N - df + 0.5) / (df + 0.5)) of each term."""
    df = np.asarray(having, np.float64)
    return np.log1p(np.maximum(held - df, 0.0) / (df + 0.5) + 0.5 / (df + 0.5))


def impact(counts: Any, length: Any, mean: float, idf: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25 of each term (columns) for each memory (rows)."""
    tf = np.asarray(counts, np.float64)
    norm = K1 * (1 - B + B * np.asarray(length, np.float64) / max(mean, 1e-9))
    return idf * tf * (K1 + 1) / (tf + norm[:, None])
