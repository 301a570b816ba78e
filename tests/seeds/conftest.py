"""Three doors to a bank for the tests of the source documents: Python, the command line and MCP."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.server.mcp.start import Banks
from skep.server.mcp.tool_profiles import build_server

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from mcp_wire import Client  # pyright: ignore


@pytest.fixture
def bank(clock: Clock) -> Iterator[Bank]:
    with Bank.open(":memory:", embedder="static", now=clock) as opened:
        yield opened


@pytest.fixture
def meaning(clock: Clock) -> Iterator[Bank]:
    """A bank with the bundled transformer."""
    with Bank.open(":memory:", embedder="minilm", now=clock) as opened:
        yield opened


@pytest.fixture
def skep(tmp_path: Path) -> Callable[..., Any]:
    """A command on a bank of its own; what it prints, read as JSON."""

    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"], env={"SKEP_BANK": str(tmp_path / "bank.skep")})
        if done.exception is not None:
            raise done.exception
        return json.loads(done.stdout)

    return run


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Any]:
    """An MCP client of the default profile, on the bank of `skep`."""
    banks = Banks(str(tmp_path / "bank.skep"), environ={}, start=tmp_path)
    client: Any = cast("Any", Client)(build_server("default", banks, version="1"))
    client.initialize()
    yield client
    client.close()
    banks.close()
