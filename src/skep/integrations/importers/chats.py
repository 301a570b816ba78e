"""Importers of conversations (ChatGPT's and Claude's exports) and of other skep banks.

A conversation gives one episode per question and its answer; a bank gives its current memories (`skep sync` merges
histories). Archives are unpacked within bounds.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from skep.errors import InvalidInputError, SkepError
from skep.integrations.importers.item import Item, decoded, head, item, load_json, moment
from skep.storage.schema import APPLICATION_ID
from skep.storage.sqlite_file import is_sqlite

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.model import Memory


QUESTION_CHARS = 4000
ANSWER_CHARS = 4000
INNER = "conversations.json"
UNPACKED_BYTES: Final = 1 << 30
"""The largest list of conversations that is unpacked, and so held in memory."""
UNPACKED_PLAIN: Final = 64 << 20
"""Bytes up to which it does not matter how densely they are packed."""
UNPACKED_RATIO: Final = 100
"""JSON of conversations packs to a fifth or a tenth."""

Turn = tuple[str, str, float | None, str]
"""Role, text, time and id of one message."""


def is_chatgpt(path: Path) -> bool:
    """A list of conversations with a `mapping` of messages."""
    start = _start(path)
    return '"mapping"' in start and start.lstrip().startswith("[")


def is_claude(path: Path) -> bool:
    """A list of conversations with `chat_messages`."""
    start = _start(path)
    return '"chat_messages"' in start and start.lstrip().startswith("[")


def read_chatgpt(path: Path) -> Iterator[Item]:
    """The branch of each conversation that was current when it was exported."""
    for number, conversation in enumerate(_conversations(path)):
        turns = _chatgpt_turns(conversation)
        key = str(conversation.get("id") or conversation.get("conversation_id") or number)
        yield from episodes(turns, origin="chatgpt", key=key, title=conversation.get("title"))


def read_claude(path: Path) -> Iterator[Item]:
    """Every conversation in order."""
    for number, conversation in enumerate(_conversations(path)):
        turns = [_claude_turn(message) for message in _dicts(conversation.get("chat_messages"))]
        key = str(conversation.get("uuid") or number)
        yield from episodes(turns, origin="claude", key=key, title=conversation.get("name"))


def episodes(turns: list[Turn], *, origin: str, key: str, title: object) -> Iterator[Item]:
    """A question and everything answered to it until the next."""
    asked: Turn | None = None
    answers: list[str] = []
    for turn in [*turns, ("user", "", None, "")]:
        if turn[0] != "user":
            answers.append(turn[1])
            continue
        if asked is not None and asked[1].strip():
            answer = "\n\n".join(text for text in answers if text.strip())[:ANSWER_CHARS]
            text = f"User: {asked[1].strip()[:QUESTION_CHARS]}" + (
                f"\n\nAssistant: {answer}" if answer else ""
            )
            made = item(
                text,
                origin=origin,
                key=f"{key}/{asked[3]}",
                kind="episode",
                title=str(title) if title else None,
                created_at=asked[2],
            )
            if made is not None:
                yield made
        asked, answers = turn, []


def _chatgpt_turns(conversation: dict[str, Any]) -> list[Turn]:
    mapping = cast("dict[str, Any]", conversation.get("mapping") or {})
    node: Any = conversation.get("current_node") or next(reversed(mapping), None)
    turns: list[Turn] = []
    seen: set[str] = set()
    while isinstance(node, str) and node in mapping and node not in seen:
        seen.add(node)
        entry = cast("dict[str, Any]", mapping[node] or {})
        message = cast("dict[str, Any]", entry.get("message") or {})
        role = cast("dict[str, Any]", message.get("author") or {}).get("role")
        content = cast("dict[str, Any]", message.get("content") or {})
        hidden = cast("dict[str, Any]", message.get("metadata") or {}).get(
            "is_visually_hidden_from_conversation"
        )
        parts = cast("list[Any]", content.get("parts") or [])
        text = "\n".join(part for part in parts if isinstance(part, str))
        if role in ("user", "assistant") and text.strip() and not hidden:
            turns.append((role, text, moment(message.get("create_time")), node))
        node = entry.get("parent")
    return turns[::-1]


def _claude_turn(message: dict[str, Any]) -> Turn:
    blocks = [str(one.get("text")) for one in _dicts(message.get("content")) if one.get("type") == "text"]
    text = str(message.get("text") or "") or "\n".join(blocks)
    role = "user" if message.get("sender") == "human" else "assistant"
    return role, text, moment(message.get("created_at")), str(message.get("uuid") or "")


def _dicts(value: object) -> list[dict[str, Any]]:
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in found if isinstance(one, dict)]


def _conversations(path: Path) -> list[dict[str, Any]]:
    inner = path / INNER if path.is_dir() else path
    if not zipfile.is_zipfile(inner):
        return _dicts(load_json(inner))
    packed = _packed(inner)
    if packed is None:
        raise InvalidInputError(f"{path} holds no {INNER}")
    try:
        return _dicts(decoded(packed))
    except ValueError as error:
        raise InvalidInputError(f"{path}: {INNER} is not valid JSON: {error}") from error


def _start(path: Path) -> str:
    inner = path / INNER if path.is_dir() else path
    if inner.is_file() and zipfile.is_zipfile(inner):
        try:
            return (_packed(inner, 65_536) or b"").decode("utf-8", "replace")
        except InvalidInputError:  # whoever reads the file says what is wrong with it
            return ""
    return head(inner) if inner.suffix == ".json" else ""


def _packed(path: Path, first: int | None = None) -> bytes | None:
    """The conversations in an archive, or their first bytes; None where there are none. Bombs are not unpacked.

    Raises:
        InvalidInputError: The archive is damaged or encrypted, or would fill the memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = next((one for one in archive.infolist() if Path(one.filename).name == INNER), None)
            if found is None:
                return None
            size, packed = found.file_size, found.compress_size
            if size > UNPACKED_BYTES or size > max(UNPACKED_PLAIN, packed * UNPACKED_RATIO):
                raise InvalidInputError(
                    f"{path}: {INNER} would unpack from {packed:,} to {size:,} bytes, which no export does; if you "
                    f"trust it, unpack it yourself and import {INNER}"
                )
            with archive.open(found) as file:
                return file.read(size if first is None else first)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError) as error:
        raise InvalidInputError(f"{path} cannot be unpacked: {error}; export it again") from error


