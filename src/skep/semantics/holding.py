"""Whether a relation holds one value at a time, so that a new one takes the place of the old.

Two lists, and what stands between them. Of what is known to hold several at a time ("accepts JSON"), and of what was
done ("hired Tom"), a second is told beside the first. What is known to hold one ("lives in", "the lead is") may be
replaced while nobody looks. The verbs of a language are many, and most are on neither list: those are for a judge.
All rules are the same whichever text is given first.
"""

from __future__ import annotations

from itertools import pairwise

from skep.semantics import lexicon as lx
from skep.semantics.features import Pair
from skep.semantics.happening import has_digit
from skep.semantics.reading import Text
from skep.words import SINGLE

SEVERAL = lx.MANY_VALUED | lx.word_set(
    """accept accepts handle handles parse parses import imports ingest ingests collect collects
    emit emits export exports publish publishes sell sells serve serves ship ships deliver delivers offer offers
    raise raises throw throws print prints log logs
    cover covers mention mentions list lists describe describes cite cites represent represents
    integrate integrates interoperate interoperates compatible available translated
    occur occurs appear appears happen happens
    need needs require requires depend depends rely relies
    block blocks reject rejects forbid forbids prevent prevents protect protects
    teach teaches coach coaches mentor mentors help helps sing sings cook cooks bake bakes grow grows
    volunteer volunteers donate donates follow follows sponsor sponsors target targets connect connects
    member friend friends fan good bad afraid familiar known famous"""
)
"""Words whose objects do not replace each other: what takes in, gives out, covers, works with, needs or keeps off."""
SEVERAL_WITH = frozenset(
    (verb, before) for verb in ("work", "works") for before in ("with", "on", "in", "across", "under")
)
"""The same for words that do so before some others only: what works on Linux, but who works at Acme."""
MAY = lx.word_set("can could may might")
"""What is possible does not rule out anything else that is."""
ONE = lx.word_set(
    """live lives living born died start starts begin begins end ends expire expires depart departs arrive arrives
    cost costs weigh weighs last lasts citizen religion"""
)
"""Words that leave room for one value at a time."""
ONE_DONE_TO = lx.word_set(
    """located situated based buried married employed named called titled founded created developed invented
    led headed chaired owned managed directed scheduled planned due set priced rated parked kept"""
)
"""The same for words that do so after "is" or "was" only: what is called Rex, but who called the dentist."""
ONE_WITH = frozenset(
    (verb, before)
    for verbs, words in (("work works", "at for as from"), ("report reports", "to"), ("written", "by in"))
    for verb in verbs.split()
    for before in words.split()
)
"""The same for words that do so before some others only: who works at Acme, but what works on Linux."""
SETTLED = lx.UPDATE_MARKERS | lx.word_set(
    "chose chosen picked selected decided agreed settled joined assigned preferred won elected"
)
"""What is told of the past and leaves room for one value: what was chosen, where somebody went."""
KIN = lx.word_set(
    """brother sister son daughter child kid cousin uncle aunt nephew niece grandson granddaughter friend colleague
    neighbor neighbour roommate student client customer dog cat pet"""
)
"""Of whom there may be two, each with something of their own: "my brother lives in Cork"."""
_BE = lx.word_set("is are am be been being")
_WAS = _BE | {"was", "were"}
_WHOSE = lx.word_set("my our your his her their its s")
_BEFORE_NOUNS = lx.word_set(
    "a an the this that these those my our your his her their its of in on at by for with to"
)
_LIGHT = lx.word_set("in at on of the to by from for") | lx.MONTHS
"""What may stand between "is" and a value."""
_AGAIN = frozenset(f"{day}s" for day in lx.EXCLUSIVE[1])
"""Days on which something is again and again: who trains on Mondays may train on Thursdays too."""
_RUNNING = frozenset((word,) for word in ("run", "runs", "use", "uses"))
"""Words after which a name with a number is that of a version, of which the next takes the place."""
_NOT_COUNTING = lx.word_set("in on since with")
"""Words after which a bare number is a year or a name, and no amount."""


