"""Parties: whom the texts of a short list are about, or who speaks in them, and which of them a question names.

"Ben plays the piano on Sundays" holds most of "What does Ana play on Sundays?" and answers nothing of it. So what
opens with somebody else than the question names counts less. And where what is told of others holds clearly more of
the question than all that is told of whom it names, it was never so, or was so of another: nothing answers it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.patterns import lazy
from skep.tuples import NamedTuple
from skep.words import STOP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PARTY = 3
"""So many texts of a short list a name must open to be that of a party."""
NICKNAME = 3
"""Letters from which the beginning of a name stands for it: "Mel" for "Melanie"."""
BESIDE = 0.75
"""How far a text is another's that tells of whom the question names as well, or asks: "I saw Ana", "Do you play?"."""
GLANCE = 1000
"""Characters of a text that are looked at."""
OPENING = 80
"""Of which the first few tell how it opens."""
MEMO_TEXTS = 8192
"""Texts of which that is remembered: a bank's texts come up again and again."""

_through = lazy(
    r"['’]s? (?:\w+ )?(?:friend|brother|sister|mother|mom|father|dad|parent|son|daughter|child|kid|wife|husband|spouse|"
    r"partner|boyfriend|girlfriend|cousin|uncle|aunt|grand\w+|neighbou?r|colleague|co-?worker|boss|manager|teammate|"
    r"roommate|teacher|coach|doctor)(?:s|ren)?\b|\bwho(?:m|se)?\b",
    re.IGNORECASE,
)
"""A question for somebody by way of whom it names."""
_opening = lazy(r"([^\W\d_]{2,})(?: ([^\W\d_]+))?")
_word = lazy(r"[^\W\d_]+")


class Parties(NamedTuple):
    """Who opens the texts of a short list."""

    heads: list[str]
    """The word that opens each; see `opening`."""
    named: frozenset[str]
    """Those of the parties that the question names."""
    others: frozenset[str]
    """The rest of them."""


def parties(query: str, names: Sequence[str], texts: Sequence[str]) -> Parties | None:
    """Whom some texts are about; None where they are of fewer than two parties, or the question names none or all.

    Args:
        query: What is asked.
        names: What is capitalised in it.
        texts: The short list.
    """
    openings = [opening(text[:OPENING]) for text in texts]
    heads = [word for word, _ in openings]
    frequent = [word for word, times in Counter(heads).items() if word and times >= PARTY]
    if len(frequent) < 2 or _through.search(query):
        return None
    asked = set(_word.findall(query.lower()))
    called = tuple(word for name in names for word in _word.findall(name) if len(word) >= NICKNAME)
    named = frozenset(word for word in frequent if word.lower() in asked or word.startswith(called))
    if not named or len(named) == len(frequent):
        return None
    whole = "\n".join(text[:GLANCE] for text in texts)
    if not all(_is_name(word, whole, known=word.startswith(called)) for word in named):
        return None
    after = {then for word, then in openings if word in named and then}
    alike = {word for word, then in openings if then in after}
    others = frozenset(
        word for word in frequent if word not in named and _is_name(word, whole, known=word in alike)
    )
    return Parties(heads, named, others) if others else None


def another(found: Parties, texts: Sequence[str]) -> Floats:
    """How far each text is another's than the question names, 0..1.

    >>> texts = ["Ana: I sing", "Ben: I play", "Ben: Do you sing, Ana?"] + ["Ana: So", "Ben: Yes"] * 4
    >>> another(parties("What does Ana play?", ["Ana"], texts), texts)[:3].tolist()
    [0.0, 1.0, 0.75]
    """
    return np.array(
        [
            _share(text[:GLANCE], found.named) if head in found.others else 0.0
            for head, text in zip(found.heads, texts, strict=True)
        ]
    )


def _share(text: str, named: frozenset[str]) -> float:
    told = any(word in text and word in _called(word).sub("", text) for word in named)
    return BESIDE if told or "?" in text else 1.0


@lru_cache(maxsize=256)
def _called(word: str) -> re.Pattern[str]:
    """What finds a name by which somebody is called, as in "Thanks, Ana!": nothing is told of them by that."""
    return re.compile(rf"(?:[,.!:]|\b(?:[Hh]ey|[Hh]i|[Hh]ello|[Tt]hanks)) {word}(?=[,.!])")


@lru_cache(maxsize=MEMO_TEXTS)
def opening(text: str) -> tuple[str, str]:
    """The word that opens a text and the one after it; empty without a capital, and for words that open any sentence.

    >>> opening("Ana sings"), opening("Ana's cat sleeps"), opening("The cat sleeps"), opening("cats sleep")
    (('Ana', 'sings'), ('Ana', ''), ('', ''), ('', ''))
    """
    found = _opening.match(text)
    if found is None or not found[1][0].isupper() or found[1].lower() in STOP:
        return "", ""
    return found[1], found[2] or ""


def _is_name(word: str, texts: str, *, known: bool) -> bool:
    """Whether a word is a name wherever it stands: never in small letters, and once where no sentence opens.

    `known` says that it need not stand there: the question has it as a name, or it is followed by what follows one.
    """
    within, small = _seen(word)
    return (known or within.search(texts) is not None) and small.search(texts) is None


@lru_cache(maxsize=256)
def _seen(word: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What finds a word within a sentence or before a colon, and what finds it in small letters."""
    return (
        re.compile(rf"(?:[^\W\d_],?\ ){word}\b|(?:^|\n){word}(?::|['’]s\b)"),
        re.compile(rf"\b{word.lower()}\b"),
    )
