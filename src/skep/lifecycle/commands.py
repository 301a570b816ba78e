"""Asking the user's own agent: the prompt on standard input, the answer on standard output."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class FailedError(RuntimeError):
    """A program gave no answer; the message says why."""


def ask(command: Sequence[str], prompt: str, timeout: float) -> str:
    """What a program answers; raises `FailedError`, or `subprocess.TimeoutExpired` if it takes too long."""
    try:
        done = subprocess.run(
            list(command),
            input=prompt,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        said = str(error.stderr or "").strip().splitlines()
        raise FailedError(
            f"exit status {error.returncode}" + (f": {said[-1][:200]}" if said else "")
        ) from error
    except OSError as error:
        raise FailedError(str(error)) from error
    return done.stdout
