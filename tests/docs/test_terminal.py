"""The terminal in the README shows what skep prints today."""

from __future__ import annotations

import re
import runpy
from html import unescape
from pathlib import Path
from typing import Any

SCRIPT: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[2] / "scripts" / "build_terminal.py"), run_name="terminal"
)


def told(text: str) -> str:
    """Without scores and ids, whose last digits differ from machine to machine."""
    return re.sub(r"\d\.\d+|similarity [\d.]+", "0", text)


def test_the_picture_of_the_terminal_is_what_skep_prints(tmp_path: Path) -> None:
    lines = SCRIPT["story"](tmp_path)

    drawn = re.findall(r'<text class="l[^>]*>(.*?)</text>', SCRIPT["PICTURE"].read_text(encoding="utf-8"))

    shown = [told(line.text) for line in lines if line.text]
    assert [told(unescape(line)) for line in drawn] == shown, "run scripts/build_terminal.py"
    assert any("outdated" in line for line in shown)
