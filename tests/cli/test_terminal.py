"""What stands in a memory of somebody else does not steer the terminal that shows it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.events import Event

pty = pytest.importorskip("pty", reason="needs a terminal of this system")
EVIL = "Ana likes tea \x1b]0;title\x07 \x1b[2J \x1b[8mhidden \x9b31m end"


def shown(*words: str) -> bytes:
    """What a command writes to a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "skep", *words])
    said = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the end, as Linux tells it
            part = b""
        if not part:
            break
        said += part
    os.close(terminal)
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("command", [("list",), ("recall", "tea"), ("show", "peer-1")])
def test_a_memory_of_a_peer_does_not_steer_the_terminal(bank_path: Path, command: tuple[str, ...]) -> None:
    with Bank.open(bank_path) as bank:
        own = bank.remember("Bob drinks water")
        stamp = next(iter(bank.events())).hlc
        body = {"text": EVIL, "kind": "fact", "title": "\x1b]0;t\x07"}
        bank.apply([Event(actor="peer", counter=1, hlc=stamp + 1, kind="remember", body=body)])
        assert own.memory.id in {memory.id for memory in bank.find()}

    said = shown("--bank", str(bank_path), *command)

    assert b"Ana likes tea" in said
    for wrong in (b"\x1b]", b"\x07", b"\x1b[2J", b"\x1b[8m", "\x9b".encode()):
        assert wrong not in said
