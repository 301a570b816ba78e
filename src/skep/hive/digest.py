"""A Bloom digest: what a peer probably knows already, in about ten bits per item.

It never says "no" to something that was added. What it wrongly takes for known is held back this time; with
another salt it is something else, so everything arrives in the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from skep.errors import OutOfRangeError, SyncError


class BloomState(msgspec.Struct, frozen=True, array_like=True):
    """A digest as it travels."""

    bits: bytes
    hashes: int
    salt: int = 0


class Bloom:
    """A set that answers "certainly not" or "probably"."""

    def __init__(self, capacity: int, *, error: float = 0.01, salt: int = 0) -> None:
        if not 0 < error < 1:
            raise OutOfRangeError("the error rate of a digest lies between 0 and 1", field="error")
        size = math.ceil(-max(1, capacity) * math.log(error) / math.log(2) ** 2)
        self._bits = bytearray((size + 7) // 8)
        self._salt = salt.to_bytes(8, "big")
        self._hashes = max(1, round(size / max(1, capacity) * math.log(2)))

    @classmethod
    def of(cls, items: Iterable[str], *, error: float = 0.01, salt: int = 0) -> Bloom:
        """The digest of some items."""
        listed = list(items)
        made = cls(len(listed), error=error, salt=salt)
        for item in listed:
            made.add(item)
        return made

    def add(self, item: str) -> None:
        """Remember an item."""
        for position in self._positions(item):
            self._bits[position >> 3] |= 1 << (position & 7)

    def __contains__(self, item: str) -> bool:
        return all(self._bits[p >> 3] & (1 << (p & 7)) for p in self._positions(item))

    def _positions(self, item: str) -> Iterator[int]:
        digest = blake2b(item.encode(), digest_size=16, salt=self._salt).digest()
        start, step = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
        size = len(self._bits) * 8
        for number in range(self._hashes):
            yield (start + number * step) % size

    def to_bytes(self) -> bytes:
        """The digest as bytes."""
        return msgspec.msgpack.encode(
            BloomState(bytes(self._bits), self._hashes, int.from_bytes(self._salt, "big"))
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Bloom:
        """Read what `to_bytes` wrote."""
        try:
            state = msgspec.msgpack.decode(data, type=BloomState)
        except msgspec.DecodeError as error:
            raise SyncError(f"not a digest: {error}; ask the peer to send it again") from error
        if not state.bits or not 1 <= state.hashes <= 64 or not 0 <= state.salt < 1 << 64:
            raise SyncError("not a digest: it is empty or out of proportion; ask the peer to send it again")
        made = cls(1, salt=state.salt)
        made._bits, made._hashes = bytearray(state.bits), state.hashes
        return made
