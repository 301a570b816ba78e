"""What stands for the arguments of a call, so that what follows from them need not be worked out twice."""

from __future__ import annotations

import marshal
from typing import Any

PLAIN = 2
"""The form in which `marshal` writes equal values alike, wherever else they are used."""
_KNOWN = frozenset({str, int, float, bool, bytes, type(None), tuple, list, set, frozenset, dict})


def spelt(arguments: tuple[Any, ...]) -> bytes | None:
    """Bytes that are equal only if each argument is of the same type and says the same.

    None where one of them is no plain value, whose type and content say all there is to it. Within lists and mappings,
    what has a buffer is spelt by its bytes: a caller must refuse all but one of those that are spelt alike.

    >>> spelt((1, "a", {"b": [True]})) == spelt((1, "a", {"b": [True]}))
    True
    >>> spelt((1,)) == spelt((True,)), spelt((1,)) == spelt((1.0,)), spelt((iter("a"),)), spelt((bytearray(1),))
    (False, False, None, None)
    """
    if not _KNOWN.issuperset(map(type, arguments)):  # `marshal` takes whatever has a buffer for its bytes
        return None
    try:
        return marshal.dumps(arguments, PLAIN)
    except ValueError:
        return None
