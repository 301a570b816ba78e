"""Strings as 64-bit keys: terms, tags and the values that filters compare.

Keys need no dictionary, so opening an index parses nothing, and no word stands in it in the clear. Zero means
"no value". Two of a million different strings share a key with a probability below one in ten million.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from skep.digests import blake2b


@lru_cache(maxsize=1 << 14)
def key_of(text: str) -> int:
    """The key of a string, the same in every process and on every machine."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def keys_of(texts: Iterable[str]) -> bytearray:
    """The keys of many strings as little-endian words; quicker than one by one, and it fills no cache."""
    keys = bytearray()
    for text in texts:
        keys += blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return keys


@lru_cache(maxsize=1 << 12)
def maybe_key(text: str | None) -> int:
    """The key of an optional string; 0 for none."""
    return 0 if text is None else key_of(text)


@lru_cache(maxsize=1 << 10)
def scope_key(user: str | None, project: str | None, session: str | None) -> int:
    """One key for the three parts of a scope; 0 for the shared one."""
    if user is None and project is None and session is None:
        return 0
    parts = (
        b"\0" if part is None else b"\1" + part.encode("utf-8", "surrogatepass")
        for part in (user, project, session)
    )
    joined = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return int.from_bytes(blake2b(joined, digest_size=8).digest(), "little") or 1
