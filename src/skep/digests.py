"""Digests that need no OpenSSL.

`hashlib` loads OpenSSL when it is imported: several milliseconds and megabytes, to no use where the digest is one that
Python computes by itself. Where its own modules are not to be had, `hashlib` serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b, shake_128
else:
    try:
        from _blake2 import blake2b
        from _sha3 import shake_128
    except ImportError:
        from hashlib import blake2b, shake_128

__all__ = ["blake2b", "shake_128"]
