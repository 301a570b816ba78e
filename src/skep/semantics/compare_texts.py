"""Whether two texts repeat, contradict or update each other.

>>> compare("Use ruff for linting", "Never use ruff for linting", similarity=0.95).kind
'contradiction'

A small model weighs what the texts share against where they clash (see `features`). Rules come before it where the
answer is certain, and after it to name the reason and to tell an update from a plain contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise, takewhile
from typing import Literal, NamedTuple, get_args

import msgspec

from skep.semantics import lexicon as lx
from skep.semantics import pair_model
from skep.semantics.pair_features import NAMES, RARE, Pair, Swap, examine_many
from skep.semantics.pair_rules import (
    denied_twice,
    denies_another,
    has_digit,
    holds_one,
    holds_several,
    of_other_failures,
    of_other_happenings,
    of_other_identifiers,
    of_other_kinds,
    of_other_letters,
    of_other_prohibitions,
    of_other_sides,
    of_other_subjects,
    one_at_a_time,
    other_in_office,
    other_of_a_closed_group,
    seen_from_the_other_side,
)
from skep.semantics.parse_text import Text, analyse, numbered
from skep.semantics.same_statement import said_twice
from skep.semantics.same_value import in_one_notation, in_one_unit, of_a_day, period

VerdictKind = Literal["duplicate", "contradiction", "update", "neutral"]
Reason = Literal["polarity", "negation", "antonym", "number", "value", "custom", "similarity"]
REASONS: tuple[str, ...] = get_args(Reason)


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """When a verdict may be acted on without asking the judge."""

    merge: float = 0.90
    """Probability of `duplicate` from which two memories may be merged, if nothing clashes."""
    merge_cover: float = 0.80
    """How much of each text's meaning the other must cover for that."""
    conflict: float = 0.90
    """Probability of `contradiction` from which a contradiction or update is clear."""
    polarity: float = 0.60
    """Similarity from which opposite explicit polarities contradict."""


THRESHOLDS = Thresholds()


