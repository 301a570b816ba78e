"""Tools, resources and prompts as typed functions, and the call that is passed to them.

A tool is a function whose first argument is the `Call`, by which it reports progress, logs, asks the client and
notices a withdrawn request. The types of the other arguments and `Annotated[..., Meta(description=...)]` give the
JSON schema, its docstring the description that a model reads. Wrong arguments are refused in words that a model can
act on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_type_hints

import msgspec
from msgspec import Meta

from skep.errors import NotFoundError, SkepError
from skep.integrations.hooks import clip
from skep.runtime import lazy
from skep.server.mcp.protocol import (
    INVALID_PARAMS,
    LOG_LEVELS,
    MISSING_CAPABILITY,
    Envelope,
    Params,
    RpcError,
    meta_of,
)

if TYPE_CHECKING:
    from skep.bank.bank import Bank


CAPABILITY_OF = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
"""What a client must have declared before it may be asked."""


PROGRESS_STEPS: Final = 100
"""How often a client is told of progress at most; more would only be noise on the wire."""


class ToolError(Exception):
    """A failure that the model can act on; its message is what the model reads."""


class Cancelled(Exception):
    """The client withdrew the request; nothing is sent back."""


class InputRequired(Exception):
    """A stateless request that cannot be finished before the client has answered a question."""

    def __init__(self, requests: dict[str, Params], state: str | None = None) -> None:
        self.requests = requests
        self.state = state
        super().__init__("input required")


class Channel(Protocol):
    """The way back to the client that belongs to one request."""

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        ...

    def request(self, method: str, params: Mapping[str, Any]) -> Params:
        """Ask the client and wait. Only in the session era."""
        ...

    def cancelled(self) -> bool:
        """True once the client has withdrawn the request."""
        ...


class _Nowhere:
    """The way back of work that no request waits for."""

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Nobody listens."""

    def request(self, method: str, params: Mapping[str, Any]) -> Params:  # noqa: ARG002
        """Nobody can be asked."""
        raise ToolError(f"{method} cannot be asked here")

    def cancelled(self) -> bool:
        """Nobody withdraws it."""
        return False


NOWHERE: Channel = _Nowhere()


def no_bank() -> Bank:
    """Stands in where a registry of tools does without a bank."""
    raise ToolError("this server has no bank")


class Call:
    """One request in flight."""

    def __init__(
        self,
        *,
        channel: Channel,
        envelope: Envelope,
        params: Params,
        bank: Callable[[Call], Bank],
        log_level: str | None = None,
    ) -> None:
        self.envelope = envelope
        self.params = params
        self.reads = False
        """Whether it only reads; then it must not even make the file of a bank."""
        self.place: str | None = None
        """The file of the bank, whether it is there yet or not."""
        self.touched: set[str] = set()
        """Resources that this call changed; whoever subscribed to them is told afterwards."""
        self._channel = channel
        self._bank = bank
        self._log_level = envelope.log_level if envelope.stateless else log_level
        self._token: object = meta_of(params).get("progressToken")
        self._progress = float("-inf")

    def bank(self) -> Bank:
        """The bank this client works with, opened on first use."""
        return self._bank(self)

    def check(self) -> None:
        """Stop here if the client has withdrawn the request."""
        if self._channel.cancelled():
            raise Cancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the work is, if it asked; also a point at which a withdrawn call stops."""
        self.check()
        if not isinstance(self._token, int | str) or done <= self._progress:
            return
        if total is not None and done < total and done - self._progress < total / PROGRESS_STEPS:
            return
        self._progress = done
        body: Params = {"progressToken": self._token, "progress": done}
        if total is not None:
            body["total"] = total
        if message is not None:
            body["message"] = message
        self._channel.notify("notifications/progress", body)

    def log(self, level: str, data: Any, logger: str = "skep") -> None:
        """Send a log line to a client that asked for lines of this level."""
        if self._log_level is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(self._log_level):
            return
        self._channel.notify("notifications/message", {"level": level, "logger": logger, "data": data})

    def can_ask(self, method: str) -> bool:
        """True if the client declared that it answers `method`."""
        return CAPABILITY_OF[method] in self.envelope.capabilities

    @property
    def state(self) -> str | None:
        """The state that a stateless client handed back from the round before."""
        value: Any = self.params.get("requestState")
        return value if isinstance(value, str) else None

    def answers(self) -> Params:
        """The answers of a stateless client to the questions of the round before."""
        value: Any = self.params.get("inputResponses")
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RpcError(INVALID_PARAMS, "inputResponses must be an object")
        return cast("Params", value)

    def ask(self, key: str, method: str, params: Params, *, state: str | None = None) -> Params:
        """Ask the client one question, in whichever way its era allows.

        In the session era this waits for the answer. In the stateless era the first round ends with the
        question, and the client repeats the request with the answer in it.

        Raises:
            RpcError: The client did not declare that it answers such questions.
            InputRequired: Stateless, and not answered yet.
        """
        if not self.can_ask(method):
            name = CAPABILITY_OF[method]
            raise RpcError(
                MISSING_CAPABILITY,
                f"this needs a client with the capability {name!r}",
                {"requiredCapabilities": {name: {}}},
            )
        if not self.envelope.stateless:
            return self._channel.request(method, params)
        answer: Any = self.answers().get(key)
        if isinstance(answer, dict):
            return cast("Params", answer)
        raise InputRequired({key: {"method": method, "params": params}}, state)


SHOWN_CHARS: Final = 60
_PATH = lazy(r" - at `\$\.?([^`]*)`")
_FIELD = lazy(r"(missing required|contains unknown) field `([^`]*)`")


def refusal(tool: str, schema: Params, given: Mapping[str, Any], error: str) -> str:
    """The mistake in the arguments of a call, and the values that would do.

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
    """A schema in a few words."""
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


_BRACKETED = lazy(r"\[[^\[\]\",]+\](?:[\s,]*\[[^\[\]\",]+\])*")
IS_ID = {"id": True}
"""The mark of an argument that names memories or events."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's answer: text for the model, and structured content only where that is lean."""

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
    long: bool = False
    """It may take minutes, so later calls do not wait for what it writes."""

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
        """True if it stands for many addresses."""
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
    long: bool = False,
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
        long=long,
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
