"""AgentBank: what an agent holds. It has the methods of a bank, whatever hive is behind it.

Reading asks the hive. Writing goes to the agent's home bank; new memories pass the gateway first, and every change is
then sent to all members that hold a copy. What the gateway rejects stays with its author, in a private bank. It
implements `MemoryBank` by delegation: to the home bank, to the members, and to `WholeHive` for reading.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from skep.bank.bank import Bank
from skep.bank.bank_file import clean_events
from skep.bank.read import Page, every
from skep.bank.write import clean_items, fields_of
from skep.confidence import said
from skep.config import POLICY
from skep.engine.engine import copies_of, derived_from, repeating
from skep.errors import AccessError, ConflictError, ForgottenError, InvalidInputError, NotFoundError
from skep.events import Propose, plan, subjects_of
from skep.filters import Filter, checked_filter
from skep.hive.gateway import Decision
from skep.hive.hive_recall import Answer, HiveRecaller
from skep.hive.member_set import SEATS
from skep.hive.traces import tracer
from skep.hive.whole_hive import HiveStatus, WholeHive
from skep.model import (
    Conflict,
    Event,
    Graph,
    Hit,
    Link,
    Memory,
    OnConflict,
    Outcome,
    Ranked,
    Receipt,
    Remembered,
    Scope,
    ScopeLike,
)
from skep.recall.recaller import Recaller
from skep.replication.signatures import REGISTERS, acting
from skep.semantics.conflict_policy import draft as drafted
from skep.semantics.find_conflicts import refused, repeats, replaces
from skep.validation import (
    Time,
    body_of,
    clean_call,
    clean_choice,
    clean_id,
    clean_ids,
    clean_policy,
    clean_sources,
    clean_time,
)

if TYPE_CHECKING:
    from os import PathLike

    from skep.bank.memory_bank import MemoryBank
    from skep.bank.told_facts import Taught
    from skep.engine.embeddings import Progress
    from skep.engine.engine import Engine
    from skep.hive.hive import Hive
    from skep.lifecycle.judge import Case
    from skep.lifecycle.learn import Effect, Learned, Recommendation
    from skep.lifecycle.maintenance_run import MaintainReport
    from skep.recall.memory_stream import Stream
    from skep.semantics.conflict_policy import Item


REPLACES = {"supersede": ("old",), "merge": ("loser", "winner")}
"""The events by which something is replaced, and where they name what has to be at hand to take that back."""


PROPOSABLE = ("revise", "retract", "restore", "mark", "supersede", "merge")
"""Verbs that an agent may ask for."""


class Promoted(Remembered, frozen=True, kw_only=True):
    """The fate of a new memory: in the hive, waiting for review, or kept by its author alone."""

    decision: Decision
    copies: int = 0
    """Members that confirmed a copy."""
    proposed: tuple[str, ...] = ()
    """Replacements of what others wrote that wait for review, by the ids of their events."""


class _Draft(NamedTuple):
    """A memory that an agent is about to write."""

    memory: Memory
    """As the gateway sees it."""
    given: dict[str, Any]
    """As it is handed to the bank that stores it."""
    item: Item
    """The same, checked, with what to do about conflicts."""


class AgentBank:
    """One agent's view of a hive. Closing it leaves the hive open."""

    def __init__(self, hive: Hive, name: str) -> None:
        self.name = name
        self.hive = hive
        self.home = hive.member_of(name)
        self.private: Bank | None = hive.members.private_of(name)
        """The bank that only this agent sees; None while nothing was rejected."""
        self._asker: tuple[bool, WholeHive] | None = None

    @property
    def engine(self) -> Engine:
        """The parts of the home bank, for the rooms built on top of it."""
        return self.home.bank.engine

    @property
    def actor(self) -> str:
        """The name under which the home bank writes to the log."""
        return self.home.bank.actor

    def close(self) -> None:
        """Let go of the hive; it stays open."""
        if self.private is not None:
            self.private.close()
            self.private = None

    def _private(self) -> Bank:
        """The private bank, made when the first memory is rejected."""
        if self.private is None:
            self.private = self.hive.members.private_of(self.name, create=True)
        assert self.private is not None
        return self.private

    @property
    def alone(self) -> bool:
        """True if the home bank holds all that this agent may see."""
        return self.private is None and self.hive.plain

    @property
    def _reader(self) -> WholeHive:
        """The whole hive, to read from."""
        if self._asker is None or self._asker[0] != self.alone:
            hive, alone = self.hive, Recaller(self.engine) if self.alone else None
            recaller = HiveRecaller(self.engine, hive, lambda: hive.scatter(self.private), alone=alone)
            self._asker = (self.alone, WholeHive(self, recaller))
        return self._asker[1]

    # Writing

    def remember(
        self,
        text: str,
        *,
        on_conflict: OnConflict | None = None,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        **fields: Any,
    ) -> Promoted:
        """Learn something, and share it if the gateway agrees; the arguments are those of `Bank.remember`."""
        said = {"text": text, "contradiction_fn": contradiction_fn, **fields}
        return self._remembered(self._draft(said, self._policy(on_conflict, "warn")))

    def add(self, messages: str | Sequence[Mapping[str, str]], **options: Any) -> Taught:
        """Learn from a conversation, in this agent's name; see `Bank.add`."""
        return Bank.add(cast("Bank", self), messages, **options)  # all of it goes through verbs

    def _remembered(self, new: _Draft) -> Promoted:
        """Do with a draft what its policy and the gateway say."""
        draft, given, item = new
        on_conflict = item.on_conflict
        if draft.key is not None and (held := self._keyed(draft.key, draft.scope)):
            return self._rekept(held, new)
        with tracer.span("hive.remember", agent=self.name) as span, acting(self.name):
            opposed = self._conflicts(item, draft)
            conflicts = () if on_conflict == "ignore" else opposed
            if on_conflict == "raise" and (serious := refused(conflicts)):
                raise ConflictError(draft.text, serious)
            mine = [
                c for c in conflicts if c.existing.scope == draft.scope
            ]  # nothing else is replaced or confirmed
            repeated = next((c.existing for c in mine if c.kind == "duplicate"), None)
            surely = next((c.existing for c in mine if repeats(c, draft)), None)
            same = surely if on_conflict == "supersede" else self._said_by_another(draft, opposed)
            if same is not None:
                return self._confirmed(same, draft, conflicts, item.redactions)
            decision = self.hive.gateway.judge(draft, opposed)
            span.note(verdict=decision.verdict)
            memory, copies = self._store(given, decision)
            replaced, proposed = 0, list[str]()
            if decision.verdict == "promoted":
                if repeated is not None:
                    self.hive.confirm(repeated.id, by=self.name, evidence=draft.evidence)
                for conflict in filter(replaces, mine if on_conflict == "supersede" else ()):
                    old = conflict.existing
                    if self.hive.rights.allows(self.name, "supersede", old.agent):
                        self.supersede(old.id, memory.id)
                        replaced += 1
                    else:
                        proposed.append(self.propose("supersede", old.id, new=memory.id).id)
        return Promoted(
            memory=memory,
            conflicts=conflicts,
            action="superseded" if replaced else "stored",
            redactions=item.redactions,
            decision=decision,
            copies=copies,
            proposed=tuple(proposed),
        )

    def _keyed(self, key: str, scope: Scope) -> Sequence[Memory]:
        """The memories of a scope that have a key, wherever in the hive they are, the newest first."""
        from skep.semantics.conflict_policy import HOLDING

        found = self.find(key=key, scope=scope, status=HOLDING).memories
        return sorted(found, key=lambda memory: memory.created_at, reverse=True)

    def _rekept(self, held: Sequence[Memory], new: _Draft) -> Promoted:
        """Revise the memory that has the key of a draft, if the gate lets that in; every copy follows."""
        self._let_in(new.memory)
        with self._reaching(*(memory.id for memory in held)) as bank:
            said = {name: value for name, value in new.given.items() if name != "agent"}  # its author stays
            done = bank.remember(**said, on_conflict="ignore")
        reason = f"says what {done.memory.id}, which has its key, now says"
        return Promoted(
            memory=done.memory,
            action=done.action,
            redactions=new.item.redactions,
            decision=Decision(verdict="promoted", reasons=(reason,)),
        )

    def _draft(self, fields: Mapping[str, Any], on_conflict: str) -> _Draft:
        """Check the arguments of `remember`, and make the draft."""
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
        item = self.home.bank._item(given, on_conflict)  # pyright: ignore[reportPrivateUsage]
        draft = drafted(item.body, self.engine.now())
        given = {key: value for key, value in given.items() if key not in ("contradiction_fn", "on_conflict")}
        return _Draft(msgspec.structs.replace(draft, evidence=tuple(draft.evidence)), given, item)

    def _conflicts(self, item: Item, draft: Memory) -> tuple[Conflict, ...]:
        """Memories of the hive that a draft contradicts or repeats; looked for unless nobody would act on them."""
        if item.on_conflict == "ignore" and self.hive.policy.contradiction == "allow":
            return ()
        return self.hive.conflicts(draft, self.filter(kind=draft.kind), item.contradiction_fn)

    def _said_by_another(self, draft: Memory, conflicts: Iterable[Conflict]) -> Memory | None:
        """The memory in which another agent says exactly the same: one content is one memory with several witnesses."""
        for conflict in conflicts:
            known = conflict.existing
            alike = (known.kind, known.scope) == (draft.kind, draft.scope) and said(known) == said(draft)
            if known.agent != self.name and alike:
                return known
        return None

    def _confirmed(
        self,
        existing: Memory,
        draft: Memory,
        conflicts: tuple[Conflict, ...],
        redactions: tuple[str, ...],
    ) -> Promoted:
        """One more witness for what is stored, if its evidence does not come from there."""
        memory = self.hive.confirm(existing.id, by=self.name, evidence=draft.evidence) or existing
        decision = Decision(verdict="promoted", reasons=(f"says what {existing.id} says",))
        return Promoted(
            memory=memory, conflicts=conflicts, action="confirmed", redactions=redactions, decision=decision
        )

    def _let_in(self, draft: Memory) -> None:
        """Raise if the gateway would not let in what a memory is to say from now on."""
        decision = self.hive.gateway.judge(draft, self.hive.conflicts(draft, self.filter(kind=draft.kind)))
        if decision.verdict != "promoted":
            raise AccessError(
                f"this is not let in: {decision.why()}; remember it anew, so that it can be reviewed"
            )

    def _store(self, given: dict[str, Any], decision: Decision) -> tuple[Memory, int]:
        if decision.verdict == "rejected":
            return self._private().remember(**given, on_conflict="ignore").memory, 0
        bank = self.home.bank
        self.hive.members.adopt(self.home, given.get("evidence", ()))
        if decision.verdict == "quarantined":
            with bank.engine.transaction():  # never to be seen before it is set aside
                memory = bank.remember(**given, on_conflict="ignore").memory
                return bank.mark(memory.id, "quarantined", "; ".join(decision.reasons)), 0
        memory = bank.remember(**given, on_conflict="ignore").memory
        copies = self.hive.placement.promote(
            self.home, [memory], broadcast={memory.id} if decision.broadcast else set()
        )
        return memory, copies

    def remember_many(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        on_conflict: OnConflict | None = None,
        progress: Progress | None = None,
    ) -> list[Remembered]:
        """Learn many things; each passes the gateway, and copies are sent in bulk."""
        policy = self._policy(on_conflict, "ignore")
        clean_call("progress", progress)
        drafts: list[_Draft] = []
        for item in clean_items(items):
            try:
                drafts.append(self._draft(fields_of(item), policy))
            except InvalidInputError as error:
                error.args = (f"item {len(drafts)}: {error}",)
                raise
        if any(draft.item.on_conflict != "ignore" or draft.memory.key for draft in drafts):
            return [self._remembered(draft) for draft in drafts]
        witnessed: dict[int, Promoted] = {}
        judged: list[tuple[_Draft, Decision]] = []
        with acting(self.name):
            for number, draft in enumerate(drafts):
                opposed = self._conflicts(draft.item, draft.memory)
                same = self._said_by_another(draft.memory, opposed)
                if same is not None:
                    witnessed[number] = self._confirmed(same, draft.memory, (), draft.item.redactions)
                else:
                    judged.append((draft, self.hive.gateway.judge(draft.memory, opposed)))
        shared = [draft.given for draft, d in judged if d.verdict != "rejected"]
        own = [draft.given for draft, d in judged if d.verdict == "rejected"]
        sources = dict.fromkeys(name for given in shared for name in given.get("evidence", ()))
        with acting(self.name):
            self.hive.members.adopt(self.home, sources)
            doubtful = any(d.verdict == "quarantined" for _, d in judged)
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
            self.hive.placement.promote(self.home, [one.memory for one in good], broadcast=broadcast)
        stored_in_turn = iter(done)
        return [
            witnessed[number] if number in witnessed else next(stored_in_turn)
            for number in range(len(drafts))
        ]

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
        if bank is not self.private:
            self.hive.placement.spread(self.home, list(log.after(before)))

    def _holding(self, *memory_ids: str, **named: str) -> Bank:
        ids = (*memory_ids, *(clean_id(each, field) for field, each in named.items()))
        if self.private is not None and ids and all(_holds(self.private, i) for i in ids):
            return self.private
        self.hive.members.adopt(self.home, ids)
        return self.home.bank

    def _adopt_replaced(self, memory_ids: Sequence[str]) -> None:
        """Have at hand what some memories replaced or were merged with, and so all that was written with it."""
        named = [
            event.body.get(end)
            for event in self.home.events_of(memory_ids)
            for end in REPLACES.get(event.kind, ())
        ]
        self.hive.members.adopt(
            self.home, dict.fromkeys(name for name in named if name not in (None, *memory_ids))
        )

    def revise(self, memory_id: str, **changes: Any) -> Memory:
        """Change fields of a memory; every copy follows. What it then says passes the gateway like a new one."""
        given = {name: changes[name] for name in ("text", "title") if name in changes}
        if given and not (self.private is not None and _holds(self.private, clean_id(memory_id))):
            said = body_of(given, self.engine.settings, partial=True)
            self._let_in(msgspec.structs.replace(self.get(memory_id), agent=self.name, **said))
        with self._reaching(memory_id=memory_id) as bank:
            return bank.revise(memory_id, **changes)

    def retract(self, memory_id: str, reason: str | None = None) -> Memory:
        """Take a memory back, everywhere."""
        with self._reaching(memory_id=memory_id) as bank:
            return bank.retract(memory_id, reason)

    def restore(self, memory_id: str, reason: str | None = None) -> Memory:
        """Make a memory current again, everywhere."""
        if self._holding(memory_id=memory_id) is not self.private:
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
        """Say that something contradicts a memory: this agent, or another memory. It counts once per agent."""
        if by != self.name:
            self.get(clean_id(by, "by"))
        with self._reaching(memory_id=memory_id) as bank:
            return bank.dispute(memory_id, by)

    def support(self, memory_id: str, sources: Iterable[str]) -> Memory:
        """Note evidence for a memory, everywhere. Of sources that lead to the same witness one counts."""
        named = clean_sources("sources", sources, self.engine.settings)
        self.hive.members.adopt(self.home, named)
        with self._reaching(memory_id=memory_id) as bank:
            return bank.support(memory_id, named)

    def propose(self, verb: str, memory_id: str, **given: Any) -> Event:
        """Ask for a change to what another agent wrote; it waits for review.

        Args:
            verb: `revise`, `retract`, `restore`, `mark`, `supersede` or `merge`.
            memory_id: The memory to change: the old one, or the copy.
            given: The other arguments of that verb.
        """
        clean_choice("verb", verb, PROPOSABLE)
        memory = self.get(memory_id)
        if self.hive.trust.of(self.name) < self.hive.policy.min_trust:
            raise AccessError(f"{self.name} is trusted too little to ask for changes of {memory_id}")
        body = Propose(memory=memory.id, act=verb, given=given, by=self.name)
        with self._reaching(memory.id) as bank:
            return bank.engine.write([plan(body)])[0][0]

    def approve(self, proposal: str) -> Memory:
        """Make a change that another agent proposed to a memory of one's own (or, with the right, of anybody)."""
        event = self.hive.members.event(proposal)
        if event is None or event.kind != "propose":
            raise NotFoundError(f"there is no proposal {proposal!r}; `hive.review()` lists what waits")
        memory = self.get(str(event.body["memory"]))
        if not self.hive.rights.allows(self.name, str(event.body["act"]), memory.agent):
            raise AccessError(f"{self.name} may not decide about {memory.id}, which {memory.agent} wrote")
        return self.hive.approve(proposal)

    def forget(
        self, memory_ids: str | Iterable[str], *, dry_run: bool = False, derived: bool = False
    ) -> Receipt:
        """Erase memories for good, from every member of the hive.

        With `derived`, also what was derived from them or merged with them and is this agent's to forget.
        """
        ids = clean_ids("memory_ids", memory_ids)
        private = self.private if self._holding(*ids) is self.private else None
        links_of = self.hive.members.links_of if private is None else private.engine.links
        if derived:
            ids = repeating(links_of, ids, self._may_forget)
        named, copies = derived_from(links_of, ids), copies_of(links_of, ids)
        if private is None and not dry_run:  # what they replaced is passed on from here
            self._adopt_replaced(ids)
        with self._reaching(*ids) as bank:
            receipt = bank.forget(ids, dry_run=dry_run)
        return msgspec.structs.replace(receipt, derived=named, copies=copies)

    def _may_forget(self, memory_id: str) -> bool:
        if self.private is not None and _holds(self.private, memory_id):
            return True
        found = self.hive.members.memory(memory_id)
        return found is not None and self.hive.rights.allows(self.name, "forget", found.agent)

    def link(
        self, src: str, dst: str, rel: str = "related", strength: float = 1.0, *, dangling: bool = False
    ) -> Link:
        """Link two memories, everywhere. With `dangling`, `dst` need not be there (yet)."""
        ends = (
            {"src": src} if dangling and self.home.bank.engine.get(dst) is None else {"src": src, "dst": dst}
        )
        with self._reaching(**ends) as bank:
            return bank.link(src, dst, rel, strength, dangling=dangling)

    def unlink(self, src: str, dst: str, rel: str | None = None) -> int:
        """Remove the links from one memory to another, everywhere."""
        with self._reaching(src=src, dst=dst) as bank:
            return bank.unlink(src, dst, rel)

    def undo(self, event_id: str, reason: str | None = None) -> Event:
        """Make one event as if it had never been, everywhere."""
        holder = self.hive.members.holder_of_event(clean_id(event_id, "event_id"))
        if holder is not None:
            event = holder.bank.event(event_id)
            self.hive.members.adopt(
                self.home, subjects_of(event)
            )  # the one at home may be one end of it alone
            if holder is not self.home:
                self.home.take([event])
            self._adopt_replaced(subjects_of(event))
        with self._reaching() as bank:
            return bank.undo(event_id, reason)

    def _policy(self, given: OnConflict | None, usual: OnConflict) -> OnConflict:
        """What to do with a conflict: what the call says, else the setting of the hive."""
        chosen = given or self.setting(POLICY) or usual
        return cast("OnConflict", clean_policy("on_conflict", chosen))

    def set_setting(self, key: str, value: Any) -> Event:
        """Keep a value in the hive; the registers of the hive itself are not an agent's to write."""
        if str(key).startswith((*REGISTERS, SEATS)):
            raise InvalidInputError(
                f"{key!r} belongs to the hive; use `hive.trust` or the manifest", field="key"
            )
        with self._reaching() as bank:
            return bank.set_setting(key, value)

    def apply(self, events: Iterable[Event], *, partial: bool = False) -> Any:  # noqa: ARG002
        """Take events of another replica into the hive, past its gateway; forged ones are refused."""
        return self.hive.apply(clean_events(events))

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

    def recall(self, query: str, *, as_of: Time | None = None, **options: Any) -> Answer:
        """The memories of the whole hive that answer a question; the arguments are those of `Bank.recall`."""
        if as_of is not None:
            return self.as_of(clean_time("as_of", as_of)).recall(query, **options)
        found: Any = self._reader.recall(query, **options)
        return found

    def rank(self, query: str, *, as_of: Time | None = None, **options: Any) -> Ranked:
        """The ids and scores that `recall` would give, in its order; see `Bank.rank`."""
        if as_of is not None:
            return self.as_of(clean_time("as_of", as_of)).rank(query, **options)
        return self._reader.rank(query, **options)

    def search_memory(self, query: str, *args: Any, **options: Any) -> tuple[Hit, ...]:
        """The agent's tool; see `Bank.search_memory`."""
        return self._reader.search_memory(query, *args, **options)

    def stream(self, **options: Any) -> Stream:
        """Passive recall over the whole hive; see `Bank.stream`."""
        return self._reader.stream(**options)

    def get(self, memory_id: str) -> Memory:
        """One memory by id, wherever in the hive it is."""
        for bank in (self.private, self.home.bank):
            if bank is not None:
                with contextlib.suppress(NotFoundError):
                    return bank.get(memory_id)
        if self.engine.is_forgotten(memory_id):
            raise ForgottenError(f"{memory_id} was forgotten; nothing of it is left")
        found = self.hive.get(memory_id)
        if found is None:
            raise NotFoundError(f"the hive has no memory {memory_id!r}")
        return found

    def find(self, text: str | None = None, **conditions: Any) -> Page:
        """Memories that meet every condition, newest first; the arguments are those of `Bank.find`."""
        from skep.hive.member_calls import find_everywhere

        if self.alone:
            return self.home.bank.find(text, **conditions)
        return find_everywhere(self.hive, self, text, **conditions)

    def filter(self, **conditions: Any) -> Filter:
        """A checked filter from the conditions of `find`."""
        return checked_filter(self.engine.settings, self.engine.now(), **conditions)

    def scopes(self, scope: ScopeLike | None = None, *, include_shared: bool = False) -> dict[Scope, int]:
        """The scopes there are, and how many current memories are of each; see `Bank.scopes`."""
        if self.alone:
            return self.home.bank.scopes(scope, include_shared=include_shared)
        return dict(Counter(m.scope for m in every(self, scope=scope, include_shared=include_shared)))

    def history(self, memory_id: str | None = None, **options: Any) -> list[Event]:
        """The events of a memory, wherever it is; without an id, the latest events at home."""
        if memory_id is None:
            return self.home.bank.history(**options)
        return self._holding(memory_id=memory_id).history(memory_id, **options)

    def blame(self, memory_id: str, **options: Any) -> dict[str, Event]:
        """Per field of a memory, the event that last set it."""
        return self._holding(memory_id=memory_id).blame(memory_id, **options)

    def event(self, event_id: str) -> Event:
        """One event of the home bank by id."""
        return self.home.bank.event(event_id)

    def as_of(self, time: Time) -> Any:
        """The hive as it was at a moment; for reading only."""
        return self.home.bank.as_of(time) if self.alone else self.hive.past(self, time)

    # Links

    def neighbors(self, memory_id: str, *args: Any, **options: Any) -> Graph:
        """The memories within some links of one, wherever they are, and the links; see `Bank.neighbors`."""
        return self._reader.neighbors(memory_id, *args, **options)

    def subgraph(self, memory_ids: Iterable[str], depth: int = 1, **options: Any) -> Graph:
        """Memories, their surroundings, and the links among them, wherever they are; see `Bank.subgraph`."""
        return self._reader.subgraph(memory_ids, depth, **options)

    def path(self, a: str, b: str, max_depth: int = 6, **options: Any) -> list[Link]:
        """The fewest links that lead from one memory to another, wherever they are; see `Bank.path`."""
        return self._reader.path(a, b, max_depth, **options)

    # The whole hive in figures, and the home bank as a whole

    def find_conflicts(self, memory_id: str | None = None, **options: Any) -> list[Conflict]:
        """Duplicates, contradictions and updates in the whole hive; see `Bank.find_conflicts`."""
        return self._reader.find_conflicts(memory_id, **options)

    def recommend(self, task: str, k: int = 3, **options: Any) -> list[Recommendation]:
        """The strategies that worked for tasks like this one, whoever learnt them; see `Bank.recommend`."""
        return self._reader.recommend(task, k, **options)

    def outcomes(self, memory_id: str | None = None, **options: Any) -> list[Outcome]:
        """The outcomes of the whole hive, oldest first; see `Bank.outcomes`."""
        return self._reader.outcomes(memory_id, **options)

    def stats(self, *, scope: ScopeLike | None = None, include_shared: bool = False) -> dict[str, Any]:
        """Outcomes of the whole hive, counted; see `Bank.stats`. `completeness` says how much was heard."""
        return self._reader.stats(scope=scope, include_shared=include_shared)

    def utility(self, *, scope: ScopeLike | None = None, include_shared: bool = False) -> list[Effect]:
        """The effect on success of memories that were sometimes withheld, in the whole hive; see `Bank.utility`."""
        return self._reader.utility(scope=scope, include_shared=include_shared)

    def status(self) -> HiveStatus:
        """Counts and sizes of the whole hive, each memory once; path, actor and schema are those of the home bank."""
        return self._reader.status()

    def pending_judgements(self) -> list[Case]:
        """Pairs of memories at home that rules could not decide on."""
        return self.home.bank.pending_judgements()

    def setting(self, key: str) -> Any:
        """A value kept in the hive, or None."""
        return self.home.bank.setting(key)

    def settings(self, prefix: str = "") -> dict[str, Any]:
        """Every value under a prefix."""
        return self.home.bank.settings(prefix)

    def versions(self) -> dict[str, int]:
        """Per writer, up to where the home bank lacks nothing."""
        return self.home.bank.versions()

    def import_(self, path: str | PathLike[str], *, progress: Progress | None = None) -> Any:
        """Take an export into the hive; what is already here is left as it is. See `Bank.import_`."""
        return Bank.import_(
            cast("Bank", self), path, progress=progress
        )  # it needs `versions` and `apply` alone

    def events(self, since: Mapping[str, int] | None = None) -> Iterator[Event]:
        """The events of the home bank."""
        return self.home.bank.events(since)


if TYPE_CHECKING:
    _promise: type[MemoryBank] = AgentBank


def _holds(bank: Bank, memory_id: str) -> bool:
    try:
        bank.get(memory_id)
    except NotFoundError:
        return False
    return True
