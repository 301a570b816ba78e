"""Does an answer make sense? A member may be broken or hostile; its columns are checked before they are
used.

Ask every member at once, wait no longer than the deadline, and say how much of the hive was heard.

Members that have not answered after a while are asked around: the others answer for what those would have
answered for, from their copies. Whatever comes late, fails or makes no sense counts as missing; the answer
is made of the rest.

Recall over a hive: every member is asked once, everything is ranked once, and the answer says how much
was heard.

A hive as it was at a moment: every member's bank as it was, asked like the hive itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from skep.bank.bank import Bank
from skep.hive.bus.bus import Bus, Inbox
from skep.hive.candidate_union import Members, Union
from skep.hive.members import Subjects
from skep.hive.messages import (
    PRIVATE,
    Ask,
    Envelope,
    Fetched,
    ShardFetch,
    ShardFetched,
    ShardQuery,
    ShardResponse,
    Slice,
)
from skep.hive.shard_index import Shelf
from skep.hive.traces import tracer
from skep.model import CURRENT, Hit, Link, Memory, Recalled, Stage
from skep.recall.conflict_marks import Opposed, at_least, conflicts_marked, newest_first, opposes, shortened
from skep.recall.recaller import Recaller, made
from skep.retrieval.currency import MOST
from skep.retrieval.recall_config import RecallConfig
from skep.semantics.link_graph import CONTRADICTS, MARKED, OPPOSED, UPDATES
from skep.storage.memory_rows import searched_text
from skep.validation import Time, clean_time

if TYPE_CHECKING:
    from skep.embedding.embedder import Embedder
    from skep.engine.engine import Engine
    from skep.filters import Filter
    from skep.hive.agent_bank import AgentBank
    from skep.hive.gateway import HivePolicy
    from skep.hive.hive import Hive
    from skep.recall.recaller import Question, Reranker


_WIDTHS = {
    "length": 4,
    "cosine": 4,
    "content": 8,
    "created_at": 8,
    "confidence": 8,
    "last_evidence_at": 8,
    "importance": 8,
}


def sound(part: Slice, ask: Ask) -> str | None:
    """What is wrong with an answer; None when it can be used."""
    count = len(part.ids)
    for name, width in _WIDTHS.items():
        if len(getattr(part, name)) != width * count:
            return f"the column {name} has the wrong size"
    if len(part.counts) != 2 * count * len(ask.terms):
        return "the counts have the wrong size"
    if part.keys and (len(part.keys) != count or len(part.voices) != count):
        return "the conversations have the wrong size"
    if part.authors and len(part.authors) != count:
        return "the authors have the wrong size"
    if part.admitted and len(part.admitted) != count:
        return "the admissions have the wrong size"
    if part.heirs and len(part.heirs) != count:
        return "the heirs have the wrong size"
    if part.former is not None and (fault := _of_former(part.former, ask)) is not None:
        return fault
    if not ask.near and len(part.having) not in (0, len(ask.terms)):
        return "the statistics have the wrong size"
    if part.held < 0 or part.terms < 0 or any(not 0 <= n <= part.held for n in part.having):
        return "the statistics contradict themselves"
    return _extras(part, ask, count)


def _of_former(former: Slice, ask: Ask) -> str | None:
    """What is wrong with what was replaced; it brings nothing of the kind itself."""
    return "what was replaced is nested" if former.former is not None else sound(former, ask)


def _extras(part: Slice, ask: Ask, count: int) -> str | None:
    if ask.texts and len(part.texts) != count:
        return "the texts are missing"
    if ask.vectors and count and (not part.vectors or len(part.vectors) % (4 * count)):
        return "the vectors have the wrong size"
    if ask.vectors and ask.vector and len(part.vectors) != len(ask.vector) * count:
        return "the vectors have the wrong size"
    if ask.counters and not (
        len(part.uses) == len(part.confirmations) == len(part.last_used_at) == 8 * count
    ):
        return "the counters have the wrong size"
    if ask.counters and len(part.agents) != count:
        return "the authors are missing"
    return None


def out_of_range(parts: Mapping[str, Slice]) -> dict[str, str]:
    """Which members sent numbers that cannot be, and would win every ranking.

    One look at all of them together.
    """
    if _range_fault(list(parts.values())) is None:
        return {}
    faults = {name: _range_fault([part]) for name, part in parts.items()}
    return {name: fault for name, fault in faults.items() if fault is not None}


def _range_fault(parts: list[Slice]) -> str | None:
    parts = [*parts, *(part.former for part in parts if part.former is not None)]
    for name in ("confidence", "importance"):
        values = np.frombuffer(b"".join([getattr(part, name) for part in parts]), np.float64)
        if values.size and not (values.min() >= 0.0 and values.max() <= 1.0):
            return f"{name} is out of range"
    for name in ("created_at", "last_evidence_at"):
        values = np.frombuffer(b"".join([getattr(part, name) for part in parts]), np.float64)
        if values.size and not np.isfinite(values.sum()):
            return f"{name} is out of range"
    cosine = np.frombuffer(b"".join([part.cosine for part in parts]), np.float32)
    known = cosine[~np.isnan(cosine)]
    if known.size and not (known.min() >= -1.01 and known.max() <= 1.01):
        return "cosines are out of range"
    return None


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


COUNTED = ("confirmations", "trust", "usage")


class Answer(Recalled, frozen=True, kw_only=True):
    """What a hive answers: hits, and how much of it was heard."""

    completeness: float = 1.0
    """The share of the hive's memories that could have been in the answer."""
    asked: int = 1
    answered: int = 1
    missing: tuple[str, ...] = ()
    """Members that did not answer in time, or not sensibly."""
    faults: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    candidates: int = 0
    """How many memories the members sent, each counted once."""
    same: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """Per hit, other memories that say exactly the same and were left out."""


