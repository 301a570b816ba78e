"""Plain files: lines of JSON, a JSON list, a table, or lines of text."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from skep.errors import InvalidInputError
from skep.integrations.importers.base import Item, item, load_json, moment, read_text
from skep.model import KINDS
from skep.private import without_private

TEXTS = ("text", "memory", "content", "fact", "observation", "message", "note", "statement", "value")
"""Under which names a text is looked for, in this order."""
TIMES = ("created_at", "timestamp", "date", "time", "updated_at")
ORIGIN = "file"


def is_jsonl(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() in (".jsonl", ".ndjson")


def is_json(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() == ".json"


def is_csv(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() in (".csv", ".tsv")


def is_text(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() in (".txt", ".text")


def read_jsonl(path: Path) -> Iterator[Item]:
    """One object or text per line.

    Raises:
        InvalidInputError: A line is not JSON; the message says which.
    """
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            try:
                entry: Any = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidInputError(
                    f"{path}, line {number}: not valid JSON ({error}); mend or remove that line"
                ) from error
            made = _entry(entry, path, number)
            if made is not None:
                yield made


def read_json(path: Path) -> Iterator[Item]:
    """A list, or an object with a list in it."""
    value = _list_in(load_json(path))
    if value is None:
        raise InvalidInputError(f"{path} holds no list of memories")
    for number, entry in enumerate(value, 1):
        made = _entry(entry, path, number)
        if made is not None:
            yield made


def read_csv(path: Path) -> Iterator[Item]:
    """A table with a header; without a column that we know, the longest value of a row is its text."""
    text = read_text(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    csv.field_size_limit(10_000_000)
    try:
        for number, row in enumerate(csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter), 2):
            entry = {str(key).strip(): value for key, value in row.items() if isinstance(value, str)}
            if not any(name in entry for name in TEXTS) and entry:
                entry["text"] = max(entry.values(), key=len)
            made = _entry(entry, path, number)
            if made is not None:
                yield made
    except csv.Error as error:
        raise InvalidInputError(f"{path} is not a readable table: {error}") from error


def read_lines(path: Path) -> Iterator[Item]:
    """One memory per line; a private part may go over several."""
    for number, line in enumerate(without_private(read_text(path)).splitlines(), 1):
        made = item(line.strip(), origin=ORIGIN, key=f"{path.name}:{number}")
        if made is not None:
            yield made


def _list_in(value: Any) -> list[Any] | None:
    """The list that a document is, or the first that it holds; an object without one is a list of itself."""
    if isinstance(value, dict):
        inner: list[Any] = [one for one in cast("dict[str, Any]", value).values() if isinstance(one, list)]
        return inner[0] if inner else [value]
    return cast("list[Any]", value) if isinstance(value, list) else None


def _entry(entry: object, path: Path, number: int) -> Item | None:
    key = f"{path.name}:{number}"
    if isinstance(entry, str):
        return item(entry, origin=ORIGIN, key=key)
    if not isinstance(entry, dict):
        return None
    given = cast("dict[str, Any]", entry)
    name = next((name for name in TEXTS if isinstance(given.get(name), str) and given[name].strip()), None)
    if name is None:
        return None
    kind = str(given.get("kind") or "").lower()
    time = next((found for field in TIMES if (found := moment(given.get(field))) is not None), None)
    return item(
        given[name],
        origin=ORIGIN,
        key=f"{path.name}:{given['id']}" if given.get("id") not in (None, "") else key,
        tags=_tags(given.get("tags")),
        kind=kind if kind in KINDS else None,
        title=given.get("title") or None,
        domain=given.get("domain") or given.get("category") or None,
        agent=given.get("agent") or given.get("agent_id") or None,
        created_at=time,
        confidence=_unit(given.get("confidence")),
        importance=_unit(given.get("importance")),
        scope={"user": str(given["user_id"])} if given.get("user_id") else None,
    )


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.replace(";", ",").split(","))
    return tuple(str(one) for one in cast("list[Any]", value)) if isinstance(value, list) else ()


def _unit(value: object) -> float | None:
    try:
        number = float(cast("Any", value))
    except (TypeError, ValueError):
        return None
    return number if 0 <= number <= 1 else None
