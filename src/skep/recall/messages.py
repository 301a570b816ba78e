"""Messages as chat interfaces write them, `{"role": ..., "content": ...}`, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from skep.errors import InvalidInputError, WrongTypeError

INSTRUCTING = ("system", "developer")
"""Roles whose messages are instructions."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What was said, oldest first, and the instructions that stood among it."""

    said: list[str]
    instructions: list[str]


def conversation(field: str, messages: Iterable[str | Mapping[str, Any]]) -> Conversation:
    """Messages as text: a string as it is, a mapping as `role: content`; instructions apart.

    >>> conversation("messages", ["a", {"role": "user", "content": [{"type": "text", "text": "b"}]}]).said
    ['a', 'user: b']
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):  # pyright: ignore
        raise WrongTypeError(
            f"{field} must be a list of strings or of mappings with role and content, got"
            f" {type(cast('object', messages)).__name__}",
            field=field,
        )
    said: list[str] = []
    instructions: list[str] = []
    for number, message in enumerate(messages):
        if isinstance(message, str):
            said.append(message)
            continue
        if not isinstance(message, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(
                f"{field} must hold strings or mappings with role and content, got {type(message).__name__}",
                field=field,
            )
        role = message.get("role")
        if not isinstance(role, str) or not role.strip():
            raise InvalidInputError(
                f"{field}[{number}] has no role; write it like {{'role': 'user', 'content': '...'}}",
                field=field,
            )
        text = content_text(f"{field}[{number}].content", message.get("content"), message.get("tool_calls"))
        if role in INSTRUCTING:
            instructions.append(text)
        else:
            said.append(f"{role}: {text}")
    return Conversation(said=said, instructions=instructions)


def content_text(field: str, content: object, calls: object = None) -> str:
    """What a message says: a string, or a list of parts. What is not text is named in brackets.

    >>> content_text("content", ["a", {"type": "image_url", "image_url": {}}])
    'a\\n[image_url]'
    """
    parts: list[str] = []
    if isinstance(content, str):
        parts.append(content)
    elif isinstance(content, list | tuple):
        parts += [_part(field, part) for part in cast("list[object]", content)]
    elif content is not None:
        raise WrongTypeError(
            f"{field} must be a string or a list of parts, got {type(content).__name__}", field=field
        )
    if isinstance(calls, list | tuple):
        parts += [_call(call) for call in cast("list[object]", calls)]
    return "\n".join(part for part in parts if part)


def _part(field: str, part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise WrongTypeError(f"{field} must hold strings or mappings, got {type(part).__name__}", field=field)
    given = cast("Mapping[str, Any]", part)
    for name in ("text", "refusal"):
        if isinstance(given.get(name), str):
            return given[name]
    if given.get("type") == "tool_result":
        return content_text(field, given.get("content"))
    if given.get("type") == "tool_use":
        return _call({"function": {"name": given.get("name"), "arguments": given.get("input")}})
    return f"[{given.get('type') or 'part'}]"


def _call(call: object) -> str:
    """A call of a tool, with what it was called with."""
    outer: Mapping[str, Any] = cast("Mapping[str, Any]", call) if isinstance(call, Mapping) else {}
    inner: object = outer.get("function", outer)
    given: Mapping[str, Any] = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {}
    arguments: Any = given.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments, enc_hook=str).decode()
    return f"[{given.get('name') or 'tool'}({arguments or ''})]"
