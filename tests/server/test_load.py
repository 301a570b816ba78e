"""Many clients at once, and a server that is killed in between: what was acknowledged is there, once."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from skep import Bank
from skep.server.tokens import TokenFile


class Killed:
    """`skep serve` as a process of its own, started again after each kill, on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.token, _ = TokenFile(folder / "t.json").add("load", rights=("read", "write"), rate=1e6)
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "skep",
            "serve",
            "load.skep",
            "--port",
            str(self.port),
            "--tokens",
            "t.json",
        ]
        environ = {**os.environ, "HOME": str(self.folder)}
        self.process = subprocess.Popen(command, cwd=self.folder, env=environ, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Visitor(threading.Thread):
    """One client: writes under its own keys, and asks again with the same key until it is answered."""

    def __init__(self, server: Killed, name: int, writes: int) -> None:
        super().__init__()
        self.server, self.label, self.writes = server, name, writes
        self.acknowledged: dict[str, str] = {}
        self.seconds: list[float] = []
        self.problems: list[str] = []

    def run(self) -> None:
        line: http.client.HTTPConnection | None = None
        for n in range(self.writes):
            text = f"visitor {self.label} wrote line {n}"
            for _ in range(600):
                begun = time.perf_counter()
                try:
                    line = line or http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
                    status, found = self._ask(line, "remember", {"text": text, "on_conflict": "ignore"}, text)
                except (OSError, http.client.HTTPException):
                    if line is not None:
                        line.close()
                    line = None
                    time.sleep(0.1)
                    continue
                if status == 200:
                    self.acknowledged[text] = found["memory"]["id"]
                    self.seconds.append(time.perf_counter() - begun)
                    break
                if status != 503:
                    self.problems.append(str(found))
                    break
                time.sleep(0.1)
        if line is not None:
            line.close()

    def _ask(
        self, line: http.client.HTTPConnection, verb: str, given: dict[str, Any], key: str
    ) -> tuple[int, Any]:
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {self.server.token}",
            "idempotency-key": key,
        }
        line.request("POST", f"/v1/banks/load/{verb}", json.dumps(given), headers)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize(
    ("visitors", "writes", "kills"), [(16, 12, 1), pytest.param(200, 60, 3, marks=pytest.mark.slow)]
)
def test_nothing_acknowledged_is_lost_and_nothing_is_written_twice(
    tmp_path: Path, visitors: int, writes: int, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Killed(tmp_path)
    crowd = [Visitor(server, name, writes) for name in range(visitors)]
    for one in crowd:
        one.start()
    for round_ in range(1, kills + 1):
        while sum(len(one.acknowledged) for one in crowd) < visitors * writes * round_ / (kills + 2):
            time.sleep(0.02)
        server.kill()
    for one in crowd:
        one.join()
    ended = server.stop()

    acknowledged = {text: made for one in crowd for text, made in one.acknowledged.items()}
    seconds = sorted(second for one in crowd for second in one.seconds)
    with capsys.disabled():
        if visitors > 100:
            p50, p99 = (seconds[int(len(seconds) * share)] for share in (0.5, 0.99))
            print(
                f"\n{visitors} clients, {len(seconds)} writes: p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms"
            )
    assert ended == 0
    assert [problem for one in crowd for problem in one.problems] == []
    assert len(acknowledged) == visitors * writes
    with Bank.open(tmp_path / "load.skep") as bank:
        stored: dict[str, list[str]] = {}
        cursor = None
        while True:
            page = bank.find(status=None, limit=10_000, cursor=cursor)
            for memory in page:
                stored.setdefault(memory.text, []).append(memory.id)
            cursor = page.cursor
            if cursor is None:
                break
    assert {text: [made] for text, made in acknowledged.items()} == stored
