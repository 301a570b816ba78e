"""ZenohBus (`bus: zenoh://host:7447`): members in any process talk through a Zenoh router, over TCP or QUIC.

`zenoh://` is TCP. `zenoh+quic://` is QUIC, for which the router needs a certificate, and `?ca=FILE` names the one to
trust. Over QUIC each kind of message has a stream of its own, so a lost packet of one kind holds up no other. It keeps
nothing. Opened by `bus_urls`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from skep.errors import ConfigError, HubAwayError, MissingExtraError
from skep.hive.bus.bus import matches
from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.network import NetworkSwitchboard
from skep.hive.capabilities import Pass
from skep.hub.hub_urls import shown

CONNECT_SECONDS = 3.0
SCHEMES = {"zenoh": "tcp", "zenoh+quic": "quic"}
STREAMS = {
    "present": "INTERACTIVE_HIGH",  # 0, control: heartbeats
    "ask": "INTERACTIVE_LOW",  # 1, memory: questions, answers, copies
    "feed": "DATA",  # 2, tasks
    "events": "DATA_LOW",  # 3, status: announcements and gossip
    "gossip": "DATA_LOW",
}
"""The priority of a kind of message, by the last part of its subject; Zenoh has a stream of QUIC for each priority."""


def stream_of(subject: str) -> str:
    """The priority of a message. All messages of a subject have the same, so they keep their order.

    >>> [stream_of(f"hive.team.{rest}") for rest in ("ask", "to.ana", "feed.ana", "events")]
    ['INTERACTIVE_LOW', 'INTERACTIVE_LOW', 'DATA', 'DATA_LOW']
    """
    root, _, rest = subject.partition(".")
    kind = rest if root == "skep" else rest.partition(".")[2].partition(".")[0]
    return STREAMS.get(kind, STREAMS["ask"])


class ZenohPipe:
    """Bytes by subject through a Zenoh router; a subject's parts are parted by slashes there."""

    def __init__(self, url: str) -> None:
        try:
            import zenoh
        except ImportError as error:
            raise MissingExtraError("a Zenoh bus", "zenoh") from error

        library: Any = zenoh
        self._zenoh = library
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ConfigError(f"{shown(url)} is no address of a Zenoh router; write zenoh://HOST:7447")
        config = library.Config()
        endpoint = f"{SCHEMES[parts.scheme]}/{parts.hostname}:{parts.port or 7447}"
        if parts.scheme == "zenoh+quic":
            endpoint += "?multistream=auto"
        settings: dict[str, Any] = {
            "mode": "client",
            "connect/endpoints": [endpoint],
            "connect/timeout_ms": int(CONNECT_SECONDS * 1000),
            "connect/exit_on_failure": True,
            "scouting/multicast/enabled": False,
        }
        if ca := parse_qs(parts.query).get("ca"):
            settings["transport/link/tls/root_ca_certificate"] = ca[0]
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
        try:
            self._session: Any = library.open(config)
        except library.ZError as error:
            raise HubAwayError(
                f"no Zenoh router answers at {shown(url)} ({error}); start `zenohd`, or check the address"
            ) from error

    def publish(self, subject: str, data: bytes) -> None:
        """Send; never dropped for want of room."""
        self._session.put(
            subject.replace(".", "/"),
            data,
            congestion_control=self._zenoh.CongestionControl.BLOCK,
            priority=getattr(self._zenoh.Priority, stream_of(subject)),
        )

    def subscribe(self, subject: str, heard: Callable[[str, bytes], None]) -> Callable[[], None]:
        """Call `heard` for each message; what is returned ends it."""
        end = [False]

        def told(sample: Any) -> None:
            given = str(sample.key_expr).replace("/", ".")
            if not end[0] and matches(subject, given):
                heard(given, sample.payload.to_bytes())

        subscriber = self._session.declare_subscriber(subject.replace(".", "/").replace(">", "**"), told)

        def undeclare() -> None:
            end[0] = True
            subscriber.undeclare()

        return undeclare

    def flush(self) -> None:
        """Give the router a moment: Zenoh tells of subscriptions without being asked, and does not say when it has."""
        time.sleep(0.02)

    def close(self) -> None:
        """Release the session."""
        time.sleep(0.02)
        self._session.close()


class ZenohBus(MemberBus):
    """A bus through a Zenoh router."""

    def __init__(self, url: str, member: str = "", *, capability: Pass | None = None) -> None:
        super().__init__(member, NetworkSwitchboard(ZenohPipe(url), capability=capability))
