"""Sessions that coding agents left on disk, as items: turns, rules that a user stated, commands that failed.

Called by `skep import sessions`, which `skep install` offers. A turn has the same source as the one that a hook keeps
(`claude-code:SESSION/MESSAGE`), so nothing is stored twice. Files are only read; secrets and private parts stay out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from skep.errors import InvalidInputError, NotFoundError
from skep.integrations.capture import episode_fields, episodes
from skep.integrations.clients import Place, app_data
from skep.integrations.hooks import clip
from skep.integrations.importers.item import Item, item, moment
from skep.integrations.transcripts import Message, Turn, entries_of, messages_of, turns_of
from skep.lifecycle.extract_facts import CONVENTION, EXTRACTED
from skep.semantics.evidence import worth_keeping
from skep.semantics.reported_speech import as_statement
from skep.storage.sqlite_file import ForeignFile, is_sqlite
from skep.text import redaction

LESSON: Final = 0.6
"""The confidence of what failed once and worked in another form."""
SOON: Final = 6
"""Actions within which another form of a failed command has to work."""
COMMAND_CHARS: Final = 160
ID_CHARS: Final = 36
"""Characters of the id at the end of a Codex file's name."""


class Session(NamedTuple):
    """One session of a client."""

    client: str
    id: str
    messages: list[Message]
    actions: list[Action]


