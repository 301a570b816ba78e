"""A vocabulary in one file that is searched where it lies: opening it reads nothing, however many tokens it has.

::

    magic (8) | tokens (4) | places (4) | table: a token's number plus one at the place its hash says, 0 where there
    is none (2 each) | where each token begins and, last, where they end (4 each) | the tokens, in UTF-8, one
    per line

Numbers are little-endian. A token whose place is taken stands at the next one that is free.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from zlib import crc32

from skep.errors import EmbedderUnavailableError

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
        """How often a token was looked for."""
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
