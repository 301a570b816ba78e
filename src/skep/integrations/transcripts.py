"""What was said in a coding session, read from the client's own transcript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 32 * 1024 * 1024
"""How much of a transcript's end is read; older turns were captured when they were new."""

_MACHINE = re.compile(
    r"<(system-reminder|command-[a-z]+|local-command-[a-z]+|skep-memory|environment_context|user_instructions)\b[^>]*>"
    r".*?(?:</\1>|\Z)",
    re.S,
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked and what was finally answered."""

    id: str
    asked: str
    answered: str


def without_private(text: str) -> str:
    """Text without what the user marked as private, or what the client put in by itself."""
    if "private>" in text.lower():
        from skep.lifecycle.privacy import without_private as cut

        text = cut(text)
    return _MACHINE.sub("", text).strip()


def read_turns(path: Path, last_answer: str = "") -> list[Turn]:
    """The finished turns of a transcript, oldest first; an unreadable line is passed over.

    Args:
        path: The transcript.
        last_answer: What was answered last, if it is known: a client may still be writing it down.
    """
    turns: list[Turn] = []
    asked: tuple[str, str] | None = None
    answered = ""
    for identity, role, text in _messages(path):
        if role == "user":
            if asked is not None and answered:
                turns.append(Turn(id=asked[0], asked=asked[1], answered=answered))
            asked, answered = (identity, text), ""
        elif text.strip():
            answered = text.strip()
    answered = last_answer.strip() or answered
    if asked is not None and answered:
        turns.append(Turn(id=asked[0], asked=asked[1], answered=answered))
    return turns


def _messages(path: Path) -> Iterator[tuple[str, str, str]]:
    """Id, role and text of every message a person or the model wrote."""
    for number, entry in enumerate(_entries(path)):
        message, role = entry, str(entry.get("type") or "")
        if role in ("user", "assistant") and isinstance(entry.get("message"), dict):
            if entry.get("isMeta") or entry.get("isSidechain"):
                continue
            message = cast("dict[str, Any]", entry["message"])
        elif role == "response_item" and isinstance(entry.get("payload"), dict):
            message = cast("dict[str, Any]", entry["payload"])
            if message.get("type") != "message":
                continue
            role = str(message.get("role") or "")
        role = {"gemini": "assistant", "model": "assistant"}.get(role, role)
        if role not in ("user", "assistant"):
            continue
        text = _text(message.get("content") if "content" in message else message.get("parts"))
        if role == "user":
            text = without_private(text)
        if text.strip():
            identity = entry.get("uuid") or entry.get("id") or entry.get("timestamp") or number
            yield str(identity), role, text


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_BYTES))
            data = file.read()
    except OSError:
        return
    if data.lstrip()[:1] == b"{" and b'"messages"' in data[:4096]:
        try:
            whole: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            whole = None
        if isinstance(whole, dict):
            found = cast("list[Any]", cast("dict[str, Any]", whole).get("messages") or [])
            yield from (cast("dict[str, Any]", one) for one in found if isinstance(one, dict))
            return
    for line in data.splitlines():
        try:
            entry: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield cast("dict[str, Any]", entry)


def _text(content: object) -> str:
    """The words of a message; tool calls, their results and thoughts are not words to anybody."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts: list[str] = []
    for block in cast("list[Any]", content):
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            entry = cast("dict[str, Any]", block)
            if entry.get("type", "text") in ("text", "input_text", "output_text") and isinstance(
                entry.get("text"), str
            ):
                parts.append(entry["text"])
    return "\n".join(parts)
