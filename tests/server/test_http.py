"""Streamable HTTP: who may come in, and what each era gets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the http extra is not installed")

import uvicorn
from click.testing import CliRunner
from everything import build
from mcp_wire import META

from skep.bank.bank import Bank
from skep.cli.clients import mcp
from skep.errors import ConfigError
from skep.server.mcp.http import (
    MAX_SESSIONS,
    SESSION_SECONDS,
    ImpatientProtocol,
    create_app,
    refusal,
    serve_http,
)
from skep.server.mcp.protocol import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from skep.server.mcp.start import Banks
from skep.server.mcp.tool_profiles import build_server

TOKEN = "let-me-in-0123456789"
BASE = {
    "host": "127.0.0.1:8420",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "authorization": f"Bearer {TOKEN}",
}


class Answer:
    """One HTTP response, whole."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The messages in it, whether plain or streamed."""
        if self.headers["content-type"].startswith("text/event-stream"):
            return [
                json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: ")
            ]
        return [json.loads(self.body)]


class Web:
    """Speaks to the application without a socket."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def send(
        self,
        body: object = None,
        *,
        method: str = "POST",
        until: Callable[[Answer], bool] | None = None,
        on_body: Callable[[Answer], Awaitable[None]] | None = None,
        **headers: str | None,
    ) -> Answer:
        """Send one request; with `until` the client hangs up as soon as that is true."""
        given = {**BASE, **{name.replace("_", "-"): value for name, value in headers.items()}}
        raw = [(name.encode(), value.encode()) for name, value in given.items() if value is not None]
        scope = {"type": "http", "method": method, "path": "/mcp", "raw_path": b"/mcp", "query_string": b"",
                 "headers": raw, "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 8420)}  # fmt: skip
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer, gone, sent = Answer(), asyncio.Event(), False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": data if method == "POST" else b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def receive_part(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")
                if on_body is not None:
                    await on_body(answer)
                if until is not None and until(answer):
                    gone.set()

        await self.app(scope, receive, receive_part)
        return answer

    async def ask(self, method: str, params: dict[str, Any] | None = None, **headers: str | None) -> Answer:
        """Send one JSON-RPC request."""
        return await self.send(
            {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}, **headers
        )

    async def initialize(self, **capabilities: Any) -> str:
        """Open a session; its id."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }
        return (await self.ask("initialize", params)).headers["mcp-session-id"]

    async def stateless(
        self, method: str, params: dict[str, Any] | None = None, **headers: str | None
    ) -> Answer:
        """Send one stateless request with its headers."""
        given = {"mcp_protocol_version": "2026-07-28", "mcp_method": method, **headers}
        return await self.ask(method, {**(params or {}), "_meta": META}, **given)


def web(**options: Any) -> Web:
    return Web(create_app(build(), **{"token": TOKEN, **options}))


def test_a_session_is_opened_used_and_closed() -> None:
    async def story() -> None:
        client = web()
        session = await client.initialize()
        listed = await client.ask("tools/list", mcp_session_id=session)
        assert "add" in [tool["name"] for tool in listed.frames[0]["result"]["tools"]]
        assert (await client.send(method="DELETE", mcp_session_id=session)).status == 200
        assert (await client.ask("tools/list", mcp_session_id=session)).status == 404

    asyncio.run(story())


def test_without_a_session_the_client_is_told_to_open_one() -> None:
    assert asyncio.run(web().ask("tools/list")).status == 400


def test_progress_turns_the_answer_into_a_stream() -> None:
    async def story() -> list[dict[str, Any]]:
        client = web()
        session = await client.initialize()
        params = {"name": "test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": 1}}
        return (await client.ask("tools/call", params, mcp_session_id=session)).frames

    *notes, last = asyncio.run(story())
    assert [note["params"]["progress"] for note in notes] == [0, 50, 100]
    assert last["result"]["content"]


def test_a_question_goes_out_on_the_stream_and_its_answer_comes_in_by_post() -> None:
    async def story() -> dict[str, Any]:
        client = web()
        session = await client.initialize(sampling={})

        async def reply(answer: Answer) -> None:
            question = answer.frames[-1] if answer.body else {}
            if question.get("method") == "sampling/createMessage":
                result = {"content": {"type": "text", "text": "hello"}}
                sent = await client.send(
                    {"jsonrpc": "2.0", "id": question["id"], "result": result}, mcp_session_id=session
                )
                assert sent.status == 202

        params = {"name": "test_sampling", "arguments": {"prompt": "hi"}}
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
        return (await client.send(body, mcp_session_id=session, on_body=reply)).frames[-1]

    assert asyncio.run(story())["result"]["content"][0]["text"] == "LLM response: hello"


