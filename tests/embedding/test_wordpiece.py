"""WordPiece agrees with the reference tokenizer of uncased BERT models."""
# ruff: noqa: E501

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.embedding.static_table import DATA
from skep.embedding.wordpiece import MANY, MAX_WORD, MOST, PackedVocabulary, WordPiece, pack, split_words

# What the reference tokenizer printed for these texts.
# fmt: off
REFERENCE = {
    'Hello, world!': [7592, 1010, 2088, 999],
    'MemoryStore.recall(query) -> PR #441 v2.3.1': [3638, 23809, 2063, 1012, 9131, 1006, 23032, 1007, 1011, 1028, 10975, 1001, 28015, 1058, 2475, 1012, 1017, 1012, 1015],
    'foo_bar /usr/lib/x.py https://a.b/c?d=e': [29379, 1035, 3347, 1013, 2149, 2099, 1013, 5622, 2497, 1013, 1060, 1012, 1052, 2100, 16770, 1024, 1013, 1013, 1037, 1012, 1038, 1013, 1039, 1029, 1040, 1027, 1041],
    'Caf\xe9 na\xefve \xc5ngstr\xf6m \xdcBER': [7668, 15743, 17076, 15687, 19169],
    '\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440': [1194, 16856, 10325, 25529, 15290, 22919, 1010, 1191, 10325, 16856],
    '\u6771\u4eac\u30bf\u30ef\u30fc \u3068 \u5317\u4eac': [1879, 1755, 1709, 30262, 30265, 1666, 1781, 1755],
    '\u0395\u03bb\u03bb\u03ac\u03b4\u03b1 \u03a3\u038a\u03a3\u03a5\u03a6\u039f\u03a3': [1159, 29727, 29727, 14608, 29722, 14608, 1173, 18199, 29733, 29735, 29736, 29730, 29733],
    '\u0130stanbul \u01c5 \ufb01n': [9960, 100, 1984, 2078],
    'tabs\tand\nlines\r\n': [21628, 2015, 1998, 3210],
    'zero\u200bwidth\xadsoft\x00nul\ufffd': [5717, 9148, 11927, 7898, 15794, 11231, 2140],
    '\U0001f44d ok \U0001f469\u200d\U0001f469\u200d\U0001f467': [100, 7929, 100],
    "don't\u2014stop\u2026\xabnow\xbb": [2123, 1005, 1056, 1517, 2644, 1529, 1077, 2085, 1090],
    'supercalifragilisticexpialidocious': [3565, 9289, 10128, 29181, 24411, 4588, 10288, 19312, 21273, 10085, 6313],
    '\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8': [1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008, 1467, 30009, 30020, 29997, 30017, 30003, 30017],
    '\u0939\u093f\u0928\u094d\u0926\u0940': [1339, 29877, 29863, 29861, 29878],
}
# fmt: on


@pytest.fixture(scope="module")
def wordpiece() -> WordPiece:
    return WordPiece.from_file(Path(DATA) / "vocab.bin")


@pytest.mark.parametrize("text", REFERENCE)
def test_ids_are_those_of_the_reference(wordpiece: WordPiece, text: str) -> None:
    assert REFERENCE[text] == wordpiece.ids(text)


def test_a_word_over_the_limit_is_one_unknown_token(wordpiece: WordPiece) -> None:
    assert [wordpiece.unknown] == wordpiece.ids("x" * (MAX_WORD + 1))
    assert wordpiece.unknown not in wordpiece.ids("x" * MAX_WORD)


def test_special_tokens_written_in_a_text_are_plain_text(wordpiece: WordPiece) -> None:
    """A memory cannot smuggle in a separator."""
    assert wordpiece.tokens("[CLS]") == ["[", "cl", "##s", "]"]


def test_the_vocabulary_is_that_of_uncased_bert(wordpiece: WordPiece) -> None:
    assert len(wordpiece.vocabulary) == 30_522
    assert tuple(wordpiece.id_of(t) for t in ("[PAD]", "[UNK]", "the")) == (0, 100, 1996)
    assert wordpiece.id_of("no such token") is None


@given(st.text(alphabet=string.printable))
def test_the_fast_path_for_ascii_agrees_with_the_general_one(text: str) -> None:
    """A soft hyphen is dropped, and sends the text down the general path."""
    assert split_words(text) == split_words(text + " \u00ad")


@given(st.text())
def test_any_text_gives_known_ids(text: str) -> None:
    wordpiece = WordPiece(["[UNK]", "a", "##b"])
    assert set(wordpiece.ids(text)) <= {0, 1, 2}


def test_the_word_memory_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.embedding.wordpiece.MAX_REMEMBERED", 3)
    wordpiece = WordPiece(["[UNK]", "a", "##a"])
    texts = ["a" * n for n in range(1, 9)]

    assert [[1] + [2] * n for n in range(8)] == [wordpiece.ids(text) for text in texts]
    assert len(wordpiece._pieces) <= 3  # pyright: ignore[reportPrivateUsage]


def test_every_token_is_found_where_it_lies(wordpiece: WordPiece) -> None:
    assert [wordpiece.id_of(token) for token in wordpiece.vocabulary] == list(range(30_522))


LINES = st.text(st.characters(exclude_characters="\n"), max_size=5)


@given(st.lists(LINES, min_size=1, max_size=40, unique=True), LINES)
def test_a_packed_vocabulary_is_the_list_it_was_made_from(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[str], other: str
) -> None:
    path = tmp_path_factory.mktemp("vocabulary") / "v.bin"
    path.write_bytes(pack(tokens))
    packed = PackedVocabulary(str(path))

    assert packed.tokens() == tokens
    assert [packed.get(token) for token in tokens] == list(range(len(tokens)))
    assert packed.get(other) == (tokens.index(other) if other in tokens else None)


def test_a_vocabulary_without_tokens_with_too_many_or_with_one_twice_is_refused() -> None:
    for tokens in ([], ["a", "b", "a"], ["a\nb"], [str(number) for number in range(MOST + 1)]):
        with pytest.raises(ValueError, match="token"):
            pack(tokens)


def test_many_words_are_cut_like_few(wordpiece: WordPiece) -> None:
    words = [f"{word}{number}" for number, word in enumerate(wordpiece.vocabulary[2000 : 2000 + 2 * MANY])]
    text = " ".join(words)

    assert wordpiece.ids(text) == WordPiece(wordpiece.vocabulary).ids(text)
