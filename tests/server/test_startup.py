"""The first answer comes before anything heavy is imported or opened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROBE = """
import sys, io
from pathlib import Path
from skep.server.mcp.banks import Banks
from skep.server.mcp.profiles import build_server
from skep.server.mcp.loop import Connection

class Wire(io.BytesIO):
    def write(self, data):
        heavy = [name for name in ("numpy", "apsw", "skep.bank", "json", "asyncio", "logging") if name in sys.modules]
        print(heavy)
        return len(data)

banks = Banks(sys.argv[1], environ={}, start=Path("."))
frames = sys.stdin.buffer.read()
Connection(build_server("full", banks, version="1"), io.BytesIO(frames), Wire()).run()
"""


def test_initialize_and_the_lists_are_answered_without_numpy_bank_or_index(tmp_path: Path) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "prompts/list"},
    ]
    frames = "\n".join(json.dumps(message) for message in messages).encode()

    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path / "bank.skep")],
        input=frames,
        capture_output=True,
        check=True,
    )

    assert done.stdout.decode().split("\n") == ["[]", "[]", "[]", ""]
    assert list(tmp_path.iterdir()) == []


def test_standard_output_carries_frames_and_stray_prints_go_elsewhere(tmp_path: Path) -> None:
    code = """
import sys
from everything import build
from skep.server.mcp.loop import serve_stdio
server = build()
def noisy(call):
    print("stray")
    import os; os.system("echo child"); sys.stdout.write("more")
    return "quiet"
from skep.server.mcp.registry import Tool
server.registry.tools["noisy"] = Tool(name="noisy", title="n", description="n", schema={"type": "object"}, run=noisy)
serve_stdio(server)
"""
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "noisy"}},
    ]
    frames = "\n".join(json.dumps(message) for message in messages).encode()

    done = subprocess.run(
        [sys.executable, "-c", code], input=frames, capture_output=True, check=True, cwd=Path(__file__).parent
    )

    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    assert b"stray" in done.stderr
    assert b"child" in done.stderr


def test_the_command_serves_a_bank_and_makes_it_on_first_use(tmp_path: Path) -> None:
    call = {"name": "remember", "arguments": {"text": "Ana likes tea", "on_conflict": "ignore"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    frames = "\n".join(json.dumps(message) for message in messages).encode()

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from skep.cli import main; main()",
            "--bank",
            str(tmp_path / "b.skep"),
            "mcp",
        ],
        input=frames,
        capture_output=True,
        check=True,
    )

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0]["result"]["serverInfo"]["name"] == "skep"
    assert answers[1]["result"]["content"][0]["text"].startswith("stored [")
    assert (tmp_path / "b.skep").exists()