def test_a_subscription_hears_on_the_standing_stream() -> None:
    async def story() -> list[dict[str, Any]]:
        client = web()
        session = await client.initialize()
        await client.ask("resources/subscribe", {"uri": "test://watched-resource"}, mcp_session_id=session)
        standing = asyncio.create_task(
            client.send(method="GET", mcp_session_id=session, until=lambda answer: b"updated" in answer.body)
        )
        await asyncio.sleep(0)
        while not standing.done():
            await client.ask("tools/call", {"name": "touch", "arguments": {}}, mcp_session_id=session)
        return (await standing).frames

    assert asyncio.run(story())[0]["params"] == {"uri": "test://watched-resource"}


def test_a_stateless_request_is_answered_by_itself() -> None:
    answer = asyncio.run(web().stateless("server/discover"))

    assert "mcp-session-id" not in answer.headers
    assert answer.frames[0]["result"]["supportedVersions"] == ["2026-07-28"]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"mcp_method": "tools/list"}, 400, HEADER_MISMATCH),
        ({"mcp_method": None}, 400, HEADER_MISMATCH),
        ({"mcp_protocol_version": "2025-11-25"}, 400, HEADER_MISMATCH),
        ({"mcp_name": "subtract"}, 400, HEADER_MISMATCH),
        ({"mcp_name": "=?base64?YWRk?="}, 200, None),
        ({"mcp_name": "=?base64?YWR?="}, 400, HEADER_MISMATCH),
        ({"mcp_name": "add"}, 200, None),
    ],
)
def test_headers_must_say_what_the_body_says(
    headers: dict[str, str | None], status: int, code: int | None
) -> None:
    given = {"mcp_name": "add", **headers}
    answer = asyncio.run(web().stateless("tools/call", {"name": "add", "arguments": {"a": 1}}, **given))

    assert answer.status == status
    assert answer.frames[0].get("error", {}).get("code") == code


@pytest.mark.parametrize(
    ("method", "meta", "status", "code"),
    [
        ("nonsense", META, 404, METHOD_NOT_FOUND),
        ("initialize", META, 404, METHOD_NOT_FOUND),
        ("server/discover", {}, 400, INVALID_PARAMS),
        (
            "tools/list",
            {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"},
            400,
            UNSUPPORTED_VERSION,
        ),
    ],
)
def test_a_refusal_has_the_status_of_its_error(
    method: str, meta: dict[str, Any], status: int, code: int
) -> None:
    version = meta.get("io.modelcontextprotocol/protocolVersion", "2026-07-28")
    answer = asyncio.run(web().ask(method, {"_meta": meta}, mcp_protocol_version=version, mcp_method=method))

    assert (answer.status, answer.frames[0]["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic x"}, 401),
        ({"host": "evil.example"}, 403),
        ({"host": None}, 403),
        ({"host": "[::1"}, 400),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"accept": "text/html"}, 406),
        ({"content_type": "text/plain"}, 415),
    ],
)
def test_only_its_owner_comes_in(headers: dict[str, str | None], status: int) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    assert asyncio.run(web().ask("initialize", params, **headers)).status == status


def test_rubbish_is_refused_and_too_much_is_not_read() -> None:
    assert asyncio.run(web().send(b"{nope")).status == 400
    assert asyncio.run(web().send(b"[]")).status == 400
    assert asyncio.run(web().send(b"x" * (9 * 1024 * 1024))).status == 413


def test_no_token_is_asked_for_only_where_nobody_else_can_knock() -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    assert asyncio.run(web(token=None).ask("initialize", params, authorization=None)).status == 200
    with pytest.raises(ConfigError, match="loopback"):
        serve_http(build(), host="0.0.0.0", token=None)


def test_an_allowed_origin_may_come_from_elsewhere() -> None:
    headers = {"host": "localhost", "origin": "https://chat.example"}
    assert refusal(headers, token=None, hosts=("localhost",), origins=("https://chat.example",)) is None


def test_a_stateless_subscription_is_acknowledged_first() -> None:
    async def story() -> list[dict[str, Any]]:
        client = web()
        wanted = {
            "notifications": {"resourceSubscriptions": ["test://watched-resource"], "toolsListChanged": True}
        }
        body = {
            "jsonrpc": "2.0",
            "id": 8,
            "method": "subscriptions/listen",
            "params": {**wanted, "_meta": META},
        }
        listening = asyncio.create_task(
            client.send(
                body,
                mcp_protocol_version="2026-07-28",
                mcp_method="subscriptions/listen",
                until=lambda answer: b"updated" in answer.body,
            )
        )
        while not listening.done():
            await client.stateless("tools/call", {"name": "touch", "arguments": {}}, mcp_name="touch")
        return (await listening).frames

    first, second, *_ = asyncio.run(story())
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == {"resourceSubscriptions": ["test://watched-resource"]}
    assert second["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 8}


def test_a_subscriber_over_http_hears_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        known = bank.remember("Ana likes tea").memory.id
    banks = Banks(str(path), environ={}, start=tmp_path, local=False)
    server = build_server("default", banks, version="1", watch_seconds=0.01)
    revise = "import sys; from skep import Bank\nwith Bank.open(sys.argv[1]) as b: b.revise(sys.argv[2], text='new')"

    async def story() -> list[dict[str, Any]]:
        wanted = {"notifications": {"resourceSubscriptions": [f"memory://{known}"]}, "_meta": META}
        body = {"jsonrpc": "2.0", "id": 8, "method": "subscriptions/listen", "params": wanted}
        changed = False

        async def change(answer: Answer) -> None:
            nonlocal changed
            if not changed and b"acknowledged" in answer.body:
                changed = True
                await asyncio.to_thread(
                    subprocess.run, [sys.executable, "-c", revise, str(path), known], check=True
                )

        answer = await Web(create_app(server, token=TOKEN)).send(
            body,
            mcp_protocol_version="2026-07-28",
            mcp_method="subscriptions/listen",
            on_body=change,
            until=lambda answer: b"updated" in answer.body,
        )
        return answer.frames

    try:
        frames = asyncio.run(story())
    finally:
        server.close()
        banks.close()
    assert frames[1]["params"]["uri"] == f"memory://{known}"


@pytest.mark.parametrize("token", ["", "   ", "short", "sixteen letters with spaces"])
def test_a_token_that_is_no_protection_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="at least 16 characters"):
        serve_http(build(), token=token)


