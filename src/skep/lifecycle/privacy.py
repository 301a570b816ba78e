"""Secrets and personal data, taken out before a text is stored. Pure.

Patterns with a checksum or a fixed form are trusted; those without one are narrow on purpose, so that ordinary
technical text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from skep.validation import without_private


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was taken out: what kind, and where it stood in the original."""

    kind: str
    start: int
    end: int


class Redacted(msgspec.Struct, frozen=True, kw_only=True):
    """A text without its secrets, and what they were."""

    text: str
    found: tuple[Redaction, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that were found, each once."""
        return tuple(dict.fromkeys(redaction.kind for redaction in self.found))


def luhn(number: str) -> bool:
    """Whether the digits pass the check that card numbers pass.

    >>> luhn("4111 1111 1111 1111"), luhn("4111 1111 1111 1112")
    (True, False)
    """
    digits = [int(c) for c in number if c.isdigit()]
    doubled = [d if i % 2 == 0 else (d * 2 if d < 5 else d * 2 - 9) for i, d in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and sum(doubled) % 10 == 0


def mod97(iban: str) -> bool:
    """Whether an IBAN passes its check.

    >>> mod97("GB82 WEST 1234 5698 7654 32"), mod97("GB82 WEST 1234 5698 7654 33")
    (True, False)
    """
    plain = re.sub(r"\s", "", iban).upper()
    turned = plain[4:] + plain[:4]
    return 15 <= len(plain) <= 34 and int("".join(str(int(c, 36)) for c in turned)) % 97 == 1


def _phone(number: str) -> bool:
    digits = sum(c.isdigit() for c in number)
    return 8 <= digits <= 15 and not re.fullmatch(r"\d{4}-\d{2}-\d{2}.*", number)


def _address(number: str) -> bool:
    return all(int(part) <= 255 for part in number.split(".")) and not number.startswith(("127.", "0."))


Check = Callable[[str], bool]

PATTERNS: dict[str, tuple[re.Pattern[str], Check | None]] = {
    "private-key": (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        None,
    ),
    "token": (re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"), None),
    "api-key": (
        re.compile(
            r"\b(?:sk-(?:ant-|proj-|live-|test-)?[\w-]{20,}|(?:sk|pk|rk)_(?:live|test)_\w{16,}|gh[pousr]_\w{36,}"
            r"|github_pat_\w{50,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}"
            r"|AIza[\w-]{35}|ya29\.[\w-]{20,}|npm_\w{36}|pypi-[\w-]{50,}|hf_\w{30,}|SG\.[\w-]{20,}\.[\w-]{20,}"
            r"|dop_v1_\w{60,}|shpat_\w{32})"
        ),
        None,
    ),
    "bearer": (re.compile(r"(?i)(?<=\bbearer )[\w.~+/-]{16,}=*"), None),
    "password": (
        re.compile(
            r"""(?ix)(?: (?<=\w://) [^\s:@/]{1,64} : [^\s@/]{3,} (?=@)
            | (?: (?<=password=) | (?<=password:\ ) | (?<=passwd=) | (?<=secret=) | (?<=api_key=) | (?<=apikey=)
              | (?<=token=) | (?<=pwd=) ) ["']? (?!\[) [^\s"'&;,]{6,} )"""
        ),
        None,
    ),
    "card": (re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])"), luhn),
    "iban": (re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"), mod97),
    "email": (re.compile(r"\b[\w.%+-]{1,64}@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}\b"), None),
    "phone": (
        re.compile(
            r"(?<![\w.@#/-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){1,4}"
            r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4})(?![\w-])"
        ),
        _phone,
    ),
    "ip-address": (re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)"), _address),
}
"""By kind: what it looks like, and what it must also pass. Earlier ones win where they overlap."""

DEFAULT: tuple[str, ...] = tuple(kind for kind in PATTERNS if kind != "ip-address")
"""Addresses of machines are left in unless asked for."""


def redact(text: str, kinds: Iterable[str] = DEFAULT) -> Redacted:
    """A text with secrets and personal data replaced by `[kind]`, and `<private>` parts gone.

    >>> redact("write to ana@example.org").text
    'write to [email]'
    """
    kept = without_private(text)
    found: list[Redaction] = []
    taken: list[tuple[int, int]] = []
    for kind in kinds:
        pattern, check = PATTERNS[kind]
        for match in pattern.finditer(kept):
            start, end = match.span()
            if check is not None and not check(match.group()):
                continue
            if any(start < other_end and other_start < end for other_start, other_end in taken):
                continue
            taken.append((start, end))
            found.append(Redaction(kind=kind, start=start, end=end))
    found.sort(key=lambda redaction: redaction.start)
    parts: list[str] = []
    at = 0
    for redaction in found:
        parts += [kept[at : redaction.start], f"[{redaction.kind}]"]
        at = redaction.end
    private = (Redaction(kind="private", start=0, end=0),) if kept != text else ()
    return Redacted(text="".join([*parts, kept[at:]]), found=(*private, *found))
