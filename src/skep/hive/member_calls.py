"""Questions to the members of a hive other than a recall: one question, many answers, one deadline.

`Calls` asks members in this process or anywhere on the bus; `Question` keeps the inbox of one question open; `Gathered`
names whoever is silent until the deadline, fails or answers something else. `Health` knows who has been silent of late.
`find_everywhere` and `of_members` list memories of all members page by page. Called by every object of the hive; it
looks into no bank.
"""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from skep.bank.read import Page
from skep.errors import InvalidInputError
from skep.filters import Filter
from skep.hive.messages import PRIVATE, Failed, Frame, ShardFetch, ShardFetched, ShardFind, ShardPage
from skep.hive.traces import tracer
from skep.model import CURRENT, STATUSES, Memory
from skep.text.terms import query_terms
from skep.validation import clean_count, clean_words

if TYPE_CHECKING:
    from skep.hive.agent_bank import AgentBank
    from skep.hive.bus.bus import Bus
    from skep.hive.gateway import HivePolicy
    from skep.hive.hive import Hive
    from skep.hive.members import Subjects


F = TypeVar("F", bound=Frame)
T = TypeVar("T")
LATE = "no answer in time"
NOBODY = "nobody is there"


BATCH = 1000
"""Memories that a member lists at a time."""
SUSPECT_AFTER = 2
"""Questions missed in a row after which a member is no longer waited for."""


class Health:
    """Members that have stopped answering; shared by all questions of a hive."""

    def __init__(self) -> None:
        self._missed: dict[str, int] = {}

    def suspects(self) -> frozenset[str]:
        """Members that are asked, but not waited for."""
        return frozenset(name for name, count in self._missed.items() if count >= SUSPECT_AFTER)

    def note(self, answered: Iterable[str], missed: Iterable[str]) -> None:
        """Remember who answered and who did not."""
        for name in answered:
            self._missed.pop(name, None)
        for name in missed:
            self._missed[name] = self._missed.get(name, 0) + 1


class Gathered(Generic[F]):
    """The answers to one question."""

    def __init__(self, asked: Iterable[str], answers: Mapping[str, F], faults: Mapping[str, str]) -> None:
        self.asked = tuple(asked)
        self.answers = dict(answers)
        self.faults = dict(faults)
        """Per member that did not answer sensibly: late, or what went wrong."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Members that did not answer."""
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


class Question(Generic[F]):
    """One question that was asked: its inbox stays open, so that answers may be collected more than once."""

    def __init__(
        self,
        calls: Calls,
        kind: type[F],
        frames: Mapping[str, Frame],
        paths: Mapping[str, tuple[str, ...]],
        *,
        broadcast: bool = False,
    ) -> None:
        self._calls = calls
        self._kind = kind
        self._frames = frames
        self._paths = paths
        self._broadcast = broadcast
        self._answers: dict[str, F] = {}
        self._faults: dict[str, str] = {}
        self._taken = 0

    def __enter__(self) -> Self:
        self._inbox = self._calls.bus.inbox().__enter__()
        self._reached = self._send()
        return self

    def __exit__(self, *unused: object) -> None:
        self._inbox.close()

    def _send(self) -> int:
        """Ask everybody at once, or each by name; how many are there to answer."""
        frames, paths, subjects = self._frames, self._paths, self._calls.subjects
        if self._broadcast and frames:
            frame, path = next(iter(frames.values())), next(iter(paths.values()))
            return self._inbox.ask(subjects.ask, frame, path=path)
        for name, frame in frames.items():
            if not self._inbox.ask(subjects.to(name), frame, path=paths.get(name, ())):
                self._faults[name] = NOBODY
        return len(frames) - len(self._faults)

    def collect(self, wait: float) -> Gathered[F]:
        """Answers that came until now or come within `wait` seconds; members that are silent of late are not waited
        for.
        """
        calls, listening = self._calls, self._frames.keys() - self._faults.keys()
        waited = (listening - calls.health.suspects()) or listening
        until = calls.now() + wait
        while True:
            left = until - calls.now()
            open_still = len(waited - self._answers.keys() - self._faults.keys())
            expected = min(self._reached, self._taken + open_still)
            for envelope in self._inbox.take(expected, wait=max(0.0, left)):
                self._taken += 1
                if envelope.sender not in self._frames:
                    continue
                if isinstance(envelope.frame, self._kind):
                    self._answers.setdefault(envelope.sender, envelope.frame)
                else:
                    self._faults[envelope.sender] = _fault(envelope.frame)
            if (
                left <= 0
                or self._taken >= self._reached
                or not waited - self._answers.keys() - self._faults.keys()
            ):
                break
        late = {name: LATE for name in self._frames if name not in self._answers}
        calls.health.note(self._answers, ())
        return Gathered(self._frames, self._answers, late | self._faults)


