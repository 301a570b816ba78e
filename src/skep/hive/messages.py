"""Messages between members of a hive: one frozen type per thing that can be said, and the envelope around it.

Frames are tagged msgpack, so a receiver decodes them in one step and refuses anything else with a named error. The
envelope carries who sent it, where to answer, the trace it belongs to and the hives it has passed through. `Ask` and
`Slice` are a recall's question to a shard and its answer. Pure values; every module of the hive may use them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from skep.errors import SyncError
from skep.filters import Filter
from skep.model import Event, Link, Memory
from skep.replication.signatures import Fault
from skep.replication.version_vectors import Versions

PRIVATE = "\x1eprivate"
"""The name of an agent's private bank among the members; no member can be called so."""
ROW = np.dtype(
    [
        ("cosine", "<f4"),
        ("created_at", "<f8"),
        ("confidence", "<f8"),
        ("last_evidence_at", "<f8"),
        ("importance", "<f8"),
        ("content", "<i8"),
        ("scope", "<u8"),
        ("place", "<u8"),
        ("talk", "<u8"),
        ("kind", "u1"),
        ("admitted", "?"),
    ]
)
"""A candidate as it travels. The cosine is nan where there is no vector; `content` is equal where two memories say the
same; `scope`, `place` (user and project) and `talk` (with the session) are keys, 0 for none; `admitted` says whether
it passes the filter, which memories asked for by id or beside others need not."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recall's question to a shard."""

    terms: tuple[str, ...] = ()
    vector: bytes | None = None
    embedder: str | None = None
    """Vectors count only where this is the fingerprint of the shard's own."""
    where: Filter = Filter()
    k_words: int = 100
    k_vectors: int = 100
    vectors: int = 0
    """Send the vector of each candidate, of so many dimensions; 0 sends none."""
    counters: bool = False
    """Send uses, confirmations, last use and authors of each candidate."""
    former: int = 0
    """Send also the best so many by words and by meaning among what was replaced, and what is current in its place."""
    near: dict[int, tuple[float, ...]] = msgspec.field(default_factory=dict[int, tuple[float, ...]])
    """Instead of candidates: the `window` memories on either side of these moments, per scope."""
    window: int = 0
    only: tuple[str, ...] = ()
    """Instead of candidates: these very memories, whether the filter admits them or not."""
    missing: tuple[str, ...] = ()
    """Answer for what these members would have answered for, and for nothing else."""
    boosted: tuple[str, ...] = ()
    """Members that may send `boost` times as many candidates: their domain fits the query."""
    boost: int = 1


class Slice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A shard's answer: candidates with what is known of each, and the statistics of what the shard answers for."""

    ids: tuple[str, ...] = ()
    rows: bytes = b""
    """One `ROW` per candidate."""
    weights: bytes = b""
    """float32, candidates x terms: BM25 of each term without the rarity of the term, which only the asker knows.
    Lengths are compared with the mean of the member's own bank."""
    texts: tuple[str, ...] = ()
    """Title and text of each."""
    heirs: tuple[str, ...] = ()
    """The id of the memory in place of each, as far as the bank can follow; empty where it was not replaced."""
    vectors: bytes = b""
    counters: bytes = b""
    """float64, candidates x 3: uses, confirmations, last use."""
    agents: tuple[tuple[str, ...], ...] = ()
    """The authors of each, and of the memories it was derived from."""
    former: Slice | None = None
    """Replaced memories that match, and those of the shard that stand in their place."""
    whole: bool = False
    """True if the bank holds nothing else of the scopes asked for, so that these have no further neighbours there."""
    held: float = 0.0
    """The number of memories the shard answers for, estimated from the share of its candidates."""
    having: tuple[float, ...] = ()
    """Per term, how many of them hold it."""
    matched: int = 0
    """Memories that hold a term, before any were left out."""
    embedded: int = 0
    """Memories that have a vector, before any were left out."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Memories asked for by id, and the links that touch them."""

    memories: tuple[Memory, ...] = ()
    links: tuple[Link, ...] = ()


WIRE_VERSION = 1
"""Raised when a frame changes in a way an older reader would misread."""