LIKELY = 0.6
"""The least probability of a contradiction when one name stands in another's place, or two have changed places."""
MAYBE = 0.3
"""The most that an update of a relation is sure of which may hold both values: less than any likeliest of three."""
SYNONYM = 0.6
"""The cosine of two words from which they may well mean the same; a merge needs one for every word."""
CLASHES = (
    "negated_one", "flipped", "parity", "cancels_one", "opposites", "exclusive", "numbers_hi", "names_hi",
    "question_one", "universal", "hedged",
)  # fmt: skip
"""Features of which none may be set where two memories are merged without asking."""
ARTICLES = ("a", "an", "the")
Row = dict[str, float]
Chances = tuple[float, float, float]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What two texts are to each other."""

    kind: VerdictKind
    confidence: float
    """The probability of the kind; an update has that of a contradiction.

    However sure the model is: a duplicate in which anything clashes stays below the thresholds, and so does a conflict
    of which both sides may hold; an update of a relation that can have several values stays below one third.
    """
    reason: Reason
    probabilities: dict[str, float]
    """Per class: duplicate, contradiction, neutral."""
    clear: bool = False
    """Whether it may be acted on alone; the rest is for the judge."""


def _reason(row: Row) -> Reason:
    """What makes two texts clash, the most telling first."""
    if row["flipped"] > 0 or row["negated_one"] or row["cancel_cover"] >= 0.5:
        return "negation"
    if row["opposites"] and not (row["numbers_differ"] and row["lone_swap"]):
        return "antonym"
    if row["numbers_differ"]:
        return "number"
    return "value"


def _replaces_value(pair: Pair, row: Row, reason: Reason, newest: Text | None) -> bool:
    """Whether subject and relation agree and only the value differs."""
    if reason not in ("number", "value"):
        return False
    if pair.ed.lone_swap and not pair.ed.head:
        return True
    said = newest.bag if newest else pair.a.bag | pair.b.bag
    subject = bool(row["subject_same"]) or row["names_shared"] > 0
    if subject and not lx.UPDATE_MARKERS.isdisjoint(said):
        return True
    return subject and pair.ed.replaced > 0 and row["cover_lo"] >= 0.35


def _other_name_in_same_place(pair: Pair) -> bool:
    """Whether the texts are one sentence with one name, number or identifier replaced after its beginning."""
    ed = pair.ed
    if not ed.lone_swap or ed.head or pair.a.words[0] in lx.INDEFINITE:
        return False
    if any(s.cosine > SYNONYM and not _dotted(pair, s) for s in pair.al.swaps):
        return False
    named = {s for t in (pair.a, pair.b) for s, c in zip(t.stems, t.capital, strict=True) if c}
    return all(
        len(side) <= 3 and any(w in named or has_digit(w) or w in pair.rare for w in side)
        for side in ed.swapped[0]
    )


def _dotted(pair: Pair, swap: Swap) -> bool:
    """Whether a word that changed place with another is an identifier, of which no two mean the same.

    It is an address or a dotted name, or both hold digits ("v1", "v2").
    """
    words = pair.a.told[swap.left], pair.b.told[swap.right]
    return any("." in word or "_" in word for word in words) or all(map(has_digit, words))


def _turned_round(pair: Pair) -> bool:
    """Whether the texts are the same words with the two sides of a comparison exchanged: "tabs over spaces"."""
    a, b = pair.a, pair.b
    if a.stem_bag != b.stem_bag or lx.DIRECTED.isdisjoint(a.bag) or lx.DIRECTED.isdisjoint(b.bag):
        return False
    mine, theirs = ([stem for stem in text.told if stem not in lx.DIRECTED] for text in (a, b))
    if len(mine) == 2 and mine == theirs[::-1]:
        return True
    (left, right), (other_left, other_right) = _sides(a), _sides(b)
    return not left.isdisjoint(other_right) and not right.isdisjoint(other_left)


def _of_other_times(pair: Pair) -> bool:
    """Whether each text tells of a time of its own, and something else besides: sales in 2022 and in 2023."""
    a, b = pair.a, pair.b
    mine, theirs = _times(a), _times(b)
    if not mine or not theirs or not mine.isdisjoint(theirs):
        mine, theirs = _opening_day(a), _opening_day(b)
        if not mine or not theirs or mine == theirs:
            return False
    return bool(a.bag - b.bag - mine) and bool(b.bag - a.bag - theirs)


def _of_other_things(pair: Pair) -> bool:
    """Whether the texts are about two things of a kind, told apart by a number: port 80 and port 443, PR #1 and PR #2.

    Or about two names, of which each is told something of its own.
    """
    a, b = pair.a, pair.b
    here, there = (_subject(a), _subject(b)) if a.numbered and b.numbered else ((), ())
    if here and there and len(here) == len(there):
        *kind, mine = here
        *same, theirs = there
        if kind and kind == same and mine != theirs and numbered(mine) and numbered(theirs):
            return not one_at_a_time(pair, kind[-1], len(here) + 1)
    if pair.ed.blocks < 2 or not pair.ed.head or a.told[:1] == b.told[:1]:
        return False
    first = pair.al.weights_a[:1], pair.al.weights_b[:1], pair.al.best_a[:1], pair.al.best_b[:1]
    if not all(first):
        return False
    (mine,), (theirs,), (near,), (nearer,) = first
    return min(mine, theirs) >= RARE and max(near, nearer) < SYNONYM


def _subject(text: Text) -> tuple[str, ...]:
    """The words before the first verb that says what something is or has, or up to the number of a numbered thing."""
    verb = next((i for i, word in enumerate(text.words) if word in lx.LINKING_VERBS), 0)
    if not verb:
        few = enumerate(pairwise(text.words[:4]), 2)
        verb = next((i for i, (kind, of) in few if kind in lx.NUMBERED and numbered(of)), 0)
    return text.words[:verb]


def _opening_day(text: Text) -> set[str]:
    """The day of which a text tells, where it begins with that: "On May 3 ...", "2024-05-03: ..."."""
    on = text.words[:1] == ("on",)
    day = set(takewhile(of_a_day, text.words[on:]))
    return day if on or any(word.endswith("date") for word in day) else set()


def _times(text: Text) -> set[str]:
    """The years, quarters and months in which something is said to be."""
    if lx.WITHIN.isdisjoint(text.bag):
        return set()
    return {word for before, word in pairwise(text.words) if before in lx.WITHIN and period(word)}


def _sides(text: Text) -> tuple[set[str], set[str]]:
    """What a text tells before and after the first word that compares."""
    middle = next(i for i, word in enumerate(text.words) if word in lx.DIRECTED)
    told = [(i, text.stems[i]) for i in text.content]
    return {stem for i, stem in told if i < middle}, {stem for i, stem in told if i > middle}


def _clashes(pair: Pair, row: Row) -> bool:
    """Whether anything speaks against merging: a number, a name, a negation, an opposite, another time or person."""
    a, b = pair.a, pair.b
    return (
        any(row[name] for name in CLASHES)
        or row["order"] < 1.0
        or row["weakest_lo"] < SYNONYM
        or any(group.isdisjoint(a.bag) != group.isdisjoint(b.bag) for group in lx.MOODS)
        or _about_someone_else(a, b)
        or _past(a) != _past(b)
        or ("one", "of") in {*pairwise(a.words)} ^ {*pairwise(b.words)}
        or _counted(a) != _counted(b)
        or (a.question or b.question)
        or a.marks != b.marks
        or not (a.whole and b.whole)
    )


def _about_someone_else(a: Text, b: Text) -> bool:
    """Whether both begin with a pronoun, and not with the same one."""
    first, second = a.words[:1], b.words[:1]
    return first != second and lx.PERSONS.issuperset(first) and lx.PERSONS.issuperset(second)


def _counted(text: Text) -> set[tuple[str, str]]:
    """Every number with the word after it, so that two dogs and a cat are not a dog and two cats."""
    following = dict(pairwise(text.content))
    return {(text.stems[i], text.stems[following[i]] if i in following else "") for i in text.quantities}


def _past(text: Text) -> bool:
    return any(text.words[i].endswith("ed") or lx.lemma(text.words[i])[1] for i in text.content)


def _same_words(a: Text, b: Text) -> bool:
    """Whether only case, articles, punctuation or the way a number is written differ."""
    if a.told != b.told:
        return False
    if any(word[0].isalnum() and word not in ARTICLES for word in a.bag ^ b.bag):
        return False
    left, right = ([w for w in t.words if w[0].isalnum() and w not in ARTICLES] for t in (a, b))
    return left == right and a.question == b.question and a.marks == b.marks and a.whole and b.whole


def _probabilities(pairs: Sequence[Pair]) -> list[Chances]:
    """The model's opinion of pairs; a question asserts nothing, so it contradicts nothing."""
    model, _ = pair_model.load()
    found: list[Chances] = []
    for pair, (same, against, apart) in zip(pairs, model.probabilities([p.row for p in pairs]), strict=True):
        if pair.a.question or pair.b.question:
            rest = same + apart
            found.append((same / rest, 0.0, apart / rest))
        elif denied_twice(pair) or seen_from_the_other_side(pair):
            low, middle, high = sorted((same, against, apart))
            found.append((high, low, middle))
        elif _of_others(pair):
            found.append(_apart(same, against, apart))
        elif against < LIKELY and _against(pair):
            rest = (1 - LIKELY) / (same + apart)
            found.append((same * rest, LIKELY, apart * rest))
        else:
            found.append((same, against, apart))
    return found


