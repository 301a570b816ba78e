"""Whether two texts are one statement said twice: the same but for openings, fillers, synonyms and a moved phrase.

>>> from skep.semantics.parse_text import analyse
>>> said_twice(analyse("Ana bought a tent in May"), analyse("Note: in May, Ana purchased a tent"))
True
>>> said_twice(analyse("Ana bought a tent in May"), analyse("Ana will buy a tent in May"))
False

Nothing here is weighed: every word of one text has its counterpart in the other, in order, or the answer is no.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

from skep.semantics import lexicon as lx
from skep.semantics.parse_text import Text

MOST_SYNONYMS = 2
"""How many words may be exchanged for synonyms, and at most one in three."""
LIGHT = lx.word_set("a an the")
FILLERS = lx.word_set(
    "really actually just currently still simply basically very quite also already indeed presently"
)
"""Words that add nothing, unless a negation stands before them: "not really" is not "not"."""
STARTERS = lx.word_set(
    """in on at for during after before with within since until till from by under near around throughout per inside
    every each last next this yesterday today tomorrow tonight recently usually often sometimes normally generally
    when whenever while if because once despite according"""
)
"""Words a phrase may begin with that can be moved to the front."""
LONE = lx.word_set("yesterday today tomorrow tonight recently usually often sometimes normally generally")
"""Those that may be moved alone."""


def _phrases(listed: str) -> tuple[tuple[str, ...], ...]:
    found = (tuple(entry.split()) for entry in listed.split(";"))
    return tuple(sorted(found, key=lambda words: (-len(words), words)))


OPENINGS = _phrases(
    """note :; note that; please note that; please note; please remember that; remember that; remember :; reminder :;
    reminder that; fyi; fyi :; for the record; for your information; also; just so you know; so you know; by the way;
    btw; as a reminder; as mentioned; as said; as noted; actually; it is known that; keep in mind that; in fact;
    in short; to recap; again; important :; info :; fact :; memo :"""
)
CLOSINGS = _phrases(
    """( confirmed ); confirmed; as said; as said before; as mentioned; as mentioned before; as noted; as i said;
    by the way; btw; fyi; as well; too; at the moment; at present; for your information; for the record; as always"""
)
EQUAL = (
    (("close", "to"), ("near",)),
    (("next", "to"), ("beside",)),
    (("prior", "to"), ("before",)),
    (("in", "order", "to"), ("to",)),
    (("due", "to"), ("because", "of")),
    (("as", "well", "as"), ("and",)),
    (("at", "the", "moment"), ()),
    (("right", "now"), ("now",)),
    (("a", "minimum", "of"), ("at", "least")),
    (("a", "maximum", "of"), ("at", "most")),
    (("cannot",), ("can", "not")),
    (("do", "never"), ("never",)),
    (("are",), ("is",)),
    (("am",), ("is",)),
    (("were",), ("was",)),
)
"""Ways of saying, and the one that stands for them."""

DROPPED = (
    frozenset(
        word for phrase in (*OPENINGS, *CLOSINGS, *(way for both in EQUAL for way in both)) for word in phrase
    )
    | LIGHT
    | FILLERS
)
"""Words that may be left out or stand for others."""
_OPENINGS = {phrase[0]: [each for each in OPENINGS if each[0] == phrase[0]] for phrase in OPENINGS}
_CLOSINGS = {phrase[-1]: [each for each in CLOSINGS if each[-1] == phrase[-1]] for phrase in CLOSINGS}
_EQUAL = {phrase[0]: [each for each in EQUAL if each[0][0] == phrase[0]] for phrase, _ in EQUAL}


class Word(NamedTuple):
    """One word as it is compared."""

    word: str
    lemma: str
    past: bool
    plural: bool
    fixed: bool
    """A function word, a number or a name: it has no other form and no synonym."""


def said_twice(a: Text, b: Text) -> bool:
    """Whether two statements are the same, word for word, as far as this module can see."""
    if a.question or b.question or a.marks != b.marks or not (a.whole and b.whole) or _cannot(a, b):
        return False
    left, right = _spoken(a.words, a.capital), _spoken(b.words, b.capital)
    if len(left) != len(right) or len(left) < 2:
        return False
    spare = min(MOST_SYNONYMS, sum(not word.fixed for word in left) // 3)
    return _in_step(left, right, spare) or _moved(left, right, spare) or _moved(right, left, spare)


def _cannot(a: Text, b: Text) -> bool:
    """Whether some words have no counterpart, whatever is dropped, moved or replaced. Costs little."""
    here, there = a.bag, b.bag
    return _lone(a, here - there - DROPPED, there) or _lone(b, there - here - DROPPED, here)


def _lone(text: Text, only: frozenset[str], others: frozenset[str]) -> bool:
    """Whether too many words that stand in one text alone are no other form of a word of the other."""
    if not only:
        return False
    if not only.isdisjoint(compress(text.words, text.capital)):
        return True
    lone: list[str] = []
    for word in only:
        if word[0].isalnum():
            if not word.isalpha() or word in lx.STOP or word in lx.NEGATORS:
                return True
            lone.append(lx.lemma(word)[0])
    if len(lone) <= MOST_SYNONYMS:
        return False
    forms = {lx.lemma(word)[0] for word in others}
    return sum(each not in forms and each not in _dropped() for each in lone) > MOST_SYNONYMS


@lru_cache(maxsize=1)
def _dropped() -> set[str]:
    return {lx.lemma(word)[0] for word in DROPPED}


def _moved(front: Sequence[Word], plain: Sequence[Word], spare: int) -> bool:
    """Whether `front` is `plain` with one phrase taken to the front."""
    if front[0].word not in STARTERS:
        return False
    most = len(front) - 1
    for size in range(1 if front[0].word in LONE else 2, most):
        phrase, rest = front[:size], front[size:]
        for place in range(1, len(rest) + 1):
            if plain[place].word != phrase[0].word if place < len(plain) else True:
                continue
            if _in_step((*rest[:place], *phrase, *rest[place:]), plain, spare):
                return True
    return False


def _in_step(left: Sequence[Word], right: Sequence[Word], spare: int) -> bool:
    """Whether two lists of words agree place by place, but for a few synonyms."""
    for one, other in zip(left, right, strict=True):
        if one.word == other.word:
            continue
        if one.fixed or other.fixed or _other_form(one, other):
            return False
        if one.lemma != other.lemma:
            spare -= 1
            if spare < 0 or other.lemma not in lx.synonyms(one.lemma):
                return False
    return True


def _other_form(one: Word, other: Word) -> bool:
    """Whether two words differ in time or number, or in being a verb's "-ing"."""
    words = one.word, other.word
    if one.past != other.past and lx.UNCHANGED.isdisjoint(words):
        return True
    if one.plural != other.plural and lx.COLLECTIVE.isdisjoint(words):
        return True
    return one.lemma == other.lemma and one.word.endswith("ing") != other.word.endswith("ing")