class FactPromoted(msgspec.Struct, frozen=True, tag="FACT_PROMOTED", kw_only=True):
    """A memory reached the hive. The events are the original ones: same id, author and signature."""

    memory: str
    events: tuple[Event, ...]
    agent: str | None = None
    confidence: float = 0.0


class FactRetracted(msgspec.Struct, frozen=True, tag="FACT_RETRACTED", kw_only=True):
    """A memory was withdrawn (or, with `forgotten`, erased); every copy follows."""

    memory: str
    events: tuple[Event, ...]
    reason: str = ""
    forgotten: bool = False


class ShardQuery(msgspec.Struct, frozen=True, tag="SHARD_QUERY", kw_only=True):
    """Asks a member for its candidates for a query. Answered from its own bank, never forwarded."""

    ask: Ask


class ShardResponse(msgspec.Struct, frozen=True, tag="SHARD_RESPONSE", kw_only=True):
    """The answer of one member to a query: candidates with their raw signals, and its statistics."""

    slice: Slice


class ShardFetch(msgspec.Struct, frozen=True, tag="SHARD_FETCH", kw_only=True):
    """Send these memories, and on request the links that touch them or the events that made them."""

    ids: tuple[str, ...]
    links: bool = False
    events: bool = False
    named: tuple[str, ...] = ()
    """Single events, by id."""


class ShardFetched(msgspec.Struct, frozen=True, tag="SHARD_FETCHED", kw_only=True):
    """Memories, links and events that a member has of those asked for."""

    found: Fetched
    events: tuple[Event, ...] = ()
    paths: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """Which way each memory came to this member."""
    forgotten: tuple[str, ...] = ()
    """Those of the ids that were erased for good."""


class ShardFind(msgspec.Struct, frozen=True, tag="SHARD_FIND", kw_only=True):
    """List memories under a filter, newest first, from a row of yours on."""

    where: Filter
    limit: int
    before: int | None = None
    terms: tuple[str, ...] = ()


class ShardPage(msgspec.Struct, frozen=True, tag="SHARD_PAGE", kw_only=True):
    """Memories of a member under a filter, each with its row there."""

    found: tuple[tuple[int, Memory], ...] = ()


class MemberHello(msgspec.Struct, frozen=True, tag="MEMBER_HELLO", kw_only=True):
    """A member is here, joins or leaves, and this is the name its bank writes under. Members answer with their own."""

    member: str
    actor: str
    step: Literal["here", "joins", "leaves"] = "here"


class SeenRequest(msgspec.Struct, frozen=True, tag="SEEN_REQUEST", kw_only=True):
    """Asks a member which events it has seen."""


class Seen(msgspec.Struct, frozen=True, tag="SEEN", kw_only=True):
    """The events a member has seen."""

    seen: Versions


class RepairRequest(msgspec.Struct, frozen=True, tag="REPAIR_REQUEST", kw_only=True):
    """Asks a member for events that others should have and lack, at most `limit` at a time."""

    seen: dict[str, Versions]
    passed: Versions = Versions()
    """Events you have already looked at."""
    limit: int = 1000


class RepairEvents(msgspec.Struct, frozen=True, tag="REPAIR_EVENTS", kw_only=True):
    """Events that some members should have: each once, and per member the places of its own."""

    events: tuple[Event, ...] = ()
    wanted: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict[str, tuple[int, ...]])
    passed: Versions = Versions()
    """Events that were looked at by now."""
    left: int = 0


