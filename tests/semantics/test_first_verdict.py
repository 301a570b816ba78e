"""What the first comparison of a process reads, compiles and leaves alone."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from skep.semantics import same_value
from skep.text.dates import MONTH

_PARTS = """
20 3 1,000 2.5 2024 2024-05-05 degrees degree C F ° º celsius Fahrenheit % percent half a one two quarter thirds of
tenth km miles h m S hour and 30 May june JUL Sept 5th the ( ) - . , ſ İ ı fıfth x KB gigs 1999year q3 3day
2024.05.03date friday update day
"""
PARTS = _PARTS.split()
PERIOD = re.compile(rf"(?:19|20)\d\dyear|q[1-4]|{MONTH}")
DAY = re.compile(rf"[\d.]+(?:date|day|year)|{MONTH}|(?:mon|tues|wednes|thurs|fri|satur|sun)day")


@given(st.lists(st.sampled_from([*PARTS, " ", "\u00a0"]), max_size=9), st.sampled_from(["", " "]))
def test_no_measure_and_no_day_is_passed_over(parts: list[str], between: str) -> None:
    text = between.join(parts)

    assert same_value._may_name_one_quantity(text) or not same_value._measure.search(text)
    assert same_value._may_name_one(text) or not same_value._date.search(text)


@given(st.sampled_from(PARTS) | st.from_regex(DAY, fullmatch=True) | st.from_regex(PERIOD, fullmatch=True))
def test_periods_and_days_are_those_of_the_patterns(word: str) -> None:
    assert same_value.period(word) == bool(PERIOD.fullmatch(word))
    assert same_value.of_a_day(word) == bool(DAY.fullmatch(word))
