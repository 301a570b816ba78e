"""Importers of databases and graphs: mem0, a local Qdrant, claude-mem, the reference memory server, Zep and Graphiti.

A graph becomes memories in the shape that the server's `reference` profile also writes: an entity is a memory
titled with its name, each observation is a memory of its own that can be found, dated and contested, a relation is
a link, and the tag `entity:<name>` holds them together. Pickles are read without importing or calling anything they
name.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from skep.errors import InvalidInputError
from skep.integrations.importers.item import Item, head, item, load_json, moment, read_text
from skep.storage.sqlite_file import ForeignFile, is_sqlite

MEM0 = "mem0"
CLAUDE_MEM = "claude-mem"
HISTORY = (
    "memory_id",
    "old_memory",
    "new_memory",
    "event",
    "created_at",
    "updated_at",
    "is_deleted",
    "actor_id",
)
OBSERVATION_COLUMNS = (
    "id", "project", "type", "text", "title", "subtitle", "narrative", "facts", "concepts", "created_at_epoch",
)  # fmt: skip
SUMMARY = ("id", "project", "request", "learned", "completed", "next_steps", "notes", "created_at_epoch")
KNOWN_PAYLOAD = {
    "data",
    "hash",
    "created_at",
    "updated_at",
    "user_id",
    "agent_id",
    "run_id",
    "text_lemmatized",
}
DEEPEST = 4
"""How many folders below the one that is named a collection is looked for."""


def mem0_files(path: Path) -> list[Path]:
    """mem0's databases at a path: the history, or the collections of a local Qdrant below a folder."""
    if path.is_dir():
        below = (path.glob("*/" * depth + "storage.sqlite") for depth in range(DEEPEST + 1))
        found = [path / "history.db", *sorted(file for files in below for file in files)]
        return [file for file in found if is_sqlite(file)]
    return [path] if is_sqlite(path) else []


def is_mem0(path: Path) -> bool:
    """A `history` table as mem0 makes it, or a local Qdrant."""
    for file in mem0_files(path):
        with ForeignFile(file) as foreign:
            if "memory_id" in foreign.tables.get("history", ()) or foreign.tables.get("points") == (
                "id",
                "point",
            ):
                return True
    return False


def read_mem0(path: Path) -> Iterator[Item]:
    """mem0's current memories. Vectors carry scopes, so they are preferred; the history adds what they lack."""
    seen: set[str] = set()
    files = mem0_files(path)
    for file in sorted(files, key=lambda file: file.name != "storage.sqlite"):
        with ForeignFile(file) as foreign:
            entries = _points(foreign) if "points" in foreign.tables else _history(foreign)
            for made in entries:
                if made.key not in seen:
                    seen.add(made.key)
                    yield made


def _history(foreign: ForeignFile) -> Iterator[Item]:
    current: dict[str, dict[str, Any]] = {}
    for row in foreign.rows("history", HISTORY):
        key = str(row["memory_id"])
        gone = row["is_deleted"] or str(row["event"]).upper() == "DELETE"
        first = current.pop(key, row)
        if not gone and row["new_memory"]:
            current[key] = {**row, "created_at": first["created_at"] or row["created_at"]}
    for key, row in current.items():
        made = item(
            str(row["new_memory"]),
            origin=MEM0,
            key=key,
            created_at=moment(row["created_at"]),
            agent=row["actor_id"] or None,
        )
        if made is not None:
            yield made


def _points(foreign: ForeignFile) -> Iterator[Item]:
    for row in foreign.rows("points", ("id", "point")):
        point = _unpickle(cast("bytes", row["point"]))
        payload = point.get("payload")
        if not isinstance(payload, dict) or not isinstance(cast("dict[str, Any]", payload).get("data"), str):
            continue
        payload = cast("dict[str, Any]", payload)
        scope = {"user": payload.get("user_id"), "session": payload.get("run_id")}
        extra = {
            name: value for name, value in payload.items() if name not in KNOWN_PAYLOAD and _plain(value)
        }
        made = item(
            payload["data"],
            origin=MEM0,
            key=str(point.get("id")),
            created_at=moment(payload.get("created_at")),
            agent=payload.get("agent_id") or None,
            scope={name: str(value) for name, value in scope.items() if value} or None,
            metadata=extra or None,
        )
        if made is not None:
            yield made


