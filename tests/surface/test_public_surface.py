"""Names, signatures, commands, tables and tools change only when somebody means it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .public_surface import surface

FROZEN = Path(__file__).with_name("public_surface.json")


@pytest.mark.parametrize("part", ["signatures", "commands", "tables", "tools"])
def test_the_public_surface_is_the_frozen_one(part: str) -> None:
    now = json.loads(json.dumps(surface()[part], default=str))
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))[part]
    advice = "meant? python -m tests.surface.public_surface > tests/surface/public_surface.json"
    assert now == frozen, advice