ORIGIN: Final = "skep"
EXPORT: Final = '"skep-bank"'
ID_AT: Final = 68
"""Where in its file SQLite keeps the number that says whose it is."""


def is_export(path: Path) -> bool:
    """An export of a bank, by its first line."""
    return EXPORT in head(path, 4096).partition("\n")[0]


def is_bank(path: Path) -> bool:
    """A file that says it is ours: a bank, or an export of one."""
    if not path.is_file():
        return False
    if not is_sqlite(path):
        return is_export(path)
    with path.open("rb") as file:
        file.seek(ID_AT)
        return file.read(4) == APPLICATION_ID.to_bytes(4, "big")


def read_bank(path: Path) -> Iterator[Item]:
    """Every current memory.

    Raises:
        InvalidInputError: It is neither a bank nor an export, or is damaged.
    """
    from skep.bank.bank import Bank

    try:
        if is_sqlite(path):
            with Bank.open(path, create=False, read_only=True) as bank:
                yield from _current(bank)
            return
        with Bank.open(":memory:") as bank:
            bank.import_(path)
            yield from _current(bank)
    except SkepError as error:
        raise InvalidInputError(f"{path} cannot be read as a bank: {error}") from error


def _current(bank: Bank) -> Iterator[Item]:
    cursor: str | None = None
    while True:
        page = bank.find(limit=1000, cursor=cursor)
        yield from (made for memory in page if (made := _item(memory)) is not None)
        cursor = page.cursor
        if cursor is None:
            return


def _item(memory: Memory) -> Item | None:
    scope: dict[str, Any] = {
        part: value for part in ("user", "project", "session") if (value := getattr(memory.scope, part))
    }
    return item(
        memory.text,
        origin=ORIGIN,
        key=memory.id,
        tags=memory.tags,
        kind=memory.kind,
        title=memory.title,
        domain=memory.domain,
        agent=memory.agent,
        scope=scope or None,
        confidence=memory.confidence,
        importance=memory.importance,
        created_at=memory.created_at,
        valid_from=memory.valid_from,
        valid_to=memory.valid_to,
        metadata=dict(memory.metadata) or None,
    )
