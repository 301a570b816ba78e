"""The in-process bus: every member in one Python process, with the promises of a broker (see `Bus`).

`LocalBus` delivers frames as they are, since they are immutable; with `wire=True` each is encoded and decoded on the
way, so that tests meet exactly what a network would carry. `LocalStream` and `LocalConsumer` keep messages in order
and hand them out at each reader's pace. `Workers` run the handlers: each handler has a mailbox, whose messages run
one at a time and in order. One worker thread serves all mailboxes; when work waits and nothing has finished for
`patience` seconds, whoever is running is taken to be stuck and one more worker starts. So a handler that hangs costs
one thread, never its neighbours.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Self

from skep.errors import NotFoundError, OutOfRangeError
from skep.hive.bus.bus import (
    BackPressureError,
    ConsumerConfig,
    Handler,
    StreamConfig,
    matches,
    parts_of,
    plain,
)
from skep.hive.messages import Envelope, Failed, Frame, decode, encode
from skep.hive.traces import current_trace, tracer


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


SPARE = 2
"""Idle workers that are kept."""


class Mailbox:
    """Messages waiting for one handler."""

    __slots__ = ("capacity", "closed", "dropped", "fail", "handle", "queue", "scheduled")

    def __init__(
        self,
        handle: Callable[[Envelope], None],
        fail: Callable[[Envelope, Exception], None],
        capacity: int,
    ) -> None:
        self.handle = handle
        self.fail = fail
        self.capacity = capacity
        self.queue: deque[Envelope] = deque()
        self.scheduled = False
        self.dropped = 0
        self.closed = False


class Workers:
    """Runs mailboxes on as few threads as make progress."""

    def __init__(self, *, patience: float = 0.02, limit: int = 256) -> None:
        self._patience = patience
        self._limit = limit
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._watch = threading.Condition(self._lock)
        self._quiet = threading.Condition(self._lock)
        self._ready: deque[Mailbox] = deque()
        self._threads = 0
        self._idle = 0
        self._running = 0
        self._finished = 0
        self._watching = False
        self._watch_asleep = False
        self._closed = False

    def post(self, targets: Iterable[Mailbox], envelope: Envelope) -> int:
        """Put a message into each mailbox; returns how many took it."""
        taken = 0
        with self._lock:
            if self._closed:
                return 0
            for mailbox in targets:
                if mailbox.closed:
                    continue
                if len(mailbox.queue) >= mailbox.capacity:
                    mailbox.dropped += 1
                    continue
                mailbox.queue.append(envelope)
                taken += 1
                if not mailbox.scheduled:
                    mailbox.scheduled = True
                    self._ready.append(mailbox)
            if taken:
                self._wake()
        return taken

    def settle(self, *, wait: float) -> bool:
        """Wait until nothing is queued or running; False when `wait` seconds were not enough."""
        with self._lock:
            return self._quiet.wait_for(lambda: not self._ready and not self._running, wait)

    def close(self) -> None:
        """Start nothing more; what runs is left alone."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._work.notify_all()
            self._watch.notify_all()

    def _wake(self) -> None:
        if self._idle:
            self._work.notify()
        elif not self._threads:
            self._start()
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watchdog, name="skep-bus-watch", daemon=True).start()
        elif self._watch_asleep:
            self._watch.notify()

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._serve, name="skep-bus", daemon=True).start()

    def _serve(self) -> None:
        self._lock.acquire()
        try:
            while self._await_work():
                mailbox = self._ready.popleft()
                envelope = mailbox.queue.popleft()
                self._running += 1
                self._lock.release()
                try:
                    _run(mailbox, envelope)
                finally:
                    self._lock.acquire()
                    self._running -= 1
                self._finished += 1
                if mailbox.queue and not mailbox.closed:
                    self._ready.append(mailbox)
                else:
                    mailbox.scheduled = False
                if not self._ready and not self._running:
                    self._quiet.notify_all()
        finally:
            self._threads -= 1
            self._lock.release()

    def _await_work(self) -> bool:
        """Hold the lock and a mailbox to serve, or leave (False)."""
        while not self._ready:
            if self._closed or self._idle >= SPARE:
                return False
            self._idle += 1
            self._work.wait()
            self._idle -= 1
        return not self._closed

    def _watchdog(self) -> None:
        with self._lock:
            while not self._closed:
                if not self._ready:
                    self._watch_asleep = True
                    self._watch.wait()
                    self._watch_asleep = False
                    continue
                before = self._finished
                self._watch.wait(self._patience)
                if not self._ready or self._finished != before or self._closed:
                    continue
                if self._idle:
                    self._work.notify()
                elif self._threads < self._limit:
                    self._start()


