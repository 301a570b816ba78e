"""Texts in almost the same words that are about different matters, of which none takes the place of another.

Two identifiers of which the same is said, two things with a letter for a name, two things that were done or that
failed, two things that are forbidden. All rules are the same whichever text is given first.
"""

from __future__ import annotations

from itertools import pairwise

from skep.semantics import lexicon as lx
from skep.semantics.features import Pair
from skep.semantics.reading import Text
from skep.words import FAILED, SINGLE

LETTER = 4
"""Words within which a text names a thing by a letter, if it is about that: "in the team A we use tabs"."""
PLACES = 2
"""In how many places two reports of a failure may differ, such as a file and a line in it."""
_OPENING = lx.word_set("in on at for with the our my your his her their its")
"""Words that may stand before the name of what a text is about."""
_PLACES = lx.word_set("in at on of from when while during")
"""Words that say where or when an error is."""
_LATEST = SINGLE | lx.word_set("last latest newest first still")
"""Words that leave room for one failure."""


def has_digit(word: str) -> bool:
    """Whether a word is more than letters."""
    return any(map(str.isdigit, word))


def one_at_a_time(pair: Pair, kind: str, said_from: int) -> bool:
    """Whether what is said can be of one thing of a kind alone: the default port, our gate, the version that runs."""
    a, b = pair.a, pair.b
    if not SINGLE.isdisjoint(a.bag & b.bag):
        return True
    said = a.words[said_from:]
    return said == b.words[said_from:] and (kind in lx.VERSIONED or said[:1] in lx.DEFINITE)


def of_other_letters(pair: Pair) -> bool:
    """Whether the texts are about two things of a kind, told apart by a letter: team A and team B, options, plans."""
    a, b = pair.a, pair.b
    least = min(LETTER, len(a.words), len(b.words))
    at = next((i for i in range(least) if a.words[i] != b.words[i]), 0)
    if not at or not _letters(a, b, at):
        return False
    *opening, kind = a.words[:at]
    if not _OPENING.issuperset(opening) or not kind.isalpha() or kind in lx.STOP or kind in lx.SAYING:
        return False
    return not one_at_a_time(pair, kind, at + 2)


def _letters(a: Text, b: Text, at: int) -> bool:
    """Whether letters stand at a place of which one at least can be no word."""
    mine, theirs = a.words[at], b.words[at]
    if not (len(mine) == len(theirs) == 1 and mine.isalpha() and theirs.isalpha()):
        return False
    return a.capital[at] or b.capital[at] or mine not in "ai" or theirs not in "ai"


def of_other_identifiers(pair: Pair) -> bool:
    """Whether the texts say the same of two identifiers: node20 and node22 "is old", or DB_HOST and DB_PORT."""
    swapped = pair.ed.swapped[0] if pair.ed.lone_swap else ()
    if not swapped or not all(len(side) == 1 and _is_identifier(side[0]) for side in swapped):
        return False
    return pair.ed.head or all(
        side[0] in _spoken_of(text) for side, text in zip(swapped, (pair.a, pair.b), strict=True)
    )


def _spoken_of(text: Text) -> tuple[str, ...]:
    """The words before the one by which a sentence begins to say something, or up to the name after a kind."""
    words = text.words
    said = next((i for i, word in enumerate(words) if word in lx.SAYING), 0)
    start = int(words[:1] in lx.DEFINITE)
    kind = words[start : start + 1]
    named = start + 2 if kind and (start or kind[0] in lx.NAMED) and len(words) > start + 2 else 0
    return words[: max(said, named)]


def _is_identifier(word: str) -> bool:
    return word[0].isalpha() and (has_digit(word) or "_" in word or "." in word)


def of_other_happenings(pair: Pair) -> bool:
    """Whether each text tells what was done, which nothing that was done later undoes: "Fixed a bug in the parser"."""
    a, b = pair.a.words, pair.b.words
    return a[:1] == b[:1] and a[:1] != () and a[0] in lx.DONE and a != b and pair.ed.replaced > 0


def of_other_failures(pair: Pair) -> bool:
    """Whether each text tells in the same words of something that failed, here of one thing and there of another.

    How often, or when alone, is told of one failure: "failed 3 times", "failed 5 times".
    """
    a, b = pair.a, pair.b
    if not 0 < pair.ed.blocks == pair.ed.replaced <= PLACES or not _LATEST.isdisjoint(a.bag | b.bag):
        return False
    if not _failed(a) or not _failed(b) or a.negations != b.negations or pair.al.opposites:
        return False
    counted = {text.stems[i] for text in (a, b) for i in text.quantities}
    return any(not counted.issuperset(side) for both in pair.ed.swapped for side in both)


def _failed(text: Text) -> bool:
    """Whether a text tells that something failed, or of an error somewhere."""
    words = text.words
    if not FAILED.isdisjoint(text.bag):
        return True
    return any(
        (word in lx.FAULTS or word.endswith(("error", "exception"))) and after in _PLACES
        for word, after in pairwise(words)
    )


def of_other_prohibitions(pair: Pair) -> bool:
    """Whether both begin by forbidding something, and not the same: "Do not edit a.ts", "Do not edit b.ts"."""
    a, b = pair.a.words, pair.b.words
    forbids = a[:2] == b[:2] == ("do", "not") or a[:1] == b[:1] == ("never",)
    return forbids and pair.ed.lone_swap and not pair.al.opposites and lx.LINKING_VERBS.isdisjoint(pair.a.bag)
