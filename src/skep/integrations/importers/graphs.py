"""Knowledge graphs: the reference memory server's JSON lines, and Zep's or Graphiti's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from skep.errors import InvalidInputError
from skep.integrations.entities import entity_item, observation_item
from skep.integrations.importers.base import Item, head, item, load_json, moment, read_text

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
    if isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _objects(one)
    elif isinstance(value, dict):
        entry = cast("dict[str, Any]", value)
        if any(isinstance(entry.get(key), str) for key in ("fact", "content", "summary")):
            yield entry
        else:
            for one in entry.values():
                yield from _objects(one)


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
