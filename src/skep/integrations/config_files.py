"""Edits of JSON with comments and of TOML in place; all else in the text stays as its owner wrote it. Pure.

JSON is scanned for the spans of its values; an edit replaces or inserts only the span it is about, so comments,
trailing commas, order and indentation survive. TOML is edited by whole tables. By hand, because no maintained
library keeps comments in JSON, and the base install must be able to edit Codex's TOML.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from skep.errors import ConfigError

INLINE: Final = 60
"""Characters up to which a list of plain values stays on one line."""

_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.S)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_SCALAR = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Node(msgspec.Struct):
    """One value and where it stands."""

    start: int
    end: int
    members: dict[str, Node] | None = None
    """For an object: its values by key."""
    items: list[Node] | None = None
    """For an array."""
    keys: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """For an object: where each key begins."""
    scalar: Any = None

    def value(self) -> Any:
        """The plain Python value."""
        if self.members is not None:
            return {key: node.value() for key, node in self.members.items()}
        if self.items is not None:
            return [node.value() for node in self.items]
        return self.scalar


def scan(text: str) -> Node:
    """Find every value of a document.

    Raises:
        ConfigError: The text is not JSON, even with comments and trailing commas allowed.
    """
    try:
        node = _value(text, _skip(text, 0))
    except RecursionError:
        raise ConfigError("nested too deeply") from None
    if _skip(text, node.end) != len(text):
        raise _broken(text, node.end)
    return node


def parse_jsonc(text: str) -> Any:
    """The value of a document, comments and trailing commas allowed; an empty text is an empty object."""
    return scan(text).value() if text.strip() else {}


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Set the value at `path`, creating the objects on the way."""
    text = text if text.strip() else "{}\n"
    node, depth = _descend(scan(text), path[:-1])
    if node.members is None:
        where = ".".join(path[:depth]) or "the document"
        raise ConfigError(f"{where} is not an object; fix it by hand first")
    key = path[depth]
    if key in node.members:
        old = node.members[key]
        if old.value() == value:
            return text
        return text[: old.start] + _render(value, _margin(text, node.keys[key]), text) + text[old.end :]
    for inner in reversed(path[depth + 1 :]):
        value = {inner: value}
    return _insert(text, node, key, value)


def append(text: str, path: Sequence[str], value: Any) -> str:
    """Add `value` to the array at `path`, unless an equal one is there; the array is created if need be."""
    text = text if text.strip() else "{}\n"
    node, depth = _descend(scan(text), path)
    if depth < len(path):
        return put(text, path, [value])
    if node.items is None:
        raise ConfigError(f"{'.'.join(path)} is not an array; fix it by hand first")
    if any(item.value() == value for item in node.items):
        return text
    margin = _margin(text, node.start) + _unit(text)
    rendered = _render(value, margin, text)
    if not node.items:
        return f"{text[: node.start]}[\n{margin}{rendered}\n{_margin(text, node.start)}]{text[node.end :]}"
    last = node.items[-1].end
    return f"{text[:last]},\n{margin}{rendered}{text[last:]}"


def remove(text: str, path: Sequence[str]) -> str:
    """Take the value at `path` away, and the objects that it leaves empty."""
    if not text.strip():
        return text
    node, depth = _descend(scan(text), path[:-1])
    if depth < len(path) - 1 or node.members is None or path[-1] not in node.members:
        return text
    text = _cut(text, node.keys[path[-1]], node.members[path[-1]].end)
    return _prune(text, path[:-1])


def remove_items(text: str, path: Sequence[str], matches: Callable[[Any], bool]) -> str:
    """Take away the items of the array at `path` that match, and what that leaves empty."""
    if not text.strip():
        return text
    while True:
        node, depth = _descend(scan(text), path)
        if depth < len(path) or node.items is None:
            return text
        found = next((item for item in node.items if matches(item.value())), None)
        if found is None:
            return text
        text = _cut(text, found.start, found.end)
        if len(node.items) == 1:
            return remove(text, path)


def _prune(text: str, path: Sequence[str]) -> str:
    while path:
        node, depth = _descend(scan(text), path)
        if depth < len(path) or node.value() != {} or "/" in text[node.start : node.end]:
            return text
        parent, _ = _descend(scan(text), path[:-1])
        text = _cut(text, parent.keys[path[-1]], node.end)
        path = path[:-1]
    return text


def _descend(node: Node, path: Sequence[str]) -> tuple[Node, int]:
    """The deepest node on the path, and how many keys led there."""
    for depth, key in enumerate(path):
        if node.members is None or key not in node.members:
            return node, depth
        node = node.members[key]
    return node, len(path)


def _insert(text: str, node: Node, key: str, value: Any) -> str:
    outer = _margin(text, node.start)
    inner = outer + _unit(text)
    members = list((node.members or {}).values())
    rendered = f"{json.dumps(key, ensure_ascii=False)}: {_render(value, inner, text)}"
    if not members:
        inside = text[node.start + 1 : node.end - 1].rstrip()
        return f"{text[: node.start]}{{{inside}\n{inner}{rendered}\n{outer}}}{text[node.end :]}"
    last = members[-1].end
    if "\n" not in text[node.start : node.end]:
        return f"{text[:last]}, {rendered}{text[last:]}"
    return f"{text[:last]},\n{inner}{rendered}{text[last:]}"


