"""What a recall asks of a shelf, and what the shelf answers: raw signals and statistics, never scores.

Scores of different banks cannot be compared: each knows only its own word counts. So a shelf sends, per
candidate, how often each query term occurs, the length, the cosine and the stored priors, and for itself
how many memories and terms it holds; the asker adds the counts up and scores everything at once, exactly as
one bank holding all of it would. Columns are little-endian bytes, so that answers of many shelves are
joined without a loop.
"""

from __future__ import annotations

import msgspec

from skep.model import Link, Memory
from skep.storage.base import Filter

PRIVATE = "\x1eprivate"
"""The name of an agent's own shelf among those of the members; no member can be called so."""
Moment = tuple[float, int]
"""When a memory was made, and its place among those of its writer."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a shelf."""

    terms: tuple[str, ...] = ()
    vector: bytes | None = None
    embedder: str | None = None
    """Vectors count only where this is the shelf's own fingerprint."""
    where: Filter = Filter()
    k_words: int = 100
    k_vectors: int = 100
    texts: bool = False
    vectors: bool = False
    counters: bool = False
    near: dict[str, tuple[Moment, ...]] = msgspec.field(default_factory=dict[str, tuple[Moment, ...]])
    """Instead of candidates: the `window` neighbours on either side of these moments, per conversation."""
    window: int = 0
    former: int = 0
    """Send also the best so many by words and by meaning among what was replaced, and what is current in its place."""
    only: tuple[str, ...] = ()
    """Instead of candidates: these very memories, whether the filter admits them or not."""
    missing: tuple[str, ...] = ()
    """Answer for what these members would have answered for, and for nothing else."""
    boosted: tuple[str, ...] = ()
    """Members that may send `boost` times as many candidates: their domain fits the query."""
    boost: int = 1


class Slice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one shelf holds for a question; one entry per candidate in every column."""

    ids: tuple[str, ...] = ()
    counts: bytes = b""
    """uint16, candidates x terms: how often each term occurs."""
    length: bytes = b""
    """uint32: how many terms the memory has."""
    cosine: bytes = b""
    """float32; nan where there is no vector."""
    content: bytes = b""
    """int64: equal where two memories say the same."""
    created_at: bytes = b""
    confidence: bytes = b""
    last_evidence_at: bytes = b""
    importance: bytes = b""
    keys: tuple[str, ...] = ()
    """The conversation each belongs to; empty where it belongs to none."""
    voices: tuple[str, ...] = ()
    """The kind of each; neighbours are of one kind, whoever wrote them."""
    authors: tuple[str, ...] = ()
    """The agent that wrote each; empty where none is named."""
    admitted: bytes = b""
    """uint8: whether it passes the filter; candidates all do."""
    heirs: tuple[str, ...] = ()
    """What was put in the place of each, as far as the shelf's bank can follow; empty where it was not replaced."""
    texts: tuple[str, ...] = ()
    vectors: bytes = b""
    uses: bytes = b""
    confirmations: bytes = b""
    last_used_at: bytes = b""
    agents: tuple[tuple[str, ...], ...] = ()
    """Who wrote each, and who wrote what it was derived from."""
    former: Slice | None = None
    """What was replaced and matches, and what the shelf has of that in its place."""
    whole: bool = False
    """Whether this is all the shelf has of the scopes asked for, so that it has no further neighbours."""
    held: int = 0
    """How many memories the shelf answers for."""
    terms: int = 0
    """How many terms those have together."""
    having: tuple[int, ...] = ()
    """Per query term, how many of them hold it."""
    matched: int = 0
    """Candidates by words, before any were left out."""
    embedded: int = 0
    """Candidates by meaning, before any were left out."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Memories asked for by id, and the links that touch them."""

    memories: tuple[Memory, ...] = ()
    links: tuple[Link, ...] = ()
