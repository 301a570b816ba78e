"""What the words of a pair bear on: two things of which each has its own value, or one thing seen from two sides.

Rules for what word vectors and counts cannot see. All are the same whichever text is given first.
"""

from __future__ import annotations

from skep.semantics import lexicon as lx
from skep.semantics.features import Pair
from skep.semantics.reading import Text


def _sides(*listed: str) -> dict[str, tuple[int, str]]:
    """Every word of some lists of sides, with the number of the list and the first word for that side."""
    ways = [(number, side.split()) for number, line in enumerate(listed) for side in line.split(";")]
    return {word: (number, side[0]) for number, side in ways for word in side}


SIDES = _sides(
    "minimum min; maximum max",
    "wide width; deep depth; long length; tall high height; thick thickness",
    "input inputs; output outputs",
    "upload uploads uploading; download downloads downloading",
    "inbound incoming; outbound outgoing",
    "opens; closes",
    "starts begins; ends finishes stops",
    "arrives; departs leaves",
    "staging; production prod; development dev; test testing; qa; uat; preprod; sandbox; canary; ci",
    "frontend; backend",
    "client clients; server servers",
    "primary; secondary; replica; standby",
    "weekday weekdays; weekend weekends",
)
"""Words that tell the sides of something apart, each with a value of its own."""
_SIDED = frozenset(SIDES)
MEASURED, TIMED = range(5), range(5, 8)
"""Sides that have a number of their own, wherever they stand in a sentence; and those that have a time of their own."""
CANCELLING = frozenset(map(lx.stem, lx.CANCELLERS | {"use", "using"}))
"""What is left out where the same is denied in two ways: "avoid tabs", "do not use tabs"."""
SHORT = 20
"""Words up to which a text says one thing, so that its first words are what it is about."""
OTHER = 0.4
"""The cosine of two words below which they are taken for the names of two things."""


def of_other_sides(pair: Pair) -> bool:
    """Whether the texts are about two sides of something, each with a value of its own: staging and production.

    Where nothing but the side differs, it must be what the sentence is about, and not what it says: "deploy to
    staging" and "deploy to production" do not go together.
    """
    a, b = pair.a, pair.b
    if _SIDED.isdisjoint(a.bag) or _SIDED.isdisjoint(b.bag) or not _short(pair):
        return False
    mine, theirs = _sided(a), _sided(b)
    for group in mine.keys() & theirs.keys():
        here, there = mine[group], theirs[group]
        if not here.keys().isdisjoint(there):
            continue
        if group in (*MEASURED, *TIMED) and not (a.quantities and b.quantities):
            continue
        if pair.ed.lone_swap:
            return group not in TIMED and (pair.ed.head or group in MEASURED)
        if not lx.UPDATE_MARKERS.isdisjoint(a.bag ^ b.bag):
            continue
        return bool(a.bag - b.bag - {*here.values()}) and bool(b.bag - a.bag - {*there.values()})
    return False


def _sided(text: Text) -> dict[int, dict[str, str]]:
    """By list, the sides that a text names, each with the word it has for it."""
    found: dict[int, dict[str, str]] = {}
    for word in SIDES.keys() & text.bag:
        group, side = SIDES[word]
        found.setdefault(group, {})[side] = word
    return found


def of_other_kinds(pair: Pair) -> bool:
    """Whether both begin with one noun under two names, and differ further on: the Berlin office, the Paris office."""
    if pair.ed.blocks < 2 or not pair.ed.head or not _short(pair):
        return False
    (mine, kind), (theirs, same) = _headed(pair.a, pair.rare), _headed(pair.b, pair.rare)
    if kind != same or not kind or mine.startswith(theirs) or theirs.startswith(mine):
        return False
    groups = lx.exclusive_groups()
    return groups.get(lx.stem(mine), -1) == groups.get(lx.stem(theirs), -1)


