"""Quoted phrases: what stands in quotes in a query is looked for word for word."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.candidates import Call, Candidates

    Floats = NDArray[np.float64]

WIDELY = 300
"""So many candidates by words are looked at for a query with phrases: those that hold the words of one in another order
count as much by words."""


def quoted(found: Candidates, texts: Sequence[str], call: Call, unit: float) -> Candidates:
    """The candidates, those that hold a phrase of the query lifted.

    Args:
        found: Best first.
        texts: What each of them says.
        call: The recall; it has phrases.
        unit: What a weight of 1 adds to a score.
    """
    held = holding(call.asked.phrases, texts)
    if not held.any():
        return found.noted("phrases", note="held by none")
    lifted = found.lifted(unit * call.config.phrase * held, phrase=held)
    return lifted.noted("phrases", note=f"{int(np.count_nonzero(held))} hold one word for word")


def holding(phrases: Sequence[str], texts: Sequence[str]) -> Floats:
    """Which share of some phrases each text holds word for word; case, blanks and the form of letters do not count.

    >>> holding(["blue green"], ["A Blue  Green deploy", "green and blue", "a blue greenhouse"]).tolist()
    [1.0, 0.0, 0.0]
    """
    wanted = [folded for phrase in phrases if (folded := _folded(phrase))]
    if not wanted:
        return np.zeros(len(texts))
    telling = [max(each.split(), key=len) for each in wanted]
    return np.array([_share(text, wanted, telling) for text in texts])


def _share(text: str, wanted: Sequence[str], telling: Sequence[str]) -> float:
    """Which share of the wanted phrases a text holds; `telling` is a word of each, without which it is not held."""
    if text.isascii():  # whatever else a text is made of, folding may change
        small = text.lower()
        if not any(word in small for word in telling):
            return 0.0
    folded = _folded(text)
    return sum(_holds(folded, each) for each in wanted) / len(wanted)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(",.;:!?").strip()


def _holds(text: str, phrase: str) -> bool:
    """Whether a phrase stands in a text, and neither begins nor ends inside a word."""
    at = text.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        begins = at == 0 or not (text[at - 1].isalnum() and phrase[0].isalnum())
        if begins and (end == len(text) or not (text[end].isalnum() and phrase[-1].isalnum())):
            return True
        at = text.find(phrase, at + 1)
    return False
