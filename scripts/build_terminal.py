"""Write docs/pictures/terminal.svg: an agent that remembers across sessions, as a terminal that types itself.

Every answer in it is what skep printed in a run of this script, in an empty home. Marks around memories and
advice to the model are left out; paths begin at the home; the random part of ids is `m`. A test runs the
story again and compares.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "terminal.svg"
COLUMNS, ROW, CHARACTER, MARGIN = 94, 21, 8.43, 22
TYPED, READ, PAUSE, REST = 0.018, 0.5, 1.1, 4.0
"""Seconds: a typed character, a printed line, the pause before a new session, the rest at the end and at the start."""
ADVICE = re.compile(
    r"</?(skep-)?memory>| What stands between .*? is data\.|(?<=From memory): a sample .*?(?=:)"
)
COLOURS = {"#": "#8fa3b8", "$": "#f6f1e3", ">": "#f2c04a", "!": "#7fc8a0", " ": "#c9cdd3"}


class Line(NamedTuple):
    """A line of the terminal: `#` a session, `$` a command, `>` what an agent or user does, `!` memory, ` ` else."""

    kind: str
    text: str


class Home:
    """An empty home with a project, where commands run as a user would run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "shop"
        (self.project / ".git").mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SKEP", "XDG"))}
        self.environ = {**kept, "HOME": str(folder), "USERPROFILE": str(folder), "PYTHONUTF8": "1"}

    def skep(self, *words: str, given: str = "") -> str:
        """Standard output of one command."""
        done = subprocess.run(
            [sys.executable, "-m", "skep", *words],
            cwd=self.project,
            env=self.environ,
            input=given,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        text = done.stdout.replace(f"{self.folder}{os.sep}", "~/").replace(os.sep, "/")
        return re.sub(r"\b[a-z0-9]{10}-(?=\d)", "m-", text)

    def tool(self, name: str, **arguments: Any) -> str:
        """What an agent gets that calls a tool over MCP, in a server of its own."""
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "agent", "version": "1"},
        }
        frames = (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
        )
        sent = "".join(json.dumps({"jsonrpc": "2.0", **frame}) + "\n" for frame in frames)
        answers = [json.loads(line) for line in self.skep("mcp", given=sent).splitlines()]
        answer = next(each for each in answers if each.get("id") == 2)
        return ADVICE.sub("", answer["result"]["content"][0]["text"])

    def hook(self, event: str, **about: Any) -> str:
        """What the hook of a coding agent adds to the context of the model.

        A hook says nothing if it takes three seconds, so a busy machine asks it again, as another session.
        """
        for session in range(20):
            given = {"hook_event_name": event, "session_id": f"{session}", "cwd": str(self.project), **about}
            if said := self.skep("hook", "claude-code", given=json.dumps(given)):
                break
        else:
            raise SystemExit(f"the hook for {event} said nothing in twenty sessions")
        answer = json.loads(said)
        text = answer["hookSpecificOutput"]["additionalContext"]
        return ADVICE.sub("", text)


def story(folder: Path) -> list[Line]:
    """Install, learn in one session, be told in the next, change your mind in a third."""
    home, lines = Home(folder), list[Line]()

    def say(kind: str, *texts: str) -> None:
        lines.extend(Line(kind, text) for text in texts)

    def told(output: str, kind: str = " ") -> None:
        say(kind, *(f"  {line.strip()}" for line in output.splitlines() if line.strip()))

    say("$", "$ skep install claude-code")
    told("\n".join(line for line in home.skep("install", "claude-code").splitlines() if "changed" in line))
    say("#", "", "session 1: an agent learns while it works")
    for text in (
        "We deploy with `make ship`, on Tuesdays",
        "`npm test` fails here: there is no such script; use `pnpm test`",
    ):
        say(">", f'agent   remember("{text}")')
        told(home.tool("remember", text=text))
    say("#", "", "session 2: a new process; nobody tells it anything")
    say(">", "you     How do we deploy the shop?")
    told(home.hook("UserPromptSubmit", prompt="How do we deploy the shop?"), "!")
    say(">", "agent   is about to run: npm test")
    told(home.hook("PreToolUse", tool_name="Bash", tool_input={"command": "npm test"}), "!")
    say("#", "", "session 3: a plan changes")
    say(">", 'agent   remember("Deploys moved to Mondays")')
    told("\n".join(home.tool("remember", text="Deploys moved to Mondays").splitlines()[:2]))
    say("$", '$ skep search "which day do we deploy?"')
    told("\n".join(home.skep("search", "which day do we deploy?").splitlines()[:2]))
    return [Line(kind, text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…") for kind, text in lines]


def times(lines: Sequence[Line]) -> list[float]:
    """When each line begins to show, in seconds; the last figure is the whole length. Until `REST` all are shown."""
    at, found = REST + 0.4, list[float]()
    for line in lines:
        found.append(at)
        at += PAUSE if line.kind == "#" else READ + TYPED * len(line.text) * (line.kind in "$>")
    return [*found, at + REST]


def picture(lines: Sequence[Line]) -> str:
    """The SVG: each line fades in at its time; where motion is unwanted, all lines stand there at once."""
    *starts, length = times(lines)
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), ROW * len(lines) + 62
    told = " ".join(escape(line.text.strip()) for line in lines if line.text)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" xml:space="preserve" role="img"',
        ' aria-labelledby="t d">',
        f'<title id="t">An agent that remembers across sessions</title><desc id="d">{told}</desc>',
        "<style>text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}"
        ".l{animation:" + f"{length:.1f}s step-end infinite" + "}"
        "@media (prefers-reduced-motion:reduce){.l{animation:none!important}}",
    ]
    for number, start in enumerate(starts):
        blank, share = 100 * REST / length, 100 * start / length
        frames = f"0%{{opacity:1}}{blank:.2f}%{{opacity:0}}{share:.2f}%{{opacity:1}}"
        parts.append(f"@keyframes k{number}{{{frames}}}.k{number}{{animation-name:k{number}}}")
    parts += [
        "</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#1d2430"/>',
        '<circle cx="24" cy="20" r="6" fill="#ec6a5e"/><circle cx="44" cy="20" r="6" fill="#f4bf4f"/>'
        '<circle cx="64" cy="20" r="6" fill="#61c554"/>',
    ]
    for number, line in enumerate(lines):
        if line.text:
            weight = ' font-weight="600"' if line.kind in "#$" else ""
            parts.append(
                f'<text class="l k{number}" x="{MARGIN}" y="{54 + ROW * number}" fill="{COLOURS[line.kind]}"{weight}>'
                f"{escape(line.text)}</text>"
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> int:
    """Live through the story and draw it."""
    with tempfile.TemporaryDirectory() as folder:
        lines = story(Path(folder).resolve())
    PICTURE.write_text(picture(lines), encoding="utf-8")
    print("\n".join(line.text for line in lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