class Calls:
    """The questions of one hive to its members.

    Args:
        bus: How members are reached.
        subjects: Where.
        names: Who they are; members come and go.
        policy: How long to wait.
        health: Which of them have stopped answering.
        now: A clock for waiting.
    """

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
        self.bus = bus
        self.subjects = subjects
        self.names = names
        self.health = health
        self.now = now
        self._policy = policy

    def put(
        self,
        frame: Frame,
        kind: type[F],
        *,
        to: Iterable[str] | None = None,
        path: tuple[str, ...] = (),
    ) -> Question[F]:
        """Ask members (all, unless named) something to be collected later; use it in a `with`.

        Args:
            frame: The question.
            kind: The frame that is an answer.
            to: Whom to ask.
            path: The way what is sent takes.
        """
        names = tuple(self.names() if to is None else to)
        frames, paths = dict.fromkeys(names, frame), dict.fromkeys(names, path)
        return Question(self, kind, frames, paths, broadcast=to is None)

    def ask(
        self,
        frame: Frame,
        kind: type[F],
        *,
        to: Iterable[str] | None = None,
        path: tuple[str, ...] = (),
        wait: float | None = None,
    ) -> Gathered[F]:
        """Ask members (all, unless named), and wait until every one that still speaks has answered.

        Silence is held against a member only where the hive's whole deadline was waited for, as by default.
        """
        return self._collected(self.put(frame, kind, to=to, path=path), wait)

    def ask_each(
        self,
        frames: Mapping[str, Frame],
        kind: type[F],
        *,
        paths: Mapping[str, tuple[str, ...]] | None = None,
        wait: float | None = None,
    ) -> Gathered[F]:
        """Ask some members, each something of its own."""
        return self._collected(Question(self, kind, frames, paths or {}), wait)

    def _collected(self, question: Question[F], wait: float | None) -> Gathered[F]:
        with tracer.span("hive.ask") as span, question:
            found = question.collect(self._policy.deadline if wait is None else wait)
            span.note(members=len(found.asked), answered=len(found.answers))
        if wait is None:
            self.health.note((), (name for name, fault in found.faults.items() if fault == LATE))
        return found

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


def find_everywhere(
    hive: Hive,
    view: AgentBank,
    text: str | None = None,
    *,
    status: Any = CURRENT,
    limit: int = 50,
    cursor: str | None = None,
    **conditions: Any,
) -> Page:
    """Memories of all members, newest first, each once; the cursor knows how far each member was read."""
    where = view.filter(status=STATUSES if status is None else status, **conditions)
    limit = clean_count("limit", limit, 1, 10_000)
    text = clean_words("text", text, view.engine.settings.text_limit)
    places = _read_cursor(cursor)
    words = query_terms(text) if text else ()
    shown: dict[str, Memory] = {}
    while True:
        queues = _ask(hive, view, where, limit + 1, places, words)
        skipped = _shown_elsewhere(hive, queues)
        full = {name for name, queue in queues.items() if len(queue) > limit}
        while waiting := {name: queue for name, queue in queues.items() if queue}:
            name = max(waiting, key=lambda name: (waiting[name][0][1].created_at, name))
            row, memory = waiting[name][0]
            another = memory.id not in shown and (name, memory.id) not in skipped
            if another and len(shown) == limit:
                return Page(memories=tuple(shown.values()), cursor=_write_cursor(places))
            waiting[name].popleft()
            places[name] = row
            if another:
                shown[memory.id] = memory
            if not queues[name] and name in full:
                break  # this member may have more, and it may come next
        else:
            return Page(memories=tuple(shown.values()))


def _ask(
    hive: Hive, view: AgentBank, where: Filter, limit: int, places: dict[str, int], words: Sequence[str]
) -> dict[str, deque[tuple[int, Memory]]]:
    """The next memories of every member, and of the agent's own bank."""
    frames: dict[str, Frame] = {
        name: ShardFind(where=where, limit=limit, before=places.get(name), terms=tuple(words))
        for name in hive.layout.members
    }
    answers = hive.calls.ask_each(frames, ShardPage).answers
    queues = {name: deque(answers[name].found) for name in sorted(answers)}
    if view.private is not None:
        engine = view.private.engine
        found = engine.find(where, limit=limit, before_row=places.get(PRIVATE), terms=words)
        queues[PRIVATE] = deque(found)
    return queues


def _shown_elsewhere(hive: Hive, queues: dict[str, deque[tuple[int, Memory]]]) -> frozenset[tuple[str, str]]:
    """The copies that are shown by the member that answers for them, and so not by the others."""
    doubtful: dict[str, dict[str, list[str]]] = {}
    for name, queue in queues.items():
        for _, memory in queue:
            owner = hive.layout.owner(memory.id)
            if name != PRIVATE and owner is not None and owner != name:
                doubtful.setdefault(owner, {}).setdefault(memory.id, []).append(name)
    frames: dict[str, Frame] = {name: ShardFetch(ids=tuple(held)) for name, held in doubtful.items()}
    told = hive.calls.ask_each(frames, ShardFetched).answers
    return frozenset(
        (name, memory.id)
        for owner, part in told.items()
        for memory in part.found.memories
        for name in doubtful[owner].get(memory.id, ())
    )


def of_members(
    calls: Calls, statuses: Sequence[str], names: Iterable[str] | None = None
) -> Listed[tuple[str, Memory]]:
    """Every memory of some statuses that members (all, unless named) hold, copies included."""
    where = Filter(statuses=tuple(statuses))
    places: dict[str, int | None] = dict.fromkeys(calls.names() if names is None else names)
    asked, missing = len(places), set[str]()
    found: list[tuple[str, Memory]] = []
    while places:
        frames: dict[str, Frame] = {
            name: ShardFind(where=where, limit=BATCH, before=before) for name, before in places.items()
        }
        told = calls.ask_each(frames, ShardPage)
        missing |= set(told.missing)
        found += [(name, memory) for name, page in told.answers.items() for _, memory in page.found]
        places = {name: page.found[-1][0] for name, page in told.answers.items() if len(page.found) >= BATCH}
    return Listed(found, asked=asked, missing=missing)


def _read_cursor(cursor: str | None) -> dict[str, int]:
    if cursor is None:
        return {}
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=dict[str, int])
    except (TypeError, ValueError, msgspec.DecodeError):
        raise InvalidInputError(
            f"cursor must be one that `find` gave, got {cursor!r:.80}; leave it out to start over",
            field="cursor",
        ) from None


def _write_cursor(places: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).decode()
