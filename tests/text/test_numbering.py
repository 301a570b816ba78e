"""Texts cut up in C are cut up as in Python: the same chunks, the same numbers, the same terms."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.text import terms as terms_module
from skep.text.terms import STOP, CompiledNumbering, PlainNumbering, chunks, query_terms, terms

native: Any = runtime.native
if native is None:
    pytest.skip("needs the compiled core", allow_module_level=True)

_SUFFIXES = """
s es ed ing eed ational tional enci anci izer bli alli entli eli ousli ization ation ator alism iveness fulness ousness
aliti iviti biliti logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent ou ism ate
iti ous ive ize sion tion ll y ly e ies sses us ss
"""
SUFFIXES = _SUFFIXES.split()
PIECES = [
    *"abcxyzABCXYZ0129_.,:;!?()[]{}<>\"'`*#@$+-/\\~&%=|",
    *" \t\n\x0b\x0c\x1c\x1f\x85\xa0\u2028",
    *("é", "ß", "日本", "한국어", "\u0301", "😀", "🇩🇪", "İ", "\u200b", "ﬁ", "Ǆ", "ก", "\ud800"),
    *("n't", "'s", "://", "1,234", "v1.2", "__", "C++", "README.md"),
]
pieces = st.sampled_from([*PIECES, *SUFFIXES])
letters = st.text("abcdeiouylstnrz", min_size=1, max_size=7)
english = st.tuples(letters, st.sampled_from(["", *SUFFIXES]), st.sampled_from(["", *SUFFIXES])).map("".join)
texts = st.one_of(
    st.text(max_size=40),
    st.lists(pieces, max_size=30).map("".join),
    st.lists(english, max_size=12).map(" ".join),
)


@pytest.fixture(autouse=True, scope="module")
def python_alone() -> Iterator[None]:
    """Nothing of what is compared with comes from the compiled package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms_module, "_easy", terms_module._never)  # pyright: ignore[reportPrivateUsage]
        patch.setattr(terms_module, "_asked", terms_module._never)  # pyright: ignore[reportPrivateUsage]
        terms_module._indexed.clear()  # pyright: ignore[reportPrivateUsage]
        terms_module._queried.clear()  # pyright: ignore[reportPrivateUsage]
        yield


def assert_same(given: list[str]) -> None:
    plain, compiled = PlainNumbering(), CompiledNumbering()
    for start in range(0, len(given), 3):
        some = given[start : start + 3]
        assert compiled.cut(some) == plain.cut(some)
        assert compiled.cut(some, joined=False) == plain.cut(some, joined=False)
    assert len(compiled) == len(plain)
    assert list(compiled.terms()) == plain.terms()


@given(st.lists(texts, max_size=10))
def test_any_text_is_cut_alike(given: list[str]) -> None:
    assert_same(given)


def test_many_words_are_stemmed_alike() -> None:
    rng = random.Random(7)
    ends = ["", *SUFFIXES]
    made = [
        "".join(rng.choices("abcdeiouylstnrz", k=rng.randrange(1, 7))) + rng.choice(ends) + rng.choice(ends)
        for _ in range(20_000)
    ]
    assert_same([*made, *sorted(STOP), *(word.capitalize() for word in STOP)])


def test_words_with_marks_and_digits_are_cut_alike() -> None:
    inside = [
        "word",
        "Word",
        "WORD",
        "wOrd",
        "a",
        "A",
        "1",
        "2024",
        "v2",
        "2nd",
        "a1b",
        "r073350x",
        "x" * 64,
        "1" * 65,
    ]
    around = ["", *"([{<\"'`*)]}>.,:;!?#@$-_/", "...", "?!", "),", '."', "'s", "x" * 60]
    assert_same([before + word + after for word in inside for before in around for after in around])


def test_one_chunk_is_easy_or_left_to_python() -> None:
    mine = native.Cutter(str, chunks, STOP, 1)
    assert [mine.easy(chunk) for chunk in ("(Memories),", "the", "v2", "2024", "r07x")] == [
        *("memori", "the", "v2 v 2", "2024", "r07x")
    ]
    assert [mine.easy(chunk) for chunk in ("foo_bar", "naïve", "", "\ud800", "x" * 65, "camelCase")] == [
        None
    ] * 6
    with pytest.raises(TypeError):
        mine.easy(b"word")


