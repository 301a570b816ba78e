"""Fixtures for the tests of the server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mcp_wire import Client

from skep.server.mcp.session import Server


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Opens clients to a server, and closes them afterwards."""
    clients: list[Client] = []

    def opener(server: Server, **options: Any) -> Client:
        clients.append(Client(server, **options))
        return clients[-1]

    yield opener
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """A client of the server with all fixtures."""
    from everything import build

    return connect(build())