class Action(NamedTuple):
    """A command and how it ended."""

    id: str
    command: str
    error: str
    """What it said when it failed; empty where it worked."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one client."""

    client: str
    sessions: int
    turns: int
    rules: int
    lessons: int


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found: the items to import, and figures."""

    items: tuple[Item, ...]
    found: tuple[Found, ...]
    redacted: dict[str, int]


Reader = Callable[[Path], Iterator[Session]]
Progress = Callable[[int, int], None]


def stores(place: Place) -> dict[str, list[tuple[Path, str, Reader]]]:
    """Per client: folders, the pattern of its files there, and what reads one."""
    home, environ = place.home, place.environ
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(environ.get("CODEX_HOME") or home / ".codex")
    share = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    cursor, code = app_data(place) / "Cursor" / "User", app_data(place) / "Code" / "User"
    return {
        "claude-code": [(claude / "projects", "*/*.jsonl", _reader("claude-code"))],
        "codex": [
            (codex / folder, "**/rollout-*.jsonl", _reader("codex"))
            for folder in ("sessions", "archived_sessions")
        ],
        "cursor": [
            (cursor / "globalStorage", "state.vscdb", _cursor),
            (home / ".cursor" / "projects", "*/agent-transcripts/**/*.jsonl", _reader("cursor")),
        ],
        "gemini": [(home / ".gemini" / "tmp", "*/chats/session-*.json*", _reader("gemini"))],
        "opencode": [(share, "opencode*.db", _opencode)],
        "copilot": [
            (home / ".copilot" / "session-state", "*/events.jsonl", _reader("copilot")),
            (code / "workspaceStorage", "*/GitHub.copilot-chat/transcripts/*.jsonl", _reader("copilot")),
        ],
        "continue": [(home / ".continue" / "sessions", "*.json", _reader("continue"))],
    }


def files(place: Place, client: str | None = None) -> list[tuple[str, Path, Reader]]:
    """The files of sessions on this machine, oldest first.

    Raises:
        NotFoundError: There is no such client.
    """
    known = stores(place)
    if client is not None and client not in known:
        raise NotFoundError(f"sessions of {client!r} are not known; there are {', '.join(known)}")
    found = [
        (name, path, reader)
        for name, folders in known.items()
        if client in (None, name)
        for folder, pattern, reader in folders
        if folder.is_dir()
        for path in folder.glob(pattern)
        if path.is_file() and path.name != "sessions.json"
    ]
    return sorted(found, key=lambda one: (one[1].stat().st_mtime, str(one[1])))


def read_sessions(
    given: Sequence[tuple[str, Path, Reader]], kinds: Sequence[str], progress: Progress | None = None
) -> Read:
    """The items of some files.

    Args:
        given: What `files` found.
        kinds: The kinds of secrets and personal data that are taken out.
        progress: Called with how many files were read, and of how many.
    """
    items: dict[str, Item] = {}
    said: set[str] = set()
    counts: dict[str, Counter[str]] = {}
    redacted: Counter[str] = Counter()
    for number, (client, path, reader) in enumerate(given):
        for session in reader(path):
            counted = counts.setdefault(client, Counter())
            before = len(items)
            for made, kind in _items(session, tuple(kinds), redacted):
                if made.key in items or (kind != "turns" and made.text.casefold() in said):
                    continue
                said.add(made.text.casefold())
                items[made.key] = made
                counted[kind] += 1
            counted["sessions"] += len(items) > before
        if progress is not None:
            progress(number + 1, len(given))
    return Read(
        items=tuple(items.values()),
        found=tuple(
            Found(client=client, **{name: each[name] for name in ("sessions", "turns", "rules", "lessons")})
            for client, each in counts.items()
        ),
        redacted=dict(redacted),
    )


def _items(session: Session, kinds: tuple[str, ...], redacted: Counter[str]) -> Iterator[tuple[Item, str]]:
    """Each item with what it counts as; a rule leads to the turn that it was stated in."""
    for turn in episodes(turns_of(session.messages), None):
        fields, taken = episode_fields(session.client, session.id, turn, turn.folder, kinds)
        redacted += taken
        at = moment(turn.at)
        if at is not None:
            fields["created_at"] = at
        key = f"{session.client}:{session.id}/{turn.id}"
        yield Item(fields=fields, key=key), "turns"
        for place, text in enumerate(_rules(turn)):
            made = _derived(
                session, f"{turn.id}#rule-{place}", text, kinds, EXTRACTED, at, (("derived_from", key),)
            )
            if made is not None:
                yield made, "rules"
    for action, text in _lessons(session.actions):
        made = _derived(session, f"{action.id}#lesson", text, kinds, LESSON, None, ())
        if made is not None:
            yield made, "lessons"


def _derived(
    session: Session,
    key: str,
    text: str,
    kinds: tuple[str, ...],
    confidence: float,
    at: float | None,
    links: tuple[tuple[str, str], ...],
) -> Item | None:
    made = item(
        redaction.redact(text, kinds).text,
        origin=session.client,
        key=f"{session.id}/{key}",
        links=links,
        agent=session.client,
        confidence=confidence,
        created_at=at,
    )
    return None if made is None else msgspec.structs.replace(made, key=f"{session.client}:{made.key}")


def _rules(turn: Turn) -> list[str]:
    """The conventions that a user states in a turn, by the rule of maintenance."""
    return [as_statement(text) for text in worth_keeping(f"user: {turn.asked}") if CONVENTION.search(text)]


def _lessons(actions: Sequence[Action]) -> Iterator[tuple[Action, str]]:
    """Commands that failed, each with the form of it that worked soon after: more than half of its words are there."""
    for place, failed in enumerate(actions):
        if not failed.error or not failed.command or "\n" in failed.command:
            continue
        words = failed.command.split()
        for later in actions[place + 1 : place + 1 + SOON]:
            if later.command == failed.command:
                break
            if later.error or "\n" in later.command:
                continue
            if 2 * len(set(words) & set(later.command.split())) > len(set(words)):
                yield (
                    failed,
                    f"`{clip(failed.command, COMMAND_CHARS)}` failed: {clip(_last_line(failed.error), COMMAND_CHARS)}."
                    f" `{clip(later.command, COMMAND_CHARS)}` worked instead.",
                )
                break


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "ailed" in line or "fatal" in line]
    return (telling or lines or [""])[-1].rstrip(".")


def _reader(client: str) -> Reader:
    """What reads a file that holds one session as JSON or JSON lines."""

    def read(path: Path) -> Iterator[Session]:
        entries = list(entries_of(path))
        named = next((str(one["sessionId"]) for one in entries[:3] if one.get("sessionId")), path.stem)
        if client == "codex":
            named = path.stem[-ID_CHARS:]
        elif path.name == "events.jsonl":
            named = path.parent.name
        yield Session(client, named, list(messages_of(entries)), _actions(entries))

    return read


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _actions(entries: Iterable[dict[str, Any]]) -> list[Action]:
    """The commands of a session of Claude Code or Codex, with how each ended."""
    asked: dict[str, str] = {}
    ended: list[Action] = []
    for entry in entries:
        content = _dict(entry.get("message")).get("content")
        blocks = [_dict(one) for one in cast("list[Any]", content)] if isinstance(content, list) else []
        for block in (*blocks, _dict(entry.get("payload"))):
            name = str(block.get("tool_use_id") or block.get("call_id") or block.get("id") or "")
            if block.get("type") == "tool_use":
                asked[name] = str(_dict(block.get("input")).get("command") or "")
            elif block.get("type") == "function_call":
                asked[name] = _command(str(block.get("arguments") or ""))
            elif block.get("type") == "tool_result" and asked.get(name):
                error = _said(block.get("content")) or "failed" if block.get("is_error") else ""
                ended.append(Action(name, asked[name], error))
            elif block.get("type") == "function_call_output" and asked.get(name):
                ended.append(Action(name, asked[name], _codex_error(block.get("output"))))
    return ended


def _command(arguments: str) -> str:
    """The command in the arguments of a call of Codex's shell."""
    try:
        given = _dict(msgspec.json.decode(arguments))
    except msgspec.DecodeError:
        return ""
    command = given.get("command") or given.get("cmd") or ""
    words = [str(one) for one in cast("list[Any]", command)] if isinstance(command, list) else [str(command)]
    return words[-1] if words[:1] in (["bash"], ["sh"], ["zsh"]) else " ".join(words)