def _run(mailbox: Mailbox, envelope: Envelope) -> None:
    try:
        mailbox.handle(envelope)
    except Exception as error:  # noqa: BLE001 - where a handler starts: its failure is its own
        mailbox.fail(envelope, error)


logger = logging.getLogger("skep.hive.bus")


class LocalSubscription:
    """A handler bound to a subject."""

    def __init__(self, core: _Core, subject: str, mailbox: Mailbox) -> None:
        self._core = core
        self.subject = subject
        self.mailbox = mailbox

    @property
    def dropped(self) -> int:
        """Messages lost because the handler lagged too far behind."""
        return self.mailbox.dropped

    def close(self) -> None:
        """Hand over no more messages."""
        self.mailbox.closed = True
        self._core.remove(self)


class _Core:
    """The part that all members share: subscriptions, streams, inboxes and workers."""

    def __init__(self, *, now: Callable[[], float], wire: bool, patience: float) -> None:
        self.now = now
        self.wire = wire
        self.workers = Workers(patience=patience)
        self.lock = threading.Lock()
        self.exact: dict[str, tuple[LocalSubscription, ...]] = {}
        self.patterns: tuple[LocalSubscription, ...] = ()
        self.streams: dict[str, LocalStream] = {}
        self.inboxes: dict[str, LocalInbox] = {}
        self.inbox_numbers = count(1)
        self.failures = 0

    def add(self, subscription: LocalSubscription) -> None:
        with self.lock:
            if "*" in subscription.subject or ">" in subscription.subject:
                self.patterns = (*self.patterns, subscription)
            else:
                known = self.exact.get(subscription.subject, ())
                self.exact[subscription.subject] = (*known, subscription)

    def remove(self, subscription: LocalSubscription) -> None:
        with self.lock:
            self.patterns = tuple(s for s in self.patterns if s is not subscription)
            known = self.exact.get(subscription.subject, ())
            self.exact[subscription.subject] = tuple(s for s in known if s is not subscription)

    def send(self, envelope: Envelope) -> tuple[int, int]:
        """Deliver; returns the position in the last stream that kept it, and how many handlers it reached."""
        if self.wire:
            envelope = decode(encode(envelope))
        position = 0
        for stream in tuple(self.streams.values()):
            if stream.wants(envelope.subject):
                position = stream.append(envelope)
        inbox = self.inboxes.get(envelope.subject)
        if inbox is not None:
            inbox.put(envelope)
            return position, 1
        found = [s.mailbox for s in self.exact.get(envelope.subject, ())]
        found += [s.mailbox for s in self.patterns if matches(s.subject, envelope.subject)]
        return position, self.workers.post(found, envelope)


