"""What the official clients and suites say about us. Slow, and so left to the full run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from official import node, require

from skep.bank.bank import Bank

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SKEP = [str(Path(sys.executable).with_name("skep"))]


def wait_for(port: int) -> None:
    """Until something listens on a port."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


@pytest.fixture
def everything() -> Iterator[str]:
    """The address of a server with all fixtures, over HTTP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(HERE / "everything.py"), "--port", str(port)])
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("conformance-2025", ["--suite", "all", "--spec-version", "2025-06-18"]),
        ("conformance-2025", ["--suite", "all"]),
        ("conformance-2026", ["--suite", "all", "--spec-version", "2025-11-25"]),
        ("conformance-2026", ["--requirements", "2026-07-28"]),
    ],
)
def test_the_conformance_suite_has_no_complaints(
    everything: str, suite: str, options: list[str], tmp_path: Path
) -> None:
    program = require(suite) / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    done = subprocess.run(
        [node(), str(program), "server", "--url", everything, *options],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=540,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    total = re.search(r"Total: (\d+) passed", done.stdout)
    assert total is not None
    assert int(total[1]) > 20


@pytest.mark.parametrize("profile", ["default", "full", "reference", "search"])
def test_the_inspector_finds_nothing_to_object_to_in_our_schemas(profile: str, tmp_path: Path) -> None:
    program = require("inspector") / "node_modules" / ".bin" / "mcp-inspector"
    environ = {**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(node()).parent}:{os.environ['PATH']}"}

    done = subprocess.run(
        [node(), str(program), "--cli", "--method", "tools/list", "--strict", *SKEP,
         "--bank", str(tmp_path / "b.skep"), "mcp", "--profile", profile],
        env=environ, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "recall" in done.stdout or "search" in done.stdout


@pytest.mark.parametrize("kind", ["v1", "v2-legacy", "v2-auto", "v2-pin"])
def test_the_typescript_clients_call_every_tool(kind: str, tmp_path: Path) -> None:
    server = [*SKEP, "--bank", str(tmp_path / "b.skep"), "mcp", "--profile", "full"]

    done = subprocess.run(
        [node(), str(HERE / "node" / "session.mjs"), kind, str(require("clients")), *server],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert done.stdout.strip() == f"ok {kind}", done.stderr


def python_client(tmp_path: Path, mode: str) -> Any:
    mcp = pytest.importorskip("mcp", reason="the official Python SDK is not installed")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = [*SKEP, "--bank", str(tmp_path / "b.skep"), "mcp", "--profile", "full"]
    started = StdioServerParameters(command=server[0], args=server[1:], env=dict(os.environ))
    return mcp.Client(stdio_client(started), mode=mode)


@pytest.fixture
def over_http(tmp_path: Path) -> Iterator[str]:
    """The address of `skep mcp --http`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*SKEP, "--bank", str(tmp_path / "b.skep"), "mcp", "--profile", "full"]
    process = subprocess.Popen(
        [*command, "--http", "--no-auth", "--port", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
@pytest.mark.filterwarnings("ignore")
def test_the_python_client_works_in_every_era(
    mode: str, transport: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mcp = pytest.importorskip("mcp", reason="the official Python SDK is not installed")
    client = (
        mcp.Client(request.getfixturevalue("over_http"), mode=mode)
        if transport == "http"
        else python_client(tmp_path, mode)
    )

    async def story() -> None:
        from mcp.shared.exceptions import MCPError

        async with client:
            assert len((await client.list_tools()).tools) == 21
            stored = await client.call_tool("remember", {"text": "Ana likes tea"})
            known = re.findall(r"\[([^\]]+)\]", stored.content[0].text)[0]
            found = await client.call_tool("recall", {"query": "what does Ana like?"})
            assert known in found.content[0].text
            assert (await client.call_tool("remember", {})).is_error
            with pytest.raises(MCPError):
                await client.call_tool("no_such_tool", {})
            read = await client.read_resource(f"memory://{known}")
            assert "Ana likes tea" in read.contents[0].text
            assert len((await client.list_prompts()).prompts) == 2
            texts = [f"Note {number} by the Python client" for number in range(200)]
            calls = [client.call_tool("remember", {"text": text, "on_conflict": "ignore"}) for text in texts]
            answers = await asyncio.gather(*calls)
            assert len({answer.content[0].text for answer in answers}) == len(texts)
            progress: list[float] = []

            async def note(done: float, total: float | None, message: str | None) -> None:
                progress.append(done)

            await client.call_tool("maintain", {}, progress_callback=note)
            assert progress == sorted(set(progress))
            assert progress

    asyncio.run(story())


def test_four_servers_on_one_bank_take_five_hundred_calls_each(tmp_path: Path) -> None:
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    servers = [
        subprocess.Popen(
            [*SKEP, "--bank", str(tmp_path / "b.skep"), "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for number, server in enumerate(servers):
        calls = [
            {"name": "recall", "arguments": {"query": f"note {n}"}}
            if n % 5 == 4
            else {
                "name": "remember",
                "arguments": {"text": f"Note {n} of server {number}", "on_conflict": "ignore"},
            }
            for n in range(500)
        ]
        frames = [
            hello,
            *(
                {"jsonrpc": "2.0", "id": n + 1, "method": "tools/call", "params": c}
                for n, c in enumerate(calls)
            ),
        ]
        assert server.stdin is not None
        server.stdin.write("\n".join(json.dumps(frame) for frame in frames).encode() + b"\n")
        server.stdin.flush()
    answers = [server.communicate()[0].splitlines() for server in servers]

    for server, lines in zip(servers, answers, strict=True):
        assert server.returncode == 0
        results = {message["id"]: message for message in map(json.loads, lines)}
        assert set(results) == set(range(501))
        assert not [one for one in results.values() if "error" in one or one["result"].get("isError")]
    with Bank.open(tmp_path / "b.skep") as bank:
        assert bank.status().memories == 4 * 400
        assert [finding for finding in bank.doctor(deep=True) if finding.level == "error"] == []
