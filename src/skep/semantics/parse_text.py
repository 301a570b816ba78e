"""One sentence taken apart: words, stems, the scope of negations, numbers in base units, whether it asks.

`evidence` calls this. It is a function of the text, remembered for the last few thousand texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress, islice
from typing import NamedTuple

from skep.runtime import lazy
from skep.semantics import lexicon as lx

MAX_TOKENS = 72
"""Longer texts are compared by their first words only, which bounds the cost of a pair."""

SHORT = 512
"""Characters up to which all words of a text are found at once."""


def _digit(match: re.Match[str]) -> str:
    """A digit of another script as the one it stands for."""
    return str(int(match.group()))


_CLEAN: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (lazy(r"-LRB-|-LSB-"), "("),
    (lazy(r"-RRB-|-RSB-"), ")"),
    (lazy(r"[\u2018\u2019`]"), "'"),
    (lazy(r"[\u201c\u201d]|''"), '"'),
    (lazy(r"\s+(n't|'s|'re|'ve|'ll|'d|'m)\b", re.IGNORECASE), r"\1"),
    (lazy(r"(?![0-9])\d"), _digit),
)
_PLAIN = frozenset("'`")
"""What else than brackets needs cleaning in a plain text."""
_token = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"  # a date
    r"|[0-9]+(?:[.:][0-9]+)+(?![a-z])"  # a version, a time, a decimal
    r"|[0-9]+(?:,[0-9]{3})+"
    r"|[0-9]+"
    r"|[^\W\d_][^\W_]*(?:'[a-z]+)?(?:[._]\w+)*"  # a word, or a dotted or underscored name
    r"|[$€£%#.;:?!()]"
)
_TOKEN = lazy(_token, re.IGNORECASE)
_PLAIN_TOKEN = lazy(_token.replace("[a-z]", "[A-Za-z]").replace(r"[^\W\d_]", "[A-Za-z]"), re.ASCII)
"""The same where a text is ASCII, in a third of the time."""
_SHORT = {"can't": "can", "won't": "will", "shan't": "shall", "ain't": "is"}
_ENDINGS = {"m": "am", "re": "are", "ve": "have", "ll": "will", "d": "would"}
_DIGITS = frozenset("0123456789")
_CURRENCY = frozenset("$€£")
_PARTS = lazy(r"[.:\-]")
FIGURES, PART = 10, 3
"""Digits that a value has as a word, and those of them that a part of a version or a date takes, after the first."""
_MARK = lazy(r"[^\w\s.,;:!?'\"()\-\u2018\u2019\u201c\u201d\u2013\u2014`$€£%]|_|(?<![\w)])[-\u2013](?=\d)")
_ENDS = frozenset((".", "?", "!", ":", ""))
"""Marks, or no word at all, after which a capital says nothing."""
_VAGUE = frozenset(("one", "once", "half", "pair", "couple", "second"))


_EMPTY = lx.STOP | lx.NEGATORS
_DENIALS = lx.NEGATORS | lx.CANCELLERS
_NUMERIC = _CURRENCY.union(lx.NUMBER_WORDS)
_JOINED = {("not", "ever"): "never", ("no", "one"): "nobody"}
"""Two words that say what one does."""
_SECOND = frozenset(second for _, second in _JOINED)
MEMO_WORDS = 1 << 16
TELLS, COUNTS, DENIES, JOINS, NUMBERS = 1, 2, 4, 8, 16
"""What a word may do: carry meaning, begin a number, deny, make one word with the one before it, be a number."""


def numbered(word: str) -> bool:
    """True if a word is the number of something; that of a version replaces another."""
    return word.removesuffix("id").isdigit()


Known = tuple[int, str, str]
"""What a word does, as a sum of the above; its stem; and the word."""


class _Words(dict[str, Known]):
    """A cache of the properties of words; it is emptied when it is full."""

    def __missing__(self, word: str) -> Known:
        does = (
            TELLS * (word[0].isalnum() and word not in _EMPTY)
            + COUNTS * (word[0] in _DIGITS or word in _NUMERIC)
            + DENIES * (word in _DENIALS)
            + JOINS * (word in _SECOND)
            + NUMBERS * numbered(word)
        )
        if len(self) >= MEMO_WORDS:
            self.clear()
        known = self[word] = int(does), lx.stem(word), word
        return known


_words = _Words()
_COUNTING, _DENYING, _JOINING, _NUMBERING = (
    frozenset(does for does in range(32) if does & bit) for bit in (COUNTS, DENIES, JOINS, NUMBERS)
)


class Quantity(NamedTuple):
    """A number in base units of its dimension."""

    value: float
    dimension: str
    figure: str = ""
    """The value as a word, which is another one for every other value."""


class Text(NamedTuple):
    """A text, taken apart once and compared many times."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    content: tuple[int, ...]
    """Positions of the words that carry meaning."""
    told: tuple[str, ...]
    """Their stems."""
    bag: frozenset[str]
    """The words, each once."""
    stem_bag: frozenset[str]
    negated: tuple[bool, ...]
    capital: tuple[bool, ...]
    negations: int
    cancels: int
    quantities: dict[int, Quantity]
    question: bool
    marks: str
    """The characters that are neither letters, digits nor plain punctuation, sorted: "C++" is not "C", nor "-5" "5"."""
    whole: bool
    """Whether all of the text was read."""
    numbered: bool
    """Whether some word is the number of something."""


