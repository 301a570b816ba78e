"""The in-process bus: every member in one Python process, with the promises of a broker (see `Bus`).

`LocalBus` delivers frames as they are, since they are immutable; with `wire=True` each is encoded and decoded on the
way, so that tests meet exactly what a network would carry. `Kept` holds messages in order, and hands them out at each
reader's pace. Mailboxes, inboxes and threads are those of `member_bus`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from skep.hive.bus.bus import ACK_SECONDS, DELIVERIES, FOLLOWED, KEPT, matches
from skep.hive.bus.member_bus import MemberBus, Switchboard
from skep.hive.messages import Envelope, decode, encode


class Kept:
    """Messages in order of arrival, at positions 1, 2, 3 …; of more than so many the oldest go."""

    def __init__(self, now: Callable[[], float], most: int = KEPT) -> None:
        self.now = now
        self.lock = threading.Lock()
        self.readers: dict[tuple[str, str], LocalReader] = {}
        self.messages: dict[int, Envelope] = {}
        self.last = 0
        self._most = most
        self._ids: set[str] = set()

    def append(self, envelope: Envelope) -> None:
        """Keep a message, unless one with its id is kept."""
        with self.lock:
            if envelope.id and envelope.id in self._ids:
                return
            self.last += 1
            self.messages[self.last] = envelope
            self._ids.add(envelope.id)
            if len(self.messages) > self._most:
                self._ids.discard(self.messages.pop(self.last - self._most).id)


class LocalDelivery(NamedTuple):
    """One message that a reader got."""

    reader: LocalReader
    envelope: Envelope
    position: int

    def ack(self) -> None:
        """Done; never deliver it again to this reader."""
        with self.reader.kept.lock:
            self.reader.pending.pop(self.position, None)

    def retry(self, after: float = 0.0) -> None:
        """Not done; deliver it again after so many seconds."""
        with self.reader.kept.lock:
            if self.position in self.reader.pending:
                self.reader.pending[self.position].due = self.reader.kept.now() + after


class _Pending:
    def __init__(self, envelope: Envelope, due: float) -> None:
        self.envelope, self.due, self.attempts = envelope, due, 1


class LocalReader:
    """A named reader of what is kept."""

    def __init__(self, kept: Kept, subject: str) -> None:
        self.kept = kept
        self.pending: dict[int, _Pending] = {}
        """What was delivered and not yet acknowledged."""
        self.dead: list[Envelope] = []
        self._subject = subject
        self._passed = 0

    def _fresh(self) -> list[int]:
        kept = self.kept
        first = max(self._passed, kept.last - len(kept.messages)) + 1
        wanted = range(first, kept.last + 1)
        return [place for place in wanted if matches(self._subject, kept.messages[place].subject)]

    @property
    def behind(self) -> int:
        """The number of kept messages it has not yet acknowledged."""
        with self.kept.lock:
            return len(self._fresh()) + len(self.pending)

    def fetch(self, limit: int = 100) -> Sequence[LocalDelivery]:
        """Up to `limit` messages that are there now: those that are due again first."""
        now = self.kept.now()
        with self.kept.lock:
            places: list[int] = []
            for place, one in sorted(self.pending.items()):
                if one.due <= now and one.attempts == DELIVERIES:
                    self.dead.append(self.pending.pop(place).envelope)
                elif one.due <= now and len(places) < limit:
                    one.attempts, one.due = one.attempts + 1, now + ACK_SECONDS
                    places.append(place)
            for place in self._fresh()[: limit - len(places)]:
                self.pending[place] = _Pending(self.kept.messages[place], now + ACK_SECONDS)
                self._passed = place
                places.append(place)
            return [LocalDelivery(self, self.pending[place].envelope, place) for place in places]


class LocalSwitchboard(Switchboard):
    """Delivers within this process, and keeps in its memory what is followed."""

    def __init__(self, *, now: Callable[[], float], wire: bool) -> None:
        super().__init__(now=now)
        self.wire = wire
        self.kept: Kept | None = None
        """What was sent since somebody first followed."""

    def send(self, envelope: Envelope) -> int:
        """Deliver; how many handlers it reached."""
        if self.wire:
            envelope = decode(encode(envelope))
        if self.kept is not None and any(matches(pattern, envelope.subject) for pattern in FOLLOWED):
            self.kept.append(envelope)
        return self.deliver(envelope)

    def follow(self, name: str, subject: str) -> LocalReader:
        """The named reader."""
        with self.lock:
            self.kept = self.kept or Kept(self.now)
            return self.kept.readers.setdefault((name, subject), LocalReader(self.kept, subject))


class LocalBus(MemberBus):
    """A bus within one process. `now` times redelivery; waiting uses the real clock."""

    def __init__(
        self,
        member: str = "",
        *,
        now: Callable[[], float] = time.monotonic,
        wire: bool = False,
    ) -> None:
        super().__init__(member, LocalSwitchboard(now=now, wire=wire))
