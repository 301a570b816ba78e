"""NatsBus (`bus: nats://…`): members in any process talk through a NATS server; JetStream keeps the streams.

A pull asks for few messages and ends soon, so one that a server has forgotten costs seconds and not for ever. What
cannot be handled is set aside by the reader, for JetStream only stops to deliver it. Opened by `bus_urls`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skep.errors import NotFoundError, OutOfRangeError, SyncError
from skep.hive.bus.bus import BackPressureError, ConsumerConfig, StreamConfig, matches, safe_part
from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.network import NetworkSwitchboard
from skep.hive.capabilities import Pass
from skep.hive.messages import Envelope, decode, encode
from skep.hub.nats_connection import NatsConnection, StreamError, Told

PULL_SECONDS = 2.0
"""A pull ends after so long; a longer wait asks again."""
FULL = (10077, 10122)
"""The stream has as many messages as it may."""
NOT_THERE = 10059
IN_USE = 10058
SECOND_NS = 1_000_000_000


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
    """One message pulled from a stream."""

    def __init__(self, consumer: NatsConsumer, told: Told) -> None:
        self._consumer = consumer
        self._told = told
        self.envelope: Envelope = decode(told.data)
        # $JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.POSITION.NUMBER.TIME.PENDING[.RANDOM]
        parts = told.reply.split(".")
        first = 4 if len(parts) <= 9 else 6
        self.attempt = int(parts[first])
        self.position = int(parts[first + 1])

    def ack(self) -> None:
        """Done; the server has noted it when this returns."""
        self._consumer.settle(self._told, b"+ACK")

    def retry(self, after: float = 0.0) -> None:
        """Not done; deliver it again after so many seconds."""
        self._consumer.settle(
            self._told, b"-NAK " + msgspec.json.encode({"delay": max(1, int(after * SECOND_NS))})
        )

    def reject(self) -> None:
        """It can never be done; set it aside."""
        self._consumer.bury(self._told, self.envelope)


class NatsConsumer:
    """A named reader of a stream; its position is kept by the server."""

    def __init__(self, nats: NatsConnection, stream: str, name: str, config: ConsumerConfig) -> None:
        self._nats = nats
        self._stream = stream
        self._name = name
        self._config = config
        self._dead: list[Envelope] = []

    def fetch(self, limit: int = 100, *, wait: float = 0.0) -> Sequence[NatsDelivery]:
        """Pull up to `limit` messages; wait up to `wait` seconds for the first."""
        until = time.monotonic() + wait
        while True:
            found = self._pull(limit, min(PULL_SECONDS, max(0.0, until - time.monotonic())))
            if found or time.monotonic() >= until:
                return found

    def _pull(self, limit: int, wait: float) -> list[NatsDelivery]:
        asked: dict[str, Any] = {"batch": limit}
        asked |= {"expires": int(wait * SECOND_NS)} if wait > 0.01 else {"no_wait": True}
        come: list[Told] = []

        def enough(told: Told) -> bool:
            come.append(told)
            return told.status != 0 or len(come) >= limit or (wait > 0.01 and _none_left(told))

        subject = f"{self._nats.api}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        self._nats.collect(subject, msgspec.json.encode(asked), enough, wait + 1.0)
        found: list[NatsDelivery] = []
        for told in come:
            if told.status:
                continue
            try:
                delivery = NatsDelivery(self, told)
            except SyncError:  # nobody can read it, today or later
                self.settle(told, b"+TERM")
                continue
            if delivery.attempt > self._config.max_deliver:
                delivery.reject()
            else:
                found.append(delivery)
        return found

    @property
    def behind(self) -> int:
        """The number of messages of the stream it has not yet acknowledged."""
        info = self._nats.jetstream(f"CONSUMER.INFO.{self._stream}.{self._name}")
        return int(info["num_pending"]) + int(info["num_ack_pending"])

    @property
    def dead(self) -> Sequence[Envelope]:
        """Messages that this reader has set aside."""
        return tuple(self._dead)

    def settle(self, told: Told, word: bytes) -> None:
        """Tell the server what became of a message, and wait until it has noted that."""
        self._nats.ask(told.reply, word)

    def bury(self, told: Told, envelope: Envelope) -> None:
        """Set aside."""
        self._dead.append(envelope)
        self.settle(told, b"+TERM")


def _none_left(told: Told) -> bool:
    """True if the server has no more for this consumer at the moment."""
    parts = told.reply.split(".")
    return parts[8 if len(parts) <= 9 else 10] == "0"


class NatsSwitchboard(NetworkSwitchboard):
    """A process on a NATS server."""

    def __init__(self, url: str, *, capability: Pass | None = None, patience: float = 0.02) -> None:
        self._nats = NatsConnection(url, name="skep bus")
        self._streams: dict[str, StreamConfig] = {}
        try:
            super().__init__(NatsPipe(self._nats), capability=capability, patience=patience)
        except BaseException:
            self._nats.close()
            raise

    def send(self, envelope: Envelope) -> tuple[int, int]:
        """Send; the position in the last stream that keeps it, and how many subscriptions it reaches."""
        wanting = [name for name, config in self._streams.items() if _wants(config, envelope.subject)]
        if not wanting:
            return super().send(envelope)
        return self._stored(envelope, wanting[-1]), self.reach(envelope.subject)

    def _stored(self, envelope: Envelope, stream: str) -> int:
        """Send what a stream keeps; its position there. Room is made of what every consumer has acknowledged."""
        headers = {"Nats-Msg-Id": envelope.id} if envelope.id else None
        for attempt in range(2):
            told = self._nats.ask(envelope.subject, encode(envelope), headers=headers)
            if told.status:
                raise NotFoundError(
                    f"stream {stream!r} is gone from the server; make it again with add_stream"
                )
            try:
                return int(self._nats.answered(told)["seq"])
            except StreamError as error:
                if error.code not in FULL:
                    raise
                if attempt or not self._make_room(stream):
                    break
        raise BackPressureError(
            f"stream {stream!r} is full of unacknowledged messages; wait for its consumers, or raise max_messages"
        )

    def _make_room(self, stream: str) -> bool:
        """Drop what every consumer has acknowledged; False if that is nothing."""
        name = safe_part(stream)
        listed: list[Any] = self._nats.jetstream(f"CONSUMER.LIST.{name}").get("consumers") or []
        floors = [int(one["ack_floor"]["stream_seq"]) for one in listed]
        if not floors or min(floors) <= 0:
            return False
        purged = self._nats.jetstream(f"STREAM.PURGE.{name}", {"seq": min(floors) + 1})
        return int(purged.get("purged", 0)) > 0

    def add_stream(self, name: str, config: StreamConfig) -> None:
        """Make a stream on the server; one that is there is used as it is."""
        if config.max_messages < 1:
            raise OutOfRangeError("a stream keeps at least one message", field="max_messages")
        wanted = {
            "name": safe_part(name),
            "subjects": list(config.subjects),
            "retention": "limits",
            "storage": "file",
            "max_msgs": config.max_messages,
            "discard": "old" if config.when_full == "drop_oldest" else "new",
            "duplicate_window": 120 * SECOND_NS,
        }
        try:
            self._nats.jetstream(f"STREAM.CREATE.{safe_part(name)}", wanted)
        except StreamError as error:
            if error.code != IN_USE:
                raise
        self._streams[name] = config

    def consumer(self, stream: str, name: str, config: ConsumerConfig | None) -> NatsConsumer:
        """The named consumer of a stream; the server keeps how far it has come."""
        config = config or ConsumerConfig()
        begin: dict[str, Any] = (
            {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, config.start)}
            if isinstance(config.start, int)
            else {"deliver_policy": config.start}
        )
        durable = safe_part(name)
        wanted = {
            "durable_name": durable,
            "ack_policy": "explicit",
            "ack_wait": int(config.ack_wait * SECOND_NS),
            "max_ack_pending": config.max_in_flight,
            "filter_subject": config.subject,
            **begin,
        }
        where = f"CONSUMER.DURABLE.CREATE.{safe_part(stream)}.{durable}"
        try:
            self._nats.jetstream(f"CONSUMER.INFO.{safe_part(stream)}.{durable}")
        except StreamError as error:
            if error.code == NOT_THERE:
                raise _no_stream(stream, self._streams) from None
            self._nats.jetstream(where, {"stream_name": safe_part(stream), "config": wanted})
        return NatsConsumer(self._nats, safe_part(stream), durable, config)


class NatsBus(MemberBus):
    """A bus through a NATS server. Members of any number of processes are on it."""

    def __init__(
        self, url: str, member: str = "", *, capability: Pass | None = None, patience: float = 0.02
    ) -> None:
        super().__init__(member, NatsSwitchboard(url, capability=capability, patience=patience))


def _wants(config: StreamConfig, subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in config.subjects)


def _no_stream(name: str, known: dict[str, StreamConfig]) -> NotFoundError:
    there = ", ".join(sorted(known)) or "none yet"
    return NotFoundError(f"no stream {name!r}; make it with add_stream (there are: {there})")
