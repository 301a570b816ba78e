"""The in-process bus: every member in one Python process, the same promises as a broker.

Frames are immutable and travel as they are; with `wire=True` each is encoded and decoded on the way, so
that tests meet exactly what a network would carry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Self

from skep.hive.bus.base import (
    ConsumerConfig,
    Handler,
    StreamConfig,
    matches,
    parts_of,
    plain,
)
from skep.hive.bus.streams import LocalConsumer, LocalStream, stream_named
from skep.hive.bus.workers import Mailbox, Workers
from skep.hive.frames import Envelope, Failed, Frame, decode, encode
from skep.hive.tracing import current_trace, tracer

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
    """What all members share: who listens to what, streams, inboxes and workers."""

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
        """How many times a handler raised."""
        return self._core.failures

    def settle(self, *, wait: float = 5.0) -> bool:
        """Wait until every message sent so far is handled; False when something is stuck."""
        return self._core.workers.settle(wait=wait)

    def close(self) -> None:
        """Stop delivering. Handlers that are running are not interrupted."""
        self._core.workers.close()
