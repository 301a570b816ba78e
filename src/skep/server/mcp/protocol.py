"""MCP on the wire: JSON-RPC frames, protocol revisions, stateless envelopes and their HTTP headers. Pure.

Two eras share one connection. The session era (up to 2025-11-25) opens with `initialize`; in the stateless era
(2026-07-28) every request names its own version and client in `params._meta`, and headers that proxies route by
repeat the body. Called by both transports and the session.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

SESSION_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions reached through `initialize`, oldest first."""
STATELESS_VERSIONS: Final = ("2026-07-28",)
"""Revisions in which every request stands alone."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
REQUEST_CANCELLED: Final = -32800

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MAX_FRAME: Final = 8 * 1024 * 1024
"""Bytes in one message. Longer ones are refused without being held in memory."""

Id = int | str
Params = dict[str, Any]


class RpcError(Exception):
    """A request that is answered with a JSON-RPC error rather than a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class Request(msgspec.Struct, frozen=True):
    """A message that must be answered."""

    id: Id
    method: str
    params: Params


class Notification(msgspec.Struct, frozen=True):
    """A message that must not be answered."""

    method: str
    params: Params


class Answer(msgspec.Struct, frozen=True):
    """The client's answer to something the server asked."""

    id: Id
    result: Params | None
    error: Params | None


class Malformed(msgspec.Struct, frozen=True):
    """A frame that is none of the above; `id` where one could still be read."""

    code: int
    message: str
    id: Id | None = None


Message = Request | Notification | Answer | Malformed


class Envelope(msgspec.Struct, frozen=True):
    """The client and its protocol revision; one per session, or one per stateless request."""

    version: str
    client: Params
    capabilities: Params
    log_level: str | None = None

    @property
    def stateless(self) -> bool:
        """True if the answer must be shaped for the stateless era."""
        return self.version in STATELESS_VERSIONS


class _Frame(msgspec.Struct):
    jsonrpc: str
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


_decode = msgspec.json.Decoder(_Frame).decode
_encode = msgspec.json.Encoder().encode


def parse(frame: bytes) -> Message:
    """Read one frame. Never raises: what cannot be read comes back as `Malformed`."""
    try:
        message = _decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _explain(frame, error)
    if message.jsonrpc != "2.0":
        return Malformed(INVALID_REQUEST, 'jsonrpc must be "2.0"', _plain_id(message.id))
    if message.method is msgspec.UNSET:
        return _as_answer(message)
    params = {} if message.params is msgspec.UNSET or message.params is None else message.params
    if message.id is msgspec.UNSET:
        return Notification(message.method, params)
    if message.id is None:
        return Malformed(INVALID_REQUEST, "a request id must be a string or an integer, not null")
    return Request(message.id, message.method, params)


def _as_answer(message: _Frame) -> Message:
    identity = _plain_id(message.id)
    if identity is None or (message.result is msgspec.UNSET and message.error is msgspec.UNSET):
        return Malformed(INVALID_REQUEST, "neither a request, a notification nor a response", identity)
    return Answer(identity, _object(message.result), _object(message.error))


def _object(value: object) -> Params | None:
    return cast("Params", value) if isinstance(value, dict) else None


def _plain_id(value: object) -> Id | None:
    """An id that an answer can carry; None if it holds half of a surrogate pair."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        _encode(value)
    except UnicodeEncodeError:
        return None
    return value


def cancelled_id(told: Notification) -> Id | None:
    """The request that `notifications/cancelled` withdraws; None if its id is neither text nor a whole number."""
    return _plain_id(told.params.get("requestId"))


def _explain(frame: bytes, error: Exception) -> Malformed:
    """Say what is wrong with a frame, and save its id if a lenient reader still finds one.

    A request whose text holds half of a surrogate pair would otherwise never be answered.
    """
    import json

    try:
        loose: object = json.loads(frame.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Malformed(PARSE_ERROR, f"not valid JSON: {error}")
    if not isinstance(loose, dict):
        return Malformed(
            INVALID_REQUEST, "a frame must hold exactly one JSON object; batches are not supported"
        )
    identity = _plain_id(cast("dict[str, object]", loose).get("id"))
    if isinstance(error, msgspec.ValidationError):
        return Malformed(INVALID_REQUEST, f"not a JSON-RPC message: {error}", identity)
    return Malformed(PARSE_ERROR, f"not valid UTF-8 JSON: {error}", identity)


def response(identity: Id, result: Mapping[str, Any]) -> bytes:
    """One frame that answers a request."""
    return _encode({"jsonrpc": "2.0", "id": identity, "result": result})


def failure(identity: Id | None, error: RpcError | Malformed) -> bytes:
    """One frame that refuses a request."""
    body: Params = {"code": error.code, "message": error.message}
    data: Any = error.data if isinstance(error, RpcError) else None
    if data is not None:
        body["data"] = data
    return _encode({"jsonrpc": "2.0", "id": identity, "error": body})


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    """One frame that expects no answer."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def request(identity: Id, method: str, params: Mapping[str, Any]) -> bytes:
    """One frame in which the server asks the client."""
    return _encode({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})


