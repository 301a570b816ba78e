"""What JSON can hold and give back as it was. A part of the edge, see `validation`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from skep.errors import BadTextError, InvalidInputError, OutOfRangeError, TextTooLongError, WrongTypeError
from skep.patterns import lazy
from skep.private import refuse_deep

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
