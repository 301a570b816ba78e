"""The in-process bus: every member in one Python process, with the promises of a broker (see `Bus`).

`LocalBus` delivers frames as they are, since they are immutable; with `wire=True` each is encoded and decoded on the
way, so that tests meet exactly what a network would carry. `LocalStream` and `LocalConsumer` keep messages in order
and hand them out at each reader's pace. Mailboxes, inboxes and threads are those of `member_bus`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

from skep.errors import NotFoundError, OutOfRangeError
from skep.hive.bus.bus import BackPressureError, ConsumerConfig, StreamConfig, matches
from skep.hive.bus.member_bus import MemberBus, Switchboard
from skep.hive.messages import Envelope, decode, encode


class LocalDelivery:
    """One message pulled from a stream."""

    __slots__ = ("_consumer", "attempt", "envelope", "position")

    def __init__(self, consumer: LocalConsumer, envelope: Envelope, position: int, attempt: int) -> None:
        self._consumer = consumer
        self.envelope = envelope
        self.position = position
        self.attempt = attempt

    def ack(self) -> None:
        """Done; never deliver it again to this consumer."""
        self._consumer.settle(self.position)

    def retry(self, after: float = 0.0) -> None:
        """Not done; deliver it again after so many seconds."""
        self._consumer.postpone(self.position, after)

    def reject(self) -> None:
        """It can never be done; set it aside."""
        self._consumer.bury(self.position)


class LocalStream:
    """Messages in order of arrival, at positions 1, 2, 3 …"""

    def __init__(self, name: str, config: StreamConfig, now: Callable[[], float]) -> None:
        if config.max_messages < 1:
            raise OutOfRangeError("a stream keeps at least one message", field="max_messages")
        self.name = name
        self.config = config
        self.now = now
        self.changed = threading.Condition()
        self.consumers: dict[str, LocalConsumer] = {}
        self._positions: list[int] = []
        self._messages: list[Envelope] = []
        self._ids: dict[str, int] = {}
        self.last = 0

    def wants(self, subject: str) -> bool:
        """True if it keeps messages to this subject."""
        return any(matches(pattern, subject) for pattern in self.config.subjects)

    def append(self, envelope: Envelope) -> int:
        """Keep a message; returns its position. One with a known id is not kept twice."""
        with self.changed:
            if envelope.id and envelope.id in self._ids:
                return self._ids[envelope.id]
            if len(self._messages) >= self.config.max_messages:
                self._make_room()
            self.last += 1
            self._positions.append(self.last)
            self._messages.append(envelope)
            if envelope.id:
                self._ids[envelope.id] = self.last
            self.changed.notify_all()
            return self.last

    def _make_room(self) -> None:
        if self.config.when_full == "drop_oldest":
            self._trim(self._positions[0])
            return
        floor = min((consumer.floor for consumer in self.consumers.values()), default=0)
        self._trim(floor)
        if len(self._messages) >= self.config.max_messages:
            raise BackPressureError(
                f"stream {self.name!r} holds {len(self._messages)} unacknowledged messages; "
                "wait for its consumers, or raise max_messages"
            )

    def _trim(self, upto: int) -> None:
        """Drop everything at or below a position."""
        cut = bisect_left(self._positions, upto + 1)
        for envelope in self._messages[:cut]:
            self._ids.pop(envelope.id, None)
        del self._positions[:cut], self._messages[:cut]

    def after(self, position: int) -> Sequence[tuple[int, Envelope]]:
        """Messages kept beyond a position."""
        cut = bisect_left(self._positions, position + 1)
        return list(zip(self._positions[cut:], self._messages[cut:], strict=True))

    def at(self, position: int) -> Envelope | None:
        """The message at a position, if it is still kept."""
        cut = bisect_left(self._positions, position)
        found = cut < len(self._positions) and self._positions[cut] == position
        return self._messages[cut] if found else None

    def consumer(self, name: str, config: ConsumerConfig | None) -> LocalConsumer:
        """The named consumer; made on first use."""
        with self.changed:
            if name not in self.consumers:
                self.consumers[name] = LocalConsumer(self, config or ConsumerConfig())
            return self.consumers[name]


class _Pending:
    __slots__ = ("attempt", "due", "envelope")

    def __init__(self, envelope: Envelope, due: float) -> None:
        self.envelope = envelope
        self.due = due
        self.attempt = 1


class LocalConsumer:
    """A named reader of a stream; its position outlives the reader."""

    def __init__(self, stream: LocalStream, config: ConsumerConfig) -> None:
        self._stream = stream
        self._config = config
        starts = {"all": 0, "new": stream.last}
        start = config.start if isinstance(config.start, int) else starts[config.start] + 1
        self._next = max(1, start)
        self._pending: dict[int, _Pending] = {}
        self._dead: list[Envelope] = []

    @property
    def floor(self) -> int:
        """Everything up to here is settled."""
        return min(self._pending, default=self._next) - 1

    @property
    def behind(self) -> int:
        """The number of messages of the stream it has not yet acknowledged."""
        with self._stream.changed:
            fresh = sum(1 for _, e in self._stream.after(self._next - 1) if self._wants(e))
            return fresh + len(self._pending)

    @property
    def dead(self) -> Sequence[Envelope]:
        """Messages that were set aside."""
        with self._stream.changed:
            return tuple(self._dead)

    def fetch(self, limit: int = 100, *, wait: float = 0.0) -> Sequence[LocalDelivery]:
        """Pull up to `limit` messages; wait up to `wait` seconds for the first."""
        with self._stream.changed:
            found = self._pull(limit)
            if not found and wait > 0:
                self._stream.changed.wait_for(self._has_fresh, wait)
                found = self._pull(limit)
            return found

    def _wants(self, envelope: Envelope) -> bool:
        return matches(self._config.subject, envelope.subject)

    def _has_fresh(self) -> bool:
        return len(self._pending) < self._config.max_in_flight and any(
            self._wants(envelope) for _, envelope in self._stream.after(self._next - 1)
        )

    def _pull(self, limit: int) -> list[LocalDelivery]:
        now = self._stream.now()
        found = self._overdue(now, limit)
        for position, envelope in self._stream.after(self._next - 1):
            if len(found) >= limit or len(self._pending) >= self._config.max_in_flight:
                break
            self._next = position + 1
            if self._wants(envelope):
                self._pending[position] = _Pending(envelope, now + self._config.ack_wait)
                found.append(LocalDelivery(self, envelope, position, 1))
        return found

    def _overdue(self, now: float, limit: int) -> list[LocalDelivery]:
        found: list[LocalDelivery] = []
        for position in sorted(self._pending):
            pending = self._pending[position]
            if pending.due > now or len(found) >= limit:
                continue
            if pending.attempt >= self._config.max_deliver:
                self._dead.append(self._pending.pop(position).envelope)
                continue
            pending.attempt += 1
            pending.due = now + self._config.ack_wait
            found.append(LocalDelivery(self, pending.envelope, position, pending.attempt))
        return found

    def settle(self, position: int) -> None:
        """Acknowledge; twice is harmless."""
        with self._stream.changed:
            self._pending.pop(position, None)
            self._stream.changed.notify_all()

    def postpone(self, position: int, after: float) -> None:
        """Deliver again after so many seconds."""
        with self._stream.changed:
            if position in self._pending:
                self._pending[position].due = self._stream.now() + after
                self._stream.changed.notify_all()

    def bury(self, position: int) -> None:
        """Set aside."""
        with self._stream.changed:
            if position in self._pending:
                self._dead.append(self._pending.pop(position).envelope)


def stream_named(streams: dict[str, LocalStream], name: str) -> LocalStream:
    """The stream of that name, or an error that names those there are."""
    if name not in streams:
        known = ", ".join(sorted(streams)) or "none yet"
        raise NotFoundError(f"no stream {name!r}; make it with add_stream (there are: {known})")
    return streams[name]


class LocalSwitchboard(Switchboard):
    """Delivers within this process, and keeps streams in its memory."""

    def __init__(self, *, now: Callable[[], float], wire: bool, patience: float) -> None:
        super().__init__(now=now, patience=patience)
        self.wire = wire
        self.streams: dict[str, LocalStream] = {}

    def send(self, envelope: Envelope) -> tuple[int, int]:
        """Deliver; the position in the last stream that kept it, and how many handlers it reached."""
        if self.wire:
            envelope = decode(encode(envelope))
        position = 0
        for stream in tuple(self.streams.values()):
            if stream.wants(envelope.subject):
                position = stream.append(envelope)
        return position, self.deliver(envelope)

    def add_stream(self, name: str, config: StreamConfig) -> None:
        """Make a stream; the same again is harmless."""
        with self.lock:
            if name not in self.streams:
                self.streams[name] = LocalStream(name, config, self.now)

    def consumer(self, stream: str, name: str, config: ConsumerConfig | None) -> LocalConsumer:
        """The named consumer of a stream."""
        return stream_named(self.streams, stream).consumer(name, config)


class LocalBus(MemberBus):
    """A bus within one process. `now` times redelivery; waiting uses the real clock."""

    def __init__(
        self,
        member: str = "",
        *,
        now: Callable[[], float] = time.monotonic,
        wire: bool = False,
        patience: float = 0.02,
    ) -> None:
        super().__init__(member, LocalSwitchboard(now=now, wire=wire, patience=patience))
