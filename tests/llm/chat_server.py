"""A server that speaks the dialects of OpenAI, Anthropic, Gemini and Ollama, whole and streamed, and fails on demand.

The shapes are those of the services' published references. `says` holds the answers, the last one again and again; a
fault takes the place of an answer.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Busy(NamedTuple):
    """An answer such as 429."""

    status: int = 429
    retry_after: str | None = None
    body: str = '{"error": {"message": "slow down"}}'


class Raw(NamedTuple):
    """Bytes as they are, with status 200."""

    body: bytes


class Cut(NamedTuple):
    """The connection breaks in the middle of an answer."""

    text: str = "half of an answer and"


class Slow(NamedTuple):
    """An answer that comes byte by byte, and would take minutes."""

    text: str = "x" * 10_000


class Reset(NamedTuple):
    """The connection is reset before an answer."""


Turn = str | Busy | Raw | Cut | Slow | Reset


class ChatServer:
    """Answers on a port of this machine."""

    def __init__(self) -> None:
        self.says: list[Turn | Callable[[str], str]] = ["fine"]
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.stopped = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.asked.append({"path": self.path, **body})
                server.headers.append({k.lower(): v for k, v in self.headers.items()})
                server.answer(self, body)

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, to: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        to.close_connection = True
        turn = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if callable(turn) and not isinstance(turn, str):
            turn = turn(prompt_of(to.path, body))
        if isinstance(turn, Reset):
            to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            to.connection.close()
            to.wfile = open("/dev/null", "wb")  # noqa: SIM115 - what is flushed after the reset goes nowhere
            return
        if isinstance(turn, Busy):
            self.whole(to, turn.body.encode(), turn.status, turn.retry_after)
            return
        if isinstance(turn, Raw):
            self.whole(to, turn.body)
            return
        said = turn if isinstance(turn, str) else turn.text
        streamed = bool(body.get("stream")) or "streamGenerateContent" in to.path
        frames = list(stream_of(to.path, said) if streamed else [whole_of(to.path, said)])
        if isinstance(turn, Cut):
            sent = b"".join(frames)
            to.send_response(200)
            to.send_header("content-length", str(len(sent)))
            to.end_headers()
            to.wfile.write(sent[: len(sent) // 2] if not streamed else b"".join(frames[: len(frames) // 2]))
            to.wfile.flush()
            to.connection.shutdown(socket.SHUT_RDWR)
            return
        if isinstance(turn, Slow):
            sent = b"".join(frames)
            to.send_response(200)
            to.send_header("content-length", str(len(sent)))
            to.end_headers()
            for place in range(len(sent)):
                try:
                    to.wfile.write(sent[place : place + 1])
                except OSError:
                    return
                if self.stopped.wait(0.02):
                    return
            return
        self.whole(to, b"".join(frames))

    @staticmethod
    def whole(
        to: BaseHTTPRequestHandler, body: bytes, status: int = 200, retry_after: str | None = None
    ) -> None:
        to.send_response(status)
        to.send_header("content-length", str(len(body)))
        if retry_after is not None:
            to.send_header("retry-after", retry_after)
        with suppress(OSError):  # whoever asked may be gone
            to.end_headers()
            to.wfile.write(body)


def prompt_of(path: str, body: dict[str, Any]) -> str:
    """What was asked, standing instructions included."""
    if "/models/" in path:
        system = body.get("systemInstruction", {}).get("parts", [])
        parts = [part for turn in body["contents"] for part in turn["parts"]]
        return "\n\n".join(part["text"] for part in [*system, *parts])
    texts = [body["system"]] if body.get("system") else []
    return "\n\n".join([*texts, *(turn["content"] for turn in body["messages"])])


IN, OUT = 11, 7
"""The tokens that every answer says it took."""


def whole_of(path: str, text: str) -> bytes:
    if path.endswith("/messages"):
        usage = {"input_tokens": IN, "output_tokens": OUT}
        content = [{"type": "text", "text": text}]
        data: Any = {"type": "message", "content": content, "stop_reason": "end_turn", "usage": usage}
    elif "/models/" in path:
        data = gemini(text, "STOP")
    elif path.endswith("/api/chat"):
        data = {"message": {"role": "assistant", "content": text}, "done": True, "done_reason": "stop"}
        data |= {"prompt_eval_count": IN, "eval_count": OUT}
    else:
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": IN, "completion_tokens": OUT, "total_tokens": IN + OUT}
        data = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    return json.dumps(data).encode()


def gemini(text: str, ended: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}}
    if ended:
        candidate["finishReason"] = ended
    usage = {"promptTokenCount": IN, "candidatesTokenCount": OUT}
    return {"candidates": [candidate], "usageMetadata": usage}


def stream_of(path: str, text: str) -> Iterator[bytes]:
    words = [text[place : place + 8] for place in range(0, len(text), 8)]

    def event(data: Any, name: str | None = None) -> bytes:
        head = f"event: {name}\n" if name else ""
        return f"{head}data: {json.dumps(data)}\n\n".encode()

    if path.endswith("/messages"):
        message = {"usage": {"input_tokens": IN, "output_tokens": 1}}
        yield event({"type": "message_start", "message": message}, "message_start")
        yield event({"type": "ping"}, "ping")
        for word in words:
            delta = {"type": "text_delta", "text": word}
            yield event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
        delta = {"stop_reason": "end_turn"}
        yield event(
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": OUT}}, "message_delta"
        )
        yield event({"type": "message_stop"}, "message_stop")
    elif "/models/" in path:
        for word in words:
            yield event(gemini(word, None))
        yield event(gemini("", "STOP"))
    elif path.endswith("/api/chat"):
        for word in words:
            yield json.dumps({"message": {"content": word}, "done": False}).encode() + b"\n"
        end = {"message": {"content": ""}, "done": True, "done_reason": "stop"}
        yield json.dumps(end | {"prompt_eval_count": IN, "eval_count": OUT}).encode() + b"\n"
    else:
        for word in words:
            yield event({"choices": [{"delta": {"content": word}, "finish_reason": None}], "usage": None})
        yield event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        yield event({"choices": [], "usage": {"prompt_tokens": IN, "completion_tokens": OUT}})
        yield b"data: [DONE]\n\n"


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    served = ChatServer()
    thread = threading.Thread(target=served.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        served.stopped.set()
        served.server.shutdown()
        thread.join()
        served.server.server_close()
