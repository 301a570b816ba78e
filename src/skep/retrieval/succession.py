"""Replaced memories speak through the memory that replaced them: a question in the words of the old finds the new."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skep.retrieval.candidates import of_pool, rated

if TYPE_CHECKING:
    from skep.retrieval.candidates import Call, Candidates, Floats, Ints

SHARE = 0.8
"""The share of a replaced memory's words and meaning that counts for its heir."""
MOST = 20
"""Replaced memories that are looked at by words, and as many by meaning."""
FIRST = 20
"""A replaced memory is followed if it would stand among so many first candidates."""


def with_heirs(found: Candidates, call: Call) -> Candidates:
    """The candidates and the heirs of replaced memories that match; each counts by the better of the two."""
    pool = call.sources.replaced(call.terms, call.vector, call.where, MOST)
    if pool is None or not len(pool.rows):
        return found
    former = of_pool(pool, call)
    worth = np.flatnonzero(
        (SHARE * former.words > _among_the_first(found.words))
        | (SHARE * former.cosine > _among_the_first(found.cosine))
    )
    if not len(worth):
        return found
    former = former.take(worth)
    heirs = _heirs(former.rows, call)
    if not (heirs >= 0).any():
        return found
    grown = _inherited(_joined(found, heirs, call), former, heirs)
    speaking = int(np.count_nonzero(grown.former >= 0))
    if not speaking:  # each heir is a better candidate by itself
        return found
    return replace(rated(grown, call), trace=found.trace).noted(
        "succession", note=f"{speaking} by what they replaced"
    )


def _among_the_first(values: Floats) -> float:
    """The value that a candidate needs to stand among the first."""
    known = values[~np.isnan(values)]
    return float(np.partition(known, -FIRST)[-FIRST]) if len(known) > FIRST else 0.0


def _heirs(rows: Ints, call: Call) -> Ints:
    """The current row in place of each row; -1 where it is gone or the filter does not admit it."""
    at = call.sources.heirs(rows)
    ids = sorted({each for each in at if each is not None})
    admitted = dict(zip(ids, call.sources.rows_of(ids, call.where), strict=True))
    found = [None if each is None else admitted[each] for each in at]
    return np.array([-1 if row is None else row for row in found], dtype=np.int64)


def _joined(found: Candidates, rows: Ints, call: Call) -> Candidates:
    """The candidates with these rows among them."""
    fresh = sorted(set(rows[rows >= 0].tolist()) - set(found.rows.tolist()))
    if not fresh:
        return found
    pool = call.sources.lookup(np.array(fresh, dtype=np.int64), call.terms, call.vector)
    return found.joined(of_pool(pool, call))


def _inherited(found: Candidates, former: Candidates, heirs: Ints) -> Candidates:
    """The candidates in which each heir has the better of its own and of the best that it replaced."""
    words, cosine, best = found.words.copy(), found.cosine.copy(), found.former.copy()
    place = {row: at for at, row in enumerate(found.rows.tolist())}
    for at in np.lexsort((np.fmax(former.cosine, -1.0), former.words)).tolist():
        if heirs[at] < 0:
            continue
        heir = place[int(heirs[at])]
        more, nearer = SHARE * former.words[at], SHARE * former.cosine[at]
        if more > words[heir] or nearer > np.fmax(cosine[heir], -1.0):
            words[heir], cosine[heir] = max(more, words[heir]), np.fmax(nearer, cosine[heir])
            best[heir] = former.rows[at]
    return replace(found, words=words, cosine=cosine, former=best)
