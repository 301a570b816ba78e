"""The clients themselves: each reads what `skep install` wrote and connects; their validators take our packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.build_packages import build
from tests.server.official import node, require

pytestmark = pytest.mark.slow

SKEP = Path(sys.executable).with_name("skep")
PLACES = {"claude": "@anthropic-ai/claude-code-*/claude", "opencode": "opencode-*-baseline/bin/opencode"}
"""Programs that an installation script would put in their place; it is not run here."""


def run(program: str, *words: str, home: Path) -> str:
    """What a client says, in a home of its own."""
    modules = require("agents") / "node_modules"
    called = str(next(modules.glob(PLACES[program]))) if program in PLACES else program
    project = home / "project"
    project.mkdir(exist_ok=True)
    environ = {
        "HOME": str(home),
        "PATH": os.pathsep.join((str(modules / ".bin"), str(Path(node()).parent), os.environ["PATH"])),
        "GEMINI_CLI_TRUST_WORKSPACE": "true",  # it starts no server in a folder that nobody has trusted
    }
    done = subprocess.run(
        [called, *words], cwd=project, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("client", "program", "sign"),
    [
        ("claude-code", "claude", "Connected"),
        ("gemini", "gemini", "Connected"),
        ("opencode", "opencode", "connected"),
        ("codex", "codex", "enabled"),  # it lists its servers without starting them
    ],
)
def test_a_client_finds_skep_where_it_was_installed_and_nowhere_after(
    client: str, program: str, sign: str, tmp_path: Path
) -> None:
    run(str(SKEP), "install", client, home=tmp_path)
    told = run(program, "mcp", "list", home=tmp_path)
    line = next(line for line in told.splitlines() if "skep" in line and sign in line)
    run(str(SKEP), "uninstall", client, home=tmp_path)

    assert line
    assert str(SKEP) not in run(program, "mcp", "list", home=tmp_path)


def test_the_validators_of_the_clients_take_our_packages(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    build(packages)
    bundle = tmp_path / "bundle"
    run("mcpb", "unpack", str(packages / "skep.mcpb"), str(bundle), home=tmp_path)

    assert "validation passes" in run("mcpb", "validate", str(bundle / "manifest.json"), home=tmp_path)
    assert "passed" in run(
        "claude", "plugin", "validate", str(packages / "claude-code-plugin"), home=tmp_path
    )
    told = run("gemini", "extensions", "validate", str(packages / "gemini-extension"), home=tmp_path)
    assert "successfully validated" in told
