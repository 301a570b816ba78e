"""HTTP headers of the stateless era: what a proxy routes by must say what the body says."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from skep.server.mcp.protocol import HEADER_MISMATCH, VERSION_KEY, Params, Request, RpcError, meta_of

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
        if expected is not None and _decode(headers.get(NAME_HEADER)) != expected:
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
        if not _same(value, _decode(given)):
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


def _decode(value: str | None) -> str | None:
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
