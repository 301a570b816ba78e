"""A model behind an address: the key goes nowhere else and is never told, and an answer has an end."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.lifecycle.endpoint import Server, behind

from skep.errors import ConfigError, LLMError
from skep.llm import language_model

KEY = "sk-very-secret"


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Generator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_redirect_does_not_carry_the_key_to_another_address() -> None:
    seen: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["authorization"])
            self.send_error(404)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    with serving(Elsewhere) as target:

        class Redirecting(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(302)
                self.send_header("location", target)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        with serving(Redirecting) as url, pytest.raises(LLMError, match="302"):
            behind(url, key=KEY).ask("hello", max_tokens=10)
    assert seen == []


def test_the_line_break_at_the_end_of_a_key_is_no_part_of_it(endpoint: Server) -> None:
    endpoint.says("fine")
    assert behind(endpoint.url, key=f" {KEY}\n").ask("hello", max_tokens=10).text == "fine"


@pytest.mark.parametrize("key", [f"{KEY}\nx-more: 1", f"{KEY}\u2026"])
def test_a_key_that_is_none_is_refused_and_not_told(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        behind("http://localhost:1/", key=key)
    assert KEY not in str(caught.value)


def test_what_may_be_a_key_in_the_address_is_not_told(endpoint: Server) -> None:
    url = f"{endpoint.url}?key={KEY}"
    endpoint.answers = [b"no JSON"]
    with pytest.raises(LLMError) as said:
        behind(url).ask("hello", max_tokens=10)
    with pytest.raises(LLMError) as failed:
        behind(f"http://127.0.0.1:1/?key={KEY}").ask("hello", max_tokens=10)
    with pytest.raises(ConfigError) as refused:
        behind(f"localhost/?key={KEY}")
    assert endpoint.url in str(said.value)
    assert all(KEY not in told for told in (str(said.value), str(failed.value), str(refused.value)))


def test_an_answer_that_does_not_end_is_not_read_to_its_end(
    endpoint: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_model, "LONGEST", 1000)
    endpoint.says("x" * 1000)
    with pytest.raises(LLMError, match="does not end") as said:
        behind(endpoint.url).ask("hello", max_tokens=10)
    assert 10 < said.value.tokens < 100
