"""What was replaced still answers, through what replaced it: a question in the words of the old finds the new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from skep.retrieval import candidates as stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skep.retrieval.candidates import Call, Candidates, Columns

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

SHARE = 0.8
"""What the words and the meaning of a replaced memory count for the one that replaced it."""
MOST = 20
"""How many replaced memories are looked at by words, and how many by meaning."""
FIRST = 20
"""A replaced memory is followed if it would stand among so many first candidates, by words or by meaning."""


def followed(found: Candidates, call: Call) -> Candidates:
    """The candidates, and what replaced memories that match; each counts by the better of the two."""
    terms = call.asked.terms if call.config.k_words or call.vector is None else ()
    pool = call.sources.replaced(terms, call.vector, call.where, MOST)
    if pool is None or not len(pool.rows):
        return found
    former = stage.of_pool(pool, call)
    worth = np.flatnonzero(
        (SHARE * former.words > _among_the_first(found.columns.words))
        | (SHARE * former.cosine > _among_the_first(found.columns.cosine))
    )
    if not len(worth):
        return found
    former = stage.taken(former, worth)
    heirs = _heirs(former.rows, call)
    if not (heirs >= 0).any():
        return found
    columns = _inherited(_with(found.columns, heirs, call), former, heirs)
    speaking = int(np.count_nonzero(columns.former >= 0))
    if not speaking:  # each is a better candidate by itself
        return found
    joined = len(columns.rows) - len(found.columns.rows)
    by_matches = call.config.matched_terms and call.vector is None
    rated = stage.rate_by_matches(columns, call) if by_matches else stage.rate(columns, call)
    rated = replace(rated, trace=found.trace).ordered()
    return rated.noted("succession", note=f"{speaking} by what they replaced, {joined} of them joined")


def _among_the_first(values: Floats) -> float:
    """What a candidate needs to stand among the first by words or by meaning."""
    known = values[values == values]  # noqa: PLR0124
    return float(np.partition(known, -FIRST)[-FIRST]) if len(known) > FIRST else 0.0


def _heirs(rows: Ints, call: Call) -> Ints:
    """The row of what is current in place of each row; -1 where that is gone or the filter does not admit it."""
    at = call.sources.heirs(rows)
    ids = sorted({each for each in at if each is not None})
    admitted: dict[str | None, int | None] = dict(
        zip(ids, call.sources.rows_of(ids, call.where), strict=True)
    )
    found = [admitted.get(each) for each in at]
    return np.array([-1 if row is None else row for row in found], dtype=np.int64)


def _with(columns: Columns, rows: Ints, call: Call) -> Columns:
    """The columns with these rows among them."""
    fresh = sorted(set(rows[rows >= 0].tolist()) - set(columns.rows.tolist()))
    if not fresh:
        return columns
    terms = call.asked.terms if call.config.k_words or call.vector is None else ()
    joined = call.sources.lookup(np.array(fresh, dtype=np.int64), terms, call.vector)
    return stage.join(columns, stage.of_pool(joined, call))


def _inherited(columns: Columns, former: Columns, heirs: Ints) -> Columns:
    """The columns in which each heir has the better of its own and of the best that it replaced."""
    words, cosine, best = columns.words.copy(), columns.cosine.copy(), columns.former.copy()
    place = {row: at for at, row in enumerate(columns.rows.tolist())}
    for at in _best_last(former.words, former.cosine):
        if heirs[at] < 0:
            continue
        heir = place[int(heirs[at])]
        more, nearer = SHARE * former.words[at], SHARE * former.cosine[at]
        if more > words[heir] or nearer > _known(cosine[heir]):
            words[heir], cosine[heir] = max(more, words[heir]), np.fmax(nearer, cosine[heir])
            best[heir] = former.rows[at]
    return columns.but(words=words, cosine=cosine, former=best)


def _known(cosine: float) -> float:
    """A cosine, or the least there is where there is none."""
    return cosine if cosine == cosine else -1.0  # noqa: PLR0124


def _best_last(words: Floats, cosine: Floats) -> Sequence[int]:
    """The places from the least to the best by words, then by meaning."""
    return np.lexsort((np.fmax(cosine, -1.0), words)).tolist()
