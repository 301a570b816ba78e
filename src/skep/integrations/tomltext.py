"""Edit TOML in place: whole tables by name. Everything else stays as it was written."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, cast

from skep.errors import ConfigError

_HEADER = re.compile(r"^[ \t]*\[+\s*([^\]\n]+?)\s*\]+[ \t]*(?:#.*)?$", re.M)


def parse(text: str) -> dict[str, Any]:
    """The value of a document.

    Raises:
        ConfigError: It is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}; nothing was changed") from error


def put_table(text: str, name: str, values: dict[str, Any]) -> str:
    """Write the table `name`, in the place of one that is already there."""
    if _at(parse(text), name) == values:
        return text
    lines = [f"[{name}]", *(f"{key} = {_literal(value)}" for key, value in values.items())]
    kept = remove_table(text, name).rstrip()
    return _unchanged_but(name, text, (kept + "\n\n" if kept else "") + "\n".join(lines) + "\n")


def remove_table(text: str, name: str) -> str:
    """Take the table `name` and its sub-tables away."""
    if _at(parse(text), name) is None:
        return text
    edited = text
    headers = list(_HEADER.finditer(text))
    for index, header in reversed(list(enumerate(headers))):
        title = re.sub(r"\s*\.\s*", ".", header[1]).replace('"', "").replace("'", "")
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
