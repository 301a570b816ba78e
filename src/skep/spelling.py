"""What stands for the arguments of a call, so that what follows from them need not be worked out twice."""

from __future__ import annotations

import marshal
from typing import Any

PLAIN = 2
"""The form in which `marshal` writes equal values alike, wherever else they are used."""
_SINGLE = frozenset({str, int, float, bool, bytes, type(None)})
_SEVERAL = frozenset({tuple, list, set, frozenset})


def spelt(arguments: tuple[Any, ...]) -> bytes | None:
    """Bytes that are equal only if each argument is of the same type and says the same.

    None where something among them is no plain value, whose type and content say all there is to it.

    >>> spelt((1, "a", {"b": [True]})) == spelt((1, "a", {"b": [True]}))
    True
    >>> spelt((1,)) == spelt((True,)), spelt((1,)) == spelt((1.0,)), spelt((iter("a"),)), spelt((bytearray(1),))
    (False, False, None, None)
    """
    for each in arguments:
        if type(each) not in _SINGLE and not _plain(each):
            return None
    try:
        return marshal.dumps(arguments, PLAIN)
    except ValueError:  # nested too deeply
        return None


def _plain(value: Any) -> bool:
    """Whether it is made of plain values alone: `marshal` takes whatever has a buffer for its bytes."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _SEVERAL:
        return all(type(each) in _SINGLE or _plain(each) for each in value)
    if kind is dict:
        return _plain(tuple(value)) and _plain(tuple(value.values()))
    return kind in _SINGLE
