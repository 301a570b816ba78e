"""The edge: arguments of callers become clean values and event bodies, or errors that name the field. Pure.

The bank's verbs, the hive, the server and the importers check with this before anything is written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import msgspec

from skep.config import FAMILIES, POLICIES, POLICY, SETTINGS, Settings
from skep.errors import (
    BadTextError,
    EmptyTextError,
    InvalidInputError,
    OutOfRangeError,
    SyncError,
    TextTooLongError,
    UnknownKeyError,
    WrongTypeError,
    did_you_mean,
)
from skep.model import ANY, BELOW, KINDS, Scope, is_pattern, namespace_path
from skep.private_parts import marked, public, refuse_deep, without_private
from skep.runtime import lazy

if TYPE_CHECKING:
    from pathlib import Path


BAD = lazy("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that no text may hold: controls, and halves of pairs."""
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def clean_metadata(field: str, value: Any, limit: int) -> dict[str, Any]:
    """A JSON object that round-trips."""
    if not isinstance(value, Mapping):
        raise WrongTypeError(f"{field} must be a mapping, got {type(value).__name__}", field=field)
    return clean_json(field, value, limit)


def _refuse_changed(field: str, value: Any) -> None:
    """Refuse what JSON would give back as something else, and characters that no text may hold."""
    if isinstance(value, str):
        bad = None if value.isprintable() else BAD.search(value)
        if bad:
            raise BadTextError(
                f"{field} holds the character U+{ord(bad.group()):04X}; remove or escape it", field=field
            )
    elif isinstance(value, Mapping):
        for key, held in cast("Mapping[Any, Any]", value).items():
            if not isinstance(key, str):
                raise WrongTypeError(
                    f"a key of {field} must be a string, got {type(key).__name__}; JSON has no others",
                    field=field,
                )
            _refuse_changed(field, key)
            _refuse_changed(field, held)
    elif isinstance(value, list | tuple):
        for held in cast("list[Any]", value):
            _refuse_changed(field, held)
    elif isinstance(value, int):
        if not _LEAST <= value <= _MOST:
            raise OutOfRangeError(
                f"{field} holds a whole number of more than 64 bits, which not every reader keeps; give it as a text",
                field=field,
            )
    elif value is not None and not isinstance(value, float):
        raise WrongTypeError(
            f"{field} holds a {type(value).__name__}, which JSON would give back as something else; use texts,"
            " numbers, lists and mappings",
            field=field,
        )


def clean_json(field: str, value: Any, limit: int) -> Any:
    """Anything that JSON can hold and give back as it was."""
    refuse_deep(field, value)
    _refuse_changed(field, value)
    try:
        encoded = msgspec.json.encode(value)
        decoded: Any = msgspec.json.decode(encoded)
    except (
        TypeError,
        ValueError,
        OverflowError,
        UnicodeEncodeError,
        msgspec.MsgspecError,
    ) as error:
        raise InvalidInputError(
            f"{field} is not plain JSON ({error}); use texts, numbers, lists and mappings", field=field
        ) from None
    if len(encoded) > limit:
        raise TextTooLongError(
            f"{field} is {len(encoded):,} bytes, over the limit of {limit:,}; keep it elsewhere and refer to it",
            field=field,
        )
    if b"\\u0000" in encoded:
        raise BadTextError(f"{field} holds a NUL character; remove it", field=field)
    if decoded != value and _has_nan(value):
        raise OutOfRangeError(f"{field} holds NaN or infinity, which JSON cannot; use null", field=field)
    return decoded


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(_has_nan(v) for v in cast("Mapping[str, Any]", value).values())
    if isinstance(value, list | tuple):
        return any(_has_nan(v) for v in cast("list[Any]", value))
    return False


Time = float | int | str | datetime | date
"""A moment: seconds since the epoch, an ISO 8601 string, a date, or a datetime (naive means UTC)."""
Check = Callable[[str, Any, Settings], Any]

_BREAK = lazy("[\t\n\r\u2028\u2029]")
_FIRST_YEAR, _LAST_YEAR = -62_135_596_800.0, 253_402_300_800.0

REVISABLE = (
    "text",
    "title",
    "domain",
    "scope",
    "tags",
    "source",
    "confidence",
    "importance",
    "polarity",
    "pinned",
    "valid_from",
    "valid_to",
    "ttl",
    "metadata",
    "key",
)
CLEARED: dict[str, Any] = {
    **dict.fromkeys(("title", "domain", "source", "valid_from", "valid_to", "ttl", "key")),
    "scope": {},
    "tags": [],
    "metadata": {},
    "polarity": 0,
    "pinned": False,
}
"""The value of a field after `revise` has cleared it with None. The others always hold something."""