def _split(text: str) -> tuple[list[str], list[bool]]:
    if not text.isascii() or not _PLAIN.isdisjoint(text) or "RB-" in text or "SB-" in text:
        for pattern, with_ in _CLEAN:
            text = pattern.sub(with_, text)
    plain = text.isascii()
    token = _PLAIN_TOKEN if plain else _TOKEN
    if len(text) <= SHORT:
        found: list[str] = token.findall(text)[:MAX_TOKENS]
    else:
        found = [match.group() for match in islice(token.finditer(text), MAX_TOKENS)]
    lower = "\n".join(found).lower().split("\n") if plain and found else [raw.lower() for raw in found]
    if "'" not in text and "cannot" not in lower:
        return lower, [
            raw != low and raw[0].isupper() and (before not in _ENDS or raw[1:].lower() != raw[1:])
            for raw, low, before in zip(found, lower, (".", *lower), strict=False)
        ]
    words: list[str] = []
    capital: list[bool] = []
    start = True
    for raw in found:
        low = raw.lower()
        upper = raw[0].isupper() and (not start or raw[1:].lower() != raw[1:])
        tail = ""
        if "'" in low:
            if low.endswith("n't"):
                low, tail = _SHORT.get(low, low[:-3]), "not"
            else:
                low, _, ending = low.partition("'")
                tail = _ENDINGS.get(ending, "")
        if low == "cannot":
            low, tail = "can", "not"
        if low:  # a lone "n't" is nothing but "not"
            words.append(low)
            capital.append(upper)
        if tail:
            words.append(tail)
            capital.append(False)
        start = low in _ENDS
        if len(words) >= MAX_TOKENS:
            break
    return words, capital


def _number(word: str) -> float | None:
    if word[0] in _DIGITS:
        if len(word) > 24:
            return None
        plain = word.replace(",", "")
        try:
            return float(plain)
        except ValueError:
            parts = _PARTS.split(plain)
            return float(sum(int(p) * 1000.0**-i for i, p in enumerate(parts)))
    return lx.NUMBER_WORDS.get(word)


def _quantity(words: Sequence[str], start: int) -> tuple[Quantity, int] | None:
    """The quantity that begins at `start`, and where it ends."""
    value = _number(words[start])
    if value is None:
        return None
    first, before, end = words[start], words[start - 1] if start else "", start + 1
    if first in lx.NUMBER_WORDS and value >= 20 and end < len(words):
        digit = lx.NUMBER_WORDS.get(words[end], 0.0)
        if 1 <= digit <= 9:
            value, end = value + digit, end + 1
    if first == "half" and (halved := _half(words, end)) is not None:
        return halved
    while end < len(words) and words[end] in lx.MULTIPLIERS:
        value, end = value * lx.MULTIPLIERS[words[end]], end + 1
    after = words[end] if end < len(words) else ""
    if "-" in first or first.count(".") > 1:
        return Quantity(value, "date" if "-" in first else "version"), end
    if after in lx.UNITS:
        dimension, factor = lx.UNITS[after]
        return Quantity(value * factor, dimension), end + 1
    if before in _CURRENCY:
        return Quantity(value, lx.UNITS[before][0]), end
    if before == "#":
        return Quantity(value, "id"), end
    if before in lx.MONTHS or after in lx.MONTHS:
        return Quantity(value, "day"), end
    if ":" in first or after in ("am", "pm"):
        return Quantity(value + 12 * (after == "pm" and value < 12), "time"), end + (after in ("am", "pm"))
    if len(first) == 4 and first.isdecimal() and 1000 <= value <= 2100:
        return Quantity(value, "year"), end
    return None if first in _VAGUE else (Quantity(value, ""), end)


def _figure(value: float, dimension: str, written: str) -> str:
    """A value as a word: in ten digits, which hide that it was converted, or as written where these say too little.

    Ten digits do not tell two addresses or two long numbers apart; and without a unit 3.10 may be a version, not 3.1.
    """
    figure = f"{value:.10g}"
    plain = written.replace(",", "")
    if plain[0] not in _DIGITS or value != _number(plain):
        return figure
    first, *others = _PARTS.split(plain)
    if len(others) > 1:
        room = all(len(part) <= PART for part in others) and len(first) + PART * len(others) <= FIGURES
        return figure if room else plain
    zeros = bool(others) and not dimension and int(first) > 0 and others[0].rstrip("0") not in ("", others[0])
    return plain if zeros or len(first) + sum(map(len, others)) > FIGURES else figure


