"""Plain files: lines of JSON, a JSON list, a table, or lines of text."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from skep.errors import InvalidInputError
from skep.integrations.importers.base import Item, decoded, item, load_json, moment, read_text, renamed
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
    return _apart(_json_lines(path))


def _json_lines(path: Path) -> Iterator[Item | None]:
    # within JSON only a line feed ends a line: other separators may stand in a text as they are
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                entry = decoded(line)
            except ValueError as error:
                raise InvalidInputError(
                    f"{path}, line {number}: not valid JSON ({error}); mend or remove that line"
                ) from error
            yield _entry(entry, path, number)


def read_json(path: Path) -> Iterator[Item]:
    """A list, or an object with a list in it."""
    value = _list_in(load_json(path))
    if value is None:
        raise InvalidInputError(f"{path} holds no list of memories")
    return _apart(_entry(entry, path, number) for number, entry in enumerate(value, 1))


def read_csv(path: Path) -> Iterator[Item]:
    """A table with a header; without a column that we know, the longest value of a row is its text.

    Raises:
        InvalidInputError: A line does not fit the table; the message says which.
    """
    return _apart(_rows(path))


def _rows(path: Path) -> Iterator[Item | None]:
    text = read_text(path)
    csv.field_size_limit(10_000_000)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=_delimiter(path, text), strict=True)
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            beyond = cast("dict[Any, list[str]]", row).pop(None, [])
            if any(value.strip() for value in beyond):
                raise InvalidInputError(
                    f"{path}, line {rows.line_num}: more values than the header has columns; put a text that holds"
                    " the separator in quotes"
                )
            entry = {str(key).strip(): value for key, value in row.items() if isinstance(value, str)}
            if not any(name in entry for name in TEXTS) and entry:
                entry["text"] = max(entry.values(), key=len)
            yield _entry(entry, path, number + 1)  # the header is the first
    except csv.Error as error:
        raise InvalidInputError(
            f"{path}, row {number + 1}: not a readable table ({error}); mend its quotes"
        ) from error


def _delimiter(path: Path, text: str) -> str:
    """What separates the columns: what stands most often in the header; a table of one column has none."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    header = text.lstrip().partition("\n")[0]
    often = max(",;\t|", key=header.count)
    return often if often in header else "\x1f"


def _apart(found: Iterable[Item | None]) -> Iterator[Item]:
    """Items under keys of their own: what stands under one id with two texts is two memories."""
    seen: set[tuple[str, str]] = set()
    times: Counter[str] = Counter()
    for one in found:
        if one is None or (one.key, one.text) in seen:
            continue
        seen.add((one.key, one.text))
        times[one.key] += 1
        yield one if times[one.key] == 1 else renamed(one, f"{one.key}#{times[one.key]}", ORIGIN)


def read_lines(path: Path) -> Iterator[Item]:
    """One memory per line; a private part may go over several."""
    for number, line in enumerate(without_private(read_text(path)).splitlines(), 1):
        made = item(line.strip(), origin=ORIGIN, key=f"{path.name}:{number}")
        if made is not None:
            yield made


def _list_in(value: Any) -> list[Any] | None:
    """The list that a document is, or the first in it that holds memories; else an object is a list of itself.

    >>> _list_in({"status": [], "data": {"memories": [{"text": "a"}]}}), _list_in({"text": "a", "tags": ["b"]})
    ([{'text': 'a'}], [{'text': 'a', 'tags': ['b']}])
    """
    if not isinstance(value, dict):
        return cast("list[Any]", value) if isinstance(value, list) else None
    lists = list(_lists(cast("dict[str, Any]", value)))
    holding = [one for one in lists if any(map(_text_name, one))]
    if holding:
        return holding[0]
    plain = [one for one in lists if any(isinstance(entry, str) for entry in one)]
    return plain[0] if plain and _text_name(value) is None else [value]


def _lists(value: dict[str, Any], depth: int = 3) -> Iterator[list[Any]]:
    yield from (one for one in value.values() if isinstance(one, list))
    for one in value.values():
        if isinstance(one, dict) and depth:
            yield from _lists(cast("dict[str, Any]", one), depth - 1)


def _text_name(value: Any) -> str | None:
    """Under which name an object has its text."""
    entry = cast("dict[Any, Any]", value) if isinstance(value, dict) else {}
    return next((name for name in TEXTS if isinstance(entry.get(name), str) and entry[name].strip()), None)


def _entry(entry: object, path: Path, number: int) -> Item | None:
    key = f"{path.name}:{number}"
    if isinstance(entry, str):
        return item(entry, origin=ORIGIN, key=key)
    if not isinstance(entry, dict):
        return None
    given = cast("dict[str, Any]", entry)
    name = _text_name(given)
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