def body_of(given: Mapping[str, Any], settings: Settings, *, partial: bool = False) -> dict[str, Any]:
    """Check what the caller gave and return the event body, defaults left out.

    Args:
        given: Arguments of `remember` or, with `partial`, of `revise`.
        settings: The limits.
        partial: Only check what is there; None clears a field.
    """
    body: dict[str, Any] = {}
    checks = _REVISE_CHECKS if partial else _CHECKS
    refuse_unknown(given, checks)
    for key, check in checks.items():
        if key not in given:
            continue
        value = given[key]
        if value is None and partial and key in CLEARED:
            body["expires_at" if key == "ttl" else key] = msgspec.to_builtins(CLEARED[key])
        elif value is not None or partial or key == "text":
            body[key] = check(key, value, settings)
    if not partial and "text" not in body:
        raise EmptyTextError("there is no text; pass the text to remember", field="text")
    if body.get("scope") is not None:
        body["scope"] = msgspec.to_builtins(body["scope"])
    if "valid_to" in body:
        refuse_inverted(body.get("valid_from"), body["valid_to"])
    return body


def refuse_inverted(
    start: float | None, end: float | None, first: str = "valid_from", last: str = "valid_to"
) -> None:
    """Raise for an interval that ends before it begins; `first` and `last` name its ends."""
    if start is not None and end is not None and start >= end:
        raise OutOfRangeError(
            f"{first} ({_iso(start)}) must be before {last} ({_iso(end)}); change both, or leave one out",
            field=last,
        )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def refuse_unknown(given: Iterable[str], known: Collection[str], field: str = "") -> None:
    """Raise for keys nobody knows, with the nearest known one. A mapping of what is known answers fastest.

    `field` is the argument that holds them, unless they are arguments themselves.
    """
    for key in given:
        if key not in known:
            where = f" in {field}" if field else ""
            raise UnknownKeyError(
                f"unknown key {key!r}{where}; {did_you_mean(key, known)}", field=field or str(key)
            )


def clean_text(field: str, value: object, limit: int) -> str:
    """A text that can be stored faithfully."""
    if type(value) is str and 0 < len(value) <= limit and value.isprintable() and not value.isspace():
        return value  # as nearly every text is
    if not isinstance(value, str):
        raise WrongTypeError(f"{field} must be a string, got {type(value).__name__}", field=field)
    found = None if value.isprintable() else BAD.search(value)
    if found:
        raise BadTextError(
            f"{field} holds the character U+{ord(found.group()):04X} at position {found.start()}, which cannot be"
            " stored faithfully; remove or escape it",
            field=field,
        )
    if not value.strip() or not (value.isprintable() or any(map(_visible, value))):
        raise EmptyTextError(f"{field} is empty; give it at least one visible character", field=field)
    if len(value) > limit:
        advice = "split it into several memories" if field == "text" else "shorten it"
        raise TextTooLongError(
            f"{field} has {len(value):,} characters, over the limit of {limit:,}; {advice}", field=field
        )
    return str.__str__(value)  # plain, whatever it was derived from


def _visible(character: str) -> bool:
    return character.isprintable() and not character.isspace()


def clean_line(field: str, value: object, limit: int) -> str:
    """A text of one line, such as a tag."""
    text = clean_text(field, value, limit)
    found = None if text.isprintable() else _BREAK.search(text)
    if found:
        raise BadTextError(
            f"{field} holds a tab or a line break at position {found.start()}; give it one line", field=field
        )
    return text


def public_text(field: str, value: object, limit: int) -> str:
    """A text without what is marked as private, if something is left of it."""
    if not isinstance(value, str) or ("<" not in value and "&" not in value):
        return clean_text(field, value, limit)
    kept = without_private(value)
    if value.strip() and not kept.strip():
        raise EmptyTextError(
            f"nothing is left of {field}: all of it is marked <private>, which is never stored;"
            " leave something outside the marks",
            field=field,
        )
    return clean_text(field, kept, limit)


def public_line(field: str, value: object, limit: int) -> str:
    """A text of one line without what is marked as private, if something is left of it."""
    text = public_text(field, value, limit)
    return text if text.isprintable() else clean_line(field, text, limit)


