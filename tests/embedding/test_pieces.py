"""Word pieces cut and compared by compiled loops are those of Python and numpy, and no file leads them astray."""

from __future__ import annotations

import struct
import sys
import unicodedata
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.maintenance.planted import planted
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.embedding.static_table import DATA, StaticEmbedder
from skep.embedding.wordpiece import MAX_WORD, WordPiece, _normal_form, pack

ALL = sys.maxsize
BLANKS = " \t\n\r\x0b\x0c\x1c\x85\u00a0\u2003\u2028\u3000"
ODD = "éÅßİıǅﬁΣς한द्東京𠀀👍\u0301\u200b\u00ad\ufffd\ud800\udfff\U0010ffff\x00\x7f—…«»#'$^`~ſK"
LETTERS = st.text(st.sampled_from("abcst019XYZ" + BLANKS + ODD + ".,-"), max_size=60)
TEXTS = st.one_of(st.text(), LETTERS, st.text(st.characters(min_codepoint=0x80), max_size=20))


@pytest.fixture(scope="module")
def wordpiece() -> WordPiece:
    return WordPiece.from_file(Path(DATA) / "vocab.bin")


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


@pytest.fixture
def generation(native: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    native.use(request.param)
    yield request.param
    native.use(native.generations()[-1])


def both(call: Any, *given: Any) -> tuple[Any, Any]:
    """What a call gives with the compiled loops and without."""
    compiled = call(*given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "native", None)
        return compiled, call(*given)


def test_every_character_is_cut_like_in_python(native: Any, wordpiece: WordPiece) -> None:
    """Alone, and inside a word; in texts of many, so that the test is quick."""
    codes = range(sys.maxunicode + 1)
    texts = [
        " ".join(f"{chr(code)} a{chr(code)}b" for code in codes[start : start + 512])
        for start in range(0, len(codes), 512)
        if any(unicodedata.category(chr(code)) != "Cn" for code in codes[start : start + 512])
    ]

    compiled, plain = both(wordpiece.cut, texts)

    assert compiled == plain
    assert len(texts) > 500


def test_what_a_character_becomes_has_no_other_blank_than_a_space() -> None:
    """The compiled loop looks for no other."""
    codes = range(0x32000)  # beyond it there are marks and what is left out
    blanks = {char for char in map(chr, codes) if char.isspace()}
    forms = map(_normal_form, codes)
    assert blanks & set("".join(forms)) == {" "}


@given(st.lists(TEXTS, max_size=5), st.sampled_from([ALL, 0, 1, 3, 8]))
def test_any_text_is_cut_like_in_python(
    native: Any, wordpiece: WordPiece, texts: list[str], most: int
) -> None:
    kept = bytes(number % 3 > 0 for number in range(len(wordpiece.vocabulary)))
    for only in (None, kept):
        compiled, plain = both(wordpiece.cut, texts, only, most)
        assert compiled == plain


def test_real_sentences_are_cut_like_in_python(native: Any, wordpiece: WordPiece) -> None:
    files = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
    texts = [each.text for each in planted(300, 2)] + [file.read_text(encoding="utf-8") for file in files]
    compiled, plain = both(wordpiece.cut, texts)
    assert compiled == plain
    assert len(compiled[0]) > 100_000


@given(
    st.integers(MAX_WORD - 3, MAX_WORD + 3), st.sampled_from(["a", "東", "я", "한", "é", "a\u0301", "\u00ad"])
)
def test_long_words_are_cut_like_in_python(native: Any, wordpiece: WordPiece, size: int, part: str) -> None:
    texts = [part * size, f"tea {part * size}", part * size + "tea", "x" * size + part, "x" * 10_000]
    compiled, plain = both(wordpiece.cut, texts)
    assert compiled == plain


LONG = st.sampled_from(["a" * 90, "é" * 90, "b" * 300])
SHORT = st.text(st.sampled_from("abé東"), min_size=1, max_size=7) | LONG


@given(st.lists(SHORT | SHORT.map("##{}".format), unique=True, max_size=30), st.lists(SHORT, max_size=8))
def test_any_vocabulary_is_searched_like_in_python(
    native: Any, tmp_path_factory: pytest.TempPathFactory, tokens: list[str], words: list[str]
) -> None:
    path = tmp_path_factory.mktemp("vocabulary") / "v.bin"
    path.write_bytes(pack(["[UNK]", *tokens]))
    made = WordPiece.from_file(path)
    compiled, plain = both(made.cut, [" ".join(words), "".join(words)])
    assert compiled == plain


def test_a_character_that_cannot_be_looked_up_stops_the_cut(native: Any) -> None:
    class Failing(dict[int, str]):
        def __missing__(self, code: int) -> str:
            raise RuntimeError("no table")

    file = pack(["[UNK]", "a"])
    with pytest.raises(RuntimeError, match="no table"):
        native.pieces(file, Failing(), 0, ["aé"], None, ALL)
    with pytest.raises(TypeError):
        native.pieces(file, {0xE9: 7}, 0, ["é"], None, ALL)


def test_a_list_that_shrinks_while_it_is_read_is_no_way_out_of_it(native: Any) -> None:
    texts = ["a", "é", "a", "a"]

    class Emptying(dict[int, str]):
        def __missing__(self, code: int) -> str:
            texts.clear()
            return "a"

    with pytest.raises(IndexError):
        native.pieces(pack(["[UNK]", "a"]), Emptying(), 0, texts, None, ALL)


@given(st.data())
def test_a_damaged_vocabulary_never_leads_outside_of_it(native: Any, data: st.DataObject) -> None:
    file = bytearray(pack(["[UNK]", "a", "##b", "tea", "##é", "."]))
    for _ in range(data.draw(st.integers(1, 6))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.sampled_from([0, 1, 255, 7]))
    given = bytes(file[: data.draw(st.sampled_from([len(file), len(file) - 1, 15, 20]))])
    try:
        numbers, counts = native.pieces(given, {0xE9: "e"}, 0, ["abab tea. é " * 3, "x"], None, ALL)
    except (ValueError, IndexError):
        return
    count = struct.unpack_from("<I", given, 8)[0]
    assert all(0 <= number < count for number in array("i", numbers))
    assert len(array("I", counts)) == 2


def test_what_is_no_vocabulary_text_or_table_is_refused(native: Any) -> None:
    good: list[Any] = [pack(["[UNK]", "a"]), {}, 0, ["a"], None, ALL]
    assert native.pieces(*good)[0] == b"\1\0\0\0"
    wrong: list[tuple[int, Any]] = [
        (0, b""),
        (0, good[0] + b"x"),
        (0, b"skepvoc2" + good[0][8:]),
        (0, None),
        (1, []),
        (2, 2),
        (2, -1),
        (2, "a"),
        (3, ("a",)),
        (3, [b"a"]),
        (3, [None]),
        (4, b"\1"),
        (4, "kept"),
        (5, None),
    ]
    for place, value in wrong:
        with pytest.raises((TypeError, ValueError)):
            native.pieces(*good[:place], value, *good[place + 1 :])
    with pytest.raises(TypeError, match="arguments"):
        native.pieces()


def test_pieces_that_mean_something_are_those_of_python(native: Any, embedder: StaticEmbedder) -> None:
    texts = ["The café is of Ana 👍", "", "[PAD] of tea" * 9, "The café is of Ana 👍"]
    for most in (0, 3, 256):
        compiled, plain = both(embedder.pieces, texts, most)
        again = both(embedder.pieces, texts, most)[1]
        assert [each.tolist() for each in compiled] == [each.tolist() for each in plain]
        assert [each.tolist() for each in plain] == [each.tolist() for each in again]
        assert compiled[0].dtype == plain[0].dtype == compiled[1].dtype == plain[1].dtype == np.int32
    assert [each.tolist() for each in both(embedder.pieces, [], 9)[1]] == [[], []]


GENERATIONS = getattr(runtime.native, "generations", tuple)()


@pytest.mark.parametrize("generation", GENERATIONS, indirect=True)
@pytest.mark.parametrize("asked", [1, 3, 8, 9, 40])
def test_the_closest_pieces_are_the_same_to_the_last_bit(
    generation: str, embedder: StaticEmbedder, asked: int
) -> None:
    rng = np.random.default_rng(asked)
    pieces = rng.integers(0, 30_522, 3000).astype(np.int32)
    wanted = [*pieces[:asked].tolist(), 0]  # the first has no meaning: a row of zeros
    ends = np.sort(rng.integers(0, 3001, 250))
    lengths = np.diff(ends, prepend=0, append=3000).astype(np.int32)
    stretches = -(-lengths // 12)

    compiled, plain = both(embedder.closest, wanted, pieces, lengths, 12)

    assert compiled.tobytes() == plain.tobytes()
    assert compiled.shape == (asked + 1, stretches.sum())
    assert {0, 1, 2} <= set(stretches.tolist())
    assert compiled.max() == pytest.approx(1.0)
    assert compiled.min() < 0.2


def test_the_closest_is_the_cosine_of_unit_rows(embedder: StaticEmbedder) -> None:
    one, other = embedder.tokens("puppy"), embedder.tokens("The dog sleeps")
    found = embedder.closest(one, np.array(other, np.int32), np.array([0, 3], np.int32), 1)
    wanted = embedder.token_vectors(one) @ embedder.token_vectors(other).T
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_nothing_is_close_to_nothing(native: Any, embedder: StaticEmbedder) -> None:
    none, tea = np.zeros(0, np.int32), np.array([5572], np.int32)
    for asked, pieces, lengths in (([], tea, [1]), ([5572], none, [0, 0]), ([], none, [])):
        compiled = embedder.closest(asked, pieces, np.array(lengths, np.int32), 12)
        assert compiled.shape == (len(asked), len(pieces))


def test_wrong_arrays_are_refused_before_anything_is_compared(native: Any) -> None:
    rows, out = np.ones((4, 6), np.int8), np.empty((1, 2), np.float32)
    asked, pieces, lengths = (np.array(each, np.int32) for each in ([3], [0, 1, 2], [2, 0, 1]))
    good: list[Any] = [rows, asked, pieces, lengths, 2, out]
    native.closest(*good)
    assert out.tolist() == [[pytest.approx(1.0), pytest.approx(1.0)]]
    wrong: list[tuple[int, Any]] = [
        (0, rows[:, ::2]),
        (0, rows[:2]),
        (0, np.ones((1, 1 << 17), np.int8)),
        (1, np.array([4], np.int32)),
        (1, np.array([-1], np.int32)),
        (2, np.array([0, 1, 4], np.int32)),
        (2, np.array([0, 1, 2])),
        (3, lengths[:2]),
        (3, np.array([2, 1, 1], np.int32)),
        (3, np.array([4, 0, -1], np.int32)),
        (3, np.array([2, 0, 1])),
        (4, 1),
        (4, 0),
        (4, -1),
        (5, out[:, :1]),
        (5, np.empty((2, 2), np.float32)),
    ]
    for place, value in wrong:
        with pytest.raises((ValueError, IndexError)):
            native.closest(*good[:place], value, *good[place + 1 :])
    with pytest.raises(TypeError, match="arguments"):
        native.closest()
