"""Commands that may take long tell how far they are, on a terminal and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skep.bank.bank import Bank

pty = pytest.importorskip("pty")


def told(*words: str) -> tuple[bytes, bytes]:
    """What a command prints on standard output, and on a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "skep", *words], stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # all was read
        pass
    os.close(ours)
    return done.stdout, seen


@pytest.mark.parametrize(("command", "label"), [("conflicts", b"comparing"), ("maintain", b"maintaining")])
def test_how_far_a_comparison_has_come_is_told_on_a_terminal(
    command: str, label: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember_many(["The kettle is blue", "The kettle is red"], on_conflict="ignore")
    out, err = told(command, "--bank", str(path), "--json")
    assert label + b" [####" in err
    assert label not in out
