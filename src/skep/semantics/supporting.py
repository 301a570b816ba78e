"""Whether one text says what another says, so that it counts as evidence for it.

>>> supports("Deploys need two approvals", "Note from the audit: deploys need two approvals, as ever", similarity=0.9)
True
>>> supports("Deploys need two approvals", "If the budget is cut, deploys need two approvals", similarity=0.9)
False

This has a direction: who says more than a fact supports it, who says less does not. It is strict: what is asked,
planned, doubted or only holds under a condition is no evidence, nor is the same said of somebody or something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from skep.semantics import lexicon as lx
from skep.semantics.compare import Asked, Verdict, compare_many
from skep.semantics.reading import Text, analyse
from skep.semantics.saying import FILLERS
from skep.semantics.telling import speaker, telling

AGAINST = ("contradiction", "update")
"""Verdicts on two texts of which one does not let the other stand."""
MOST_SENTENCES = 16
"""Of a longer text only so many sentences are looked at."""
_SENTENCE = re.compile(r"((?<=[.!?。！？])\s+|\n+)")
_SHORTENED = re.compile(
    r"\b(?:(?:approx|dr|mr|mrs|ms|prof|st|vs|cf|e\.g|i\.e)(?P<any>)|(?:[ap]\.m|etc|inc|ltd|corp|u\.s|u\.k)(?P<small>)"
    r"|(?:no|nr|fig|sec|eq|vol|pp|ca|max|min|ver)(?P<number>))\.$",
    re.IGNORECASE,
)
"""Words with a full stop after which a sentence goes on: whatever follows, if it is a small letter, or a number."""
_OCCASION = re.compile(
    r"[\s,;(]+(?:(?:on|in|at|during) )?(?:the )?(?:day|night|week|run|attempt|try|round|time) #?\d+\)?[.!]?$",
    re.IGNORECASE,
)
"""How a sentence in the past may end that tells which time something happened."""
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
"""Code that stands in a text."""
_ASKS = ("?", "？")
UNSURE = (
    lx.HEDGES
    | lx.MOODS[0]
    | lx.MOODS[2]
    | lx.word_set(
        """whether unless or versus vs only except instead supposedly allegedly reportedly
        think thinks thought believe believes believed guess guesses guessed doubt doubts doubted wonder wonders
        wondered suppose supposes imagine imagined dream dreamt wish wishes wished hoped planned planning
        propose proposes proposed suggest suggests suggested consider considers considered considering
        discuss discussed discussing debate debated pretend pretended claim claims claimed against"""
    )
)
"""Words that turn a statement into a thought, a plan, a choice or a condition."""
ENDED = lx.word_set("formerly previously longer anymore until used")
"""Words that say that something is over."""


REPEATED = FILLERS | lx.word_set("again anew once")
"""Words a fact may have that its evidence need not repeat."""
SPEAKING = (lx.PERSONAL, lx.word_set("he his him"), lx.word_set("she her hers"))
"""Words for the people a sentence may be about; what one of them does is no evidence of what another does."""
HELD = 0.5
"""The share of a fact's words from which a sentence may be about the same."""


