"""Signatures: proof of who wrote an event, checked wherever it arrives.

An event is signed over its canonical bytes (actor, counter, stamp, kind and body). A keyring says which key
belongs to which actor and which agents that actor may write for. Text that was forgotten is gone from its
events, and with it the signature; such an event is accepted only where the `forget` that erased it is known
and signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from skep.errors import InvalidInputError, MissingExtraError, SyncError
from skep.model import ANY, Event

if TYPE_CHECKING:
    from nacl.signing import SigningKey

Fault = Literal["forged", "unsigned", "unknown actor", "not its agent"]
_PREFIX = b"skep-event-1\n"
_ENCODER = msgspec.json.Encoder(order="deterministic")


def canonical(event: Event) -> bytes:
    """The bytes that are signed: the same in every replica and every version of skep."""
    content: list[Any] = [event.actor, event.counter, event.hlc, event.kind, event.body]
    return _PREFIX + _ENCODER.encode(content)


class Signer:
    """A private key. Keep the seed (32 bytes) secret; the public key may be shown to anybody."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise InvalidInputError(f"a signing seed has 32 bytes, not {len(seed)}", field="seed")
        self._key: SigningKey = _signing().SigningKey(seed)

    @property
    def public(self) -> bytes:
        """The key others verify with (32 bytes)."""
        return bytes(self._key.verify_key)

    def sign(self, event: Event) -> bytes:
        """The signature of an event (64 bytes)."""
        return self._key.sign(canonical(event)).signature

    def signed(self, event: Event) -> Event:
        """The event with its signature."""
        return msgspec.structs.replace(event, signature=self.sign(event))


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Whose key it is: the agents an actor may write for; `*` for a bank that several agents share."""

    key: bytes
    agents: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was not taken, and why."""

    event: str
    fault: Fault


class ForgedError(SyncError):
    """Events claimed an author who did not write them; nothing of them was taken."""

    def __init__(self, refused: Sequence[Refused]) -> None:
        self.refused = tuple(refused)
        shown = ", ".join(f"{r.event} ({r.fault})" for r in self.refused[:5])
        more = f" and {len(self.refused) - 5} more" if len(self.refused) > 5 else ""
        super().__init__(f"refused {shown}{more}; ask who sent them, or add the author's key to the keyring")


class Keyring:
    """The keys one trusts. `required` refuses actors whose key is not known."""

    def __init__(self, *, required: bool = False) -> None:
        self.required = required
        self._keys: dict[str, KeyEntry] = {}
        self._expected: dict[str, bytes] = {}
        self._vouched: set[str] = set()

    def add(self, actor: str, key: bytes, *, agents: Iterable[str] = (ANY,)) -> None:
        """Trust a key for an actor. An actor's key never changes: another one is refused."""
        known = self._keys.get(actor)
        if known is not None and known.key != key:
            raise SyncError(
                f"actor {actor!r} already has another key; two agents share one id, or one of them is forged"
            )
        if len(key) != 32:
            raise InvalidInputError(f"a public key has 32 bytes, not {len(key)}", field="key")
        self._keys[actor] = KeyEntry(key=key, agents=tuple(agents))

    def vouch(self, actor: str) -> None:
        """Believe an actor without signatures: a bank of one's own hive that does not sign."""
        self._vouched.add(actor)

    def expect(self, agent: str, key: bytes) -> None:
        """Trust a key for an agent before the name of its bank is known; bound to it by the first
        signature.
        """
        if len(key) != 32:
            raise InvalidInputError(f"a public key has 32 bytes, not {len(key)}", field="key")
        self._expected[agent] = key

    def __contains__(self, actor: str) -> bool:
        return actor in self._keys

    def fault(self, event: Event) -> Fault | None:
        """What is wrong with an event; None when it may be believed."""
        if event.actor in self._vouched:
            return None
        entry = self._keys.get(event.actor) or self._first_signed(event)
        if entry is None:
            claimed = event.body.get("agent") if event.kind == "remember" else None
            return "unknown actor" if self.required or claimed in self._expected else None
        if event.signature is None:
            return "unsigned"
        if not _verified(entry.key, canonical(event), event.signature):
            return "forged"
        agent = event.body.get("agent") if event.kind == "remember" else None
        if agent is not None and ANY not in entry.agents and agent not in entry.agents:
            return "not its agent"
        return None

    def _first_signed(self, event: Event) -> KeyEntry | None:
        """The key of an agent that is expected, if this event proves that the actor has it."""
        if event.signature is None:
            return None
        for agent, key in self._expected.items():
            if _verified(key, canonical(event), event.signature):
                self.add(event.actor, key, agents=(agent,))
                return self._keys[event.actor]
        return None

    def screen(
        self, events: Iterable[Event], *, forgotten: Callable[[str], bool]
    ) -> tuple[list[Event], list[Refused]]:
        """Part events into those to take and those refused.

        Args:
            events: As they arrived.
            forgotten: Whether a memory is known to be forgotten here.
        """
        taken: list[Event] = []
        doubtful: list[tuple[Event, Fault]] = []
        erased: set[str] = set()
        for event in events:
            fault = self.fault(event)
            if fault is None:
                taken.append(event)
                if event.kind == "forget":
                    erased.update(event.body.get("memories", ()))
            else:
                doubtful.append((event, fault))
        refused: list[Refused] = []
        for event, fault in doubtful:
            subjects = _subjects(event)
            if fault == "unsigned" and any(s in erased or forgotten(s) for s in subjects) and _bare(event):
                taken.append(event)
            else:
                refused.append(Refused(event=event.id, fault=fault))
        return taken, refused


def _subjects(event: Event) -> tuple[str, ...]:
    names = ("memory", "old", "new", "loser", "winner", "src", "dst")
    found = [event.body[name] for name in names if isinstance(event.body.get(name), str)]
    found += [name for name in event.body.get("used", ()) if isinstance(name, str)]
    return (event.id, *found) if event.kind == "remember" else tuple(found)


def _bare(event: Event) -> bool:
    """Whether an event carries no text of its own."""
    return not any(
        name in event.body for name in ("text", "title", "changes", "reason", "metadata", "source")
    )


def _verified(key: bytes, content: bytes, signature: bytes) -> bool:
    signing = _signing()
    from nacl.exceptions import CryptoError

    try:
        signing.VerifyKey(key).verify(content, signature)
    except (CryptoError, ValueError):
        return False
    return True


def _signing() -> ModuleType:
    try:
        from nacl import signing
    except ImportError as error:
        raise MissingExtraError("Signing events", "sign") from error
    return signing
