"""What stands for the arguments of a call, so that what follows from them need not be worked out twice."""

from __future__ import annotations

import marshal
from typing import Any

PLAIN = 2
"""The form in which `marshal` writes equal values alike, wherever else they are used."""


def spelt(arguments: tuple[Any, ...]) -> bytes | None:
    """Bytes that are equal only if each argument is of the same type and says the same.

    None where something among them is no plain value, whose type and content say all there is to it.

    >>> spelt((1, "a", {"b": [True]})) == spelt((1, "a", {"b": [True]}))
    True
    >>> spelt((1,)) == spelt((True,)), spelt((1,)) == spelt((1.0,)), spelt((iter("a"),))
    (False, False, None)
    """
    try:
        return marshal.dumps(arguments, PLAIN)
    except ValueError:
        return None
