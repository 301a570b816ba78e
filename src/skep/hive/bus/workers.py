"""Few threads for many handlers: a handler that hangs costs one thread, never its neighbours.

Each handler has a mailbox; its messages run one at a time and in order. One worker serves all mailboxes.
When work waits and nothing has finished for `patience` seconds, whoever is running is taken to be stuck and
one more worker starts. Spare workers leave again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from skep.hive.frames import Envelope

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
