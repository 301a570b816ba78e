"""Real brokers, and connections to them that stand for processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.hub.nats_server import Server

from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.nats_bus import NatsBus


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("nats"))
    yield made
    made.close()


@pytest.fixture
def nats_bus(nats_server: Server) -> Iterator[Callable[..., NatsBus]]:
    """Makes a connection of its own for each call, as another process would."""
    made: list[NatsBus] = []

    def connect(member: str = "tester") -> NatsBus:
        made.append(NatsBus(nats_server.url, member))
        return made[-1]

    yield connect
    for bus in made:
        bus.close()


@pytest.fixture(params=["nats"])
def connect(request: pytest.FixtureRequest) -> Callable[..., MemberBus]:
    """Every transport between processes in turn."""
    made: Any = request.getfixturevalue(f"{request.param}_bus")
    return made
