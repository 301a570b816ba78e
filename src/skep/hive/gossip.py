"""Gossip: knowledge spreads from hive to hive in rounds, without anybody in charge.

In each round every peer picks a few others, more trusted ones more often, and tells each what it does not
have: first the memories it is surest of, then a batch of whatever else differs, so that everything arrives
in the end. What the other has is known from a digest, and nothing known is sent again.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from skep.hive.digest import Bloom
from skep.hive.policy import HivePolicy
from skep.hive.replica import Replica, Transfer, seen, take
from skep.hive.signing import Keyring
from skep.hive.tracing import tracer
from skep.hive.versions import Versions
from skep.model import CURRENT, Event, Memory

if TYPE_CHECKING:
    from skep.hive.hive import Hive

DigestKind = Literal["versions", "bloom"]


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


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What one round did."""

    number: int
    messages: int
    events: int
    """New where they arrived."""
    bytes: int
    digest_bytes: int
    convergence: float


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
        digest: DigestKind = "versions",
        keyring: Keyring | None = None,
    ) -> None:
        """Gossip among hives and banks.

        Args:
            peers: Who takes part, by name.
            policy: Fanout and thresholds.
            trust: How far each peer is trusted, by name.
            rng: Who talks to whom.
            batch: How many events follow the most valuable ones in a message.
            digest: How a peer tells what it has.
            keyring: Whose signatures banks check; hives check with their own.
        """
        self.peers = dict(peers)
        self._keyring = keyring
        self.policy = policy or HivePolicy()
        self._trust = trust or _equal
        self._rng = rng or random.Random(0)
        self._batch = batch
        self._digest: DigestKind = digest
        self.rounds: list[Round] = []

    def round(self) -> Round:
        """Let every peer speak once."""
        messages, digest_bytes, moved = 0, 0, Transfer()
        with tracer.span("hive.gossip", peers=len(self.peers)) as span:
            for name in self.peers:
                for other in choose(
                    [p for p in self.peers if p != name], self.policy.fanout, self._trust, self._rng
                ):
                    spoken, size = self.tell(self.peers[name], self.peers[other], via=(name,))
                    moved = moved.plus(spoken)
                    digest_bytes += size
                    messages += 1
            shared = convergence(self.peers.values())
            span.note(events=moved.events, convergence=round(shared, 4))
        done = Round(
            number=len(self.rounds) + 1,
            messages=messages,
            events=moved.events,
            bytes=moved.bytes,
            digest_bytes=digest_bytes,
            convergence=shared,
        )
        self.rounds.append(done)
        return done

    def run(self, *, limit: int = 100) -> list[Round]:
        """Rounds until everybody knows everything, or `limit` are done."""
        while len(self.rounds) < limit and (not self.rounds or self.rounds[-1].convergence < 1.0):
            self.round()
        return self.rounds

    def tell(self, source: Peer, target: Peer, *, via: tuple[str, ...] = ()) -> tuple[Transfer, int]:
        """One message: what `target` lacks, the surest first. Also the size of the digest that was needed."""
        mine, theirs = seen(source), seen(target)
        missing = mine.minus(theirs)
        known, size = self._known(theirs)
        if not missing:
            return Transfer(), size
        events = self._priority(source, missing, known)
        named = {event.id for event in events}
        rest = (event for event in source.events_in(missing.ranges) if event.id not in named)
        sent = (*events, *islice(rest, self._batch))
        return hand_over(target, sent, keyring=self._keyring, via=via), size

    def _known(self, theirs: Versions) -> tuple[Callable[[str], bool], int]:
        """What the other has, as it would tell: exact ranges, or a Bloom filter of ids."""
        if self._digest == "bloom":
            bloom = Bloom.of(f"{actor}-{counter}" for actor, counter in theirs.dots())
            return bloom.__contains__, len(bloom.to_bytes())

        def contains(name: str) -> bool:
            actor, _, counter = name.rpartition("-")
            return (actor, int(counter)) in theirs

        return contains, len(msgspec.msgpack.encode(theirs))

    def _priority(self, source: Peer, missing: Versions, known: Callable[[str], bool]) -> list[Event]:
        """The memories the source is surest of among those the other lacks."""
        fresh = (
            event.id
            for event in source.events_in(missing.ranges)
            if event.kind == "remember" and not known(event.id)
        )
        found = ((name, source.get(name)) for name in _known_only(source, fresh))
        worth = [
            (memory.confidence, name)
            for name, memory in found
            if memory is not None and memory.confidence >= self.policy.gossip_at and memory.status in CURRENT
        ]
        best = {name for _, name in heapq.nlargest(self.policy.gossip_top, worth)}
        return [event for event in source.events_in(missing.ranges) if event.id in best]


def hand_over(
    target: Peer, events: Iterable[Event], *, keyring: Keyring | None = None, via: tuple[str, ...] = ()
) -> Transfer:
    """Give events to a peer. A hive checks them with its own keyring and sets aside what its gateway doubts."""
    if isinstance(target, Admits):
        return target.admit(events, via=via)
    return take(target, events, keyring)


def _equal(name: str) -> float:  # noqa: ARG001
    return 1.0


def _known_only(source: Peer, names: Iterable[str]) -> Iterator[str]:
    """Ids whose memory the source can still show."""
    store = getattr(getattr(source, "engine", None), "store", None)
    for name in names:
        if store is None or not store.is_forgotten(name):
            yield name


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
    """How much of what anybody knows is known to all: 1 when all know the same."""
    known = [known_ids(peer) for peer in peers]
    anybody = set[str]().union(*known)
    everybody = {name for name in anybody if all(name in one for one in known)}
    return len(everybody) / len(anybody) if anybody else 1.0


def known_ids(peer: Any) -> set[str]:
    """The current memories of a bank or a hive."""
    from skep.hive.blast import everything

    members = getattr(peer, "members", None)
    banks: list[Any] = [member.bank for member in members.values()] if members is not None else [peer]
    return {memory.id for bank in banks for memory in everything(bank) if memory.status in CURRENT}


class AutoGossip:
    """Tells a few peers of a hive about every memory it promotes."""

    def __init__(self, hive: Hive, peers: Mapping[str, Peer], *, rng: random.Random | None = None) -> None:
        self._hive = hive
        self.peers = dict(peers)
        self._rng = rng or random.Random(0)

    def __call__(self, memories: Sequence[Memory]) -> int:
        """Send new memories on; how many events were new to somebody. What came by gossip is never sent on."""
        policy, trust = self._hive.policy, self._hive.trust
        worth = [memory.id for memory in memories if memory.confidence >= policy.gossip_at]
        if not worth:
            return 0
        events = self._hive.events_of(worth)
        chosen = choose(list(self.peers), policy.fanout, trust.of, self._rng)
        via = (self._hive.name,)
        return sum(hand_over(self.peers[name], events, via=via).events for name in chosen)
