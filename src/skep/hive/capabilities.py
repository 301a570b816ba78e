"""Capabilities: what a process may do on a bus, proved by a signed token.

An `Issuer` signs a token that names who may speak, in which hive and scope, what they may do, how much work they may
ask for, until when, and the public key of the holder. A process shows its token once: the others check it with their
`Pass` and agree on a key with it (X25519). Each frame then bears a keyed hash for each process that is present, so no
signature is checked per frame. Frames are numbered, so one that was recorded is not taken again.

`network` seals and opens with a `Pass`. What is not allowed is refused with the reason.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import importlib
import secrets
import threading
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Literal, cast, get_args

import msgspec

from skep.clock import Now, system_now
from skep.errors import InvalidInputError, SyncError
from skep.hive import messages as said
from skep.hive.bus.bus import safe_part
from skep.hive.messages import Envelope, Frame, decode, encode
from skep.model import Scope
from skep.replication.signatures import Signer, verified

Operation = Literal["recall", "answer", "write", "forget", "join"]
"""Asking; answering others' questions; sending events; erasing; joining and leaving."""
_TOKEN = b"skep-capability-1\n"
_HELLO = b"skep-introduction-1\n"
TAG = 16
"""Bytes of the keyed hash."""
WINDOW = 4096
"""Frames of one process that may overtake each other."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a token allows."""

    hive: str
    actors: tuple[str, ...]
    """The members that the holder may speak for."""
    holder: bytes
    """The holder's public key."""
    operations: tuple[Operation, ...]
    scope: Scope | None = None
    """Only memories of this scope may be asked for and written; None for all."""
    spend: int | None = None
    """Frames that the members of the hive answer or take, all together; None for any number."""
    expires: float
    nonce: bytes
    """Drawn for each token: what was spent is counted under it, and a revoked token is named by it."""


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """How a process shows its token: with a key for this run, signed by the holder."""

    token: bytes
    process: str
    key: bytes
    signature: bytes


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """A message on the way: who sent it, its number, a keyed hash per receiver, and what it says."""

    process: str
    number: int
    tags: dict[str, bytes]
    data: bytes


class RefusedError(SyncError):
    """A frame that its sender may not send; `envelope` is what it said, if its sender is known."""

    def __init__(self, reason: str, envelope: Envelope | None = None) -> None:
        self.reason = reason
        self.envelope = envelope
        super().__init__(f"refused: {reason}")


class Issuer:
    """Signs tokens. Its seed is the hive's secret; its public key is in every manifest."""

    def __init__(self, seed: bytes, *, now: Now = system_now) -> None:
        self._key = Signer(seed)
        self._now = now

    @property
    def public(self) -> bytes:
        """The key that tokens are checked with."""
        return self._key.public

    def grant(
        self,
        hive: str,
        actors: Iterable[str],
        holder: bytes,
        *,
        operations: Iterable[str] = ("recall", "answer", "write"),
        scope: Scope | None = None,
        spend: int | None = None,
        hours: float = 24.0,
    ) -> str:
        """A token.

        Args:
            hive: The name of the hive.
            actors: The members the holder may speak for.
            holder: The holder's public key, 32 bytes.
            operations: What it may do: recall, answer, write, forget, join.
            scope: The scope of the memories it may ask for and write; all of them unless given.
            spend: The number of frames that all members together do something about; any number unless given.
            hours: How long it is good.
        """
        allowed = tuple(operations)
        for one in allowed:
            if one not in get_args(Operation):
                known = ", ".join(get_args(Operation))
                raise InvalidInputError(f"{one!r} is no operation; there are {known}", field="operations")
        if len(holder) != 32:
            raise InvalidInputError(f"a public key has 32 bytes, not {len(holder)}", field="holder")
        if not hours > 0 or (spend is not None and spend < 1):
            raise InvalidInputError("hours and spend must be more than nothing", field="spend")
        grant = Grant(
            hive=hive,
            actors=tuple(actors),
            holder=holder,
            operations=cast("tuple[Operation, ...]", allowed),
            scope=scope,
            spend=spend,
            expires=self._now() + hours * 3600,
            nonce=secrets.token_bytes(16),
        )
        body = msgspec.msgpack.encode(grant)
        signature = self._key.sign_bytes(_TOKEN + body)
        return base64.urlsafe_b64encode(signature + body).decode()


def read_token(token: bytes, issuer: bytes) -> Grant:
    """What a token allows, if the issuer signed it."""
    try:
        raw = base64.urlsafe_b64decode(token)
        if verified(issuer, _TOKEN + raw[64:], raw[:64]):
            return msgspec.msgpack.decode(raw[64:], type=Grant)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        pass
    raise RefusedError("the token was not signed by the issuer of this hive")


