"""The values skep speaks in: memories, scopes, links, events, conflicts, hits, outcomes. All are frozen.

Every room uses them; none of them knows about storage. Times are seconds since the epoch (UTC). A memory's id is the id
of the event that created it. Values that recalls make by the dozen are not tracked by Python's collector (`gc=False`):
none of them refers to what holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

Kind = Literal["fact", "episode", "procedure", "document"]
Status = Literal[
    "pending", "active", "superseded", "merged", "deprecated", "quarantined", "retracted", "expired"
]
ConflictKind = Literal["duplicate", "contradiction", "update"]
OnConflict = Literal["ignore", "warn", "supersede", "raise"]

KINDS: tuple[str, ...] = get_args(Kind)
STATUSES: tuple[str, ...] = get_args(Status)
CURRENT: tuple[str, ...] = ("active", "pending")
"""The statuses a recall sees unless told otherwise."""
REPLACED: tuple[str, ...] = ("superseded", "merged")
"""The statuses of memories that another one stands in for."""
LINEAGE: dict[str, str] = {"supersedes": "supersede(old, new)", "duplicate_of": "merge(loser, winner)"}
"""Relations that follow from lineage, each with the verb that makes it."""
RELATIONS: tuple[str, ...] = (
    "related",
    "refines",
    "derived_from",
    "example_of",
    "contradicts",
    "updates",
    "entails",
)
"""The relations the engine knows beside them and a user may link by; any other word will do as well."""
ANCHORS_GONE = "anchors_gone"
"""The key of metadata that says in words what of the things that a memory names is gone or changed."""
ANY = "*"
"""In a scope that is asked for: any value of this part."""
BELOW = "/*"
"""At the end of a part that is asked for: what stands before it, and any path below."""


class Scope(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """The user, project and session that a memory is for. Any may be absent; a scope with none is shared.

    A part may be a path. A namespace, a tuple of free parts, is the path of a project: see `namespace_path`.
    """

    user: str | None = None
    project: str | None = None
    session: str | None = None

    @property
    def namespace(self) -> tuple[str, ...]:
        """The parts of the project, as a tuple.

        >>> Scope(project="docs/2026").namespace, Scope(user="ana").namespace
        (('docs', '2026'), ())
        """
        return () if self.project is None else namespace_parts(self.project)

    @property
    def shared(self) -> bool:
        """True if it is for everybody."""
        return self.user is None and self.project is None and self.session is None

    def admits(self, other: Scope) -> bool:
        """True if a recall with this scope may see a memory of scope `other`.

        >>> Scope(user="ana").admits(Scope(user="ana")), Scope(user="ana").admits(Scope(user="ana", project="x"))
        (True, False)
        >>> Scope(user="ana", project="*").admits(Scope(user="ana", project="x"))
        True
        >>> [Scope(project="docs/*").admits(Scope(project=name)) for name in ("docs", "docs/2026", "docs2")]
        [True, True, False]
        """
        return (
            part_admits(self.user, other.user)
            and part_admits(self.project, other.project)
            and part_admits(self.session, other.session)
        )

    def apart(self, other: Scope) -> bool:
        """True if two scopes are of different users or projects; sessions of the same ones are not apart.

        >>> Scope(user="ana").apart(Scope(user="bob")), Scope(user="ana").apart(Scope(project="x"))
        (True, False)
        """
        return (self.user is not None and other.user is not None and self.user != other.user) or (
            self.project is not None and other.project is not None and self.project != other.project
        )


def part_admits(asked: str | None, held: str | None) -> bool:
    """True if one part of a scope that is asked for admits that of a memory."""
    if asked in (held, ANY):
        return True
    if asked is None or held is None or not asked.endswith(BELOW):
        return False
    return held == asked.removesuffix(BELOW) or held.startswith(asked[:-1])


def is_pattern(part: str | None) -> bool:
    """True if a part of a scope that is asked for stands for several."""
    return part is not None and (part == ANY or part.endswith(BELOW))


def namespace_path(parts: Iterable[str]) -> str:
    """A namespace as a path. Slashes, percent signs, stars and what cannot be seen are written as `%` and a number.

    >>> namespace_path(["docs", "a/b", "*"])
    'docs/a%2Fb/%2A'
    """
    return "/".join("".join(map(_escaped, part)) for part in parts)


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "%/*" and not (character.isspace() and character != " "):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def namespace_parts(path: str) -> tuple[str, ...]:
    """The parts of a path that `namespace_path` wrote.

    >>> namespace_parts("docs/a%2Fb/%2A")
    ('docs', 'a/b', '*')
    """
    if "%" not in path:
        return tuple(path.split("/"))
    from urllib.parse import unquote

    return tuple(unquote(part, errors="surrogatepass") for part in path.split("/"))


SHARED = Scope()
ScopeLike = Scope | Mapping[str, str | None] | Sequence[str]
"""A scope as a caller may give it; a list or tuple of free parts is a namespace."""


class Memory(msgspec.Struct, frozen=True, gc=False):
    """One thing an agent knows, with where it came from and how far to trust it."""

    id: str
    kind: Kind
    text: str
    title: str | None = None
    domain: str | None = None
    agent: str | None = None
    scope: Scope = SHARED
    tags: tuple[str, ...] = ()
    source: str | None = None
    confidence: float = 0.8
    importance: float = 0.5
    polarity: int = 0
    status: Status = "active"
    pinned: bool = False
    level: int = 0
    created_at: float = 0.0
    valid_from: float | None = None
    valid_to: float | None = None
    expires_at: float | None = None
    last_evidence_at: float = 0.0
    last_used_at: float | None = None
    evidence: tuple[str, ...] = ()
    uses: int = 0
    successes: int = 0
    failures: int = 0
    confirmations: int = 0
    disputes: int = 0
    superseded_by: str | None = None
    merged_into: str | None = None
    stale: bool = False
    metadata: dict[str, Any] = {}
    embedder: str | None = None
    """The fingerprint its vector was made with; None while it waits to be embedded."""
    key: str | None = None
    """The caller's own name for it; in one scope, one memory that stands has it."""
    version: int = 1
    """Rises with every change of what it says, with every retraction and replacement, and with every undo of one."""

    @property
    def created(self) -> datetime:
        """When it was learnt, as a datetime in UTC.

        >>> Memory("a-1", "fact", "tea is green", created_at=0.0).created.isoformat()
        '1970-01-01T00:00:00+00:00'
        """
        return datetime.fromtimestamp(self.created_at, UTC)

    def __repr__(self) -> str:
        said = self.text if self.title is None else f"{self.title}: {self.text}"
        return f"Memory({self.id}, {self.kind}, {self.status}, {shortened(said, 70)!r})"