class LocalInbox:
    """Collects the answers to one question."""

    def __init__(self, core: _Core, member: str) -> None:
        self._core = core
        self._member = member
        self._arrived = threading.Condition(threading.Lock())
        self._answers: list[Envelope] = []
        self._taken = 0
        self._wanted = 0
        self.subject = f"_inbox.{next(core.inbox_numbers)}"
        core.inboxes[self.subject] = self

    def put(self, envelope: Envelope) -> None:
        """Take in an answer; the asker is woken only when it has what it waits for."""
        with self._arrived:
            self._answers.append(envelope)
            if len(self._answers) >= self._wanted:
                self._arrived.notify()

    def take(self, expected: int, *, wait: float) -> list[Envelope]:
        """All answers not yet taken, as soon as `expected` have come in total or `wait` seconds passed."""
        with self._arrived:
            self._wanted = expected
            self._arrived.wait_for(lambda: len(self._answers) >= expected, max(0.0, wait))
            fresh = self._answers[self._taken :]
            self._taken = len(self._answers)
            return fresh

    def ask(self, subject: str, frame: Frame, *, path: tuple[str, ...] = ()) -> int:
        """Send a question whose answers come here; returns how many handlers it reached."""
        plain(subject)
        envelope = Envelope(
            subject=subject,
            frame=frame,
            sender=self._member,
            trace=current_trace(),
            reply_to=self.subject,
            path=path,
            sent_at=self._core.now(),
        )
        return self._core.send(envelope)[1]

    def close(self) -> None:
        """Take no more answers."""
        self._core.inboxes.pop(self.subject, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


class LocalBus:
    """A bus within one process. `now` times redelivery; waiting uses the real clock."""

    def __init__(
        self,
        member: str = "",
        *,
        now: Callable[[], float] = time.monotonic,
        wire: bool = False,
        patience: float = 0.02,
        core: _Core | None = None,
    ) -> None:
        self.member = member
        self._core = core or _Core(now=now, wire=wire, patience=patience)

    def as_member(self, name: str) -> LocalBus:
        """The same bus, speaking as `name`."""
        return LocalBus(name, core=self._core)

    def publish(self, subject: str, frame: Frame, *, id: str = "", path: tuple[str, ...] = ()) -> int:
        """Send to all subscribers and every stream that wants it.

        Returns the position in the stream, or 0.
        """
        plain(subject)
        envelope = Envelope(
            subject=subject,
            frame=frame,
            id=id,
            sender=self.member,
            trace=current_trace(),
            path=path,
            sent_at=self._core.now(),
        )
        return self._core.send(envelope)[0]

    def subscribe(self, subject: str, handler: Handler, *, capacity: int = 1024) -> LocalSubscription:
        """Call `handler` for each message, one at a time and in order."""
        parts_of(subject)

        def handle(envelope: Envelope) -> None:
            with tracer.step(f"bus {subject}", trace=envelope.trace, member=self.member):
                self._answer(envelope, handler(envelope))

        def fail(envelope: Envelope, error: Exception) -> None:
            self._core.failures += 1
            reason = f"{type(error).__name__}: {error}"
            logger.warning("%s failed on %s: %s", self.member or "a handler", envelope.subject, reason)
            self._answer(envelope, Failed(member=self.member, error=reason))

        subscription = LocalSubscription(self._core, subject, Mailbox(handle, fail, capacity))
        self._core.add(subscription)
        return subscription

    def _answer(self, envelope: Envelope, frame: Frame | None) -> None:
        if frame is None or not envelope.reply_to:
            return
        answer = Envelope(
            subject=envelope.reply_to,
            frame=frame,
            sender=self.member,
            trace=envelope.trace,
            sent_at=self._core.now(),
        )
        self._core.send(answer)

    def inbox(self) -> LocalInbox:
        """A fresh inbox to ask with."""
        return LocalInbox(self._core, self.member)

    def add_stream(self, name: str, config: StreamConfig) -> None:
        """Make a stream; the same again is harmless."""
        for pattern in config.subjects:
            parts_of(pattern)
        with self._core.lock:
            if name not in self._core.streams:
                self._core.streams[name] = LocalStream(name, config, self._core.now)

    def consumer(self, stream: str, name: str, config: ConsumerConfig | None = None) -> LocalConsumer:
        """The named consumer of a stream, made on first use; `config` counts only then."""
        return stream_named(self._core.streams, stream).consumer(name, config)

    @property
    def failures(self) -> int:
        """The number of times a handler raised."""
        return self._core.failures

    def settle(self, *, wait: float = 5.0) -> bool:
        """Wait until every message sent so far is handled; False when something is stuck."""
        return self._core.workers.settle(wait=wait)

    def close(self) -> None:
        """Stop delivering. Handlers that are running are not interrupted."""
        self._core.workers.close()
