"""A worker seen from the harness: asked in JSON lines, stopped while it is not its turn."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.environments import HERE, ROOT, Spec, process_environment, python_of

MODULE = ("-m", "benchmarks.speed.worker")
COLD = ("-P", str(HERE / "speed" / "cold.py"))
"""Without the script's own folder among those that are imported from: the modules beside it bear common names."""


class EngineError(RuntimeError):
    """The engine failed, ran out of time or went away; the message says which, without local paths."""

    def __init__(self, message: str) -> None:
        super().__init__(message.replace(str(ROOT), "."))


class UnsupportedError(EngineError):
    """The engine does not offer this."""


class Process:
    """One engine in its own process. Between questions it is halted, so that it cannot disturb the others."""

    def __init__(self, spec: Spec, dim: int, log: Path, prefix: tuple[str, ...] = ()) -> None:
        self.spec = spec
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._errors = log.open("ab")
        self._popen = subprocess.Popen(
            [*prefix, str(python_of(spec)), *MODULE, spec.name, str(dim)],
            cwd=ROOT,
            env=process_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Of the worker, or of the tracer it runs under."""
        return self._popen.pid

    def send(self, op: str, **arguments: Any) -> None:
        """Ask without waiting for the answer."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError as error:
            raise EngineError(f"the process ended: {self.last_words()}") from error

    def line(self, timeout_s: float) -> dict[str, Any]:
        """The next line it says."""
        assert self._popen.stdout is not None
        ends = time.monotonic() + timeout_s
        handle = self._popen.stdout.fileno()
        while b"\n" not in self._buffer:
            left = ends - time.monotonic()
            if left <= 0 or not select.select([handle], [], [], left)[0]:
                raise EngineError(f"no answer within {timeout_s:.0f} s")
            part = os.read(handle, 1 << 16)
            if not part:
                raise EngineError(f"the process ended: {self.last_words()}")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def ask(self, op: str, *, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """Ask and wait for the answer."""
        self.send(op, **arguments)
        answer = self.line(timeout_s)
        if answer["ok"]:
            return answer["result"]
        if answer.get("unsupported"):
            raise UnsupportedError(answer["error"])
        raise EngineError(answer["error"])

    def halt(self) -> None:
        """Stop every thread of it until `go`."""
        if self._popen.poll() is None:
            os.kill(self.pid, signal.SIGSTOP)

    def go(self) -> None:
        """Let it run."""
        if self._popen.poll() is None:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> list[dict[str, Any]]:
        """SIGKILL to the whole session; what it had said by then and nobody had read."""
        if self._popen.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        out = self._popen.stdout
        rest = self._buffer + (out.read() if out is not None and not out.closed else b"")
        self._buffer = b""
        self._close()
        return [json.loads(line) for line in rest.split(b"\n")[:-1]]

    def finish(self, timeout_s: float = 30) -> None:
        """Close the engine and end the process, by force if it does not go."""
        try:
            self.go()
            self.ask("close", timeout_s=timeout_s)
            assert self._popen.stdin is not None
            self._popen.stdin.close()
            self._popen.wait(timeout_s)
        except (EngineError, subprocess.TimeoutExpired, OSError):
            self.kill()
        self._close()

    def _close(self) -> None:
        for stream in (self._popen.stdin, self._popen.stdout, self._errors):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def last_words(self) -> str:
        """The last line of its log."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "without a word"


def cold_start(spec: Spec, dim: int, store: Path, question: str, timeout_s: float) -> dict[str, Any]:
    """A fresh process opens the store and answers once; wall time is from before it is started."""
    started = time.perf_counter()
    with subprocess.Popen(
        [str(python_of(spec)), *COLD, spec.name, str(dim), str(store), question],
        cwd=ROOT,
        env=process_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        ready = select.select([process.stdout], [], [], timeout_s)[0]
        line = process.stdout.readline() if ready else b""
        wall = time.perf_counter() - started
        try:
            _, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, errors = process.communicate()
    if not line:
        said = [x for x in errors.decode(errors="replace").splitlines() if x.strip()]
        raise EngineError(said[-1][:300] if said else f"no answer within {timeout_s:.0f} s")
    return {**json.loads(line), "wall_s": wall}


def import_time(spec: Spec, timeout_s: float = 60) -> dict[str, float]:
    """Seconds of importing the engine's module in a fresh process, and of the bare interpreter."""
    script = (
        "import time; c = time.process_time(); w = time.perf_counter()\n"
        f"import {spec.module}\n"
        "print(time.process_time() - c, time.perf_counter() - w, c)"
    )
    try:
        done = subprocess.run(
            [str(python_of(spec)), "-c", script],
            cwd=ROOT,
            env=process_environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"not imported within {timeout_s:g} s") from error
    if done.returncode != 0:
        raise EngineError((done.stderr.strip().splitlines() or ["import failed"])[-1])
    cpu, wall, bare = (float(part) for part in done.stdout.split())
    return {"cpu_s": cpu, "wall_s": wall, "bare_cpu_s": bare}
