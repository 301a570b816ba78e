"""The shape of the change that turns one text into another, word by word and in order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from skep.semantics import lexicon as lx
from skep.tuples import NamedTuple

if TYPE_CHECKING:
    from skep.semantics.reading import Text

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
    from skep import kernels

    if kernels.native is not None:
        blocks = _blocks_compiled(pairs)
    else:
        blocks = [blocks_of(left, right) for left, right in pairs]
    return [_edits(left, right, each) for (left, right), each in zip(pairs, blocks, strict=True)]


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
    from difflib import SequenceMatcher  # where the package `native` is there, it is not needed

    opcodes = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    return [(i, j, k, m) for kind, i, j, k, m in opcodes if kind != "equal"]


def _blocks_compiled(pairs: Sequence[tuple[list[str], list[str]]]) -> list[list[Block]]:
    """The same for all of them at once."""
    import numpy as np

    from skep import kernels

    sides = [side for both in pairs for side in both]
    number = {stem: place for place, stem in enumerate({*chain.from_iterable(sides)})}
    words = np.array([number[stem] for stem in chain.from_iterable(sides)], dtype=np.int64)
    edges = np.zeros(len(sides) + 1, dtype=np.int64)
    np.cumsum([*map(len, sides)], out=edges[1:])
    texts = np.stack([edges[:-1:2], edges[1::2], edges[1::2], edges[2::2]], axis=1)
    out, found = np.empty((len(words), 4), dtype=np.int64), np.empty(len(pairs), dtype=np.int64)
    kernels.native.differ(words, texts, out, found)
    counts: list[int] = found.tolist()
    blocks: list[Block] = [*map(tuple, out[: sum(counts)].tolist())]
    places = iter(blocks)
    return [[next(places) for _ in range(count)] for count in counts]


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
