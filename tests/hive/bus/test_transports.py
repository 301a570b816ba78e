"""What is peculiar to single transports: addresses, servers that are away, QUIC."""

from __future__ import annotations

import datetime
import ipaddress
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hub.nats_server import free_port

from skep.errors import ConfigError, HubAwayError
from skep.hive.bus.bus_urls import bus_problem, open_bus
from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.redis_bus import RedisBus
from skep.hive.bus.zenoh_bus import ZenohBus, stream_of
from skep.hive.messages import LearnContent, Query, QueryResponse

from .conftest import router


def test_members_talk_through_a_topic_of_service_bus(service_bus: Callable[..., MemberBus]) -> None:
    here, there = service_bus("here"), service_bus("there")
    there.subscribe("ask", lambda _envelope: QueryResponse(agent="there"))
    until = time.monotonic() + 20
    while here._board.reach("ask") < 1 and time.monotonic() < until:
        time.sleep(0.01)
    with here.inbox() as inbox:
        assert inbox.ask("ask", Query(query="?")) == 1
        assert [e.frame for e in inbox.take(1, wait=20)] == [QueryResponse(agent="there")]


@pytest.mark.parametrize(
    "url",
    [
        "servicebus://host/topic?subscription=a",
        "servicebus://key:secret@host/topic",
        "servicebus://key:s@host",
    ],
)
def test_an_address_of_service_bus_names_key_topic_and_subscription(url: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a topic") as caught:
        open_bus(url)
    assert ":s" not in str(caught.value).partition("; write")[0].removeprefix("servicebus://key")


@pytest.mark.parametrize("scheme", ["redis", "zenoh"])
def test_a_server_that_is_not_there_is_told_of(scheme: str) -> None:
    with pytest.raises(HubAwayError, match="answers at"):
        open_bus(f"{scheme}://127.0.0.1:{free_port()}")


@pytest.mark.parametrize(
    ("address", "said"),
    [("pigeon://x", "no bus that skep knows"), ("nats", "is no bus; write local"), ("nats://", "is no bus")],
)
def test_a_wrong_address_is_refused_in_words(address: str, said: str) -> None:
    assert said in bus_problem(address)
    with pytest.raises(ConfigError, match=said):
        open_bus(address)


def test_a_bus_that_keeps_nothing_says_so(redis_url: str) -> None:
    bus = RedisBus(redis_url, "ana")
    with pytest.raises(ConfigError, match="use one of NATS"):
        bus.follow("c")
    bus.close()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    shown, secret = folder / "cert.pem", folder / "key.pem"
    shown.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return shown, secret


def test_zenoh_goes_over_quic_with_a_certificate(tmp_path: Path) -> None:
    shown, secret = certificate(tmp_path)
    port = free_port()
    process = router(f"quic/localhost:{port}?multistream=auto", str(shown), str(secret))
    here: Any = ZenohBus(f"zenoh+quic://localhost:{port}?ca={shown}", "here")
    there = ZenohBus(f"zenoh+quic://localhost:{port}?ca={shown}", "there")
    try:
        there.subscribe("ask", lambda e: QueryResponse(agent="there"))
        until = time.monotonic() + 20
        while here._board.reach("ask") < 1 and time.monotonic() < until:
            time.sleep(0.01)
        with here.inbox() as inbox:
            assert inbox.ask("ask", Query(query="?")) == 1
            assert [e.frame for e in inbox.take(1, wait=20)] == [QueryResponse(agent="there")]
        there.publish("feed", LearnContent(text="x"))
    finally:
        here.close()
        there.close()
        process.communicate("")


def test_each_kind_of_message_has_a_stream_of_its_own() -> None:
    kinds = ("skep.present", "hive.team.ask", "hive.team.feed.ana", "hive.team.events")
    assert len({stream_of(subject) for subject in kinds}) == 4
    memory = ("hive.team.ask", "hive.team.to.ana", "_INBOX.8f.1")
    assert {stream_of(subject) for subject in memory} == {stream_of("hive.team.ask")}
