"""Importers of what agents and their services remember: Letta, LangGraph stores, Claude, Claude Code, supermemory.

The registry lists them. Shapes were read in the programs that write them and in exports that others describe:
`.af` of Letta (AgentFileSchema and the older single agent), the table `store` of langgraph-checkpoint-sqlite, the
`memories.json` of a Claude export, the folder `memory` of a Claude Code project, and the list that supermemory's API
gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from skep.errors import InvalidInputError
from skep.integrations.importers.chats import Turn, episodes
from skep.integrations.importers.item import Item, decoded, head, item, load_json, moment
from skep.integrations.importers.text_files import read_notes, sections
from skep.storage.sqlite_file import ForeignFile, is_sqlite

LETTA: Final = "letta"
LANGGRAPH: Final = "langgraph"
CLAUDE: Final = "claude"
CLAUDE_CODE: Final = "claude-code"
SUPERMEMORY: Final = "supermemory"
MEMORIES: Final = "memories.json"
INDEX: Final = "MEMORY.md"
"""The file in which Claude Code lists the notes of a project."""
STORE_COLUMNS: Final = ("prefix", "key", "value", "created_at", "updated_at")
Dict = dict[str, Any]


def is_letta(path: Path) -> bool:
    """An agent file of Letta, by its ending."""
    return path.is_file() and path.suffix.lower() == ".af"


def read_letta(path: Path) -> Iterator[Item]:
    """The blocks of each agent as facts, and what was said as episodes."""
    held = load_json(path)
    if not isinstance(held, dict):
        raise InvalidInputError(f"{path} is no agent file of Letta: it holds no object")
    whole = cast("Dict", held)
    agents = _dicts(whole.get("agents")) or [whole]
    for block in (*_dicts(whole.get("blocks")), *_dicts(whole.get("core_memory"))):
        label = str(block.get("label") or "block")
        for number, (heading, text) in enumerate(_passages(str(block.get("value") or ""))):
            made = item(
                text,
                origin=LETTA,
                key=f"{block.get('id') or label}/{number}",
                title=heading or label,
                tags=(label,),
                created_at=moment(block.get("created_at")),
            )
            if made is not None:
                yield made
    for agent in agents:
        turns = [turn for message in _dicts(agent.get("messages")) if (turn := _letta_turn(message))]
        name = str(agent.get("name") or agent.get("id") or path.stem)
        yield from episodes(turns, origin=LETTA, key=name, title=name)


def _letta_turn(message: Dict) -> Turn | None:
    """A message that a person or the agent said; what only the program wrote to the agent is none."""
    content = message.get("content") or message.get("text")
    blocks = _dicts(content)
    text = "\n".join(str(one["text"]) for one in blocks if one.get("text")) if blocks else str(content or "")
    role = str(message.get("role"))
    if role == "user" and text.lstrip().startswith("{"):
        try:
            told = decoded(text)
        except ValueError:
            told = None
        if isinstance(told, dict):  # as older versions wrap what a person says, and their own notices
            wrapped = cast("Dict", told)
            text = str(wrapped.get("message") or "") if wrapped.get("type") == "user_message" else ""
    if role not in ("user", "assistant") or not text.strip():
        return None
    return role, text, moment(message.get("created_at")), str(message.get("id") or "")


def is_langgraph(path: Path) -> bool:
    """A SQLite file with the table of a LangGraph store."""
    if not (path.is_file() and is_sqlite(path)):
        return False
    with ForeignFile(path) as foreign:
        return {"prefix", "key", "value"} <= set(foreign.tables.get("store", ()))


def read_langgraph(path: Path) -> Iterator[Item]:
    """Every item of a LangGraph or LangMem store: its texts, in the namespace it had, with the value as metadata."""
    with ForeignFile(path) as foreign:
        for row in foreign.rows("store", STORE_COLUMNS):
            try:
                value = decoded(row["value"])
            except (TypeError, ValueError) as error:
                raise InvalidInputError(
                    f"{path}: the item {row['prefix']}/{row['key']} is not JSON ({error})"
                ) from error
            made = item(
                "\n".join(_texts(value)) or str(row["key"]),
                origin=LANGGRAPH,
                key=f"{row['prefix']}/{row['key']}",
                scope=[part for part in str(row["prefix"]).split(".") if part] or None,
                metadata={"value": value, "key": str(row["key"])},
                created_at=moment(row["created_at"]),
            )
            if made is not None:
                yield made


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value. LangMem wraps a memory as `{"kind": ..., "content": {"content": ...}}`."""
    if isinstance(value, dict):
        held = cast("Dict", value)
        if isinstance(held.get("content"), dict | str) and "kind" in held:
            held = {"content": held["content"]}
        for one in held.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _texts(one)
    elif isinstance(value, str) and value.strip():
        yield value


