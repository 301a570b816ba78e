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

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from skep.confidence import contradicted, failed, supported
from skep.events import Order, order, voided
from skep.model import SHARED, Event, Memory, Scope, Status


class State(msgspec.Struct, kw_only=True):
    """What the log says of one memory; a `Memory` plus what is needed to judge later events."""

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
    """How far into the events of something a fold has come."""

    last: Order
    """The newest event it has seen."""
    undone: list[str]
    """The targets of every undo among them: such an event may still arrive."""

    def follows(self, events: Iterable[Event]) -> bool:
        """Whether these events can simply be put on top, oldest first."""
        return all(
            order(event) > self.last and event.kind not in ("undo", "forget") and event.id not in self.undone
            for event in events
        )


class Kept(Seen, array_like=True):
    """What folding on needs to know of a memory beyond what the memory itself shows."""

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


def seen(events: Iterable[Event]) -> Seen:
    """How far a fold of these events has come; there is at least one."""
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
    if "text" not in first.body:  # erased where it came from; the forget itself is still on its way
        return _tombstone(memory_id)
    fold = _Fold(memory_id, _initial(first))
    fold.blame = {**dict.fromkeys(first.body, first.id), "text": first.id}
    fold.added(first, gone=first.id in void)
    for event in events:
        if event is not first and event.id not in void:
            fold.step(event)
    return fold


def fold_on(memory: Memory, kept: Kept, events: Iterable[Event]) -> tuple[State, Kept]:
    """The state after newer events (`kept.follows` them), from the memory as it is stored and what was kept."""
    fold = _Fold(memory.id, {name: getattr(memory, name) for name in _OWN})
    fold.resume(memory, kept)
    last = kept.last
    for event in sorted(events, key=order):
        fold.step(event)
        last = order(event)
    return fold.state(), fold.kept(Seen(last=last, undone=kept.undone))


def unit(value: float) -> float:
    """A number between 0 and 1."""
    return min(1.0, max(0.0, value))


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """Without fields of a newer skep, and those that no event may set."""
    return fields if fields.keys() <= _OWN else {k: v for k, v in fields.items() if k in _OWN}


_OWN = frozenset(Memory.__struct_fields__) - {
    *("id", "uses", "last_used_at", "superseded_by", "merged_into", "stale", "embedder")
}
"""What the fold decides, whatever other memories do."""


def _tombstone(memory_id: str) -> State:
    memory = Memory(id=memory_id, kind="fact", text="", status="retracted")
    return State(memory=memory, present=False, forgotten=True)


def _initial(event: Event) -> dict[str, Any]:
    at = event.at
    body: dict[str, Any] = {"kind": "fact", "created_at": at, "scope": None, "evidence": (), **event.body}
    created, scope = body["created_at"], body["scope"]
    body["scope"] = Scope(**scope) if scope else SHARED
    body["tags"], body["evidence"] = tuple(body.get("tags", ())), tuple(body["evidence"])
    body["last_evidence_at"] = created if created > at else at  # told now, however long ago it was learnt
    if "ttl" in body and (ttl := body.pop("ttl")) is not None:
        body["expires_at"] = created + ttl
    return body


