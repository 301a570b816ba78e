"""NatsBus (`bus: nats://…`): members in any process talk through a NATS server; JetStream keeps what is followed.

What cannot be handled is set aside by the reader, for JetStream only stops to deliver it. Opened by `bus_urls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from skep.errors import SyncError
from skep.hive.bus.bus import ACK_SECONDS, DELIVERIES, FOLLOWED, KEPT, matches, safe_part
from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.network import NetworkSwitchboard
from skep.hive.capabilities import Pass
from skep.hive.messages import Envelope, decode, encode
from skep.hub.nats_connection import SECOND_NS, NatsConnection, StreamError, Told

STREAM = "skep-events"
NOT_THERE = 10014


class NatsPipe:
    """Bytes by subject through a NATS server."""

    def __init__(self, connection: NatsConnection) -> None:
        self._nats = connection
        self.publish = connection.publish
        self.flush = connection.flush
        self.close = connection.close

    def subscribe(self, subject: str, heard: Callable[[str, bytes], None]) -> Callable[[], None]:
        """Call `heard` for each message; what the server itself says is left out."""

        def told(message: Told) -> None:
            if not message.status:
                heard(message.subject, message.data)

        return self._nats.subscribe(subject, told)


class NatsDelivery:
    """One message that a reader got."""

    def __init__(self, nats: NatsConnection, told: Told) -> None:
        self._nats = nats
        self._reply = told.reply
        self.envelope: Envelope = decode(told.data)
        # $JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.POSITION.NUMBER.TIME.PENDING[.RANDOM]
        parts = told.reply.split(".")
        first = 4 if len(parts) <= 9 else 6
        self.attempt, self.position = int(parts[first]), int(parts[first + 1])

    def ack(self) -> None:
        """Done; the server has noted it when this returns."""
        self._nats.ask(self._reply, b"+ACK")

    def retry(self, after: float = 0.0) -> None:
        """Not done; deliver it again after so many seconds."""
        delay = {"delay": max(1, int(after * SECOND_NS))}
        self._nats.ask(self._reply, b"-NAK " + msgspec.json.encode(delay))


class NatsReader:
    """A named reader of what is kept; its position is kept by the server."""

    def __init__(self, nats: NatsConnection, name: str) -> None:
        self._nats = nats
        self._name = name
        self.dead: list[Envelope] = []
        """Messages that this reader has set aside."""

    def fetch(self, limit: int = 100) -> Sequence[NatsDelivery]:
        """Up to `limit` messages that are there now."""
        come: list[Told] = []

        def enough(told: Told) -> bool:
            come.append(told)
            return told.status != 0 or len(come) >= limit

        wanted = msgspec.json.encode({"batch": limit, "no_wait": True})
        self._nats.collect(f"{self._nats.api}.CONSUMER.MSG.NEXT.{STREAM}.{self._name}", wanted, enough, 1.0)
        found: list[NatsDelivery] = []
        for told in come:
            if told.status:
                continue
            try:
                delivery = NatsDelivery(self._nats, told)
            except SyncError:  # nobody can read it, today or later
                self._nats.ask(told.reply, b"+TERM")
                continue
            if delivery.attempt > DELIVERIES:
                self.dead.append(delivery.envelope)
                self._nats.ask(told.reply, b"+TERM")
            else:
                found.append(delivery)
        return found

    @property
    def behind(self) -> int:
        """The number of kept messages it has not yet acknowledged."""
        info = self._nats.jetstream(f"CONSUMER.INFO.{STREAM}.{self._name}")
        return int(info["num_pending"]) + int(info["num_ack_pending"])


class NatsSwitchboard(NetworkSwitchboard):
    """A process on a NATS server."""

    def __init__(self, url: str, *, capability: Pass | None = None) -> None:
        self._nats = NatsConnection(url, name="skep bus")
        self._follows = False
        try:
            super().__init__(NatsPipe(self._nats), capability=capability)
        except BaseException:
            self._nats.close()
            raise

    def send(self, envelope: Envelope) -> int:
        """Send; how many subscriptions it reaches. A process that follows waits until the server keeps it."""
        if not self._follows or not any(matches(pattern, envelope.subject) for pattern in FOLLOWED):
            return super().send(envelope)
        headers = {"Nats-Msg-Id": envelope.id} if envelope.id else None
        told = self._nats.ask(envelope.subject, encode(envelope), headers=headers)
        if told.status:  # the stream was deleted on the server
            self._make_stream()
            told = self._nats.ask(envelope.subject, encode(envelope), headers=headers)
        self._nats.answered(told)
        return self.reach(envelope.subject)

    def _make_stream(self) -> None:
        self._nats.make_stream(STREAM, FOLLOWED, max_msgs=KEPT, discard="old")

    def follow(self, name: str, subject: str) -> NatsReader:
        """The named reader; the server keeps how far it has come."""
        self._make_stream()
        self._follows = True
        durable = safe_part(name)
        wanted = {
            "durable_name": durable,
            "ack_policy": "explicit",
            "ack_wait": int(ACK_SECONDS * SECOND_NS),
            "filter_subject": subject,
            "deliver_policy": "all",
        }
        try:
            self._nats.jetstream(f"CONSUMER.INFO.{STREAM}.{durable}")
        except StreamError as error:
            if error.code != NOT_THERE:
                raise
            given = {"stream_name": STREAM, "config": wanted}
            self._nats.jetstream(f"CONSUMER.DURABLE.CREATE.{STREAM}.{durable}", given)
        return NatsReader(self._nats, durable)


class NatsBus(MemberBus):
    """A bus through a NATS server. Members of any number of processes are on it."""

    def __init__(self, url: str, member: str = "", *, capability: Pass | None = None) -> None:
        super().__init__(member, NatsSwitchboard(url, capability=capability))
