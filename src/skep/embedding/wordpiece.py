"""WordPiece tokenizer of uncased BERT models, and the packed vocabulary file it searches.

The embedders call it. It agrees with the reference tokenizer: clean, lower-case, strip accents, isolate punctuation and
CJK characters, then cut each word greedily into the longest known pieces. It reads vocabulary files and nothing else.
Words that were met keep their pieces.

A packed vocabulary is mapped: opening it reads nothing, however many tokens it has. Its layout::

    magic (8) | tokens (4) | places (4) | table: a token's number plus one at the place its hash says, 0 where there
    is none (2 each) | where each token begins and, last, where they end (4 each) | the tokens, in UTF-8, one
    per line

Numbers are little-endian. A token whose place is taken stands at the next one that is free.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import unicodedata
from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

from skep.errors import EmbedderUnavailableError
from skep.runtime import lazy

if TYPE_CHECKING:
    from os import PathLike


MAX_WORD = 100
"""Longer words become one unknown token, as in the reference."""
MAX_REMEMBERED = 65_536
"""Distinct words that keep their pieces in memory before the memory starts anew."""
MANY = 2_000
"""Tokens looked for, from which on it pays to have the whole vocabulary in memory."""

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
_plain = lazy(r"[\t\n\r -~]*")
_ascii_words = lazy(r"[a-z0-9]+|[!-/:-@\[-`{-~]")


def _is_punctuation(char: str) -> bool:
    return (
        "!" <= char <= "/"
        or ":" <= char <= "@"
        or "[" <= char <= "`"
        or "{" <= char <= "~"
        or (unicodedata.category(char)[0] == "P")
    )


def _normal_form(code: int) -> str:
    """The normal form of one character: nothing, a space, itself isolated by spaces, or lower-case letters."""
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
    if _plain.fullmatch(text):
        return _ascii_words.findall(text.lower())
    return text.translate(_characters).split()


class _WordCache(dict[str, tuple[int, ...]]):
    """Pieces of every word met so far; forgets everything when it grows too large."""

    def __init__(self, vocabulary: dict[str, int] | PackedVocabulary, unknown: int) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._unknown = (unknown,)

    def __missing__(self, word: str) -> tuple[int, ...]:
        if not isinstance(self._vocabulary, dict) and self._vocabulary.asked >= MANY:
            self._vocabulary = _numbered(self._vocabulary.tokens())
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

    def __init__(self, vocabulary: Sequence[str] | PackedVocabulary) -> None:
        self._source = vocabulary
        self._ids = _numbered(vocabulary) if isinstance(vocabulary, Sequence) else vocabulary
        unknown = self._ids.get("[UNK]")
        if unknown is None:
            raise KeyError("[UNK]")
        self.unknown: int = unknown
        self._pieces = _WordCache(self._ids, self.unknown)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> WordPiece:
        """Read a vocabulary: `.bin` is searched where it lies, others have one token per line, `.z` compressed."""
        if os.fspath(path).endswith(".bin"):
            return cls(PackedVocabulary(os.fspath(path)))
        return cls(read_vocabulary(path))

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every token, by its id."""
        return tuple(self._source if isinstance(self._source, Sequence) else self._source.tokens())

    def id_of(self, token: str) -> int | None:
        """The number of a token, or None if the vocabulary lacks it."""
        return self._ids.get(token)

    def ids(self, text: str) -> list[int]:
        """The ids of a text, in order."""
        return self.cut([text])[0].tolist()

    def cut(
        self, texts: list[str], kept: bytes | None = None, most: int = sys.maxsize
    ) -> tuple[array[int], array[int]]:
        """The ids of each of some texts, text after text, and how many each has.

        Args:
            texts: The texts to cut.
            kept: A byte for every id; those with a 0 are left out.
            most: The most ids of a text that are given, counting those that are not left out.
        """
        ids, sizes = array("i"), array("i")
        for text in texts:
            found = self._ids_of(text)
            found = found[:most] if kept is None else [each for each in found if kept[each]][:most]
            ids.extend(found)
            sizes.append(len(found))
        return ids, sizes

    def _ids_of(self, text: str) -> list[int]:
        found: list[int] = []
        pieces = self._pieces
        for word in split_words(text):
            found += pieces[word]
        return found

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text as they are written in the vocabulary, `##` marking a continuation."""
        return [self.vocabulary[number] for number in self.ids(text)]


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return dict(zip(tokens, range(len(tokens)), strict=True))


def read_vocabulary(path: str | PathLike[str]) -> list[str]:
    """The tokens of a vocabulary file with one per line, by id."""
    with open(path, "rb") as file:
        raw = file.read()
    if os.fspath(path).endswith(".z"):
        import zlib

        raw = zlib.decompress(raw)
    return raw.decode().rstrip("\n").split("\n")


MAGIC = b"skepvoc1"
MOST = (1 << 16) - 2
_HEAD = struct.Struct("<8sII")


def pack(tokens: Sequence[str]) -> bytes:
    """The file of a vocabulary, in the order of its numbers.

    >>> len(pack(["[UNK]", "a"]))
    44
    """
    if not 0 < len(tokens) <= MOST:
        raise ValueError(f"a vocabulary holds 1 to {MOST} tokens, not {len(tokens)}")
    if len(set(tokens)) < len(tokens) or any("\n" in token for token in tokens):
        raise ValueError("a token stands twice in the vocabulary, or is longer than a line")
    places = 1 << (2 * len(tokens) - 1).bit_length()
    table = array("H", bytes(2 * places))
    raw = [_raw(token) + b"\n" for token in tokens]
    for number, line in enumerate(raw, start=1):
        at = crc32(line) & places - 1
        while table[at]:
            at = at + 1 & places - 1
        table[at] = number
    starts = array("I", accumulate(map(len, raw), initial=0))
    head = _HEAD.pack(MAGIC, len(tokens), places)
    return head + _little(table).tobytes() + _little(starts).tobytes() + b"".join(raw)


class PackedVocabulary:
    """A vocabulary file, mapped."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, self.count, places = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
        starts = _HEAD.size + 2 * places
        self._begin = starts + 4 * (self.count + 1)
        whole = magic == MAGIC and len(data) >= self._begin
        if not whole or len(data) != self._begin + int.from_bytes(
            data[self._begin - 4 : self._begin], "little"
        ):
            raise EmbedderUnavailableError(f"{path} is no vocabulary, or a damaged one; reinstall skep")
        self.asked = 0
        """The number of times that a token was looked for."""
        view = memoryview(data)
        self.data = data
        """The file."""
        self._last: int = places - 1
        self._table: Sequence[int] = _numbers("H", view[_HEAD.size : starts])
        self._starts: Sequence[int] = _numbers("I", view[starts : self._begin])

    def get(self, token: str) -> int | None:
        """The number of a token; None if it is not in the vocabulary."""
        self.asked += 1
        raw = _raw(token) + b"\n"
        at = crc32(raw) & self._last
        while number := self._table[at]:
            begin = self._begin + self._starts[number - 1]
            if self.data[begin : self._begin + self._starts[number]] == raw:
                return number - 1
            at = at + 1 & self._last
        return None

    def tokens(self) -> list[str]:
        """Every token, by its number."""
        return self.data[self._begin : -1].decode("utf-8", "surrogatepass").split("\n")


def _raw(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


def _numbers(kind: str, view: memoryview) -> Sequence[int]:
    if sys.byteorder == "little":
        return view.cast(kind)  # type: ignore[call-overload]
    return _little(array(kind, bytes(view)))