def of_other_subjects(pair: Pair) -> bool:
    """Whether the texts differ in what they begin with and in one number: logs kept for a week, traces for a month."""
    ed = pair.ed
    if not _short(pair) or not ed.head or not (ed.blocks == ed.replaced == 2):
        return False
    (subjects, values), (al, a, b) = ed.swapped, (pair.al, pair.a, pair.b)
    numbers = {a.stems[i] for i in a.quantities}, {b.stems[i] for i in b.quantities}
    lone = all(len(side) == 1 for side in (*subjects, *values))
    if not lone or not any({values[0][0]} <= x and {values[1][0]} <= y for x, y in (numbers, numbers[::-1])):
        return False
    if a.told[:1] == b.told[:1] or {a.told[0], b.told[0]} != {subjects[0][0], subjects[1][0]}:
        return False
    return max(al.best_a[0], al.best_b[0]) < OTHER and b.told[0] not in lx.synonyms(a.told[0])


def _short(pair: Pair) -> bool:
    return max(len(pair.a.words), len(pair.b.words)) <= SHORT


def _headed(text: Text, rare: frozenset[str]) -> tuple[str, str]:
    """The name, or word of a closed group, that a text begins with and the noun after it; nothing if there is none."""
    start = 1 if text.words[:1] in lx.DEFINITE else 0
    head = text.words[start : start + 2]
    if len(head) < 2 or head[1] in lx.STOP or not head[1].isalpha() or not head[0].isalpha():
        return "", ""
    named = text.capital[start] or text.stems[start] in rare or lx.stem(head[0]) in lx.exclusive_groups()
    return (head[0], text.stems[start + 1]) if named else ("", "")


def other_in_office(pair: Pair) -> bool:
    """Whether one is said to be what only one can be, and then another: "Maria is the lead", "Tom is the lead"."""
    a, b = pair.a, pair.b
    if (
        not (pair.ed.lone_swap and pair.ed.head)
        or a.words[1:] != b.words[1:]
        or a.words[1:3] != ("is", "the")
    ):
        return False
    first = a.words[0], b.words[0]
    return not any(word in lx.STOP or word in lx.NEGATORS or not word.isalpha() for word in first)


def other_of_a_closed_group(pair: Pair) -> bool:
    """Whether the texts are one sentence with one day, month, colour or place in a row replaced after its beginning."""
    ed = pair.ed
    if not ed.lone_swap or ed.head or pair.a.words[0] in lx.INDEFINITE:
        return False
    return any(swap.exclusive for swap in pair.al.swaps) and all(len(side) == 1 for side in ed.swapped[0])


def denied_twice(pair: Pair) -> bool:
    """Whether both deny the same, one with "not" or "never", the other with a word such as "avoid" or "forbidden"."""
    a, b = pair.a, pair.b
    if a.negations + b.negations != 1 or a.cancels + b.cancels != 1:
        return False
    if {(a.negations, a.cancels), (b.negations, b.cancels)} != {(1, 0), (0, 1)}:
        return False
    return {*a.told} - CANCELLING == {*b.told} - CANCELLING


def seen_from_the_other_side(pair: Pair) -> bool:
    """Whether a comparison is turned round with the opposite word: "a is faster than b", "b is slower than a"."""
    a, b = pair.a, pair.b
    if "than" not in a.bag or "than" not in b.bag or len(pair.al.opposites) != 1:
        return False
    ((one, other),) = pair.al.opposites
    if a.stem_bag ^ b.stem_bag != frozenset((one, other)) or a.negations != b.negations:
        return False
    (left, right), (far_left, far_right) = _around(a, one), _around(b, other)
    here, there = left - far_left, right - far_right
    return bool(here) and bool(there) and here == far_right - right and there == far_left - left


def _around(text: Text, compared: str) -> tuple[set[str], set[str]]:
    """The stems before and after "than", but for the word that compares."""
    middle = text.words.index("than")
    before, after = text.stems[:middle], text.stems[middle + 1 :]
    return {*before} - {compared}, {*after} - {compared}
