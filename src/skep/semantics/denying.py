"""Texts of which one denies something else than the other says, so that both may hold.

A wish is not what is, what was need not be so now, what one person does another may not do, and who likes dogs may
have none. All rules are the same whichever text is given first.
"""

from __future__ import annotations

from itertools import pairwise

from skep.semantics import lexicon as lx
from skep.semantics.features import Pair
from skep.semantics.reading import Text

NEAR = 0.6
"""The cosine of two words from which one may deny what the other says."""
WISHES = lx.word_set(
    """would could might may want wants wanted hope hopes hoping plan plans planning try tries trying wish wishes
    dream dreams intend intends if"""
)
DUTIES = lx.word_set("should must ought can")
AHEAD = lx.word_set("will shall")
PAST = lx.word_set("was were had did")
HAVING = lx.word_set("have has had having own owns owned got with")
_BE = lx.word_set("is are am be been being has have having a an the")
_BIDDING = lx.word_set("do never always avoid use no only please")
"""Words with which a text begins that tells somebody what to do."""
_PEOPLE = lx.word_set("i we he she they you")
_WHOSE = lx.word_set("my our his her their your")
_ARTICLES = _WHOSE | lx.word_set("the a an this that its")
_BETWEEN = lx.word_set(
    "really ever always even yet currently any a an the been be being very so to longer that just"
)
"""Words that may stand between a negation and what it denies."""


def denies_another(pair: Pair) -> bool:
    """Whether one text denies something else than the other says: a wish, what was, of another, by another verb."""
    a, b = pair.a, pair.b
    return (
        _of_other_moods(a, b)
        or _of_other_people(a, b)
        or _denies_unsaid(a, b, pair.al.best_a)
        or _denies_unsaid(b, a, pair.al.best_b)
        or _denies_the_opposite(pair)
    )


def _of_other_moods(a: Text, b: Text) -> bool:
    """Whether only one tells of a wish, of what was, of what will be, or of what should be."""
    if any(words.isdisjoint(a.bag) != words.isdisjoint(b.bag) for words in (WISHES, AHEAD)):
        return True
    if _was(a) != _was(b) or _in_the_past(a, b) or _in_the_past(b, a):
        return True
    mine, theirs = DUTIES.isdisjoint(a.bag), DUTIES.isdisjoint(b.bag)
    plain = a if mine else b
    return mine != theirs and _BIDDING.isdisjoint(plain.words[:1])


def _was(text: Text) -> bool:
    """Whether a text says that something was."""
    return not PAST.isdisjoint(text.bag) or ("used", "to") in {*pairwise(text.words)}


def _in_the_past(text: Text, other: Text) -> bool:
    """Whether a text tells in the past what the other tells otherwise: "played the piano", "do not play"."""
    if _was(other):
        return False
    past = {
        lx.lemma(word)[0]
        for before, word in pairwise(text.words)
        if lx.lemma(word)[1] and before not in _BE and before not in lx.NEGATORS and word not in other.bag
    }
    return not past.isdisjoint(lx.lemma(word)[0] for word in other.bag)


def _of_other_people(a: Text, b: Text) -> bool:
    """Whether one tells of the speaker or of somebody, and the other of somebody else: "I ...", "my kids ..."."""
    mine, theirs = _who(a), _who(b)
    if not mine or not theirs or mine == theirs:
        return False
    if mine in _PEOPLE or theirs in _PEOPLE:
        return True
    return a.words[0] in _WHOSE and b.words[0] in _WHOSE


def _who(text: Text) -> str:
    """Of whom or what a text tells, where it begins with that."""
    words = text.words
    if words[:1] and words[0] in _ARTICLES:
        return lx.stem(words[1]) if len(words) > 1 else ""
    if not words or _who_else(words[0]):
        return ""
    return words[0]


def _who_else(word: str) -> bool:
    """Whether a first word names nobody."""
    return word in _BIDDING or (word in lx.STOP and word not in _PEOPLE) or not word.isalpha()


def _denies_unsaid(text: Text, other: Text, nearest: list[float]) -> bool:
    """Whether what comes after "not" has nothing in the other text that it could deny: "have no dogs", "like dogs"."""
    for i, word in enumerate(text.words):
        if word in ("not", "never", "dont"):
            at = next((j for j in range(i + 1, len(text.words)) if text.words[j] not in _BETWEEN), 0)
            if at and not _answered(text, at, other, nearest):
                return True
        if word == "no" and i and text.words[i - 1] in HAVING and HAVING.isdisjoint(other.bag):
            return True
    return False


def _answered(text: Text, at: int, other: Text, nearest: list[float]) -> bool:
    """Whether a word that is denied has a word in the other text that says it."""
    word, stem = text.words[at], text.stems[at]
    if word in HAVING:
        return not HAVING.isdisjoint(other.bag)
    if not word.isalpha() or word in other.bag or stem in other.stem_bag:
        return True
    known = lx.lemma(word)[0]
    if any(lx.lemma(w)[0] == known for w in other.bag) or not lx.synonyms(stem).isdisjoint(other.stem_bag):
        return True
    return at in text.content and nearest[text.content.index(at)] >= NEAR


def _denies_the_opposite(pair: Pair) -> bool:
    """Whether the one word that is denied is the opposite of what the other says: "not good", "bad"."""
    a, b = pair.a, pair.b
    if a.negations + b.negations != 1 or len(pair.al.opposites) != 1:
        return False
    denying = a if a.negations else b
    (opposed,) = pair.al.opposites
    return any(
        negated and stem in opposed for stem, negated in zip(denying.stems, denying.negated, strict=True)
    )
