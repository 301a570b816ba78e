"""Late interaction: each word of the query against its closest word of the text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.sources import Tokens

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

MAX_TOKENS = 256
"""Only the first pieces of a long text are compared."""
NEAR = 0.5
"""Cosine of two pieces from which they count as related; random pieces lie below it."""
LIGHT = 0.3
"""Pieces of the query that weigh less than this share of the heaviest are left out."""
BLOCK = 12
"""Pieces of a text that are looked at together; a stretch is two blocks, about a sentence."""
SAME = 0.99
"""A match from which the text holds the very piece."""


class Matches(NamedTuple):
    """How well each piece of the query is matched in each text, by blocks of consecutive pieces."""

    best: Singles
    """Best match of each query piece (rows) in each block (columns), 0..1; the blocks of a text are neighbours."""
    first: Ints
    """The first block of every text that has any piece."""
    there: NDArray[np.bool_]
    """Which texts have any piece."""
    weights: Floats
    """How much each query piece counts."""


def late_scores(query: str, texts: Sequence[str], table: Tokens) -> Floats:
    """The weighted mean, over the pieces of the query, of the best match among the pieces of each text.

    A match is the cosine above `NEAR`, stretched to [0, 1], so that unrelated words give nothing.

    Args:
        query: The query as asked.
        texts: The texts of the short list.
        table: Pieces, vectors and weights.
    """
    found = matches(query, texts, table)
    return np.zeros(len(texts)) if found is None else whole_texts(found)


def matches(query: str, texts: Sequence[str], table: Tokens) -> Matches | None:
    """The pieces of the query against those of each text; None where there is nothing to compare."""
    asked = list(dict.fromkeys(table.tokens(query)))
    pieces, lengths = table.pieces(texts, MAX_TOKENS)
    if not asked or not pieces.size:
        return None
    weights = table.token_weights(asked).astype(np.float64)
    heavy = weights >= LIGHT * weights.max()
    asked = [piece for piece, keep in zip(asked, heavy.tolist(), strict=True) if keep]
    best = table.closest(asked, pieces, lengths, BLOCK)
    np.maximum(best - NEAR, 0.0, out=best)
    best /= 1.0 - NEAR
    there = lengths > 0
    counts = -(-lengths[there].astype(np.int64) // BLOCK)
    first = np.cumsum(counts) - counts
    return Matches(best, first, there, weights[heavy])


def pooled(text: str, table: Tokens) -> Singles | None:
    """The unit vector of a short text from the table itself; None for a text without a piece."""
    pieces = table.tokens(text)
    if not pieces:
        return None
    whole = table.token_weights(pieces) @ table.token_vectors(pieces)
    return whole / max(float(np.sqrt(whole @ whole)), 1e-9)


def whole_texts(found: Matches) -> Floats:
    """Late interaction proper: every piece of the query at its best place in each text."""
    sums = np.empty(len(found.first))
    if kernels.native is not None:
        kernels.native.whole_texts(found.best, found.first, found.weights, sums)
    else:
        sums = _added(found.weights.tolist(), np.maximum.reduceat(found.best, found.first, axis=1))
    out = np.zeros(len(found.there))
    out[found.there] = sums / found.weights.sum()
    return out


def close_together(found: Matches) -> Floats:
    """The same within the best stretch of two blocks of each text, where pieces that few texts hold count more.

    A long text that holds the words of a query here and there is not about it; one that holds them together is.
    """
    best, first, there, weights = found
    rare = _rarity(len(there))
    sums = np.empty(len(first))
    if kernels.native is not None:
        kernels.native.close_together(best, first, weights, rare, SAME, sums)
    else:
        held = (np.maximum.reduceat(best, first, axis=1) > SAME).sum(axis=1)
        weighed: list[float] = (weights * rare[held]).tolist()
        stretch = best.copy()
        np.maximum(best[:, :-1], best[:, 1:], out=stretch[:, :-1])
        last = np.append(first[1:] - 1, best.shape[1] - 1)
        stretch[:, last] = best[:, last]
        total = np.add.accumulate(weighed)[-1]  # one after the other too, which newer Pythons' `sum` is not
        sums = np.maximum.reduceat(_added(weighed, stretch), first) / total
    out = np.zeros(len(there))
    out[there] = sums
    return out


def _added(weights: Sequence[float], rows: Singles) -> Floats:
    """The sum of rows, each times its weight, one after the other: the order that compiled loops add in."""
    out = np.zeros(rows.shape[1])
    for weight, row in zip(weights, rows.astype(np.float64), strict=True):
        out += weight * row
    return out


@lru_cache(maxsize=64)
def _rarity(texts: int) -> Floats:
    """How much a piece counts that none, one, two and so on of the texts hold."""
    rare = np.log(1.0 + (texts + 1) / (np.arange(texts + 1) + 0.5))
    rare.flags.writeable = False
    return rare
