"""Ask members of a hive something other than a query: one question, many answers, one deadline.

Members may be in this process or anywhere on the bus; nothing here looks into their banks. Whoever is silent
until the deadline, fails or answers something else is named in what comes back.

Listing memories of a whole hive, a page at a time.
"""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
    from skep.hive.bus.bus import Bus, Inbox
    from skep.hive.gateway import HivePolicy
    from skep.hive.hive import Hive
    from skep.hive.hive_recall import Health
    from skep.hive.members import Subjects
    from skep.hive.placement import Placing


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
    hive: Placing, statuses: Sequence[str], names: Iterable[str] | None = None, *, batch: int = 1000
) -> Listed[tuple[str, Memory]]:
    """Every memory of some statuses that members (all, unless named) hold, copies included."""
    where = Filter(statuses=tuple(statuses))
    places: dict[str, int | None] = dict.fromkeys(hive.layout.members if names is None else names)
    asked, missing = len(places), set[str]()
    found: list[tuple[str, Memory]] = []
    while places:
        frames: dict[str, Frame] = {
            name: ShardFind(where=where, limit=batch, before=before) for name, before in places.items()
        }
        told = hive.calls.ask_each(frames, ShardPage)
        missing |= set(told.missing)
        found += [(name, memory) for name, page in told.answers.items() for _, memory in page.found]
        places = {name: page.found[-1][0] for name, page in told.answers.items() if len(page.found) >= batch}
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
