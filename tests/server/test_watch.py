"""Whoever subscribed to a memory hears of changes that other processes make."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp_wire import META, Client

from skep.bank.bank import Bank
from skep.server.mcp.session import Server, Watch
from skep.server.mcp.start import Banks
from skep.server.mcp.tool_profiles import build_server

REVISE = "import sys; from skep import Bank\nwith Bank.open(sys.argv[1]) as bank: bank.{}"


def elsewhere(path: Path, call: str) -> None:
    """Do something to a bank in a process of its own."""
    subprocess.run([sys.executable, "-c", REVISE.format(call), str(path)], check=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bank.skep"


@pytest.fixture
def server(path: Path) -> Iterator[Server]:
    banks = Banks(str(path), environ={}, start=path.parent)
    made = build_server("full", banks, version="1", watch_seconds=0.01)
    yield made
    made.close()
    banks.close()


@pytest.fixture
def known(path: Path) -> str:
    with Bank.open(path) as bank:
        return bank.remember("Ana likes tea").memory.id


def updates(client: Client) -> Iterator[str]:
    """The addresses that the server says have changed, as they come."""
    while True:
        message = client.read()
        if message.get("method") == "notifications/resources/updated":
            yield message["params"]["uri"]


def test_a_session_hears_of_another_process(
    server: Server, path: Path, known: str, connect: Callable[..., Client]
) -> None:
    client = connect(server)
    client.initialize()
    client.ask("resources/subscribe", {"uri": f"memory://{known}"})

    elsewhere(path, f"revise({known!r}, text='Ana likes coffee')")

    assert next(updates(client)) == f"memory://{known}"
    read = client.ask("resources/read", {"uri": f"memory://{known}"})["result"]
    assert "Ana likes coffee" in read["contents"][0]["text"]


def test_a_stateless_client_hears_of_another_process(
    server: Server, path: Path, known: str, connect: Callable[..., Client]
) -> None:
    client = connect(server)
    wanted = {"resourceSubscriptions": ["memory://stats", f"memory://{known}/history"]}
    client.start("subscriptions/listen", {"_meta": META, "notifications": wanted})
    assert client.read()["method"] == "notifications/subscriptions/acknowledged"

    elsewhere(path, f"forget({known!r})")

    told = updates(client)
    assert {next(told), next(told)} == {"memory://stats", f"memory://{known}/history"}


def test_a_subscriber_hears_when_another_process_makes_the_bank(
    server: Server, path: Path, connect: Callable[..., Client]
) -> None:
    client = connect(server)
    client.initialize()
    client.ask("resources/subscribe", {"uri": "memory://stats"})
    assert not path.exists()

    elsewhere(path, "remember('Ana likes tea')")

    assert next(updates(client)) == "memory://stats"


@pytest.fixture
def told() -> list[set[str]]:
    return []


@pytest.fixture
def watch(told: list[set[str]]) -> Iterator[Watch]:
    """One that looks only when it is told to."""
    never = threading.Event()
    made = Watch(told.append, pause=lambda _seconds: never.wait())
    yield made
    never.set()
    made.close()


def test_a_process_is_not_told_of_its_own_changes_nor_of_what_was_there(
    watch: Watch, told: list[set[str]], path: Path, known: str
) -> None:
    with Bank.open(path) as bank:
        watch.follow("me", lambda: bank)
        bank.revise(known, text="Ana likes coffee")

        watch.look()

        assert told == []


def test_each_change_by_another_process_is_told_once(
    watch: Watch, told: list[set[str]], path: Path, known: str
) -> None:
    with Bank.open(path) as bank:
        watch.follow("me", lambda: bank)
        elsewhere(path, f"revise({known!r}, text='Ana likes coffee')")

        watch.look()
        watch.look()

        assert told == [{"memory://stats", f"memory://{known}", f"memory://{known}/history"}]


def test_being_read_is_no_change(watch: Watch, told: list[set[str]], path: Path, known: str) -> None:
    with Bank.open(path) as bank:
        watch.follow("me", lambda: bank)
        elsewhere(path, "recall('what does Ana like?')")
        assert bank.get(known).uses == 1

        watch.look()

        assert told == []


def test_nobody_is_watched_when_nobody_listens(
    watch: Watch, told: list[set[str]], path: Path, known: str
) -> None:
    with Bank.open(path) as bank:
        watch.follow("me", lambda: bank)
        watch.leave("me")
        elsewhere(path, f"revise({known!r}, text='Ana likes coffee')")

        watch.look()

        assert told == []
