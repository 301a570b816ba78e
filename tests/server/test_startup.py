"""The first answer comes before anything heavy is imported or opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from skep.bank.bank import Bank
from skep.server.mcp.start import Plain, read_plain

PROBE = """
import sys, io
from pathlib import Path
from skep.server.mcp.start import Banks
from skep.server.mcp.tool_profiles import build_server
from skep.server.mcp.stdio import Connection

class Wire(io.BytesIO):
    def write(self, data):
        heavy = [name for name in ("numpy", "skep.bank.bank", "asyncio", "logging") if name in sys.modules]
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


USED = """
import sys
from skep.__main__ import main
sys.argv[0] = "skep"
main()
print(*(name for name in {names!r} if name in sys.modules), file=sys.stderr)
"""
IDLE = (
    "click",
    "numpy.ma",
    "skep.lifecycle",
    "difflib",
    "asyncio",
    "starlette",
)


class Loaded(NamedTuple):
    """What a fresh process of a command printed, and which of some modules it had loaded when it ended."""

    printed: str
    modules: set[str]


def loaded(names: tuple[str, ...], *words: str, given: bytes = b"") -> Loaded:
    """Run a command line."""
    done = subprocess.run(
        [sys.executable, "-c", USED.format(names=names), *words],
        input=given,
        capture_output=True,
        check=True,
    )
    return Loaded(done.stdout.decode(), set(done.stderr.decode().splitlines()[-1].split()))


def used(bank: Path, names: tuple[str, ...], *words: str, given: bytes = b"") -> list[str]:
    """Which of the modules a command on a bank loads."""
    return sorted(loaded(names, "--bank", str(bank), *words, given=given).modules)


def asked(query: str) -> bytes:
    """A session in which one question is asked."""
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "recall", "arguments": {"query": query}},
        },
    ]
    return "\n".join(json.dumps(message) for message in messages).encode()


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with Bank.open(tmp_path / "bank.skep") as bank:
        bank.remember_many([f"Server {number} stands in rack {number % 7}" for number in range(300)])
        bank.recall("server")
    return tmp_path / "bank.skep"


def test_the_first_recall_loads_nothing_it_does_not_need(filled: Path) -> None:
    assert used(filled, (*IDLE, "numpy"), "mcp", given=asked("gateway of Ana")) == ["numpy"]


SPARED = ("difflib", "numpy.ma", "skep.lifecycle", "asyncio")


def test_a_search_loads_numpy_and_what_it_answers_with(filled: Path) -> None:
    assert loaded((*SPARED, "numpy"), "--bank", str(filled), "search", "gateway of Ana").modules == {"numpy"}


def test_a_version_is_told_without_the_library_that_reads_command_lines() -> None:
    from click.testing import CliRunner

    from skep.cli.app import app

    told = loaded(("click", "msgspec"), "--version")

    assert told.printed == CliRunner().invoke(app, ["--version"], prog_name="skep").output
    assert told.modules == set()


def test_a_hook_before_a_prompt_loads_no_more_than_a_recall(filled: Path) -> None:
    given = {"hook_event_name": "UserPromptSubmit", "prompt": "Which rack does server 17 stand in?"}
    names = ("click", "urllib.request", *SPARED)
    code = (
        "import sys; from skep.integrations.hooks import main; main(sys.argv[1:]);"
        f" print(*(name for name in {names!r} if name in sys.modules), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "claude-code", "--bank", str(filled)],
        input=json.dumps(given).encode(),
        capture_output=True,
        check=True,
    )

    assert b"Server 17 stands in rack 3" in done.stdout
    assert done.stderr.split() == []


def test_a_plain_command_line_is_read_as_the_full_reader_would(tmp_path: Path) -> None:
    assert read_plain(["mcp"]) == Plain(None, "default")
    assert read_plain(["--bank", "a", "mcp", "--bank", "b"]) == Plain("b", "default")
    assert read_plain(["--bank=a", "mcp", "--profile", "full"]) == Plain("a", "full")
    for words in (
        ["mcp", "--http"],
        ["mcp", "--profile", "none"],
        ["mcp", "--profile"],
        ["mcp", "mcp"],
        ["mcp", "--help"],
        ["--profile", "full", "mcp"],
        ["search", "mcp"],
        ["--bank", "mcp"],
        [],
    ):
        assert read_plain(words) is None, words


def test_both_readers_start_the_same_server(filled: Path) -> None:
    quick = used(filled, ("click",), "mcp", "--profile", "full", given=asked("rack"))
    judged = used(filled, ("click",), "mcp", "--profile", "full", "--judge", "true", given=asked("rack"))

    assert (quick, judged) == ([], ["click"])


def test_a_judge_that_is_no_command_line_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "skep", "--bank", str(tmp_path / "b.skep"), "mcp"],
        env={**os.environ, "SKEP_JUDGE": "claude 'oops"},
        input=b"",
        capture_output=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.decode().startswith("skep: the judge")
    assert b"Traceback" not in done.stderr


def test_standard_output_carries_frames_and_stray_prints_go_elsewhere(tmp_path: Path) -> None:
    code = """
import sys
from everything import build
from skep.server.mcp.stdio import serve_stdio
server = build()
def noisy(call):
    print("stray")
    import os; os.system("echo child"); sys.stdout.write("more")
    return "quiet"
from skep.server.mcp.tool_calls import Tool
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
            "from skep.cli.app import main; main()",
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
