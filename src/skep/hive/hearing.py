"""The listening side of gossip: what a bank or a hive answers when it is asked what it knows, and told more.

The same answers are given within a process and over a bus. A hive checks what it is told with its own keyring
and takes nothing of agents it does not trust; a bank checks with the keyring it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from skep.errors import SyncError
from skep.hive.about import dot_of
from skep.hive.bus.base import Bus, Subscription, safe_part
from skep.hive.digest import Bloom
from skep.hive.frames import Envelope, Frame, Gossip, GossipDigest, GossipHeard, GossipRequest
from skep.hive.member import Subjects
from skep.hive.replica import Replica, Transfer, seen, take
from skep.hive.signing import Keyring
from skep.hive.versions import Versions, normalise
from skep.model import CURRENT, Event, Memory


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
        if not isinstance(frame, GossipRequest | Gossip):
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
        mine = Versions() if request.digest == "none" else seen(self.peer)
        bloom = None
        if request.digest == "bloom":
            names = (f"{actor}-{counter}" for actor, counter in mine.dots())
            bloom = Bloom.of(names, salt=request.salt).to_bytes()
        return GossipDigest(
            hive=self.name,
            seen=mine if request.digest == "versions" else None,
            bloom=bloom,
            current=current_of(self.peer) if request.current else None,
        )

    def _hear(self, events: Iterable[Event], via: tuple[str, ...]) -> Transfer:
        if isinstance(self.peer, Admits):
            return self.peer.admit(events, via=via)
        return take(self.peer, events, self._keyring)


class GossipServer:
    """Lets a peer be told over a bus; `close` it to hear no more."""

    def __init__(self, listener: Listener, bus: Bus) -> None:
        self._listener = listener
        self._subscription: Subscription = bus.as_member(listener.name).subscribe(
            gossip_subject(listener.name), self._handle
        )

    def _handle(self, envelope: Envelope) -> Frame | None:
        return self._listener.answer(envelope.frame, envelope.path)

    def close(self) -> None:
        """Answer no more."""
        self._subscription.close()


class GossipSubjects(Subjects):
    """Where those that gossip are addressed: each by its own name, whatever hive it is."""

    def __init__(self) -> None:
        super().__init__("gossip")

    def to(self, member: str) -> str:
        """Where one of them listens."""
        return gossip_subject(member)


def gossip_subject(name: str) -> str:
    """Where a hive or a bank is told something."""
    return f"hive.{safe_part(name)}.gossip"


class Known:
    """What a peer has, as it told, and what it was told since."""

    def __init__(self, digest: GossipDigest) -> None:
        if (digest.seen is None) == (digest.bloom is None):
            raise SyncError(f"{digest.hive} did not say what it knows; ask it again")
        self._bloom = None if digest.bloom is None else Bloom.from_bytes(digest.bloom)
        self._seen = Versions() if digest.seen is None else tidy(digest.seen)

    def lacking(self, source: Replica) -> Iterable[Event]:
        """The events of a replica that the peer does not have, in the order of the log."""
        events = source.events_in(seen(source).minus(self._seen).ranges)
        if self._bloom is None:
            return events
        bloom = self._bloom
        return (event for event in events if event.id not in bloom)

    def told(self, events: Iterable[Event]) -> None:
        """Note what was sent, so that nobody sends it again in the same round."""
        self._seen = self._seen.merged(Versions.of((event.actor, event.counter) for event in events))


def tidy(versions: Versions) -> Versions:
    """What somebody else says it has seen, in order, without what cannot be."""
    return Versions(
        {
            actor: normalise((max(1, low), high) for low, high in ranges)
            for actor, ranges in versions.ranges.items()
        }
    )


def current_of(peer: Any) -> Versions:
    """The memories of a bank or a hive that a recall may return, as ranges of their numbers."""
    return Versions.of(dot_of(name) for name in known_ids(peer))


def known_ids(peer: Any) -> set[str]:
    """The current memories of a bank or a hive, wherever its members run."""
    from skep.hive.blast import everything
    from skep.hive.finding import of_members

    members = getattr(peer, "members", None)
    banks: list[Any] = [member.bank for member in members.values()] if members is not None else [peer]
    here = {memory.id for bank in banks for memory in everything(bank) if memory.status in CURRENT}
    if members is None or not peer.elsewhere():
        return here
    return here | {memory.id for _, memory in of_members(peer, CURRENT, peer.elsewhere())}
