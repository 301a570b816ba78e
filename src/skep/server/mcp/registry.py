"""Tools, resources and prompts as plain typed functions.

A tool is a function whose first argument is the `Call`; the rest are its arguments. Their types and
`Annotated[..., Meta(description=...)]` give the JSON schema, its docstring the description a model reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, cast, get_type_hints

import msgspec
from msgspec import Meta

from skep.patterns import lazy
from skep.server.mcp.call import Call, ToolError
from skep.server.mcp.protocol import Params
from skep.server.mcp.refusals import refusal

_BRACKETED = lazy(r"\[[^\[\]\",]+\](?:[\s,]*\[[^\[\]\",]+\])*")
IS_ID = {"id": True}
"""The mark of an argument that names memories or events."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answers: text for the model, and structured content only where that is lean."""

    text: str = ""
    structured: Any = None
    failed: bool = False
    blocks: tuple[Params, ...] = ()
    """Content other than text."""

    def wire(self) -> Params:
        """The result of `tools/call`."""
        content = [{"type": "text", "text": self.text}] if self.text or not self.blocks else []
        result: Params = {"content": [*content, *self.blocks]}
        if self.structured is not None:
            result["structuredContent"] = self.structured
        if self.failed:
            result["isError"] = True
        return result


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, ready to be listed and called."""

    name: str
    title: str
    description: str
    schema: Params
    run: Callable[..., Reply | str]
    arguments: type[msgspec.Struct] | None = None
    """Checks and converts the arguments; None hands them over as they came."""
    ids: frozenset[str] = frozenset()
    """Arguments that name memories or events."""
    output: Params | None = None
    reads: bool = False
    destroys: bool = False
    repeats: bool = False
    """Calling it twice changes nothing more than calling it once."""

    def wire(self) -> Params:
        """Its entry in `tools/list`."""
        entry: Params = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {
                "readOnlyHint": self.reads,
                "destructiveHint": self.destroys,
                "idempotentHint": self.repeats or self.reads,
                "openWorldHint": False,
            },
        }
        if self.output is not None:
            entry["outputSchema"] = self.output
        return entry

    def call(self, call: Call, raw: object) -> Reply:
        """Check the arguments, run, and wrap what comes back.

        Raises:
            ToolError: The arguments do not fit; the message says which ones would.
        """
        if raw is not None and not isinstance(raw, dict):
            raise ToolError(f"{self.name}: arguments must be an object")
        given = cast("Params", raw or {})
        if self.arguments is None:
            result = self.run(call, **given)
        else:
            bound = self._bind(given)
            result = self.run(call, **{name: getattr(bound, name) for name in bound.__struct_fields__})
        return result if isinstance(result, Reply) else Reply(text=result)

    def _bind(self, given: Params) -> msgspec.Struct:
        properties = cast("dict[str, Params]", self.schema.get("properties", {}))
        cleaned = {
            name: _unpack(value) if properties.get(name, {}).get("type") == "array" else value
            for name, value in given.items()
            if value is not None
        }
        for name in self.ids & cleaned.keys():
            cleaned[name] = _bare(cleaned[name])
        for name, value in cleaned.items():
            cleaned[name] = _spelt(value, properties.get(name, {}).get("enum", ()))
        try:
            return msgspec.convert(cleaned, cast("type[msgspec.Struct]", self.arguments), strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ToolError(refusal(self.name, self.schema, cleaned, str(error))) from error


def _unpack(value: object) -> object:
    """Models often send a list as a string; read `'["a"]'`, `'[a], [b]'` and `'a, b'` as what they mean."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return re.findall(r"\[([^\[\]]+)\]", value) if _BRACKETED.fullmatch(value.strip()) else value
    return [part.strip() for part in value.split(",") if part.strip()]


def _bare(value: object) -> object:
    """Ids are shown in brackets, and models hand them back so."""
    if isinstance(value, str):
        return value.strip().removeprefix("[").removesuffix("]")
    return [_bare(one) for one in cast("list[object]", value)] if isinstance(value, list) else value


