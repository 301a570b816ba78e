"""Private parts: text that its writer marked `<private>` is never stored, wherever it stands. Pure.

The log takes private parts out of every event; the bank, the importers and the hooks before that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from skep.errors import OutOfRangeError
from skep.runtime import lazy

MARK = lazy(r"<\s*(?:(/)\s*)?private\b[^<>]*>|&lt;\s*(?:(/)\s*)?private\b[^<>&]*&gt;", re.IGNORECASE)
"""An opening or a closing mark, as it is or escaped; no stretch of a text is looked at twice."""
UNFINISHED = lazy(r"<\s*(?:/\s*)?private\b[^<>]*\Z", re.IGNORECASE)
LONGEST_MARK = 1000
"""A beginning that goes on for longer is none."""
NOTHING_LEFT = "[private]"
"""Stands where nothing was left of a text that must be there."""

DEEP = 64
"""Lists and mappings may lie this deep in one another: whoever reads them goes a step down for each."""


_encode = msgspec.json.Encoder().encode


def without_private(text: str) -> str:
    """A text without what its writer marked `<private>`. An opening that is never closed reaches to the end.

    >>> without_private("a <private>x <private>y</private> z</private> b <private>c")
    'a  b '
    """
    if "<" not in text and "&" not in text:
        return text
    kept: list[str] = []
    depth = at = 0
    for mark in MARK.finditer(text):
        if depth == 0:
            kept.append(text[at : mark.start()])
        depth = max(0, depth - 1) if mark.group(1) or mark.group(2) else depth + 1
        at = mark.end()
    return "".join(kept) + ("" if depth else text[at:])


def whole_lines(lines: Iterable[str], apart: str = "") -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1. Those that a private part goes over are one, so that it stays in one piece.

    A line that begins with `apart` (such as the brace of a JSON object) opens nothing for the lines after it.

    >>> list(whole_lines(["a", "b <private>c", "d", "e</private> f", "g"]))
    [(1, 'a'), (2, 'b <private>c\\nd\\ne</private> f'), (5, 'g')]
    """
    part: list[str] = []
    depth, begun, number = 0, "", 0
    for number, line in enumerate(lines, 1):
        part.append(line)
        alone = bool(apart) and len(part) == 1 and line.lstrip().startswith(apart)
        if begun or depth or (not alone and ("<" in line or "&" in line)):
            read = begun + line
            for mark in MARK.finditer(read):
                depth = max(0, depth - 1) if mark.group(1) or mark.group(2) else depth + 1
            unfinished = UNFINISHED.search(read)
            begun = unfinished.group() + "\n" if unfinished and len(unfinished.group()) < LONGEST_MARK else ""
        if not depth and not begun:
            yield number - len(part) + 1, "\n".join(part)
            part = []
    if part:
        yield number - len(part) + 1, "\n".join(part)


def refuse_deep(field: str, value: Any, most: int = DEEP) -> None:
    """Raise if lists and mappings lie in one another further than somebody can read, or without end."""
    held: Iterable[Any] = ()
    if isinstance(value, Mapping):
        held = cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, list | tuple | set | frozenset):
        held = cast("Iterable[Any]", value)
    else:
        return
    if most == 0:
        raise OutOfRangeError(
            f"{field} holds lists or mappings that lie more than {DEEP} deep in one another; flatten it, or give the"
            " inner part as a text",
            field=field,
        )
    for one in held:
        refuse_deep(field, one, most - 1)


def marked(value: Any) -> bool:
    """True if anything in a value is marked as private: a text, or the texts in lists and mappings, keys included."""
    try:  # every write comes through here, and the quickest look is to write a value out and look for two signs
        written = _encode(value).decode()  # in bytes the same look takes twice as long
        if "<" not in written and "&" not in written:
            return False
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass  # nothing that JSON can hold: the checks of what comes in will say so
    refuse_deep("what was given", value, DEEP + 2)  # an event has its fields a step or two below
    return _searched(value)


def _searched(value: Any) -> bool:
    if isinstance(value, str):
        return MARK.search(value) is not None
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return any(_searched(key) or _searched(one) for key, one in pairs)
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_searched, cast("Iterable[Any]", value)))
    return False


def public(value: Any) -> Any:
    """A value of plain JSON without its private parts, keys included; the same object where there are none.

    >>> public({"a": ["b <private>c</private>", 1], "<private>d</private>": "<private>e</private>"})
    {'a': ['b ', 1], '[private]': '[private]'}
    """
    return _cut(value) if marked(value) else value


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        kept = without_private(value)
        return kept if kept == value or kept.strip() else NOTHING_LEFT
    if isinstance(value, dict):
        return {_cut(key): _cut(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        parts = [_cut(one) for one in cast("list[Any]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    return value