def test_a_server_answers_to_the_names_it_was_given() -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    client = web(hosts=("localhost", "Memory.example"))

    assert asyncio.run(client.ask("initialize", params, host="memory.example:80")).status == 200
    assert asyncio.run(client.ask("initialize", params, host="other.example")).status == 403


@pytest.mark.parametrize("identity", [[1], {"a": 1}, None, True, 1.5])
def test_a_cancellation_of_no_id_is_refused_in_words(identity: object) -> None:
    async def story() -> Answer:
        client = web()
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": identity}}
        return await client.send(told, mcp_session_id=await client.initialize())

    answer = asyncio.run(story())
    assert (answer.status, answer.frames[0]["error"]["code"]) == (400, INVALID_REQUEST)


def test_an_idle_session_ends_and_one_in_use_does_not() -> None:
    now = 0.0

    async def story() -> list[int]:
        nonlocal now
        client = web(clock=lambda: now)
        idle, used = await client.initialize(), await client.initialize()
        now = SESSION_SECONDS * 0.9
        await client.ask("ping", mcp_session_id=used)
        now = SESSION_SECONDS * 1.1
        return [(await client.ask("ping", mcp_session_id=one)).status for one in (idle, used)]

    assert asyncio.run(story()) == [404, 200]


def test_too_many_sessions_push_out_the_one_that_waited_longest() -> None:
    async def story() -> list[int]:
        client = web()
        first, second = await client.initialize(), await client.initialize()
        await client.ask("ping", mcp_session_id=first)
        for _ in range(MAX_SESSIONS - 1):
            await client.initialize()
        return [(await client.ask("ping", mcp_session_id=one)).status for one in (first, second)]

    assert asyncio.run(story()) == [200, 404]


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_connection_that_never_finishes_its_request_is_closed(sent: bytes) -> None:
    class Hasty(ImpatientProtocol):
        seconds = 0.05

    async def story() -> bytes:
        config = uvicorn.Config(create_app(build(), token=TOKEN), port=0, http=Hasty, log_level="error")
        server = uvicorn.Server(config)
        config.load()
        listening = await asyncio.get_running_loop().create_server(
            lambda: Hasty(config=config, server_state=server.server_state, app_state={}), "127.0.0.1", 0
        )
        async with listening:
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            writer.write(sent)
            try:
                return await asyncio.wait_for(reader.read(), 30)
            finally:
                writer.close()

    assert asyncio.run(story()) == b""


def test_a_recall_sent_after_a_remember_sees_it_before_that_is_answered(tmp_path: Path) -> None:
    banks = Banks(str(tmp_path / "bank.skep"), environ={}, start=tmp_path, local=False)
    server = build_server("default", banks, version="1")

    async def story() -> list[str]:
        client = Web(create_app(server, token=TOKEN))
        session = await client.initialize()
        found: list[str] = []
        for number in range(5):
            word = f"drink{number}"
            calls = [("remember", {"text": f"Ana likes {word}"}), ("recall", {"query": word})]
            bodies = [
                {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": {"name": name, "arguments": given}}
                for name, given in calls
            ]  # fmt: skip
            _, answer = await asyncio.gather(*(client.send(one, mcp_session_id=session) for one in bodies))
            found.append(answer.frames[-1]["result"]["content"][0]["text"])
        return found

    try:
        texts = asyncio.run(story())
    finally:
        server.close()
        banks.close()
    assert [f"drink{number}" in text for number, text in enumerate(texts)] == [True] * 5


def test_a_token_variable_that_is_set_but_empty_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_MCP_TOKEN", "")
    for arguments in (["--http"], ["--http", "--token", ""]):
        result = CliRunner().invoke(mcp, arguments)

        assert isinstance(result.exception, ConfigError), result.output
        assert "blank" in str(result.exception)
