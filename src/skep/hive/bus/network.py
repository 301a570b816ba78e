"""NetworkSwitchboard: what every bus between processes shares: bytes, and who is present by heartbeats.

A transport gives a `Pipe` that carries bytes by subject. Each process says every second which subjects its members
listen to, and at once when that changes; one that has not been heard for `AWAY` seconds is away. So a question knows
how many it reaches, a new process is known before its first message, and a dead one costs one deadline.

Two processes may serve the same member (both have opened its file). Then the older one answers; when it falls silent,
the other does.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from skep.clock import system_now
from skep.errors import SyncError
from skep.hive.bus.bus import matches
from skep.hive.bus.member_bus import BusSubscription, Switchboard
from skep.hive.capabilities import Pass, RefusedError
from skep.hive.messages import Envelope, Failed, decode, encode

BEAT = 1.0
"""Seconds between two heartbeats."""
AWAY = 3.5
"""Seconds of silence after which a process is away."""
LOOK = 0.4
"""Seconds that a new process waits to hear who else is there."""
PRESENT = "skep.present"

logger = logging.getLogger("skep.hive.bus")


class Pipe(Protocol):
    """Carries bytes to whoever listens, in this process and elsewhere."""

    def publish(self, subject: str, data: bytes) -> None:
        """Send; wait for nothing."""
        ...

    def subscribe(self, subject: str, heard: Callable[[str, bytes], None]) -> Callable[[], None]:
        """Call `heard` with subject and bytes of each message; what is returned ends it."""
        ...

    def flush(self) -> None:
        """Wait until what was sent and asked for so far has reached the other side."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Listening(msgspec.Struct, frozen=True, array_like=True):
    """One subscription: its subject, and whose it is."""

    subject: str
    whose: str


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat: a process, since when it runs, and what it listens to."""

    process: str
    since: float
    listening: tuple[Listening, ...] = ()
    asks: bool = False
    """True if the others are to answer at once."""
    leaves: bool = False
    introduction: bytes = b""
    """Its token, where the hive asks for one."""
    spent: dict[bytes, int] = msgspec.field(default_factory=dict[bytes, int])
    """Per token, the frames that it has done something about."""


class _Known:
    """The last heartbeat of a process, and when it came."""

    __slots__ = ("heard", "presence")

    def __init__(self, presence: Presence, heard: float) -> None:
        self.presence = presence
        self.heard = heard


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Presence)


class NetworkSwitchboard(Switchboard):
    """The subscriptions of this process, and those of others as far as their heartbeats tell."""

    def __init__(self, pipe: Pipe, *, capability: Pass | None = None) -> None:
        super().__init__()
        self.pipe = pipe
        self.capability = capability
        self.undecoded = 0
        """Messages that no skep can read."""
        self.refused: deque[str] = deque(maxlen=100)
        """The reasons why messages were refused, latest last."""
        self._process = secrets.token_hex(8)
        self._introduction = b"" if capability is None else capability.introduction(self._process)
        self._since = system_now()
        self._known: dict[str, _Known] = {}
        self._whose: dict[int, str] = {}
        """Per subscription of this process, the name under which it counts once however many processes have it."""
        self._ends: dict[str, Callable[[], None]] = {}
        self._closing = threading.Event()
        pipe.subscribe(PRESENT, self._met)
        pipe.subscribe(f"_INBOX.{self._process}.*", self._heard)
        pipe.flush()
        self._say(asks=True)
        self._closing.wait(LOOK)
        threading.Thread(target=self._beat, name="skep-bus-beat", daemon=True).start()

    # Sending

    def send(self, envelope: Envelope) -> int:
        """Send; how many subscriptions it reaches, here and elsewhere."""
        reached = 1 if envelope.subject.startswith("_INBOX.") else self.reach(envelope.subject)
        data = encode(envelope) if self.capability is None else self.capability.seal(envelope)
        self.pipe.publish(envelope.subject, data)
        return reached

    def reach(self, subject: str) -> int:
        """The number of members' subscriptions to a subject in every process that is present."""
        found = {
            (one.subject, one.whose)
            for presence in self.present()
            for one in presence.listening
            if matches(one.subject, subject)
        }
        return len(found)

    def inbox_subject(self) -> str:
        """Where the answers to one question go: to this process."""
        return f"_INBOX.{self._process}.{next(self.inbox_numbers)}"

    # Hearing

    def add(self, subscription: BusSubscription) -> None:
        """Let a subscription hear, and tell everybody that it listens."""
        index = sum(
            one.subject == subscription.subject and one.member == subscription.member for one in self._own()
        )
        self._whose[id(subscription)] = f"{subscription.member}/{index}"
        super().add(subscription)
        if subscription.subject not in self._ends:
            self._ends[subscription.subject] = self.pipe.subscribe(
                subscription.subject,
                lambda subject, data, pattern=subscription.subject: self._heard(subject, data, pattern),
            )
            self.pipe.flush()
        self._say()

    def remove(self, subscription: BusSubscription) -> None:
        """Let a subscription hear no more."""
        super().remove(subscription)
        self._whose.pop(id(subscription), None)
        left = any(one.subject == subscription.subject for one in self._own())
        if not left and (end := self._ends.pop(subscription.subject, None)) is not None:
            end()
        if not self._closing.is_set():
            self._say()

    def _own(self) -> list[BusSubscription]:
        with self.lock:
            return [*(one for some in self.exact.values() for one in some), *self.patterns]

    def _heard(self, subject: str, data: bytes, pattern: str = "") -> None:
        try:
            envelope = decode(data) if self.capability is None else self.capability.open(data, pattern)
        except RefusedError as error:
            self._refuse(subject, error)
            return
        except SyncError as error:
            logger.warning("a message on %s cannot be read: %s", subject, error)
            self.undecoded += 1
            return
        inbox = self.inboxes.get(subject)
        if inbox is not None:
            inbox.put(envelope)
        elif pattern:
            mine = [one for one in self._own() if one.subject == pattern and self._leads(one)]
            self.workers.post([one.mailbox for one in mine], envelope)

    def _refuse(self, subject: str, error: RefusedError) -> None:
        """Say why a message is not taken: here, and to a sender that is known."""
        self.refused.append(error.reason)
        logger.warning("a message on %s is refused: %s", subject, error.reason)
        asked = error.envelope
        if asked is None or not asked.reply_to:
            return
        for member in {one.member for one in self.wanting(subject)}:
            failed = Failed(error=str(error))
            self.send(Envelope(subject=asked.reply_to, frame=failed, sender=member, trace=asked.trace))

    def _leads(self, subscription: BusSubscription) -> bool:
        """True unless an older process serves the same member and is present."""
        same = Listening(subscription.subject, self._whose.get(id(subscription), ""))
        me = (self._since, self._process)
        return not any(
            (presence.since, presence.process) < me and same in presence.listening
            for presence in self.present(others=True)
        )

    # Presence

    def present(self, *, others: bool = False) -> list[Presence]:
        """The processes that are here now, this one first unless only `others` are asked for."""
        limit = time.monotonic() - AWAY
        heard = [known.presence for known in list(self._known.values()) if known.heard >= limit]
        return heard if others else [self._presence(), *heard]

    def _presence(self, *, asks: bool = False, leaves: bool = False) -> Presence:
        listening = tuple(
            Listening(one.subject, self._whose[id(one)]) for one in self._own() if id(one) in self._whose
        )
        return Presence(
            process=self._process,
            since=self._since,
            listening=listening,
            asks=asks,
            leaves=leaves,
            introduction=self._introduction,
            spent={} if self.capability is None else self.capability.told_spent(),
        )

    def _say(self, *, asks: bool = False, leaves: bool = False) -> None:
        self.pipe.publish(PRESENT, _ENCODER.encode(self._presence(asks=asks, leaves=leaves)))

    def _met(self, subject: str, data: bytes) -> None:  # noqa: ARG002
        try:
            presence = _DECODER.decode(data)
        except msgspec.DecodeError:
            self.undecoded += 1
            return
        if presence.process == self._process:
            return
        if presence.leaves:
            self._known.pop(presence.process, None)
            if self.capability is not None:
                self.capability.gone(presence.process)
            return
        if self.capability is not None:
            try:
                self.capability.meet(presence.process, presence.introduction, presence.spent)
            except RefusedError as error:
                self.refused.append(error.reason)
                logger.warning("process %s is refused: %s", presence.process, error.reason)
        self._known[presence.process] = _Known(presence, time.monotonic())
        if presence.asks:
            self._say()

    def _beat(self) -> None:
        while not self._closing.wait(BEAT):
            self._say()
            limit = time.monotonic() - 10 * AWAY
            for process, known in list(self._known.items()):
                if known.heard < limit:
                    self._known.pop(process, None)

    def close(self) -> None:
        """Tell the others, and hear nothing more."""
        if self._closing.is_set():
            return
        self._closing.set()
        super().close()
        self._say(leaves=True)
        self.pipe.close()
