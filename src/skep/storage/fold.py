"""From events to state: the one definition of what a log means. Pure.

The state of a memory is the fold of every event that mentions it, in the total order (hlc, actor, counter).
It depends on the *set* of events alone, so replicas that have seen the same events agree, whatever the order of
arrival. Three rules are not plain last-writer-wins:

* membership is an observed-remove set: a retract removes the additions its author had seen, so that a concurrent
  restore survives it;
* `forget` wins over everything, before or after;
* an `undo` makes its target as if it had never been; undoing the undo brings it back.

A memory that a thousand events speak of is not folded a thousand times: what the fold has to know beyond the memory
itself can be kept (`Kept`), and a newer event then steps on from there. The law is that both ways give the same.
`memory_tables` calls this and writes the results; `doctor` folds everything again and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET

from skep.confidence import contradicted, failed, supported
from skep.events import (
    VERSIONED,
    Changed,
    Confirm,
    Dispute,
    Evidence,
    Mark,
    Merge,
    Order,
    Outcome,
    Remember,
    Restore,
    Retract,
    Revise,
    ScopeParts,
    Supersede,
    content,
    order,
    voided,
)
from skep.model import SHARED, Event, Memory, Scope, Status
from skep.text.model_instructions import APPROVED


class State(msgspec.Struct, kw_only=True):
    """The state of one memory by the log: a `Memory` plus what is needed to judge later events."""

    memory: Memory
    present: bool = True
    forgotten: bool = False
    dots: tuple[str, ...] = ()
    """The additions that are in force; a retract lists those it saw."""
    replaced_by: str | None = None
    replaced_how: Status = "superseded"
    replaced_at: Order | None = None
    blame: dict[str, str] = {}


class Seen(msgspec.Struct, array_like=True):
    """The place in the events of a subject that a fold has reached."""

    last: Order
    """The newest event it has seen."""
    undone: list[str]
    """The targets of every undo among them: such an event may still arrive."""

    def follows(self, events: Iterable[Event]) -> bool:
        """True if these events can simply be put on top, oldest first."""
        return all(
            order(event) > self.last and event.kind not in ("undo", "forget") and event.id not in self.undone
            for event in events
        )


class Kept(Seen, array_like=True):
    """Values that folding on needs beyond those that the memory itself shows."""

    confidence: float
    importance: float
    dots: list[str]
    observed: list[str]
    confirmers: list[str]
    disputers: list[str]
    mark: Status | None
    replaced: tuple[str, Status, Order] | None
    blame: dict[str, str]
    taken: dict[str, tuple[int, int]] = {}
    votes: dict[str, bool] = {}


def seen(events: Iterable[Event]) -> Seen:
    """The place that a fold of these events has reached; there is at least one."""
    events = list(events)
    return Seen(
        last=max(map(order, events)),
        undone=[event.body["event"] for event in events if event.kind == "undo"],
    )


def fold(memory_id: str, events: Iterable[Event]) -> State | None:
    """The state of one memory; None while the event that creates it is not known."""
    events = sorted(events, key=order)
    done = _pass(memory_id, events)
    return done.state() if isinstance(done, _Fold) else done


def fold_whole(memory_id: str, events: Iterable[Event]) -> tuple[State | None, Kept | None]:
    """The state of one memory, and what to keep in order to fold on from there."""
    events = sorted(events, key=order)
    done = _pass(memory_id, events)
    return (done.state(), done.kept(seen(events))) if isinstance(done, _Fold) else (done, None)


def _pass(memory_id: str, events: Sequence[Event]) -> _Fold | State | None:
    """One pass over the events of a memory, in order; a tombstone if it is forgotten, None if it is not known yet."""
    if any(event.kind == "forget" and memory_id in event.body["memories"] for event in events):
        return _tombstone(memory_id)
    void = voided(events)
    first = next((event for event in events if event.kind == "remember" and event.id == memory_id), None)
    if first is None:
        return None
    said = content(first)
    assert isinstance(said, Remember)
    if said.text is None:  # erased where it came from; the forget itself is still on its way
        return _tombstone(memory_id)
    fold = _Fold(memory_id, _initial(first, said))
    fold.blame = {**dict.fromkeys(first.body, memory_id), "text": memory_id}
    if memory_id not in void:
        fold.dots.append(memory_id)
    for event in events:
        fold.count(event)
        if event is not first and not (void and event.id in void):
            fold.step(event)
    return fold


def fold_on(memory: Memory, kept: Kept, events: Iterable[Event]) -> tuple[State, Kept]:
    """The state after newer events (`kept.follows` them), from the memory as it is stored and what was kept."""
    fold = _Fold(memory.id, {name: getattr(memory, name) for name in _OWN})
    fold.resume(memory, kept)
    last = kept.last
    for event in sorted(events, key=order):
        fold.count(event)
        fold.step(event)
        last = order(event)
    return fold.state(), fold.kept(Seen(last=last, undone=kept.undone))


def unit(value: float) -> float:
    """A number between 0 and 1."""
    return min(1.0, max(0.0, value))


_OWN = frozenset(Memory.__struct_fields__) - {
    *("id", "uses", "last_used_at", "superseded_by", "merged_into", "stale", "embedder")
}
"""Fields that the fold decides, whatever other memories do."""


def _tombstone(memory_id: str) -> State:
    memory = Memory(id=memory_id, kind="fact", text="", status="retracted")
    return State(memory=memory, present=False, forgotten=True)


_STATED = frozenset(Remember.__struct_fields__) & _OWN
"""Fields of a memory that the event which creates it states."""
_LATEST = 3600.0
"""A memory cannot have been learnt later than it was told, but for a clock that is a little off."""


def _initial(event: Event, said: Remember) -> dict[str, Any]:
    """The fields of a memory after the event that creates it."""
    at = event.at
    fields = {name: getattr(said, name) for name in _STATED}
    created = at if said.created_at is None else said.created_at
    if created > at + _LATEST:
        created = at
    fields |= {"created_at": created, "scope": _scope(said.scope)}
    fields |= {"tags": tuple(said.tags), "evidence": tuple(said.evidence), "version": 1}
    fields["last_evidence_at"] = created if created > at else at  # told now, however long ago it was learnt
    if said.ttl is not None:
        fields["expires_at"] = created + said.ttl
    return fields


def _scope(parts: ScopeParts | None) -> Scope:
    if parts is None or (parts.user is None and parts.project is None and parts.session is None):
        return SHARED
    return Scope(user=parts.user, project=parts.project, session=parts.session)


class _Fold:
    """One pass over the events of one memory."""

    def __init__(self, memory_id: str, fields: dict[str, Any]) -> None:
        self.id = memory_id
        self.fields = fields
        self.dots: list[str] = []
        self.confidence: float = fields.get("confidence", 0.8)
        self.importance: float = fields.get("importance", 0.5)
        self.evidence = dict.fromkeys(fields["evidence"])
        self.confirmers: set[str] = set()
        self.disputers: set[str] = set()
        self.successes = self.failures = 0
        self.votes: dict[str, bool] = {}
        """The last outcome that each agent reported of a memory it did not write."""
        self.taken: dict[str, tuple[int, int]] = {}
        self.mark: Status | None = None
        self.replaced: tuple[str, Status, Order] | None = None
        self.observed: set[str] = set()
        self.blame: dict[str, str] = {}

    def resume(self, memory: Memory, kept: Kept) -> None:
        """Go on where an earlier pass ended."""
        self.confidence, self.importance = kept.confidence, kept.importance
        self.dots, self.observed = list(kept.dots), set(kept.observed)
        self.confirmers, self.disputers = set(kept.confirmers), set(kept.disputers)
        self.successes, self.failures = memory.successes, memory.failures
        self.taken, self.votes = dict(kept.taken), dict(kept.votes)
        self.mark, self.replaced = kept.mark, kept.replaced
        self.blame = dict(kept.blame)

    def kept(self, seen: Seen) -> Kept:
        """The values that a later pass needs in order to go on from here."""
        return Kept(
            last=seen.last,
            undone=seen.undone,
            confidence=self.confidence,
            importance=self.importance,
            dots=self.dots,
            observed=sorted(self.observed),
            confirmers=sorted(self.confirmers),
            disputers=sorted(self.disputers),
            mark=self.mark,
            replaced=self.replaced,
            blame=self.blame,
            taken=self.taken,
            votes=self.votes,
        )

    def count(self, event: Event) -> None:
        """Count a change, undone or not: no two states that were seen bear one number."""
        if event.kind in VERSIONED:
            self.fields["version"] += 1

    def step(self, event: Event) -> None:
        """Take one event. Kinds that do not move a memory, and those of a newer skep, leave it as it is."""
        match content(event):
            case Revise(changes=changes) if changes is not None:
                self._revise(event, changes)
            case Retract() as said:
                self.observed.update(said.observed)
                self.blame["status"] = event.id
            case Restore():
                self._restore(event)
            case Supersede() as said if said.old == self.id:
                self.replaced = (said.new, "superseded", order(event))
                self.blame["status"] = event.id
            case Merge() as said:
                self._merge(event, said)
            case Mark(status=status):
                self.mark = None if status == "active" else cast("Status", status)
                self.blame["status"] = event.id
            case Evidence() as said:
                for source in said.sources:
                    if source not in self.evidence:
                        self.evidence[source] = None
                        if said.counts is None or source in said.counts:
                            self._support(event.at)
                self.blame["confidence"] = event.id
            case Confirm() as said:
                self._confirm(event, said.by or event.actor, said.weight)
            case Dispute() as said:
                by = said.agent or said.by or event.id
                if by not in self.disputers:
                    self.disputers.add(by)
                    self.confidence = contradicted(self.confidence, said.weight)
                    self.blame["confidence"] = event.id
            case Outcome() as said:
                self._outcome(event, said)
            case _:
                pass

    def _support(self, at: float, weight: float = 1.0) -> None:
        self.confidence = supported(self.confidence, weight)
        self.fields["last_evidence_at"] = max(self.fields["last_evidence_at"], at)

    def _revise(self, event: Event, said: Changed) -> None:
        changes = {
            name: value for name in said.__struct_fields__ if (value := getattr(said, name)) is not UNSET
        }
        self.blame |= dict.fromkeys(event.body["changes"], event.id)
        if (scope := changes.pop("scope", None)) is not None:
            self.fields["scope"] = _scope(scope)
        if "tags" in changes:
            self.fields["tags"] = tuple(changes.pop("tags"))
        if "ttl" in changes:
            self.fields["expires_at"] = event.at + changes.pop("ttl")
        if "evidence" in changes:  # sources that no longer stand are taken out; that they once counted stays
            self.evidence = dict.fromkeys(changes.pop("evidence"))
            self.fields["evidence"] = tuple(self.evidence)
        changes.pop("agent", None)  # whoever wrote a memory wrote it
        self.confidence = changes.pop("confidence", self.confidence)
        self.importance = changes.pop("importance", self.importance)
        self.fields.update(changes)

    def _restore(self, event: Event) -> None:
        self.dots.append(event.id)
        self.mark = None
        self.replaced = None
        expires = self.fields.get("expires_at")
        if expires is not None and expires <= event.at:
            self.fields["expires_at"] = None
        self.blame["status"] = event.id

    def _merge(self, event: Event, said: Merge) -> None:
        if said.loser == self.id:
            self.replaced = (said.winner, "merged", order(event))
            self.blame["status"] = event.id
        elif said.evidence is not None:  # otherwise it only inherits what something forgotten had replaced
            self._take_record(said)
            self.evidence.update(dict.fromkeys(said.evidence))
            self.fields["last_evidence_at"] = max(self.fields["last_evidence_at"], event.at)

    def _take_record(self, said: Merge) -> None:
        """Add the record of a copy; two replicas may have merged the same one, each with what it knew of it."""
        if said.successes or said.failures:
            before = self.taken.get(said.loser, (0, 0))
            taken = max(before[0], said.successes), max(before[1], said.failures)
            self.successes += taken[0] - before[0]
            self.failures += taken[1] - before[1]
            self.taken[said.loser] = taken

    def _confirm(self, event: Event, by: str, weight: float) -> None:
        if by in self.confirmers or by == self.fields.get("agent"):
            return
        self.confirmers.add(by)
        self._support(event.at, weight)
        self.importance = supported(self.importance, weight)
        self.blame["confidence"] = event.id

    def _outcome(self, event: Event, said: Outcome) -> None:
        """Count an outcome. Of what another wrote, the last word of an agent counts in the record, and its first moves
        the confidence: so one agent can be wrong once, however often it says so.
        """
        before = None
        if said.by is not None and said.by != self.fields.get("agent"):
            before = self.votes.get(said.by)
            self.votes[said.by] = said.success
        if before is not None:
            self.successes += said.success - before
            self.failures += before - said.success
            return
        if said.success:
            self.successes += 1
            self._support(event.at, said.weight)
        else:
            self.failures += 1
            self.confidence = failed(self.confidence, said.weight)
        self.blame["confidence"] = event.id

    def state(self) -> State:
        dots = tuple(dot for dot in self.dots if dot not in self.observed)
        status: Status = self.mark or "active"
        if not dots:
            status = "retracted"
        fields: dict[str, Any] = self.fields | {
            "confidence": unit(self.confidence),
            "importance": unit(self.importance),
            "evidence": tuple(self.evidence),
            "successes": self.successes,
            "failures": self.failures,
            "confirmations": len(self.confirmers),
            "disputes": len(self.disputers),
            "status": status,
        }
        state = State(memory=Memory(id=self.id, **fields), dots=dots, present=bool(dots), blame=self.blame)
        if self.replaced:
            state.replaced_by, state.replaced_how, state.replaced_at = self.replaced
        return state


class LinkState(msgspec.Struct, frozen=True, kw_only=True):
    """The last word on one link."""

    src: str
    dst: str
    rel: str
    strength: float


def fold_links(src: str, events: Iterable[Event]) -> list[LinkState]:
    """The links that go out of one memory, given every event that mentions it."""
    events = sorted(events, key=order)
    void = voided(events)
    links: dict[tuple[str, str], LinkState] = {}
    for event in events:
        body = event.body
        if event.id in void or body.get("src") != src:
            continue
        if event.kind == "link":
            links[body["dst"], body["rel"]] = LinkState(
                src=src, dst=body["dst"], rel=body["rel"], strength=body.get("strength", 1.0)
            )
        elif event.kind == "unlink":
            links.pop((body["dst"], body["rel"]), None)
    return list(links.values())


WRITERS = "settings/from"
"""The setting that names the other actors whose word on local settings counts."""
LOCAL_SETTINGS = frozenset({"recall/config", "redact/kinds", "conflict/policy", WRITERS})
"""Settings that do not travel, with those that begin with `approved/`.

What another replica says of them counts only if `settings/from` names it."""


def stays_here(key: str) -> bool:
    """True if a setting does not travel."""
    return key in LOCAL_SETTINGS or key.startswith(APPROVED)


def fold_setting(events: Iterable[Event], writers: Mapping[str, int] | None = None) -> tuple[bool, Any]:
    """The value of one setting, and whether it is set at all.

    With `writers`, by what these actors wrote, each up to its own counter.
    """
    events = sorted((e for e in events if writers is None or e.counter <= writers.get(e.actor, 0)), key=order)
    void = voided(events)
    for event in reversed(events):
        if event.kind == "setting" and event.id not in void:
            return event.body["value"] is not None, event.body["value"]
    return False, None
