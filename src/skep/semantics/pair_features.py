"""The shape of the change that turns one text into another, word by word and in order.

Which words of two texts answer to each other: the same stem, or the nearest word that is left over.

What two texts share and where they part, as a row of numbers.

Every feature is symmetric: `features(a, b)` equals `features(b, a)`. Where a property has a side (how much of one text
the other covers), the lower and the higher of the two values are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress, pairwise
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Protocol

from skep.semantics import lexicon as lx

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.semantics.parse_text import Text


_LIGHT = lx.word_set("a an the # . ; : ! ? ( ) is are was were be been being")
Block = tuple[int, int, int, int]
"""Where two lists differ: begin and end in one, begin and end in the other."""


class Edits(NamedTuple):
    """The shape of the change that turns one text into the other."""

    blocks: int
    replaced: int
    inserted: int
    prefix: float
    suffix: float
    head: bool
    tail: bool
    lone_swap: bool
    lone_insert: bool
    modifier: bool
    head_noun: bool
    function_only: bool
    swapped: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


NO_EDITS = Edits(0, 0, 0, 1.0, 1.0, False, False, False, False, False, False, False, ())


def solid(text: Text) -> list[str]:
    """The stems of a text without articles, marks and forms of "be"."""
    return [stem for stem in text.stems if stem not in _LIGHT]


def edits_many(pairs: Sequence[tuple[list[str], list[str]]]) -> list[Edits]:
    """Align pairs of texts word by word, in order, and describe what was replaced, inserted or dropped."""
    if not pairs:
        return []
    return [_edits(left, right, blocks_of(left, right)) for left, right in pairs]


def blocks_of(left: list[str], right: list[str]) -> list[Block]:
    """Where two lists differ, as `difflib` has it.

    Two lists that differ in one place only, and share no word but those before and after it, need no search.
    """
    most = min(len(left), len(right))
    start = next((i for i in range(most) if left[i] != right[i]), most)
    most -= start
    end = next((i for i in range(most) if left[-1 - i] != right[-1 - i]), most)
    i, j = len(left) - end, len(right) - end
    shared = {*left[:start], *left[i:]}
    if len(shared) == start + end and not ({*left[start:i]} & {*right} or {*right[start:j]} & {*left}):
        return [] if start == i == j else [(start, i, start, j)]
    from difflib import SequenceMatcher  # few pairs need it

    opcodes = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    return [(i, j, k, m) for kind, i, j, k, m in opcodes if kind != "equal"]


def _edits(left: list[str], right: list[str], blocks: list[Block]) -> Edits:
    if not blocks:
        return NO_EDITS
    shortest = max(1, min(len(left), len(right)))
    first, last = blocks[0], blocks[-1]
    modifier = head_noun = False
    function_only = True
    swapped: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for i, j, k, m in blocks:
        function_only = function_only and lx.STOP.issuperset(left[i:j]) and lx.STOP.issuperset(right[k:m])
        if i == j or k == m:
            continue
        swapped.append((tuple(left[i:j]), tuple(right[k:m])))
        if j < len(left) and m < len(right) and left[j] == right[m] and left[j] not in lx.STOP:
            modifier = True
        else:
            head_noun = True
    lone = len(blocks) == 1
    return Edits(
        blocks=len(blocks),
        replaced=len(swapped),
        inserted=len(blocks) - len(swapped),
        prefix=min(first[0], first[2]) / shortest,
        suffix=min(len(left) - last[1], len(right) - last[3]) / shortest,
        head=first[0] == 0 or first[2] == 0,
        tail=last[1] == len(left) or last[3] == len(right),
        lone_swap=lone and len(swapped) == 1,
        lone_insert=lone and not swapped,
        modifier=modifier,
        head_noun=head_noun,
        function_only=function_only,
        swapped=tuple(swapped),
    )


if TYPE_CHECKING:
    Rows = NDArray[np.float32]


class Words(Protocol):
    """Word vectors and word weights, as the alignment needs them."""

    def located(self, words: Sequence[str]) -> tuple[list[int], Rows]:
        """Which row of a table is the unit vector of each word, and the table."""
        ...

    def weigh(self, stems: Iterable[str]) -> tuple[float, ...]:
        """How much words tell: near 0 for "thing", 1 for a rare name."""
        ...


class Told(NamedTuple):
    """The words of a text that carry meaning; made once for all the pairs it is in."""

    text: Text
    words: tuple[str, ...]
    stems: frozenset[str]
    weights: tuple[float, ...]


class Swap(NamedTuple):
    """A word of one text that stands where another word stands in the other text."""

    left: int
    right: int
    cosine: float
    opposed: bool
    exclusive: bool


class Alignment(NamedTuple):
    """Which words of two texts answer to each other."""

    exact_a: tuple[bool, ...]
    exact_b: tuple[bool, ...]
    weights_a: tuple[float, ...]
    weights_b: tuple[float, ...]
    best_a: list[float]
    best_b: list[float]
    swaps: list[Swap]
    opposites: list[tuple[str, str]]
    """Opposed stems anywhere in the parts the texts do not share, function words included."""


class Met(NamedTuple):
    """What vectors say about the words that two texts do not share."""

    nearest_a: list[float]
    """By word: how near the nearest word of the other text is, 0 at least; means nothing for words that are shared."""
    nearest_b: list[float]
    partners: list[tuple[int, int, float]]
    """Words of which each is the nearest to the other among those that are left over, and how near."""


Flags = tuple[tuple[bool, ...], tuple[bool, ...]]
"""By word of two texts: whether the other one has the same."""
NOTHING = Met([], [], [])


def told(text: Text, words: Words) -> Told:
    """The telling words of a text."""
    spoken = tuple([text.words[i] for i in text.content])
    return Told(text, spoken, frozenset(text.told), words.weigh(text.told))


def align_many(pairs: Sequence[tuple[Told, Told]], words: Words) -> list[Alignment]:
    """Pair every content word with its counterpart, for many pairs of texts."""
    exact: list[Flags] = [
        (
            tuple(map(b.stems.__contains__, a.text.told)),
            tuple(map(a.stems.__contains__, b.text.told)),
        )
        for a, b in pairs
    ]
    open_ = [
        place
        for place, ((a, b), flags) in enumerate(zip(pairs, exact, strict=True))
        if a.words and b.words and not (all(flags[0]) and all(flags[1]))
    ]
    met = _meet([pairs[place] for place in open_], [exact[place] for place in open_], words)
    known = dict(zip(open_, met, strict=True))
    return [
        _alignment(a, b, flags, known.get(place, NOTHING))
        for place, ((a, b), flags) in enumerate(zip(pairs, exact, strict=True))
    ]


def _alignment(a: Told, b: Told, exact: Flags, met: Met) -> Alignment:
    groups = lx.exclusive_groups()
    swaps: list[Swap] = []
    for i, j, cosine in met.partners:
        s, t = a.text.told[i], b.text.told[j]
        group = groups.get(s)
        against = lx.opposed(s, t)
        swaps.append(Swap(i, j, cosine, against, group is not None and group == groups.get(t)))
    return Alignment(
        exact[0],
        exact[1],
        a.weights,
        b.weights,
        _best(exact[0], met.nearest_a),
        _best(exact[1], met.nearest_b),
        swaps,
        lx.opposed_among(a.text.stem_bag - b.text.stem_bag, b.text.stem_bag - a.text.stem_bag),
    )


def _best(exact: tuple[bool, ...], nearest: list[float]) -> list[float]:
    if not nearest:
        return [*map(float, exact)]
    return [1.0 if same else near for same, near in zip(exact, nearest, strict=True)]


def _meet(pairs: Sequence[tuple[Told, Told]], exact: Sequence[Flags], words: Words) -> list[Met]:
    """What vectors say about pairs of texts that do not share all of their words."""
    if not pairs:
        return []
    return [_meet_one(*both, *flags, words) for both, flags in zip(pairs, exact, strict=True)]


def _meet_one(a: Told, b: Told, exact_a: tuple[bool, ...], exact_b: tuple[bool, ...], words: Words) -> Met:
    import numpy as np

    places, table = words.located([*a.words, *b.words])
    rows = table.take(places, axis=0)
    count = len(a.words)
    # so small a product of matrices slows down what comes after it
    cosines = np.vecdot(rows[:count, None], rows[count:])
    free_a = [i for i, same in enumerate(exact_a) if not same]
    free_b = [j for j, same in enumerate(exact_b) if not same]
    partners: list[tuple[int, int, float]] = []
    if free_a and free_b:
        rest = cosines.take(free_a, axis=0).take(free_b, axis=1)
        to_b: list[int] = rest.argmax(1).tolist()
        to_a: list[int] = rest.argmax(0).tolist()
        partners = [(free_a[x], free_b[y], float(rest[x, y])) for x, y in enumerate(to_b) if to_a[y] == x]
    np.maximum(cosines, 0, out=cosines)
    return Met(cosines.max(1).tolist(), cosines.max(0).tolist(), partners)


NAMES: tuple[str, ...] = (
    "similarity", "cover_lo", "cover_hi", "soft_lo", "soft_hi", "jaccard", "length_ratio", "same_bag", "order",
    "negated_one", "negated_both", "parity", "flipped", "unflipped", "negated_cover", "cancels_one", "cancel_cover",
    "opposites", "opposite_share", "exclusive", "prefix_negation",
    "numbers_shared", "numbers_differ", "numbers_lo", "numbers_hi", "dated_differ",
    "swaps", "swap_share", "swap_cos_mean", "swap_cos_max", "swap_cos_min", "swap_names", "swap_weight",
    "extra_lo", "extra_hi",
    "names_shared", "names_lo", "names_hi",
    "edits", "replaced", "inserted", "prefix", "suffix", "head_changed", "tail_changed", "lone_swap", "lone_insert",
    "modifier_swap", "head_swap", "function_edit",
    "questions", "question_one", "indefinite", "named_subject", "subject_same", "personal",
    "hedged", "markers", "universal", "weakest_lo", "weakest_hi",
)  # fmt: skip


RARE = 0.85
"""The weight from which a word counts as a name."""


class Side(NamedTuple):
    """What is asked of a text in every pair it is in; found out once."""

    text: Text
    told: Told
    total: float
    """The weight of all of its words."""
    solid: list[str]
    places: dict[str, int]
    names: frozenset[str]
    numbers: frozenset[tuple[str, str]]
    indefinite: bool
    named: bool
    personal: bool
    hedges: frozenset[str]
    markers: frozenset[str]
    universal: frozenset[str]
    """The words of it that are in lists of which a text may have a word that the other lacks."""


def _side(text: Text, words: Words) -> Side:
    mine = told(text, words)
    first = text.words[0] if text.words else ""
    numbers = [(q.dimension, q.figure) for q in text.quantities.values() if q.dimension != "id"]
    return Side(
        text,
        mine,
        sum(mine.weights),
        solid(text),
        _places(text),
        frozenset(compress(text.stems, text.capital)),
        frozenset(numbers),
        first in lx.INDEFINITE,
        any(text.capital[:4]),
        first in lx.PERSONAL,
        text.bag & lx.HEDGES,
        text.bag & lx.UPDATE_MARKERS,
        text.bag & lx.UNIVERSAL,
    )


def _share(flags: Sequence[bool], weights: Sequence[float], total: float) -> float:
    return sum(compress(weights, flags)) / total if total else 0.0


def _mean(values: Sequence[float], weights: Sequence[float], total: float) -> float:
    return sum(map(mul, values, weights)) / total if total else 0.0


_JOINING = frozenset(("and", "or"))


def _places(text: Text) -> dict[str, int]:
    """Where each content word first stands; two words joined by "and" or "or" share one place."""
    place = {text.stems[i]: i for i in reversed(text.content)}
    if text.bag.isdisjoint(_JOINING):
        return place
    for i, word in enumerate(text.words[1:-1], 1):
        if word in _JOINING:
            left, right = text.stems[i - 1], text.stems[i + 1]
            if place.get(left) == i - 1 and place.get(right) == i + 1:
                place[right] = i - 1
    return place


def _order(here: dict[str, int], there: dict[str, int]) -> float:
    """The share of shared words that stand in the same order in both texts, seen from both."""
    shared = [(place, there[stem]) for stem, place in here.items() if stem in there]
    if len(shared) < 2:
        return 1.0
    shared.sort()
    turned = sorted([(other, place) for place, other in shared])
    return (_rising(shared) + _rising(turned)) / 2


def _rising(places: list[tuple[int, int]]) -> float:
    return sum([x[1] <= y[1] or x[0] == y[0] for x, y in pairwise(places)]) / (len(places) - 1)


def _negation(a: Text, b: Text, al: Alignment, cover_a: float, cover_b: float) -> tuple[float, ...]:
    if not (a.negations or b.negations or a.cancels or b.cancels):
        return (0.0,) * 8
    status_b = {b.stems[j]: b.negated[j] for j in b.content}
    flipped = kept = total = 0.0
    for i, w in zip(a.content, al.weights_a, strict=True):
        other = status_b.get(a.stems[i])
        if other is None:
            continue
        total += w
        if other != a.negated[i]:
            flipped += w
        elif other:
            kept += w
    na, nb = a.negations, b.negations
    one = (na > 0) != (nb > 0)
    cancelled = (a.cancels > 0) != (b.cancels > 0)
    return (
        float(one),
        float(na > 0 and nb > 0),
        float((na + nb) % 2),
        flipped / total if total else 0.0,
        kept / total if total else 0.0,
        (cover_a if na else cover_b) if one else 0.0,
        float(cancelled),
        (cover_b if a.cancels else cover_a) if cancelled else 0.0,
    )


def _numbers(left: frozenset[tuple[str, str]], right: frozenset[tuple[str, str]]) -> tuple[float, ...]:
    if not left and not right:
        return (0.0,) * 5
    only_a, only_b = left - right, right - left
    same_dimension = {d for d, _ in only_a} & {d for d, _ in only_b}
    dated = same_dimension & {"year", "day", "time", "date"}
    return (
        float(min(len(left & right), 3)),
        float(min(len(same_dimension), 2)),
        float(min(len(only_a), len(only_b), 3)),
        float(min(max(len(only_a), len(only_b)), 4)),
        float(bool(dated)),
    )


def _unpaired(exact: Sequence[bool], weights: Sequence[float], partnered: Sequence[int]) -> float:
    """The weight of the words that have no counterpart at all."""
    return sum(
        [
            weight
            for i, (same, weight) in enumerate(zip(exact, weights, strict=True))
            if not same and i not in partnered
        ]
    )


def _swaps(a: Text, b: Text, al: Alignment, total_a: float, total_b: float) -> tuple[float, ...]:
    real = [s for s in al.swaps if s.cosine > 0.1]
    extra_a = _unpaired(al.exact_a, al.weights_a, [s.left for s in real]) / total_a
    extra_b = _unpaired(al.exact_b, al.weights_b, [s.right for s in real]) / total_b
    if not real:
        return 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, min(extra_a, extra_b), max(extra_a, extra_b)
    share = sum([al.weights_a[s.left] / total_a + al.weights_b[s.right] / total_b for s in real]) / 2
    cosines = [s.cosine for s in real]
    names = sum([a.capital[a.content[s.left]] and b.capital[b.content[s.right]] for s in real])
    return (
        float(min(len(real), 6)),
        share,
        sum(cosines) / len(cosines),
        max(cosines),
        min(cosines),
        float(min(names, 3)),
        sum([min(al.weights_a[s.left], al.weights_b[s.right]) for s in real]) / len(real),
        min(extra_a, extra_b),
        max(extra_a, extra_b),
    )


def _names(a: Side, b: Side) -> tuple[float, ...]:
    left, right = a.names, b.names
    if not left and not right:
        return 0.0, 0.0, 0.0
    only_a = len(left - b.text.stem_bag)
    only_b = len(right - a.text.stem_bag)
    shared = len(left & right)
    return (float(min(shared, 4)), float(min(only_a, only_b, 4)), float(min(max(only_a, only_b), 5)))


def _shape(one: Side, other: Side) -> tuple[float, ...]:
    a, b = one.text, other.text
    return (
        float(a.question and b.question),
        float(a.question != b.question),
        float(one.indefinite) + float(other.indefinite),
        float(one.named) + float(other.named),
        float(a.told[:1] == b.told[:1]),
        float(one.personal) + float(other.personal),
        float(one.hedges != other.hedges),
        float(one.markers != other.markers),
        float(one.universal != other.universal),
    )


class Pair(NamedTuple):
    """Two texts in a fixed order, how they align, and the row of numbers about them."""

    a: Text
    b: Text
    al: Alignment
    ed: Edits
    row: list[float]
    rare: frozenset[str]
    """The stems that tell most, names and identifiers, whatever their case; only where one thing was replaced."""


def examine(a: Text, b: Text, similarity: float, words: Words) -> Pair:
    """Compare two texts. Which is given first makes no difference."""
    return examine_many([(a, b, similarity)], words)[0]


def examine_many(given: Sequence[tuple[Text, Text, float]], words: Words) -> list[Pair]:
    """Compare many pairs of texts; one part of the work after the other for all of them, which a processor likes."""
    known: dict[int, Side] = {}
    for a, b, _ in given:
        for text in (a, b):
            if id(text) not in known:
                known[id(text)] = _side(text, words)
    ordered = [
        (known[id(b)], known[id(a)], similarity)
        if b.words < a.words
        else (known[id(a)], known[id(b)], similarity)
        for a, b, similarity in given
    ]
    aligned = align_many([(a.told, b.told) for a, b, _ in ordered], words)
    edited = edits_many([(a.solid, b.solid) for a, b, _ in ordered])
    return [
        Pair(
            a.text,
            b.text,
            al,
            ed,
            _row(a, b, similarity, al, ed),
            _rare(a.text, b.text, al) if ed.lone_swap else frozenset(),
        )
        for (a, b, similarity), al, ed in zip(ordered, aligned, edited, strict=True)
    ]


def _rare(a: Text, b: Text, al: Alignment) -> frozenset[str]:
    weighed = zip((*a.told, *b.told), (*al.weights_a, *al.weights_b), strict=True)
    return frozenset(stem for stem, weight in weighed if weight >= RARE)


def _row(one: Side, other: Side, similarity: float, al: Alignment, ed: Edits) -> list[float]:
    """The numbers, in the order of `NAMES`."""
    a, b = one.text, other.text
    total_a, total_b = one.total, other.total
    cover_a = _share(al.exact_a, al.weights_a, total_a)
    cover_b = _share(al.exact_b, al.weights_b, total_b)
    soft_a, soft_b = _mean(al.best_a, al.weights_a, total_a), _mean(al.best_b, al.weights_b, total_b)
    total = total_a + total_b
    shared = cover_a * total_a + cover_b * total_b
    na, nb = len(a.content), len(b.content)
    listed = al.opposites
    worst_a, worst_b = min(al.best_a, default=0.0), min(al.best_b, default=0.0)
    swapped = [(al.weights_a[s.left] + al.weights_b[s.right], s.opposed) for s in al.swaps]
    swap_total = sum([weight for weight, _ in swapped])
    opposed = sum([weight for weight, against in swapped if against])
    prefixed = bool(listed) and any(lx.negated_form(x, y) for x, y in listed)
    return [
        similarity,
        min(cover_a, cover_b),
        max(cover_a, cover_b),
        min(soft_a, soft_b),
        max(soft_a, soft_b),
        shared / total if total else 0.0,
        min(na, nb) / max(na, nb, 1),
        float(na == nb and one.told.stems == other.told.stems and sorted(a.told) == sorted(b.told)),
        _order(one.places, other.places),
        *_negation(a, b, al, cover_a, cover_b),
        float(min(len(listed), 3)),
        opposed / swap_total if swap_total else 0.0,
        float(any([s.exclusive for s in al.swaps])),  # noqa: C419 - quicker
        float(prefixed),
        *_numbers(one.numbers, other.numbers),
        *_swaps(a, b, al, total_a or 1.0, total_b or 1.0),
        *_names(one, other),
        float(min(ed.blocks, 12)),
        float(min(ed.replaced, 8)),
        float(min(ed.inserted, 8)),
        ed.prefix,
        ed.suffix,
        float(ed.head),
        float(ed.tail),
        float(ed.lone_swap),
        float(ed.lone_insert),
        float(ed.modifier),
        float(ed.head_noun),
        float(ed.function_only),
        *_shape(one, other),
        min(worst_a, worst_b),
        max(worst_a, worst_b),
    ]
