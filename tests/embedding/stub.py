"""A service that embeds, on this machine: a real HTTP server that answers as the services do."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from skep.embedding.kept_connection import CONNECTIONS

Reply = tuple[int, dict[str, str], Any]
KEY = "secret-key"


class Stub:
    """Answers like a service, after a script of replies that are played first."""

    def __init__(self) -> None:
        self.dim = 4
        self.connections = 0
        self.script: list[Reply] = []
        self.always: Reply | None = None
        """What every request is answered with, while it is set."""
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections stay open, as those of the services do

            def setup(self) -> None:
                stub.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.requests.append((self.path, dict(self.headers), body))
                status, headers, reply = stub.reply(self.path, body)
                if status == 0:  # hang up without a word
                    self.close_connection = True
                    return
                raw = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def reply(self, path: str, body: Any) -> Reply:
        if self.script:
            return self.script.pop(0)
        return self.always or self.answer(path, body)

    def vector(self, text: str) -> list[float]:
        return [float(len(text)), 1.0, *([0.0] * (self.dim - 2))]

    def answer(self, path: str, body: Any) -> Reply:
        if path.endswith("/embeddings"):
            rows = [{"index": i, "embedding": self.vector(t)} for i, t in enumerate(body["input"])]
            return 200, {}, {"data": rows[::-1]}
        if path.endswith(":batchEmbedContents"):
            texts = [request["content"]["parts"][0]["text"] for request in body["requests"]]
            return 200, {}, {"embeddings": [{"values": self.vector(text)} for text in texts]}
        if path.endswith("/embed") and "texts" in body:
            return 200, {}, {"embeddings": {"float": [self.vector(text) for text in body["texts"]]}}
        if path.endswith("/rerank"):
            scored = [{"index": i, "relevance_score": 1 / len(t)} for i, t in enumerate(body["documents"])]
            ordered = sorted(scored, key=lambda one: -one["relevance_score"])
            return 200, {}, {"results" if "top_n" in body else "data": ordered}
        return 200, {}, {"embeddings": [self.vector(text) for text in body["input"]]}


@contextlib.contextmanager
def serving() -> Iterator[Stub]:
    """A stub that answers until the block ends."""
    stub = Stub()
    thread = threading.Thread(target=stub.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        CONNECTIONS.close()
        stub.server.shutdown()
        stub.server.server_close()
        thread.join()