class _Peer:
    """Another process: what it may do, the key shared with it, and which of its frames came."""

    def __init__(self, grant: Grant, key: bytes) -> None:
        self.grant = grant
        self.key = key
        self.newest: dict[str, int] = {}
        self.heard: dict[str, set[int]] = {}

    def is_new(self, pattern: str, number: int) -> bool:
        """True the first time that a subscription hears a frame."""
        newest, heard = self.newest.get(pattern, 0), self.heard.setdefault(pattern, set())
        if number <= newest - WINDOW or number in heard:
            return False
        heard.add(number)
        if number > newest:
            self.newest[pattern] = number
            if len(heard) > 2 * WINDOW:
                self.heard[pattern] = {one for one in heard if one > number - WINDOW}
        return True


class Pass:
    """One process's token, what it knows of the others', and what they have spent."""

    def __init__(
        self,
        issuer: bytes,
        seed: bytes,
        token: str,
        *,
        revoked: Iterable[bytes] = (),
        now: Now = system_now,
    ) -> None:
        """Take up a token.

        Args:
            issuer: The public key of the hive's issuer.
            seed: The holder's secret, 32 bytes.
            token: The token, as `Issuer.grant` gave it.
            revoked: Nonces of tokens that count no more.
            now: The clock.
        """
        self._issuer = issuer
        self._now = now
        self._holder = Signer(seed)
        self._token = token.encode()
        self.grant = read_token(self._token, issuer)
        if self.grant.holder != self._holder.public:
            raise RefusedError("the token belongs to another key than this seed")
        self._revoked = frozenset(revoked)
        self._secret = secrets.token_bytes(32)
        self._bindings: Any = importlib.import_module("nacl.bindings")
        self._public: bytes = self._bindings.crypto_scalarmult_base(self._secret)
        self._process = ""
        self._number = 0
        self._lock = threading.Lock()
        self._peers: dict[str, _Peer] = {}
        self._shown: dict[str, bytes] = {}
        self.spent: dict[bytes, dict[str, int]] = {}
        """Per token, the frames that each process has done something about."""

    # Introductions

    def introduction(self, process: str) -> bytes:
        """How this process introduces itself."""
        if process != self._process:
            self._process = process
            self._peers[process] = _Peer(
                self.grant, secrets.token_bytes(32)
            )  # its own frames come back to it
        signed = _HELLO + process.encode() + b"\n" + self._public + self._token
        hello = Introduction(
            token=self._token,
            process=process,
            key=self._public,
            signature=self._holder.sign_bytes(signed),
        )
        return msgspec.msgpack.encode(hello)

    def meet(self, process: str, introduction: bytes, spent: Mapping[bytes, int]) -> None:
        """Learn who another process is; its signatures are checked once. Raises what is wrong with it."""
        if self._shown.get(process) != introduction:
            self._peers.pop(process, None)
            self._shown[process] = introduction
            self._peers[process] = self._checked(process, introduction)
        if process in self._peers:
            for nonce, count in spent.items():
                known = self.spent.setdefault(nonce, {})
                known[process] = max(known.get(process, 0), count)

    def _checked(self, process: str, introduction: bytes) -> _Peer:
        try:
            hello = msgspec.msgpack.decode(introduction, type=Introduction)
        except msgspec.DecodeError:
            raise RefusedError(f"process {process} shows no token") from None
        grant = read_token(hello.token, self._issuer)
        signed = _HELLO + process.encode() + b"\n" + hello.key + hello.token
        if not verified(grant.holder, signed, hello.signature):
            raise RefusedError("the token was shown by somebody who does not hold it")
        if hello.process != process:
            raise RefusedError("the introduction is that of another process")
        shared = self._bindings.crypto_scalarmult(self._secret, hello.key)
        ends = "\n".join(sorted((self._process, process))).encode()
        return _Peer(grant, blake2b(ends, key=shared, digest_size=32).digest())

    def gone(self, process: str) -> None:
        """Forget a process that left."""
        self._peers.pop(process, None)
        self._shown.pop(process, None)

    def told_spent(self) -> dict[bytes, int]:
        """What this process has done something about, per token, for the heartbeat."""
        return {
            nonce: counts[self._process] for nonce, counts in self.spent.items() if self._process in counts
        }

    # Frames

    def seal(self, envelope: Envelope) -> bytes:
        """The bytes to send: with a keyed hash for every process that is known."""
        with self._lock:
            self._number += 1
            number = self._number
        reader = _reader_of(envelope.subject)
        if reader in self._peers:
            envelope = _within(envelope, self._peers[reader].grant.scope)
        data = encode(envelope)
        peers = list(self._peers.items()) if reader is None else [(reader, self._peers.get(reader))]
        tags = {
            process: _tag(peer.key, self._process, number, data)
            for process, peer in peers
            if peer is not None
        }
        return msgspec.msgpack.encode(Sealed(self._process, number, tags, data))

    def open(self, data: bytes, pattern: str) -> Envelope:
        """What a message says, if its sender may say it; else `RefusedError`."""
        try:
            sealed = msgspec.msgpack.decode(data, type=Sealed)
        except msgspec.DecodeError:
            raise RefusedError("it bears no seal; the sender has no token") from None
        peer = self._peers.get(sealed.process)
        if peer is None:
            raise RefusedError(f"process {sealed.process} has not shown a token that counts")
        expected = _tag(peer.key, sealed.process, sealed.number, sealed.data)
        if not hmac.compare_digest(expected, sealed.tags.get(self._process, b"")):
            raise RefusedError(f"the seal of process {sealed.process} is wrong")
        if not peer.is_new(pattern, sealed.number):
            raise RefusedError(
                f"frame {sealed.number} of process {sealed.process} came before; it was replayed"
            )
        envelope = decode(sealed.data)
        reason = self._fault(peer.grant, envelope)
        if reason:
            raise RefusedError(reason, envelope)
        if _reader_of(envelope.subject) is None:  # work for somebody else, not an answer to us
            counts = self.spent.setdefault(peer.grant.nonce, {})
            counts[self._process] = counts.get(self._process, 0) + 1
        return envelope

    def _fault(self, grant: Grant, envelope: Envelope) -> str:
        """The reason why a token does not allow a frame; empty if it does."""
        who = ", ".join(grant.actors)
        if grant.nonce in self._revoked:
            return f"the token of {who} was revoked"
        if self._now() > grant.expires:
            return f"the token of {who} has expired; ask the issuer for another"
        if envelope.sender not in (*grant.actors, grant.hive):
            return f"the token speaks for {who}, not for {envelope.sender}"
        if not envelope.subject.startswith(("_INBOX.", f"hive.{safe_part(grant.hive)}.")):
            return f"the token is for hive {grant.hive}, not for {envelope.subject}"
        operation = operation_of(envelope)
        if operation not in grant.operations:
            return f"the token of {who} does not allow {operation!r}; it allows {', '.join(grant.operations)}"
        if grant.scope is not None and (beyond := _beyond(envelope.frame, grant.scope)):
            return f"the token of {who} is for another scope than {beyond}"
        spent = sum(self.spent.get(grant.nonce, {}).values())
        if grant.spend is not None and operation != "answer" and spent >= grant.spend:
            return f"the token of {who} has spent its {grant.spend} frames"
        return ""


