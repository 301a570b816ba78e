"""A server that stands for a model behind an address."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from skep.llm.chat_services import OPENAI_CHAT
from skep.llm.language_model import LLM, CommandSource, ServiceSource


def behind(url: str, *, key: str | None = None, price_per_million: float = 0.0, timeout: float = 60.0) -> LLM:
    """The model behind an address; it does not wait between tries."""
    source = ServiceSource(OPENAI_CHAT, key, url)
    return LLM(source, "m", price=price_per_million, timeout=timeout, sleep=lambda _seconds: None)


def program(words: list[str]) -> LLM:
    """A program that stands for a model."""
    return LLM(CommandSource(words))


class Server:
    """A server that gives prepared answers, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[dict[str, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                endpoint.asked.append(json.loads(self.rfile.read(length)))
                answers = endpoint.answers
                body = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/chat/completions"

    def says(self, *texts: str, usage: object = None) -> None:
        self.answers = [
            json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode()
            for text in texts
        ]
