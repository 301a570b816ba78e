"""What an agent holds: an object with all of `Bank`'s methods, whatever hive is behind it.

Reading asks the hive. Writing goes to the agent's home bank; new memories pass the gateway first, and every
change is then sent to all members that hold a copy. What the gateway rejects stays with its author, in a
private bank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from skep.bank.bank import Bank
from skep.bank.bank_file import clean_events
from skep.bank.read import Page
from skep.bank.write import ON_CONFLICT, clean_items, fields_of
from skep.errors import ConflictError, ForgottenError, InvalidInputError, NotFoundError
from skep.events import subjects_of
from skep.filters import Filter
from skep.hive.gateway import Decision
from skep.hive.hive_recall import HiveRecaller
from skep.hive.hive_statistics import Wholly
from skep.hive.traces import tracer
from skep.model import Conflict, Event, Graph, Link, Memory, OnConflict, Receipt, Remembered
from skep.replication.signatures import REGISTERS, acting
from skep.semantics import link_graph
from skep.semantics.conflict_policy import draft as drafted
from skep.semantics.find_conflicts import refused, repeats, replaces
from skep.validation import Time, clean_call, clean_choice, clean_id, clean_ids

if TYPE_CHECKING:
    from skep.engine.embeddings import Progress
    from skep.hive.hive import Hive
    from skep.lifecycle.learn import Learned
    from skep.lifecycle.maintenance_run import MaintainReport
    from skep.recall.recaller import Recaller
    from skep.semantics.conflict_policy import Item


REPLACES = {"supersede": ("old",), "merge": ("loser", "winner")}
"""The events by which something is replaced, and where they name what has to be at hand to take that back."""


class Promoted(Remembered, frozen=True, kw_only=True):
    """What became of a memory: in the hive, waiting for review, or kept by its author alone."""

    decision: Decision
    copies: int = 0
    """Members that confirmed a copy."""


class _Draft(NamedTuple):
    """What an agent is about to write."""

    memory: Memory
    """As the gateway sees it."""
    given: dict[str, Any]
    """As it is handed to the bank that stores it."""
    item: Item
    """The same, checked, with what to do about conflicts."""


class AgentBank(Wholly):
    """One agent's view of a hive. Closing it leaves the hive open."""

    def __init__(self, hive: Hive, name: str) -> None:
        self.name = name
        self.hive = hive
        self.home = hive.member_of(name)
        super().__init__(self.home.bank.engine)
        self._own: Bank | None = hive.private_of(name)
        self._asker: tuple[Bank | None, bool, Recaller] | None = None

    def close(self) -> None:
        """Let go of the hive; it stays open."""
        if self._own is not None:
            self._own.close()
            self._own = None

    @property
    def private(self) -> Bank | None:
        """What only this agent knows; None while there is nothing."""
        return self._own

    def _private(self) -> Bank:
        if self._own is None:
            self._own = self.hive.private_of(self.name, create=True)
        return self._own  # type: ignore[return-value]

    @property
    def _recall(self) -> Recaller:
        alone = self._own is None and self.hive.plain
        if self._asker is None or self._asker[0] is not self._own or self._asker[1] != alone:
            asking = self.hive.asking(self._own)
            fresh = HiveRecaller(self._engine, asking, super()._recall if alone else None)
            self._asker = (self._own, alone, fresh)
        return self._asker[2]

    # Writing

    def remember(
        self,
        text: str,
        *,
        on_conflict: OnConflict = "warn",
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        **fields: Any,
    ) -> Promoted:
        """Learn something, and share it if the gateway agrees; the arguments are those of `Bank.remember`."""
        said = {"text": text, "contradiction_fn": contradiction_fn, **fields}
        return self._remembered(self._draft(said, clean_choice("on_conflict", on_conflict, ON_CONFLICT)))

    def _remembered(self, new: _Draft) -> Promoted:
        """Do with a draft what its policy and the gateway say."""
        draft, given, item = new
        on_conflict, contradiction_fn = item.on_conflict, item.contradiction_fn
        with tracer.span("hive.remember", agent=self.name) as span, acting(self.name):
            checked = on_conflict != "ignore" or self.hive.policy.contradiction != "allow"
            opposed = self._conflicts(draft, contradiction_fn) if checked else ()
            conflicts = () if on_conflict == "ignore" else opposed
            if on_conflict == "raise" and (serious := refused(conflicts)):
                raise ConflictError(draft.text, serious)
            mine = [
                c for c in conflicts if c.existing.scope == draft.scope
            ]  # nothing else is replaced or confirmed
            repeated = next((c.existing for c in mine if c.kind == "duplicate"), None)
            surely = next((c.existing for c in mine if repeats(c, draft)), None)
            if surely is not None and on_conflict == "supersede":
                return self._confirmed(surely, conflicts, item.redactions)
            if on_conflict in ("ignore", "supersede"):  # an agent's own word, but not against confirmed ones
                opposed = tuple(c for c in opposed if c.existing.confirmations > 0)
            decision = self.hive.gateway.judge(draft, opposed)
            span.note(verdict=decision.verdict)
            memory, copies = self._store(given, decision)
            if decision.verdict == "promoted":
                if repeated is not None:
                    self.hive.confirm(repeated.id, by=self.name)
                if on_conflict == "supersede":
                    for conflict in filter(replaces, mine):
                        self.supersede(conflict.existing.id, memory.id)
        replaced = on_conflict == "supersede" and any(map(replaces, mine)) and decision.verdict == "promoted"
        return Promoted(
            memory=memory,
            conflicts=conflicts,
            action="superseded" if replaced else "stored",
            redactions=item.redactions,
            decision=decision,
            copies=copies,
        )

    def _draft(self, fields: Mapping[str, Any], on_conflict: str) -> _Draft:
        """What an agent says, checked."""
        author = fields.get("agent") or self.name
        if author != self.name:
            raise InvalidInputError(
                f"{self.name} cannot write for {author!r}; open that agent's bank instead", field="agent"
            )
        self.hive.may_write(self.name)
        given = {key: value for key, value in fields.items() if value is not None}
        ttl = self.hive.policy.ttl
        if ttl is not None and "ttl" not in given:
            given["ttl"] = ttl
        given["agent"] = self.name
        item = self._item(given, on_conflict)
        draft = drafted(item.body, self._engine.now())
        given = {key: value for key, value in given.items() if key not in ("contradiction_fn", "on_conflict")}
        return _Draft(msgspec.structs.replace(draft, evidence=tuple(draft.evidence)), given, item)

    def _conflicts(
        self, draft: Memory, contradiction_fn: Callable[[Memory, Memory], bool] | None
    ) -> tuple[Conflict, ...]:
        return self.hive.conflicts(draft, self._filter(kind=draft.kind), contradiction_fn)

    def _confirmed(
        self, existing: Memory, conflicts: tuple[Conflict, ...], redactions: tuple[str, ...]
    ) -> Promoted:
        memory = self.hive.confirm(existing.id, by=self.name) or existing
        decision = Decision(verdict="promoted", reasons=(f"says what {existing.id} says",))
        return Promoted(
            memory=memory, conflicts=conflicts, action="confirmed", redactions=redactions, decision=decision
        )

    def _store(self, given: dict[str, Any], decision: Decision) -> tuple[Memory, int]:
        if decision.verdict == "rejected":
            return self._private().remember(**given, on_conflict="ignore").memory, 0
        bank = self.home.bank
        self.hive.adopt(self.home, given.get("evidence", ()))
        if decision.verdict == "quarantined":
            with bank.engine.transaction():  # never to be seen before it is set aside
                memory = bank.remember(**given, on_conflict="ignore").memory
                return bank.mark(memory.id, "quarantined", "; ".join(decision.reasons)), 0
        memory = bank.remember(**given, on_conflict="ignore").memory
        copies = self.hive.promote(
            self.home, [memory], broadcast={memory.id} if decision.broadcast else set()
        )
        return memory, copies

    def remember_many(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        on_conflict: OnConflict = "ignore",
        progress: Progress | None = None,
    ) -> list[Remembered]:
        """Learn many things; each passes the gateway, and copies are sent in bulk."""
        clean_choice("on_conflict", on_conflict, ON_CONFLICT)
        clean_call("progress", progress)
        drafts: list[_Draft] = []
        for item in clean_items(items):
            try:
                drafts.append(self._draft(fields_of(item), on_conflict))
            except InvalidInputError as error:
                error.args = (f"item {len(drafts)}: {error}",)
                raise
        if any(draft.item.on_conflict != "ignore" for draft in drafts):
            return [self._remembered(draft) for draft in drafts]
        decisions = [self.hive.gateway.judge(draft.memory) for draft in drafts]
        judged = list(zip(drafts, decisions, strict=True))
        shared = [draft.given for draft, d in judged if d.verdict != "rejected"]
        own = [draft.given for draft, d in judged if d.verdict == "rejected"]
        sources = dict.fromkeys(name for given in shared for name in given.get("evidence", ()))
        with acting(self.name):
            self.hive.adopt(self.home, sources)
            doubtful = any(decision.verdict == "quarantined" for decision in decisions)
            with self.home.bank.engine.transaction() if doubtful else contextlib.nullcontext():
                stored = iter(self.home.bank.remember_many(shared, progress=progress) if shared else ())
                kept = iter(self._private().remember_many(own) if own else ())
                done = [
                    Promoted(
                        memory=next(kept if d.verdict == "rejected" else stored).memory,
                        redactions=draft.item.redactions,
                        decision=d,
                    )
                    for draft, d in judged
                ]
                for one in done:
                    if one.decision.verdict == "quarantined":
                        self.home.bank.mark(one.memory.id, "quarantined", "; ".join(one.decision.reasons))
            good = [one for one in done if one.decision.verdict == "promoted"]
            broadcast = {one.memory.id for one in good if one.decision.broadcast}
            self.hive.promote(self.home, [one.memory for one in good], broadcast=broadcast)
        return list(done)

    # Changing what is there, wherever it is

    @contextlib.contextmanager
    def _reaching(self, *memory_ids: str, **named: str) -> Generator[Bank]:
        """The bank to change some memories in; what happens there is sent to every other copy.

        Args:
            memory_ids: Ids that were checked.
            named: Ids by the arguments that hold them.
        """
        self.hive.may_write(self.name)
        bank = self._holding(*memory_ids, **named)
        log = bank.engine.log
        before = log.last_seq()
        with acting(self.name):
            yield bank
        if bank is not self._own:
            self.hive.spread(self.home, list(log.after(before)))

    def _holding(self, *memory_ids: str, **named: str) -> Bank:
        ids = (*memory_ids, *(clean_id(each, field) for field, each in named.items()))
        if self._own is not None and ids and all(_holds(self._own, i) for i in ids):
            return self._own
        self.hive.adopt(self.home, ids)
        return self.home.bank

    def _adopt_replaced(self, memory_ids: Sequence[str]) -> None:
        """Have at hand what some memories replaced or were merged with, and so all that was written with it."""
        named = [
            event.body.get(end)
            for event in self.home.events_of(memory_ids)
            for end in REPLACES.get(event.kind, ())
        ]
        self.hive.adopt(self.home, dict.fromkeys(name for name in named if name not in (None, *memory_ids)))

    def revise(self, memory_id: str, **changes: Any) -> Memory:
        """Change fields of a memory; every copy follows."""
        with self._reaching(memory_id=memory_id) as bank:
            return bank.revise(memory_id, **changes)

    def retract(self, memory_id: str, reason: str | None = None) -> Memory:
        """Take a memory back, everywhere."""
        with self._reaching(memory_id=memory_id) as bank:
            return bank.retract(memory_id, reason)

    def restore(self, memory_id: str, reason: str | None = None) -> Memory:
        """Make a memory current again, everywhere."""
        if self._holding(memory_id=memory_id) is not self._own:
            self._adopt_replaced((memory_id,))
        with self._reaching(memory_id=memory_id) as bank:
            return bank.restore(memory_id, reason)

    def supersede(self, old: str, new: str, reason: str | None = None) -> Memory:
        """Say that a newer memory replaces an older one, everywhere."""
        with self._reaching(old=old, new=new) as bank:
            return bank.supersede(old, new, reason)

    def merge(self, loser: str, winner: str, reason: str | None = None) -> Memory:
        """Fold a duplicate into the memory that is kept, everywhere."""
        with self._reaching(loser=loser, winner=winner) as bank:
            return bank.merge(loser, winner, reason)

    def mark(self, memory_id: str, status: str, reason: str | None = None) -> Memory:
        """Set a memory aside or make it active again, everywhere."""
        with self._reaching(memory_id=memory_id) as bank:
            return bank.mark(memory_id, status, reason)

    def confirm(self, memory_id: str, by: str | None = None) -> Memory:
        """Confirm a memory; it counts only from somebody independent of its author, and in one's own name."""
        if by not in (None, self.name):
            raise InvalidInputError(
                f"{self.name} cannot confirm for {by!r}; open that agent's bank instead", field="by"
            )
        self.hive.may_write(self.name)
        return self.hive.confirm(clean_id(memory_id), by=self.name) or self.get(memory_id)

    def dispute(self, memory_id: str, by: str) -> Memory:
        """Note that something contradicts a memory, everywhere."""
        with self._reaching(memory_id=memory_id) as bank:
            return bank.dispute(memory_id, by)

    def support(self, memory_id: str, sources: Iterable[str]) -> Memory:
        """Note evidence for a memory, everywhere."""
        with self._reaching(memory_id=memory_id) as bank:
            return bank.support(memory_id, sources)

    def forget(self, memory_ids: str | Iterable[str], *, dry_run: bool = False) -> Receipt:
        """Erase memories for good, from every member of the hive."""
        ids = clean_ids("memory_ids", memory_ids)
        if not dry_run and self._holding(*ids) is not self._own:  # what they replaced is passed on from here
            self._adopt_replaced(ids)
        with self._reaching(*ids) as bank:
            return bank.forget(ids, dry_run=dry_run)

    def link(self, src: str, dst: str, rel: str = "related", strength: float = 1.0) -> Link:
        """Link two memories, everywhere."""
        with self._reaching(src=src, dst=dst) as bank:
            return bank.link(src, dst, rel, strength)

    def unlink(self, src: str, dst: str, rel: str | None = None) -> int:
        """Remove the links from one memory to another, everywhere."""
        with self._reaching(src=src, dst=dst) as bank:
            return bank.unlink(src, dst, rel)

    def undo(self, event_id: str, reason: str | None = None) -> Event:
        """Make one event as if it had never been, everywhere."""
        holder = self.hive.holder_of_event(clean_id(event_id, "event_id"))
        if holder is not None:
            event = holder.bank.event(event_id)
            self.hive.adopt(self.home, subjects_of(event))  # the one at home may be one end of it alone
            if holder is not self.home:
                self.home.take([event])
            self._adopt_replaced(subjects_of(event))
        with self._reaching() as bank:
            return bank.undo(event_id, reason)

    def set_setting(self, key: str, value: Any) -> Event:
        """Keep a value in the hive; the registers of the hive itself are not an agent's to write."""
        if str(key).startswith(REGISTERS):
            raise InvalidInputError(
                f"{key!r} belongs to the hive; use `hive.trust` or the manifest", field="key"
            )
        with self._reaching() as bank:
            return bank.set_setting(key, value)

    def apply(self, events: Iterable[Event], *, partial: bool = False) -> Any:  # noqa: ARG002
        """Take events of another replica into the hive; forged ones are refused."""
        return self.hive.apply_via(clean_events(events), ("sync",))

    def maintain(self, *args: Any, **options: Any) -> MaintainReport:
        """Keep what is at home clean; every copy follows. See `Bank.maintain`."""
        with self._reaching() as bank:
            return bank.maintain(*args, **options)

    def resolve_judgement(self, a: str, b: str, decision: str, by: str | None = None) -> int:
        """Decide a pair of memories, everywhere; see `Bank.resolve_judgement`."""
        with self._reaching(a=a, b=b) as bank:
            return bank.resolve_judgement(a, b, decision, by or self.name)

    def learn(
        self, task: str, outcome: str | bool | float, *, used: str | Iterable[str] = (), **details: Any
    ) -> Learned:
        """Record how a task went; see `Bank.learn`."""
        ids = clean_ids("used", used)
        author = details.setdefault("agent", self.name)
        if author not in (None, self.name):
            raise InvalidInputError(f"{self.name} cannot learn for {author!r}", field="agent")
        details["agent"] = self.name
        with self._reaching(*ids) as bank:
            return bank.learn(task, outcome, used=ids, **details)

    # Reading

    def get(self, memory_id: str) -> Memory:
        """One memory by id, wherever in the hive it is."""
        for bank in (self._own, self.home.bank):
            if bank is not None:
                with contextlib.suppress(NotFoundError):
                    return bank.get(memory_id)
        if self._engine.is_forgotten(memory_id):
            raise ForgottenError(f"{memory_id} was forgotten; nothing of it is left")
        found = self.hive.get(memory_id)
        if found is None:
            raise NotFoundError(f"the hive has no memory {memory_id!r}")
        return found

    def find(self, text: str | None = None, **conditions: Any) -> Page:
        """Memories that meet every condition, newest first; the arguments are those of `Bank.find`."""
        if self._own is None and self.hive.plain:
            return super().find(text, **conditions)
        return self.hive.find(self, text, **conditions)

    def filter(self, **conditions: Any) -> Filter:
        """A checked filter from the conditions of `find`."""
        return self._filter(**conditions)

    def history(self, memory_id: str | None = None, **options: Any) -> list[Event]:
        """What happened to a memory, wherever it is; without an id, what happened last at home."""
        if memory_id is None:
            return super().history(**options)
        return self._holding(memory_id=memory_id).history(memory_id, **options)

    def blame(self, memory_id: str, **options: Any) -> dict[str, Event]:
        """Per field of a memory, the event that last set it."""
        return self._holding(memory_id=memory_id).blame(memory_id, **options)

    def neighbors(self, memory_id: str, *args: Any, **options: Any) -> Graph:
        """The memories within some links of one, and the links."""
        self._holding(memory_id=memory_id)
        return self._filled(super().neighbors(memory_id, *args, **options))

    def subgraph(self, memory_ids: Iterable[str], depth: int = 1, **options: Any) -> Graph:
        """Memories, their surroundings, and the links among them, wherever they are."""
        ids = clean_ids("memory_ids", memory_ids)
        self._holding(*ids)
        return self._filled(super().subgraph(ids, depth, **options))

    def path(self, a: str, b: str, max_depth: int = 6, **options: Any) -> list[Link]:
        """The fewest links that lead from one memory to another, wherever they are."""
        self._holding(a=a, b=b)
        return super().path(a, b, max_depth, **options)

    def _filled(self, graph: Graph) -> Graph:
        """With the memories that only others have."""
        there = self.hive.get_many(graph.dangling)
        dangling = tuple(name for name in graph.dangling if name not in there)
        return msgspec.structs.replace(graph, memories=graph.memories | there, dangling=dangling)

    def _links_of(self, memory_id: str, rel: str | None, direction: link_graph.Direction) -> list[Link]:
        found = dict.fromkeys(super()._links_of(memory_id, rel, direction))
        if not self.hive.plain:
            for link in self.hive.links_of(memory_id):
                outward, inward = link.src == memory_id, link.dst == memory_id
                right = {"out": outward, "in": inward}.get(direction, outward or inward)
                if right and rel in (None, link.rel):
                    found[link] = None
        return list(found)

    def _known(self, memory_ids: Iterable[str]) -> dict[str, Memory]:
        here = super()._known(ids := tuple(memory_ids))
        return here | self.hive.get_many([memory_id for memory_id in ids if memory_id not in here])

    def as_of(self, time: Time) -> Bank:
        """The hive as it was at a moment; for reading only."""
        return (
            self.home.bank.as_of(time)
            if self.hive.plain and self._own is None
            else self.hive.past(self, time)
        )


def _holds(bank: Bank, memory_id: str) -> bool:
    try:
        bank.get(memory_id)
    except NotFoundError:
        return False
    return True
