"""Why a call was refused, in words that a model can act on without looking anything up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from skep.errors import NotFoundError, SkepError
from skep.integrations.wording import clip
from skep.patterns import lazy
from skep.server.mcp.protocol import Params

SHOWN_CHARS: Final = 60
_PATH = lazy(r" - at `\$\.?([^`]*)`")
_FIELD = lazy(r"(missing required|contains unknown) field `([^`]*)`")


def refusal(tool: str, schema: Params, given: Mapping[str, Any], error: str) -> str:
    """What is wrong with the arguments of a call, and what would do.

    Args:
        tool: Its name.
        schema: What it takes.
        given: What it got.
        error: What the check said.
    """
    properties = cast("dict[str, Params]", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    names = ", ".join(f"{name} (required)" if name in required else name for name in properties)
    takes = f"It takes: {names or 'no arguments'}"
    field = _FIELD.search(error)
    path = _PATH.search(error)
    if field is not None and path is None:
        what = "is missing" if field[1].startswith("missing") else "is not one of its arguments"
        return f"{tool}: {field[2]} {what}. {takes}"
    name = re.split(r"[.\[]", path[1], maxsplit=1)[0] if path is not None else ""
    if name not in properties:
        return f"{tool}: {error}. {takes}"
    got = clip(repr(given.get(name)), SHOWN_CHARS)
    missing = ", ".join(one for one in required if one not in given)
    also = f". Also missing: {missing}" if missing else ""
    return f"{tool}: {name} must be {_allowed(properties[name])}, not {got}{also}"


def _allowed(schema: Params) -> str:
    """What a schema asks for, in a few words."""
    if "enum" in schema:
        return "one of " + ", ".join(str(one) for one in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"a list, each {_allowed(cast('Params', schema.get('items', {})))}"
    if kind == "object":
        return "an object with " + (", ".join(schema.get("properties", {})) or "any keys")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"a{'n' if kind == 'integer' else ''} {kind} from {low:g} to {high:g}"
    if kind == "string":
        what = str(schema.get("description", "")).rstrip(".")
        return "text that is not empty" if schema.get("minLength") else f"text ({what})" if what else "text"
    return {"boolean": "true or false", "integer": "a whole number", "number": "a number"}.get(
        str(kind), "something else"
    )


ADVICE: Final = {
    "`skep list` shows what there is": "recall shows ids in brackets",
    "`skep history` lists them": "history lists them",
}
"""What the library tells a person to do, and what a model does instead."""


def for_a_model(error: SkepError) -> str:
    """An error of the library, with advice that a model can follow."""
    text = str(error)
    for ours, theirs in ADVICE.items():
        text = text.replace(ours, theirs)
    if isinstance(error, NotFoundError) and ";" not in text:
        return f"{text}; recall shows ids in brackets"
    return text