class BlastQuery(msgspec.Struct, frozen=True, tag="BLAST_QUERY", kw_only=True):
    """Asks a member for memories that a source wrote or confirmed, or that were derived from some memories."""

    source: str | None = None
    since: float | None = None
    origins: tuple[str, ...] = ()


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A memory that a rollback would touch."""

    id: str
    created_at: float
    text: str


class BlastAnswer(msgspec.Struct, frozen=True, tag="BLAST_ANSWER", kw_only=True):
    """Memories of one member that a source wrote, or that were derived."""

    memories: tuple[Touched, ...] = ()
    confirmations: tuple[str, ...] = ()
    """Events by which the source confirmed memories of others."""
    changes: tuple[str, ...] = ()
    """Events by which it changed memories of others: revisions, links, marks, newest first."""


class ExpiredQuery(msgspec.Struct, frozen=True, tag="EXPIRED_QUERY", kw_only=True):
    """Asks a member for memories whose time is over. Those named in `mark` are marked as expired."""

    now: float
    mark: tuple[str, ...] = ()


class ExpiredAnswer(msgspec.Struct, frozen=True, tag="EXPIRED_ANSWER", kw_only=True):
    """Expired memories of one member, or the events by which it marked them."""

    ids: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


class OutcomesQuery(msgspec.Struct, frozen=True, tag="OUTCOMES_QUERY", kw_only=True):
    """Asks a member for outcomes; with a memory, for those in which it was used."""

    memory: str | None = None


class OutcomesAnswer(msgspec.Struct, frozen=True, tag="OUTCOMES_ANSWER", kw_only=True):
    """The outcomes one member knows of, and everything it knows to be undone."""

    events: tuple[Event, ...] = ()
    undos: tuple[Event, ...] = ()


class StatusQuery(msgspec.Struct, frozen=True, tag="STATUS_QUERY", kw_only=True):
    """Asks a member for counts of the memories that it answers for; with `missing`, of those of silent members."""

    missing: tuple[str, ...] = ()


class StatusAnswer(msgspec.Struct, frozen=True, tag="STATUS_ANSWER", kw_only=True, omit_defaults=True):
    """The figures of one member; copies that others answer for are not counted."""

    by_status: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    by_kind: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    links: int = 0
    """Links that start at what is counted."""
    trials: int = 0
    """The number of times procedures were tried."""
    quarantined: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The kind of each memory that waits for review here; they stay with whoever took them in, and are not
    among those counted."""
    held: int = 0
    reembedding: int = 0
    size_bytes: int = 0
    index_bytes: int = 0
    embed_error: str | None = None
    seen: Versions = Versions()


class ShardStore(msgspec.Struct, frozen=True, tag="SHARD_STORE", kw_only=True):
    """Keep these events; you are one of their owners."""

    events: tuple[Event, ...]


class FactsChanged(msgspec.Struct, frozen=True, tag="FACTS_CHANGED", kw_only=True):
    """Events about memories that others may hold a copy of: revisions, confirmations, marks, links."""

    events: tuple[Event, ...]


class ShardUsed(msgspec.Struct, frozen=True, tag="SHARD_USED", kw_only=True):
    """These memories of yours were handed out."""

    ids: tuple[str, ...]


class ShardStored(msgspec.Struct, frozen=True, tag="SHARD_STORED", kw_only=True):
    """The answer to a store: what was new, and what is held back."""

    applied: int
    refused: dict[str, Fault] = msgspec.field(default_factory=dict[str, Fault])
    """Events that were not believed, and why."""
    held: tuple[str, ...] = ()
    """Events that wait for their time to come."""


class GossipRequest(msgspec.Struct, frozen=True, tag="GOSSIP_REQUEST", kw_only=True):
    """Before I tell you anything: what do you know?"""

    hive: str
    """The hive that asks."""
    current: bool = False
    """Say instead which memories a recall could return; to see how far all agree."""


class GossipDigest(msgspec.Struct, frozen=True, tag="GOSSIP_DIGEST", kw_only=True):
    """The events of a peer, or what it could answer with."""

    hive: str
    seen: Versions | None = None
    current: bytes | None = None
    """What a recall could return, as int64 hashes of the contents: one for memories that say the same."""


class GossipEvents(msgspec.Struct, frozen=True, tag="GOSSIP", kw_only=True):
    """One gossip message: the most valuable of what you lack, then a batch of the rest."""

    hive: str
    events: tuple[Event, ...] = ()


