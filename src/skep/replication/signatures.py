"""Signatures: proof of who wrote an event, checked wherever it arrives.

An event is signed over its canonical bytes (actor, counter, stamp, kind and body), by the agent that acts. A
keyring says which keys belong to which actor and which agents each may write for. Text that was forgotten
is gone from its events, and with it the signature; such an event is accepted only where the `forget` that
erased it is known and signed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from skep.errors import InvalidInputError, MissingExtraError, SyncError
from skep.events import subjects_of
from skep.model import ANY, Event

if TYPE_CHECKING:
    from nacl.signing import SigningKey


Fault = Literal[
    "forged",
    "unsigned",
    "unknown actor",
    "not its agent",
    "not its register",
    "retired key",
    "not trusted",
    "not wanted",
    "not its to change",
]
REGISTERS = ("trust/", "rights/", "hive/", "actor/")
"""Settings that belong to a hive and not to whoever writes them."""
CHANGES = ("revise", "retract", "restore", "forget", "mark", "supersede", "merge", "undo")
"""Events that a bank without a key may not write about memories of one that has a key."""
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
        return self.sign_bytes(canonical(event))

    def sign_bytes(self, content: bytes) -> bytes:
        """The signature of anything else."""
        return self._key.sign(content).signature

    def signed(self, event: Event) -> Event:
        """The event with its signature."""
        return msgspec.structs.replace(event, signature=self.sign(event))


_acting: ContextVar[str | None] = ContextVar("skep_acting", default=None)


@contextmanager
def acting(agent: str) -> Generator[None]:
    """Whatever is written inside is the doing of this agent, and signed by it."""
    token = _acting.set(agent)
    try:
        yield
    finally:
        _acting.reset(token)


def who_acts() -> str | None:
    """The agent whose doing it is; None where nobody in particular acts."""
    return _acting.get()


class Signers:
    """The keys of the agents that share one bank: each event is signed by the agent it is the doing of."""

    def __init__(self, signers: Mapping[str, Signer], own: Signer | None = None) -> None:
        self._signers = dict(signers)
        self._own = own

    def sign(self, event: Event) -> bytes | None:
        """The signature of whoever acts; of the bank itself where nobody in particular does."""
        agent = author_of(event) or _acting.get()
        if agent is None:
            signer = self._own or next(iter(self._signers.values()), None)
        else:
            signer = self._signers.get(agent, self._own)
        return None if signer is None else signer.sign(event)


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One key of an actor: the agents it speaks for (`*` for all) and the events it may have signed."""

    key: bytes
    agents: tuple[str, ...]
    registers: bool = True
    """True if it may write the hive's registers, such as trust."""
    since: int = 1
    until: int | None = None
    """The last event it may have signed; None while it is in force."""

    def speaks_for(self, agent: str | None) -> bool:
        """True if it may sign in the name of an agent."""
        return agent is None or ANY in self.agents or agent in self.agents

    def covers(self, counter: int) -> bool:
        """True if it was in force for an event."""
        return self.since <= counter and (self.until is None or counter <= self.until)


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was not taken, and why."""

    event: str
    fault: Fault


class Keyring:
    """The keys one trusts. `required` refuses actors whose key is not known.

    An actor is a bank. A bank that several agents share has one key per agent. Whoever has a key is
    protected: nobody else may write in that agent's name, nor change what that bank wrote, without a key.
    """

    def __init__(self, *, required: bool = False) -> None:
        self.required = required
        self._keys: dict[str, list[KeyEntry]] = {}
        self._expected: dict[str, bytes] = {}
        self._before: dict[str, tuple[tuple[bytes, int], ...]] = {}
        self._vouched: dict[str, frozenset[str]] = {}

    # Whose keys

    def add(
        self, actor: str, key: bytes, *, agents: Iterable[str] = (ANY,), registers: bool | None = None
    ) -> None:
        """Trust a key for an actor, for all or some of its agents; another key for the same is refused.

        Args:
            actor: The name under which a bank writes.
            key: The public key (32 bytes).
            agents: Whom it speaks for; `*` for everybody.
            registers: Whether it may write trust and other registers; by default if it speaks for everybody.
        """
        _checked(key)
        listed = tuple(agents)
        known = self._keys.setdefault(actor, [])
        for entry in known:
            overlap = ANY in entry.agents or ANY in listed or set(entry.agents) & set(listed)
            if entry.until is None and overlap and entry.key != key:
                raise SyncError(
                    f"actor {actor!r} already has another key; two agents share one id, or one of them is "
                    "forged (a new key in place of an old one is announced with `rotate`)"
                )
        allowed = ANY in listed if registers is None else registers
        since = 1
        earlier = self._before.get(listed[0], ()) if len(listed) == 1 else ()
        for old, until in earlier:
            _put(known, KeyEntry(key=old, agents=listed, registers=allowed, since=since, until=until))
            since = until + 1
        _put(known, KeyEntry(key=key, agents=listed, registers=allowed, since=since))

    def rotate(self, actor: str, key: bytes, *, after: int, agents: Iterable[str] | None = None) -> None:
        """Put a new key in force from the event after number `after`; the old one stays good for the rest.

        What the old key signs beyond that is refused, so a key that was stolen is worth nothing any more.

        Args:
            actor: The bank whose key changes.
            key: The new public key.
            after: The number of the last event the old key signed (see `skep sync versions`).
            agents: The agents whose key changes, where a bank has several; by default all of them.
        """
        _checked(key)
        wanted = None if agents is None else set(agents)
        old = [
            entry
            for entry in self._keys.get(actor, ())
            if entry.until is None and (wanted is None or wanted & set(entry.agents))
        ]
        if not old:
            raise SyncError(f"actor {actor!r} has no key that could be replaced; add one first")
        for entry in old:
            self._keys[actor].remove(entry)
            self._keys[actor].append(msgspec.structs.replace(entry, until=after))
            self._keys[actor].append(msgspec.structs.replace(entry, key=key, since=after + 1))
            for agent in entry.agents:
                if self._expected.get(agent) == entry.key:
                    self._expected[agent] = key

    def vouch(self, actor: str, agents: Iterable[str] = (ANY,)) -> None:
        """Believe an actor of one's own hive without signatures, as far as the hive itself brings its events."""
        self._vouched[actor] = self._vouched.get(actor, frozenset()) | frozenset(agents)

    def expect(self, agent: str, key: bytes, *, before: Iterable[tuple[bytes, int]] = ()) -> None:
        """Trust a key for an agent before the name of its bank is known; bound to it by the first
        signature.

        Args:
            agent: Whose key it is.
            key: The public key.
            before: Keys it had earlier, oldest first, each with the number of the last event it signed.
        """
        self._expected[agent] = _checked(key)
        self._before[agent] = tuple((_checked(old), until) for old, until in before)

    def __contains__(self, actor: str) -> bool:
        return bool(self._keys.get(actor))

    def keys_of(self, actor: str) -> list[KeyEntry]:
        """The keys that are in force for an actor."""
        return [entry for entry in self._keys.get(actor, ()) if entry.until is None]

    def vouched_for(self, actor: str) -> frozenset[str]:
        """The agents an actor is believed for without signatures."""
        return self._vouched.get(actor, frozenset())

    def protects(self, agent: str | None) -> bool:
        """True if an agent has a key, so that whatever is written in its name must be signed."""
        return agent is not None and (
            agent in self._expected
            or any(agent in entry.agents for entries in self._keys.values() for entry in entries)
        )

    # Judging events

    def fault(self, event: Event, *, inside: bool = False) -> Fault | None:
        """The fault of an event; None when it may be believed.

        Args:
            event: As it arrived.
            inside: Whether it came from a member of the same hive, so that vouching counts.
        """
        agent = author_of(event)
        if event.signature is None and event.actor in self._vouched:
            if not inside:
                return "unsigned"
            if agent is None or {agent, ANY} & self._vouched[event.actor]:
                return None
        entries = self._keys.get(event.actor) or self._first_signed(event)
        if not entries:
            return self._stranger(event, agent)
        if event.signature is None:
            return "unsigned"
        content = canonical(event)
        signed = [entry for entry in entries if verified(entry.key, content, event.signature)]
        if not signed:
            return "forged"
        in_force = [entry for entry in signed if entry.covers(event.counter)]
        if not in_force:
            return "retired key"
        if not any(entry.speaks_for(agent) for entry in in_force):
            return "not its agent"
        if is_register(event) and not any(entry.registers for entry in in_force):
            return "not its register"
        return None

    def _stranger(self, event: Event, agent: str | None) -> Fault | None:
        """A bank nobody knows may speak for itself, unless keys are required."""
        if self.required or is_register(event) or self.protects(agent):
            return "unknown actor"
        if event.kind in CHANGES and any(name.rpartition("-")[0] in self for name in subjects_of(event)):
            return "unknown actor"
        return None

    def _first_signed(self, event: Event) -> list[KeyEntry]:
        """The key of an agent that is expected, if this event proves that the actor has it."""
        if event.signature is None:
            return []
        content = canonical(event)
        for agent, key in self._expected.items():
            keys = (key, *(old for old, _ in self._before.get(agent, ())))
            if any(verified(one, content, event.signature) for one in keys):
                self.add(event.actor, key, agents=(agent,))
                break
        return self._keys.get(event.actor, [])

    def screen(
        self, events: Iterable[Event], *, forgotten: Callable[[str], bool], inside: bool = False
    ) -> tuple[list[Event], list[Refused]]:
        """Part events into those to take and those refused.

        Args:
            events: As they arrived.
            forgotten: Whether a memory is known to be forgotten here.
            inside: Whether they came from a member of the same hive.
        """
        taken: list[Event] = []
        doubtful: list[tuple[Event, Fault]] = []
        erased: set[str] = set()
        for event in events:
            fault = self.fault(event, inside=inside)
            if fault is None:
                taken.append(event)
                if event.kind == "forget":
                    erased.update(event.body.get("memories", ()))
            else:
                doubtful.append((event, fault))
        refused: list[Refused] = []
        for event, fault in doubtful:
            if fault == "unsigned" and _bare(event) and _all(subjects_of(event), erased, forgotten):
                taken.append(event)
            else:
                refused.append(Refused(event=event.id, fault=fault))
        return taken, refused