def clean_time(field: str, value: object) -> float:
    """Seconds since the epoch from a number, an ISO string or a datetime."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, int | float | str | datetime):
        raise WrongTypeError(
            f"{field} must be seconds, an ISO 8601 string, a date or a datetime, got {type(value).__name__}",
            field=field,
        )
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInputError(
                f"{field} {value!r} is not an ISO 8601 time; write it like 2026-03-01 or 2026-03-01T12:00:00+00:00",
                field=field,
            ) from None
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if not _FIRST_YEAR <= value < _LAST_YEAR:
        raise OutOfRangeError(
            f"{field} must be a time between the years 1 and 9999, got {_short(value)}", field=field
        )
    return float(value)


def clean_number(field: str, value: object, low: float, high: float) -> float:
    """A finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongTypeError(f"{field} must be a number, got {type(value).__name__}", field=field)
    if not low <= value <= high:
        bounds = f"between {low:g} and {high:g}" if high < 1e12 else f"at least {low:g}"
        raise OutOfRangeError(f"{field} must be {bounds}, got {_short(value)}", field=field)
    return float(value)


def _short(value: object) -> str:
    """A value as it may stand in a message, however long it is."""
    if isinstance(value, int) and abs(value) >= 1 << 128:
        return "a far too large number"
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def clean_flag(field: str, value: object) -> bool:
    """True or False, and nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise WrongTypeError(f"{field} must be true or false, got {type(value).__name__}", field=field)
    return value


def clean_count(field: str, value: object, low: int, high: int) -> int:
    """A whole number within bounds."""
    number = value if type(value) is int and low <= value <= high else clean_number(field, value, low, high)
    if number != int(number):
        raise OutOfRangeError(f"{field} must be a whole number, got {value!r}", field=field)
    return int(number)


def clean_id(value: object, field: str = "memory_id") -> str:
    """A string that may be the id of a memory or an event."""
    if not isinstance(value, str):
        raise WrongTypeError(
            f"{field} must be an id such as 'k3v9qx2m7a-12', got {type(value).__name__}", field=field
        )
    return clean_text(field, value, 500)


STEP_LIMIT = 2000
"""Characters of one step of a task."""


def clean_ids(field: str, value: object) -> tuple[str, ...]:
    """Ids, each once; a single one stands for itself."""
    if isinstance(value, str):
        return (clean_id(value, field),)
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        raise WrongTypeError(
            f"{field} must be an id or a list of ids, got {type(cast('object', value)).__name__}", field=field
        )
    return tuple(dict.fromkeys(clean_id(one, field) for one in listed(field, value)))


def listed(field: str, value: Any) -> tuple[Any, ...]:
    """What stands in a list, or in something that says it is one."""
    try:
        return tuple(value)
    except TypeError as error:  # an array without dimensions
        raise WrongTypeError(f"{field} must be a list ({error})", field=field) from None


def is_blank(value: object) -> bool:
    """True for None, an empty text and an empty list or array: nothing was given."""
    try:
        return value is None or (isinstance(value, Sized) and not len(value))
    except TypeError:  # an array without dimensions
        return False


def clean_lines(field: str, value: object) -> list[str]:
    """Texts, in order."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise WrongTypeError(
            f"{field} must be a list of texts, got {type(cast('object', value)).__name__}", field=field
        )
    return [clean_text(field, one, STEP_LIMIT) for one in listed(field, value)]


def clean_words(field: str, value: object, limit: int) -> str | None:
    """A text to look for, or None for an empty one. A blank one stays: it holds no word that could be found."""
    if value is None or (isinstance(value, str) and not value):
        return None
    return value if isinstance(value, str) and not value.strip() else clean_text(field, value, limit)


def clean_call(field: str, value: Any) -> Any:
    """Something to call, or None."""
    if value is not None and not callable(value):
        raise WrongTypeError(f"{field} must be a function, got {type(value).__name__}", field=field)
    return value


def clean_path(field: str, value: object) -> Path:
    """The path of a file."""
    from pathlib import Path

    return Path(clean_file(field, value))


def clean_file(field: str, value: object) -> str:
    """The name of a file."""
    if not isinstance(value, str | os.PathLike):
        raise WrongTypeError(f"{field} must be the path of a file, got {type(value).__name__}", field=field)
    try:
        named = os.fsencode(cast("str | os.PathLike[str]", value))
    except (UnicodeEncodeError, TypeError) as error:
        raise BadTextError(f"{field} cannot be the name of a file ({error})", field=field) from None
    if not named or b"\x00" in named:
        problem = "is empty" if not named else "holds a NUL character"
        raise BadTextError(f"{field} {problem}; give the path of a file", field=field)
    return os.fsdecode(named)


