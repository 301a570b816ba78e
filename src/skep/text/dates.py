"""Dates: times named in a text, absolute ("in May 2023") and relative ("two weeks ago", "last month"). Pure.

A time is a half-open interval of seconds since the epoch, in UTC. What is relative is relative to an injected now.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from skep.runtime import lazy

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("january jan", "february feb", "march mar", "april apr", "may", "june jun"),
            *("july jul", "august aug", "september sept sep", "october oct", "november nov", "december dec"),
        ),
        start=1,
    )
    for name in names.split()
}
MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
"""The name of a month, whole or short, as a part of a pattern."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
COUNTS = {
    word: number
    for number, words in enumerate(
        ("", "a an one", "two couple", "three few", "four", "five", "six", "seven", "eight", "nine", "ten")
    )
    for word in words.split()
} | {"eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30}
ORDINALS = ("first", "second", "third", "fourth")
YEARS = range(1000, 2200)
LEAP = 8
"""Years after which every day has come round, also over a turn of centuries."""
DAY = 86_400.0

_month = "(" + "|".join(sorted(MONTHS, key=len, reverse=True)) + r")\.?"
_count = r"(\d{1,3}|" + "|".join(sorted(COUNTS, key=len, reverse=True)) + ")"
_unit = r"(day|week|weekend|fortnight|month|quarter|year)s?"
_weekday = f"({'|'.join(WEEKDAYS)})"
_year = r"(\d{4})"

_th = "(?:st|nd|rd|th)?"
_to = "(?:to|and|until|till|through)"

_iso = lazy(r"\b(\d{4})([-/])(\d{2})(?:\2(\d{2})(?=\b|t\d))?(?!\d)")
_numbers = lazy(r"(?<![\d./])(\d{1,2})([./])(\d{1,2})\2(\d{4})(?![\d./]\d|\d)")
_months = lazy(
    rf"\b(?:from|between) {_month},?(?: {_year})? {_to} {_month}(?! \d{{1,2}}\b),?(?:(?: of)? {_year})?\b"
)
_days_month = lazy(
    rf"\b(?:from|between) (?:the )?(\d{{1,2}}){_th}(?: of)?(?: {_month})? {_to} "
    rf"(?:the )?(\d{{1,2}}){_th}(?: of)? {_month}"
    rf",?(?: {_year})?\b"
)
_month_days = lazy(
    rf"\b(?:from|between) {_month} (\d{{1,2}}){_th} {_to} (?:{_month} )?(\d{{1,2}}){_th}\b(?:,? {_year}\b)?"
)
_quarter = lazy(rf"\bq([1-4])(?:(?: of)?[ -]?{_year})?\b|\b({'|'.join(ORDINALS)}) quarter of {_year}\b")
_month_of = lazy(rf"\b(?:in )?{_month},?(?: of)? (last|this|previous|next) year\b")
_decade = lazy(r"\b(\d{3})0s\b")
_half_year = lazy(r"\bhalf a year (?:ago|back|before|earlier)\b")
_day_month = lazy(rf"\b(\d{{1,2}}){_th}(?: of)? {_month},?(?: {_year})?\b")
_month_day = lazy(rf"\b{_month} (\d{{1,2}}){_th}\b(?!:)(?:,? {_year}\b)?")
_month_year = lazy(rf"\b{_month},?(?: of)? {_year}\b")
_month_alone = lazy(
    rf"\b(in|during|since|by|last|this|early|late|mid|before|after|until|till) {_month}(?=\W|$)"
)
_year_range = lazy(rf"\b(?:from|between) {_year} {_to} {_year}\b")
_year_alone = lazy(rf"\b(?:in|during|since|of|by|year|early|late|mid|around|before|after) {_year}\b")
_whole_count = rf"(?<![.,])(?<![a-z]-)\b{_count}(?: of)?"  # nor the end of "1.5" or "twenty-one"
_ago = lazy(rf"{_whole_count} {_unit} (?:ago|back|before|earlier)\b")
_past = lazy(rf"\b(?:in|over|during|within|for)? ?(?:the )?(?:last|past|previous) {_count}(?: of)? {_unit}\b")
_hours = lazy(
    rf"{_whole_count} hours? (?:ago|back|before|earlier)\b"
    rf"|\b(?:last|past|previous) (?:(?:a )?{_count}(?: of)? )?hours?\b"
)
_minutes = lazy(rf"{_whole_count} minutes? ago\b|\b(?:last|past|previous) (?:a )?{_count}(?: of)? minutes?\b")
_last = lazy(rf"\b(last|this|past|previous|next) {_unit}\b")
_last_day = lazy(rf"\b(last|this|on|past|since|after|before|until|till) {_weekday}\b")
_week_days = lazy(rf"\b(?:from|between) (?:last )?{_weekday} {_to} (?:last )?{_weekday}\b")
_simple = lazy(r"\b(today|tonight|yesterday|last night|this morning|(?:the )?day before yesterday)\b")

_TELLING = (
    *(name[:3] for name in MONTHS),
    *WEEKDAYS,
    *("ago", "back", "before", "earlier", "last", "past", "previous"),
    *("next", "this", "today", "tonight", "yesterday"),
)
"""Without any of these, and without a digit, no pattern finds anything."""


class Span(NamedTuple):
    """A stretch of time that a text names."""

    start: float
    end: float
    text: str = ""
    until: float = math.inf
    """When the same words begin to mean another time: midnight for days, the moment itself for hours."""

    def holds(self, moment: float) -> bool:
        """True if the moment lies inside."""
        return self.start <= moment < self.end


@lru_cache(maxsize=4)
def spans(text: str, now: float) -> tuple[Span, ...]:
    """The times a text names, in the order of the patterns, without those inside another one's words.

    A recall asks this of its question again and again.

    >>> [(s.text, int((s.end - s.start) // 86400)) for s in spans("what did we ship in May 2023?", 1.7e9)]
    [('may 2023', 31)]
    """
    lowered = " ".join(text.lower().split())
    if not any(map(str.isdigit, lowered)) and not _tells(lowered):
        return ()
    moment = datetime.fromtimestamp(now, UTC)
    today = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    midnight = today.timestamp() + DAY
    found: list[tuple[int, int, Span]] = []
    taken = bytearray(len(lowered))  # a mark for every letter of a time that was found
    for pattern, read, needed in _READERS:
        for each in needed:
            if each in lowered:
                break
        else:
            if needed:
                continue
        for match in pattern.finditer(lowered):
            low, high = match.span()
            if 1 in taken[low:high]:
                continue
            to_the_moment = read in _TO_THE_MOMENT
            bounds = read(match, moment if to_the_moment else today)
            if bounds is not None:
                taken[low:high] = b"\1" * (high - low)
                start, end = bounds[0].timestamp(), bounds[1].timestamp()
                span = Span(start, end, match.group().strip(), now if to_the_moment else midnight)
                found.append((low, high, span))
    return _joined(lowered, sorted(found), midnight)


def holds_until(text: str, now: float) -> float:
    """When a text begins to name other times than it does now, by the passing of time alone.

    >>> holds_until("who was here in the last hour?", 1.7e9) - 1.7e9, holds_until("office hours", 1.7e9)
    (0.0, inf)
    """
    return min((span.until for span in spans(text, now)), default=math.inf)


def _tells(lowered: str) -> bool:
    """True if a text holds a word without which no pattern finds a time; every query is looked at."""
    for telling in _TELLING:  # noqa: SIM110  a generator would be called for each
        if telling in lowered:
            return True
    return False


_open = lazy(r"\b(before|prior to|until|till|after|since)(?: the)? ?$")
_opens = lazy(r"(before|until|till|after|since)\b")
_between = lazy(r"\b(?:between|from) ?(?:the )?$")
_and = lazy(r",? (?:and|to|until|till|through) (?:the )?$")
NEAR = 20
"""Letters before a time in which a word such as "since" or "between the" stands."""
EVER = -62_135_596_800.0
"""The beginning of the year 1."""


def _joined(text: str, found: Sequence[tuple[int, int, Span]], midnight: float) -> tuple[Span, ...]:
    """The spans as the words around them say: "before" and "since" open one side, "between" and "and" join two.

    Args:
        text: What was read.
        found: Where in it each stands, first to last.
        midnight: The end of the day up to which "since" reaches.
    """
    out: list[Span] = []
    joined: set[int] = set()
    for number, (low, high, span) in enumerate(found):
        if low in joined:
            continue
        before = text[max(0, low - NEAR) : low]
        pair = found[number + 1] if number + 1 < len(found) else None
        if pair is not None and not _and.fullmatch(text[high : pair[0]]):
            pair = None
        if pair is not None and pair[2].end > span.start and _between.search(before):
            joined.add(pair[0])
            until = min(span.until, pair[2].until)
            out.append(Span(span.start, pair[2].end, text[low : pair[1]].strip(), until))
            continue
        said = _open.search(before)
        word = _opens.match(span.text) or said
        if word is not None:
            named = span.text if word is not said else text[low - len(before) + word.start() : high].strip()
            span = _opened(span._replace(text=named), word.group(1), midnight)
        if word is not None and out and (both := _bounded(out[-1], span)):
            out[-1] = both
        else:
            out.append(span)
    return tuple(out)


def _bounded(one: Span, other: Span) -> Span | None:
    """The overlap of two spans, where one has no beginning and the other begins before that ends."""
    first, last = (one, other) if other.start == EVER else (other, one)
    if last.start != EVER or first.start == EVER or not first.start < last.end <= first.end:
        return None
    return Span(first.start, last.end, f"{one.text}, {other.text}", min(one.until, other.until))


def _opened(span: Span, word: str, midnight: float) -> Span:
    """The time before, until, after or since a stretch of time."""
    if word in ("before", "prior to"):
        return span._replace(start=EVER, end=span.start)
    if word in ("until", "till"):
        return span._replace(start=EVER)
    return span._replace(start=span.end if word == "after" else span.start, end=max(midnight, span.end))


Bounds = tuple[datetime, datetime] | None


def _date(year: int, month: int, day: int) -> datetime | None:
    if year not in YEARS:  # "31.12.9999" stands for never, and no day comes after it
        return None
    try:
        return datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None


def _one_day(start: datetime | None) -> Bounds:
    return None if start is None else (start, start + timedelta(days=1))


def _whole_month(year: int, month: int) -> Bounds:
    if not 1 <= month <= 12 or year not in YEARS:
        return None
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return datetime(year, month, 1, tzinfo=UTC), following


def _whole_year(year: int, last: int | None = None) -> Bounds:
    end = year if last is None else last
    if year not in YEARS or end not in YEARS or end < year:
        return None
    return datetime(year, 1, 1, tzinfo=UTC), datetime(end + 1, 1, 1, tzinfo=UTC)


def _latest(today: datetime, month: int, day: int) -> datetime | None:
    """The last time that day came round; 29 February does not every year."""
    days = (_date(today.year - back, month, day) for back in range(LEAP + 1))
    return next((found for found in days if found is not None and found <= today), None)


def _read_iso(match: re.Match[str], _today: datetime) -> Bounds:
    year, sign, month, day = match.groups()
    if day:
        return _one_day(_date(int(year), int(month), int(day)))
    return _whole_month(int(year), int(month)) if sign == "-" else None


def _read_numbers(match: re.Match[str], _today: datetime) -> Bounds:
    """ "13.05.2023" is a day and a month; of 03/04/2023 nobody can know which is which."""
    one, sign, other, year = int(match.group(1)), match.group(2), int(match.group(3)), int(match.group(4))
    if sign == "." or one > 12 or one == other:
        return _one_day(_date(year, other, one))
    return _one_day(_date(year, one, other)) if other > 12 else None


def _read_months(match: re.Match[str], today: datetime) -> Bounds:
    """A stretch of months; a year that is not said is that of the other end."""
    one, early, other, late = match.groups()
    first, last = MONTHS[one], MONTHS[other]
    if late:
        end = int(late)
    elif early:
        end = int(early) + (last < first)
    else:
        end = today.year if last <= today.month else today.year - 1
    start = _whole_month(int(early) if early else end - (last < first), first)
    stop = _whole_month(end, last)
    return None if start is None or stop is None or stop[1] <= start[0] else (start[0], stop[1])


def _read_days_month(match: re.Match[str], today: datetime) -> Bounds:
    one, month, other, last, year = match.groups()
    return _days(today, (int(one), MONTHS[month or last]), (int(other), MONTHS[last]), year)


def _read_month_days(match: re.Match[str], today: datetime) -> Bounds:
    month, one, last, other, year = match.groups()
    return _days(today, (int(one), MONTHS[month]), (int(other), MONTHS[last or month]), year)


def _days(today: datetime, first: tuple[int, int], last: tuple[int, int], year: str | None) -> Bounds:
    """From one day and month to another one, of the same year or over its turn."""
    end = _day(today, *last, year)
    if end is None:
        return None
    start = _date(end[0].year - (last[1] < first[1]), first[1], first[0])
    return None if start is None or start >= end[1] else (start, end[1])


def _read_quarter(match: re.Match[str], today: datetime) -> Bounds:
    number, year, spelt, of = match.groups()
    which = int(number) if number else ORDINALS.index(spelt) + 1
    latest = today.year if 3 * which - 2 <= today.month else today.year - 1
    there = int(year or of or latest)
    first, last = _whole_month(there, 3 * which - 2), _whole_month(there, 3 * which)
    return None if first is None or last is None else (first[0], last[1])


def _read_month_of(match: re.Match[str], today: datetime) -> Bounds:
    shift = {"this": 0, "next": -1}.get(match.group(2), 1)
    return _whole_month(today.year - shift, MONTHS[match.group(1)])


def _read_decade(match: re.Match[str], _today: datetime) -> Bounds:
    return _whole_year(int(match.group(1)) * 10, int(match.group(1)) * 10 + 9)


def _read_half_year(_match: re.Match[str], today: datetime) -> Bounds:
    middle = _back(today, 6, "month")
    return middle - timedelta(days=HALF_SLACK), middle + timedelta(days=HALF_SLACK + 1)


def _read_day_month(match: re.Match[str], today: datetime) -> Bounds:
    day, month, year = match.groups()
    return _day(today, int(day), MONTHS[month], year)


def _read_month_day(match: re.Match[str], today: datetime) -> Bounds:
    month, day, year = match.groups()
    return _day(today, int(day), MONTHS[month], year)


def _day(today: datetime, day: int, month: int, year: str | None) -> Bounds:
    return _one_day(_date(int(year), month, day) if year else _latest(today, month, day))


def _read_month_year(match: re.Match[str], _today: datetime) -> Bounds:
    return _whole_month(int(match.group(2)), MONTHS[match.group(1)])


def _read_month(match: re.Match[str], today: datetime) -> Bounds:
    month = MONTHS[match.group(2)]
    now = month <= today.month if match.group(1) != "last" else month < today.month
    return _whole_month(today.year if now else today.year - 1, month)


def _read_year_range(match: re.Match[str], _today: datetime) -> Bounds:
    return _whole_year(int(match.group(1)), int(match.group(2)))


def _read_year(match: re.Match[str], _today: datetime) -> Bounds:
    return _whole_year(int(match.group(1)))


def _number(word: str) -> int:
    return int(word) if word.isdigit() else COUNTS[word]


def _back(today: datetime, count: int, unit: str) -> datetime:
    """The day that lies so many units before today."""
    if unit in ("month", "quarter"):
        months = today.year * 12 + today.month - 1 - count * (3 if unit == "quarter" else 1)
        return datetime(max(months // 12, 1), months % 12 + 1, min(today.day, 28), tzinfo=UTC)
    if unit == "year":
        return datetime(max(today.year - count, 1), today.month, min(today.day, 28), tzinfo=UTC)
    days = {"day": 1, "week": 7, "weekend": 7, "fortnight": 14}[unit]
    return today - timedelta(days=days * count)


_SLACK = {
    "day": 0,
    "week": 3,
    "weekend": 3,
    "fortnight": 5,
    "month": 15,
    "quarter": 45,
    "year": 183,
}
"""Days either side that a vague "n units ago" may mean."""
HALF_SLACK = 45
"""The same for "half a year ago"."""


def _read_ago(match: re.Match[str], today: datetime) -> Bounds:
    unit = match.group(2)
    middle = _back(today, _number(match.group(1)), unit)
    slack = timedelta(days=_SLACK[unit])
    return middle - slack, middle + slack + timedelta(days=1)


def _read_past(match: re.Match[str], today: datetime) -> Bounds:
    return _back(today, _number(match.group(1)), match.group(2)), today + timedelta(days=1)


def _read_hours(match: re.Match[str], now: datetime) -> Bounds:
    """Hours are counted from the moment itself."""
    return _counted_back(match, now, timedelta(hours=1), at_least=timedelta(hours=1))


def _read_minutes(match: re.Match[str], now: datetime) -> Bounds:
    return _counted_back(match, now, timedelta(minutes=1), at_least=timedelta(minutes=5))


def _counted_back(match: re.Match[str], now: datetime, unit: timedelta, *, at_least: timedelta) -> Bounds:
    """So many units back, a quarter of them to either side, or everything since then."""
    ago, past = match.groups()
    back = _number(ago or past or "one") * unit
    slack = max(at_least, back / 4)
    start = now - back
    return (start - slack, start + slack) if ago else (start, now + timedelta(hours=1))


def _read_last(match: re.Match[str], today: datetime) -> Bounds:
    which, unit = match.groups()
    if (which == "past" and unit != "weekend") or (unit == "fortnight" and which in ("last", "previous")):
        # "in the past week" goes on until today
        return _back(today, 1, unit), today + timedelta(days=1)
    shift = {"this": 0, "next": -1}.get(which, 1)
    if unit == "day":
        return _one_day(today - timedelta(days=shift))
    if unit in ("week", "weekend", "fortnight"):
        monday = today - timedelta(days=today.weekday() + 7 * shift)
        return (
            (monday, monday + timedelta(days=7))
            if unit != "weekend"
            else (
                monday + timedelta(days=4),
                monday + timedelta(days=7),
            )
        )
    if unit == "month":
        months = today.year * 12 + today.month - 1 - shift
        return _whole_month(months // 12, months % 12 + 1)
    if unit == "quarter":
        quarter = today.year * 4 + (today.month - 1) // 3 - shift
        start = datetime(quarter // 4, quarter % 4 * 3 + 1, 1, tzinfo=UTC)
        end = _whole_month(start.year, start.month + 2)
        return (start, end[1]) if end else None
    return _whole_year(today.year - shift) if unit == "year" else None


def _read_weekday(match: re.Match[str], today: datetime) -> Bounds:
    back = (today.weekday() - WEEKDAYS.index(match.group(2))) % 7
    return _one_day(
        today - timedelta(days=back or (7 if match.group(1) in ("last", "past", "since", "after") else 0))
    )


def _read_week_days(match: re.Match[str], today: datetime) -> Bounds:
    """From a day of the last seven to the next such day after it."""
    first, last = map(WEEKDAYS.index, match.groups())
    start = today - timedelta(days=(today.weekday() - first) % 7 or 7)
    return start, start + timedelta(days=(last - first) % 7 + 1)


def _read_simple(match: re.Match[str], today: datetime) -> Bounds:
    back = {"yesterday": 1, "last night": 1}.get(match.group(1), 2 if "before" in match.group(1) else 0)
    return _one_day(today - timedelta(days=back))


_RANGE = ("from", "between")
_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], Bounds], tuple[str, ...]], ...] = (
    (_iso, _read_iso, ("-", "/")),
    (_numbers, _read_numbers, (".", "/")),
    (_months, _read_months, _RANGE),
    (_days_month, _read_days_month, _RANGE),
    (_month_days, _read_month_days, _RANGE),
    (_quarter, _read_quarter, ("q",)),
    (_month_of, _read_month_of, (" year",)),
    (_decade, _read_decade, ("0s",)),
    (_half_year, _read_half_year, ("half",)),
    (_day_month, _read_day_month, ()),
    (_month_day, _read_month_day, ()),
    (_month_year, _read_month_year, ()),
    (_year_range, _read_year_range, _RANGE),
    (_hours, _read_hours, ("hour",)),
    (_minutes, _read_minutes, ("minute",)),
    (_ago, _read_ago, ()),
    (_past, _read_past, ()),
    (_week_days, _read_week_days, ("day",)),
    (_last_day, _read_weekday, ("day",)),
    (_simple, _read_simple, ()),
    (_last, _read_last, ()),
    (_month_alone, _read_month, ()),
    (_year_alone, _read_year, ()),
)
"""Patterns, how each is read, and what a text must hold some of for it to be tried: most are not even compiled."""
_TO_THE_MOMENT = (_read_hours, _read_minutes)
"""Readers that count from the moment itself; all others count from the day."""
