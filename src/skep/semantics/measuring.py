"""Measures in two systems: "20 °C" and "68 °F", "10 km" and "6.2 miles" are one; "20 °C" and "50 °F" are not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from skep.patterns import lazy
from skep.semantics.lexicon import UNITS, word_set
from skep.tuples import NamedTuple

MEMO_TEXTS = 4096
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
_DIGIT = re.compile(r"\d")
"""Without one nothing is measured."""
_other_system = sorted(unit for unit, (dimension, _) in UNITS.items() if dimension in METRIC)
_measure = lazy(
    r"(?<![\w.,-])(-?\d+(?:\.\d+)?)[ \u00a0]?"
    r"(?:(?:[°º][ \u00a0]?|degrees? )(c|f|celsius|fahrenheit)|(celsius|fahrenheit)"
    rf"|({'|'.join(sorted(_other_system, key=len, reverse=True))}))(?![\w])",
    re.IGNORECASE,
)


class _Measured(NamedTuple):
    """A measure in the base unit of its dimension, and where a text names it."""

    value: float
    unit: float
    """How much one of its own unit is."""
    dimension: str
    imperial: bool
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
    return _written(a, mine, b, theirs), _written(b, theirs, a, mine)


def _written(text: str, named: Sequence[_Measured], other: str, others: Sequence[_Measured]) -> str:
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
    """Whether two measures are the same in two systems, or two ways of writing one temperature."""
    if one.dimension != other.dimension:
        return False
    if one.dimension == "celsius":
        return abs(one.value - other.value) <= (DEGREE if one.imperial != other.imperial else 0.0)
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
    if not _DIGIT.search(text):
        return ()
    return tuple(map(_read, _measure.finditer(text)))


def _read(match: re.Match[str]) -> _Measured:
    number, scale, bare, unit = match.groups()
    value = float(number)
    if unit is None:
        imperial = (scale or bare)[0] in "fF"
        return _Measured((value - 32) * 5 / 9 if imperial else value, 1.0, "celsius", imperial, *match.span())
    dimension, factor = UNITS[unit.lower()]
    return _Measured(value * factor, factor, dimension, unit.lower() in IMPERIAL, *match.span())
