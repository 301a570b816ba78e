"""Days in two notations: "5 May 2024", "May 5th, 2024" and "2024-05-05" are one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from skep.patterns import MONTH, lazy
from skep.semantics import lexicon as lx
from skep.tuples import NamedTuple

MEMO_TEXTS = 4096
Day = tuple[int, int, int]
"""Year, month and day."""
_MONTHS: list[str] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
MONTHS = lx.MONTHS | {"sept"}
QUARTERS = lx.word_set("q1 q2 q3 q4")
WEEKDAYS = lx.word_set("monday tuesday wednesday thursday friday saturday sunday")
_year = lazy(r"\d{4}(-\d\d)?")
_day = r"(\d{1,2})(?:st|nd|rd|th)?"
_date = lazy(
    rf"(?<![\w-])(?:the )?(?:(\d{{4}})-(\d\d)-(\d\d)(?![-\w])|{_day}(?: of)? ({MONTH})\.?,? (\d{{4}})\b"
    rf"|({MONTH})\.? (?:the )?{_day},? (\d{{4}})\b)",
    re.IGNORECASE,
)


class _Named(NamedTuple):
    """A day, and where a text names it."""

    day: Day
    start: int
    end: int


def period(word: str) -> bool:
    """Whether a word, as it is read, is a year, a quarter or a month.

    >>> [word for word in ("2024year", "24year", "q3", "sept", "mayor") if period(word)]
    ['2024year', 'q3', 'sept']
    """
    if word in MONTHS or word in QUARTERS:
        return True
    return len(word) == 8 and word[4:] == "year" and word[:2] in ("19", "20") and word[2:4].isdecimal()


def of_a_day(word: str) -> bool:
    """Whether a word, as it is read, is a part of the name of a day.

    >>> [word for word in ("2024.05.03date", "3day", "may", "friday", "update", "day") if of_a_day(word)]
    ['2024.05.03date', '3day', 'may', 'friday']
    """
    if word in MONTHS or word in WEEKDAYS:
        return True
    number = next((word[: -len(unit)] for unit in ("date", "day", "year") if word.endswith(unit)), "")
    return bool(number) and all(sign == "." or sign.isdecimal() for sign in number)


def in_one_notation(a: str, b: str) -> tuple[str, str]:
    """Two texts in which every day that both of them name is written alike.

    >>> in_one_notation("Due on 2024-05-05, not on 2024-05-06", "It is due on the 5th of May 2024")
    ('Due on 2024-05-05, not on 2024-05-06', 'It is due on 2024-05-05')
    """
    mine = _named(a)
    theirs = _named(b) if mine else ()
    shared = {found.day for found in mine} & {found.day for found in theirs}
    if not shared:
        return a, b
    spelt: dict[Day, str] = {}
    for text, named in ((a, mine), (b, theirs)):
        for day, start, end in named:
            spelt[day] = min(spelt.get(day, text[start:end]), text[start:end])
    return _written(a, mine, shared, spelt), _written(b, theirs, shared, spelt)


def _written(text: str, named: Sequence[_Named], shared: set[Day], spelt: Mapping[Day, str]) -> str:
    """A text with some of the days that it names in another notation."""
    for day, start, end in reversed(named):
        if day in shared:
            text = text[:start] + spelt[day] + text[end:]
    return text


@lru_cache(maxsize=MEMO_TEXTS)
def _named(text: str) -> tuple[_Named, ...]:
    """The days that a text names, in the order in which they stand."""
    if not _may_name_one(text):
        return ()
    return tuple(_Named(_read(match), *match.span()) for match in _date.finditer(text))


def _may_name_one(text: str) -> bool:
    """Whether there is a year, and what may be a month: to know that no day is named takes no more than that."""
    years = _year.findall(text)
    if not years or any(years):
        return bool(years)
    lowered = text.lower().replace("ſ", "s")  # as it is matched without regard to case
    return any(month in lowered for month in _MONTHS)


def _read(match: re.Match[str]) -> Day:
    year, number, day, day_before, month_after, year_after, month_before, day_after, year_last = (
        match.groups()
    )
    if year:
        return int(year), int(number), int(day)
    month = _MONTHS.index((month_after or month_before)[:3].lower()) + 1
    return int(year_after or year_last), month, int(day_before or day_after)