def shortened(text: str, most: int) -> str:
    """A text on one line, cut at `most` characters.

    >>> shortened("one two\\nthree", 10)
    'one two t…'
    """
    line = " ".join(text[: 2 * most].split())
    return line if len(line) <= most and len(text) <= 2 * most else f"{line[: most - 1]}…"


def html_table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for a notebook; every text is escaped."""
    from html import escape

    cells = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = ["".join(f"<td>{escape(str(value))}</td>" for value in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<p>{escape(heading)}</p><table><tr>{cells}</tr>{body}</table>"


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A typed, one-way edge between two memories."""

    src: str
    dst: str
    rel: str = "related"
    strength: float = 1.0


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """Memories and the links among them; `dangling` are link targets that no longer exist."""

    memories: dict[str, Memory]
    links: tuple[Link, ...]
    dangling: tuple[str, ...] = ()


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One change, as it stands in the log and travels between replicas."""

    actor: str
    counter: int
    hlc: int
    kind: str
    body: dict[str, Any]
    seq: int = 0
    """Its position in this bank's log; local, never sent."""
    signature: bytes | None = None

    @property
    def id(self) -> str:
        """The same in every replica."""
        return f"{self.actor}-{self.counter}"

    @property
    def at(self) -> float:
        """When it happened, in seconds since the epoch."""
        return (self.hlc >> 16) / 1000


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two memories that do not go together: the one being written or examined, and one already stored."""

    existing: Memory
    memory: Memory | None
    """The other one; None when it was refused before it was written."""
    kind: ConflictKind
    similarity: float
    reason: str
    """One of polarity, negation, antonym, number, value, custom, similarity."""
    confidence: float


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `remember`: `action` is stored, superseded, confirmed or, by its key, revised."""

    memory: Memory
    conflicts: tuple[Conflict, ...] = ()
    action: Literal["stored", "superseded", "confirmed", "revised"] = "stored"
    redactions: tuple[str, ...] = ()
    reason: str = ""
    """Why conflicts were looked for by words alone; empty where meaning counted as well, or none were looked for."""