def _of_others(pair: Pair) -> bool:
    """Whether two texts are about different things, which may each be as they say."""
    return (
        _of_other_times(pair)
        or _of_other_things(pair)
        or of_other_letters(pair)
        or of_other_identifiers(pair)
        or of_other_happenings(pair)
        or of_other_failures(pair)
        or of_other_prohibitions(pair)
        or of_other_sides(pair)
        or of_other_kinds(pair)
        or of_other_subjects(pair)
    )


def _against(pair: Pair) -> bool:
    """Whether two texts do not go together, whatever their words weigh."""
    return (
        _other_name_in_same_place(pair)
        or _turned_round(pair)
        or other_in_office(pair)
        or other_of_a_closed_group(pair)
    )


def _apart(same: float, against: float, apart: float) -> Chances:
    """The chances where the texts are about different things: whatever is likeliest is that."""
    low, middle, high = sorted((same, against, apart))
    return (low, middle, high) if same <= against else (middle, low, high)


class Asked(NamedTuple):
    """Two texts to compare; see `compare`."""

    a: str
    b: str
    similarity: float
    polarity_a: int = 0
    polarity_b: int = 0
    newer: Literal["a", "b"] | None = None


def compare(
    a: str,
    b: str,
    *,
    similarity: float,
    polarity_a: int = 0,
    polarity_b: int = 0,
    newer: Literal["a", "b"] | None = None,
    thresholds: Thresholds = THRESHOLDS,
) -> Verdict:
    """Tell what two texts are to each other.

    Args:
        a: One text.
        b: The other; the order does not matter.
        similarity: Their cosine on the calibrated scale.
        polarity_a: What the writer said `a` is: +1 for, -1 against, 0 unsaid.
        polarity_b: The same for `b`.
        newer: Which is the later one, if known; words such as "now" or "switched to" count only there.
        thresholds: When a verdict is clear.
    """
    return compare_many([Asked(a, b, similarity, polarity_a, polarity_b, newer)], thresholds)[0]


