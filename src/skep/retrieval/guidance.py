"""Memories that say how to answer: titles that a question names, standing instructions, and preferences.

"Always name the time zone when I ask about meetings" shares no word with "When do I see Ana?", and is never the answer;
yet whoever answers must know it. So the nearest standing instruction counts by its meaning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.text.terms import STOP, joined_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.query import Query

    Floats = NDArray[np.float64]

HEAD_CHARS = 80
MOST_TERMS = 8
"""Terms of a title; a longer opening is a sentence."""
SHORT = 300
"""Characters of a standing instruction; a longer text has other things to say."""
CLEAR = 0.2
"""Calibrated cosine from which a standing instruction counts in full."""
PREFERENCE = 0.2
"""The share of it that a preference counts where advice is asked."""

_mark = re.compile(r"[.:;(\n–—-]")
_apart = re.compile(r" [-–—] |[.:]\s|\n")
_which = re.compile(r" \([^)\n]{1,40}\)(?=[.:]\s|\n| [-–—] )")
_order = re.compile(
    r"^.{0,40}?\b(?:always|never|please|make sure|be sure|remember to|don['’]t|do not|from now on)\b",
    re.IGNORECASE,
)
_occasion = re.compile(
    r"\b(?:when(?:ever)?|if|(?:every|each|any) ?time) (?:i|we|you|someone|anyone|a user|the user|users)\b"
    r"(?:['’]m|['’]re| am| are| is)? (?:ask|mention|want|need|request|talk|discuss|bring|say|tell|send|write|work)",
    re.IGNORECASE,
)
_preference = re.compile(
    r"\b(?:prefer(?:s|red|ence|ences)?|rather than|would rather)\b|['’]d rather\b", re.IGNORECASE
)
_advice = re.compile(r"\b(?:suggest\w*|recommend\w*|should (?:i|we)|would you)\b", re.IGNORECASE)


@lru_cache(maxsize=8192)
def title(text: str) -> str:
    """The terms that head a text, with a blank on either side; empty where nothing does.

    >>> title("Edward J. Hale (painter). He was born in Leeds."), title("He was born in Leeds")
    (' edward j hale ', '')
    """
    end = _end(text)
    if end < 0 or not text[end + 2 : end + 44].strip():
        return ""
    found = joined_terms(text[:end]).split()
    if len(found) > MOST_TERMS or all(word in STOP or word.isdigit() for word in found):
        return ""
    return f" {' '.join(found)} "


def _end(text: str) -> int:
    """The end of the title of a text; -1 where it has none.

    A title ends at a stop that does not follow an initial, a colon, a dash or a line break, and before brackets that
    tell it from its namesakes.
    """
    for mark in _mark.finditer(text, 1, HEAD_CHARS):
        at, sign = mark.start(), mark.group()
        if sign == ";":
            return -1
        if sign == "(":
            return at - 1 if _which.match(text, at - 1) else -1
        if sign in "-–—":
            at -= 1
        if _apart.match(text, at) and not (
            sign == "." and text[at - 1].isupper() and text[at - 2 : at - 1] in " ."
        ):
            return at
    return -1


def signals_of(asked: Query, texts: Sequence[str], cosine: Floats) -> dict[str, Floats]:
    """Both signals of the texts of the short list: see `titles_named` and `guidance`."""
    return {
        "title": titles_named(asked.about, [names(text) for text in texts]),
        "guidance": guidance(asked.text, texts, cosine),
    }


@lru_cache(maxsize=8192)
def names(text: str) -> tuple[str, ...]:
    """The names that head a text, each with a blank on either side: its title, or those that ";" divides in a title.

    >>> names("Turbo; build cache\\nWe build with it"), names("We build; we test")
    ((' turbo ', ' build cach '), ())
    """
    head, line_break, _rest = text.partition("\n")
    if line_break and ";" in head:
        return tuple(f" {name} " for part in head.split(";") if (name := joined_terms(part)))
    alone = title(text)
    return (alone,) if alone else ()


def titles_named(query: str, titles: Sequence[tuple[str, ...]]) -> Floats:
    """1 for each text of which the query holds a name word for word; texts that share a name share the 1.

    >>> titles_named("Is Blue Heron a band?", [names("Blue Heron: a boat"), names("Heron: a bird"), ()]).tolist()
    [1.0, 1.0, 0.0]
    """
    if not any(titles):
        return np.zeros(len(titles))
    asked = f" {joined_terms(query)} "
    there = Counter(name for each in titles for name in set(each) if name in asked)
    return np.array(
        [max((1.0 / there[name] for name in each if name in there), default=0.0) for each in titles]
    )


def guidance(question: str, texts: Sequence[str], cosine: Floats) -> Floats:
    """The degree to which each text says how to answer, 0..1.

    Args:
        question: The query as asked.
        texts: The texts of the short list.
        cosine: Their calibrated cosines with the query; nan where there is none.

    >>> texts = ["Always give page numbers when I ask about books", "I prefer print to screens", "It rains"]
    >>> guidance("Which books would you recommend?", texts, np.array([0.1, 0.1, 0.1])).tolist()
    [0.5, 0.2, 0.0]
    """
    out = np.zeros(len(texts))
    if _advice.search(question):
        out[[_preference.search(text) is not None for text in texts]] = PREFERENCE
    standing = [place for place, text in enumerate(texts) if is_standing(text)]
    if standing:
        near = np.nan_to_num(cosine[standing])
        nearest = int(near.argmax())
        out[standing[nearest]] = max(out[standing[nearest]], min(1.0, float(near[nearest]) / CLEAR))
    return out


@lru_cache(maxsize=8192)
def is_standing(text: str) -> bool:
    """An instruction for every time that something is asked or done.

    >>> is_standing("Never use tabs when I ask for code"), is_standing("I never ask when I am tired")
    (True, False)
    """
    return len(text) <= SHORT and _order.search(text) is not None and _occasion.search(text) is not None
