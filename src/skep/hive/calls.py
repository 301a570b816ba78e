"""Ask members of a hive something other than a query: one question, many answers, one deadline.

Members may be in this process or anywhere on the bus; nothing here looks into their banks. Whoever is silent
until the deadline, fails or answers something else is named in what comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from skep.hive.frames import Failed, Frame, ShardFetch, ShardFetched
from skep.hive.tracing import tracer

if TYPE_CHECKING:
    from skep.hive.bus.base import Bus, Inbox
    from skep.hive.member import Subjects
    from skep.hive.policy import HivePolicy
    from skep.hive.scatter import Health

F = TypeVar("F", bound=Frame)
T = TypeVar("T")
LATE = "no answer in time"
NOBODY = "nobody is there"


class Gathered(Generic[F]):
    """The answers to one question."""

    def __init__(self, asked: Iterable[str], answers: Mapping[str, F], faults: Mapping[str, str]) -> None:
        self.asked = tuple(asked)
        self.answers = dict(answers)
        self.faults = dict(faults)
        """Per member that did not answer sensibly: late, or what went wrong."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Who did not answer."""
        return tuple(name for name in self.asked if name not in self.answers)

    @property
    def completeness(self) -> float:
        """The share of those asked that answered."""
        return len(self.answers) / len(self.asked) if self.asked else 1.0


class Listed(list[T]):
    """A list that says who could not be asked for it."""

    def __init__(self, items: Iterable[T] = (), *, asked: int = 0, missing: Iterable[str] = ()) -> None:
        super().__init__(items)
        self.asked = asked
        self.missing = tuple(sorted(missing))
        """Members that did not answer in time, or not sensibly; what they hold may be more than is shown."""

    @property
    def completeness(self) -> float:
        """The share of the members that were heard."""
        return 1.0 - len(self.missing) / self.asked if self.asked else 1.0


class Calls:
    """The questions of one hive to its members."""

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        names: Callable[[], Sequence[str]],
        *,
        policy: HivePolicy,
        health: Health,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._names = names
        self._policy = policy
        self._health = health
        self._now = now

    def ask(
        self,
        frame: Frame,
        kind: type[F],
        *,
        to: Iterable[str] | None = None,
        subject: str | None = None,
        path: tuple[str, ...] = (),
        wait: float | None = None,
    ) -> Gathered[F]:
        """Ask members (all, unless named) and wait until every one that still speaks has answered.

        Args:
            frame: The question.
            kind: The frame that is an answer.
            to: Whom to ask.
            subject: Where all members listen, if the question is for all.
            path: The way what is sent takes.
            wait: How long at most, in seconds; the hive's deadline by default. Silence within a time of one's own
                is not held against a member.
        """
        if to is not None:
            listed = tuple(to)
            return self.ask_each(
                dict.fromkeys(listed, frame), kind, paths=dict.fromkeys(listed, path), wait=wait
            )
        names = tuple(self._names())
        with tracer.span("hive.ask", members=len(names)) as span, self._bus.inbox() as inbox:
            reached = inbox.ask(subject or self._subjects.ask, frame, path=path)
            found = self._collect(inbox, kind, names, {}, reached, wait)
            span.note(answered=len(found.answers))
        return found

    def ask_each(
        self,
        frames: Mapping[str, Frame],
        kind: type[F],
        *,
        paths: Mapping[str, tuple[str, ...]] | None = None,
        wait: float | None = None,
    ) -> Gathered[F]:
        """Ask some members, each something of its own."""
        if not frames:
            return Gathered((), {}, {})
        faults: dict[str, str] = {}
        with tracer.span("hive.ask", members=len(frames)) as span, self._bus.inbox() as inbox:
            for name, frame in frames.items():
                if not inbox.ask(self._subjects.to(name), frame, path=(paths or {}).get(name, ())):
                    faults[name] = NOBODY
            found = self._collect(inbox, kind, tuple(frames), faults, len(frames) - len(faults), wait)
            span.note(answered=len(found.answers))
        return found

    def _collect(
        self,
        inbox: Inbox,
        kind: type[F],
        names: tuple[str, ...],
        faults: dict[str, str],
        reached: int,
        wait: float | None,
    ) -> Gathered[F]:
        answers: dict[str, F] = {}
        listening = set(names) - faults.keys()
        waited = (listening - self._health.suspects()) or listening
        until = self._now() + (self._policy.deadline if wait is None else wait)
        taken = 0
        while len(waited - answers.keys() - faults.keys()) > 0 and taken < reached:
            left = until - self._now()
            open_still = len(waited - answers.keys() - faults.keys())
            fresh = inbox.take(min(reached, taken + open_still), wait=max(0.0, left))
            taken += len(fresh)
            for envelope in fresh:
                if envelope.sender not in listening:
                    continue
                if isinstance(envelope.frame, kind):
                    answers.setdefault(envelope.sender, envelope.frame)
                else:
                    faults[envelope.sender] = _fault(envelope.frame)
            if left <= 0:
                break
        for name in names:
            if name not in answers:
                faults.setdefault(name, LATE)
        silent = (name for name, fault in faults.items() if fault == LATE)
        self._health.note(answers, silent if wait is None else ())
        return Gathered(names, answers, faults)

    def fetch(
        self,
        ids: Iterable[str],
        *,
        links: bool = False,
        events: bool = False,
        named: Iterable[str] = (),
        to: Iterable[str] | None = None,
    ) -> Gathered[ShardFetched]:
        """Memories by id from whoever has them, and on request their links, their events, or single events."""
        frame = ShardFetch(ids=tuple(ids), links=links, events=events, named=tuple(named))
        return self.ask(frame, ShardFetched, to=to)


def _fault(frame: Frame) -> str:
    return frame.error if isinstance(frame, Failed) else f"answered with {type(frame).__name__}"
