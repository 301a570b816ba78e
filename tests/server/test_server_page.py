"""The page on the server is true: what it says to type is typed, at a real `skep serve`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from skep import Client

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "server.md"


def test_the_demo_serves_a_sample_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "BROWSER": "true"}
    command = [sys.executable, "-m", "skep", "serve", "--demo", "--port", "0"]
    server = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        url = server.stderr.readline().split()[1]
        token = server.stderr.readline().removeprefix("token for this run: ").strip()
        with Client(url, token=token) as bank:
            assert bank.recall("which postgres version is on staging?")[0].memory.text.endswith(
                "PostgreSQL 16"
            )
            assert bank.pending_judgements()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        server.stderr.close()
    assert list(tmp_path.rglob("*.skep*")) == []


def test_what_the_page_says_to_type_works(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "skep", "serve", "team.skep", f"notes={tmp_path}/n.skep", "--port", port]
    server = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        said = [server.stderr.readline() for _ in range(5)][2:]
        assert said[0] == f"serving http://127.0.0.1:{port}/ with team, notes\n"
        token = said[1].removeprefix("token for this run: ").strip()
        assert said[2].strip().endswith(f"#token={token}")
        text = PAGE.read_text(encoding="utf-8").replace("8420", port)

        code = "\n".join(re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        told = subprocess.run(
            [sys.executable, "-c", f"TOKEN = {token!r}\n{code}"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert told.splitlines() == ["The staging database runs PostgreSQL 16", "infra ['revise']"]

        shell = [b for b in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "curl" in b]
        told = subprocess.run(
            ["bash", "-ec", shell[0]],
            env={**environ, "TOKEN": token},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert '"text":"The staging database runs PostgreSQL 16"' in told
        assert told.endswith('["team","notes"]')
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        server.stderr.close()
