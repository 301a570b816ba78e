"""Recall over a hive: every member is asked once, everything is ranked once, and the answer says how much was heard.

`HiveRecaller` stands in the place of the recaller of one bank and runs the ordinary pipeline over `HiveSources`.
`Scatter` is one recall's way to the members over the bus: it waits no longer than the deadline, and has those that
are silent answered for by the others, from their copies. Called by `hive` and `agent_bank`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from skep.hive.hive_sources import HiveSources, Members, fault_of
from skep.hive.messages import Ask, Fetched, Frame, ShardFetch, ShardFetched, ShardQuery, ShardResponse, Slice
from skep.hive.shard import Shard
from skep.hive.traces import tracer
from skep.model import CURRENT, Hit, Memory, Recalled
from skep.recall.recaller import Recaller, conflicts_marked, made
from skep.recall.update_order import UpdateOrder
from skep.retrieval.pipeline import REPLACED_MOST
from skep.semantics.link_graph import CONTRADICTS, MARKED, OPPOSED
from skep.storage.memory_rows import searched_text

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.engine.engine import Engine
    from skep.filters import Filter
    from skep.hive.gateway import HivePolicy
    from skep.hive.hive import Hive
    from skep.hive.member_calls import Calls, Gathered
    from skep.recall.recaller import Question, Reranker
    from skep.retrieval.recall_config import RecallConfig


COUNTED = ("confirmations", "trust", "usage")
"""Signals for which members send counters."""


class Heard(msgspec.Struct, kw_only=True):
    """The part of the hive that took part in an answer."""

    asked: int = 0
    answered: int = 0
    missing: tuple[str, ...] = ()
    faults: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Per member that failed: late, or what went wrong."""
    completeness: float = 1.0
    """The share of the hive's memories that could have been in the answer."""