class Said(NamedTuple):
    """A text that should support a fact; `similarity` is their cosine on the calibrated scale."""

    fact: str
    text: str
    similarity: float


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space trimmed.

    >>> sentences("The limit is approx. 5 GB. Dr. Lee set it at 5 p.m. on Monday.")
    ['The limit is approx. 5 GB.', 'Dr. Lee set it at 5 p.m. on Monday.']
    """
    parts = _SENTENCE.split(text)
    found = [parts[0]]
    for gap, part in zip(parts[1::2], parts[2::2], strict=True):
        if "\n" not in gap and _goes_on(found[-1], part):
            found[-1] += gap + part
        else:
            found.append(part)
    return [part.strip() for part in found if part.strip()]


def _goes_on(before: str, after: str) -> bool:
    """Whether the full stop at the end of a part belongs to a shortened word."""
    if not before.endswith("."):
        return False
    found = _SHORTENED.search(before, max(0, len(before) - 8))
    if found is None or found["any"] is not None:
        return found is not None
    return after[:1].islower() if found["small"] is not None else after[:1].isdigit()


@lru_cache(maxsize=4096)
def statements(text: str) -> tuple[str, ...]:
    """The sentences of a text that tell something; questions do not.

    What somebody says of themselves keeps their name, so that it is nobody else's.

    >>> statements("Ana: Hello there. I live in Oslo. How are you?")
    ('Ana: Hello there.', 'Ana: I live in Oslo.')
    """
    found: list[str] = []
    who: str | None = None
    for each in sentences(text)[:MOST_SENTENCES]:
        named = speaker(each)
        who = named or who
        if each.endswith(_ASKS):
            continue
        own = who is not None and named is None and not lx.PERSONAL.isdisjoint(analyse(each).bag)
        found.append(f"{who}: {each}" if own else each)
    return tuple(found)


@lru_cache(maxsize=4096)
def told(text: str) -> tuple[str, ...]:
    """What a text states, without the occasion: "failed on run 3" states that it failed.

    >>> told("The backup failed, attempt 3. Why?")
    ('The backup failed',)
    """
    return tuple(dict.fromkeys(_without_occasion(each) for each in statements(text)))


@lru_cache(maxsize=4096)
def worth_keeping(text: str) -> tuple[str, ...]:
    """What a text states that is worth knowing by itself, without the occasion.

    >>> worth_keeping("Hi! Thanks, that worked. The backup to nas3 failed, attempt 3.")
    ('The backup to nas3 failed',)
    """
    return tuple(each for each in told(_FENCED.sub("\n", text)) if telling(each))


def _without_occasion(sentence: str) -> str:
    found = _OCCASION.search(sentence)
    return sentence[: found.start()] if found and _past(analyse(sentence[: found.start()])) else sentence


def supports(fact: str, text: str, *, similarity: float) -> bool:
    """Whether a text is evidence for a fact."""
    return supports_many([Said(fact, text, similarity)])[0]


def supports_many(asked: Sequence[Said]) -> list[bool]:
    """`supports` for many pairs; what words alone can settle is settled first, the rest is compared at once."""
    found = [True] * len(asked)
    open_: list[tuple[int, list[tuple[Asked, bool]]]] = []
    for place, each in enumerate(asked):
        parts = sentences(each.fact)
        found[place] = bool(parts)
        for part in parts:
            ways = [
                (Asked(part, said, each.similarity), whole)
                for said in statements(each.text)
                if (whole := _may(analyse(part), analyse(said))) is not None
            ]
            if not ways:
                found[place] = False
                break
            open_.append((place, ways))
    open_ = [(place, ways) for place, ways in open_ if found[place]]
    if not open_:
        return found
    pairs = {_unordered(each): each for _, ways in open_ for each, _ in ways}
    verdicts = dict(zip(pairs, compare_many(list(pairs.values())), strict=True))
    for place, ways in open_:
        found[place] = found[place] and any(
            _says(verdicts[_unordered(each)], whole=whole) for each, whole in ways
        )
    return found


def _unordered(asked: Asked) -> tuple[str, str]:
    """Two texts whichever comes first: a comparison has no direction."""
    return (asked.a, asked.b) if asked.a <= asked.b else (asked.b, asked.a)


def _says(verdict: Verdict, *, whole: bool) -> bool:
    if verdict.kind in AGAINST:
        return False
    return whole or (verdict.kind == "duplicate" and verdict.clear)


def against(fact: str, text: str, *, similarity: float) -> bool:
    """Whether some sentence of a text does not let a fact stand."""
    about = analyse(fact)
    near = [said for said in statements(text) if _share(about, analyse(said)) >= HELD]
    return any(
        each.kind in AGAINST for each in compare_many([Asked(fact, said, similarity) for said in near])
    )


def _share(fact: Text, said: Text) -> float:
    """How much of a fact's words a sentence holds."""
    return sum(stem in said.stem_bag for stem in fact.told) / max(1, len(fact.told))


def _may(fact: Text, said: Text) -> bool | None:
    """Whether a sentence holds every word of a fact; None if it cannot support it, whatever it means."""
    if _share(fact, said) < HELD or fact.question or said.question:
        return None
    more = said.bag - fact.bag
    if not UNSURE.isdisjoint(more) or not ENDED.isdisjoint(more):
        return None
    if not lx.MOODS[1].isdisjoint(more) and not _past(fact):
        return None
    if _others(fact, said):
        return None
    if not set(fact.quantities.values()) <= set(said.quantities.values()):
        return None
    names = {stem for each in (fact, said) for stem, c in zip(each.stems, each.capital, strict=True) if c}
    mine = [stem for stem in fact.told if stem in names]
    if not set(mine) <= said.stem_bag or _in_order(mine) != _in_order(s for s in said.told if s in set(mine)):
        return None
    if any(fact.told.count(stem) > said.told.count(stem) > 0 for stem in fact.told):
        return False  # "rap rock" is no "rock music" because "music" stands elsewhere, too
    return all(_as_said(fact, said, i) for i in fact.content if not _repeated(fact, i))


def _others(fact: Text, said: Text) -> bool:
    """Whether two sentences are about different people, as far as "I", "he" and "she" tell."""
    mine, theirs = (
        {i for i, words in enumerate(SPEAKING) if not words.isdisjoint(t.bag)} for t in (fact, said)
    )
    return bool(mine and theirs) and mine.isdisjoint(theirs)


def _repeated(fact: Text, place: int) -> bool:
    """Whether a word says only that something happened again."""
    word = fact.words[place]
    return word in REPEATED or (word == "more" and place > 0 and fact.words[place - 1] == "once")


def _in_order(stems: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(stems))


def _past(text: Text) -> bool:
    return not lx.MOODS[1].isdisjoint(text.bag) or any(
        text.words[i].endswith("ed") or lx.lemma(text.words[i])[1] for i in text.content
    )


def _as_said(fact: Text, said: Text, place: int) -> bool:
    """Whether a word of a fact stands in a sentence too, negated as there or not."""
    stem, negated = fact.stems[place], fact.negated[place]
    return any(s == stem and n == negated for s, n in zip(said.stems, said.negated, strict=True))
