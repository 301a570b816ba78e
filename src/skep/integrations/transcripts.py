"""Transcripts of coding agents: the messages of a session and its turns, without tools, thoughts and private parts.

One reader for the JSON and JSON lines of Claude Code, Codex, Gemini, Copilot, Cursor and Continue. `capture` keeps new
turns of a session that runs; `importers.sessions` reads what earlier sessions left on disk. Nothing is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from skep import private_parts
from skep.runtime import lazy

if TYPE_CHECKING:
    from pathlib import Path


MAX_BYTES: Final = 32 * 1024 * 1024
"""How much of a transcript's end is read; older turns were captured when they were new."""

_MACHINE = lazy(
    r"(?:<|&lt;)(system-reminder|command-[a-z]+|local-command-[a-z]+|skep-memory|hook_context|environment_context"
    r"|user_instructions|INSTRUCTIONS|user_info|additional_data|task-notification)\b[^<>&]*(?:>|&gt;).*?"
    r"(?:(?:<|&lt;)/\1\s*(?:>|&gt;)|\Z)",
    re.S,
)
"""Blocks that a client or skep itself put into a message, as they are or escaped."""
_QUERY = lazy(r"</?user_query>")
"""Cursor's tags around what a user typed."""
_ROLES: Final = {
    "gemini": "assistant",
    "model": "assistant",
    "user.message": "user",
    "assistant.message": "assistant",
}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message that a person or the model wrote."""

    id: str
    role: str
    text: str
    at: object = None
    """When, in whatever form the client writes it."""
    folder: str = ""
    """Where the client was at work, if the message says so."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The question of a user and the final answer."""

    id: str
    asked: str
    answered: str
    at: object = None
    folder: str = ""


def without_private(text: str) -> str:
    """Text without what the user marked as private, or what the client put in by itself."""
    return _QUERY.sub("", _MACHINE.sub("", private_parts.without_private(text))).strip()


def read_turns(path: Path, last_answer: str = "") -> list[Turn]:
    """The finished turns of a transcript, oldest first; an unreadable line is passed over.

    Args:
        path: The transcript.
        last_answer: What was answered last, if it is known: a client may still be writing it down.
    """
    return turns_of(messages_of(entries_of(path)), last_answer)


def turns_of(messages: Iterable[Message], last_answer: str = "") -> list[Turn]:
    """Questions, each with the last thing that was said before the next."""
    turns: list[Turn] = []
    asked: Message | None = None
    answered = folder = ""

    def end() -> None:
        if asked is not None and answered:
            turns.append(Turn(id=asked.id, asked=asked.text, answered=answered, at=asked.at, folder=folder))

    for message in messages:
        folder = message.folder or folder
        if message.role == "user":
            end()
            asked, answered = message, ""
        elif message.text.strip():
            answered = message.text.strip()
    answered = last_answer.strip() or answered
    end()
    return turns


def messages_of(entries: Iterable[dict[str, Any]]) -> Iterator[Message]:
    """The messages among the entries of a transcript; the newest of several with one id."""
    found: dict[str, Message] = {}
    folder = ""
    for number, entry in enumerate(entries):
        inner = entry.get("payload") or entry.get("data")
        for holder in (entry, cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}):
            context = holder.get("context")
            holder = {**holder, **(cast("dict[str, Any]", context) if isinstance(context, dict) else {})}
            folder = str(holder.get("cwd") or holder.get("workspaceDirectory") or folder)
        message = _message(entry)
        if message is None:
            continue
        role, body = message
        text = _text(body.get("content") if "content" in body else body.get("parts"))
        if role == "user":
            text = without_private(text)
        if not text.strip():
            continue
        identity = next(
            (str(one) for one in (entry.get("uuid"), entry.get("id"), entry.get("timestamp")) if one),
            str(number),
        )
        at = entry.get("timestamp") or body.get("timestamp")
        found.pop(identity, None) if role == "user" else None
        found[identity] = Message(id=identity, role=role, text=text, at=at, folder=folder)
    yield from found.values()


def _message(entry: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The role of an entry and the part of it that has the content; None for what is no message."""
    kind, message = str(entry.get("type") or ""), entry.get("message")
    if isinstance(message, dict):  # Claude Code, Cursor, Continue
        if entry.get("isMeta") or entry.get("isSidechain"):
            return None
        body = cast("dict[str, Any]", message)
        role = str(kind if kind in ("user", "assistant") else body.get("role") or entry.get("role") or "")
    elif kind == "response_item" and isinstance(entry.get("payload"), dict):  # Codex
        body = cast("dict[str, Any]", entry["payload"])
        role = str(body.get("role") or "") if body.get("type") == "message" else ""
    elif kind in _ROLES and isinstance(entry.get("data"), dict):  # Copilot
        body, role = cast("dict[str, Any]", entry["data"]), kind
    else:  # Gemini
        body, role = entry, kind or str(entry.get("role") or "")
    role = _ROLES.get(role, role)
    return (role, body) if role in ("user", "assistant") else None


def entries_of(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a transcript, as its client wrote them; what cannot be read is passed over."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_BYTES))
            data = file.read()
    except OSError:
        return
    if data.lstrip()[:1] == b"{":
        try:
            whole: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            whole = None
        if isinstance(whole, dict) and ("messages" in whole or "history" in whole):
            yield from listed(cast("dict[str, Any]", whole))
            return
    for line in data.splitlines():
        try:
            entry: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield cast("dict[str, Any]", entry)


def listed(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of a session that is one JSON document (Gemini, Continue)."""
    yield {name: whole[name] for name in ("sessionId", "workspaceDirectory", "cwd") if name in whole}
    found = cast("list[Any]", whole.get("messages") or whole.get("history") or [])
    yield from (cast("dict[str, Any]", one) for one in found if isinstance(one, dict))


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