_STEPS = frozenset(
    (
        *("revise", "retract", "restore", "supersede", "merge", "mark"),
        *("evidence", "confirm", "dispute", "outcome"),
    )
)
"""The kinds that move a memory. Others, and those of a newer skep, leave it as it is."""


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
        self.taken = dict(kept.taken)
        self.mark, self.replaced = kept.mark, kept.replaced
        self.blame = dict(kept.blame)

    def kept(self, seen: Seen) -> Kept:
        """What a later pass needs in order to go on from here."""
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
        )

    def added(self, event: Event, *, gone: bool = False) -> None:
        if not gone:
            self.dots.append(event.id)

    def step(self, event: Event) -> None:
        if event.kind in _STEPS:
            getattr(self, f"_{event.kind}")(event)

    def _support(self, at: float) -> None:
        self.confidence = supported(self.confidence)
        self.fields["last_evidence_at"] = max(self.fields["last_evidence_at"], at)

    def _revise(self, event: Event) -> None:
        changes = dict(event.body.get("changes", {}))
        for key in changes:
            self.blame[key] = event.id
        scope = changes.pop("scope", None)
        if scope is not None:
            self.fields["scope"] = Scope(**scope)
        if "tags" in changes:
            self.fields["tags"] = tuple(changes.pop("tags"))
        if "ttl" in changes:
            self.fields["expires_at"] = event.at + changes.pop("ttl")
        if "evidence" in changes:  # what no longer stands is taken out; that it once counted stays
            self.evidence = dict.fromkeys(changes.pop("evidence"))
            self.fields["evidence"] = tuple(self.evidence)
        self.confidence = changes.pop("confidence", self.confidence)
        self.importance = changes.pop("importance", self.importance)
        self.fields.update(changes)

    def _retract(self, event: Event) -> None:
        self.observed.update(event.body.get("observed", ()))
        self.blame["status"] = event.id

    def _restore(self, event: Event) -> None:
        self.added(event)
        self.mark = None
        self.replaced = None
        expires = self.fields.get("expires_at")
        if expires is not None and expires <= event.at:
            self.fields["expires_at"] = None
        self.blame["status"] = event.id

    def _supersede(self, event: Event) -> None:
        if event.body["old"] == self.id:
            self.replaced = (event.body["new"], "superseded", order(event))
            self.blame["status"] = event.id

    def _merge(self, event: Event) -> None:
        if event.body["loser"] == self.id:
            self.replaced = (event.body["winner"], "merged", order(event))
            self.blame["status"] = event.id
        elif "evidence" in event.body:  # otherwise it only inherits what something forgotten had replaced
            self._take_record(event.body)
            self.evidence.update(dict.fromkeys(event.body["evidence"]))
            self.fields["last_evidence_at"] = max(self.fields["last_evidence_at"], event.at)

    def _take_record(self, merge: dict[str, Any]) -> None:
        """Add what became of a copy; two replicas may have merged the same one, each with what it knew of it."""
        record = merge.get("successes", 0), merge.get("failures", 0)
        if any(record):
            before = self.taken.get(merge["loser"], (0, 0))
            taken = max(before[0], record[0]), max(before[1], record[1])
            self.successes += taken[0] - before[0]
            self.failures += taken[1] - before[1]
            self.taken[merge["loser"]] = taken

    def _mark(self, event: Event) -> None:
        status = event.body["status"]
        self.mark = None if status == "active" else status
        self.blame["status"] = event.id

    def _evidence(self, event: Event) -> None:
        for source in event.body.get("sources", ()):
            if source not in self.evidence:
                self.evidence[source] = None
                self._support(event.at)
        self.blame["confidence"] = event.id

    def _confirm(self, event: Event) -> None:
        by = event.body.get("by") or event.actor
        if by in self.confirmers or by == self.fields.get("agent"):
            return
        self.confirmers.add(by)
        self._support(event.at)
        self.importance = supported(self.importance)
        self.blame["confidence"] = event.id

    def _dispute(self, event: Event) -> None:
        by = event.body.get("by") or event.id
        if by not in self.disputers:
            self.disputers.add(by)
            self.confidence = contradicted(self.confidence)
            self.blame["confidence"] = event.id

    def _outcome(self, event: Event) -> None:
        if event.body.get("success"):
            self.successes += 1
            self._support(event.at)
        else:
            self.failures += 1
            self.confidence = failed(self.confidence)
        self.blame["confidence"] = event.id

    def state(self) -> State:
        dots = tuple(dot for dot in self.dots if dot not in self.observed)
        status: Status = self.mark or "active"
        if not dots:
            status = "retracted"
        fields = self.fields | {
            "confidence": unit(self.confidence),
            "importance": unit(self.importance),
            "evidence": tuple(self.evidence),
            "successes": self.successes,
            "failures": self.failures,
            "confirmations": len(self.confirmers),
            "disputes": len(self.disputers),
            "status": status,
        }
        state = State(
            memory=Memory(id=self.id, **_known(fields)), dots=dots, present=bool(dots), blame=self.blame
        )
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


def fold_setting(events: Iterable[Event]) -> tuple[bool, Any]:
    """The value of one setting, and whether it is set at all."""
    events = sorted(events, key=order)
    void = voided(events)
    for event in reversed(events):
        if event.kind == "setting" and event.id not in void:
            return event.body["value"] is not None, event.body["value"]
    return False, None
