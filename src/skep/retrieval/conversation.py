"""Turns of a conversation: read with their neighbours, by who speaks, and in their order.

A turn ("Yes, on Tuesday!") often says little by itself. Memories with a session are turns; the pipeline calls
`as_conversation` only where a candidate is one. Facts stand alone: nothing here changes their score.

The weights below were chosen by forward selection on LoCoMo, REALMEM and BEAM; docs/explanation/ranking.md has the
figures.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.retrieval.pipeline import of_pool, rated
from skep.retrieval.query import READERS, wanted
from skep.retrieval.score import coverage, words
from skep.text.terms import STOP, query_terms, terms

if TYPE_CHECKING:
    from skep.retrieval.pipeline import Call, Candidates, Floats, Ints

WINDOW = 2
"""Turns on either side that are read."""
BEFORE, AFTER, FADE = 0.6, 0.48, 0.6
"""The share of a word's weight in the turn before and in the turn after, and what each further turn keeps of it."""
HELD = 0.6
"""Weight of the share of the question that a turn holds, and again of what it holds together with its neighbours."""
SPEAKER, WANTED, THREAD, ECHO = 0.4, 0.2, 0.4, 0.1
"""Weights of: being said by the speaker whom the question names, holding the time or number it asks for, following a
better turn, sharing words with the first hits."""
SPEAKS = 3
"""Turns of the short list that a name must open to be that of a speaker."""
VOICES, HEARD = 5, 10
"""First hits whose words are listened for, and how many words."""
_speaker = re.compile(r"\s*([^\W\d_][\w'’.-]*(?: [^\W\d_][\w'’.-]*)?):\s")
_word = re.compile(r"[^\W_]+")


def as_conversation(found: Candidates, call: Call) -> Candidates:
    """The candidates, turns among them scored by what stands beside them; other memories keep their score.

    Called where a candidate is a turn.
    """
    found = _joined(found, call)
    speakers = _speakers(found, call)
    if speakers:
        found, call = _without_names(found, call, speakers)
    found = _in_context(found, call)
    return _by_company(found, call, speakers)


def _joined(found: Candidates, call: Call) -> Candidates:
    """The candidates and the neighbours of the best of them."""
    near = call.sources.around(found.rows[: call.config.shortlist], WINDOW, call.where)
    fresh = sorted(set(near[near >= 0].tolist()) - set(found.rows.tolist()))
    if not fresh:
        return found
    pool = call.sources.lookup(np.array(fresh, dtype=np.int64), call.terms, call.vector)
    joined = replace(rated(found.joined(of_pool(pool, call)), call), trace=found.trace)
    return joined.noted("neighbours", note=f"{len(fresh)} joined")


def _speakers(found: Candidates, call: Call) -> tuple[str, ...]:
    """The speakers of the short list whom the question names, unless it names all of them."""
    asked = {word.casefold() for word in _word.findall(call.asked.text)}
    heads = Counter(map(speaker, call.texts(found.rows[: call.config.shortlist])))
    frequent = [head for head, times in heads.items() if head and times >= SPEAKS]
    named = tuple(head for head in frequent if head.split()[0].casefold() in asked)
    return named if len(named) < len(frequent) else ()


@lru_cache(maxsize=8192)
def speaker(text: str) -> str:
    """The name that opens a turn; empty where none does.

    >>> speaker("Ana: I moved to Rome."), speaker("The plan: move to Rome."), speaker("I moved")
    ('Ana', 'The plan', '')
    """
    opened = _speaker.match(text[:60])
    return opened[1] if opened else ""


def _without_names(found: Candidates, call: Call, names: tuple[str, ...]) -> tuple[Candidates, Call]:
    """The same question without the names of speakers: they wish for who said it, and are no words to match."""
    pattern = "|".join(rf"\b{re.escape(name)}\b(?:['’]s)?" for name in names)
    about = " ".join(re.sub(pattern, " ", call.asked.about, flags=re.IGNORECASE).split())
    if not any(term not in STOP for term in query_terms(about)):
        return found, call
    vector = None if call.vector is None else call.sources.embed(about)
    call = replace(
        call,
        asked=replace(call.asked, about=about),
        vector=call.vector if vector is None else vector,
    )
    pool = call.sources.lookup(found.rows, call.terms, call.vector)
    renewed = replace(of_pool(pool, call), former=found.former, trace=found.trace)
    return replace(rated(renewed, call), trace=found.trace), call


def _in_context(found: Candidates, call: Call) -> Candidates:
    """Turns by their words and those of their neighbours, on the scale of memories that stand alone."""
    asked = call.asked.terms
    reach = min(len(found), call.config.reach)
    rows = found.rows[:reach]
    turn = found.spoken[:reach]
    if not asked or not turn.any():
        return found
    idf = call.sources.idf(asked)
    near = call.sources.around(rows, WINDOW, call.where)
    every, back = np.unique(np.concatenate([rows, np.maximum(near, 0).ravel()]), return_inverse=True)
    impacts = call.sources.impacts(asked, every).astype(np.float64)[back]
    own, beside = impacts[:reach], impacts[reach:].reshape(reach, 2 * WINDOW, len(asked))
    whole = filled(own, beside * (near >= 0)[:, :, None])
    held, together = coverage(own, idf), coverage(whole, idf)
    weights = call.config.weights
    unit = sum(weights.values())
    said = weights.get("words", 0.0) * words(whole.sum(axis=1), idf)
    meant = weights.get("semantic", 0.0) * found.signals.get("semantic", np.zeros(len(found)))[:reach]
    score = (said + meant + HELD * (held + together)) / (unit + 2 * HELD)
    extra = np.where(turn, score - found.score[:reach], 0.0)
    return found.lifted(extra, context=np.where(turn, together, 0.0)).noted("context")


