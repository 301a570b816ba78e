"""SshHub (`ssh://`): a bank file on another machine, reached by the `ssh` that the user has set up.

Opened by `hub_urls`. `ssh` starts `skep sync serve` there, and messages go over its standard input and output: a
length in four bytes, then JSON. Nothing listens, and no port is open. `answer_stream` is the other end.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from skep.bank.bank import Bank
from skep.client.http_errors import Failure, raised, told
from skep.errors import ConfigError, HubAwayError, SkepError, SyncError
from skep.hub.bank_hub import BankHub
from skep.hub.hub import AWAY_SECONDS
from skep.hub.hub_calls import Answered, Asked, CallingHub, answer
from skep.hub.hub_urls import shown

USUAL = (
    "ssh",
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    f"ConnectTimeout={int(AWAY_SECONDS)}",
    "-o",
    "ServerAliveInterval=15",
)
"""The program, unless `SKEP_SSH` names another. It may not ask for a password: nobody would answer."""
LIMIT = 1 << 28
"""Bytes of one message."""


class SshHub(CallingHub):
    """A bank file on another machine. See `Hub` for the promises."""

    def __init__(self, command: Sequence[str], *, url: str) -> None:
        """Nothing is started yet.

        Args:
            command: What starts `skep sync serve` on the other machine.
            url: Its address, to be shown.
        """
        super().__init__(url)
        self._command = list(command)
        self._lines = {"": _Line(self._command, url), "wait": _Line(self._command, url)}
        """One line for waiting, one for everything else."""

    @classmethod
    def open(cls, url: str) -> SshHub:
        """From `ssh://user@host:port/path/of/bank.skep?skep=/path/of/skep`; `/~/` begins in the user's home."""
        parts = urlsplit(url.partition("#")[0])
        path = unquote(parts.path)
        if not parts.hostname or not path.strip("/"):
            raise ConfigError(f"{shown(url)} names no bank; write ssh://host/path/of/bank.skep")
        host = parts.hostname if parts.username is None else f"{parts.username}@{parts.hostname}"
        if host.startswith("-"):
            raise ConfigError(f"{shown(url)}: a host does not begin with a hyphen")
        port = [] if parts.port is None else ["-p", str(parts.port)]
        skep = parse_qs(parts.query).get("skep", ["skep"])[0]
        bank = path.removeprefix("/") if path.startswith("/~/") else path
        there = shlex.join([skep, "--bank", bank, "sync", "serve"])
        ssh = shlex.split(os.environ.get("SKEP_SSH", "")) or USUAL
        hub = cls([*ssh, *port, host, there], url=shown(url))
        try:
            hub.status()
        except BaseException:
            hub.close()
            raise
        return hub

    def ask(self, call: str, asked: Asked) -> Answered:
        """Send a call, and wait for its answer; once more if the line broke, for every call may be repeated."""
        line = self._lines["wait" if call == "wait" else ""]
        try:
            return line.ask(call, asked)
        except HubAwayError:
            if self._closed.is_set():
                raise
            return line.ask(call, asked)

    def close(self) -> None:
        """End both lines."""
        self._closed.set()
        for line in self._lines.values():
            line.close()


class _Line:
    """One process of `ssh`, started when it is needed."""

    def __init__(self, command: Sequence[str], url: str) -> None:
        self._command = command
        self._url = url
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def ask(self, call: str, asked: Asked) -> Answered:
        with self._lock:
            running = self._running or self._start()
            assert running.stdin is not None
            assert running.stdout is not None
            try:
                send(running.stdin, msgspec.json.encode((call, asked)))
                found = receive(running.stdout)
            except (OSError, ValueError) as error:
                raise self._broken(error) from error
            if found is None:
                raise self._broken(EOFError("the line ended"))
        if found.startswith(b'{"error"'):
            raise raised(500, found)
        return msgspec.json.decode(found, type=Answered)

    def close(self) -> None:
        running = self._running
        if running is not None:
            running.kill()  # ends what waits; a message that was sent is answered or asked again
        with self._lock:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            self._running = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
            )
        except OSError as error:
            self._end()
            raise ConfigError(
                f"{self._command[0]} cannot be started ({error.strerror}); install it"
            ) from error
        return self._running

    def _broken(self, error: Exception) -> SyncError:
        running, said = self._running, ""
        if running is not None:
            running.kill()
            running.wait()
        if self._said is not None:
            self._said.seek(0)
            said = " ".join(self._said.read()[-500:].decode("utf-8", "replace").split())
        code = None if running is None else running.returncode
        self._end()
        if code == 127:
            return SyncError(
                f"{self._url}: skep is not installed there ({said}); name it with ?skep=/path/of/skep"
            )
        if "Permission denied" in said or "Host key verification failed" in said:
            return SyncError(
                f"{self._url} refused the login ({said}); `ssh` there must work without a password"
            )
        return HubAwayError(f"{self._url} did not answer ({said or error})")

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            running.wait()
            for pipe in (running.stdin, running.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        continue
        if self._said is not None:
            self._said.close()
            self._said = None


def answer_stream(bank: Bank, source: IO[bytes], target: IO[bytes]) -> None:
    """Speak for a bank until the other end is gone."""
    hub = BankHub(bank)
    while (found := receive(source)) is not None:
        try:
            call, asked = msgspec.json.decode(found, type=tuple[str, Asked])
            reply: Any = answer(hub, call, asked)
        except SkepError as error:
            reply = Failure(told(error))
        except msgspec.DecodeError as error:
            reply = Failure(
                told(SyncError(f"a message cannot be read ({error}); is the other skep a newer one?"))
            )
        send(target, msgspec.json.encode(reply))


def send(target: IO[bytes], message: bytes) -> None:
    """Write one message."""
    target.write(len(message).to_bytes(4, "big") + message)
    target.flush()


def receive(source: IO[bytes]) -> bytes | None:
    """Read one message; None where there is none any more."""
    head = source.read(4)
    if len(head) < 4:
        return None
    size = int.from_bytes(head, "big")
    if size > LIMIT:
        raise ValueError("the other end does not speak as skep does; does its login print something?")
    content = source.read(size)
    return content if len(content) == size else None