def _half(words: Sequence[str], at: int) -> tuple[Quantity, int] | None:
    """The number that "half" begins, and the place of its end: "half an hour", "half past nine"."""
    if at + 1 >= len(words):
        return None
    if words[at] in ("a", "an") and words[at + 1] in lx.UNITS:
        dimension, factor = lx.UNITS[words[at + 1]]
        return Quantity(factor / 2, dimension), at + 2
    hour = _number(words[at + 1]) if words[at] == "past" else None
    return None if hour is None else (Quantity(hour + 0.03, "time"), at + 2)  # as "9:30" is read


def _fold_numbers(words: list[str], capital: list[bool]) -> tuple[list[str], list[bool], dict[int, Quantity]]:
    """Replace every number with its unit by one canonical word, so that "16 GB" and "16384 MB" are one."""
    out: list[str] = []
    upper: list[bool] = []
    found: dict[int, Quantity] = {}
    i = 0
    while i < len(words):
        word = words[i]
        hit = _quantity(words, i) if word[0] in _DIGITS or word in lx.NUMBER_WORDS else None
        if hit is None:
            if word not in _CURRENCY:
                out.append(word)
                upper.append(capital[i])
            i += 1
            continue
        (value, dimension, _), i = hit
        quantity = found[len(out)] = Quantity(value, dimension, _figure(value, dimension, word))
        out.append(quantity.figure + dimension)
        upper.append(False)
    return out, upper, found


def _join(words: list[str], capital: list[bool]) -> tuple[list[str], list[bool]]:
    """One word where two say the same."""
    out: list[str] = []
    upper: list[bool] = []
    for word, large in zip(words, capital, strict=True):
        one = _JOINED.get((out[-1], word)) if out else None
        if one is None:
            out.append(word)
            upper.append(large)
        else:
            out[-1] = one
    return out, upper


SCOPE = 14
"""How many words a negation may reach."""


def _scopes(words: Sequence[str]) -> tuple[list[bool], int, int]:
    negated = [False] * len(words)
    negations = cancels = 0
    state, left = False, 0
    for i, word in enumerate(words):
        if word in lx.SENTENCE_ENDS or (word in lx.CLAUSE_ENDS and left < SCOPE - 2):
            state, left = False, 0
        if word in lx.NEGATORS:
            negations += 1
            state, left = not (state and left), SCOPE
            continue
        if word in lx.CANCELLERS:
            cancels += 1
            if i + 1 < len(words):
                state, left = not (state and left), SCOPE
            continue
        if left:
            negated[i] = state
            left -= 1
    return negated, negations, cancels


def _is_question(text: str, words: Sequence[str]) -> bool:
    """True if the text as a whole asks; a statement with a question at its end does not."""
    if len(words) < 2:
        return text.rstrip().endswith("?")
    if not text.rstrip().endswith("?"):
        asks = words[1] in lx.QUESTION_WORDS if words[0] in ("when", "where") else words[0] in lx.WH_WORDS
        return asks and len(words) > 3 and "." not in words[:-1]
    return words[0] in lx.QUESTION_WORDS or not lx.WH_WORDS.isdisjoint(words[:3]) or len(words) < 5


@lru_cache(maxsize=4096)
def analyse(text: str) -> Text:
    """Take a text apart: words, stems, what is negated, numbers in base units."""
    words, capital = _split(text)
    quantities: dict[int, Quantity] = {}
    known = [*map(_words.__getitem__, words)]
    met = {does for does, _, _ in known}
    if not (met.isdisjoint(_COUNTING) and met.isdisjoint(_JOINING)):
        words, capital, quantities = _fold_numbers(*_join(words, capital))
        known = [*map(_words.__getitem__, words)]
        met = {does for does, _, _ in known}
    negated, negations, cancels = ([False] * len(words), 0, 0) if met.isdisjoint(_DENYING) else _scopes(words)
    stems = tuple([stem for _, stem, _ in known])
    tells = [does & TELLS for does, _, _ in known]
    return Text(
        tuple(words),
        stems,
        tuple(compress(range(len(words)), tells)),
        tuple(compress(stems, tells)),
        frozenset(words),
        frozenset(stems),
        tuple(negated),
        tuple(capital),
        negations,
        cancels,
        quantities,
        _is_question(text, words),
        "".join(sorted(_MARK.findall(text))),
        len(words) < MAX_TOKENS,
        not met.isdisjoint(_NUMBERING),
    )
