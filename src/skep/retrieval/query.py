"""A question as the pipeline reads it, without a model: its terms, its subject matter, the times and the kind of
answer it asks for. `pipeline` calls `understand`, `conversation` asks what a text can answer, `update_order` the tense.
`training/fit_update_order.py` fits the weights of the tense on the questions of `training/data`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.runtime import lazy
from skep.text.terms import STOP, query_terms, terms

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import NDArray

    from skep.text.dates import Span

    Floats = NDArray[np.float64]
    Wants = Literal["time", "number", "thing"]

_blanks = lazy(r"\s+")
_former = lazy(
    r"\b(?:previous(?:ly)?|formerly|originally|initially|used to|earlier|before|at first|history|historical(?:ly)?|"
    r"over time|evolve[ds]?|back then|past)\b|\bdid\b.{0,60}\buse to\b"
)
_perhaps_former = lazy(
    r"\b(?:former|original|initial|(?<!how )(?<!years )(?<!year )old(?:er)?|first|change[ds]?)\b"
)
"""Words that tell of before as well, unless what they go with is called so: an initial capacity, a first aid kit."""
_presently = lazy(r"\b(?:now|nowadays|currently|today|these days|at the moment|at present)\b")
_asks: tuple[tuple[re.Pattern[str], Wants], ...] = (
    (
        lazy(r"\bwhen\b|\bhow long ago\b|\b(?:what|which)\b.{0,24}\b(?:date|day|time|year|month|deadline)\b"),
        "time",
    ),
    (
        lazy(
            r"\bhow (?:many|much|long|old|often|far|big|large|tall|high)\b|\b(?:what|which)\b.{0,40}\b(?:number|"
            r"percentage|percent|rate|amount|budget|price|cost|score|accuracy|size|limit|count|total|version|quota)\b"
        ),
        "number",
    ),
)
_ANYTHING = """
    happen happened happening do done go going goes went new news anything everything something thing things events
    say said tell told talk talked discuss discussed mention mentioned note notes noted remember memories show list
    please much stuff
