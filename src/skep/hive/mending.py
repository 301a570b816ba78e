"""Bring every copy that should exist up to date, whoever holds it and wherever it runs.

Members say what they have seen, as ranges of counters. Each is then asked once which of its events the others
should have, looks through its log a single time for all of them, and what it names is handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from skep.hive.about import belongs, dot_of
from skep.hive.frames import (
    RepairEvents,
    RepairRequest,
    Seen,
    SeenRequest,
    ShardStore,
    ShardStored,
    without_position,
)
from skep.hive.replica import BATCH, seen
from skep.hive.tracing import tracer
from skep.hive.versions import Versions
from skep.model import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from skep.bank import Bank
    from skep.hive.calls import Calls


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair did."""

    events: int = 0
    """How many were new where they arrived."""
    asked: int = 0
    missing: tuple[str, ...] = ()
    """Members that could not be asked or did not confirm; repair again when they are back."""
    refused: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Events that a member did not believe, and why."""

    @property
    def completeness(self) -> float:
        """The share of the members that took part."""
        return 1.0 - len(self.missing) / self.asked if self.asked else 1.0


class Holds(Protocol):
    """What of a member is needed to say what others lack."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def bank(self) -> Bank:
        """Its bank."""
        ...

    def keeps(self, memory_id: str, member: str | None = None) -> bool:
        """Whether a member should hold a copy."""
        ...


def lacking_of(member: Holds, request: RepairRequest) -> RepairEvents:
    """The events of one member that others should have; handles one batch of its log."""
    mine = seen(member.bank)
    lacking = {name: mine.minus(theirs) for name, theirs in request.seen.items() if name != member.name}
    whole = Versions()
    for missing in lacking.values():
        whole = whole.merged(missing)
    whole = whole.minus(request.passed)
    batch = list(islice(member.bank.events_in(whole.ranges), max(1, request.limit)))
    events: list[Event] = []
    wanted: dict[str, list[int]] = {}
    for event in batch:
        dot = (event.actor, event.counter)
        targets = [
            name
            for name, missing in lacking.items()
            if dot in missing and _concerned(member, name, request.seen[name], event)
        ]
        for name in targets:
            wanted.setdefault(name, []).append(len(events))
        if targets:
            events.append(without_position(event))
    return RepairEvents(
        member=member.name,
        events=tuple(events),
        wanted={name: tuple(places) for name, places in wanted.items()},
        passed=request.passed.merged(Versions.of((e.actor, e.counter) for e in batch)),
        left=whole.count() - len(batch),
    )


def _concerned(member: Holds, target: str, theirs: Versions, event: Event) -> bool:
    return belongs(event, lambda name: member.keeps(name, target) or dot_of(name) in theirs)


def repair(
    calls: Calls,
    path: Callable[[str, str], tuple[str, ...]],
    *,
    among: Iterable[str] | None = None,
    batch: int = BATCH,
) -> Repaired:
    """Ask every member what the others lack, and hand it on.

    Args:
        calls: The way to the members.
        path: The way a copy takes from one member to another.
        among: The members to ask; all of them by default.
        batch: How many events a member looks through at a time.
    """
    with tracer.span("hive.repair") as span:
        standing = calls.ask(SeenRequest(), Seen, to=among)
        known: dict[str, Versions] = {name: said.seen for name, said in standing.answers.items()}
        missing = set(standing.missing)
        moved, refused = 0, dict[str, str]()
        for source in known:
            passed = Versions()
            while source not in missing:
                request = RepairRequest(seen=known, passed=passed, limit=batch)
                found = calls.ask(request, RepairEvents, to=(source,)).answers.get(source)
                if found is None:
                    missing.add(source)
                    break
                told = _hand_on(calls, found, path)
                missing |= {name for name in found.wanted if name not in told}
                for name, stored in told.items():
                    moved += stored.applied
                    refused |= stored.refused
                    dots = ((found.events[i].actor, found.events[i].counter) for i in found.wanted[name])
                    known[name] = known[name].merged(Versions.of(dots))
                passed = found.passed
                if not found.left:
                    break
        span.note(events=moved, missing=len(missing))
    asked = len(standing.asked)
    return Repaired(events=moved, asked=asked, missing=tuple(sorted(missing)), refused=refused)


def _hand_on(
    calls: Calls, found: RepairEvents, path: Callable[[str, str], tuple[str, ...]]
) -> Mapping[str, ShardStored]:
    frames = {
        name: ShardStore(events=tuple(found.events[place] for place in places))
        for name, places in found.wanted.items()
    }
    paths = {name: path(found.member, name) for name in frames}
    return calls.ask_each(frames, ShardStored, paths=paths).answers
