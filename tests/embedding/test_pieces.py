"""Word pieces of texts."""

from __future__ import annotations

from skep.embedding.wordpiece import _normal_form  # pyright: ignore[reportPrivateUsage]


def test_what_a_character_becomes_has_no_other_blank_than_a_space() -> None:
    codes = range(0x32000)  # beyond it there are marks and what is left out
    blanks = {char for char in map(chr, codes) if char.isspace()}
    forms = map(_normal_form, codes)
    assert blanks & set("".join(forms)) == {" "}
