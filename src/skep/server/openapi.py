"""The description of the HTTP API as OpenAPI 3.1, made from the table of verbs; also the reference page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from skep.client.http_errors import Failure
from skep.client.verb_table import RIGHTS, Verb, verbs
from skep.hub.hub_calls import Answered, Asked
from skep.model import Memory
from skep.server.live_events import KEEPALIVE

REF: Final = "#/components/schemas/{name}"
FAILURES: Final = {
    "400": "An argument was refused; nothing was written.",
    "401": "There is no token, or it is not known.",
    "403": "The token has not the right, or host or origin are not allowed.",
    "404": "No such bank, memory or event.",
    "408": "The body did not arrive in time.",
    "409": "The text contradicts what is stored, the memory was changed since, or it cannot be undone.",
    "410": "The memory was forgotten.",
    "413": "The body is too large.",
    "415": "The body is no JSON.",
    "429": "Too many requests; `Retry-After` says when to go on.",
    "500": "The bank could not be read or written.",
    "501": "An optional dependency is missing at the server.",
    "502": "A model that the server asks gave an unusable answer.",
    "503": "Busy or stopping; try again.",
    "504": "No answer in time.",
    "507": "The disk of the server is full; nothing was written.",
}
_BANK: Final = {
    "name": "bank",
    "in": "path",
    "required": True,
    "description": "The name of a bank, as `/v1/banks` lists them.",
    "schema": {"type": "string"},
}
_AS_OF: Final = {
    "name": "as_of",
    "in": "query",
    "description": "Answer as the bank would have at that time: seconds since the epoch, or an ISO 8601 time.",
    "schema": {"type": "string"},
}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A name for this call. A second one with the same key changes nothing and is answered as the first.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
_KNOWN: Final = {
    "name": "If-Match",
    "in": "header",
    "description": "The `ETag` of the version that was read: if it was changed since, nothing is written (409).",
    "schema": {"type": "string"},
}


def openapi(version: str) -> dict[str, Any]:
    """The whole description."""
    kinds = [kind for verb in verbs().values() for kind in (verb.arguments, verb.answer)] + [
        Failure,
        Asked,
        Answered,
    ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    found = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Any] = {
        f"/v1/banks/{{bank}}/{verb.name}": {
            "post": _verb(verb, found[id(verb.arguments)], found[id(verb.answer)])
        }
        for verb in verbs().values()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "skep", "version": version, "description": "A memory for AI agents, over HTTP."},
        "security": [{"bearer": []}],
        "paths": paths | _others(),
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {
                status: {
                    "description": text,
                    "content": {"application/json": {"schema": {"$ref": REF.format(name="Failure")}}},
                }
                for status, text in FAILURES.items()
            },
        },
    }


def _verb(verb: Verb, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    summary, _, rest = verb.about.partition("\n")
    parameters = [_BANK, _KEY if verb.writes else _AS_OF] + ([_KNOWN] if verb.name == "revise" else [])
    headers = (
        {"ETag": {"description": "The version of the memory.", "schema": {"type": "string"}}}
        if verb.answer is Memory
        else {}
    )
    return {
        "operationId": verb.name,
        "summary": summary,
        "description": f"{rest.strip()}\n\nNeeds the right `{verb.right}`: {RIGHTS[verb.right]}.".strip(),
        "tags": [verb.right],
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": {"schema": arguments}}},
        "responses": _responses({"application/json": {"schema": answer}}, headers),
    }


def _responses(content: Mapping[str, Any], headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done.", "content": content}
    if headers:
        good["headers"] = headers
    return {"200": good} | {status: {"$ref": f"#/components/responses/{status}"} for status in FAILURES}


def _get(
    name: str, summary: str, content: Mapping[str, Any], parameters: tuple[Any, ...] = ()
) -> dict[str, Any]:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "tags": ["server"],
            "parameters": list(parameters),
            "responses": _responses(content),
        }
    }


def _open(name: str, summary: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The same for an address that asks for no token."""
    found = _get(name, summary, content)
    found["get"]["security"] = []
    return found


def _count(name: str, text: str, most: int, least: int = 0) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _hub_call() -> dict[str, Any]:
    calls = (
        "status",
        "claim",
        "append",
        "read",
        "wait",
        "held",
        "erase",
        "put_part",
        "put_snapshot",
        "get_part",
    )
    call = {"name": "call", "in": "path", "required": True, "schema": {"type": "string", "enum": list(calls)}}
    answered = {"application/json": {"schema": {"$ref": REF.format(name="Answered")}}}
    asked = {"application/json": {"schema": {"$ref": REF.format(name="Asked")}}}
    return {
        "operationId": "hub_call",
        "summary": "A call of a replica on another machine, for which this bank is the hub; skep makes it.",
        "description": "Needs the right `read`, or `manage` for the calls that write; not for a token with a scope.",
        "tags": ["server"],
        "parameters": [_BANK, call],
        "requestBody": {"required": True, "content": asked},
        "responses": _responses(answered),
    }


def _others() -> dict[str, Any]:
    plain = {"application/json": {"schema": {"type": "object"}}}
    events = {"$ref": REF.format(name="Event")}
    log = {
        "type": "object",
        "properties": {"events": {"type": "array", "items": events}, "position": {"type": "integer"}},
        "required": ["events", "position"],
    }
    after = _count("after", "The position up to which everything is known.", 10**18 - 1)
    one = "/v1/banks/{bank}"
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    names = {"application/json": {"schema": {"type": "array", "items": {"type": "string"}}}}
    denials = {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}}
    return {
        "/v1/banks": _get("list_banks", "The names of the banks that the token opens.", names),
        "/v1/me": _get("me", "What the token opens.", plain),
        "/v1/spread": _get(
            "spread",
            "How far the events of each actor have come among the banks that the token opens.",
            plain,
        ),
        "/v1/denials": _get("list_denials", "Calls that were turned away, newest first.", denials),
        "/v1/openapi.json": _get("describe", "This description.", plain),
        "/metrics": _get("metrics", "Counts for Prometheus.", {"text/plain": {"schema": {"type": "string"}}}),
        f"{one}/usage": _get(
            "usage",
            "The recalls since the server started: asked, likely, silent and repeated ones.",
            plain,
            (_BANK,),
        ),
        f"{one}/events": _get(
            "read_events",
            "The log after a position, in the order of arrival.",
            {"application/json": {"schema": log}},
            (_BANK, after, _count("limit", "At most this many events.", 10_000, 1)),
        ),
        f"{one}/hub/{{call}}": {"post": _hub_call()},
        f"{one}/changes": _get(
            "follow_changes",
            f"Server-sent events, one per change; a comment in {KEEPALIVE:g} silent seconds. `Last-Event-ID` resumes.",
            stream,
            (_BANK, after),
        ),
        "/health/live": _open("live", "Answers as soon as the process runs; asks for no token.", plain),
        "/health/ready": _open("ready", "Answers 200 when every bank can be read; asks for no token.", plain),
    }