class GossipHeard(msgspec.Struct, frozen=True, tag="GOSSIP_HEARD", kw_only=True):
    """The result of a gossip message."""

    hive: str
    applied: int = 0
    refused: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Events that were not believed or not wanted, and why."""
    held: tuple[str, ...] = ()
    """Events that wait for their time to come."""


class SyncRequest(msgspec.Struct, frozen=True, tag="SYNC_REQUEST", kw_only=True):
    """Send me what I lack, at most `limit` events at a time; I have seen this."""

    seen: Versions
    limit: int = 1000


class SyncEvents(msgspec.Struct, frozen=True, tag="SYNC_EVENTS", kw_only=True):
    """Events the asker lacked, what the answerer has seen, and how many are still to come."""

    events: tuple[Event, ...]
    seen: Versions
    left: int = 0


class AgentOnline(msgspec.Struct, frozen=True, tag="AGENT_ONLINE", kw_only=True):
    """An agent has joined."""

    agent: str
    domains: tuple[str, ...] = ()
    key: bytes | None = None


class AgentReady(msgspec.Struct, frozen=True, tag="AGENT_READY", kw_only=True):
    """An agent has learnt all it was fed and can be asked."""

    agent: str
    learnt: int = 0


class AgentProgress(msgspec.Struct, frozen=True, tag="AGENT_PROGRESS", kw_only=True):
    """The progress of an agent."""

    agent: str
    done: int
    total: int | None = None


class AgentShutdown(msgspec.Struct, frozen=True, tag="AGENT_SHUTDOWN", kw_only=True):
    """An agent leaves; its shards move to the next owners."""

    agent: str
    reason: str = ""


class LearnContent(msgspec.Struct, frozen=True, tag="LEARN_CONTENT", kw_only=True):
    """Something to learn."""

    text: str
    source: str | None = None
    domain: str | None = None
    confidence: float = 0.8


class FeedComplete(msgspec.Struct, frozen=True, tag="FEED_COMPLETE", kw_only=True):
    """Nothing more will come; per agent, how many LEARN_CONTENT frames it was sent."""

    expected: dict[str, int]


class Query(msgspec.Struct, frozen=True, tag="QUERY", kw_only=True):
    """A question to an agent, answered through whatever hive it belongs to."""

    query: str
    limit: int = 5


class QueryResponse(msgspec.Struct, frozen=True, tag="QUERY_RESPONSE", kw_only=True):
    """An agent's answer: ids and texts, best first, and how much of the hive was heard."""

    agent: str
    hits: tuple[tuple[str, str], ...] = ()
    completeness: float = 1.0


class Told(msgspec.Struct, frozen=True, tag="TOLD", kw_only=True):
    """An event of a type of one's own; skep carries it and does nothing else with it."""

    name: str
    data: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class Failed(msgspec.Struct, frozen=True, tag="FAILED", kw_only=True):
    """The answer of a handler that could not answer."""

    error: str


Frame = (
    FactPromoted
    | FactRetracted
    | FactsChanged
    | ShardQuery
    | ShardResponse
    | ShardFetch
    | ShardFetched
    | ShardStore
    | ShardStored
    | ShardUsed
    | ShardFind
    | ShardPage
    | MemberHello
    | SeenRequest
    | Seen
    | RepairRequest
    | RepairEvents
    | BlastQuery
    | BlastAnswer
    | ExpiredQuery
    | ExpiredAnswer
    | OutcomesQuery
    | OutcomesAnswer
    | StatusQuery
    | StatusAnswer
    | GossipRequest
    | GossipDigest
    | GossipEvents
    | GossipHeard
    | SyncRequest
    | SyncEvents
    | AgentOnline
    | AgentReady
    | AgentProgress
    | AgentShutdown
    | LearnContent
    | FeedComplete
    | Query
    | QueryResponse
    | Told
    | Failed
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frame on its way."""

    subject: str
    frame: Frame
    id: str = ""
    """Equal ids are one message: a stream stores it once."""
    sender: str = ""
    trace: str = ""
    reply_to: str = ""
    path: tuple[str, ...] = ()
    """The hives and relays it has passed through, first to last."""
    sent_at: float = 0.0
    version: int = WIRE_VERSION


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Envelope] = msgspec.msgpack.Decoder(Envelope)


def name_of(frame: Frame) -> str:
    """The frame's name in the vocabulary, e.g. FACT_PROMOTED."""
    return str(type(frame).__struct_config__.tag)


def encode(envelope: Envelope) -> bytes:
    """The bytes of a message."""
    return _ENCODER.encode(envelope)


def decode(data: bytes) -> Envelope:
    """Read a message; anything that is not one is a `SyncError`."""
    try:
        envelope = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise SyncError(f"not a frame this skep knows: {error}; is the sender a newer version?") from error
    if envelope.version > WIRE_VERSION:
        raise SyncError(f"the frame has wire version {envelope.version}; update skep to read it")
    return envelope