class Asked(Members, Protocol):
    """The members, and what was heard of them."""

    @property
    def heard(self) -> Heard:
        """How much of the hive took part."""
        ...


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What a recall over a hive needs to know of it."""

    scatter: Callable[[], Asked]
    embedder: Any
    trust: Callable[[str | None], float]
    policy: Any
    fitting: Callable[[str], tuple[str, ...]]
    used: Callable[[Mapping[str, Sequence[str]]], None]
    share: Callable[[int], int] = int
    """How many of so many candidates each member is asked for."""


class HiveRecaller(Recaller):
    """Answers queries over a hive; in the place of the recaller of one bank."""

    one_bank = False

    def __init__(self, engine: Engine, asking: Asking) -> None:
        super().__init__(engine)
        self._asking = asking

    def answer(
        self,
        query: str,
        question: Question,
        now: float,
        *,
        reranker: Reranker | None = None,
        explain: bool = False,
        count_uses: bool = True,
    ) -> Answer:
        """Answer one query."""
        config, limit = question.config, question.limit
        with tracer.span("hive.recall", limit=limit) as span:
            answer, homes = ask_hive(
                self._asking,
                query,
                question.at(now),
                config,
                limit=limit,
                reranker=reranker,
                explain=explain,
                opposed=self.opposed,
                relations=self._told(config),
            )
            span.note(hits=len(answer.hits), completeness=round(answer.completeness, 4))
        if count_uses and answer.hits:
            per_home: dict[str, list[str]] = {}
            for hit in answer.hits:
                per_home.setdefault(homes.get(hit.memory.id, ""), []).append(hit.memory.id)
            self._asking.used(per_home)
        return answer

    def _told(self, config: RecallConfig) -> tuple[str, ...]:
        """The relations that tell of hits which do not go together; those that the hive holds no link of are left out.

        The settings that say so go to every member, so that nobody has to be asked.
        """
        wanted = ((OPPOSED, CONTRADICTS), (MARKED if config.currency else "", UPDATES))
        return tuple(rel for key, rel in wanted if key and self._engine.setting(key))


class PlainRecaller(Recaller):
    """Answers from one bank; over the hive's own way where trust counts, which follows derivations there."""

    one_bank = False

    def __init__(self, engine: Engine, bank: Recaller, asking: Asking) -> None:
        super().__init__(engine)
        self._bank = bank
        self._policy: HivePolicy = asking.policy
        self._hive = HiveRecaller(engine, asking)

    def answer(self, query: str, question: Question, now: float, **options: Any) -> Answer:
        """Answer one query."""
        answers = self._hive if question.config.weights.get("trust", 0.0) > 0 else self._bank
        where = question.at(now)
        if (fading := faded(where, self._policy)) is not where:
            question = made(fading, question.limit, question.config)
        found = answers.answer(query, question, now, **options)
        return found if isinstance(found, Answer) else _whole(found)


def _whole(found: Recalled) -> Answer:
    """The answer of the one bank there is."""
    return Answer(hits=found.hits, reason=found.reason, trace=found.trace, withheld=found.withheld)


def faded(where: Filter, policy: HivePolicy) -> Filter:
    """A filter that reckons with how fast confidence fades in a hive."""
    if not policy.decay_per_hour:
        return where
    return msgspec.structs.replace(where, decay_per_day=24 * policy.decay_per_hour)