def is_claude_memories(path: Path) -> bool:
    """`memories.json` of a Claude export."""
    return path.suffix == ".json" and '"conversations_memory"' in head(path)


def read_claude_memories(path: Path) -> Iterator[Item]:
    """What Claude remembers of all conversations, and of each project, passage by passage."""
    held = load_json(path)
    for one in _dicts(held) or _dicts([held]):
        account = str(one.get("account_uuid") or "account")
        yield from _remembered(str(one.get("conversations_memory") or ""), account, None)
        projects = one.get("project_memories")
        for project, text in cast("Dict", projects).items() if isinstance(projects, dict) else ():
            yield from _remembered(str(text or ""), str(project), str(project))


def _remembered(markdown: str, key: str, project: str | None) -> Iterator[Item]:
    for number, (heading, text) in enumerate(_passages(markdown)):
        made = item(
            text,
            origin=CLAUDE,
            key=f"memory/{key}/{number}",
            title=heading,
            tags=("memory",),
            scope=None if project is None else {"project": project},
        )
        if made is not None:
            yield made


_BOLD = re.compile(r"\*\*([^*\n]{1,120})\*\*:?")


def _passages(markdown: str) -> Iterator[tuple[str | None, str]]:
    """Paragraphs with the heading above them; a line in bold alone is a heading as well."""
    for under, body in sections(markdown):
        heading = under
        for paragraph in re.split(r"\n\s*\n", body):
            text = paragraph.strip()
            bold = _BOLD.fullmatch(text)
            if bold:
                heading = bold[1].strip()
            elif text:
                yield heading, text


def is_claude_code(path: Path) -> bool:
    """The folder `memory` of a Claude Code project: notes, and the index that names them."""
    return path.is_dir() and (path / INDEX).is_file()


def read_claude_code(path: Path) -> Iterator[Item]:
    """The notes of a project. The index names the others and is only read where it stands alone."""
    made = list(read_notes(path, CLAUDE_CODE))
    own = [one for one in made if not one.key.partition("#")[0].endswith(Path(INDEX).stem)]
    yield from own or made


def is_supermemory(path: Path) -> bool:
    """A list of memories or documents as supermemory's API gives it."""
    start = head(path) if path.suffix == ".json" else ""
    return '"containerTags"' in start and ('"memories"' in start or '"documents"' in start)


def read_supermemory(path: Path) -> Iterator[Item]:
    """Every memory or document, with its tags."""
    held = load_json(path)
    whole = cast("Dict", held) if isinstance(held, dict) else {}
    for number, one in enumerate(_dicts(whole.get("memories")) or _dicts(whole.get("documents"))):
        metadata = one.get("metadata")
        made = item(
            str(one.get("content") or one.get("memory") or one.get("summary") or ""),
            origin=SUPERMEMORY,
            key=str(one.get("id") or number),
            title=one.get("title") or None,
            tags=tuple(map(str, cast("list[Any]", one.get("containerTags") or []))),
            metadata=metadata if isinstance(metadata, dict) and metadata else None,
            created_at=moment(one.get("createdAt")),
        )
        if made is not None:
            yield made


def _dicts(value: object) -> list[Dict]:
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Dict", one) for one in found if isinstance(one, dict)]
