"""Names, signatures, commands, tables and tools change only when somebody means it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FROZEN = Path(__file__).with_name("public_surface.json")
ROOT = Path(__file__).parents[2]


@cache
def surface() -> dict[str, Any]:
    """In a process of its own: click keeps the help options of the first context that a command was called in."""
    command = [sys.executable, "-m", "tests.surface.public_surface"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("part", ["signatures", "commands", "tables", "tools"])
def test_the_public_surface_is_the_frozen_one(part: str) -> None:
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))[part]
    advice = "meant? python -m tests.surface.public_surface > tests/surface/public_surface.json"
    assert surface()[part] == frozen, advice
