"""NATS as a hub, with a real server: the promises of every hub, kills, lost streams, erased bytes, wrong addresses."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.hub import congruence
from tests.hub.congruence import Step, event, histories
from tests.hub.nats_server import Cluster, Server, free_port
from tests.hub.nats_users import Operator

from skep.bank.bank import Bank
from skep.errors import AccessError, ConfigError, HubAwayError, SyncError
from skep.hub.hub import START
from skep.hub.hub_urls import open_hub
from skep.hub.nats import NatsHub
from skep.model import Event

# nats-py leaves the socket of a server that was killed to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NAMES = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("nats"))
    yield made
    made.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may kill."""
    made = Server(tmp_path / "nats")
    yield made
    made.close()


def new_url(server: Server) -> str:
    return f"{server.url}/bank-{next(NAMES)}"


def test_it_keeps_the_promises_of_a_hub(server: Server) -> None:
    @given(histories(12))
    def promises(history: list[Step]) -> None:
        url = new_url(server)
        congruence.check(lambda: NatsHub(url), history)

    promises()


def test_writers_at_once_lose_nothing(server: Server) -> None:
    url = new_url(server)
    congruence.check_writers_at_once(lambda: NatsHub(url), batches=8)


def test_who_waits_is_woken(server: Server) -> None:
    url = new_url(server)
    congruence.check_waiting(lambda: NatsHub(url))


def test_a_foreign_position_begins_at_the_start(server: Server) -> None:
    url = new_url(server)
    congruence.check_foreign_position(lambda: NatsHub(url))


def test_an_event_is_stored_once_however_often_it_is_sent(server: Server) -> None:
    hub = NatsHub(new_url(server))
    for _ in range(3):
        hub.append([event("ana", 1), event("ana", 2)])

    assert [one.id for one in hub.read(START).events] == ["ana-1", "ana-2"]
    assert hub.status().events == 2
    hub.close()


def test_the_server_has_no_byte_of_what_was_erased(own_server: Server) -> None:
    hub = NatsHub(new_url(own_server))
    secret = "the combination is 7731"
    hub.append([event("ana", n, f"harmless {n}") for n in range(1, 20)])
    hub.append([event("ana", 20, secret)])
    source = own_server.folder / "snapshot"
    source.write_bytes(secret.encode() * 1000)
    hub.put_snapshot(source, hub.held(), hub.read(START).position)
    forget = Event(actor="bob", counter=1, hlc=9, kind="forget", body={"memories": ["ana-20"]})
    hub.append([forget])
    hub.erase([forget, Event(actor="ana", counter=20, hlc=20, kind="remember", body={})])
    hub.close()
    own_server.close()

    stored = [path for path in (own_server.folder / "store").rglob("*") if path.is_file()]
    assert any(b"harmless 7" in path.read_bytes() for path in stored)
    assert not [path for path in stored if secret.encode() in path.read_bytes()]


def test_nothing_acknowledged_is_lost_when_the_server_is_killed_in_the_middle_of_writes(
    own_server: Server,
) -> None:
    hub = NatsHub(new_url(own_server), timeout=3.0)
    acknowledged: list[str] = []
    killed = threading.Event()

    def write() -> None:
        for number in range(1, 100_000):
            try:
                hub.append([event("ana", number)])
            except SyncError:
                return
            acknowledged.append(f"ana-{number}")
            if number == 50:
                killed.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert killed.wait(30)
    own_server.kill()
    writer.join(30)
    own_server.start()

    with_answer = NatsHub(hub.url)
    found = set[str]()
    position = START
    while (batch := with_answer.read(position)).events:
        found |= {one.id for one in batch.events}
        position = batch.position
    assert len(acknowledged) >= 50
    assert set(acknowledged) <= found
    hub.append([event("ana", 100_000)])  # the old handle goes on by itself
    assert "ana-100000" in {one.id for one in with_answer.read(position).events}
    hub.close()
    with_answer.close()


def test_a_lost_stream_is_a_new_log_that_takes_everything_again(own_server: Server) -> None:
    hub = NatsHub(new_url(own_server))
    events = [event("ana", n) for n in range(1, 6)]
    hub.append(events)
    before = hub.read(START)
    own_server.kill()
    own_server.lose_everything()
    own_server.start()

    after = hub.read(before.position)
    assert (after.events, after.log == before.log) == ((), False)
    assert not hub.held()
    hub.append(events)
    assert hub.read(after.position).events == tuple(events)
    hub.close()


