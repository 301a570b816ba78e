"""The Bus protocol: how members of a hive talk, in a form that a message broker can implement.

It has exactly what NATS JetStream offers, so that the in-process bus and a network bus are interchangeable:

- **Subjects** are dotted names; `*` matches one part, `>` matches the rest.
- **Subscriptions** hand each message to a handler, in order, at most once. A handler may return a frame; it
  is sent to the asker.
- **Inboxes** collect many answers to one question until enough have come or a deadline has passed.
- **Readers** follow what is announced and fed, from the oldest message that is kept; they acknowledge each, and get
  again what they did not acknowledge in time.
- **Back-pressure**: of what is kept the oldest goes, and a subscription that lags behind drops and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from skep.errors import InvalidInputError
from skep.hive.messages import Envelope, Frame

if TYPE_CHECKING:
    from skep.hive.bus.member_bus import BusInbox, BusSubscription

Handler = Callable[[Envelope], Frame | None]
"""Takes a message; what it returns is sent back to whoever asked."""


class BadSubjectError(InvalidInputError):
    """A subject with empty parts, or a wildcard where a plain name is needed."""


FOLLOWED = ("hive.*.events", "hive.*.feed.>")
"""Subjects whose messages are kept for readers: what hives announce, and what their agents are fed."""
KEPT = 100_000
"""Messages that are kept; then the oldest go."""
ACK_SECONDS = 30.0
"""Seconds until a message that was not acknowledged is delivered again."""
DELIVERIES = 5
"""After so many a message is set aside as dead."""


class Delivery(Protocol):
    """One message that a reader got."""

    @property
    def envelope(self) -> Envelope:
        """The message."""
        ...

    @property
    def position(self) -> int:
        """Its place among those that are kept; places only grow."""
        ...

    def ack(self) -> None:
        """Done; never deliver it again to this reader."""
        ...

    def retry(self, after: float = 0.0) -> None:
        """Not done; deliver it again after so many seconds."""
        ...


class Reader(Protocol):
    """A named reader of what is kept; its position outlives it."""

    def fetch(self, limit: int = 100) -> Sequence[Delivery]:
        """Up to `limit` messages that are there now."""
        ...

    @property
    def behind(self) -> int:
        """The number of kept messages it has not yet acknowledged."""
        ...

    @property
    def dead(self) -> Sequence[Envelope]:
        """Messages that were set aside."""
        ...


class Bus(Protocol):
    """The contract of every transport. One object is one connection of one member.

    1. Handlers of one subscription run one at a time and in the order of arrival; each message at most once.
    2. A message to several subscriptions reaches each of them; a slow or hanging one delays no other.
    3. An inbox gets every answer until it is closed; `take` never waits longer than it was told.
    4. What is kept for readers is kept until there is more than `KEPT`; equal ids are kept once.
    5. The sender that an envelope names is the connection it came from.

    An implementation must not answer in the place of a handler, deliver a message twice to one subscription, drop one
    without counting it (`BusSubscription.dropped`), change a frame, or block a sender for longer than handing over.
    """

    def publish(self, subject: str, frame: Frame, *, id: str = "", path: tuple[str, ...] = ()) -> None:
        """Send to all subscribers, and keep it for readers; one with an `id` that is kept already is kept once."""
        ...

    def subscribe(self, subject: str, handler: Handler, *, capacity: int = 1024) -> BusSubscription:
        """Call `handler` for each message, one at a time and in order."""
        ...

    def inbox(self) -> BusInbox:
        """A fresh inbox to ask with."""
        ...

    def follow(self, name: str, subject: str = ">") -> Reader:
        """The named reader of what is sent to the subjects of `FOLLOWED` and fits `subject`."""
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