def filled(own: Floats, near: Floats) -> Floats:
    """Each question word counted once, by its best evidence: in the turn itself or, for less, beside it.

    Args:
        own: BM25 of each word (columns) on each turn (rows).
        near: The same for the neighbours, [turn, neighbour, word], from far before to far after.
    """
    best = np.maximum(own, 0.0)
    before = [BEFORE * FADE**step for step in range(WINDOW)]
    after = [AFTER * FADE**step for step in range(WINDOW)]
    for place, share in enumerate([*before[::-1], *after]):
        np.maximum(best, near[:, place] * share, out=best)
    return best


def _by_company(found: Candidates, call: Call, speakers: tuple[str, ...]) -> Candidates:
    """The short list by who speaks, by the kind of answer, by the turn before, and by words of the first hits."""
    count = min(len(found), call.config.shortlist)
    rows = found.rows[:count]
    turn = found.spoken[:count].astype(np.float64)
    texts = call.texts(rows)
    shown = {"speaker": np.array([float(speaker(text) in speakers) for text in texts]) * turn}
    if call.asked.wants in READERS:
        shown["wanted"] = wanted(call.asked.wants, texts) * turn
    before = call.sources.around(rows, 1, call.where)[:, 0]
    shown["thread"] = thread(rows, before, found.score[:count]) * turn
    shown["echo"] = _echo(found, call, texts) * turn
    weights = {"speaker": SPEAKER, "wanted": WANTED, "thread": THREAD, "echo": ECHO}
    unit = sum(call.config.weights.values()) + 2 * HELD
    extra = np.sum([weights[name] * values for name, values in shown.items()], axis=0) / unit
    return found.lifted(extra, **{name: values for name, values in shown.items() if values.any()})


def thread(rows: Ints, before: Ints, score: Floats) -> Floats:
    """The distance of each candidate to a better one just before it in its session, as a share of the best score.

    >>> thread(np.array([4, 9, 5]), np.array([-1, 8, 4]), np.array([2.0, 1.5, 1.0])).tolist()
    [0.0, 0.0, 0.5]
    """
    best = float(score.max(initial=0.0))
    if best <= 0 or (before < 0).all():
        return np.zeros(len(score))
    scores = dict(zip(rows.tolist(), score.tolist(), strict=True))
    led = np.array([scores.get(row, 0.0) for row in before.tolist()])
    return np.maximum(led - score, 0.0) / best


def _echo(found: Candidates, call: Call, texts: Sequence[str]) -> Floats:
    """The share that each turn holds of words which the first hits share and the question lacks."""
    first = found.score[: min(VOICES, len(texts))]
    said = voices(texts[: len(first)], first, call.asked.terms) if len(first) and first[0] > 0 else {}
    if not said:
        return np.zeros(len(texts))
    listed = sorted(said)
    order = np.argsort(-call.sources.idf(listed) * [said[word] for word in listed], kind="stable")
    places: list[int] = order[:HEARD].tolist()
    chosen = [listed[place] for place in places]
    return echo(call.sources.impacts(chosen, found.rows[: len(texts)]).astype(np.float64), first)


def voices(texts: Sequence[str], score: Floats, asked: Collection[str]) -> dict[str, float]:
    """The words that the first hits share and the query lacks, each with the scores of those that hold it.

    >>> voices(["red brick roof", "red roof"], np.array([2.0, 1.0]), ["roof"])
    {'red': 1.5}
    """
    out: defaultdict[str, float] = defaultdict(float)
    for text, share in zip(texts, (score / max(float(score[0]), 1e-9)).tolist(), strict=True):
        for word in set(terms(text)) - STOP - set(asked):
            out[word] += share
    return {word: share for word, share in out.items() if share > 1.0}


def echo(impacts: Floats, score: Floats) -> Floats:
    """The share of the words that each candidate holds, 0..1; one of the first hits does not count for itself.

    Args:
        impacts: BM25 of each word (columns) on each candidate (rows), best first.
        score: The scores of the first rows, whose words they are.

    >>> echo(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 2.0])).tolist()
    [0.25, 0.25, 1.0]
    """
    count = len(score)
    said = (impacts[:count] > 0) * (score / max(float(score[0]), 1e-9))[:, None]
    whole = np.maximum(said.sum(axis=0), 1e-9)
    heard = impacts.copy()
    heard[:count] *= np.maximum(whole - said, 0.0) / whole
    sums = heard.sum(axis=1)
    return sums / max(float(sums.max(initial=0.0)), 1e-9)
