"""Is a text worth sharing? Four plain measures, no model.

0.3 length + 0.3 specificity + 0.2 structure + 0.2 concept, each in [0, 1]. A memory of 0.3 or more may be
promoted. The measures only keep out what carries nothing ("ok", "it works now", "asdf asdf"): judging truth
is the business of confidence, trust and contradiction.
"""

from __future__ import annotations

import re

import msgspec

from skep.words import STOP, terms

WEIGHTS = {"length": 0.3, "specificity": 0.3, "structure": 0.2, "concept": 0.2}
PROMOTE_AT = 0.3
FULL_LENGTH = 6
"""Terms of meaning from which a text is long enough."""
TOO_LONG = 200
"""Terms from which a text is rather a document than a memory."""

_VAGUE_WORDS = """
anything everything good it nice ok okay okey fine sure yes no nope something somehow stuff thing things
this that these those maybe perhaps whatever etc lol hmm now thanks thank please hello hi great cool
"""
_VAGUE = frozenset(_VAGUE_WORDS.split())
_word = re.compile(r"\w[\w'’./:@#-]*")
_specific = re.compile(r"\d|[_/@#]|\w\.\w|[a-z][A-Z]|^[A-Z]{2,}$")
_repeat = re.compile(r"(.)\1{4,}")


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How much a text says, by measure and in total."""

    length: float
    specificity: float
    structure: float
    concept: float

    @property
    def score(self) -> float:
        """The weighted sum, in [0, 1]."""
        return sum(weight * getattr(self, name) for name, weight in WEIGHTS.items())

    def why(self) -> str:
        """In one readable line."""
        parts = ", ".join(f"{name} {getattr(self, name):.2f}" for name in WEIGHTS)
        return f"quality {self.score:.2f} = {parts}"


def assess(text: str, *, title: str | None = None, domain: str | None = None) -> Quality:
    """Measure a text.

    >>> assess("ok").score < PROMOTE_AT <= assess("The staging database listens on port 5433.").score
    True
    """
    words = _word.findall(text)
    content = [term for term in terms(text) if term not in STOP and term not in _VAGUE]
    return Quality(
        length=_length(len(content)),
        specificity=_specificity(words),
        structure=_structure(text, words) * (1.0 if len(content) >= 2 else 0.2),
        concept=_concept(set(content), named=bool(title or domain)),
    )


def _length(count: int) -> float:
    if count > TOO_LONG:
        return max(0.3, TOO_LONG / count)
    return min(1.0, max(0, count - 1) / (FULL_LENGTH - 1))


def _specificity(words: list[str]) -> float:
    """Names, numbers and identifiers count; words that could mean anything count against."""
    if not words:
        return 0.0
    named = sum(1 for i, word in enumerate(words) if _specific.search(word) or (i > 0 and word[:1].isupper()))
    content = [word for word in words if word.lower() not in STOP and word.lower() not in _VAGUE]
    return min(1.0, named / 2 * 0.7 + len(content) / len(words) * 0.6) if content else 0.0


def _structure(text: str, words: list[str]) -> float:
    """A statement: mostly letters, no runs of one character, brackets closed, not a question."""
    if not words:
        return 0.0
    visible = [c for c in text if not c.isspace()]
    lettered = sum(c.isalnum() for c in visible) / len(visible)
    distinct = len({word.lower() for word in words}) / len(words)
    checks = (
        lettered >= 0.6,
        not _repeat.search(text),
        all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}")),
        not text.rstrip().endswith("?"),
        distinct >= 0.5,
    )
    return sum(checks) / len(checks)


def _concept(content: set[str], *, named: bool) -> float:
    """Whether it is about something: distinct terms that carry meaning; a title or a domain helps."""
    found = sum(len(term) > 1 for term in content)
    return min(1.0, (0.5 if named else 0.0) + found / 5) if found else 0.0