class Hit(msgspec.Struct, frozen=True, gc=False):
    """One answer to a recall, able to explain itself."""

    memory: Memory
    score: float
    signals: dict[str, float] = {}
    ranks: dict[str, int] = {}
    flags: tuple[str, ...] = ()
    """Among disagreement, conflict, outdated, replaces (a memory it replaced matches), stale, gone (what it
    names is), pending, expanded."""
    level: str = "weak"
    """How likely it answers the question: strong, likely or weak."""
    updated_by: str | None = None
    """The newer memory that probably updates it; with the flag `outdated`."""
    conflicts_with: tuple[str, ...] = ()
    replaced: str | None = None
    """The memory it replaced whose words and meaning count for it; with the flag `replaces`."""
    via: Link | None = None
    """The link that led to it; with the flag `expanded`."""

    def why(self) -> str:
        """In one readable line, why this was returned."""
        if self.via is not None:
            hops = int(self.signals.get("hops", 1))
            steps = f"{hops} link{'s' if hops > 1 else ''} away"
            parts = [f"{steps}, {self.via.src} -{self.via.rel}-> {self.via.dst}"]
        else:
            parts = [_told(name, value) for name, value in self.signals.items() if value or name in MEASURED]
        line = f"{self.level} ({self.score:.2f}): " + (", ".join(parts) or "not scored")
        for flag in self.flags:
            if flag == "replaces" and self.replaced:
                line += f"; replaces {self.replaced}"
            elif flag == "outdated" and self.updated_by:
                line += f"; outdated, updated by {self.updated_by}"
            elif flag == "gone":
                line += "; " + "; ".join(self.memory.metadata.get(ANCHORS_GONE) or ("what it names is gone",))
            elif flag == "disagreement":
                line += "; shares words, but lies far behind in meaning"
            elif flag != "conflict":
                line += f"; {flag}"
        if self.conflicts_with:
            line += "; conflicts with " + ", ".join(self.conflicts_with)
        return line


MEASURED = {"semantic": "meaning", "words": "words", "lexical": "words, beside the best"}
"""Signals that every hit has, in the words of a user."""
TOLD = {
    "coverage": "share of the question held",
    "context": "share held with its neighbours",
    "speaker": "said by whom the question names",
    "wanted": "holds the kind of answer",
    "thread": "follows a better hit",
    "echo": "shares words with the first hits",
    "title": "the question names its title",
    "guidance": "says how to answer",
    "time": "of the time that the question names",
    "matched": "question words held",
    "reranker": "reranker",
}
"""Further signals in the words of a user."""


def _told(name: str, value: float) -> str:
    return f"{MEASURED.get(name) or TOLD.get(name) or name} {value:.2f}"


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one stage of a recall."""

    name: str
    kept: int
    cut: int = 0
    note: str = ""


WORDS_ALONE = "words alone"
"""Begins the part of a `reason` that tells why meaning did not count."""
NOT_READ = "not read by"
"""Stands in a `reason` while memories wait for the model of the bank."""


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """The hits of a recall; a sequence of `Hit`. `reason` says why there are none or fewer, or found by words alone."""

    hits: tuple[Hit, ...] = ()
    reason: str = ""
    trace: tuple[Stage, ...] = ()
    withheld: tuple[str, ...] = ()
    """Left out on purpose, to learn whether it helps (see `skep stats --utility`)."""
    withhold: float = 0.0
    """The probability with which one would be left out."""

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def __bool__(self) -> bool:
        return bool(self.hits)

    def _repr_html_(self) -> str:
        heading = f"{len(self.hits)} hits" + (f": {self.reason}" if self.reason else "")
        rows = [
            (
                f"{hit.score:.2f}",
                hit.memory.text,
                f"{hit.memory.created:%Y-%m-%d}",
                ", ".join(hit.flags),
                hit.memory.id,
            )
            for hit in self.hits
        ]
        return html_table(heading, ("score", "memory", "learnt", "flags", "id"), rows)


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """The order of an answer without its memories: a sequence of ids, each with its score, best first."""

    ids: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    """One for each id."""
    reason: str = ""
    """Why there are none or fewer, or found by words alone; as in `Recalled`."""

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self.ids, self.scores, strict=True)

    def __getitem__(self, index: int) -> tuple[str, float]:
        return self.ids[index], self.scores[index]

    def __bool__(self) -> bool:
        return bool(self.ids)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a task, and the memories that were used in it."""

    id: str
    task: str
    success: bool
    used: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """What was done, in order, one line each, such as `run_tests(unit)` or `push(main) failed: refused`."""
    metrics: dict[str, float] = {}
    task_type: str | None = None
    domain: str | None = None
    at: float = 0.0


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The places and numbers of entries that `forget` erased."""

    memories: tuple[str, ...]
    erased: dict[str, int]
    """Per place (rows, log, words, vectors, links, segments, backups): how many entries."""
    event: str | None = None
    dry_run: bool = False
    derived: tuple[str, ...] = ()
    """Memories that were derived from what was erased and may repeat it; now stale. `derived=True` erases them too."""
    copies: tuple[str, ...] = ()
    """Memories that were merged with what was erased and say the same; `derived=True` erases them too."""
    unreached: tuple[str, ...] = ()
    """Places that could not be cleaned yet, why, and what to do: copies, and the write-ahead log under a reader."""