def meta_of(params: Params) -> Params:
    """The `_meta` object of a request, or an empty one."""
    value: Any = params.get("_meta")
    return cast("Params", value) if isinstance(value, dict) else {}


def is_stateless(params: Params) -> bool:
    """True if a request claims the stateless era. The key is reserved, so older clients never send it."""
    return VERSION_KEY in meta_of(params)


def negotiate(requested: object) -> str:
    """The session revision to speak: the client's where we know it, otherwise our newest."""
    return requested if isinstance(requested, str) and requested in SESSION_VERSIONS else SESSION_VERSIONS[-1]


def open_envelope(params: Params) -> Envelope:
    """Read and check the envelope of a stateless request.

    Raises:
        RpcError: A key is missing or malformed, or the revision is not one of ours.
    """
    meta = meta_of(params)
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version, capabilities = meta[VERSION_KEY], meta[CAPABILITIES_KEY]
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"{VERSION_KEY} must be a string")
    if not isinstance(capabilities, dict):
        raise RpcError(INVALID_PARAMS, f"{CAPABILITIES_KEY} must be an object")
    if version not in STATELESS_VERSIONS:
        raise unsupported(version)
    client: Any = meta.get(CLIENT_KEY)
    if client is not None and not isinstance(client, dict):
        raise RpcError(INVALID_PARAMS, f"{CLIENT_KEY} must be an object")
    level: Any = meta.get(LOG_LEVEL_KEY)
    return Envelope(
        version,
        cast("Params", client or {}),
        cast("Params", capabilities),
        level if isinstance(level, str) and level in LOG_LEVELS else None,
    )


def unsupported(version: str) -> RpcError:
    """The refusal of a revision, naming the ones that would do."""
    return RpcError(
        UNSUPPORTED_VERSION,
        "Unsupported protocol version",
        {"supported": list(STATELESS_VERSIONS), "requested": version},
    )


VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
PARAM_PREFIX: Final = "mcp-param-"
NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which parameter `Mcp-Name` repeats."""

_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")


def check_headers(raw: Iterable[tuple[str, str]], asked: Request, schema: Params | None) -> None:
    """Refuse a request whose headers and body disagree.

    Args:
        raw: Header names and values as they came, duplicates included.
        asked: The request in the body.
        schema: The input schema of the tool that is called, if one is.

    Raises:
        RpcError: `HEADER_MISMATCH`, saying which header is wrong.
    """
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.lower()
        if key in headers and (
            key in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER) or key.startswith(PARAM_PREFIX)
        ):
            raise _mismatch(f"{key} appears more than once")
        headers[key] = value.strip()
    if headers.get(VERSION_HEADER) != meta_of(asked.params).get(VERSION_KEY):
        raise _mismatch(f"{VERSION_HEADER} does not match the protocol version in the body")
    if headers.get(METHOD_HEADER) != asked.method:
        raise _mismatch(f"{METHOD_HEADER} does not match the method in the body")
    named = NAMED.get(asked.method)
    if named is not None:
        expected: Any = asked.params.get(named)
        if expected is not None and _decode_header(headers.get(NAME_HEADER)) != expected:
            raise _mismatch(f"{NAME_HEADER} does not match {named!r} in the body")
    if schema is not None:
        arguments: Any = asked.params.get("arguments")
        _check_parameters(headers, schema, cast("Params", arguments) if isinstance(arguments, dict) else {})


def _check_parameters(headers: dict[str, str], schema: Params, arguments: Params) -> None:
    for path, header in _annotated(schema):
        key = PARAM_PREFIX + header.lower()
        value = _at(arguments, path)
        given = headers.get(key)
        if value is None and given is None:
            continue
        if value is None:
            raise _mismatch(f"{key} is given but the argument {'.'.join(path)!r} is not")
        if given is None:
            raise _mismatch(f"{key} is missing although the argument {'.'.join(path)!r} is given")
        if not _same(value, _decode_header(given)):
            raise _mismatch(f"{key} does not match the argument {'.'.join(path)!r}")


def _annotated(schema: Params, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, part in cast("dict[str, Any]", schema.get("properties") or {}).items():
        if not isinstance(part, dict):
            continue
        inner = cast("Params", part)
        header: Any = inner.get("x-mcp-header")
        if isinstance(header, str):
            yield (*path, name), header
        yield from _annotated(inner, (*path, name))


def _at(arguments: Params, path: tuple[str, ...]) -> object:
    node: Any = arguments
    for key in path:
        node = cast("Params", node).get(key) if isinstance(node, dict) else None
    return node


def _same(value: object, text: str | None) -> bool:
    if text is None:
        return False
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int) and re.fullmatch(r"-?[0-9]+(\.0+)?", text):
        return int(text.partition(".")[0]) == value
    return isinstance(value, str | int | float) and text == str(value)


def _decode_header(value: str | None) -> str | None:
    """The plain value of a header; None where the base64 wrapping is not exact."""
    wrapped = _WRAPPED.fullmatch(value) if value is not None else None
    if wrapped is None:
        return value
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        return raw.decode("utf-8") if base64.b64encode(raw).decode("ascii") == wrapped[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _mismatch(message: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, message)
