"""Days in two notations: "5 May 2024", "May 5th, 2024" and "2024-05-05" are one.

Measures in two notations: "20 °C" and "68 °F", "10 km" and "6.2 miles", "1 TB" and "1000 GB" are one; "20 °C" and
"50 °F" are not.

Units of one system ("90 minutes", "1.5 hours") are compared by value where texts are read. This is about the rest:
metric and imperial, bytes counted in thousands (a text is read as if they were counted in powers of two), a time of
two parts ("1 hour 30 minutes"), and a share as a word ("half", "50 %").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isclose, isfinite
from typing import NamedTuple

from skep.runtime import lazy
from skep.semantics import lexicon as lx
from skep.semantics.lexicon import UNITS, word_set
from skep.text.dates import MONTH

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


IMPERIAL = word_set(
    "inch inches ft foot feet yd yard yards mi mile miles oz ounce ounces lb lbs pound pounds gallon gallons"
)
METRIC = ("metre", "gram", "litre")
"""The dimensions that are measured in two systems."""
DEGREE = 0.6
"""Degrees Celsius by which a temperature may differ after it was converted and rounded."""
SHARE = 0.01
"""The same for other measures, as a share of the value."""
WHOLE = 10
"""From so many of a unit on, a measure may have been rounded to a whole number."""
THOUSANDS = {"kb": 1, "kilobyte": 1, "mb": 2, "megabyte": 2, "gb": 3, "gigabyte": 3, "tb": 4, "terabyte": 4}
"""Units of bytes by the power of a thousand that they may stand for."""
SHARES = {"half": 50.0, "quarter": 25.0, "third": 100 / 3, "fifth": 20.0, "tenth": 10.0}
"""Words for a share of a whole, in per cent."""
COUNTS = {"two": 2, "three": 3, "four": 4}
_units = [unit for unit, (dimension, _) in UNITS.items() if dimension in (*METRIC, "bytes", "second")]
_FOLLOWING = frozenset(_units) | word_set("° º degree degrees celsius fahrenheit % percent per")
"""What follows a number that is a measure, up to the first sign that is no letter."""
_following = lazy(r"\d[ \u00a0]?([°º%]|[a-z]+)")
_time = "days?|hours?|hrs?|h|minutes?|mins?|seconds?|secs?|m|s"
_measure = lazy(
    rf"\b(?P<first>\d+)[ \u00a0]?(?P<large>{_time}),?(?: and)? ?(?P<second>\d+)[ \u00a0]?(?P<small>{_time})\b"
    r"|(?<![\w.,-])(?P<number>-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)[ \u00a0]?"
    r"(?:(?:[°º][ \u00a0]?|degrees? )(?P<scale>c|f|celsius|fahrenheit)|(?P<bare>celsius|fahrenheit)"
    rf"|(?P<percent>%|percent\b|per cent\b)|(?P<unit>{'|'.join(sorted(_units, key=len, reverse=True))}))(?![\w])"
    r"|(?<![\w-])(?:(?:a|one) )?(?P<half>half)(?! (?:past|an?|hour|day|year|time)\b|[\w-])"
    rf"|(?<![\w-])(?P<count>a|one|{'|'.join(COUNTS)}) (?P<part>quarter|third|fifth|tenth)s?(?= of\b)",
    re.IGNORECASE,
)


class _Measured(NamedTuple):
    """A measure in the base unit of its dimension, and where a text names it."""

    value: float
    unit: float
    """How much one of its own unit is."""
    dimension: str
    imperial: bool
    """Whether it is given in the notation that gives way to the other: imperial, of two parts, or a word."""
    start: int
    end: int


def in_one_unit(a: str, b: str) -> tuple[str, str]:
    """Two texts in which a measure that both name, each in its own system, is written alike.

    Where one gives temperatures in Celsius and the other in Fahrenheit, all of them are in Celsius.

    >>> in_one_unit("Keep it at 20 °C", "Keep it at 68 degrees Fahrenheit")
    ('Keep it at 20 °C', 'Keep it at 20 °C')
    >>> in_one_unit("Keep it at 20 °C", "Keep it at 50 °F")
    ('Keep it at 20 °C', 'Keep it at 10 °C')
    """
    mine = _measures(a)
    theirs = _measures(b) if mine else ()
    if not theirs:
        return a, b
    return _written_quantity(a, mine, b, theirs), _written_quantity(b, theirs, a, mine)


def _written_quantity(text: str, named: Sequence[_Measured], other: str, others: Sequence[_Measured]) -> str:
    """A text with its measures as the other one has them, as far as they agree."""
    scales = {measure.imperial for measure in (*named, *others) if measure.dimension == "celsius"}
    for measure in reversed(named):
        same = [each for each in others if _agree(measure, each)]
        if same and any(_agree(measure, each) for each in named if each is not measure):
            continue  # it gives the measure in both systems itself
        if same:
            said = text[measure.start : measure.end]
            spelt = [(each.imperial, other[each.start : each.end]) for each in same]
            new = min((measure.imperial, said), *spelt)[1]
        elif measure.dimension == "celsius" and measure.imperial and len(scales) == 2:
            new = f"{round(measure.value, 1):.10g} °C"
        else:
            continue
        text = text[: measure.start] + new + text[measure.end :]
    return text


def _agree(one: _Measured, other: _Measured) -> bool:
    """Whether two measures are the same in two notations, or two ways of writing one temperature."""
    if one.dimension != other.dimension:
        return False
    if one.dimension == "celsius":
        return abs(one.value - other.value) <= (DEGREE if one.imperial != other.imperial else 0.0)
    if one.dimension == "bytes":
        return one.unit != other.unit and isclose(one.value, other.value)
    if one.dimension in ("second", "share"):
        return one.imperial != other.imperial and abs(one.value - other.value) < 0.5
    if one.imperial == other.imperial:
        return False
    most = max(abs(one.value), abs(other.value))
    return abs(one.value - other.value) <= SHARE * most or _rounded(one, other) or _rounded(other, one)


def _rounded(one: _Measured, other: _Measured) -> bool:
    """Whether one is the other in another unit, as a whole number."""
    number = one.value / one.unit
    return number >= WHOLE and round(other.value / one.unit) == round(number, 6)


@lru_cache(maxsize=MEMO_TEXTS)
def _measures(text: str) -> tuple[_Measured, ...]:
    """The measures that a text names, in the order in which they stand."""
    if not _may_name_one_quantity(text):
        return ()
    found = (read for match in _measure.finditer(text) if (read := _read_quantity(match)) is not None)
    return tuple(read for read in found if isfinite(read.value))


def _may_name_one_quantity(text: str) -> bool:
    """Whether there is a word for a share, or what may be a unit after a number: without them nothing is measured."""
    plain = _plain(text)
    return any(share in plain for share in SHARES) or not _FOLLOWING.isdisjoint(_following.findall(plain))


def _read_quantity(match: re.Match[str]) -> _Measured | None:
    """A measure that was found; None for a unit that no other notation is known of."""
    part = match.groupdict()
    span = match.span()
    if part["half"] or part["part"]:
        count = COUNTS.get((part["count"] or "one").lower(), 1)
        return _Measured(count * SHARES[(part["half"] or part["part"]).lower()], 1.0, "share", True, *span)
    if part["first"]:
        large, small = _seconds(part["large"]), _seconds(part["small"])
        value = float(part["first"]) * large + float(part["second"]) * small
        return _Measured(value, small, "second", True, *span) if large > small else None
    value = float(part["number"].replace(",", ""))
    if part["percent"]:
        return _Measured(value, 1.0, "share", False, *span)
    unit = _plain(part["unit"] or "")
    if not part["unit"]:
        imperial = (part["scale"] or part["bare"])[0] in "fF"
        return _Measured((value - 32) * 5 / 9 if imperial else value, 1.0, "celsius", imperial, *span)
    dimension, factor = UNITS[unit]
    if dimension == "bytes":
        power = THOUSANDS.get(unit.removesuffix("s"))
        return (
            None
            if power is None
            else _Measured(value * 1000.0**power, 1000.0**power, dimension, False, *span)
        )
    return _Measured(value * factor, factor, dimension, unit in IMPERIAL, *span)


def _seconds(unit: str) -> float:
    """How long one of a unit is; after a larger one, "m" stands for minutes."""
    return 60.0 if unit.lower() == "m" else UNITS[_plain(unit)][1]


def _plain(text: str) -> str:
    """A text in small letters. Without regard to case "ı", "İ" and "ſ" match as well, and stay what they are."""
    text = text.lower()
    return text if text.isascii() else text.replace("i\u0307", "i").replace("ı", "i").replace("ſ", "s")
