"""A client for the tests: it speaks raw frames to a connection in this process."""

from __future__ import annotations

import io
import json
import os
import threading
from typing import Any

from skep.server.mcp.session import Server
from skep.server.mcp.stdio import Connection

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}


class Client:
    """Writes frames to a server and reads what comes back, in order."""

    def __init__(self, server: Server, **options: Any) -> None:
        out_read, out_write = os.pipe()
        in_read, in_write = os.pipe()
        self._send = os.fdopen(out_write, "wb")
        self._receive = os.fdopen(in_read, "rb")
        self._ends = os.fdopen(out_read, "rb"), os.fdopen(in_write, "wb")
        connection = Connection(server, *self._ends, **options)
        self._thread = threading.Thread(target=connection.run, daemon=True)
        self._thread.start()
        self._id = 0
        self._early: list[dict[str, Any]] = []

    def raw(self, frame: bytes) -> None:
        """Send bytes as they are."""
        self._send.write(frame)
        self._send.flush()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        """The next message from the server."""
        line = self._receive.readline()
        assert line, "the server closed the connection"
        return json.loads(line)

    def start(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Ask without waiting; the id of the request."""
        self._id += 1
        self.send({"id": self._id, "method": method, "params": params or {}})
        return self._id

    def wait(self, identity: int) -> dict[str, Any]:
        """The response to a request; whatever comes before it is kept in `seen`."""
        while True:
            for index, message in enumerate(self._early):
                if message.get("id") == identity and "method" not in message:
                    return self._early.pop(index)
            self._early.append(self.read())

    @property
    def seen(self) -> list[dict[str, Any]]:
        """What the server said besides responses that were waited for."""
        return self._early

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask and wait for the response."""
        return self.wait(self.start(method, params))

    def initialize(
        self, version: str = "2025-11-25", capabilities: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Open a session."""
        answer = self.ask(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": capabilities or {},
                "clientInfo": {"name": "tests", "version": "1"},
            },
        )
        self.send({"method": "notifications/initialized"})
        return answer["result"]

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool in the session era."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        return answer.get("result") or answer

    def text(self, name: str, **arguments: Any) -> str:
        """The text that a tool answers with; fails if it is an error."""
        result = self.call(name, **arguments)
        assert not result.get("isError"), result
        return "\n".join(block["text"] for block in result["content"])

    def close(self) -> None:
        """Leave, and wait until the server has noticed."""
        self._send.close()
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()
        for end in (*self._ends, self._receive):
            end.close()


def run_frames(server: Server, frames: bytes, **options: Any) -> list[dict[str, Any]]:
    """Feed a whole conversation and return everything the server said."""
    out = io.BytesIO()
    Connection(server, io.BytesIO(frames), out, **options).run()
    return [json.loads(line) for line in out.getvalue().splitlines()]
