"""Which words of two texts answer to each other: the same stem, or the nearest word that is left over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from skep.semantics import lexicon as lx
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.semantics.reading import Text

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
    from skep import kernels

    if kernels.native is not None:
        return _meet_compiled(pairs, exact, words)
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


def _meet_compiled(pairs: Sequence[tuple[Told, Told]], exact: Sequence[Flags], words: Words) -> list[Met]:
    """The same for all of them at once."""
    import numpy as np

    from skep import kernels

    sides = [side.words for both in pairs for side in both]
    places, table = words.located([*chain.from_iterable(sides)])
    edges = np.zeros(len(sides) + 1, dtype=np.int64)
    np.cumsum([*map(len, sides)], out=edges[1:])
    same = np.fromiter(chain.from_iterable(chain.from_iterable(exact)), dtype=np.uint8, count=len(places))
    nearest = np.empty(len(places), dtype=np.float32)
    partner, closeness = np.empty(len(places), dtype=np.int64), np.empty(len(places), dtype=np.float32)
    texts = np.stack([edges[:-1:2], edges[1::2], edges[1::2], edges[2::2]], axis=1)
    kernels.native.align(table, np.array(places, dtype=np.int64), same, texts, nearest, partner, closeness)
    near: list[float] = nearest.tolist()
    with_: list[int] = partner.tolist()
    how: list[float] = closeness.tolist()
    at: list[int] = edges.tolist()
    found: list[Met] = []
    for start, middle, end in zip(at[:-1:2], at[1::2], at[2::2], strict=True):
        partners = [(i - start, with_[i], how[i]) for i in range(start, middle) if with_[i] >= 0]
        found.append(Met(near[start:middle], near[middle:end], partners))
    return found
