"""Late interaction: each word of the query against its closest word of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from skep.linear import product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.sources import Tokens

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]
    Pieces = NDArray[np.int32]

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
MEMO_TEXTS = 8192
"""Texts whose pieces are remembered per table; the memory is emptied when it is full."""

_memo: WeakKeyDictionary[Tokens, dict[str, Pieces]] = WeakKeyDictionary()


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
    pieces = _pieces(texts, table)
    lengths = np.array([len(each) for each in pieces], dtype=np.int64)
    flat = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int32)
    if not asked or not flat.size:
        return None
    weights = table.token_weights(asked).astype(np.float64)
    heavy = weights >= LIGHT * weights.max()
    asked = [piece for piece, keep in zip(asked, heavy.tolist(), strict=True) if keep]
    distinct, back = _distinct(flat)
    near = product(table.token_vectors(asked), table.token_vectors(distinct.tolist()).T)
    np.maximum(near - NEAR, 0.0, out=near)
    near /= 1.0 - NEAR
    there = lengths > 0
    lengths = lengths[there]
    counts = -(-lengths // BLOCK)
    first = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(first, counts)
    starts = np.repeat(np.cumsum(lengths) - lengths, counts) + BLOCK * within
    best = np.maximum.reduceat(near.take(back, axis=1), starts, axis=1)
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
    out = np.zeros(len(found.there))
    best = np.maximum.reduceat(found.best, found.first, axis=1)
    out[found.there] = found.weights @ best / found.weights.sum()
    return out


def close_together(found: Matches) -> Floats:
    """The same within the best stretch of two blocks of each text, where pieces that few texts hold count more.

    A long text that holds the words of a query here and there is not about it; one that holds them together is.
    """
    best, first, there, weights = found
    held = (np.maximum.reduceat(best, first, axis=1) > SAME).sum(axis=1)
    rare = weights * np.log(1.0 + (len(there) + 1) / (held + 0.5))
    stretch = best.copy()
    np.maximum(best[:, :-1], best[:, 1:], out=stretch[:, :-1])
    last = np.append(first[1:] - 1, best.shape[1] - 1)
    stretch[:, last] = best[:, last]
    out = np.zeros(len(there))
    out[there] = np.maximum.reduceat(rare @ stretch / rare.sum(), first)
    return out


def _distinct(pieces: Pieces) -> tuple[Ints, Ints]:
    """Every piece once, ascending, and where each stands among them; by marking, which is quicker than sorting."""
    marked = np.zeros(int(pieces.max()) + 1, dtype=bool)
    marked[pieces] = True
    found = np.flatnonzero(marked)
    place = np.empty(len(marked), dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[pieces]


def _pieces(texts: Sequence[str], table: Tokens) -> list[Pieces]:
    """The pieces of each text. A bank's texts come up again and again, so they are kept, within bounds."""
    kept = _memo.setdefault(table, {})
    if len(kept) > MEMO_TEXTS:
        kept.clear()
    out: list[Pieces] = []
    for text in texts:
        found = kept.get(text)
        if found is None:
            found = kept[text] = np.array(table.tokens(text)[:MAX_TOKENS], dtype=np.int32)
        out.append(found)
    return out
