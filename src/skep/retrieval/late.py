"""Late interaction: each word of the query against its closest word of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.sources import Tokens

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int32]

MAX_TOKENS = 256
"""Only the first pieces of a long text are compared."""
NEAR = 0.5
"""Cosine of two pieces from which they count as related; random pieces lie below it."""
LIGHT = 0.3
"""Pieces of the query that weigh less than this share of the heaviest are left out."""
MEMO_TEXTS = 8192
"""Texts whose pieces are remembered per table; the memory is emptied when it is full."""

_memo: WeakKeyDictionary[Tokens, dict[str, Ints]] = WeakKeyDictionary()


def late_scores(query: str, texts: Sequence[str], table: Tokens) -> Floats:
    """The weighted mean, over the pieces of the query, of the best match among the pieces of each text.

    A match is the cosine above `NEAR`, stretched to [0, 1], so that unrelated words give nothing.

    Args:
        query: The query as asked.
        texts: The texts of the short list.
        table: Pieces, vectors and weights.
    """
    out = np.zeros(len(texts), dtype=np.float64)
    asked = list(dict.fromkeys(table.tokens(query)))
    pieces = _pieces(texts, table)
    lengths = np.array([len(each) for each in pieces], dtype=np.int64)
    flat = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int32)
    if not asked or not flat.size:
        return out
    weights = table.token_weights(asked).astype(np.float64)
    heavy = weights >= LIGHT * weights.max()
    weights = weights[heavy]
    asked = [piece for piece, keep in zip(asked, heavy.tolist(), strict=True) if keep]
    distinct, back = np.unique(flat, return_inverse=True)
    near = table.token_vectors(asked) @ table.token_vectors(distinct.tolist()).T
    np.maximum(near - NEAR, 0.0, out=near)
    there = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[there]
    best = np.maximum.reduceat(near[:, back], starts, axis=1)
    out[there] = weights @ best / weights.sum()
    return out / (1.0 - NEAR)


def _pieces(texts: Sequence[str], table: Tokens) -> list[Ints]:
    """The pieces of each text. A bank's texts come up again and again, so they are kept, within bounds."""
    kept = _memo.setdefault(table, {})
    if len(kept) > MEMO_TEXTS:
        kept.clear()
    out: list[Ints] = []
    for text in texts:
        found = kept.get(text)
        if found is None:
            found = kept[text] = np.array(table.tokens(text)[:MAX_TOKENS], dtype=np.int32)
        out.append(found)
    return out