def clean_mapping(field: str, value: object) -> Mapping[str, Any]:
    """A mapping with strings as keys."""
    if not isinstance(value, Mapping):
        raise WrongTypeError(f"{field} must be a mapping, got {type(value).__name__}", field=field)
    found = cast("Mapping[Any, Any]", value)
    for key in found:
        clean_text(f"a key of {field}", key, 500)
    return found


def clean_scope(field: str, value: Any, limit: int, *, asked: bool = False) -> Scope:
    """A scope from a `Scope` or a mapping. Only a scope that is asked for may hold the wildcard."""
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        refuse_unknown(parts, Scope.__struct_fields__, field)
        value = Scope(**parts)
    elif isinstance(value, list | tuple):
        value = _namespace(field, cast("Sequence[Any]", value), asked=asked)
    if not isinstance(value, Scope):
        raise WrongTypeError(
            f"{field} must be a mapping with user, project or session, or a list of the parts of a namespace,"
            f" got {type(value).__name__}",
            field=field,
        )
    for part in Scope.__struct_fields__:
        if (text := getattr(value, part)) is None:
            continue
        plain = clean_line(f"{field}.{part}", text, max(limit, PATH_LIMIT) if "/" in str(text) else limit)
        value = value if plain is text else msgspec.structs.replace(value, **{part: plain})
        if marked(text) and not asked:
            raise InvalidInputError(
                f"{field}.{part} is marked <private>, which is never stored; name it in the clear, or leave it out",
                field=field,
            )
        if is_pattern(text) and not asked:
            raise InvalidInputError(
                f"{field}.{part} is {text!r}, which is only for asking; leave it out to share the memory",
                field=field,
            )
    return value


def _namespace(field: str, parts: Sequence[Any], *, asked: bool) -> Scope:
    """The scope of a namespace; a star at the end of one that is asked for stands for whatever is below."""
    for part in parts:
        if not isinstance(part, str):
            raise WrongTypeError(
                f"{field} must hold the parts of a namespace as texts, got {type(part).__name__}", field=field
            )
        if not part:
            raise EmptyTextError(f"{field} holds an empty part; leave it out", field=field)
    below = bool(parts) and parts[-1] == ANY
    if below and not asked:
        raise InvalidInputError(
            f"{field} ends with {ANY!r}, which is only for asking; leave it out", field=field
        )
    path = namespace_path(parts[:-1] if below else parts)
    return Scope(project=(f"{path}{BELOW}" if path else ANY) if below else path or None)


def clean_sources(field: str, value: Any, settings: Settings) -> tuple[str, ...]:
    """Sources that support a memory, in the order given, each once; usually ids of memories."""
    return clean_tags(field, value, settings, most=settings.evidence_limit)


def clean_tags(field: str, value: Any, settings: Settings, *, most: int | None = None) -> tuple[str, ...]:
    """Tags in the order given, each once."""
    most = settings.tags_limit if most is None else most
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, tuple | list) and (
        not isinstance(value, Iterable) or isinstance(value, Mapping)
    ):
        kind = type(cast("object", value)).__name__
        raise WrongTypeError(f"{field} must be a list of strings, got {kind}", field=field)
    given = listed(field, value)
    tags = tuple(dict.fromkeys([public_line(field, tag, settings.label_limit) for tag in given]))
    if len(tags) > most:
        raise OutOfRangeError(
            f"{field} holds {len(tags)}, over the limit of {most}; leave some out", field=field
        )
    return tags