@lru_cache(maxsize=8192)
def _spoken(words: tuple[str, ...], capital: tuple[bool, ...]) -> tuple[Word, ...]:
    """The words that count, in order; words joined by "and" or "or" in a fixed order."""
    names = {word for word, upper in zip(words, capital, strict=True) if upper}
    held = _stripped([word for word in words if word not in ".;!?"])
    held = _replaced([word for word in held if word[0].isalnum()])
    out: list[Word] = []
    before = ""
    for word in held:
        filler = word in FILLERS and before not in lx.NEGATORS
        if word not in LIGHT and not filler:
            out.append(_word(word, name=word in names))
        if not filler:
            before = word
    _order_conjuncts(out)
    return tuple(out)


def _word(word: str, *, name: bool) -> Word:
    stem, past = lx.lemma(word)
    fixed = name or word in lx.STOP or word in lx.NEGATORS or not word.isalpha()
    return Word(word, stem, past, lx.plural(word), fixed)


def _stripped(words: list[str]) -> list[str]:
    """Without an opening and a closing that say nothing of their own."""
    for phrase in _OPENINGS.get(words[0], ()) if words else ():
        if len(words) > len(phrase) + 1 and tuple(words[: len(phrase)]) == phrase:
            words = words[len(phrase) :]
            break
    for phrase in _CLOSINGS.get(words[-1], ()) if words else ():
        if len(words) > len(phrase) + 1 and tuple(words[-len(phrase) :]) == phrase:
            return words[: -len(phrase)]
    return words


def _replaced(words: list[str]) -> list[str]:
    out: list[str] = []
    i = 0
    while i < len(words):
        for phrase, instead in _EQUAL.get(words[i], ()):
            if tuple(words[i : i + len(phrase)]) == phrase:
                out += instead
                i += len(phrase)
                break
        else:
            out.append(words[i])
            i += 1
    return out


def _order_conjuncts(words: list[Word]) -> None:
    """Put two words around "and" or "or" into alphabetical order, unless a number belongs to the first."""
    for i in range(1, len(words) - 1):
        numbered = i > 1 and not words[i - 2].word.isalpha()
        if words[i].word in ("and", "or") and not numbered:
            pair = words[i - 1], words[i + 1]
            if lx.STOP.isdisjoint(word.word for word in pair):
                words[i - 1], words[i + 1] = sorted(pair)
