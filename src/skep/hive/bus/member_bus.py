"""MemberBus: what every transport shares. A member's handle on the bus, its mailboxes, inboxes, and threads.

A transport is a `Switchboard`: it says how an envelope gets to other processes, and keeps what is followed if it can.
Each handler has a mailbox, whose messages run one at a time and in order. One worker thread serves all mailboxes; when
work waits and nothing has finished for `PATIENCE` seconds, whoever is running is taken to be stuck and one more worker
starts. So a handler that hangs costs one thread, never its neighbours.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Self

from skep.errors import ConfigError
from skep.hive.bus.bus import Handler, Reader, matches, parts_of, plain
from skep.hive.messages import Envelope, Failed, Frame
from skep.hive.traces import current_trace, tracer

SPARE = 2
"""Idle workers that are kept."""
PATIENCE = 0.02
"""Seconds without an end of work after which whoever runs is taken to be stuck."""
MOST = 256
"""Workers at a time."""


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

    def __init__(self) -> None:
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
                self._watch.wait(PATIENCE)
                if not self._ready or self._finished != before or self._closed:
                    continue
                if self._idle:
                    self._work.notify()
                elif self._threads < MOST:
                    self._start()


def _run(mailbox: Mailbox, envelope: Envelope) -> None:
    try:
        mailbox.handle(envelope)
    except Exception as error:  # noqa: BLE001 - where a handler starts: its failure is its own
        mailbox.fail(envelope, error)


logger = logging.getLogger("skep.hive.bus")


class BusSubscription:
    """A handler bound to a subject."""

    def __init__(self, board: Switchboard, member: str, subject: str, mailbox: Mailbox) -> None:
        self._board = board
        self.member = member
        self.subject = subject
        self.mailbox = mailbox

    @property
    def dropped(self) -> int:
        """Messages lost because the handler lagged too far behind."""
        return self.mailbox.dropped

    def close(self) -> None:
        """Hand over no more messages."""
        self.mailbox.closed = True
        self._board.remove(self)


class Switchboard:
    """The subscriptions, inboxes and workers of one process. A transport inherits it and says how to `send`."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.workers = Workers()
        self.lock = threading.Lock()
        self.exact: dict[str, tuple[BusSubscription, ...]] = {}
        self.patterns: tuple[BusSubscription, ...] = ()
        self.inboxes: dict[str, BusInbox] = {}
        self.inbox_numbers = count(1)
        self.failures = 0

    def send(self, envelope: Envelope) -> int:
        """Deliver to everybody; how many handlers it reached."""
        return self.deliver(envelope)

    def deliver(self, envelope: Envelope) -> int:
        """Deliver within this process; how many handlers it reached."""
        inbox = self.inboxes.get(envelope.subject)
        if inbox is not None:
            inbox.put(envelope)
            return 1
        return self.workers.post([one.mailbox for one in self.wanting(envelope.subject)], envelope)

    def wanting(self, subject: str) -> list[BusSubscription]:
        """The subscriptions of this process that want a subject."""
        found = list(self.exact.get(subject, ()))
        return found + [one for one in self.patterns if matches(one.subject, subject)]

    def add(self, subscription: BusSubscription) -> None:
        """Let a subscription hear."""
        with self.lock:
            if "*" in subscription.subject or ">" in subscription.subject:
                self.patterns = (*self.patterns, subscription)
            else:
                known = self.exact.get(subscription.subject, ())
                self.exact[subscription.subject] = (*known, subscription)

    def remove(self, subscription: BusSubscription) -> None:
        """Let a subscription hear no more."""
        with self.lock:
            self.patterns = tuple(s for s in self.patterns if s is not subscription)
            known = self.exact.get(subscription.subject, ())
            self.exact[subscription.subject] = tuple(s for s in known if s is not subscription)

    def inbox_subject(self) -> str:
        """Where the answers to one question go."""
        return f"_inbox.{next(self.inbox_numbers)}"

    def follow(self, name: str, subject: str) -> Reader:  # noqa: ARG002
        """The named reader of what is kept."""
        raise ConfigError(
            f"this bus keeps no messages for {name!r} to follow; use one of NATS (bus: nats://…)"
        )

    def close(self) -> None:
        """Deliver nothing more."""
        self.workers.close()


class BusInbox:
    """Collects the answers to one question."""

    def __init__(self, board: Switchboard, member: str) -> None:
        self._board = board
        self._member = member
        self._arrived = threading.Condition(threading.Lock())
        self._answers: list[Envelope] = []
        self._taken = 0
        self._wanted = 0
        self.subject = board.inbox_subject()
        board.inboxes[self.subject] = self

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
            sent_at=self._board.now(),
        )
        return self._board.send(envelope)

    def close(self) -> None:
        """Take no more answers."""
        self._board.inboxes.pop(self.subject, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


class MemberBus:
    """One member's handle on a bus. See `Bus` for the promises."""

    def __init__(self, member: str, board: Switchboard) -> None:
        self.member = member
        self._board = board

    def as_member(self, name: str) -> Self:
        """The same bus, speaking as `name`."""
        other = copy.copy(self)
        other.member = name
        return other

    def publish(self, subject: str, frame: Frame, *, id: str = "", path: tuple[str, ...] = ()) -> None:
        """Send to all subscribers, and keep it for readers."""
        plain(subject)
        envelope = Envelope(
            subject=subject,
            frame=frame,
            id=id,
            sender=self.member,
            trace=current_trace(),
            path=path,
            sent_at=self._board.now(),
        )
        self._board.send(envelope)

    def subscribe(self, subject: str, handler: Handler, *, capacity: int = 1024) -> BusSubscription:
        """Call `handler` for each message, one at a time and in order."""
        parts_of(subject)

        def handle(envelope: Envelope) -> None:
            told = tracer.run(f"bus {subject}", handler, envelope, trace=envelope.trace, member=self.member)
            self._answer(envelope, told)

        def fail(envelope: Envelope, error: Exception) -> None:
            self._board.failures += 1
            reason = f"{type(error).__name__}: {error}"
            logger.warning("%s failed on %s: %s", self.member or "a handler", envelope.subject, reason)
            self._answer(envelope, Failed(error=reason))

        subscription = BusSubscription(self._board, self.member, subject, Mailbox(handle, fail, capacity))
        self._board.add(subscription)
        return subscription

    def _answer(self, envelope: Envelope, frame: Frame | None) -> None:
        if frame is None or not envelope.reply_to:
            return
        answer = Envelope(
            subject=envelope.reply_to,
            frame=frame,
            sender=self.member,
            trace=envelope.trace,
            sent_at=self._board.now(),
        )
        self._board.send(answer)

    def inbox(self) -> BusInbox:
        """A fresh inbox to ask with."""
        return BusInbox(self._board, self.member)

    def follow(self, name: str, subject: str = ">") -> Reader:
        """The named reader of what is announced and fed, from the oldest message that is kept."""
        return self._board.follow(name, subject)

    @property
    def failures(self) -> int:
        """The number of times a handler raised."""
        return self._board.failures

    def settle(self, *, wait: float = 5.0) -> bool:
        """Wait until every message sent so far is handled; False when something is stuck."""
        return self._board.workers.settle(wait=wait)

    def close(self) -> None:
        """Stop delivering. Handlers that are running are not interrupted."""
        self._board.close()
