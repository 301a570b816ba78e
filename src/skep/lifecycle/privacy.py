"""Secrets and personal data, taken out before a text is stored. Pure; see `secrets` for what they look like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from skep.errors import InvalidInputError, WrongTypeError
from skep.lifecycle.secrets import RULES
from skep.private import DEEP, marked, refuse_deep, without_private
from skep.validation import clean_choice

KINDS: Final = tuple(dict.fromkeys(rule.kind for rule in RULES))
"""Everything that can be looked for."""
SECRETS: Final = ("private-key", "token", "api-key", "bearer", "password", "secret")
"""What lets somebody in."""
PERSONAL: Final = ("card", "iban", "email", "ssn", "phone")
"""What belongs to a person."""
DEFAULT: Final = (*SECRETS, *PERSONAL)
"""Addresses of machines are left in unless asked for."""
GROUPS: Final[dict[str, tuple[str, ...]]] = {"secrets": SECRETS, "personal": PERSONAL, "all": KINDS}
"""Names for several kinds at once."""
SETTING: Final = "redact/kinds"
"""The setting of a bank that says what is taken out where nobody says otherwise."""
REDACTED: Final = ("text", "title", "source", "domain", "tags", "metadata")
"""The fields of a memory that are looked at. Names by which it is found again (agent, scope, evidence) are not."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was taken out: what kind, and where it stood in the text without its private parts."""

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


def redact(text: str, kinds: Iterable[str] = DEFAULT) -> Redacted:
    """A text with secrets and personal data replaced by `[kind]`, and `<private>` parts gone.

    >>> redact("write to ana@example.org").text
    'write to [email]'
    """
    kept = without_private(text)
    wanted = frozenset(kinds)
    taken = bytearray(len(kept)) if wanted else bytearray()
    found: list[Redaction] = []
    for kind, pattern, look in RULES:
        if kind not in wanted:
            continue
        for match in pattern.finditer(kept):
            spot = look(match) if look else match.span("it" if "it" in pattern.groupindex else 0)
            if spot is None or 1 in taken[spot[0] : spot[1]]:
                continue
            taken[spot[0] : spot[1]] = b"\1" * (spot[1] - spot[0])
            found.append(Redaction(kind=kind, start=spot[0], end=spot[1]))
    found.sort(key=lambda redaction: redaction.start)
    parts: list[str] = []
    at = 0
    for redaction in found:
        parts += [kept[at : redaction.start], f"[{redaction.kind}]"]
        at = redaction.end
    private = (Redaction(kind="private", start=0, end=0),) if kept != text else ()
    return Redacted(text="".join([*parts, kept[at:]]), found=(*private, *found))


def clean_kinds(field: str, value: object, default: Iterable[str] = DEFAULT) -> tuple[str, ...]:
    """The kinds that somebody asked for: yes, no, one, or several, groups among them.

    >>> clean_kinds("redact", ["email", "secrets"])[:2], clean_kinds("redact", False)
    (('email', 'private-key'), ())
    """
    if isinstance(value, bool):
        return tuple(default) if value else ()
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable) or isinstance(names, Mapping | bytes):
        raise WrongTypeError(
            f"{field} must be true, false, or kinds such as 'email' or 'secrets', got {type(value).__name__}",
            field=field,
        )
    known = (*GROUPS, *KINDS)
    asked = [clean_choice(field, name, known) for name in cast("Iterable[object]", names)]
    return tuple(dict.fromkeys(kind for name in asked for kind in GROUPS.get(name, (name,))))


def kinds_of(setting: object) -> tuple[str, ...]:
    """The kinds that a bank's setting names; the usual ones where it says nothing that can be understood."""
    if setting is None:
        return DEFAULT
    try:
        return clean_kinds(SETTING, setting)
    except InvalidInputError:
        return DEFAULT


def redact_fields(given: Mapping[str, Any], kinds: Iterable[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """What was given to `remember`, without secrets in any field that is text, and how many of each kind there were.

    Private parts are counted here and taken out by the checks that follow, which say so where nothing is left.
    """
    counts: Counter[str] = Counter()
    wanted = tuple(kinds)
    fields = dict(given)
    refuse_deep("what was given", fields, DEEP + 1)
    if marked(fields):
        counts["private"] += 1
    for name in REDACTED if wanted else ():
        if name in fields:
            fields[name] = _redacted(fields[name], wanted, counts)
    return fields, dict(counts)


def _redacted(value: Any, kinds: tuple[str, ...], counts: Counter[str]) -> Any:
    """A value with secrets replaced wherever it holds text; private marks stay for the checks to see."""
    if isinstance(value, str):
        done = redact(value, kinds)
        counts.update(one.kind for one in done.found if one.kind != "private")
        hidden = any(one.kind == "private" for one in done.found)
        return value if hidden and not done.text.strip() else done.text
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {_redacted(key, kinds, counts): _under(key, one, kinds, counts) for key, one in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(one, kinds, counts) for one in cast("list[Any]", value)]
    return value


def _under(key: Any, value: Any, kinds: tuple[str, ...], counts: Counter[str]) -> Any:
    """A value under a key, which may say that it is a password."""
    if isinstance(key, str) and isinstance(value, str) and "\n" not in value:
        lead = f'"{key}": "'
        for one in redact(f'{lead}{value}"', [kind for kind in kinds if kind in SECRETS]).found:
            if one.kind != "private" and (one.start, one.end) == (len(lead), len(lead) + len(value)):
                counts[one.kind] += 1
                return f"[{one.kind}]"
    return _redacted(value, kinds, counts)
