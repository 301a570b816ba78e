"""Messages as chat APIs have them, told as plain text. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from skep.errors import InvalidInputError, WrongTypeError

TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of parts that hold text under `text`."""
SHORT = 60


def as_text(message: object, field: str) -> str:
    """A message as one text: a string as it is, a mapping as "role: what it says".

    >>> as_text({"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url"}]}, "m")
    'user: What is this? [image_url]'

    Parts that are no text (pictures, sound, files) are named in brackets. What an assistant calls is told after what
    it says, and of what a tool answered its text, whichever way an API writes them.

    Raises:
        WrongTypeError: It is neither a string nor a mapping, or a value in it is of the wrong type.
        InvalidInputError: It has no role or no content, or a part of it has no type.
    """
    if isinstance(message, str):
        return message
    if not isinstance(message, Mapping):
        raise WrongTypeError(
            f"{field} must hold strings or mappings with role and content, got {type(message).__name__}",
            field=field,
        )
    given = cast("Mapping[str, Any]", message)
    role = given.get("role")
    if not isinstance(role, str) or not role.strip():
        raise InvalidInputError(
            f"{field}: a message needs a role, such as user or assistant, and content; got {_shown(given)}",
            field=field,
        )
    if "content" not in given and not given.get("tool_calls"):
        raise InvalidInputError(
            f"{field}: the message of {role} has no content; got {_shown(given)}", field=field
        )
    told = [_content(given.get("content"), field), *_calls(given.get("tool_calls"), field)]
    return f"{role}: {' '.join(part for part in told if part)}".rstrip()


def _content(content: object, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise WrongTypeError(
            f"{field}: content must be a string or a list of parts, got {type(content).__name__}", field=field
        )
    parts = [_part(part, field) for part in cast("Sequence[object]", content)]
    return " ".join(part for part in parts if part)


def _part(part: object, field: str) -> str:
    if isinstance(part, str):
        return part.strip()
    if not isinstance(part, Mapping):
        raise WrongTypeError(
            f"{field}: a part of content must be a string or a mapping with type, got {type(part).__name__}",
            field=field,
        )
    given = cast("Mapping[str, Any]", part)
    kind = given.get("type", "text" if "text" in given else None)
    if not isinstance(kind, str) or not kind:
        raise InvalidInputError(
            f'{field}: a part of content needs a type, such as {{"type": "text", "text": "…"}}; got {_shown(given)}',
            field=field,
        )
    if kind == "tool_result":
        return f"[{kind}] {_content(given.get('content'), field)}".rstrip()
    if kind == "tool_use":
        return _call(
            {"function": {"name": given.get("name"), "arguments": _written(given.get("input"))}}, field
        )
    if kind not in TEXT_PARTS:
        return f"[{kind}]"
    text = given.get("text")
    if not isinstance(text, str):
        raise WrongTypeError(
            f"{field}: a part of type {kind} must hold its text as a string, got {type(text).__name__}",
            field=field,
        )
    return text.strip()


def _calls(calls: object, field: str) -> list[str]:
    if not calls:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise WrongTypeError(f"{field}: tool_calls must be a list, got {type(calls).__name__}", field=field)
    return [_call(call, field) for call in cast("Sequence[object]", calls)]


def _call(call: object, field: str) -> str:
    function: object = None
    if isinstance(call, Mapping):
        function = cast("Mapping[str, object]", call).get("function")
    told: Mapping[str, object] = {}
    if isinstance(function, Mapping):
        told = cast("Mapping[str, object]", function)
    name = told.get("name")
    if not isinstance(name, str):
        raise InvalidInputError(
            f"{field}: a tool call needs a function with a name; got {_shown(cast('object', call))}",
            field=field,
        )
    return f"[calls {name}({told.get('arguments', '')})]"


def _written(value: object) -> str:
    """What a tool is called with, as JSON; nothing where nothing is given."""
    return json.dumps(value, default=str, ensure_ascii=False) if value else ""


def _shown(value: object) -> str:
    """A value in few characters."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"
