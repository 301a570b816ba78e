"""Late interaction: each word of the query against its closest word of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.sources import Tokens

    Floats = NDArray[np.float64]

MAX_TOKENS = 256
"""Only the first pieces of a long text are compared."""


def late_scores(query: str, texts: Sequence[str], table: Tokens) -> Floats:
    """The weighted mean, over the pieces of the query, of the best cosine among the pieces of each text.

    Args:
        query: The query as asked.
        texts: The texts of the short list.
        table: Pieces, vectors and weights.
    """
    asked = list(dict.fromkeys(table.tokens(query)))
    out = np.zeros(len(texts), dtype=np.float64)
    pieces = [table.tokens(text)[:MAX_TOKENS] for text in texts]
    lengths = np.array([len(each) for each in pieces])
    flat = np.array([piece for each in pieces for piece in each], dtype=np.int64)
    if not asked or not flat.size:
        return out
    distinct, back = np.unique(flat, return_inverse=True)
    near = table.token_vectors(asked) @ table.token_vectors(distinct.tolist()).T
    there = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[there]
    best = np.maximum.reduceat(near[:, back], starts, axis=1)
    weights = table.token_weights(asked).astype(np.float64)
    total = float(weights.sum())
    if total > 0:
        out[there] = weights @ best / total
    return out
