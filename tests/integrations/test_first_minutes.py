"""A fresh user's first ten minutes with Claude Code, in real processes: installed, full, asked, warned, kept."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.test_sessions import claude_code


@pytest.mark.slow
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    home, project = tmp_path, tmp_path / "shop"
    (project / ".git").mkdir(parents=True)
    claude_code(home)
    environ = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }

    def run(words: list[str], stdin: str = "") -> str:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, check=True, cwd=project, env=environ
        )
        return done.stdout

    def skep(*words: str) -> str:
        return run([sys.executable, "-m", "skep", *words])

    # 1. One command wires the client, and says what lies on the machine.
    told = skep("install", "claude-code")
    assert "1 sessions of Claude Code" in told
    settings = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]

    def hook(event: str, **fields: Any) -> str:
        """What the client would do: run the line that stands in its settings."""
        line = settings[event][0]["hooks"][0]["command"]
        payload = {"hook_event_name": event, "session_id": "s2", "cwd": str(project), **fields}
        said = run(shlex.split(line), json.dumps(payload))
        return json.loads(said)["hookSpecificOutput"]["additionalContext"] if said else ""

    # 2. It starts full.
    assert "new 3" in skep("import", "sessions")
    assert "cookie had no path" in skep("search", "why did the login loop on staging?")

    # 3. A prompt is answered before anybody asks, and an action is warned of what failed before.
    assert "cookie" in hook("UserPromptSubmit", prompt="Why does the login loop on staging?")
    assert hook("UserPromptSubmit", prompt="Write a haiku about autumn leaves") == ""
    assert "--frozen-lockfile" in hook("PreToolUse", tool_name="Bash", tool_input={"command": "pnpm build"})
    assert hook("PreToolUse", tool_name="Bash", tool_input={"command": "git status"}) == ""

    # 4. What was said is kept, and answers in the next session.
    transcript = tmp_path / "t.jsonl"
    said = [
        {
            "type": "user",
            "uuid": "u9",
            "message": {"role": "user", "content": "What is the gateway of the lab called?"},
        },
        {
            "type": "assistant",
            "uuid": "a9",
            "message": {"role": "assistant", "content": "It is called Bifrost."},
        },
    ]
    transcript.write_text("\n".join(map(json.dumps, said)))
    assert hook("Stop", transcript_path=str(transcript)) == ""
    for _ in range(600):
        if "Bifrost" in skep("list", "--kind", "episode", "-n", "1"):
            break
        time.sleep(0.1)
    assert "Bifrost" in hook(
        "UserPromptSubmit", prompt="What is the gateway of the lab called?", session_id="s3"
    )

    # 5. And it goes as it came.
    skep("uninstall", "claude-code")
    assert "skep" not in (home / ".claude" / "settings.json").read_text()
