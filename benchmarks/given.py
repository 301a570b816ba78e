"""What commands are given: numbers, files and sets. What cannot work is refused in words, before anything starts."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def number(least: int) -> Callable[[str], int]:
    """A whole number of at least `least`, for argparse."""

    def read(text: str) -> int:
        value = int(text) if text.strip().isdecimal() else -1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return value

    return read


def seconds(text: str) -> float:
    """A time above nothing, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def to_write(text: str | Path) -> Path:
    """A file that can be written, for argparse: a run of an hour is not to fail at its last line."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot make the folder of {path}: {error.strerror}") from error
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder; give the file to write")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} may not be written")
    return path


def place(path: Path) -> Path:
    """The same of a file that nobody named; SystemExit where it cannot be written."""
    try:
        return to_write(path)
    except argparse.ArgumentTypeError as error:
        raise SystemExit(f"{error}; `--out` names another") from error


def results(path: Path, what: str, *keys: str) -> Any:
    """What a results file holds; SystemExit where it is none, or a part of one."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SystemExit(f"{path} is no JSON, or a part of it: {error}") from error
    held: Any = found
    known = set[str](held) if isinstance(held, dict) else set[str]()  # pyright: ignore[reportUnknownArgumentType]
    missing = [key for key in keys if key not in known]
    if missing:
        raise SystemExit(f"{path} holds no results of {what}: it has no {missing[0]!r}")
    return found


def folder_of_sets(root: Path, names: Sequence[str], *parts: str) -> Path:
    """A folder that holds these sets; SystemExit with what is missing."""
    for name in names:
        lacking = [part for part in parts if not (root / "conv" / name / part).is_file()]
        if lacking:
            raise SystemExit(f"there is no {root / 'conv' / name / lacking[0]}, which this measurement needs")
    return root