def _codex_error(output: object) -> str:
    text, code = _said(output), 0
    try:
        told = _dict(msgspec.json.decode(text))
    except msgspec.DecodeError:
        told = {}
    if told:
        text, code = str(told.get("output") or ""), _dict(told.get("metadata")).get("exit_code") or 0
    elif "xit" in text[:200]:
        head = text[:200].lower()
        code = int("exit code" in head and "exit code: 0" not in head and "exited with code 0" not in head)
    return text or "failed" if code else ""


def _said(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(str(_dict(one).get("text") or "") for one in cast("list[Any]", content))
    return str(content or "")


def _database(path: Path) -> ForeignFile | None:
    return ForeignFile(path) if is_sqlite(path) else None


def _json(value: object) -> dict[str, Any]:
    try:
        return _dict(msgspec.json.decode(cast("Any", value)))
    except (msgspec.DecodeError, TypeError, RecursionError):
        return {}


def _cursor(path: Path) -> Iterator[Session]:
    """Cursor's key-value table: a document per session, and one per message."""
    database = _database(path)
    if database is None:
        return
    orders: dict[str, list[str]] = {}
    bubbles: dict[str, dict[str, dict[str, Any]]] = {}
    with database:
        for row in database.rows("cursorDiskKV", ("key", "value")):
            kind, _, name = str(row["key"]).partition(":")
            if kind == "composerData":
                heads = cast("list[Any]", _json(row["value"]).get("fullConversationHeadersOnly") or [])
                orders[name] = [str(_dict(one).get("bubbleId")) for one in heads]
            elif kind == "bubbleId":
                composer, _, bubble = name.partition(":")
                bubbles.setdefault(composer, {})[bubble] = _json(row["value"])
    for composer, found in bubbles.items():
        order = orders.get(composer) or list(found)
        entries = [
            {
                "id": bubble,
                "type": {1: "user", 2: "assistant"}.get(found[bubble].get("type") or 0, ""),
                "content": str(found[bubble].get("text") or ""),
                "timestamp": found[bubble].get("createdAt"),
            }
            for bubble in order
            if bubble in found
        ]
        yield Session("cursor", composer, list(messages_of(entries)), [])


def _opencode(path: Path) -> Iterator[Session]:
    """opencode's database: sessions, messages and their parts, in the tables of version 1 or 2."""
    database = _database(path)
    if database is None:
        return
    entries: dict[str, list[dict[str, Any]]] = {}
    with database:
        if "message" not in database.tables and "session_message" not in database.tables:
            raise InvalidInputError(
                f"{path} has no table of messages that skep knows; tell us its version of opencode"
            )
        folders = {
            str(row["id"]): row["directory"]
            for table in ("session", "session_v2")
            for row in database.rows(table, ("id", "directory"))
        }
        parts: dict[str, list[dict[str, Any]]] = {}
        for row in database.rows("part", ("message_id", "data")):
            part = _json(row["data"])
            if part.get("type") == "text" and not part.get("synthetic"):
                parts.setdefault(str(row["message_id"]), []).append(part)
        for row in database.rows("message", ("id", "session_id", "time_created", "data")):
            said = {"content": parts.get(str(row["id"]), []), "type": _json(row["data"]).get("role")}
            entries.setdefault(str(row["session_id"]), []).append(
                {
                    **said,
                    "id": row["id"],
                    "timestamp": row["time_created"],
                    "cwd": folders.get(str(row["session_id"])),
                }
            )
        for row in database.rows("session_message", ("id", "session_id", "type", "time_created", "data")):
            data = _json(row["data"])
            said = {"content": data.get("text") or data.get("content") or "", "type": row["type"]}
            entries.setdefault(str(row["session_id"]), []).append(
                {
                    **said,
                    "id": row["id"],
                    "timestamp": row["time_created"],
                    "cwd": folders.get(str(row["session_id"])),
                }
            )
    for name, each in entries.items():
        yield Session("opencode", name, list(messages_of(each)), [])
