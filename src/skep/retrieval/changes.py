"""Changed values: "the budget was raised to $75", "the new deadline of April 5", "has now reached 165".

Read from patterns of plain English, and only for questions for a number or a time: a verb of change, up to a few words,
"to", "at" or "of", and the value; or "new", "updated" and the like before it; or "now" and "reached" right before it.
What a value changed by ("raised by 30 %") is not what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from skep.patterns import MONTH, lazy
from skep.words import STOP, terms

BEFORE, AFTER = 60, 40
"""Characters around a changed value, within its sentence, that say of what it is one."""
MEMO_TEXTS = 2048

_VERBS = """
    adjust bring bump chang climb correct cut decreas delay doubl drop extend expand fall grow halv improv increas
    jump lower mov postpon push rais reduc reschedul revis ris set shift shorten shrink switch trim tripl updat upgrad
"""
_IRREGULAR = "brought|fallen|fell|gone|grew|grown|halved|risen|rose|set|shrunk|went|cut"
_verb = "|".join(
    f"{verb}+(?:ed|ing)" if verb[-1] in "pmt" else f"{verb}(?:ed|ing)" for verb in _VERBS.split()
)
_NUMBER = (
    r"(?:[$€£]? ?\d[\d.,]*(?:%|\b)|"
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred)\b)"
)
_MONTH = MONTH + r"\.?"
_TIME = (
    rf"(?:{_MONTH} \d{{1,2}}\b|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|\b\d{{4}}(?:-\d\d-\d\d)?\b|"
    r"\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|"
    r"\b(?:tomorrow|tonight|next (?:week|month|year))\b)"
)


def _pattern(value: str) -> re.Pattern[str]:
    about = r"(?:about |around |over |just |the |nearly |almost |only )?"
    return lazy(
        rf"\b(?:{_verb}|{_IRREGULAR})\b(?: [\w'’$%-]+){{0,8}}? (?:to|at|of) {about}{value}"
        rf"|\b(?:new|newly|updated|revised|latest)(?: [\w'’-]+){{0,4}}? {about}{value}"
        rf"|\b(?:now|reached|reaching|hit)(?: (?:reached|hit|at|is|stands at|have|has|up to|down to))? {about}{value}"
    )


_end = lazy(r"[.!?]\s|\n")
_changed = {"number": _pattern(_NUMBER), "time": _pattern(_TIME)}


@lru_cache(maxsize=MEMO_TEXTS)
def around_changes(kind: str, text: str) -> frozenset[str]:
    """The words around every value of a kind (number, time) that a text says has changed.

    >>> sorted(around_changes("number", "The snack budget was raised to $75."))
    ['$75', '75', 'budget', 'rais', 'snack']
    >>> sorted(around_changes("number", "The snack budget of $75 was raised by half."))
    []
    """
    if kind not in _changed:
        return frozenset()
    lowered = text.lower()
    held: set[str] = set()
    for match in _changed[kind].finditer(lowered):
        start, end = match.span()
        before = _end.split(lowered[max(0, start - BEFORE) : start])[-1]
        after = _end.split(lowered[end : end + AFTER])[0]
        held.update(terms(before + lowered[start:end] + after))
    return frozenset(held) - STOP


def of_a_namesake(names: Sequence[str], text: str) -> bool:
    """Whether a text holds a part of a name, and not the whole: "Project Atlas" where Project Echo is asked for.

    >>> of_a_namesake(["Project Echo"], "Project Atlas costs more"), of_a_namesake(["Project Echo"], "It costs more")
    (True, False)
    """
    held = frozenset(terms(text))
    for name in names:
        parts = [term for term in terms(name) if term not in STOP]
        if 0 < sum(part in held for part in parts) < len(parts):
            return True
    return False