def compare_many(asked: Sequence[Asked], thresholds: Thresholds = THRESHOLDS) -> list[Verdict]:
    """`compare` for many pairs, at half of the cost: vectors are made and trees are asked for all of them at once."""
    alike = [in_one_unit(*in_one_notation(each.a, each.b)) for each in asked]
    texts = [(analyse(a), analyse(b)) for a, b in alike]
    found = [_by_rule(each, *both, thresholds) for each, both in zip(asked, texts, strict=True)]
    open_ = [place for place, verdict in enumerate(found) if verdict is None]
    words = pair_model.load()[1]
    spoken = {id(text): text for place in open_ for text in texts[place]}.values()
    words.learn(chain.from_iterable([[text.words[i] for i in text.content] for text in spoken]))
    pairs = examine_many([(*texts[place], asked[place].similarity) for place in open_], words)
    weighed = {
        place: _weighed(pair, chances, texts[place], asked[place].newer, thresholds)
        for place, pair, chances in zip(open_, pairs, _probabilities(pairs), strict=True)
    }
    return [verdict or weighed[place] for place, verdict in enumerate(found)]


def _by_rule(asked: Asked, left: Text, right: Text, thresholds: Thresholds) -> Verdict | None:
    """The verdict where it is certain."""
    opposed = asked.polarity_a * asked.polarity_b < 0
    if opposed and asked.similarity >= thresholds.polarity:
        return _verdict("contradiction", "polarity", (0.01, 0.98, 0.01), clear=True)
    if not opposed and (asked.a == asked.b or _same_words(left, right)):
        return _verdict("duplicate", "similarity", (0.98, 0.01, 0.01), clear=True)
    if not opposed and said_twice(left, right):
        return _verdict("duplicate", "similarity", (0.96, 0.02, 0.02), clear=True)
    return None


def _weighed(
    pair: Pair,
    chances: Chances,
    texts: tuple[Text, Text],
    newer: Literal["a", "b"] | None,
    thresholds: Thresholds,
) -> Verdict:
    """The verdict where the model decides."""
    row = dict(zip(NAMES, pair.row, strict=True))
    same, against, apart = chances
    if same >= max(against, apart):
        clear = (
            same >= thresholds.merge and row["soft_lo"] >= thresholds.merge_cover and not _clashes(pair, row)
        )
        return _verdict(
            "duplicate", "similarity", chances, clear=clear, most=1.0 if clear else thresholds.merge - 0.01
        )
    if against < apart:
        return _verdict("neutral", "similarity", chances, clear=apart >= thresholds.conflict)
    reason = _reason(row)
    newest = texts["ab".index(newer)] if newer else None
    kind = "update" if _replaces_value(pair, row, reason, newest) else "contradiction"
    most = _most(pair, kind, reason, thresholds)
    return _verdict(kind, reason, chances, clear=min(against, most) >= thresholds.conflict, most=most)


def _most(pair: Pair, kind: VerdictKind, reason: Reason, thresholds: Thresholds) -> float:
    """The most that a conflict may be sure of: what may hold beside the other is for a judge."""
    if kind == "update":
        if holds_several(pair, reason):
            return MAYBE
        return 1.0 if holds_one(pair, reason) else thresholds.conflict - 0.01
    if reason in ("negation", "antonym") and denies_another(pair):
        return thresholds.conflict - 0.01
    return 1.0


def _verdict(
    kind: VerdictKind,
    reason: Reason,
    chances: Chances,
    *,
    clear: bool,
    most: float = 1.0,
) -> Verdict:
    probabilities = dict(zip(pair_model.CLASSES, chances, strict=True))
    return Verdict(
        kind=kind,
        confidence=min(probabilities["contradiction" if kind == "update" else kind], most),
        reason=reason,
        probabilities=probabilities,
        clear=clear,
    )
