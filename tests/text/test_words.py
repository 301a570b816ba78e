# pyright: reportPrivateUsage=false
from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.text import terms as terms_module
from skep.text.terms import (
    MEMO_ENTRIES,
    STOP,
    chunks,
    fold,
    joined_chunk,
    joined_terms,
    query_terms,
    stem,
    terms,
)

anything = st.text(st.characters(codec=None, exclude_categories=[]), max_size=60)
name = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,11}", fullmatch=True)


def found(query: str, text: str) -> bool:
    """Whether a text would match every term of a query."""
    return set(query_terms(query)) <= set(terms(text)) and bool(query_terms(query))


@given(anything)
def test_no_text_ever_raises_and_terms_are_never_empty_or_blank(text: str) -> None:
    for term in (*terms(text), *query_terms(text)):
        assert term
        assert not any(map(str.isspace, term))


@given(anything)
def test_a_text_is_analysed_chunk_by_chunk_and_joining_terms_loses_none(text: str) -> None:
    parts = [terms_module._analyse(chunk, query=False) for chunk in chunks(text)]

    assert [joined_chunk(chunk).split() for chunk in chunks(text)] == parts
    assert joined_terms(text).split() == terms(text) == [term for part in parts for term in part]


@given(st.from_regex(r"[a-z]{2,12}[abfhjkopqvwxz]", fullmatch=True))
def test_words_that_end_in_no_suffix_are_their_own_stem(word: str) -> None:
    steps = (
        terms_module._plural,
        terms_module._past,
        terms_module._final_y,
        terms_module._long_suffix,
        terms_module._short_suffix,
        terms_module._residual,
        terms_module._final_e,
    )
    assert stem(word) == functools.reduce(lambda text, step: step(text), steps, word)


@given(anything)
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(text) == fold(fold(text))


@given(anything)
def test_the_same_text_always_gives_the_same_terms(text: str) -> None:
    assert terms(text) == terms(text)
    assert query_terms(text) == query_terms(text)


@given(anything)
def test_every_text_that_has_terms_is_found_by_itself(text: str) -> None:
    assert set(query_terms(text)) <= set(terms(text))
    assert bool(query_terms(text)) == bool(terms(text))


@given(
    st.lists(name, min_size=1, max_size=4),
    st.sampled_from([".", "_", "/", "-", "::", "#", "@", ":", "\\", "+"]),
)
def test_every_identifier_is_found_by_itself_inside_a_sentence(parts: list[str], joint: str) -> None:
    identifier = joint.join(parts)

    assert found(identifier, f"See ({identifier}), it is broken.")


@given(st.lists(name, min_size=2, max_size=4), st.sampled_from([".", "_", "/", "-", ":"]))
def test_every_identifier_is_found_by_each_of_its_parts(parts: list[str], joint: str) -> None:
    assert all(found(part, joint.join(parts)) for part in parts)


@given(st.from_regex(r"[vV]?\d{1,3}(\.\d{1,3}){1,3}", fullmatch=True))
def test_every_version_is_found_by_itself_with_and_without_its_v(version: str) -> None:
    assert found(version, f"upgraded to {version}.")
    assert found(version.lstrip("vV"), f"upgraded to {version}.")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("#441", "Fixed in PR #441."),
        ("PR #441", "Fixed in PR#441"),
        ("441", "see (#441)"),
        ("MemoryStore.recall", "call `MemoryStore.recall()` first"),
        ("memory store", "call MemoryStore.recall first"),
        ("memorystore", "call MemoryStore.recall first"),
        ("foo_bar", "rename foo_bar to baz"),
        ("foo bar", "rename foo_bar to baz"),
        ("v2.3.1", "released v2.3.1!"),
        ("2.3", "released v2.3.1"),
        ("terms.py", "edit src/skep/text/terms.py:12"),
        ("src/skep/text/terms.py", "edit src/skep/text/terms.py:12"),
        ("docs.python.org", "see https://docs.python.org/3/library/re.html#re.compile"),
        ("https://docs.python.org/3/library/re.html", "see <https://docs.python.org/3/library/re.html>"),
        ("parse url", "parseURL broke"),
        ("HTTPServer", "class HTTPServer2 and HTTPServer"),
        ("user@host.com", "write to user@host.com."),
        ("C++", "written in C++, not C"),
        ("C#", "written in C#."),
        (".gitignore", "add it to .gitignore"),
        ("--force", "git push --force"),
        ("@ana", "ask @ana"),
        ("__init__", "def __init__(self)"),
        ("utf8", "encoded as utf8"),
        ("email", "send an e-mail"),
        ("1000", "about 1,000 rows"),
        ("550e8400-e29b-41d4-a716-446655440000", "id=550e8400-e29b-41d4-a716-446655440000"),
    ],
)
def test_identifiers_are_found_whole_and_by_their_parts(query: str, text: str) -> None:
    assert found(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cafe", "Café crème"),
        ("ÉTÉ", "été"),
        ("strasse", "Straße"),
        ("full width", "ＦＵＬＬ ＷＩＤＴＨ"),
        ("Привет", "привет, мир"),
        ("елка", "ёлка"),
        ("猫", "黒い猫がいる"),
        ("日本", "日本語のテキスト"),
        ("東京都", "私は東京都に住む"),
        ("한국", "한국어를 배우다"),
        ("สวัสดี", "สวัสดีครับ"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
        ("💻", "a 👩‍💻 at work"),
        ("👍", "well done 👍🏽"),
        ("🇫🇷", "from 🇫🇷"),
        ("don't know", "I don’t know"),
        ("Caroline", "Caroline's dog"),
        ("memory", "memories"),
        ("deploying", "we deployed it"),
    ],
)
def test_text_is_found_whatever_its_script_case_accents_and_endings(query: str, text: str) -> None:
    assert found(query, text)


def test_stop_words_are_dropped_unless_nothing_else_is_left() -> None:
    assert query_terms("what is the dog") == ["dog"]
    assert query_terms("What is that?") == ["what", "is", "that"]
    assert "not" not in STOP


def test_query_terms_are_distinct_and_index_terms_are_counted() -> None:
    assert query_terms("dog dogs Dog") == ["dog"]
    assert terms("dog dogs") == ["dog", "dog"]


def test_whole_identifiers_are_not_stemmed() -> None:
    assert "running_tests" in terms("running_tests")
    assert "nodes.children" in terms("nodes.children")


def test_a_blob_is_kept_whole() -> None:
    blob = "aB3" * 1000

    assert [blob.lower()] == terms(blob)


def test_the_memory_of_chunks_is_bounded() -> None:
    for number in range(MEMO_ENTRIES + 10):
        terms(f"x{number}")

    assert len(terms_module._indexed) <= MEMO_ENTRIES


@pytest.mark.parametrize(
    ("word", "root"),
    [
        ("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("feed", "feed"), ("agreed", "agre"),
        ("plastered", "plaster"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"),
        ("hopping", "hop"), ("falling", "fall"), ("filing", "file"), ("happy", "happi"), ("sky", "sky"),
        ("conditional", "condit"), ("digitizer", "digit"), ("operator", "oper"), ("triplicate", "triplic"),
        ("goodness", "good"), ("revival", "reviv"), ("adoption", "adopt"), ("controlling", "control"),
    ],
)  # fmt: skip
def test_stems_agree_with_porters_published_examples(word: str, root: str) -> None:
    assert root == stem(word)