@given(texts)
def test_a_question_has_the_same_terms_or_is_left_to_python(text: str) -> None:
    found = native.Cutter(str, chunks, STOP, 1).asked(text)
    assert found is None or found == query_terms(text)


def test_common_questions_are_not_left_to_python() -> None:
    mine = native.Cutter(str, chunks, STOP, 1)
    asked = {
        "Who deployed the stores, and who deployed the store?": ["deploi", "store"],
        "Who is it?": ["who", "is", "it"],
        "(what) was abc12 in 2024!": ["abc12", "abc", "12", "2024"],
        " \t the\n": ["the"],
        "": [],
    }
    assert {text: mine.asked(text) for text in asked} == asked
    assert {text: query_terms(text) for text in asked} == asked
    many = [" ".join(f"{letter}{number}" for number in range(40)) for letter in "ab"]
    long = " ".join(letter * 60 for letter in "abcdefghijklmnopqrstuvwxyz" * 2 if letter != "e")
    for text in (*many, long, "a" * 65, "café", "\ud800", "README.md"):
        found = mine.asked(text)
        assert found is None or found == query_terms(text)
    assert [mine.asked(text) for text in ("a" * 65, "café", "\ud800", many[0])] == [None] * 4
    with pytest.raises(TypeError):
        mine.asked(b"word")


def test_numbers_go_on_from_call_to_call() -> None:
    mine = CompiledNumbering()
    first, second = mine.cut(["b a b"]), mine.cut(["c a", "", "b"])
    assert (list(first.sizes), list(first.chunks)) == ([3], [0, 1, 0])
    assert (list(second.sizes), list(second.chunks)) == ([2, 0, 1], [2, 1, 0])
    assert second.terms == ["c a", "", "b"]


def test_a_table_grows_with_what_it_holds() -> None:
    many = [f"word{number} and_{number}" for number in range(3000)]
    mine = CompiledNumbering()
    assert [each.split() for each in mine.cut(many).terms] == [terms(text) for text in many]
    assert len(mine) == 6000
    assert mine.cut(many[::-1]).chunks.tolist() == [
        n for i in range(2999, -1, -1) for n in (2 * i, 2 * i + 1)
    ]


def test_a_failure_leaves_the_numbers_whole() -> None:
    def refuses(chunk: str) -> str:
        raise LookupError(chunk)

    mine = native.Cutter(refuses, chunks, STOP, 1)
    with pytest.raises(LookupError, match="foo_bar"):
        mine.cut(["plain words", "then foo_bar"], True)
    assert list(mine) == ["plain", "word", "then"]
    assert mine.cut(["then more"], True)[0] == ["then more"]


def test_it_may_be_used_while_it_asks() -> None:
    def asks(chunk: str) -> str:
        inner = mine.cut([f"inner words of {chunk[:3]}"], True)
        return f"{inner[0][0]} {len(mine)}"

    mine = native.Cutter(asks, chunks, STOP, 1)
    found, _sizes, _numbers = mine.cut(["one foo_bar two"], True)
    assert found == ["on inner word of foo 5 two"]
    assert list(mine) == ["on", "inner", "word", "of", "foo", "inner word of foo 5", "two"]


def test_what_is_no_list_of_texts_is_refused() -> None:
    mine = native.Cutter(str, chunks, STOP, 1)
    for wrong in ("text", ("a",), [b"a"], [None]):
        with pytest.raises(TypeError):
            mine.cut(wrong, True)
    with pytest.raises(TypeError):
        mine.cut([])
    with pytest.raises(TypeError):
        native.Cutter(None, chunks, STOP, 1)
    with pytest.raises(TypeError, match="not a list"):
        native.Cutter(str, str, STOP, 1).cut(["é"], True)


def test_rings_through_it_are_collected() -> None:
    class Asker:
        def __call__(self, chunk: str) -> str:
            return chunk

    import weakref

    asker = Asker()
    asker.own = native.Cutter(asker, chunks, STOP, 1)  # type: ignore[attr-defined]  # pyright: ignore
    gone = weakref.ref(asker)
    del asker
    gc.collect()
    assert gone() is None