class Scatter:
    """One recall's way to the members; implements `hive_sources.Members`.

    Args:
        calls: The questions of the hive.
        members: Whom to ask.
        policy: How long to wait.
        lost: The share of memories that nobody can answer for when so many of so many are missing.
        private: The bank that only the asker sees.
    """

    def __init__(
        self,
        calls: Calls,
        members: Sequence[str],
        *,
        policy: HivePolicy,
        lost: Callable[[int, int], float],
        private: LocalMember | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._names = tuple(members)
        self._policy = policy
        self._lost = lost
        self._private = private
        self._now = now
        self._until = now() + policy.deadline
        self.heard = Heard(asked=len(self._names))

    def ask(self, ask: Ask) -> Mapping[str, Slice]:
        """The answers by member, within what is left of the deadline."""
        to = None if self._names == tuple(self._calls.names()) else self._names
        question = self._calls.put(ShardQuery(ask=ask), ShardResponse, to=to)
        with tracer.span("hive.scatter", members=len(self._names)) as span, question:
            found = {} if self._private is None else {self._private.name: self._private.answer(ask)}
            told = _sound(question.collect(min(self._policy.hedge_after, self._left())), ask)
            if told.missing and not told.answers:  # nobody can answer in the place of others
                told = _sound(question.collect(self._left()), ask)
            covered = False
            if told.missing and told.answers and self._left() > 0:
                hedge, others = msgspec.structs.replace(ask, missing=told.missing), tuple(told.answers)
                instead = self._calls.ask(ShardQuery(ask=hedge), ShardResponse, to=others, wait=self._left())
                instead, covered = _sound(instead, hedge), not instead.missing
                found |= {f"{name}*": frame.slice for name, frame in instead.answers.items()}
                told = _sound(question.collect(0.0), ask)
            found |= {name: frame.slice for name, frame in told.answers.items()}
            self._account(told, covered=covered)
            span.note(answered=self.heard.answered, completeness=round(self.heard.completeness, 4))
        return found

    def _account(self, told: Gathered[ShardResponse], *, covered: bool) -> None:
        heard, missing, total = self.heard, told.missing, len(self._names)
        heard.answered, heard.missing, heard.faults = len(told.answers), tuple(sorted(missing)), told.faults
        self._calls.health.note(told.answers, missing)
        if not missing:
            heard.completeness = 1.0
        elif covered:
            heard.completeness = 1.0 - self._lost(len(missing), total)
        else:
            heard.completeness = 1.0 - len(missing) / total

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id from the members named; what those do not give is asked of everybody."""
        per_member: dict[str, list[str]] = {}
        for memory_id, home in ids.items():
            per_member.setdefault(home.removesuffix("*"), []).append(memory_id)
        parts: list[Fetched] = []
        if self._private is not None:
            parts.append(self._private.fetch(per_member.pop(self._private.name, ()), links=links))
        frames: dict[str, Frame] = {
            name: ShardFetch(ids=tuple(wanted), links=links)
            for name, wanted in per_member.items()
            if name in self._names
        }
        told = self._calls.ask_each(frames, ShardFetched, wait=max(0.05, self._left()))
        parts += [frame.found for frame in told.answers.values()]
        lost = set(ids).difference(memory.id for part in parts for memory in part.memories)
        if lost and self._left() > 0:
            everybody = ShardFetch(ids=tuple(sorted(lost)), links=links)
            found = self._calls.ask(everybody, ShardFetched, to=self._names, wait=self._left())
            parts += [frame.found for frame in found.answers.values()]
        return joined(parts)

    def _left(self) -> float:
        return self._until - self._now()


def _sound(told: Gathered[ShardResponse], ask: Ask) -> Gathered[ShardResponse]:
    """The answers that can be used; whoever sent another is at fault and missing."""
    for name, frame in list(told.answers.items()):
        fault = fault_of(frame.slice, ask)
        if fault is not None:
            del told.answers[name]
            told.faults[name] = fault
    return told


def joined(parts: Iterable[Fetched]) -> Fetched:
    """Several answers in one, each memory and link once."""
    listed = list(parts)
    return Fetched(
        memories=tuple({memory.id: memory for part in listed for memory in part.memories}.values()),
        links=tuple(dict.fromkeys(link for part in listed for link in part.links)),
    )


class LocalMember:
    """A bank that answers within this process: an agent's private one, or one as it was."""

    def __init__(self, name: str, bank: Bank, shard: Shard | None = None) -> None:
        self.name = name
        self._engine = bank.engine
        self.answer = (shard or Shard(bank.engine, member=name)).answer

    def fetch(self, ids: Iterable[str], *, links: bool = False) -> Fetched:
        """Memories by id, and on request the links that touch them."""
        memories = tuple(m for m in map(self._engine.get, ids) if m is not None)
        found = tuple(link for m in memories for link in self._engine.links(m.id)) if links else ()
        return Fetched(memories=memories, links=found)


class PastMembers:
    """The banks of the members as they were; implements `hive_sources.Members`."""

    def __init__(self, members: Sequence[LocalMember]) -> None:
        self._members = members
        self.heard = Heard(asked=len(members), answered=len(members))

    def ask(self, ask: Ask) -> Mapping[str, Slice]:
        """The answers by member."""
        return {member.name: member.answer(ask) for member in self._members}

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id."""
        return joined(member.fetch(ids, links=links) for member in self._members)


class Answer(Recalled, frozen=True, kw_only=True):
    """The answer of a hive: hits, and the part of the hive that was heard."""

    completeness: float = 1.0
    """The share of the hive's memories that could have been in the answer."""
    asked: int = 1
    answered: int = 1
    missing: tuple[str, ...] = ()
    """Members that did not answer in time, or not sensibly."""
    faults: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    candidates: int = 0
    """The number of memories the members sent, each counted once."""
    same: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """Per hit, other memories that say exactly the same and were left out."""


class Asked(Members, Protocol):
    """The members, and what was heard of them."""

    @property
    def heard(self) -> Heard:
        """The part of the hive that took part."""
        ...


class HiveRecaller(Recaller):
    """Answers questions over a hive; in the place of the recaller of one bank.

    Args:
        engine: The asker's home, for settings and the clock.
        hive: The hive.
        members: Gives a fresh way to the members, for one recall.
        alone: Answers from the one bank of a hive without others, except where trust counts, which follows derivations.
        past: Whether the members are asked as they were; then no use is counted.
    """

    one_bank = False

    def __init__(
        self,
        engine: Engine,
        hive: Hive,
        members: Callable[[], Asked],
        *,
        alone: Recaller | None = None,
        past: bool = False,
    ) -> None:
        super().__init__(engine)
        self._hive = hive
        self._members = members
        self._alone = alone
        self._past = past

    def _merged(
        self, preset: str | None, config: Mapping[str, Any] | None, deployed: Mapping[str, Any] | None
    ) -> RecallConfig:
        """As in one bank, with the weights that the hive's policy adds to its own ranking."""
        chosen = super()._merged(preset, config, deployed)
        if preset is not None or "weights" in (config or {}):
            return chosen
        return msgspec.structs.replace(chosen, weights=chosen.weights | self._hive.policy.weights)

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
        """Answer one question."""
        config, where = question.config, faded(question.at(now), self._hive.policy)
        if self._alone is not None and not config.weights.get("trust", 0.0) > 0:
            if self._hive.policy.ttl is not None or self._hive.policy.decay_per_hour:
                question = made(where, question.limit, config)
            found = self._alone.answer(
                query, question, now, reranker=reranker, explain=explain, count_uses=count_uses
            )
            return Answer(hits=found.hits, reason=found.reason, trace=found.trace, withheld=found.withheld)
        with tracer.span("hive.recall", limit=question.limit) as span:
            answer, homes = self._ask_hive(query, where, config, question.limit, reranker, explain=explain)
            span.note(hits=len(answer.hits), completeness=round(answer.completeness, 4))
        if count_uses and answer.hits and not self._past:
            per_home: dict[str, list[str]] = {}
            for hit in answer.hits:
                per_home.setdefault(homes.get(hit.memory.id, ""), []).append(hit.memory.id)
            self._hive.placement.note_uses(per_home)
        return answer

    def _ask_hive(
        self,
        query: str,
        where: Filter,
        config: RecallConfig,
        limit: int,
        reranker: Reranker | None,
        *,
        explain: bool,
    ) -> tuple[Answer, dict[str, str]]:
        """The answer, and the member each candidate came from."""
        from skep.retrieval.pipeline import run

        hive, members = self._hive, self._members()
        weighted = {name for name, weight in config.weights.items() if weight > 0}
        compared = config.select != "none" or config.updates
        ask = Ask(
            vectors=hive.embedder.dim if compared else 0,
            counters=bool(weighted.intersection(COUNTED)),
            boosted=hive.layout.fitting(query),
            boost=hive.policy.domain_boost,
            former=REPLACED_MOST if config.updates and where.statuses == CURRENT else 0,
        )
        sources = hive.sources(members, ask, limit, past=self._past)
        linked = sources.links if self._engine.setting(MARKED) else None
        found = run(
            query,
            config,
            sources,
            where.now,
            where=where,
            limit=limit,
            reranker=reranker,
            updates=UpdateOrder(linked, self.decided),
            explain=explain,
        )
        hits, trace = self._marked(found.hits, where.now, sources), found.trace
        kept, heard = {hit.memory.id for hit in hits}, members.heard
        silent = f"{heard.asked - heard.answered} of {heard.asked} members did not answer"
        answer = Answer(
            hits=hits,
            reason="; ".join(
                filter(None, (found.reason, sources.problem, silent if heard.completeness < 1.0 else ""))
            ),
            trace=trace,
            candidates=len(sources.ids),
            same={name: tuple(others) for name, others in sources.same.items() if name in kept},
            **msgspec.structs.asdict(heard),
        )
        return answer, sources.homes()

    def _marked(self, hits: tuple[Hit, ...], now: float, sources: HiveSources) -> tuple[Hit, ...]:
        """The hits, those that contradict one another marked.

        Links cost one more round, and only where the hive has some: the setting that says so goes to every member.
        """
        shown = tuple(hit for hit in hits if hit.memory.id)
        told = sources.links([hit.memory.id for hit in shown]) if self._engine.setting(OPPOSED) else []
        embedder = self._hive.embedder

        def vectors(memories: Sequence[Memory]) -> Any:
            return embedder.embed([searched_text(memory.title, memory.text) for memory in memories])

        linked = [link for link in told if link.rel == CONTRADICTS]
        return conflicts_marked(
            shown, vectors, sources.calibrate, now=now, linked=linked, decided=self.decided
        )


def faded(where: Filter, policy: HivePolicy) -> Filter:
    """A filter that reckons with how fast confidence fades in a hive."""
    if not policy.decay_per_hour:
        return where
    return msgspec.structs.replace(where, decay_per_day=24 * policy.decay_per_hour)
