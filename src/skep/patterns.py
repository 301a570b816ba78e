"""Regular expressions that are compiled when they are first needed.

A process that answers one question needs few of them, and the long ones cost a millisecond each to compile.
"""

from __future__ import annotations

import re
from typing import Any, cast

MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
"""The name of a month, whole or short, as a part of a pattern."""


class _Lazy:
    """Stands in for a pattern; every method is looked up once and then as near as on the pattern itself."""

    def __init__(self, source: str, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def lazy(source: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled on first use.

    >>> word = lazy(r"[a-z]+")
    >>> word.findall("ab 12 c"), word.pattern
    (['ab', 'c'], '[a-z]+')
    """
    return cast("re.Pattern[str]", _Lazy(source, flags))
