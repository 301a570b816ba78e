"""Gossip: memories spread from hive to hive in rounds, without anybody in charge.

In each round every peer picks a few others, more trusted ones more often, and tells each what it lacks: first the
memories it is surest of, then a batch of whatever else differs, so that everything arrives in the end. What a peer
has is known from ranges of counters, and nothing known is sent again. Peers are in this
process or anywhere on a bus; both are spoken to with the same messages. Whoever does not answer in time is left out
of the round.

`Listener` and `GossipServer` are the listening side: a hive checks what it is told with its own keyring and takes
nothing of agents it does not trust; a bank checks with the keyring it was given. Called by `hive` and `orchestrator`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np

from skep.confidence import content_hash, said
from skep.errors import InvalidInputError, SkepError, SyncError
from skep.hive.bus.bus import Bus, safe_part
from skep.hive.gateway import HivePolicy
from skep.hive.member_calls import Calls, Health
from skep.hive.members import Subjects
from skep.hive.messages import Envelope, Frame, GossipDigest, GossipEvents, GossipHeard, GossipRequest
from skep.hive.traces import tracer
from skep.model import CURRENT, Event, Memory
from skep.replication.exchange import (
    Replica,
    Transfer,
    forgets_first,
    is_forgotten,
    lacking,
    seen,
    take,
    without_position,
)
from skep.replication.signatures import Keyring
from skep.replication.version_vectors import Versions, normalise

if TYPE_CHECKING:
    from skep.hive.hive import Hive


class Peer(Replica, Protocol):
    """A bank or a hive that takes part."""

    def get(self, memory_id: str) -> Memory | None:
        """A memory by id."""
        ...


@runtime_checkable
class Admits(Protocol):
    """A peer with a gateway of its own."""

    def admit(self, events: Iterable[Event], *, via: tuple[str, ...] = ()) -> Transfer:
        """Take events of others past the gateway."""
        ...


class Listener:
    """Answers gossip for one peer."""

    def __init__(
        self,
        name: str,
        peer: Peer,
        *,
        keyring: Keyring | None = None,
        trust: Callable[[str], float] | None = None,
    ) -> None:
        """Let a peer listen.

        Args:
            name: Its name among those that gossip.
            peer: The bank or the hive.
            keyring: Whose signatures a bank checks; hives check with their own.
            trust: How far each teller is trusted; those without any are not listened to.
        """
        self.name = name
        self.peer = peer
        self._keyring = keyring
        self._trust = trust

    def answer(self, frame: Frame, path: tuple[str, ...] = ()) -> Frame | None:
        """The answer to one message; None to what is not gossip."""
        if not isinstance(frame, GossipRequest | GossipEvents):
            return None
        if self._trust is not None and self._trust(frame.hive) <= 0:
            raise SyncError(f"{self.name} does not listen to {frame.hive}, which it does not trust")
        if isinstance(frame, GossipRequest):
            return self._digest(frame)
        done = self._hear(frame.events, path or (frame.hive,))
        return GossipHeard(
            hive=self.name,
            applied=done.events,
            refused={refused.event: refused.fault for refused in done.refused},
            held=done.held,
        )

    def _digest(self, request: GossipRequest) -> GossipDigest:
        if request.current:
            return GossipDigest(hive=self.name, current=current_of(self.peer))
        return GossipDigest(hive=self.name, seen=seen(self.peer))

    def _hear(self, events: Iterable[Event], via: tuple[str, ...]) -> Transfer:
        if isinstance(self.peer, Admits):
            return self.peer.admit(events, via=via)
        return take(self.peer, events, self._keyring)


class GossipServer:
    """Lets a peer be told over a bus; `close` it to hear no more."""

    def __init__(self, listener: Listener, bus: Bus) -> None:
        self._listener = listener
        self._subscription = bus.as_member(listener.name).subscribe(
            gossip_subject(listener.name), self._handle
        )

    def _handle(self, envelope: Envelope) -> Frame | None:
        return self._listener.answer(envelope.frame, envelope.path)

    def close(self) -> None:
        """Answer no more."""
        self._subscription.close()


class GossipSubjects(Subjects):
    """The bus subjects of gossip: each peer by its own name, in whatever hive."""

    def __init__(self) -> None:
        super().__init__("gossip")

    def to(self, member: str) -> str:
        """The subject of one peer."""
        return gossip_subject(member)


def gossip_subject(name: str) -> str:
    """The bus subject on which a hive or a bank listens."""
    return f"hive.{safe_part(name)}.gossip"


def tidy(versions: Versions) -> Versions:
    """Version ranges of a stranger, in order and without impossible numbers."""
    return Versions(
        {
            actor: normalise((max(1, low), high) for low, high in ranges)
            for actor, ranges in versions.ranges.items()
        }
    )


def current_of(peer: Any) -> bytes:
    """What a bank or a hive could answer with, as hashes of the contents, wherever its members run."""
    from skep.hive.member_calls import of_members
    from skep.hive.trust import everything

    members = getattr(peer, "members", None)
    banks: list[Any] = [member.bank for member in members.values()] if members is not None else [peer]
    known = [memory for bank in banks for memory in everything(bank) if memory.status in CURRENT]
    if members is not None and members.elsewhere():
        known += [memory for _, memory in of_members(peer.calls, CURRENT, members.elsewhere())]
    found = {content_hash(said(memory), memory.kind, memory.scope) for memory in known}
    return np.array(sorted(found), "<i8").tobytes()


F = TypeVar("F", bound=Frame)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one round."""

    number: int
    messages: int
    events: int
    """New where they arrived."""
    bytes: int
    digest_bytes: int
    convergence: float
    """Among those that said what they know."""
    missing: tuple[str, ...] = ()
    """Peers that did not answer in time, or not sensibly."""
    faults: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The error of each of them."""


class Gossip:
    """Rounds of gossip among peers."""

    def __init__(
        self,
        peers: Mapping[str, Peer],
        *,
        policy: HivePolicy | None = None,
        trust: Callable[[str], float] | None = None,
        rng: random.Random | None = None,
        batch: int = 100,
        keyring: Keyring | None = None,
        bus: Bus | None = None,
        others: Iterable[str] = (),
    ) -> None:
        """Gossip among hives and banks.

        Args:
            peers: Who takes part in this process, by name; these speak in every round.
            policy: Fanout, thresholds, and how long a peer on the bus may take to answer.
            trust: How far each peer is trusted, by name.
            rng: Who talks to whom.
            batch: How many events follow the most valuable ones in a message.
            keyring: Whose signatures banks check; hives check with their own.
            bus: The way to the others.
            others: Who is told over the bus: hives after `listen`, or banks behind a `GossipServer`.
        """
        self.peers = dict(peers)
        self.others = tuple(dict.fromkeys(others))
        if self.others and bus is None:
            raise InvalidInputError(
                "peers outside this process are reached over a bus; give one", field="bus"
            )
        twice = next((name for name in self.others if name in self.peers), None)
        if twice is not None:
            raise InvalidInputError(f"{twice!r} is in this process; leave it out of `others`", field="others")
        self._listeners = {name: Listener(name, peer, keyring=keyring) for name, peer in self.peers.items()}
        self.policy = policy or HivePolicy()
        self._calls = (
            None
            if bus is None
            else Calls(bus, GossipSubjects(), lambda: self.others, policy=self.policy, health=Health())
        )
        self._trust = trust or _equal
        self._rng = rng or random.Random(0)
        self._batch = batch
        self.rounds: list[Round] = []

    def round(self) -> Round:
        """Let every peer of this process speak once."""
        with tracer.span("hive.gossip", peers=len(self.peers) + len(self.others)) as span:
            talk = _Talk(self)
            pairs = self._pairs()
            talk.meet({other: name for name, other in pairs})
            for name, other in pairs:
                talk.tell(name, other)
            shared = talk.agreement()
            span.note(events=talk.moved.events, convergence=round(shared, 4), missing=len(talk.faults))
        done = Round(
            number=len(self.rounds) + 1,
            messages=talk.messages,
            events=talk.moved.events,
            bytes=talk.moved.bytes,
            digest_bytes=talk.digest_bytes,
            convergence=shared,
            missing=tuple(sorted(talk.faults)),
            faults=talk.faults,
        )
        self.rounds.append(done)
        return done

    def run(self, *, limit: int = 100) -> list[Round]:
        """Rounds until everybody who can be heard knows everything, or `limit` are done."""
        while len(self.rounds) < limit and (not self.rounds or self.rounds[-1].convergence < 1.0):
            self.round()
        return self.rounds

    def tell(self, name: str, other: str) -> Transfer:
        """One message from a peer of this process to another peer: what it lacks, the surest first."""
        talk = _Talk(self)
        talk.meet({other: name})
        talk.tell(name, other)
        if other in talk.faults:
            raise SyncError(f"{other} could not be told: {talk.faults[other]}; nothing is lost, try again")
        return talk.moved

    def _pairs(self) -> list[tuple[str, str]]:
        """Pairs of a teller and a listener for a round."""
        names = [*self.peers, *self.others]
        return [
            (name, other)
            for name in self.peers
            for other in choose([p for p in names if p != name], self.policy.fanout, self._trust, self._rng)
        ]

    def ask(
        self, frames: Mapping[str, Frame], kind: type[F], *, path: tuple[str, ...] = ()
    ) -> tuple[dict[str, F], dict[str, str]]:
        """Answers of peers wherever they are, and what went wrong with the others."""
        answers: dict[str, F] = {}
        faults: dict[str, str] = {}
        away: dict[str, Frame] = {}
        for name, frame in frames.items():
            if name not in self._listeners:
                away[name] = frame
                continue
            try:
                said = self._listeners[name].answer(frame, path)
            except SkepError as error:
                faults[name] = f"{type(error).__name__}: {error}"
                continue
            if isinstance(said, kind):
                answers[name] = said
        if away and self._calls is not None:
            found = self._calls.ask_each(away, kind, paths=dict.fromkeys(away, path))
            answers |= found.answers
            faults |= found.faults
        return answers, faults

    def message(self, source: Peer, known: Versions) -> tuple[Event, ...]:
        """The events to send: of those that are lacking the memories the source is surest of, then a batch."""
        best = self._surest(source, known)
        first = [event for event in lacking(source, known) if event.id in best] if best else []
        rest = islice((e for e in lacking(source, known) if e.id not in best), self._batch)
        return tuple(without_position(event) for event in forgets_first((*first, *rest)))

    def _surest(self, source: Peer, known: Versions) -> set[str]:
        fresh = (event.id for event in lacking(source, known) if event.kind == "remember")
        found = ((name, source.get(name)) for name in fresh if not is_forgotten(source, name))
        worth = [
            (memory.confidence, name)
            for name, memory in found
            if memory is not None and memory.confidence >= self.policy.gossip_at and memory.status in CURRENT
        ]
        return {name for _, name in heapq.nlargest(self.policy.gossip_top, worth)}


class _Talk:
    """One round: who knows what, who was told what, and who failed to answer."""

    def __init__(self, gossip: Gossip) -> None:
        self._gossip = gossip
        self._known: dict[str, Versions] = {}
        self.faults: dict[str, str] = {}
        self.messages = 0
        self.digest_bytes = 0
        self.moved = Transfer()

    def meet(self, tellers: Mapping[str, str]) -> None:
        """Ask peers what they know, all at once; each in the name of one that will tell it something."""
        frames: dict[str, Frame] = {other: GossipRequest(hive=name) for other, name in tellers.items()}
        answers, faults = self._gossip.ask(frames, GossipDigest)
        self.faults |= faults
        for other, digest in answers.items():
            if digest.seen is None:
                self.faults[other] = f"{digest.hive} did not say what it knows; ask it again"
            else:
                self._known[other] = tidy(digest.seen)
                self.digest_bytes += len(msgspec.msgpack.encode(digest))

    def tell(self, name: str, other: str) -> None:
        """Tell one peer what it lacks of another; nothing if it has failed to answer before."""
        known = self._known.get(other)
        if known is None or other in self.faults:
            return
        self.messages += 1
        events = self._gossip.message(self._gossip.peers[name], known)
        if not events:
            return
        frame = GossipEvents(hive=name, events=events)
        answers, faults = self._gossip.ask({other: frame}, GossipHeard, path=(name,))
        self.faults |= faults
        if other in answers:
            dots = Versions.of((event.actor, event.counter) for event in events)
            self._known[other] = known.merged(dots)  # so that nobody sends it again in this round
            size = len(msgspec.msgpack.encode(events))
            self.moved = self.moved.plus(Transfer(events=max(0, answers[other].applied), bytes=size))

    def agreement(self) -> float:
        """The share of all known memories that every peer which answers knows."""
        names = [*self._gossip.peers, *self._gossip.others]
        asker = next(iter(self._gossip.peers), "")
        question = GossipRequest(hive=asker, current=True)
        frames: dict[str, Frame] = {name: question for name in names if name not in self.faults}
        answers, faults = self._gossip.ask(frames, GossipDigest)
        self.faults |= faults
        return agreement(
            a.current for a in answers.values() if a.current is not None and len(a.current) % 8 == 0
        )


def _equal(name: str) -> float:  # noqa: ARG001
    return 1.0


def choose(names: Sequence[str], count: int, trust: Callable[[str], float], rng: random.Random) -> list[str]:
    """Some of the names, more trusted ones more often; those without any trust never."""
    left = {name: trust(name) for name in names if trust(name) > 0}
    chosen: list[str] = []
    while left and len(chosen) < count:
        (name,) = rng.choices(list(left), weights=list(left.values()))
        chosen.append(name)
        del left[name]
    return chosen


def convergence(peers: Iterable[Peer]) -> float:
    """The share of all that is known to anybody that every peer knows: 1 when all know the same.

    Contents count, not memories: what three agents say in the same words is one.
    """
    return agreement(current_of(peer) for peer in peers)


def agreement(known: Iterable[bytes]) -> float:
    """The share of what anybody has that all have; 1 where nobody has anything."""
    listed = [np.unique(np.frombuffer(one, "<i8")) for one in known]
    if not listed:
        return 1.0
    _, counts = np.unique(np.concatenate(listed), return_counts=True)
    return float((counts == len(listed)).mean()) if len(counts) else 1.0


class AutoGossip:
    """Tells a few peers of a hive about every memory it promotes."""

    def __init__(
        self,
        hive: Hive,
        peers: Mapping[str, Peer],
        *,
        others: Iterable[str] = (),
        rng: random.Random | None = None,
    ) -> None:
        self._hive = hive
        self._listeners = {name: Listener(name, peer) for name, peer in peers.items()}
        self.others = tuple(others)
        self._rng = rng or random.Random(0)

    def __call__(self, memories: Sequence[Memory]) -> int:
        """Send new memories on; how many events were new to somebody of this process.

        Those on the bus are told and not waited for: what is lost on the way comes with the next round. What came
        by gossip is never sent on.
        """
        policy, trust = self._hive.policy, self._hive.trust
        worth = [memory.id for memory in memories if memory.confidence >= policy.gossip_at]
        if not worth:
            return 0
        frame = GossipEvents(hive=self._hive.name, events=tuple(self._hive.members.events_of(worth)))
        new = 0
        for name in choose([*self._listeners, *self.others], policy.fanout, trust.of, self._rng):
            if name in self._listeners:
                heard = self._listeners[name].answer(frame, (self._hive.name,))
                new += heard.applied if isinstance(heard, GossipHeard) else 0
            else:
                self._hive.bus.publish(gossip_subject(name), frame, path=(self._hive.name,))
        return new
