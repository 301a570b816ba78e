"""WordPiece, small and exact: the words and word pieces that a BERT vocabulary knows.

Agrees with the reference tokenizer of uncased BERT models: clean, lower-case, strip accents, isolate
punctuation and CJK characters, then cut each word greedily into the longest known pieces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

MAX_WORD = 100
"""Longer words become one unknown token, as in the reference."""
MAX_REMEMBERED = 65_536
"""How many distinct words keep their pieces in memory before the memory starts anew."""

_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_DROPPED = frozenset({"Cc", "Cf", "Co", "Cs"})
_plain = re.compile(r"[\t\n\r -~]*").fullmatch
_ascii_words = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]").findall


def _is_punctuation(char: str) -> bool:
    return (
        "!" <= char <= "/"
        or ":" <= char <= "@"
        or "[" <= char <= "`"
        or "{" <= char <= "~"
        or (unicodedata.category(char)[0] == "P")
    )


def _normal_form(code: int) -> str:
    """What one character becomes: nothing, a space, itself isolated by spaces, or lower-case letters."""
    char = chr(code)
    if char in "\t\n\r":
        return " "
    if code in (0, 0xFFFD) or unicodedata.category(char) in _DROPPED:
        return ""
    if char.isspace():
        return " "
    if any(low <= code <= high for low, high in _CJK):
        return f" {char} "
    letters = "".join(
        part.lower() for part in unicodedata.normalize("NFD", char) if unicodedata.category(part) != "Mn"
    )
    return "".join(f" {part} " if _is_punctuation(part) else part for part in letters)


class _CharacterMap(dict[int, str]):
    """`str.translate` table that learns each character when it is first met."""

    def __missing__(self, code: int) -> str:
        form = self[code] = _normal_form(code)
        return form


_characters = _CharacterMap()


def split_words(text: str) -> list[str]:
    """Lower-case words, punctuation marks and CJK characters, in order.

    >>> split_words("Café, PR #441!")
    ['cafe', ',', 'pr', '#', '441', '!']
    """
    if _plain(text):
        return _ascii_words(text.lower())
    return text.translate(_characters).split()


class _WordCache(dict[str, tuple[int, ...]]):
    """Pieces of every word met so far; forgets everything when it grows too large."""

    def __init__(self, vocabulary: dict[str, int], unknown: int) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._unknown = (unknown,)

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        pieces = self[word] = self._cut(word)
        return pieces

    def _cut(self, word: str) -> tuple[int, ...]:
        known = self._vocabulary.get(word)
        if known is not None and len(word) <= MAX_WORD:
            return (known,)
        if len(word) > MAX_WORD:
            return self._unknown
        pieces: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = self._vocabulary.get(("##" if start else "") + word[start:end])
                if piece is not None:
                    break
            else:
                return self._unknown
            pieces.append(piece)
            start = end
        return tuple(pieces)


class WordPiece:
    """Cuts text into ids of a fixed vocabulary. Adds no special tokens."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary: tuple[str, ...] = tuple(vocabulary)
        ids = dict(zip(self.vocabulary, range(len(self.vocabulary)), strict=True))
        self.unknown: int = ids["[UNK]"]
        self._pieces = _WordCache(ids, self.unknown)
        self._ids = ids

    @classmethod
    def from_file(cls, path: Path) -> WordPiece:
        """Read a vocabulary with one token per line; a name ending in `.z` is zlib-compressed."""
        return cls(read_vocabulary(path))

    def id_of(self, token: str) -> int | None:
        """The number of a token, or None if the vocabulary lacks it."""
        return self._ids.get(token)

    def ids(self, text: str) -> list[int]:
        """The ids of a text, in order."""
        found: list[int] = []
        pieces = self._pieces
        for word in split_words(text):
            found += pieces[word]
        return found

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text as they are written in the vocabulary, `##` marking a continuation."""
        return [self.vocabulary[number] for number in self.ids(text)]


def read_vocabulary(path: Path) -> list[str]:
    """The tokens of a vocabulary file, by id."""
    raw = path.read_bytes()
    if path.suffix == ".z":
        import zlib

        raw = zlib.decompress(raw)
    return raw.decode().rstrip("\n").split("\n")
