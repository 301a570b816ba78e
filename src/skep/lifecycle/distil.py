"""From several texts to one, without a model: the sentence that stands for the rest. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from skep.errors import DistilError, InvalidInputError
from skep.semantics.supporting import sentences, told
from skep.words import query_terms

Distil = Callable[[Sequence[Sequence[str]]], Sequence[str | None]]
"""Groups of texts to one text each, or none; an LLM's batched call, for example."""

SHORTEST = 3
"""Sentences with fewer words that carry meaning are passed over while there are longer ones."""


def by_call(distil: Distil, groups: Sequence[Sequence[str]]) -> list[str | None]:
    """What a callable makes of groups of texts, checked; None where it found nothing to say.

    Raises:
        DistilError: It failed, whatever the reason: the run goes on without it.
        InvalidInputError: It gave something else than one text per group.
    """
    if not groups:
        return []
    try:
        given: object = distil(groups)
    except DistilError:
        raise
    except Exception as error:  # whatever it is, the report says what happened
        raise DistilError(f"distil failed ({type(error).__name__}: {error})") from error
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(groups):  # pyright: ignore
        raise InvalidInputError(
            f"distil must give one text for each of the {len(groups)} groups it is given, in their order",
            field="distil",
        )
    return [
        (str(text).strip() or None) if text is not None else None for text in cast("Sequence[Any]", given)
    ]


def stated(texts: Sequence[str]) -> str | None:
    """The statement closest to all the texts; None if they only ask: a question is no fact.

    >>> stated(["The door is shut. Can you open it?", "The door is shut again, why?"])
    'The door is shut.'
    """
    return next(iter(ranked(texts)), None)


def ranked(texts: Sequence[str]) -> list[str]:
    """The statements of texts, each once, closest to all of them first.

    A sentence scores the share of the words the texts have in common that it holds, over its length's square root,
    so that a short sentence that says it all beats a long one that also says it.
    """
    shared = Counter(term for text in texts for term in set(query_terms(" ".join(told(text)))))
    scores: dict[str, float] = {}
    for sentence in dict.fromkeys(each for text in texts for each in told(text)):
        words = set(query_terms(sentence))
        weight = sum(shared[word] - 1 for word in words)
        scores[sentence] = weight / math.sqrt(len(words) + 1) if len(words) >= SHORTEST else weight / 1e6
    return sorted(scores, key=lambda sentence: -scores[sentence])


def summary(texts: Sequence[str], *, most: int = 3) -> str:
    """A few sentences that cover what the texts say, in the order they were said. Greedy coverage of shared words.

    Where two say as much, the later one is chosen first.
    """
    weights = Counter(term for text in texts for term in set(query_terms(text)))
    candidates = [(i, sentence) for i, text in enumerate(texts) for sentence in sentences(text)]
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
