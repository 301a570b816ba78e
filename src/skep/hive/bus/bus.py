"""The Bus protocol: how members of a hive talk, in a form that a message broker can implement.

It has exactly what NATS JetStream offers, so that the in-process bus and a network bus are interchangeable:

- **Subjects** are dotted names; `*` matches one part, `>` matches the rest.
- **Subscriptions** hand each message to a handler, in order, at most once. A handler may return a frame; it
  is sent to the asker.
- **Inboxes** collect many answers to one question until enough have come or a deadline has passed.
- **Streams** keep messages; **consumers** pull them from a position of their choice, acknowledge each, and
  get again what they did not acknowledge in time.
- **Back-pressure**: a full stream refuses (or drops its oldest), a consumer gets no more than it may hold
  unacknowledged, a subscription that lags behind drops and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, Self

import msgspec

from skep.errors import InvalidInputError, SyncError
from skep.hive.messages import Envelope, Frame

Handler = Callable[[Envelope], Frame | None]
"""Takes a message; what it returns is sent back to whoever asked."""

Start = Literal["all", "new"] | int
"""Where a consumer begins: the oldest message kept, only later ones, or a position."""


class BackPressureError(SyncError):
    """A stream is full; the message was not stored. Wait until consumers have caught up."""


class BadSubjectError(InvalidInputError):
    """A subject with empty parts, or a wildcard where a plain name is needed."""


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a stream."""

    subjects: tuple[str, ...]
    max_messages: int = 100_000
    when_full: Literal["refuse", "drop_oldest"] = "refuse"
    """With "refuse", room is made by acknowledgements: what every consumer has acknowledged may go."""


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The way a consumer reads a stream."""

    start: Start = "all"
    subject: str = ">"
    max_in_flight: int = 256
    """Delivered and not yet acknowledged; at this many, `fetch` gives nothing more."""
    ack_wait: float = 30.0
    """Seconds until an unacknowledged message is delivered again."""
    max_deliver: int = 5
    """After so many deliveries the message is set aside as dead."""


class Delivery(Protocol):
    """One message pulled from a stream."""

    @property
    def envelope(self) -> Envelope:
        """The message."""
        ...

    @property
    def position(self) -> int:
        """Its place in the stream; positions only grow."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        ...

    def ack(self) -> None:
        """Done; never deliver it again to this consumer."""
        ...

    def retry(self, after: float = 0.0) -> None:
        """Not done; deliver it again after so many seconds."""
        ...

    def reject(self) -> None:
        """It can never be done; set it aside."""
        ...


class Consumer(Protocol):
    """A named reader of a stream; its position outlives the reader."""

    def fetch(self, limit: int = 100, *, wait: float = 0.0) -> Sequence[Delivery]:
        """Pull up to `limit` messages; wait up to `wait` seconds for the first."""
        ...

    @property
    def behind(self) -> int:
        """The number of messages of the stream it has not yet acknowledged."""
        ...

    @property
    def dead(self) -> Sequence[Envelope]:
        """Messages that were set aside."""
        ...


class Inbox(Protocol):
    """Collects the answers to one question. Answers after it is closed are dropped."""

    def take(self, expected: int, *, wait: float) -> list[Envelope]:
        """All answers not yet taken, as soon as `expected` have come in total or `wait` seconds have
        passed.
        """
        ...

    def ask(self, subject: str, frame: Frame, *, path: tuple[str, ...] = ()) -> int:
        """Ask once more (a hedged retry); answers arrive in the same inbox. Returns how many it reached."""
        ...

    def close(self) -> None:
        """Take no more answers."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *unused: object) -> None: ...


class Subscription(Protocol):
    """A handler bound to a subject."""

    @property
    def dropped(self) -> int:
        """Messages lost because the handler lagged too far behind."""
        ...

    def close(self) -> None:
        """Hand over no more messages."""
        ...


class Bus(Protocol):
    """The contract of every transport. One object is one connection of one member.

    1. Handlers of one subscription run one at a time and in the order of arrival; each message at most once.
    2. A message to several subscriptions reaches each of them; a slow or hanging one delays no other.
    3. An inbox gets every answer until it is closed; `take` never waits longer than it was told.
    4. A stream keeps what it has acknowledged until every consumer has it, or refuses; equal ids are stored once.
    5. The sender that an envelope names is the connection it came from.

    An implementation must not answer in the place of a handler, deliver a message twice to one subscription, drop one
    without counting it (`Subscription.dropped`), change a frame, or block a sender for longer than handing over takes.
    """

    def publish(self, subject: str, frame: Frame, *, id: str = "", path: tuple[str, ...] = ()) -> int:
        """Send to all subscribers and every stream that wants it. Returns the position in the stream, or 0.

        A message whose `id` a stream already holds is stored once.
        """
        ...

    def subscribe(self, subject: str, handler: Handler, *, capacity: int = 1024) -> Subscription:
        """Call `handler` for each message, one at a time and in order."""
        ...

    def inbox(self) -> Inbox:
        """A fresh inbox to ask with."""
        ...

    def add_stream(self, name: str, config: StreamConfig) -> None:
        """Make a stream; the same again is harmless."""
        ...

    def consumer(self, stream: str, name: str, config: ConsumerConfig | None = None) -> Consumer:
        """The named consumer of a stream, made on first use; `config` counts only then."""
        ...

    def as_member(self, name: str) -> Self:
        """The same bus, speaking as `name`."""
        ...

    def close(self) -> None:
        """Stop delivering. Handlers that are running are not interrupted."""
        ...


def parts_of(subject: str) -> tuple[str, ...]:
    """The parts of a subject; empty parts and blanks are refused."""
    parts = tuple(subject.split("."))
    if not all(parts) or any(c.isspace() for c in subject):
        raise BadSubjectError(f"{subject!r} is not a subject; write names with dots between", field="subject")
    return parts


def plain(subject: str) -> tuple[str, ...]:
    """The parts of a subject one may send to: no wildcards."""
    parts = parts_of(subject)
    if "*" in parts or ">" in parts:
        raise BadSubjectError(f"cannot send to {subject!r}: it has a wildcard", field="subject")
    return parts


def matches(pattern: str, subject: str) -> bool:
    """True if a message to `subject` reaches a subscription to `pattern`.

    >>> matches("hive.*.ask", "hive.a.ask"), matches("hive.>", "hive.a.ask"), matches("hive.*", "hive.a.b")
    (True, True, False)
    """
    wanted, given = pattern.split("."), subject.split(".")
    for index, part in enumerate(wanted):
        if part == ">":
            return len(given) > index
        if index >= len(given) or part not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


def safe_part(name: str) -> str:
    """A name as one part of a subject: what a subject cannot hold is written as `%` and its code.

    >>> safe_part("ana v1.2")
    'ana%20v1%2e2'
    """
    return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):02x}" for c in name) or "%"
