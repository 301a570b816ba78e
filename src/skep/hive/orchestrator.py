"""One agent's whole day in a hive: learn and promote, ask everything at once, follow events, gossip.

It is the piece to put behind an agent's loop. What is promoted is decided by the hive's `PromotionPolicy`,
which can be subclassed or replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from skep.errors import SkepError, SyncError
from skep.events import subjects_of
from skep.filters import Filter
from skep.hive.bus.bus import Reader, safe_part
from skep.hive.gossip import Gossip, Round
from skep.hive.hive_recall import Answer, Heard, HiveRecaller, Scatter, joined
from skep.hive.messages import (
    AgentOnline,
    AgentProgress,
    AgentReady,
    AgentShutdown,
    Ask,
    Envelope,
    FactPromoted,
    FactRetracted,
    FactsChanged,
    FeedComplete,
    Fetched,
    Frame,
    LearnContent,
    Query,
    QueryResponse,
    Slice,
    Told,
)
from skep.hive.traces import tracer
from skep.replication.signatures import is_register

if TYPE_CHECKING:
    from skep.hive.agent_bank import Promoted
    from skep.hive.hive import Hive
    from skep.model import Event


Effect = Literal["applied", "known", "ignored", "refused", "quarantined"]


class Processed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one event."""

    effect: Effect
    reason: str = ""
    reply: Frame | None = None


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch of events."""

    effects: dict[str, int]
    failed: int = 0
    left: int = 0


class Orchestrator:
    """Binds one agent, its hive, other hives and the bus."""

    def __init__(
        self,
        hive: Hive,
        agent: str,
        *,
        peers: Mapping[str, Hive] | None = None,
        others: Iterable[str] = (),
        rng: random.Random | None = None,
    ) -> None:
        """Put one agent to work.

        Args:
            hive: Where it belongs.
            agent: Its name.
            peers: Other hives of this process, to ask and to gossip with.
            others: The names of hives that listen on the bus, to gossip with.
            rng: Whom to tell.
        """
        self.hive = hive
        self.agent = agent
        self.bank = hive.agent(agent)
        self.peers = dict(peers or {})
        self.roster: dict[str, str] = {}
        """Agents heard of, and what they were last doing."""
        self.learnt = 0
        self._expected: int | None = None
        self._handlers: dict[str, Callable[[Mapping[str, Any], str], None]] = {}
        self._gossip = Gossip(
            {hive.name: hive, **self.peers},
            policy=hive.policy,
            trust=hive.trust.of,
            rng=rng,
            bus=hive.bus,
            others=others,
        )
        hive.listen()
        self._consumer = self._subscribe()

    def _subscribe(self) -> Reader:
        """Follow what other hives announce and what is fed to this agent, from the beginning."""
        bus, name = self.hive.bus, safe_part(self.agent)
        self.hive.placement.announce = True
        reader = bus.follow(f"{self.hive.name}/{name}")
        bus.publish(f"{self.hive.subjects.root}.feed.all", AgentOnline(agent=self.agent))
        return reader

    @property
    def feed(self) -> str:
        """The subject on which this agent is fed."""
        return f"{self.hive.subjects.root}.feed.{safe_part(self.agent)}"

    def store_and_promote(self, text: str, **fields: Any) -> Promoted:
        """Learn something; the hive has it too if the policy agrees."""
        return self.bank.remember(text, **fields)

    def query_unified(self, query: str, *, limit: int = 5, **options: Any) -> Answer:
        """Ask the agent's own memories, its hive and all peers, and rank everything once."""
        layers = {"": self.hive.scatter(self.bank.private)}
        layers |= {name: peer.scatter() for name, peer in self.peers.items()}
        recaller = HiveRecaller(self.bank.engine, self.hive, lambda: _Layers(layers))
        where: Filter = self.bank.filter(valid_at=self.hive.now(), **options)
        with tracer.span("hive.unified", agent=self.agent, layers=len(layers)):
            question = recaller.question(where, limit)
            return recaller.answer(query, question, where.now, count_uses=False)

    def run_gossip_round(self) -> Round:
        """Exchange with the peers once."""
        return self._gossip.round()

    # Events

    def tell(self, name: str, /, **data: Any) -> None:
        """Publish an event of a type of one's own, for every agent of every hive on the bus."""
        self.hive.bus.publish(self.hive.subjects.events, Told(name=name, data=data), path=(self.hive.name,))

    def on(self, name: str, handler: Callable[[Mapping[str, Any], str], None]) -> None:
        """Have events of a type of one's own handled as they are drained: called with the data and who sent it."""
        self._handlers[name] = handler

    def drain_events(self, limit: int = 100) -> Drained:
        """Process what has been said since the last time; each event is acknowledged once it is dealt with."""
        effects: dict[str, int] = {}
        failed = 0
        for delivery in self._consumer.fetch(limit):
            try:
                done = self.process_event(delivery.envelope)
            except SkepError:
                failed += 1
                delivery.retry()
                continue
            delivery.ack()
            effects[done.effect] = effects.get(done.effect, 0) + 1
            if done.reply is not None:
                self.hive.bus.publish(f"{self.hive.subjects.root}.feed.all", done.reply)
        return Drained(effects=effects, failed=failed, left=self._consumer.behind)

    def process_event(self, envelope: Envelope) -> Processed:
        """Deal with one event."""
        with tracer.span("hive.event", trace=envelope.trace, agent=self.agent) as span:
            done = self._process(envelope)
            span.note(effect=done.effect)
        return done

    def _process(self, envelope: Envelope) -> Processed:
        frame = envelope.frame
        if isinstance(frame, FactPromoted | FactRetracted | FactsChanged):
            if self.hive.name in envelope.path:
                return Processed(effect="ignored", reason="it began here")
            told = self._promoted if isinstance(frame, FactPromoted) else self._changed
            return told(frame, envelope.path or (envelope.sender or "sync",))  # type: ignore[arg-type]
        if isinstance(frame, Told):
            handler = self._handlers.get(frame.name)
            if handler is None:
                return Processed(effect="ignored", reason=f"nobody handles {frame.name!r}")
            handler(frame.data, next(iter(envelope.path), envelope.sender))
            return Processed(effect="applied")
        mine = envelope.subject in (self.feed, f"{self.hive.subjects.root}.feed.all")
        fed = envelope.subject.startswith(f"{self.hive.subjects.root}.feed.")
        if not mine and (
            isinstance(frame, LearnContent | FeedComplete) or (isinstance(frame, Query) and fed)
        ):
            return Processed(effect="ignored", reason="for another agent")
        if isinstance(frame, LearnContent | FeedComplete):
            return self._fed(frame)
        if isinstance(frame, Query):
            return Processed(effect="applied", reply=self._answered(frame))
        return self._noted(frame)

    def _promoted(self, frame: FactPromoted, path: tuple[str, ...]) -> Processed:
        """A memory of another hive: its original events, past the same gate as for one's own agents."""
        if self.hive.get(frame.memory) is not None:
            return Processed(effect="known")
        first = next((e for e in frame.events if e.id == frame.memory and e.kind == "remember"), None)
        if first is None:
            return Processed(effect="refused", reason="the event that made it is missing")
        evidence: Any = first.body.get("evidence")
        about = {frame.memory, *(map(str, cast("list[Any]", evidence)) if isinstance(evidence, list) else ())}
        return self._admitted([e for e in frame.events if about.issuperset(subjects_of(e))], path)

    def _changed(self, frame: FactRetracted | FactsChanged, path: tuple[str, ...]) -> Processed:
        """Changes to memories. New ones come through the gate, and a hive's registers are its own."""
        return self._admitted([e for e in frame.events if e.kind != "remember" and not is_register(e)], path)

    def _admitted(self, events: Iterable[Event], path: tuple[str, ...]) -> Processed:
        try:
            taken = self.hive.admit(events, via=path)
        except SyncError as error:
            return Processed(effect="refused", reason=str(error))
        if taken.quarantined:
            return Processed(effect="quarantined", reason="; ".join(taken.quarantined.values()))
        if taken.refused:
            return Processed(effect="refused", reason=f"{taken.refused[0].event}: {taken.refused[0].fault}")
        return Processed(effect="applied" if taken.events else "known")

    def _fed(self, frame: LearnContent | FeedComplete) -> Processed:
        if isinstance(frame, LearnContent):
            fields = {"source": frame.source, "domain": frame.domain, "confidence": frame.confidence}
            self.store_and_promote(frame.text, **fields)
            self.learnt += 1
        else:
            self._expected = frame.expected.get(self.agent, 0)
        if self._expected is None:
            return Processed(effect="applied", reply=AgentProgress(agent=self.agent, done=self.learnt))
        if self.learnt >= self._expected:
            return Processed(effect="applied", reply=AgentReady(agent=self.agent, learnt=self.learnt))
        progress = AgentProgress(agent=self.agent, done=self.learnt, total=self._expected)
        return Processed(effect="applied", reply=progress)

    def _answered(self, frame: Query) -> QueryResponse:
        answer = self.query_unified(frame.query, limit=frame.limit)
        hits = tuple((hit.memory.id, hit.memory.text) for hit in answer.hits)
        return QueryResponse(agent=self.agent, hits=hits, completeness=answer.completeness)

    def _noted(self, frame: Frame) -> Processed:
        match frame:
            case AgentOnline():
                self.roster[frame.agent] = "online"
            case AgentReady():
                self.roster[frame.agent] = f"ready, {frame.learnt} learnt"
            case AgentProgress():
                of = f" of {frame.total}" if frame.total is not None else ""
                self.roster[frame.agent] = f"{frame.done}{of} learnt"
            case AgentShutdown():
                self.roster[frame.agent] = f"gone{': ' + frame.reason if frame.reason else ''}"
            case _:
                return Processed(effect="ignored", reason=type(frame).__name__)
        return Processed(effect="applied")