def ask_hive(
    asking: Asking,
    query: str,
    where: Filter,
    config: RecallConfig,
    *,
    limit: int,
    reranker: Reranker | None = None,
    explain: bool = False,
    opposed: Opposed = opposes,
    relations: Sequence[str] = (),
) -> tuple[Answer, dict[str, str]]:
    """The answer, and the member each candidate came from. Links of relations asked for cost one more round."""
    from skep.retrieval.pipeline import run

    policy: HivePolicy = asking.policy
    scatter = asking.scatter()
    where = faded(where, policy)
    weighted = {name for name, weight in config.weights.items() if weight > 0}
    union = Union(
        scatter,
        asking.embedder,
        trust=asking.trust,
        texts=config.late > 0 or config.close > 0 or reranker is not None,
        vectors=config.select != "none" or config.currency or config.contrast > 0 or config.peers > 0,
        counters=bool(weighted.intersection(COUNTED)) or config.recency_basis == "last_used_at",
        budget=policy.budget(limit),
        share=asking.share,
        boosted=asking.fitting(query),
        boost=policy.domain_boost,
        former=MOST if config.currency and where.statuses == CURRENT else 0,
    )
    most = at_least(limit, config)
    found = run(query, config, union, where.now, where=where, limit=most, reranker=reranker, explain=explain)
    shown = tuple(hit for hit in found.hits if hit.memory.id)
    embedder: Embedder = asking.embedder
    told = union.links([hit.memory.id for hit in shown]) if relations and len(shown) > 1 else []
    linked: dict[str, list[Link]] = {rel: [link for link in told if link.rel == rel] for rel in relations}
    if linked.get(UPDATES):
        shown = newest_first(query, shown, lambda _ids: linked[UPDATES])

    def vectors(hits: Sequence[Hit]) -> Any:
        return embedder.embed([searched_text(hit.memory.title, hit.memory.text) for hit in hits])

    shown = conflicts_marked(
        shown,
        vectors=vectors if embedder.instant else None,
        calibrate=embedder.calibrate,
        now=where.now,
        opposed=opposed,
        linked=linked.get(CONTRADICTS, ()),
        query=query if config.currency else None,
    )
    trace = found.trace
    if len(shown) > limit < most:
        trace = (*trace, Stage(name="limit", kept=limit, cut=len(shown) - limit)) if explain else trace
        shown = shortened(shown, limit)
    kept = {hit.memory.id for hit in shown}
    heard = scatter.heard
    answer = Answer(
        hits=shown,
        reason=_reason(found.reason, union.problem, heard),
        trace=trace,
        completeness=heard.completeness,
        asked=heard.asked,
        answered=heard.answered,
        missing=heard.missing,
        faults=heard.faults,
        candidates=union.size,
        same={name: tuple(others) for name, others in union.same.items() if name in kept},
    )
    return answer, union.homes()


def _reason(reason: str, problem: str, heard: Heard) -> str:
    silent = heard.asked - heard.answered
    note = f"{silent} of {heard.asked} members did not answer" if heard.completeness < 1.0 else ""
    return "; ".join(filter(None, (reason, problem, note)))


class PastMembers:
    """The banks of the members as they were; implements `union.Members`."""

    def __init__(self, hive: Hive, banks: Mapping[str, Bank]) -> None:
        self._banks = dict(banks)
        self._shelves = {
            name: Shelf(
                bank.engine.store,
                member=name,
                first_for=lambda memory, missing, name=name: hive.layout.first_for(name, memory, missing),
                owner_of=hive.layout.owner,
            )
            for name, bank in banks.items()
            if name in hive.members
        }
        private = banks.get(PRIVATE)
        if private is not None:
            self._shelves[PRIVATE] = Shelf(private.engine.store, member=PRIVATE)
        self.heard = Heard(asked=len(banks), answered=len(banks))

    def ask(self, ask: Ask, *, but: Container[str] = ()) -> Mapping[str, Slice]:
        """The answers by member."""
        return {name: shelf.answer(ask) for name, shelf in self._shelves.items() if name not in but}

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id."""
        parts: list[Fetched] = []
        for bank in self._banks.values():
            engine = bank.engine
            memories: tuple[Memory, ...] = tuple(m for m in map(engine.get, ids) if m is not None)
            found = tuple(link for m in memories for link in engine.links(m.id)) if links else ()
            parts.append(Fetched(memories=memories, links=found))
        return joined(*parts)


class PastHive(Bank):
    """Read-only; the methods of a bank."""

    def __init__(self, hive: Hive, view: AgentBank, moment: Time) -> None:
        time = clean_time("time", moment)
        banks = {name: member.bank.as_of(time) for name, member in hive.members.items()}
        if view.private is not None:
            banks[PRIVATE] = view.private.as_of(time)
        super().__init__(banks[view.home.name].engine)
        self._members = PastMembers(hive, banks)
        self._asking = Asking(
            scatter=lambda: self._members,
            embedder=hive.embedder,
            trust=hive.trust.of,
            policy=hive.policy,
            fitting=hive.layout.fitting,
            used=lambda _per_home: None,
        )

    @property
    def _recall(self) -> Recaller:
        return HiveRecaller(self._engine, self._asking)

    def get(self, memory_id: str) -> Memory:
        """One memory as it was then."""
        found = self._members.fetch({memory_id: ""}).memories
        return found[0] if found else super().get(memory_id)

    def close(self) -> None:
        """The members keep their views of the past."""