"""
_anything = frozenset(_ANYTHING.split())
"""Words of a question that leave open what it is about: "what did we talk about last week?"."""
_plain_word = lazy(r"(?<!['’])\b[^\W_]+")
_framing = lazy(
    r"""
    \b(?:(?:list|(?:tell|give|show)\ me|walk\ me\ through|describe|recount)\ )?(?:the\ )?(?:order|sequence)
        \ in\ which\ (?:i|we)\ (?:brought\ up|mentioned|discussed|talked\ about|raised|asked\ about|covered)\b
    | \b(?:different|various|key|main)\ (?:aspects|concepts|topics)\ (?:of|related\ to|about|in|regarding)\b
    | \b(?:throughout|across|over|in|from|through|during)\ (?:all\ (?:of\ )?)?(?:our|my|these)
        \ (?:conversations?|discussions?|sessions|chats|exchanges)\b
    | \bin\ (?:chronological\ )?order\b(?!\ to\b)
    | \b(?:mention|list|name|include|give)\ only\ (?:and\ only\ )?\w+\ (?:items?|things?|points?|entries)\b
    | \b(?:give(?:\ me|\ us)?|provide(?:\ me\ with)?|write|make|want|need)\ (?:an?|the)\ (?:\w+\ )?
        (?:summary|overview|recap)\ of(?:\ (?:how|what|everything|all)\b)?
    | \bsummari[sz]e(?:\ (?:how|what|everything|all)\b)?
    | \b(?:we|i)(?:['’]ve|\ have)\ (?:covered|discussed|talked\ about|brought\ up|mentioned)\b
    | \bso\ far\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What says how to answer, and not about what."""
_framed = lazy(
    r"\border\b|sequence|aspects|concepts|topics|summar|overview|recap|conversation|discuss|session|chat|"
    r"exchange|so far|covered|talked|brought|mentioned|only"
)
"""Without one of these, nothing of the kind can be there."""


@dataclass(frozen=True)
class Query:
    """A question and what was read of it."""

    text: str
    about: str
    """The text without the words that only say how to answer."""
    terms: tuple[str, ...]
    """Of that, the distinct index terms to look up."""
    spans: tuple[Span, ...] = ()
    """Times it names, relative ones resolved against now."""
    wants: Wants = "thing"
    former: bool = False
    """It asks for what held before, or for how things changed."""
    perhaps_former: tuple[str, ...] = ()
    """Terms by which it does so as well, unless they are part of its subject."""
    time_alone: bool = False
    """It asks for anything of a time ("what happened last month?")."""

    def tense(self, texts: Sequence[str], weights: Weights | None = None) -> tuple[Tense, bool]:
        """Its tense, and whether it asks for what held before, given the texts of the first hits."""
        found = tense_of(self.text, texts, weights)
        return found, found.before >= BEFORE or self.of_before(texts)

    def of_before(self, texts: Sequence[str]) -> bool:
        """It asks for what held before, given the texts of the first hits.

        Where two of them hold the word that says so, the word is part of what both are about.
        """
        if self.former or not self.perhaps_former:
            return self.former
        return sum(set(terms(text)).issuperset(self.perhaps_former) for text in texts) < 2


def plain(text: str) -> Query:
    """A query as nothing but its words."""
    return Query(text=text, about=text, terms=tuple(query_terms(text)))


def understand(text: str, now: float) -> Query:
    """Read a query.

    >>> q = understand("When did Ana deploy store_sync in May 2023?", 1.7e9)
    >>> q.wants, q.spans[0].text, q.former
    ('time', 'may 2023', False)
    """
    from skep.text.dates import spans

    lowered = text.lower()
    named, about = spans(text, now), subject_matter(text)
    return Query(
        text=text,
        about=about,
        terms=tuple(query_terms(about)),
        spans=named,
        wants=_wanted(lowered),
        former=_former.search(lowered) is not None,
        perhaps_former=_perhaps_before(lowered),
        time_alone=bool(named) and _leaves_open(lowered, [span.text for span in named]),
    )


def _perhaps_before(lowered: str) -> tuple[str, ...]:
    if _presently.search(lowered) is not None:
        return ()
    return tuple(term for word in _perhaps_former.findall(lowered) for term in query_terms(word))


def _leaves_open(lowered: str, times: Sequence[str]) -> bool:
    """True if a question, but for the times it names, does not say what it is about."""
    rest = " ".join(lowered.split())
    for time in times:
        rest = rest.replace(time, " ")
    return all(word in STOP or word in _anything for word in _plain_word.findall(rest))


def subject_matter(text: str) -> str:
    """A question without what only says how to answer; the whole of it where nothing else would be left.

    >>> subject_matter("Can you list the order in which I brought up my garden across our conversations?")
    'Can you my garden ?'
    """
    if _framed.search(text.lower()) is None:
        return text
    rest = _blanks.sub(" ", _framing.sub(" ", text)).strip()
    return rest if any(term not in STOP for term in query_terms(rest)) else text


def _wanted(lowered: str) -> Wants:
    if "wh" not in lowered and "how" not in lowered:  # no pattern is without
        return "thing"
    for pattern, kind in _asks:
        if pattern.search(lowered):
            return kind
    return "thing"


_time = lazy(
    r"\b(?:\d{4}|january|february|march|april|may|june|july|august|september|october|november|december|"
    r"yesterday|today|tonight|tomorrow|ago|(?:mon|tues|wednes|thurs|fri|satur|sun)day|weekend|"
    r"(?:last|next|this) (?:week|month|year|night|summer|winter|spring|fall|autumn))\b"
)
_number = lazy(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|once|twice)\b"
)
READERS = {"time": _time, "number": _number}
"""The kinds of answer that a text can be seen to hold."""


def wanted(kind: str, texts: Sequence[str]) -> Floats:
    """1 for each text that could answer a question for a time or a number."""
    return np.array([_holds(kind, text) for text in texts], dtype=np.float64)


@lru_cache(maxsize=8192)
def _holds(kind: str, text: str) -> bool:
    return READERS[kind].search(text.lower()) is not None


WORDS = os.path.join(os.path.dirname(__file__), "data", "question_words.txt")
BIAS = "*"
"""Stands in the file for the constant."""
BEFORE = 0.3
"""The probability from which a question asks for what held before."""
SHARED = 2
"""Hits that hold a word which is then part of the matter."""
_spoken = lazy(r"[^\W\d_]+(?:'[^\W\d_]+)?")


Weights = Mapping[str, tuple[float, float]]
"""By word: what it says for a question about now, and for one about before."""


class Tense(NamedTuple):
    """The probabilities that a question asks for what holds now, and for what held before."""

    now: float
    before: float


def words_of(question: str) -> frozenset[str]:
    """The words of a question, each once.

    >>> sorted(words_of("What's Ana's rent, 2024?"))
    ["ana's", 'rent', "what's"]
    """
    return frozenset(_spoken.findall(question.casefold().replace("\u2019", "'")))


def tense_of(question: str, hits: Sequence[str] = (), weights: Weights | None = None) -> Tense:
    """The tense of a question.

    A word that two of the hits hold as well belongs to what they are about: "when was it last changed?".

    >>> tense_of("what was the rent before the move?").before > 0.5 > tense_of("what is the rent?").before
    True
    """
    known = _tense_weights() if weights is None else weights
    words = [word for word in words_of(question) if word in known]
    if hits:
        held = Counter(word for hit in hits for word in words_of(hit))
        words = [word for word in words if held[word] < SHARED or word in STOP]
    now, before = (known[BIAS][column] + sum(known[word][column] for word in words) for column in range(2))
    return Tense(1 / (1 + exp(-now)), 1 / (1 + exp(-before)))


@lru_cache(maxsize=1)
def _tense_weights() -> Weights:
    with open(WORDS, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return {word: (float(now), float(before)) for word, now, before in lines}