class _Layers:
    """Several hives asked as one; implements `hive_sources.Members`."""

    def __init__(self, layers: Mapping[str, Scatter]) -> None:
        self._scatters = layers

    def ask(self, ask: Ask) -> Mapping[str, Slice]:
        """The answers by hive and member; all hives are asked at once, so that none uses up another's time."""

        def one(name: str) -> Mapping[str, Slice]:
            parts = self._scatters[name].ask(ask)
            return {f"{name}\x1f{member}": part for member, part in parts.items()}

        names = list(self._scatters)
        if len(names) == 1:
            return one(names[0])
        with ThreadPoolExecutor(max_workers=len(names)) as pool:
            asked = [pool.submit(copy_context().run, one, name) for name in names]
            return {member: part for answer in asked for member, part in answer.result().items()}

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id, from the hive that sent each, or from all."""
        parts: list[Fetched] = []
        for name, scatter in self._scatters.items():
            wanted = {
                memory_id: home.partition("\x1f")[2]
                for memory_id, home in ids.items()
                if not home or home.partition("\x1f")[0] == name
            }
            if wanted:
                parts.append(scatter.fetch(wanted, links=links))
        return joined(parts)

    @property
    def heard(self) -> Heard:
        """All of them together."""
        heard = [scatter.heard for scatter in self._scatters.values()]
        asked = sum(one.asked for one in heard)
        share = sum(one.completeness * one.asked for one in heard) / max(1, asked)
        return Heard(
            asked=asked,
            answered=sum(one.answered for one in heard),
            missing=tuple(name for one in heard for name in one.missing),
            faults={name: fault for one in heard for name, fault in one.faults.items()},
            completeness=share,
        )
