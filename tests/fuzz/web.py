"""The doors that a network reaches: the HTTP API of `skep serve` and MCP over HTTP, on a real server.

Besides what every door promises: no answer says that the server failed, a token that may only read changes nothing, and
a token with a scope is never told what lies outside of it.
"""

from __future__ import annotations

import http.client
import json
import socket
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec
from tests.fuzz.inputs import json_of, text_of, value_of
from tests.server.http_server import Running

from skep.bank.bank import Bank
from skep.client.verb_table import verbs
from skep.model import Scope

ELSEWHERE = "zebraquartz"
"""A word of a memory that lies outside the scope of the token `ana`."""
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
}
COUNTS_USES = ("recall", "rank", "search_memory", "recommend")
"""Verbs of the right `read` that note what was used."""


@cache
def schema_of(verb: str) -> dict[str, Any]:
    """The form of the arguments of a verb."""
    return msgspec.json.schema(verbs()[verb].arguments)


class Web:
    """A server with one bank and three tokens: of its owner, of a reader, and of somebody with a scope."""

    def __init__(self, folder: Path, texts: tuple[str, ...]) -> None:
        self.path = folder / "served" / "team.skep"
        self.path.parent.mkdir()
        with Bank.open(self.path) as bank:
            self.ids = [one.memory.id for one in bank.remember_many(texts)]
            self.ids.append(bank.remember(f"Bob keeps {ELSEWHERE}", scope=Scope(user="bob")).memory.id)
            self.ids.append(bank.remember("Ana keeps bees", scope=Scope(user="ana")).memory.id)
        self.running = Running(self.path.parent).__enter__()
        add = self.running.tokens.add
        self.reader, _ = add("reader", rights=("read",), rate=1e6)
        rights = ("read", "write", "erase")
        self.ana, _ = add("ana", rights=rights, scope=Scope(user="ana"), rate=1e6)
        self._line = http.client.HTTPConnection("127.0.0.1", self.running.port, timeout=60)
        self._session = ""

    def close(self) -> None:
        """End the server."""
        self._line.close()
        self.running.__exit__()

    def stored(self) -> bytes:
        """Every byte of the bank."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return b"".join(file.read_bytes() for file in files if file.exists())

    def ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes, str]:
        """One request on the line that is kept; what streams is let go after its head."""
        given = {
            name: value.encode("latin-1", "replace").decode("latin-1") for name, value in headers.items()
        }
        given = {
            name: "".join(c for c in value if c >= " " and c != "\x7f").strip()
            for name, value in given.items()
        }
        try:
            self._line.request(method, path, body, given)
            answer = self._line.getresponse()
        except (ConnectionError, http.client.HTTPException):  # the server lets go of a line that was idle
            self._line.close()
            self._line.request(method, path, body, given)
            answer = self._line.getresponse()
        session = answer.headers.get("mcp-session-id", "")
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            self._line.close()
            return answer.status, b"", session
        return answer.status, answer.read(), session

    def fitting(self, rng: Random, form: dict[str, Any], known: dict[str, Any]) -> Any:
        """A value that a schema allows, or nearly."""
        if rng.random() < 0.02:
            return value_of(rng)
        if "$ref" in form:
            return self.fitting(rng, known[form["$ref"].rpartition("/")[2]], known)
        if "anyOf" in form:
            return self.fitting(rng, rng.choice(form["anyOf"]), known)
        if "enum" in form:
            return rng.choice(form["enum"])
        match form.get("type"):
            case "string":
                text = rng.choice(self.ids) if rng.random() < 0.3 else text_of(rng)
                # half of a pair makes the whole body malformed, so most texts have none
                return text if rng.random() < 0.1 else text.encode("utf-8", "ignore").decode()
            case "integer":
                return rng.choice((0, 1, 2, 5, 100, -1, 1 << 31, 1 << 64))
            case "number":
                return rng.choice((0, 0.5, 1, -1, 1e308, 1.7e9))
            case "boolean":
                return rng.random() < 0.5
            case "array":
                return [self.fitting(rng, form.get("items", {}), known) for _ in range(rng.randrange(4))]
            case "object":
                fields = form.get("properties", {})
                needed = form.get("required", ())
                return {
                    name: self.fitting(rng, part, known)
                    for name, part in fields.items()
                    if name in needed or rng.random() < 0.2
                }
            case _:
                return value_of(rng, 1)

    def api(self, rng: Random) -> int:
        """A call of a verb, or a request at another address, with the token of one of the three."""
        kind = rng.random()
        if kind < 0.03:
            return self.noise(rng)
        who, token = rng.choice((("owner", self.running.owner), ("reader", self.reader), ("ana", self.ana)))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        if rng.random() < 0.2:
            name = rng.choice(("if-match", "idempotency-key", "content-type", "origin", "accept", "x-y"))
            headers[name] = rng.choice(
                ("*", '"1"', "a", "application/json; charset=utf-16", text_of(rng, 60))
            )[:4000]
        name = rng.choice(list(verbs()))
        if kind < 0.8:
            schema = schema_of(name)
            body = json_of(rng, self.fitting(rng, schema, schema["$defs"]), 0.15)
            method, path = "POST", f"/v1/banks/team/{name}"
            if rng.random() < 0.1:
                path += f"?as_of={quote(text_of(rng, 30)[:100].encode('utf-8', 'replace'))}"
        else:
            method = rng.choice(("GET", "POST", "DELETE", "PUT", "HEAD"))
            there = (
                "/",
                "/metrics",
                "/v1/me",
                "/v1/banks",
                "/v1/denials",
                "/health/ready",
                "/v1/banks/team/usage",
            )
            more = ("/v1/banks/team/events", "/v1/banks/team/changes", "/v1/banks/team/hub/")
            path = rng.choice((*there, *more, "/assets/", "/v1/banks/"))
            if path.endswith("hub/"):
                path += rng.choice(("append", "read", "wait", "held", "snapshot", "erase", "x"))
            elif rng.random() < 0.5:
                path += quote(text_of(rng, 30)[:300].encode("utf-8", "replace"))
            if rng.random() < 0.5:
                path += f"?after={quote(text_of(rng, 9)[:60].encode('utf-8', 'replace'))}&limit={rng.randrange(-5, 99)}"
            asked = value_of(rng)
            asked = {"timeout": 0.0, **asked} if isinstance(asked, dict) else asked
            body = json_of(rng, asked) if method in ("POST", "PUT") else None
        reads = kind < 0.8 and verbs()[name].right == "read" and name not in COUNTS_USES
        still = who == "reader" and name not in COUNTS_USES if kind < 0.8 else False
        before = self.stored() if reads or still else b""
        status, told, _ = self.ask(method, path, body, headers)
        said = (who, method, path, body and body[:400], status, told[:300])
        if status >= 500:
            raise AssertionError(f"the server failed: {said!r}")
        if status >= 400 and method != "HEAD" and not told.strip():
            raise AssertionError(f"refused without a word: {said!r}")
        if before and self.stored() != before:
            raise AssertionError(f"a call that may only read wrote: {said!r}")
        if who == "ana" and ELSEWHERE.encode() in told and ELSEWHERE.encode() not in (body or b""):
            raise AssertionError(f"told what lies outside the scope: {said!r}")
        return len(body or b"") + len(path)

    def noise(self, rng: Random) -> int:
        """Bytes that are no request, or nearly; the server lives on."""
        head = b"POST /v1/banks/team/recall HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{}"
        data = bytearray(head)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data += text_of(rng, 200).encode("utf-8", "replace")
        with socket.create_connection(("127.0.0.1", self.running.port)) as line:
            line.sendall(data)
        status, _, _ = self.ask("GET", "/health/live", None, {})
        if status != 200:
            raise AssertionError(f"after {bytes(data)[:300]!r} the server says {status}")
        return len(data)

    def mcp(self, rng: Random, asked: Any, frame: bytes, *, stateless: bool) -> int:
        """A message to MCP over HTTP, in a session or without one; now and then with headers that do not fit."""
        headers = {
            "authorization": f"Bearer {self.running.owner}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if stateless:
            named = asked.get("params", {}).get("name", "") if isinstance(asked, dict) else ""
            headers["mcp-protocol-version"] = "2026-07-28"
            headers["mcp-method"] = str(asked.get("method", "")) if isinstance(asked, dict) else ""
            headers["mcp-name"] = str(named)[:2000]
        else:
            headers["mcp-session-id"] = self._session or self._initialized(headers)
        if rng.random() < 0.1:
            name = rng.choice(
                ("mcp-session-id", "mcp-protocol-version", "mcp-method", "accept", "last-event-id")
            )
            headers[name] = rng.choice(("2026-07-28", "tools/call", text_of(rng, 40)))[:2000]
        status, told, _ = self.ask("POST", rng.choice(("/mcp", "/mcp/team")), frame, headers)
        if status == 404 and not stateless:
            self._session = ""
        if status >= 500 or b"-32603" in told:
            raise AssertionError(f"the server failed: {status} {frame[:500]!r} {told[:300]!r}")
        return len(frame)

    def _initialized(self, headers: dict[str, str]) -> str:
        """A new session."""
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "f", "version": "1"},
        }
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        _, _, self._session = self.ask("POST", "/mcp/team", json.dumps(first).encode(), headers)
        return self._session
