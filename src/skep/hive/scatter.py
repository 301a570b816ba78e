"""Ask every member at once, wait no longer than the deadline, and say how much of the hive was heard.

Members that have not answered after a while are asked around: the others answer for what those would have
answered for, from their copies. Whatever comes late, fails or makes no sense counts as missing; the answer
is made of the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from skep.hive.bus.base import Bus, Inbox
from skep.hive.frames import Envelope, ShardFetch, ShardFetched, ShardQuery, ShardResponse
from skep.hive.member import Subjects
from skep.hive.pool import Ask, Fetched, Slice
from skep.hive.sense import out_of_range, sound
from skep.hive.tracing import tracer

if TYPE_CHECKING:
    from skep.hive.policy import HivePolicy

SUSPECT_AFTER = 2
"""Questions missed in a row after which a member is no longer waited for."""


class Heard(msgspec.Struct, kw_only=True):
    """How much of the hive took part in an answer."""

    asked: int = 0
    answered: int = 0
    missing: tuple[str, ...] = ()
    faults: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Per member that failed: late, or what went wrong."""
    hedged: bool = False
    completeness: float = 1.0
    """The share of the hive's memories that could have been in the answer."""


class Health:
    """Which members have stopped answering; shared by all questions of a hive."""

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


class Scatter:
    """One recall's way to the members; implements `union.Members`."""

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        members: Iterable[str],
        *,
        policy: HivePolicy,
        health: Health | None = None,
        lost: Callable[[int, int], float] | None = None,
        hedge: bool = True,
        local: Mapping[str, Callable[[Ask], Slice]] | None = None,
        fetch_local: Mapping[str, Callable[[Iterable[str], bool], Fetched]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._names = tuple(members)
        self._policy = policy
        self._health = health or Health()
        self._lost = lost or _share
        self._hedge = hedge
        self._local = dict(local or {})
        self._fetch_local = dict(fetch_local or {})
        self._now = now
        self._until = now() + policy.deadline
        self._uncovered: set[str] = set()
        self.heard = Heard(asked=len(self._names))

    def ask(self, ask: Ask, *, but: Container[str] = ()) -> Mapping[str, Slice]:
        """The answers by member, within what is left of the deadline; some need not be asked."""
        names = frozenset(name for name in self._names if name not in but)
        with tracer.span("hive.scatter", members=len(names)) as span:
            found = {name: answer(ask) for name, answer in self._local.items() if name not in but}
            if not names - set(self.heard.missing):
                return found
            gathered, missing = self._gather(ask, names)
            found.update(gathered)
            if len(names) == len(self._names):
                self._account(gathered, missing)
            span.note(answered=self.heard.answered, completeness=round(self.heard.completeness, 4))
        return found

    def _gather(self, ask: Ask, names: frozenset[str]) -> tuple[dict[str, Slice], set[str]]:
        suspects = self._health.suspects()
        waited = names - suspects if len(suspects) < len(names) else names
        answers: dict[str, Slice] = {}
        with self._bus.inbox() as inbox:
            self._send(inbox, ask, names)
            self._collect(inbox, answers, len(waited), self._policy.hedge_after, ask)
            missing = set(names - answers.keys())
            if missing and self._hedge and answers and self._left() > 0:
                self.heard.hedged = True
                hedge = msgspec.structs.replace(ask, missing=tuple(sorted(missing)))
                instead: dict[str, Slice] = {}
                with self._bus.inbox() as second:
                    second.ask(self._subjects.ask, ShardQuery(ask=hedge))
                    self._collect(second, instead, len(answers), self._left(), ask, among=answers)
                self._collect(inbox, answers, 0, 0.0, ask)
                missing = set(names - answers.keys())
                self._uncovered = set(answers) - set(instead)
                answers.update({f"{name}*": part for name, part in instead.items() if part.ids or part.held})
            elif missing:
                self._collect(inbox, answers, len(names), self._left(), ask)
                missing = set(names - answers.keys())
        for name, fault in out_of_range(answers).items():
            del answers[name]
            missing.add(name.removesuffix("*"))
            self.heard.faults[name.removesuffix("*")] = fault
        return answers, missing

    def _send(self, inbox: Inbox, ask: Ask, names: frozenset[str]) -> None:
        """Ask everybody at once, or a few by name."""
        if len(names) == len(self._names):
            inbox.ask(self._subjects.ask, ShardQuery(ask=ask))
            return
        for name in names:
            inbox.ask(self._subjects.to(name), ShardQuery(ask=ask))

    def _collect(
        self,
        inbox: Inbox,
        answers: dict[str, Slice],
        expected: int,
        wait: float,
        ask: Ask,
        among: Container[str] | None = None,
    ) -> None:
        """Take answers until enough members have spoken; a failure counts as having spoken."""
        until = self._now() + min(wait, self._left())
        spoken = set(answers)
        arrived = len(spoken)
        while True:
            for envelope in inbox.take(max(expected, arrived + 1), wait=max(0.0, until - self._now())):
                arrived += 1
                if among is None or envelope.sender in among:
                    spoken.add(envelope.sender)
                    self._judge(envelope, answers, ask)
            if len(spoken) >= expected or self._now() >= until:
                return

    def _judge(self, envelope: Envelope, answers: dict[str, Slice], ask: Ask) -> None:
        frame, name = envelope.frame, envelope.sender
        if name not in self._names:
            return
        if isinstance(frame, ShardResponse):
            fault = "spoke for another" if frame.member != name else sound(frame.slice, ask)
            if fault is None:
                answers.setdefault(name, frame.slice)
                self.heard.faults.pop(name, None)
                return
        else:
            fault = getattr(frame, "error", f"answered with {type(frame).__name__}")
        self.heard.faults[name] = fault

    def _account(self, gathered: Mapping[str, Slice], missing: set[str]) -> None:
        heard, total = self.heard, len(self._names)
        answered = [name for name in gathered if not name.endswith("*")]
        heard.answered = len(answered)
        heard.missing = tuple(sorted(missing))
        for name in missing:
            heard.faults.setdefault(name, "no answer in time")
        self._health.note(answered, missing)
        if not missing:
            heard.completeness = 1.0
        elif heard.hedged and not self._uncovered:
            heard.completeness = 1.0 - self._lost(len(missing), total)
        else:
            heard.completeness = 1.0 - len(missing) / total

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id from the members named; what those do not give is asked of everybody."""
        per_member: dict[str, list[str]] = {}
        for memory_id, home in ids.items():
            per_member.setdefault(home.removesuffix("*"), []).append(memory_id)
        memories: dict[str, object] = {}
        found = Fetched()
        remote = {name: wanted for name, wanted in per_member.items() if name in self._names}
        for name, wanted in per_member.items():
            if name in self._fetch_local:
                found = joined(found, self._fetch_local[name](wanted, links))
        if remote:
            with self._bus.inbox() as inbox:
                asked = sum(
                    bool(inbox.ask(self._subjects.to(name), ShardFetch(ids=tuple(wanted), links=links)))
                    for name, wanted in remote.items()
                )
                found = joined(found, *_fetched(inbox.take(asked, wait=max(0.05, self._left()))))
        memories.update({memory.id: memory for memory in found.memories})
        lost = tuple(memory_id for memory_id in ids if memory_id not in memories)
        if lost and self._names and self._left() > 0:
            with self._bus.inbox() as inbox:
                reached = inbox.ask(self._subjects.ask, ShardFetch(ids=lost, links=links))
                waited = reached - len(self.heard.missing)
                found = joined(found, *_fetched(inbox.take(waited, wait=self._left())))
        return found

    def _left(self) -> float:
        return self._until - self._now()


def _share(missing: int, total: int) -> float:
    return missing / total


def all_missing(missing: int, total: int, replicas: int) -> float:
    """The share of memories all of whose copies are with missing members.

    >>> all_missing(1, 10, 3), round(all_missing(3, 10, 3), 4)
    (0.0, 0.0083)
    """
    share = 1.0
    for step in range(min(replicas, total)):
        share *= max(0, missing - step) / (total - step)
    return share


def joined(*parts: Fetched) -> Fetched:
    """Several answers in one, each memory and link once."""
    return Fetched(
        memories=tuple({memory.id: memory for part in parts for memory in part.memories}.values()),
        links=tuple(dict.fromkeys(link for part in parts for link in part.links)),
    )


def _fetched(envelopes: Iterable[Envelope]) -> list[Fetched]:
    return [e.frame.found for e in envelopes if isinstance(e.frame, ShardFetched)]
