"""From several texts to one, without a model: the sentence that stands for the rest. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from skep.errors import DistilError, InvalidInputError
from skep.semantics.supporting import sentences, statements, worth_keeping
from skep.semantics.telling import telling
from skep.words import query_terms

Distil = Callable[[Sequence[Sequence[str]]], Sequence[str | None]]
"""Groups of texts to one text each, or none; an LLM's batched call, for example."""

SHORTEST = 3
"""Sentences with fewer words that carry meaning are passed over while there are longer ones."""


class Worded(NamedTuple):
    """What a callable made of groups of texts; `problem` says in words why there is less than one for each."""

    texts: list[str | None]
    problem: str = ""


def by_call(distil: Distil, groups: Sequence[Sequence[str]]) -> Worded:
    """What a callable makes of groups of texts, checked; None where it found nothing to say.

    Whatever it fails with, the run goes on without it. One that has `fitting` is asked about so many groups only; one
    that has `problem` may say why it left out some.

    Raises:
        InvalidInputError: It gave something else than one text per group.
    """
    fitting = getattr(distil, "fitting", len)
    asked = groups[: fitting(groups)] if groups else ()
    waits = f"the limit allows asking about {len(asked)} of {len(groups)} clusters; the others wait"
    problem = waits if len(asked) < len(groups) else ""
    if not asked:
        return Worded([], problem)
    try:
        given = _called(distil, asked)
    except DistilError as error:
        return Worded([], f"{error}; the next run asks again")
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(asked):  # pyright: ignore
        raise InvalidInputError(
            f"distil must give one text for each of the {len(asked)} groups it is given, in their order",
            field="distil",
        )
    texts = [
        (str(text).strip() or None) if text is not None else None for text in cast("Sequence[Any]", given)
    ]
    left_out = str(getattr(distil, "problem", ""))
    again = f"{left_out}; the next run asks again" if left_out else ""
    return Worded(texts, "; ".join(filter(None, (problem, again))))


def _called(distil: Distil, groups: Sequence[Sequence[str]]) -> object:
    try:
        return distil(groups)
    except DistilError:
        raise
    except Exception as error:  # whatever it is, the run goes on, and the report says what happened
        raise DistilError(f"distil failed ({type(error).__name__}: {error})") from error


def stated(texts: Sequence[str]) -> str | None:
    """The statement closest to all the texts; None if they hold none worth keeping: a question is no fact.

    >>> stated(["The door is shut. Can you open it?", "The door is shut again, why?"])
    'The door is shut.'
    """
    return next(iter(ranked(texts)), None)


def ranked(texts: Sequence[str]) -> list[str]:
    """The statements of texts that are worth keeping, each once, closest to all of them first.

    A sentence scores the share of the words the texts have in common that it holds, over its length's square root,
    so that a short sentence that says it all beats a long one that also says it.
    """
    shared = Counter(term for text in texts for term in set(query_terms(" ".join(worth_keeping(text)))))
    scores: dict[str, float] = {}
    for sentence in dict.fromkeys(each for text in texts for each in worth_keeping(text)):
        words = set(query_terms(sentence))
        weight = sum(shared[word] - 1 for word in words)
        scores[sentence] = weight / math.sqrt(len(words) + 1) if len(words) >= SHORTEST else weight / 1e6
    return sorted(scores, key=lambda sentence: -scores[sentence])


def summary(texts: Sequence[str], *, most: int = 3) -> str:
    """A few sentences that cover what the texts say, in the order they were said. Greedy coverage of shared words.

    Where two say as much, the later one is chosen first. Small talk is passed over if there is anything else.
    """
    weights = Counter(term for text in texts for term in set(query_terms(text)))
    told = [(i, said) for i, text in enumerate(texts) for said in statements(text) if telling(said)]
    candidates = told or [(i, sentence) for i, text in enumerate(texts) for sentence in sentences(text)]
    covered: set[str] = set()
    chosen: list[tuple[int, int, str]] = []
    while candidates and len(chosen) < most:
        gains = [
            sum(weights[w] for w in set(query_terms(s)) - covered) / math.sqrt(len(query_terms(s)) + 1)
            for _i, s in candidates
        ]
        place = max(range(len(candidates)), key=lambda at: (gains[at], at))
        if gains[place] <= 0:
            break
        number, sentence = candidates.pop(place)
        covered |= set(query_terms(sentence))
        chosen.append((number, place, sentence))
    ordered = sorted(chosen, key=lambda item: (item[0], item[1]))
    return " ".join(sentence if sentence[-1] in ".!?。" else sentence + "." for _n, _p, sentence in ordered)
