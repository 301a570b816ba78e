"""The lists of words, as they are read."""

from __future__ import annotations

import pytest

from skep.semantics import lexicon as lx


@pytest.mark.parametrize("name", ["antonyms", "synonyms"])
def test_the_stems_are_those_of_the_lists(name: str) -> None:
    read = {"antonyms": lx.antonyms, "synonyms": lx.synonyms}[name]
    listed = lx.listed(name)
    stems = {stem for pair in listed for stem in pair}

    found = {(stem, other) for stem in stems for other in read(stem)}

    assert found == listed | {(b, a) for a, b in listed}, "run scripts/build_stems.py"
    assert [read(word) for word in ("", "a", "zzzz", "not listed", "~")] == [frozenset()] * 5
