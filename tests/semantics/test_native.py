"""The compiled loops of the comparison give what Python and numpy give, and never leave their memory."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import itertools
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pytest
from benchmarks.maintenance.planted import planted
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skep import runtime
from skep.semantics import pair_features, pair_model
from skep.semantics.compare_texts import Asked, Verdict, compare_many
from skep.semantics.parse_text import analyse

native: Any = runtime.native
if native is None:
    pytest.skip("needs the compiled core", allow_module_level=True)


def asked() -> list[Asked]:
    """Pairs of made sentences, of which most share some words; and texts without any."""
    texts = [each.text for each in planted(150, 4)]
    pairs = [Asked(a, b, 0.8) for a, b in itertools.pairwise(texts)]
    return [*pairs, Asked("", "tea", 0.1), Asked("The.", "is it?", 0.1), Asked("Tea", "Coffee", 0.7)]


def test_verdicts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts: list[list[Verdict]] = []
    for loops in (None, native):
        monkeypatch.setattr(runtime, "native", loops)
        verdicts.append(compare_many(asked()))
    assert {verdict.kind for verdict in verdicts[0]} >= {"duplicate", "contradiction", "neutral"}
    for plain, compiled in zip(*verdicts, strict=True):
        assert (plain.kind, plain.reason, plain.clear) == (compiled.kind, compiled.reason, compiled.clear)
        assert plain.probabilities == pytest.approx(compiled.probabilities, abs=1e-3)


def test_words_meet_as_they_do_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    words = pair_model.load()[1]
    pairs = [
        (pair_features.told(analyse(each.a), words), pair_features.told(analyse(each.b), words))
        for each in asked()
    ]
    found: list[list[pair_features.Alignment]] = []
    for loops in (None, native):
        monkeypatch.setattr(runtime, "native", loops)
        found.append(pair_features.align_many(pairs, words))
    assert sum(len(each.swaps) for each in found[0]) > 100
    for plain, compiled in zip(*found, strict=True):
        assert plain.exact_a == compiled.exact_a
        assert plain.best_a == pytest.approx(compiled.best_a, abs=1e-5)
        assert plain.best_b == pytest.approx(compiled.best_b, abs=1e-5)
        assert [swap[:2] for swap in plain.swaps] == [swap[:2] for swap in compiled.swaps]
        assert [s.cosine for s in plain.swaps] == pytest.approx([s.cosine for s in compiled.swaps], abs=1e-5)


def test_the_numbers_about_a_pair_are_the_same_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "native", native)
    words = pair_model.load()[1]
    said = [
        "Never deploy on Fridays", "Deploy on Fridays", "The limit is 30 seconds", "The limit is 2 minutes",
        "Ana prefers Berlin and Oslo", "Oslo and Berlin bore Ana", "Use of ruff is disabled", "Use of ruff is enabled",
        "All of us may now stop", "Is it so?", "Is it not tea?", "Some paid 30 seconds late in May 2024",
        "Some paid 30 seconds late in June 2023", "She is unhappy", "She is happy",
    ]  # fmt: skip
    pairs = [*asked(), *(Asked(a, b, 0.7) for a, b in itertools.combinations(said, 2))]
    given = [(analyse(each.a), analyse(each.b), each.similarity) for each in pairs]
    sides = [(pair_features._side(a, words), pair_features._side(b, words), near) for a, b, near in given]
    aligned = pair_features.align_many([(a.told, b.told) for a, b, _ in sides], words)
    edited = pair_features.edits_many([(a.solid, b.solid) for a, b, _ in sides])
    met = np.zeros(len(pair_features.NAMES), dtype=bool)
    for (a, b, near), al, ed in zip(sides, aligned, edited, strict=True):
        row = pair_features._row(a, b, near, al, ed)
        assert pair_features._row_compiled(a, b, near, al, ed) == row
        met |= np.array(row) != 0
    assert [name for name, seen in zip(pair_features.NAMES, met.tolist(), strict=True) if not seen] == []


PIECES = (
    "Tea tea. is the NOT no one ever cannot can't don't 'tis 12 1,000 1,0000 1.5 1.2.34a 1.2a 9:30 9:30pm 2024-05-05"
    " 2024-05-051 foo_bar foo._bar foo_ _foo a.b.c C++ C# $5 50% #7 (so) what? Wow! x: y; -LRB- `q` don’t Ünder ² ΟΔΟΣ"
    " McDonald USA two twenty five half n't N't (n't)"
)
pieces = st.sampled_from(PIECES.split())


@given(st.lists(pieces | st.text(max_size=3), max_size=90), st.sampled_from([" ", "", "\n", " \x1f"]))
def test_a_text_is_taken_apart_as_regular_expressions_do(parts: list[str], between: str) -> None:
    text = between.join(parts)
    read: list[Any] = []
    for loops in (None, native):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "native", loops)
            read.append(analyse.__wrapped__(text))
    assert read[0] == read[1]


def test_what_is_not_two_sides_or_a_text_is_refused() -> None:
    words = pair_model.load()[1]
    side = pair_features._side(analyse("Tea is hot"), words)
    (al,) = pair_features.align_many([(side.told, side.told)], words)
    good: list[Any] = [side, side, 0.5, al, pair_features.NO_EDITS]
    assert len(native.features(*good)) == len(pair_features.NAMES)
    swap = pair_features.Swap(0, 9, 0.5, opposed=False, exclusive=False)
    wrong: list[tuple[int, Any]] = [
        (0, ()),
        (0, None),
        (1, side._replace(places=None)),
        (1, side._replace(text=side.text._replace(told=("tea",)))),
        (2, "near"),
        (3, al._replace(best_a=[1.0])),
        (3, al._replace(exact_b=())),
        (3, al._replace(swaps=[swap])),  # of a word that is not there
        (3, al._replace(swaps=None)),
        (3, al[:7]),
        (4, pair_features.NO_EDITS[:5]),
    ]
    for place, value in wrong:
        with pytest.raises((TypeError, ValueError, IndexError)):
            native.features(*good[:place], value, *good[place + 1 :])
    with pytest.raises(TypeError, match="not a text"):
        native.take_apart(b"tea", {}, 9)
    with pytest.raises(TypeError, match="not a text"):
        native.take_apart("tea", [], 9)
    with pytest.raises(KeyError):
        native.take_apart("tea", {}, 9)
    for call in (native.features, native.take_apart):
        with pytest.raises(TypeError, match="arguments"):
            call()


texts = st.lists(st.sampled_from("abcdef"), max_size=12)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_texts_part_where_difflib_says(pairs: list[tuple[list[str], list[str]]]) -> None:
    wanted = [
        [
            tuple(each[1:])
            for each in SequenceMatcher(None, *both, autojunk=False).get_opcodes()
            if each[0] != "equal"
        ]
        for both in pairs
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "native", native)
        assert pair_features._blocks_compiled(pairs) == wanted


def test_trees_come_to_the_same_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pair_model.load()[0]
    rng = np.random.default_rng(3)
    rows = rng.choice([0.0, 0.5, 1.0, 3.0], (150, len(pair_features.NAMES))) + rng.random(
        (150, len(pair_features.NAMES))
    )
    scores: list[NDArray[np.float32]] = []
    for loops in (None, native):
        monkeypatch.setattr(runtime, "native", loops)
        scores.append(model.scores(rows.tolist()))
    assert (scores[0] == scores[1]).all()


def test_wrong_arrays_are_refused_before_anything_is_read() -> None:
    vectors, places, same = np.eye(4, dtype=np.float32), np.arange(4), np.zeros(4, np.uint8)
    pairs, floats, ints = np.array([[0, 2, 2, 4]]), np.empty(4, np.float32), np.empty(4, np.int64)
    good: list[Any] = [vectors, places, same, pairs, floats, ints, floats.copy()]
    native.align(*good)
    wrong: list[tuple[int, Any]] = [
        (0, np.zeros((4, 8), np.float32)[:, ::2]),
        (0, np.zeros((8, 4), np.float32)[::2]),
        (0, vectors[:3]),  # a word of another table
        (1, np.array([0, 1, 2, -1])),
        (2, same[:3]),
        (3, np.array([[0, 2, 2, 5]])),
        (3, np.array([[2, 0, 2, 4]])),
        (3, np.array([[0, 2, 2]])),
        (4, floats[:3]),
        (5, ints[:3]),
        (6, floats[:3]),
    ]
    for place, value in wrong:
        with pytest.raises((ValueError, IndexError)):
            native.align(*good[:place], value, *good[place + 1 :])
    out, found = np.empty((4, 4), np.int64), np.empty(1, np.int64)
    native.differ(places, pairs, out, found)
    long = np.array([[0, 300, 0, 0]])
    for bad in (
        (places, pairs, out[:3], found),
        (places, pairs, out[:, :3], found),
        (places, pairs, out, found[:0]),
        (np.arange(300), long, np.empty((300, 4), np.int64), found),  # longer than any text
    ):
        with pytest.raises(ValueError, match=r"\w"):
            native.differ(*bad)
    values, feature, threshold = np.ones((2, 3), np.float32), np.array([0, 2]), np.zeros(2, np.float32)
    ends, tree, stays = np.array([1, 2]), np.zeros(2, np.uint16), np.array([~1, ~2], dtype=np.int64)
    leaves, reached = np.arange(64, dtype=np.float32).reshape(1, 64), np.empty((2, 1), np.float32)
    good = [values, feature, threshold, ends, tree, stays, leaves, reached]
    native.descend(*good)
    assert reached.tolist() == [[2.0], [2.0]]
    wrong = [
        (0, values[:, :2]),  # no such feature
        (1, feature[:1]),
        (2, threshold[:1]),
        (3, np.array([1, 3])),
        (3, np.array([2, 1])),
        (4, tree + np.uint16(1)),  # no such tree
        (5, stays[:1]),
        (6, leaves[:, :63]),
        (7, reached[:1]),
    ]
    for place, value in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            native.descend(*good[:place], value, *good[place + 1 :])
    for call in (native.align, native.differ, native.descend):
        with pytest.raises(TypeError, match="arguments"):
            call()