def test_a_frozen_server_costs_the_deadline_and_is_told_of(own_server: Server) -> None:
    hub = NatsHub(new_url(own_server), timeout=1.0)
    own_server.freeze()
    with pytest.raises(HubAwayError, match="no NATS server answers"):
        hub.append([event("ana", 1)])
    own_server.thaw()
    hub.append([event("ana", 1)])
    assert [one.id for one in hub.read(START).events] == ["ana-1"]
    hub.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats://127.0.0.1:4222", "must end in a name"),
        ("nats://127.0.0.1:4222/a.b", "must end in a name"),
        ("nats://127.0.0.1:4222/team?replica=3", "no option"),
        ("nats://127.0.0.1:4222/team?replicas=2", "1, 3 or 5"),
    ],
)
def test_a_wrong_address_is_refused_in_words(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_hub(url)


def test_a_server_that_is_not_there_is_away() -> None:
    with pytest.raises(HubAwayError, match="nats-server -js"):
        NatsHub(f"nats://127.0.0.1:{free_port()}/team", timeout=1.0)


def test_a_wrong_password_is_told_of_and_not_shown(tmp_path: Path) -> None:
    server = Server(tmp_path / "nats", "--user", "ana", "--pass", "right")
    try:
        address = f"127.0.0.1:{server.port}/team"
        NatsHub(f"nats://ana:right@{address}").close()
        with pytest.raises(SyncError, match="refused the login") as caught:
            NatsHub(f"nats://ana:wrong@{address}", timeout=2.0)
        assert "wrong" not in str(caught.value)
    finally:
        server.close()


def test_a_user_writes_as_one_author_alone_where_the_operator_says_so(tmp_path: Path) -> None:
    operator = Operator()
    server = Server(tmp_path / "nats", extra=operator.config)
    hear = ["skep.team.events.>", "_INBOX.>"]
    try:
        owner = operator.user(tmp_path, publish=["skep.team.>", "$JS.API.>"], hear=hear)
        ana = operator.user(
            tmp_path,
            publish=[
                "skep.team.events.ana.*",
                "$JS.API.STREAM.INFO.*",
                "$JS.API.*.GET.>",
                "$JS.API.STREAM.MSG.GET.>",
            ],
            hear=hear,
        )
        NatsHub(f"{server.url}/team?creds={owner}").close()
        hub = NatsHub(f"{server.url}/team?creds={ana}")
        hub.append([event("ana", 1)])
        with pytest.raises(AccessError, match=r"does not let this user publish on skep.team.events.bob.1"):
            hub.append([event("bob", 1)])
        assert [one.id for one in hub.read(START).events] == ["ana-1"]
        hub.close()
        with pytest.raises(ConfigError, match="no file of credentials"):
            NatsHub(f"{server.url}/team?creds={tmp_path}/none.creds")
    finally:
        server.close()


def test_a_site_reaches_the_bank_through_its_leaf_and_goes_on_while_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    leaves = f'leafnodes {{ listen: "127.0.0.1:{port}" }}\n'
    centre = Server(tmp_path / "hq", "--server_name", "hq", extra=leaves, domain="hq")
    remote = f'leafnodes {{ reconnect: "200ms", remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}\n'
    site = Server(tmp_path / "site", "--server_name", "site", extra=remote, domain="site")
    url = f"{site.url}/team?domain=hq#mode=local"
    try:
        ready(f"{site.url}/team?domain=hq").close()
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "office"))
        office: Any = Bank.open(f"{centre.url}/team", embedder="static")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "laptop"))
        laptop: Any = Bank.open(url, embedder="static")
        with office, laptop:
            office.remember("Staging runs PostgreSQL 16")
            laptop.replica.sync()
            assert laptop.recall("staging postgres")[0].memory.text == "Staging runs PostgreSQL 16"
            centre.kill()
            laptop.remember("The printer is on floor two")
            centre.start()
            ready(f"{site.url}/team?domain=hq").close()
            laptop.replica.sync()
            office.replica.sync()
            assert office.recall("where is the printer?")[0].memory.text == "The printer is on floor two"
    finally:
        site.close()
        centre.close()


@pytest.mark.slow
def test_three_servers_lose_nothing_acknowledged_when_the_leader_is_killed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        hub = ready(f"{cluster.servers[0].url}/team?replicas=3")
        leader = str(hub._info()["cluster"]["leader"])
        survivor = next(server for server in cluster.servers if server is not cluster.named(leader))
        hub.close()
        hub = NatsHub(f"{survivor.url}/team?replicas=3", timeout=2.0)
        acknowledged: list[str] = []
        for number in range(1, 300):
            if number == 100:
                cluster.named(leader).kill()
            until = time.monotonic() + 60
            while True:
                try:
                    hub.append([event("ana", number)])
                    break
                except SyncError:  # no leader for some seconds; the same event is sent again
                    assert time.monotonic() < until
            acknowledged.append(f"ana-{number}")
        found = [one.id for one in hub.read(START).events]
        assert found == acknowledged
        assert hub.status().note
        hub.close()
    finally:
        cluster.close()


def ready(url: str) -> NatsHub:
    """A hub in a cluster that may still be choosing its leader."""
    until = time.monotonic() + 60
    while True:
        try:
            return NatsHub(url, timeout=5.0)
        except SyncError:
            assert time.monotonic() < until
            time.sleep(0.2)
