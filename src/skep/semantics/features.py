"""What two texts share and where they part, as a row of numbers.

Every feature is symmetric: `features(a, b)` equals `features(b, a)`. Where a property has a side (how much of one text
the other covers), the lower and the higher of the two values are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import compress, pairwise
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Protocol

from skep.semantics import lexicon as lx

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.semantics.reading import Text

    Rows = NDArray[np.float32]

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


class Words(Protocol):
    """Word vectors and word weights, as the alignment needs them."""

    def rows(self, words: Sequence[str]) -> Rows:
        """One unit row per word."""
        ...

    def weight(self, stem: str) -> float:
        """How much a word tells: near 0 for "thing", 1 for a rare name."""
        ...


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
    best_a: tuple[float, ...]
    best_b: tuple[float, ...]
    swaps: tuple[Swap, ...]
    opposites: tuple[tuple[str, str], ...]
    """Opposed stems anywhere in the parts the texts do not share, function words included."""


def _opposed_pairs(a: Text, b: Text) -> list[tuple[str, str]]:
    only_a, only_b = a.stem_bag - b.stem_bag, b.stem_bag - a.stem_bag
    if not only_a or not only_b:
        return []
    table = lx.antonyms()
    return [
        (x, y)
        for x in only_a
        for y in only_b
        if (x, y) in table
        or (len(x) != len(y) and (x.endswith(y) or y.endswith(x)) and lx.negated_form(x, y))
    ]


def align(a: Text, b: Text, words: Words) -> Alignment:
    """Pair every content word with its counterpart: the same stem, or the nearest word that is left over."""
    stems_a, stems_b = a.told, b.told
    exact_a = tuple(map(set(stems_b).__contains__, stems_a))
    exact_b = tuple(map(set(stems_a).__contains__, stems_b))
    best_a = [*map(float, exact_a)]
    best_b = [*map(float, exact_b)]
    free_a = [i for i, e in enumerate(exact_a) if not e]
    free_b = [i for i, e in enumerate(exact_b) if not e]
    swaps: list[Swap] = []
    opposites = _opposed_pairs(a, b)
    if stems_a and stems_b and (free_a or free_b):
        import numpy as np

        rows_a = words.rows([a.words[i] for i in a.content])
        rows_b = words.rows([b.words[i] for i in b.content])
        cosines = np.vecdot(
            rows_a[:, None], rows_b
        )  # so small a product of matrices slows down what comes after it
        nearest_a: list[float] = cosines.max(1).tolist() if free_a else []
        nearest_b: list[float] = cosines.max(0).tolist() if free_b else []
        for i in free_a:
            best_a[i] = max(0.0, nearest_a[i])
        for j in free_b:
            best_b[j] = max(0.0, nearest_b[j])
        if free_a and free_b:
            rest = cosines.take(free_a, axis=0).take(free_b, axis=1)
            to_b: list[int] = rest.argmax(1).tolist()
            to_a: list[int] = rest.argmax(0).tolist()
            groups, table = lx.exclusive_groups(), lx.antonyms()
            for x, y in enumerate(to_b):
                if to_a[y] != x:
                    continue
                i, j = free_a[x], free_b[y]
                s, t = stems_a[i], stems_b[j]
                group = groups.get(s)
                swaps.append(
                    Swap(
                        i,
                        j,
                        float(rest[x, y]),
                        (s, t) in table or lx.negated_form(s, t),
                        group is not None and group == groups.get(t),
                    )
                )
    return Alignment(
        exact_a,
        exact_b,
        tuple(map(words.weight, stems_a)),
        tuple(map(words.weight, stems_b)),
        tuple(best_a),
        tuple(best_b),
        tuple(swaps),
        tuple(opposites),
    )


_LIGHT = lx.word_set("a an the # . ; : ! ? ( ) is are was were be been being")


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


def _blocks(left: list[str], right: list[str]) -> list[tuple[str, int, int, int, int]]:
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
        if start == i == j:
            return []
        kind = "replace" if start < i and start < j else "delete" if start < i else "insert"
        return [(kind, start, i, start, j)]
    opcodes = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    return [each for each in opcodes if each[0] != "equal"]


def edits(a: Text, b: Text) -> Edits:
    """Align two texts word by word, in order, and describe what was replaced, inserted or dropped."""
    left = [s for s in a.stems if s not in _LIGHT]
    right = [s for s in b.stems if s not in _LIGHT]
    blocks = _blocks(left, right)
    shortest = max(1, min(len(left), len(right)))
    if not blocks:
        return Edits(0, 0, 0, 1.0, 1.0, False, False, False, False, False, False, False, ())
    first, last = blocks[0], blocks[-1]
    swapped = tuple((tuple(left[i:j]), tuple(right[k:m])) for o, i, j, k, m in blocks if o == "replace")
    changed = [w for _, i, j, k, m in blocks for w in (*left[i:j], *right[k:m])]
    modifier = head_noun = False
    for o, _, j, _, m in blocks:
        if o != "replace":
            continue
        follows = left[j] if j < len(left) else ""
        if j < len(left) and m < len(right) and follows == right[m] and follows not in lx.STOP:
            modifier = True
        else:
            head_noun = True
    return Edits(
        blocks=len(blocks),
        replaced=len(swapped),
        inserted=len(blocks) - len(swapped),
        prefix=min(first[1], first[3]) / shortest,
        suffix=min(len(left) - last[2], len(right) - last[4]) / shortest,
        head=first[1] == 0 or first[3] == 0,
        tail=last[2] == len(left) or last[4] == len(right),
        lone_swap=len(blocks) == 1 and first[0] == "replace",
        lone_insert=len(blocks) == 1 and first[0] != "replace",
        modifier=modifier,
        head_noun=head_noun,
        function_only=all(w in lx.STOP for w in changed),
        swapped=swapped,
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
    """The share of shared words that stand in the same order in both texts."""
    shared = sorted([(p, there[s]) for s, p in here.items() if s in there])
    steps = len(shared) - 1
    if steps <= 0:
        return 1.0
    return sum([x[1] <= y[1] or x[0] == y[0] for x, y in pairwise(shared)]) / steps


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


def _numbers(a: Text, b: Text) -> tuple[float, ...]:
    if not a.quantities and not b.quantities:
        return (0.0,) * 5
    left = {(q.dimension, f"{q.value:.10g}") for q in a.quantities.values() if q.dimension != "id"}
    right = {(q.dimension, f"{q.value:.10g}") for q in b.quantities.values() if q.dimension != "id"}
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
    return sum(w for i, w in enumerate(weights) if not exact[i] and i not in partnered)


def _swaps(a: Text, b: Text, al: Alignment, total_a: float, total_b: float) -> tuple[float, ...]:
    real = [s for s in al.swaps if s.cosine > 0.1]
    extra_a = _unpaired(al.exact_a, al.weights_a, [s.left for s in real]) / total_a
    extra_b = _unpaired(al.exact_b, al.weights_b, [s.right for s in real]) / total_b
    if not real:
        return 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, min(extra_a, extra_b), max(extra_a, extra_b)
    share = sum(al.weights_a[s.left] / total_a + al.weights_b[s.right] / total_b for s in real) / 2
    cosines = [s.cosine for s in real]
    names = sum(a.capital[a.content[s.left]] and b.capital[b.content[s.right]] for s in real)
    return (
        float(min(len(real), 6)),
        share,
        sum(cosines) / len(cosines),
        max(cosines),
        min(cosines),
        float(min(names, 3)),
        sum(min(al.weights_a[s.left], al.weights_b[s.right]) for s in real) / len(real),
        min(extra_a, extra_b),
        max(extra_a, extra_b),
    )


def _names(a: Text, b: Text) -> tuple[float, ...]:
    left, right = set(compress(a.stems, a.capital)), set(compress(b.stems, b.capital))
    only_a = len(left - b.stem_bag)
    only_b = len(right - a.stem_bag)
    shared = len(left & right)
    return (float(min(shared, 4)), float(min(only_a, only_b, 4)), float(min(max(only_a, only_b), 5)))


def _shape(a: Text, b: Text) -> tuple[float, ...]:
    first_a, first_b = a.words[0] if a.words else "", b.words[0] if b.words else ""
    apart = a.bag ^ b.bag
    return (
        float(a.question and b.question),
        float(a.question != b.question),
        float(first_a in lx.INDEFINITE) + float(first_b in lx.INDEFINITE),
        float(any(a.capital[:4])) + float(any(b.capital[:4])),
        float(a.told[:1] == b.told[:1]),
        float(first_a in lx.PERSONAL) + float(first_b in lx.PERSONAL),
        float(not lx.HEDGES.isdisjoint(apart)),
        float(not lx.UPDATE_MARKERS.isdisjoint(apart)),
        float(not lx.UNIVERSAL.isdisjoint(apart)),
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
    ordered = [(b, a, similarity) if b.words < a.words else (a, b, similarity) for a, b, similarity in given]
    aligned = [align(a, b, words) for a, b, _ in ordered]
    edited = [edits(a, b) for a, b, _ in ordered]
    return [
        Pair(a, b, al, ed, _row(a, b, similarity, al, ed), _rare(a, b, al) if ed.lone_swap else frozenset())
        for (a, b, similarity), al, ed in zip(ordered, aligned, edited, strict=True)
    ]


def _rare(a: Text, b: Text, al: Alignment) -> frozenset[str]:
    weighed = zip((*a.told, *b.told), (*al.weights_a, *al.weights_b), strict=True)
    return frozenset(stem for stem, weight in weighed if weight >= RARE)


def _row(a: Text, b: Text, similarity: float, al: Alignment, ed: Edits) -> list[float]:
    """The numbers, in the order of `NAMES`."""
    total_a, total_b = sum(al.weights_a), sum(al.weights_b)
    cover_a = _share(al.exact_a, al.weights_a, total_a)
    cover_b = _share(al.exact_b, al.weights_b, total_b)
    soft_a, soft_b = _mean(al.best_a, al.weights_a, total_a), _mean(al.best_b, al.weights_b, total_b)
    total = total_a + total_b
    shared = cover_a * total_a + cover_b * total_b
    places_a, places_b = _places(a), _places(b)
    na, nb = len(a.content), len(b.content)
    listed = al.opposites
    worst_a, worst_b = min(al.best_a, default=0.0), min(al.best_b, default=0.0)
    swapped = [(al.weights_a[s.left] + al.weights_b[s.right], s.opposed) for s in al.swaps]
    swap_total = sum(weight for weight, _ in swapped)
    opposed = sum(weight for weight, against in swapped if against)
    prefixed = any(lx.negated_form(x, y) for x, y in listed)
    return [
        similarity,
        min(cover_a, cover_b),
        max(cover_a, cover_b),
        min(soft_a, soft_b),
        max(soft_a, soft_b),
        shared / total if total else 0.0,
        min(na, nb) / max(na, nb, 1),
        float(na == nb and sorted(a.told) == sorted(b.told)),
        (_order(places_a, places_b) + _order(places_b, places_a)) / 2,
        *_negation(a, b, al, cover_a, cover_b),
        float(min(len(listed), 3)),
        opposed / swap_total if swap_total else 0.0,
        float(any(s.exclusive for s in al.swaps)),
        float(prefixed),
        *_numbers(a, b),
        *_swaps(a, b, al, total_a or 1.0, total_b or 1.0),
        *_names(a, b),
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
        *_shape(a, b),
        min(worst_a, worst_b),
        max(worst_a, worst_b),
    ]