def clean_choice(field: str, value: object, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in choices:
        return choices[choices.index(value)]
    near: list[str] = []
    if isinstance(value, str):
        import difflib

        near = difflib.get_close_matches(value, choices, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(
        f"{field} must be one of {', '.join(choices)}, got {_short(value)}{hint}", field=field
    )


PATH_LIMIT = 500
"""Characters of a path that stands for one part of a scope."""
KEY_LIMIT = 1024
"""Characters of a key that a caller chooses."""


def _key(field: str, value: Any, _settings: Settings) -> str:
    text = clean_line(field, value, KEY_LIMIT)
    if marked(text):
        raise InvalidInputError(
            f"{field} is marked <private>, which is never stored; name it in the clear, or leave it out",
            field=field,
        )
    return text


def _polarity(field: str, value: Any, _settings: Settings) -> int:
    if isinstance(value, bool) or clean_number(field, value, -1e308, 1e308) not in (-1, 0, 1):
        raise OutOfRangeError(f"{field} must be -1, 0 or 1, got {value!r}", field=field)
    return int(value)


def _ttl(field: str, value: Any, _settings: Settings) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return clean_number(field, value, 1e-3, 1e11)


def _metadata(field: str, value: Any, settings: Settings) -> dict[str, Any]:
    return public(clean_metadata(field, value, settings.metadata_limit))


_CHECKS: dict[str, Check] = {
    "text": lambda field, value, settings: public_text(field, value, settings.text_limit),
    "kind": lambda field, value, _settings: clean_choice(field, value, KINDS),
    "title": lambda field, value, settings: public_text(field, value, settings.title_limit),
    "domain": lambda field, value, settings: public_line(field, value, settings.label_limit),
    "agent": lambda field, value, settings: public_line(field, value, settings.label_limit),
    "scope": lambda field, value, settings: clean_scope(field, value, settings.label_limit),
    "tags": clean_tags,
    "source": lambda field, value, settings: public_text(field, value, settings.text_limit),
    "confidence": lambda field, value, _settings: clean_number(field, value, 0.0, 1.0),
    "importance": lambda field, value, _settings: clean_number(field, value, 0.0, 1.0),
    "polarity": _polarity,
    "pinned": lambda field, value, _settings: clean_flag(field, value),
    "level": lambda field, value, _settings: clean_count(field, value, 0, 100),
    "created_at": lambda field, value, _settings: clean_time(field, value),
    "valid_from": lambda field, value, _settings: clean_time(field, value),
    "valid_to": lambda field, value, _settings: clean_time(field, value),
    "ttl": _ttl,
    "evidence": clean_sources,
    "metadata": _metadata,
    "key": _key,
}
REMEMBER_KEYS = tuple(_CHECKS)
_REVISE_CHECKS = {key: _CHECKS[key] for key in REVISABLE}


LARGEST_EVENT = 8 << 20
"""Bytes of one event of another replica, whatever its kind."""


def refuse_oversized(name: str, kind: str, body: Mapping[str, Any], settings: Settings) -> None:
    """Raise `SyncError` for an event of another replica that holds more than `remember` would take."""
    given: Any = body.get("changes") if kind == "revise" else body if kind == "remember" else None
    fields: Any = given if hasattr(given, "get") else {}
    measured: list[tuple[str, int, str]] = [
        (field, len(cast("Sequence[object]", value)), limit)
        for field, limit in _SIZES.items()
        if isinstance(value := fields.get(field), str | list | tuple)
    ]
    tags = fields.get("tags")
    measured += [("tags", len(tag), "label_limit") for tag in tags or () if isinstance(tag, str)]
    if metadata := fields.get("metadata"):
        measured.append(("metadata", len(msgspec.json.encode(metadata)), "metadata_limit"))
    for field, size, limit in measured:
        if size > getattr(settings, limit):
            raise SyncError(
                f"{name} ({kind}) has a {field} of {size:,}; this bank takes {getattr(settings, limit):,}, and nothing"
                f" of this batch was taken. Raise `{limit}` in its Settings, or let the other side shorten it"
            )
    if len(msgspec.json.encode(body)) > LARGEST_EVENT:
        raise SyncError(
            f"{name} ({kind}) is larger than {LARGEST_EVENT >> 20} MiB; nothing of this batch was taken. Let the other"
            " side write it in parts"
        )


_SIZES = {
    "text": "text_limit",
    "title": "title_limit",
    "domain": "label_limit",
    "agent": "label_limit",
    "tags": "tags_limit",
    "evidence": "evidence_limit",
    "key": "text_limit",
}
"""The limit of each field of an event."""


def clean_policy(field: str, value: object) -> str:
    """A policy for conflicts."""
    return clean_choice(field, value, POLICIES)


def check_setting(key: str, value: object) -> None:
    """Refuse a setting that nothing would read: an unknown name beside those of skep, or a value that means nothing.

    Names that begin otherwise are an application's own.
    """
    if key.partition("/")[0] in FAMILIES and key not in SETTINGS:
        raise InvalidInputError(f"there is no setting {key!r}; {did_you_mean(key, SETTINGS)}", field="key")
    if key == POLICY and value is not None:
        clean_policy(POLICY, value)