def holds_several(pair: Pair, reason: str) -> bool:
    """Whether the relation can have several values at a time, so that a new one need not replace the old."""
    if reason != "value" and not pair.ed.lone_swap:
        return False
    a, b = pair.a, pair.b
    said = a.bag | b.bag
    if not SINGLE.isdisjoint(said):
        return False
    shared = (a.bag | a.stem_bag) & (b.bag | b.stem_bag)
    if reason == "number":
        return not lx.MANY_VALUED.isdisjoint(shared - {"has", "have", "had"})
    if not lx.MANY_VALUED.isdisjoint(shared):
        return True
    if "use" in shared and "for" not in said:
        return True
    if _is_value(pair) or _is_single(a, b):
        return False
    plain = shared - _capitals(a) - _capitals(b)
    if not _AGAIN.isdisjoint(a.bag) and not _AGAIN.isdisjoint(b.bag):
        return True
    if not SEVERAL.isdisjoint(plain) or not MAY.isdisjoint(plain) or _done_in_turn(a, b):
        return True
    return not SEVERAL_WITH.isdisjoint({*pairwise(a.words)} & {*pairwise(b.words)})


def holds_one(pair: Pair, reason: str) -> bool:
    """Whether the relation is known to hold one value, so that the old one may be replaced without asking."""
    a, b = pair.a, pair.b
    if not SINGLE.isdisjoint(a.bag | b.bag) or not lx.UPDATE_MARKERS.isdisjoint(a.bag | b.bag):
        return True
    if any(whose in _WHOSE and who in KIN for whose, who in pairwise(a.words)):
        return False
    if _is_single(a, b) or _is_value(pair):
        return True
    return reason == "number" and not _done_in_turn(a, b) and _amounts(a, b) and _amounts(b, a)


def _is_single(a: Text, b: Text) -> bool:
    """Whether both name a relation that leaves room for one value at a time."""
    both = {*pairwise(a.words)} & {*pairwise(b.words)}
    if not ONE.isdisjoint(a.bag & b.bag) or not ONE_WITH.isdisjoint(both):
        return True
    return any(before in _WAS and word in ONE_DONE_TO for before, word in both)


def _capitals(text: Text) -> set[str]:
    """The words and stems of names, which are no verbs."""
    named = [i for i, capital in enumerate(text.capital) if capital]
    return {text.words[i] for i in named} | {text.stems[i] for i in named}


def _done_in_turn(a: Text, b: Text) -> bool:
    """Whether both tell what was done, and neither that it changed or settled something: "Dana hired Tom"."""
    return SETTLED.isdisjoint(a.bag | b.bag) and not _done(a).isdisjoint(_done(b))


def _done(text: Text) -> set[str]:
    """The words in the past tense that say what somebody or something did, or what was done to it."""
    return {
        word
        for before, word in pairwise(text.words)
        if lx.lemma(word)[1] and word not in lx.STOP and before not in _BE and before not in _BEFORE_NOUNS
    }


def _is_value(pair: Pair) -> bool:
    """Whether the texts say what one thing is, or where, and one name stands in another's place: "the lead is Bob"."""
    a, b = pair.a, pair.b
    least = min(len(a.words), len(b.words))
    at = next((i for i in range(least) if a.words[i] != b.words[i]), 0)
    said = at
    while said and (a.capital[said - 1] or a.words[said - 1] in _LIGHT):
        said -= 1
    if said < 2 or a.words[said - 1] not in ("is", "am"):
        return False
    return any(swap.exclusive for swap in pair.al.swaps) or all(_names(t, at, pair.rare) for t in (a, b))


def _names(text: Text, at: int, rare: frozenset[str]) -> bool:
    """Whether a name, number or identifier stands at a place or right behind."""
    return any(
        text.capital[i] or text.stems[i] in rare or has_digit(text.words[i])
        for i in range(at, min(at + 2, len(text.words)))
    )


def _amounts(text: Text, other: Text) -> bool:
    """Whether the numbers that the other text has not are amounts, and not names: "30 days", not "Python 3.11"."""
    return all(
        bool(quantity.dimension) or _counts(text.words[:i])
        for i, quantity in text.quantities.items()
        if text.stems[i] not in other.stem_bag
    )


def _counts(before: tuple[str, ...]) -> bool:
    """Whether a number after these words is an amount, or the version of what runs: "runs Postgres 16"."""
    if not before or before[-2:-1] in _RUNNING:
        return True
    return before[-1] in lx.STOP and before[-1] not in _NOT_COUNTING
