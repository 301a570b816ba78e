"""Agents and the command line work in a bank that lies at a hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def run(tmp_path: Path, home: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "XDG_DATA_HOME"}
    return subprocess.run(
        [sys.executable, "-m", "skep", *words],
        input=given,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**environ, "HOME": str(tmp_path / home)},
        check=False,
    )


def test_what_an_agent_remembers_over_mcp_a_command_on_another_machine_finds(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/hub#mode=hub"
    asked = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "remember", "arguments": {"text": "Staging runs PostgreSQL 16"}},
        },
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked)

    served = run(tmp_path, "server", "--bank", url, "mcp", given=lines)
    assert "stored" in served.stdout, served.stderr

    found = run(tmp_path, "laptop", "--bank", url, "search", "which postgres is on staging?")
    assert "PostgreSQL 16" in found.stdout, found.stderr


def test_a_file_and_a_hub_are_brought_in_step_and_told_apart(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/hub"
    for name, text in (("mine", "Staging runs PostgreSQL 16"), ("foreign", "Something else")):
        run(tmp_path, name, "--bank", f"{name}.skep", "init")
        run(tmp_path, name, "--bank", f"{name}.skep", "add", text)

    done = run(tmp_path, "mine", "--bank", "mine.skep", "sync", url)
    assert f"in step with {url}" in done.stdout, done.stderr

    refused = run(tmp_path, "foreign", "--bank", "foreign.skep", "sync", url)
    assert refused.returncode == 1
    assert "belongs to another bank" in refused.stderr
    joined = run(tmp_path, "foreign", "--bank", "foreign.skep", "sync", url, "--join")
    assert joined.returncode == 0, joined.stderr

    status = run(tmp_path, "mine", "--bank", "mine.skep", "sync", "status", url)
    assert "behind    2 events" in status.stdout, status.stdout + status.stderr