def _spelt(value: object, options: Collection[object]) -> object:
    """One of several words as it is written there, whatever the case it came in."""
    if isinstance(value, str) and value not in options:
        asked = value.strip().lower()
        return next((one for one in options if isinstance(one, str) and one.lower() == asked), value)
    return value


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """Something a client may read; `uri` may hold `{name}` parts, which makes it a template."""

    uri: str
    name: str
    title: str
    description: str
    read: Callable[..., Params]
    """Takes the call, the address and the parts; gives `text` or `blob`."""
    mime: str = "text/plain"

    @property
    def template(self) -> bool:
        """Whether it stands for many addresses."""
        return "{" in self.uri

    def match(self, uri: str) -> dict[str, str] | None:
        """The parts of `uri` if it is one of this resource's addresses."""
        pattern = "".join(
            f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part)
            for part in re.split(r"(\{\w+\})", self.uri)
        )
        found = re.fullmatch(pattern, uri)
        return found.groupdict() if found else None

    def wire(self) -> Params:
        """Its entry in `resources/list` or `resources/templates/list`."""
        return {
            "uriTemplate" if self.template else "uri": self.uri,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime,
        }


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A ready-made request that a person can pick in the client."""

    name: str
    title: str
    description: str
    render: Callable[[Call, dict[str, str]], list[Params]]
    arguments: tuple[tuple[str, str, bool], ...] = ()
    """Name, description, and whether it must be given."""

    def wire(self) -> Params:
        """Its entry in `prompts/list`."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "arguments": [
                {"name": name, "description": text, "required": required}
                for name, text, required in self.arguments
            ],
        }


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one server offers."""

    tools: dict[str, Tool]
    resources: tuple[Resource, ...] = ()
    prompts: dict[str, Prompt] = msgspec.field(default_factory=dict[str, Prompt])
    complete: Callable[[Params, Params], list[str]] | None = None
    """Suggests values: takes the reference and the argument."""
    logging: bool = False


def tool(
    run: Callable[..., Reply | str],
    *,
    title: str,
    reads: bool = False,
    destroys: bool = False,
    repeats: bool = False,
    output: Params | None = None,
) -> Tool:
    """Make a tool of a function; name, description and schema come from the function itself."""
    hints = get_type_hints(run, include_extras=True)
    function = cast("Any", run)
    code = function.__code__
    names = cast("tuple[str, ...]", code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
    positional = names[: code.co_argcount - 1]
    given = cast("tuple[object, ...]", function.__defaults__ or ())
    defaults: Params = dict(zip(positional[len(positional) - len(given) :], given, strict=True))
    defaults.update(function.__kwdefaults__ or {})
    fields = [
        (name, hints[name], defaults[name]) if name in defaults else (name, hints[name]) for name in names
    ]
    arguments = msgspec.defstruct(run.__name__, cast("Any", fields), forbid_unknown_fields=True, kw_only=True)
    return Tool(
        name=run.__name__.rstrip("_"),
        title=title,
        description=" ".join((run.__doc__ or "").split()),
        schema=schema_of(arguments),
        ids=frozenset(name for name in names if _names_memories(hints[name])),
        run=run,
        arguments=arguments,
        output=output,
        reads=reads,
        destroys=destroys,
        repeats=repeats,
    )


def _names_memories(hint: Any) -> bool:
    return any(isinstance(part, Meta) and part.extra == IS_ID for part in getattr(hint, "__metadata__", ()))


def schema_of(kind: Any) -> Params:
    """The JSON schema of a type, without the titles, references and nulls that only cost tokens."""
    full = msgspec.json.schema(kind)
    definitions = cast("dict[str, Params]", full.pop("$defs", {}))
    return cast("Params", _lean(full, definitions))


def _lean(node: Any, definitions: dict[str, Params]) -> Any:
    if isinstance(node, list):
        return [_lean(item, definitions) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    schema = dict(cast("Params", node))
    options = cast("list[Params]", schema.get("anyOf", []))
    if {"type": "null"} in options and len(options) == 2:
        del schema["anyOf"]
        schema = {**next(option for option in options if option != {"type": "null"}), **schema}
    if reference := schema.pop("$ref", None):
        schema = {**definitions[str(reference).rsplit("/", 1)[-1]], **schema}
    choices = schema.get("enum")
    if isinstance(choices, list) and all(isinstance(one, str) for one in cast("list[Any]", choices)):
        schema = {"type": "string", **schema}
    if "title" in schema and isinstance(schema["title"], str):
        del schema["title"]
    if schema.get("default", ...) is None or schema.get("default", ...) == []:
        del schema["default"]
    if schema.get("required", ...) == []:
        del schema["required"]
    return {key: _lean(value, definitions) for key, value in schema.items()}