class _Inert:
    """Stands for every class in a pickle. It holds what it is given and can do nothing."""

    state: dict[str, Any] | None = None

    def __init__(self, *_args: object, **_named: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            inner: Any = cast("dict[str, Any]", state).get("__dict__", state)
            self.state = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}

    def __call__(self, *_args: object, **_named: object) -> _Inert:
        return _Inert()


class _SafeUnpickler(pickle.Unpickler):
    """Reads a pickle without importing or calling anything it names."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Only the class of plain sets is real."""
        return set if (module_name, global_name) == ("builtins", "set") else _Inert


def _unpickle(data: bytes) -> dict[str, Any]:
    try:
        found: Any = _SafeUnpickler(io.BytesIO(data)).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        KeyError,
    ) as error:
        raise InvalidInputError(f"a Qdrant point cannot be read: {error}") from error
    return found.state or {} if isinstance(found, _Inert) else {}


def _plain(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False
    return True


def is_claude_mem(path: Path) -> bool:
    """A database with observations and the sessions of a coding agent."""
    file = _claude_mem_file(path)
    if file is None:
        return False
    with ForeignFile(file) as foreign:
        return {"observations", "session_summaries"} <= set(foreign.tables)


def read_claude_mem(path: Path) -> Iterator[Item]:
    """Observations with the facts in them, and what each session learnt."""
    file = _claude_mem_file(path)
    if file is None:
        raise InvalidInputError(f"{path} holds no claude-mem database")
    with ForeignFile(file) as foreign:
        for row in foreign.rows("observations", OBSERVATION_COLUMNS):
            yield from _observation(row)
        for row in foreign.rows("session_summaries", SUMMARY):
            parts = [f"{label}: {row[name]}" for label, name in _SUMMARY_PARTS if row[name]]
            made = item(
                "\n".join(parts),
                origin=CLAUDE_MEM,
                key=f"summary-{row['id']}",
                kind="episode",
                title=row["request"] or None,
                created_at=moment(row["created_at_epoch"]),
                scope={"project": str(row["project"])} if row["project"] else None,
            )
            if made is not None:
                yield made


_SUMMARY_PARTS = (
    ("Learned", "learned"),
    ("Completed", "completed"),
    ("Next", "next_steps"),
    ("Notes", "notes"),
)


def _observation(row: dict[str, Any]) -> Iterator[Item]:
    key = f"observation-{row['id']}"
    shared: dict[str, Any] = {
        "title": row["title"] or None,
        "created_at": moment(row["created_at_epoch"]),
        "scope": {"project": str(row["project"])} if row["project"] else None,
    }
    labels = (str(row["type"] or ""), *_strings(row["concepts"]))
    story = row["narrative"] or row["text"] or row["subtitle"] or ""
    made = item(str(story), origin=CLAUDE_MEM, key=key, kind="episode", tags=labels, **shared)
    if made is not None:
        yield made
    for index, fact in enumerate(_strings(row["facts"])):
        links = (("derived_from", key),) if made is not None else ()
        found = item(fact, origin=CLAUDE_MEM, key=f"{key}-fact-{index}", links=links, tags=labels, **shared)
        if found is not None:
            yield found


def _strings(value: object) -> tuple[str, ...]:
    """A JSON list of texts, as claude-mem keeps it in a column."""
    if not isinstance(value, str) or not value.strip():
        return ()
    try:
        found: Any = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return (value,)
    return tuple(str(one) for one in cast("list[Any]", found)) if isinstance(found, list) else (str(found),)


def _claude_mem_file(path: Path) -> Path | None:
    file = path / "claude-mem.db" if path.is_dir() else path
    return file if is_sqlite(file) else None


ENTITY: Final = "entity"
OBSERVATION: Final = "observation"


def tag_of(name: str) -> str:
    """The tag that an entity and its observations share."""
    return f"entity:{name}"


def entity_item(name: str, kind: str) -> dict[str, Any]:
    """The memory that stands for an entity."""
    return {
        "text": f"{name} ({kind})" if kind else name,
        "title": name,
        "tags": [ENTITY, tag_of(name)],
        "metadata": {"entity": name, "entityType": kind},
    }


def observation_item(name: str, text: str) -> dict[str, Any]:
    """The memory that holds one observation."""
    return {"text": text, "title": name, "tags": [OBSERVATION, tag_of(name)], "metadata": {"entity": name}}


REFERENCE = "reference"
GRAPHITI = "graphiti"


def is_reference(path: Path) -> bool:
    """Lines of `{"type": "entity"}` and `{"type": "relation"}`."""
    first = next((line for line in head(path).splitlines() if line.strip()), "")
    return '"type"' in first and ('"entityType"' in first or '"relationType"' in first)


def read_reference(path: Path) -> Iterator[Item]:
    """Entities, their observations and relations.

    Raises:
        InvalidInputError: A line is not JSON; the message says which.
    """
    relations: dict[str, list[tuple[str, str]]] = {}
    entities: list[dict[str, Any]] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInputError(
                f"{path}, line {number}: not valid JSON ({error}); mend or remove that line"
            ) from error
        if not isinstance(entry, dict):
            continue
        entry = cast("dict[str, Any]", entry)
        if entry.get("type") == "entity" and entry.get("name"):
            entities.append(entry)
        elif entry.get("type") == "relation":
            target = (str(entry.get("relationType") or "related"), str(entry.get("to")))
            relations.setdefault(str(entry.get("from")), []).append(target)
    for entry in entities:
        name = str(entry["name"])
        fields = entity_item(name, str(entry.get("entityType") or ""))
        made = _made(fields, name, tuple(relations.get(name, ())))
        if made is not None:
            yield made
        for index, text in enumerate(cast("list[Any]", entry.get("observations") or [])):
            made = _made(observation_item(name, str(text)), f"{name}#{index}", (("observation_of", name),))
            if made is not None:
                yield made


def _made(fields: dict[str, Any], key: str, links: tuple[tuple[str, str], ...]) -> Item | None:
    return item(
        fields["text"],
        origin=REFERENCE,
        key=key,
        links=links,
        tags=tuple(fields["tags"]),
        title=fields["title"],
        metadata=fields["metadata"],
    )


def is_graphiti(path: Path) -> bool:
    """JSON that speaks of facts with `valid_at`, or of episodes with a `source_description`."""
    start = head(path)
    return path.suffix == ".json" and any(
        mark in start for mark in ('"fact"', '"source_description"', '"fact_embedding"', '"name_embedding"')
    )


def read_graphiti(path: Path) -> Iterator[Item]:
    """Facts with the time in which they held, episodes, and summaries of entities."""
    for index, entry in enumerate(_objects(load_json(path))):
        key = str(entry.get("uuid") or index)
        made = _fact(entry, key) or _episode(entry, key) or _summary(entry, key)
        if made is not None:
            yield made


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object that looks like a node or an edge, however the export is nested."""
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += reversed(cast("list[Any]", one))
        elif isinstance(one, dict):
            entry = cast("dict[str, Any]", one)
            if any(isinstance(entry.get(key), str) for key in ("fact", "content", "summary")):
                yield entry
            else:
                waiting += reversed(entry.values())


def _fact(entry: dict[str, Any], key: str) -> Item | None:
    if not isinstance(entry.get("fact"), str):
        return None
    start, end = moment(entry.get("valid_at")), moment(entry.get("invalid_at") or entry.get("expired_at"))
    return item(
        entry["fact"],
        origin=GRAPHITI,
        key=key,
        tags=(str(entry.get("name") or ""),),
        created_at=moment(entry.get("created_at")),
        valid_from=start,
        valid_to=end if end is not None and (start is None or end > start) else None,
        scope=_scope(entry),
    )


def _episode(entry: dict[str, Any], key: str) -> Item | None:
    if not isinstance(entry.get("content"), str):
        return None
    return item(
        entry["content"],
        origin=GRAPHITI,
        key=key,
        kind="episode",
        title=entry.get("name") or None,
        agent=entry.get("role") or None,
        created_at=moment(entry.get("valid_at") or entry.get("created_at")),
        scope=_scope(entry),
    )


def _summary(entry: dict[str, Any], key: str) -> Item | None:
    labels = cast("list[Any]", entry.get("labels") or [])
    return item(
        str(entry.get("summary") or ""),
        origin=GRAPHITI,
        key=key,
        title=entry.get("name") or None,
        tags=tuple(str(label) for label in labels if label != "Entity"),
        created_at=moment(entry.get("created_at")),
        scope=_scope(entry),
    )


def _scope(entry: dict[str, Any]) -> dict[str, str] | None:
    user = entry.get("user_id") or None
    return {"user": str(user)} if user else None
