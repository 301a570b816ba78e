"""The second look: what only the best candidates are worth. Context, late interaction, time, currency."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skep.retrieval import candidates as stage
from skep.retrieval import currency, fusion
from skep.retrieval.late import late_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.candidates import Call, Candidates

    Floats = NDArray[np.float64]

FADE = 0.6
"""What a neighbour one step further away counts, as a share of the nearer one."""


def second_look(found: Candidates, call: Call) -> Candidates:
    """The candidates, best first, after everything the config asks of the short list."""
    config, asked = call.config, call.asked
    if config.context > 0 and asked.terms:
        found = _context(found, call)
    if config.late > 0:
        found = _late(found, call)
    if config.temporal == "boost" and asked.spans:
        found = _in_time(found, call)
    if config.currency and not asked.former:
        found = _current(found, call)
    return found


def filled(own: Floats, near: Floats, weight: float, fade: float = FADE) -> Floats:
    """Each query word counted once, by its best evidence: in the memory itself or, for less, beside it.

    Args:
        own: Impact of each word (columns) on each memory (rows).
        near: The same for the neighbours, [memory, neighbour, word]; neighbours from far before to far after.
        weight: What the nearest neighbours count.
        fade: What each further step leaves of it.
    """
    window = near.shape[1] // 2
    steps = [abs(offset) - 1 for offset in range(-window, window + 1) if offset]
    shares = np.array([weight * fade**step for step in steps])
    return np.maximum(own, (near * shares[None, :, None]).max(axis=1, initial=0.0))


def _context(found: Candidates, call: Call) -> Candidates:
    """Score the short list and its neighbours by words that may stand in a neighbour."""
    config, sources, terms = call.config, call.sources, call.asked.terms
    size = min(config.shortlist, len(found))
    near = sources.around(found.rows[:size], config.window, call.where)
    if not (near >= 0).any():
        return found
    fresh = np.setdiff1d(near[near >= 0], found.rows)
    if len(fresh):
        found = stage.join(found, stage.of_pool(sources.lookup(fresh, terms, call.vector), call))
    head = np.concatenate([np.arange(size), np.arange(len(found) - len(fresh), len(found))])
    rows = found.rows[head]
    near = sources.around(rows, config.window, call.where)
    every, back = np.unique(np.concatenate([rows, near.ravel()]), return_inverse=True)
    impacts = sources.impacts(terms, every).astype(np.float64)[back]
    beside = impacts[len(rows) :].reshape(len(rows), near.shape[1], -1)
    words = found.words.copy()
    words[head] = filled(impacts[: len(rows)], beside, config.context).sum(axis=1)
    rated = stage.rate(replace(found, words=words), call).ordered()
    return rated.noted("context", note=f"{len(fresh)} neighbours joined")


def _late(found: Candidates, call: Call) -> Candidates:
    """The short list with late interaction added; what lies below it keeps its place."""
    table = call.sources.tokens
    if table is None:
        return found
    size = min(call.config.shortlist, len(found))
    late = np.zeros(len(found))
    late[:size] = late_scores(call.asked.text, call.sources.texts(found.rows[:size]), table)
    boost = np.zeros(len(found))
    boost[:size] = fusion.minmax(late[:size])
    return found.scored(found.score + call.config.late * boost, late=late).ordered().noted("late interaction")


def _in_time(found: Candidates, call: Call) -> Candidates:
    """Memories of a time the query names, lifted."""
    inside = np.zeros(len(found), dtype=bool)
    for span in call.asked.spans:
        inside |= (found.created_at >= span.start) & (found.created_at < span.end)
    if not inside.any():
        return found
    lifted = found.scored(found.score + call.config.temporal_boost * inside).ordered()
    return lifted.noted("time", note=f"{int(inside.sum())} from {call.asked.spans[0].text}")


def _current(found: Candidates, call: Call) -> Candidates:
    """The newest of rival memories first."""
    size = min(currency.REACH, len(found))
    head = found.rows[:size]
    vectors = call.sources.vectors(head)
    near = call.sources.calibrate(vectors @ vectors.T).astype(np.float64)
    terms = call.asked.terms
    matched = call.sources.impacts(terms, head) > 0 if terms else np.zeros((size, 0), dtype=bool)
    renewed = currency.renew(matched, near, found.created_at[:size])
    if not renewed.outdated.any():
        return found
    outdated = found.outdated.copy()
    outdated[:size] = renewed.outdated
    order = np.concatenate([renewed.order, np.arange(size, len(found))])
    moved = replace(replace(found, outdated=outdated).take(order), score=found.score)
    return moved.noted("currency", note=f"{int(renewed.outdated.sum())} outdated")