def operation_of(envelope: Envelope) -> Operation:
    """The operation that a frame is."""
    frame = envelope.frame
    if envelope.subject.startswith("_INBOX."):
        return "answer"
    if isinstance(frame, said.MemberHello):
        return "recall" if frame.step == "here" else "join"
    if isinstance(frame, said.FactRetracted) and frame.forgotten:
        return "forget"
    carrying = (said.ShardStore, said.FactPromoted, said.FactRetracted, said.FactsChanged, said.GossipEvents)
    if isinstance(frame, carrying):
        return "forget" if any(event.kind == "forget" for event in frame.events) else "write"
    if isinstance(frame, said.ShardUsed | said.LearnContent | said.FeedComplete):
        return "write"
    return "write" if isinstance(frame, said.ExpiredQuery) and frame.mark else "recall"


def _beyond(frame: Frame, scope: Scope) -> str:
    """What of a frame lies outside a scope; empty if nothing does."""
    match frame:
        case said.ShardQuery():
            asked = frame.ask.where.scope
        case said.ShardFind():
            asked = frame.where.scope
        case said.ShardFetch() | said.MemberHello() | said.ShardUsed() | said.SeenRequest():
            return ""  # what is fetched is looked through on its way back
        case said.ShardStore() | said.FactPromoted() | said.FactsChanged():
            for event in frame.events:
                given = event.body.get("scope") if event.kind == "remember" else None
                if event.kind == "remember" and not scope.admits(msgspec.convert(given or {}, Scope)):
                    return f"that of {event.id}"
            return ""
        case _:
            return f"a {said.name_of(frame)}, which is about everything"
    return "" if asked is not None and scope.admits(asked) else f"{asked or 'none, which asks for all'}"


def _within(envelope: Envelope, scope: Scope | None) -> Envelope:
    """An answer without what lies outside the asker's scope."""
    frame = envelope.frame
    if scope is None or not isinstance(frame, said.ShardFetched):
        return envelope
    kept = tuple(m for m in frame.found.memories if scope.admits(m.scope) or m.scope.shared)
    ids = {memory.id for memory in kept}
    found = said.Fetched(
        memories=kept, links=tuple(link for link in frame.found.links if {link.src, link.dst} <= ids)
    )
    frame = msgspec.structs.replace(frame, found=found, events=())
    return msgspec.structs.replace(envelope, frame=frame)


def _reader_of(subject: str) -> str | None:
    """The process whose inbox a subject is; None for any other subject."""
    return subject.split(".")[1] if subject.startswith("_INBOX.") else None


def _tag(key: bytes, process: str, number: int, data: bytes) -> bytes:
    head = f"{process}\n{number}\n".encode()
    return blake2b(head + data, key=key, digest_size=TAG).digest()
