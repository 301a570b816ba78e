"""JSON Schemas of the files of a workspace, made from the structs that the files become, and a check against them.

They are written beside the files, where editors complete and check with them, and `check` reads the same values, so an
editor and `skep tune validate` never disagree. `check` reports every problem at once, where `msgspec.convert` stops at
the first. Called by `search_config` and `workspace`; touches no files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from skep.errors import did_you_mean
from skep.tuning.findings import Finding

Schema = dict[str, Any]

NAME = r"^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
EVERYTHING = "*"
"""In place of a collection: every memory of the bank."""
RESERVED = "collection"
"""The field every chunk has; no collection may define it."""

Name = Annotated[str, Meta(pattern=NAME, max_length=64)]
CollectionName = Annotated[str, Meta(pattern=rf"{NAME}|^\*$|^$", max_length=64)]
FieldName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Text = Annotated[str, Meta(max_length=4000)]
Count = Annotated[int, Meta(ge=1, le=1000)]
Many = Annotated[int, Meta(ge=1, le=100_000)]
Weight = Annotated[float, Meta(ge=0, le=10)]
Share = Annotated[float, Meta(ge=0, le=1)]
Label = Annotated[str, Meta(min_length=1, max_length=1000)]


def json_schema(kind: type[msgspec.Struct], title: str, **more: Schema) -> Schema:
    """The schema of a file that becomes a `kind`, without references; `more` are keys that only the file has."""
    full = msgspec.json.schema(kind)
    made = cast("Schema", _plain(full, cast("dict[str, Schema]", full["$defs"])))
    made["properties"] = {"$schema": {"type": "string"}, **made["properties"], **more}
    return {"$schema": DRAFT, **made, "title": title}


def _plain(node: Any, definitions: Mapping[str, Schema]) -> Any:
    """A schema with its references filled in, and only the keys that `check` and editors read."""
    if isinstance(node, list):
        return [_plain(item, definitions) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    schema = dict(cast("Schema", node))
    reference = schema.pop("$ref", None)
    if reference is not None:
        schema = {**definitions[str(reference).rpartition("/")[2]], **schema}
    for option in cast("list[Schema]", schema.pop("anyOf", [])):
        kinds = [*cast("list[str]", schema.get("type", [])), option["type"]]
        schema |= option | {"type": [kind for kind in kinds if kind != "integer" or "number" not in kinds]}
    if "enum" in schema:
        schema["type"] = "string"
    if isinstance(schema.get("title"), str):
        del schema["title"]
    if isinstance(schema.get("default"), dict | list):
        del schema["default"]
    return {key: _plain(value, definitions) for key, value in schema.items() if key != "$defs"}


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_ARTICLES = {"object": "an object", "array": "a list", "integer": "a whole number"}


def check(value: object, schema: Mapping[str, Any], file: str) -> list[Finding]:
    """Everything in `value` that `schema` does not allow, as findings about `file`."""
    return list(_check(value, schema, file, ""))


def _check(value: object, schema: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    wanted: str | list[str] | None = schema.get("type")
    if wanted is not None:
        types = [wanted] if isinstance(wanted, str) else wanted
        if not any(_is(value, name) for name in types):
            expected = " or ".join(_ARTICLES.get(name, f"a {name}") for name in types)
            yield _found(
                "wrong-type", file, path, f"{_shown(value)} is not {expected}", f"write {expected} here"
            )
            return
    if isinstance(value, dict):
        yield from _check_object(cast("dict[str, object]", value), schema, file, path)
    elif isinstance(value, list):
        yield from _check_list(cast("list[object]", value), schema, file, path)
    elif isinstance(value, str):
        yield from _check_text(value, schema, file, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, file, path)


def _check_object(
    value: Mapping[str, object], schema: Mapping[str, Any], file: str, path: str
) -> Iterator[Finding]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    others: Any = schema.get("additionalProperties", True)
    for key in schema.get("required", ()):
        if key not in value:
            yield _found("missing-key", file, _join(path, key), f"{key!r} is missing", f"add {key!r}")
    for key, inner in value.items():
        place = _join(path, key)
        if key in properties:
            yield from _check(inner, properties[key], file, place)
        elif others is False:
            hint = did_you_mean(key, (name for name in properties if not name.startswith("$")))
            yield _found("unknown-key", file, place, f"nothing reads the key {key[:80]!r}", hint)
        else:
            yield from _check_key(key, schema.get("propertyNames", {}), file, place)
            if isinstance(others, dict):
                yield from _check(inner, cast("dict[str, Any]", others), file, place)


def _check_key(key: str, names: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    pattern, known = names.get("pattern"), names.get("enum")
    if known is not None and key not in known:
        yield _found(
            "unknown-key", file, path, f"nothing reads the key {key[:80]!r}", did_you_mean(key, known)
        )
    if pattern and (not re.fullmatch(pattern, key) or len(key) > names.get("maxLength", len(key))):
        what = f"{key[:80]!r} is not a field name"
        yield _found("bad-name", file, path, what, "use lower-case letters, digits and underscores")


def _check_list(
    value: Sequence[object], schema: Mapping[str, Any], file: str, path: str
) -> Iterator[Finding]:
    low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if len(value) < low:
        code = "empty-evals" if path == "queries" else "out-of-range"
        yield _found(code, file, path, f"the list has {len(value)} entries", f"give it at least {low}")
    if len(value) > high:
        yield _found("out-of-range", file, path, f"the list has {len(value)} entries", f"keep it to {high}")
        return
    for at, inner in enumerate(value):
        yield from _check(inner, schema.get("items", {}), file, f"{path}[{at}]")


def _check_text(value: str, schema: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    choices: list[str] | None = schema.get("enum")
    if choices is not None and value not in choices:
        yield _found(
            "not-a-choice", file, path, f"{_shown(value)} is not allowed", did_you_mean(value, choices)
        )
        return
    pattern: str | None = schema.get("pattern")
    if pattern and not re.fullmatch(pattern, value):
        fix = "use letters and digits, with single dots, dashes or underscores between them"
        yield _found("bad-name", file, path, f"{_shown(value)} is not a name", fix)
    low, high = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if not low <= len(value) <= high or (low and not value.strip()):
        limits = f"between {low} and {high} characters" if high < math.inf else f"at least {low} characters"
        yield _found(
            "out-of-range", file, path, f"{_shown(value)} has {len(value)} characters", f"use {limits}"
        )


def _check_number(value: float, schema: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if not low <= value <= high:
        yield _found("out-of-range", file, path, f"{value!r} is out of range", f"use {low:g} to {high:g}")


def _is(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _join(path: str, key: str) -> str:
    key = key[:80]
    return f"{path}.{key}" if path else key


def _found(code: str, file: str, path: str, what: str, fix: str) -> Finding:
    return Finding(code=code, file=file, path=path, what=what, fix=fix)