def _all(subjects: Sequence[str], erased: Container[str], forgotten: Callable[[str], bool]) -> bool:
    """True if an event speaks of nothing but forgotten memories; else it could change one that is alive."""
    return bool(subjects) and all(name in erased or forgotten(name) for name in subjects)


def author_of(event: Event) -> str | None:
    """The agent in whose name an event speaks; None where it names none."""
    named = event.body.get("agent" if event.kind in ("remember", "dispute") else "by")
    return named if isinstance(named, str) else None


def is_register(event: Event) -> bool:
    """True if an event writes a register of a hive: trust, layout, members."""
    return event.kind == "setting" and str(event.body.get("key", "")).startswith(REGISTERS)


def _put(entries: list[KeyEntry], entry: KeyEntry) -> None:
    if entry not in entries:
        entries.append(entry)


def _checked(key: bytes) -> bytes:
    if len(key) != 32:
        raise InvalidInputError(f"a public key has 32 bytes, not {len(key)}", field="key")
    return key


def _bare(event: Event) -> bool:
    """True if an event carries no text of its own."""
    return not any(
        name in event.body for name in ("text", "title", "changes", "reason", "metadata", "source")
    )


def verified(key: bytes, content: bytes, signature: bytes) -> bool:
    """True if whoever has the private half of a key signed this."""
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