def _cut(text: str, start: int, end: int) -> str:
    """Remove a span together with the comma and the line break that belong to it."""
    after = re.compile(r"[ \t]*,").match(text, end)
    kept = text[:start].rstrip()
    before = len(kept) - 1 if kept.endswith(",") else None
    last = after is not None and re.compile(r"\s*[}\]]").match(text, after.end()) is not None
    if after is not None and last:  # the last one, with a comma of its own: its whole line goes
        start = len(kept)
        end = after.end()
    elif after is not None:
        end = after.end()
        line = re.compile(r"[ \t]*\r?\n[ \t]*").match(text, end)
        end = line.end() if line is not None else end + len(text[end:]) - len(text[end:].lstrip(" "))
    elif before is not None:
        start = before
    else:
        start = len(kept)
        end += len(text[end:]) - len(text[end:].lstrip())
    return text[:start] + text[end:]


def _render(value: Any, margin: str, text: str) -> str:
    return _written(value, _unit(text)).replace("\n", "\n" + margin)


def _written(value: Any, unit: str) -> str:
    """JSON with a line per member, but short lists on one line, as people write it."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, list | dict) or not value:
        return flat
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if len(flat) <= INLINE and not any(isinstance(item, list | dict) for item in items):
            return flat
        lines, ends = [_written(item, unit) for item in items], "[]"
    else:
        members = cast("dict[str, Any]", value)
        lines = [
            f"{json.dumps(key, ensure_ascii=False)}: {_written(item, unit)}" for key, item in members.items()
        ]
        ends = "{}"
    inner = ",\n".join(lines).replace("\n", "\n" + unit)
    return f"{ends[0]}\n{unit}{inner}\n{ends[1]}"


def _margin(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    """One step of indentation as this file has it."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _value(text: str, position: int) -> Node:
    if text.startswith("{", position):
        return _object(text, position)
    if text.startswith("[", position):
        return _array(text, position)
    found = _STRING.match(text, position) or _SCALAR.match(text, position)
    if found is None:
        raise _broken(text, position)
    try:
        return Node(position, found.end(), scalar=json.loads(found[0], strict=False))
    except ValueError:
        raise _broken(text, position) from None


def _object(text: str, start: int) -> Node:
    node = Node(start, start, members={})
    position = _skip(text, start + 1)
    while not text.startswith("}", position):
        found = _STRING.match(text, position)
        if found is None or node.members is None:
            raise _broken(text, position)
        key = json.loads(found[0], strict=False)
        colon = _skip(text, found.end())
        if not text.startswith(":", colon):
            raise _broken(text, colon)
        child = _value(text, _skip(text, colon + 1))
        node.members[key] = child
        node.keys[key] = position
        position = _next(text, child.end, "}")
    node.end = position + 1
    return node


def _array(text: str, start: int) -> Node:
    node = Node(start, start, items=[])
    position = _skip(text, start + 1)
    while not text.startswith("]", position):
        child = _value(text, position)
        if node.items is not None:
            node.items.append(child)
        position = _next(text, child.end, "]")
    node.end = position + 1
    return node


def _next(text: str, position: int, close: str) -> int:
    position = _skip(text, position)
    if text.startswith(",", position):
        return _skip(text, position + 1)
    if text.startswith(close, position):
        return position
    raise _broken(text, position)


def _broken(text: str, position: int) -> ConfigError:
    line = text.count("\n", 0, position) + 1
    return ConfigError(f"not valid JSON at line {line}; nothing was changed")


_HEADER = re.compile(r"^[ \t]*\[{1,2}([^\[\]\n]+)\]{1,2}[ \t]*(?:#.*)?$", re.M)


def parse_toml(text: str) -> dict[str, Any]:
    """The value of a document.

    Raises:
        ConfigError: It is not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number without end is no error of tomllib's own
        raise ConfigError(f"not valid TOML: {error}; nothing was changed") from error


def put_table(text: str, name: str, values: dict[str, Any]) -> str:
    """Write the table `name`, in the place of one that is already there."""
    if _at(parse_toml(text), name) == values:
        return text
    lines = [f"[{name}]", *(f"{key} = {_literal(value)}" for key, value in values.items())]
    kept = remove_table(text, name).rstrip()
    return _unchanged_but(name, text, (kept + "\n\n" if kept else "") + "\n".join(lines) + "\n")


def remove_table(text: str, name: str) -> str:
    """Take the table `name` and its sub-tables away."""
    if _at(parse_toml(text), name) is None:
        return text
    edited = text
    headers = list(_HEADER.finditer(text))
    for index, header in reversed(list(enumerate(headers))):
        title = ".".join(part.strip() for part in header[1].split(".")).replace('"', "").replace("'", "")
        if title == name or title.startswith(name + "."):
            end = headers[index + 1].start() if index + 1 < len(headers) else len(edited)
            before, after = edited[: header.start()].rstrip("\n"), edited[end:]
            edited = before + ("\n\n" if before and after.strip() else "\n" if before else "") + after
    return _unchanged_but(name, text, edited)


def _at(document: dict[str, Any], name: str) -> Any:
    found: Any = document
    for part in name.split("."):
        found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
    return found


def _literal(value: Any) -> str:
    """Strings, numbers, booleans and lists of strings are written in TOML as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _unchanged_but(name: str, before: str, after: str) -> str:
    """Make sure that an edit changed what it is about and nothing else."""
    try:
        intact = _without(tomllib.loads(before), name) == _without(tomllib.loads(after), name)
    except tomllib.TOMLDecodeError:
        intact = False
    if not intact:
        raise ConfigError(f"{name} is written in a way that cannot be edited safely; edit the file by hand")
    return after


def _without(document: dict[str, Any], name: str) -> dict[str, Any]:
    head, _, rest = name.partition(".")
    inner = document.get(head)
    if rest and isinstance(inner, dict):
        pruned = _without(cast("dict[str, Any]", inner), rest)
        return {**document, head: pruned} if pruned else {k: v for k, v in document.items() if k != head}
    return {key: value for key, value in document.items() if key != head}
