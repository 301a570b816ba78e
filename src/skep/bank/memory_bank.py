"""MemoryBank: the contract of everything that remembers and recalls.

`Bank` (one file), an agent's bank in a hive and a view of the past implement it. Rooms that use memories (server,
hooks, importers, adapters) ask for a `MemoryBank` and work with each of them. An implementation inherits nothing; it
has these methods.

Every implementation keeps these promises:

1. **Durable.** A verb that writes returns when its events are in the log, all of them or none. A `recall` that begins
   afterwards sees them.
2. **One identity.** The id of a memory is the id of the event that made it, the same in every replica, never reused.
3. **Reversible, except `forget`.** `revise`, `retract`, `supersede`, `merge`, `mark` and links keep the history and can
   be undone. After `forget` no method returns any part of the text, here or in any copy that can be reached; the
   receipt names the places that could not be reached.
4. **Reads change no memory.** `recall` may count that a memory was used; every other read counts nothing.
5. **A scope is a wall.** A read with a scope shows only memories that the scope admits. Of the others it does not even
   say that they exist (`NotFoundError`).
6. **Errors say what to do.** Every failure is a `SkepError`. A bad argument is an `InvalidInputError` that names the
   field, raised before anything is written.
7. **Safe to share.** Methods may be called from several threads; the values they return are frozen.

An implementation must not return less than was asked without saying so (a hive lists `missing` members, `reason`
explains an empty answer), must not ask the caller where a memory lives, and must not change the arguments it is given.
"""

# ruff: noqa: D102 - the methods are documented at `Bank`
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

if TYPE_CHECKING:
    from datetime import timedelta
    from random import Random

    from skep.bank.bank_file import BankStatus
    from skep.bank.read import Page
    from skep.engine.embeddings import Progress
    from skep.lifecycle.judge import Case, Judge
    from skep.lifecycle.learn import Effect, Learned, Recommendation
    from skep.lifecycle.maintain import MaintainConfig
    from skep.lifecycle.maintenance_run import MaintainReport
    from skep.model import (
        Conflict,
        Event,
        Graph,
        Hit,
        Link,
        Memory,
        OnConflict,
        Outcome,
        Ranked,
        Recalled,
        Receipt,
        Remembered,
        Scope,
        ScopeLike,
    )
    from skep.recall.memory_stream import Stream
    from skep.retrieval.recall_config import Expand, RecallConfig
    from skep.semantics.link_graph import Direction
    from skep.storage.store import Applied
    from skep.validation import Time


class Changes(TypedDict, total=False):
    """Fields that `revise` may change. Text, confidence and importance cannot be None; None clears any other."""

    text: str
    title: str | None
    domain: str | None
    scope: ScopeLike | None
    tags: Iterable[str] | None
    source: str | None
    confidence: float
    importance: float
    polarity: int | None
    pinned: bool | None
    valid_from: Time | None
    valid_to: Time | None
    ttl: float | timedelta | None
    metadata: Mapping[str, Any] | None
    key: str | None


class ExpandOptions(TypedDict, total=False):
    """Limits of a recall that walks along links from its hits; as `Expand` of `skep.retrieval.recall_config`."""

    relations: Sequence[str]
    depth: int
    cap: int
    decay: float
    direction: Direction


class MemoryBank(Protocol):
    """One memory, wherever it is kept. The arguments and their meaning are documented at `Bank`."""

    @property
    def actor(self) -> str:
        """The name under which it writes to the log."""
        ...

    # Writing

    def remember(
        self,
        text: str,
        *,
        kind: str = "fact",
        title: str | None = None,
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        tags: Iterable[str] = (),
        source: str | None = None,
        confidence: float | None = None,
        importance: float | None = None,
        polarity: int | None = None,
        pinned: bool | None = None,
        level: int | None = None,
        created_at: Time | None = None,
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        ttl: float | timedelta | None = None,
        evidence: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        on_conflict: OnConflict | None = None,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        redact: bool | str | Iterable[str] = True,
    ) -> Remembered: ...
    def remember_many(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        on_conflict: OnConflict | None = None,
        progress: Progress | None = None,
    ) -> list[Remembered]: ...
    def revise(
        self, memory_id: str, *, expected_version: int | None = None, **changes: Unpack[Changes]
    ) -> Memory: ...
    def retract(self, memory_id: str, reason: str | None = None) -> Memory: ...
    def restore(self, memory_id: str, reason: str | None = None) -> Memory: ...
    def supersede(self, old: str, new: str, reason: str | None = None) -> Memory: ...
    def merge(self, loser: str, winner: str, reason: str | None = None) -> Memory: ...
    def mark(self, memory_id: str, status: str, reason: str | None = None) -> Memory: ...
    def confirm(self, memory_id: str, by: str | None = None) -> Memory: ...
    def dispute(self, memory_id: str, by: str) -> Memory: ...
    def support(self, memory_id: str, sources: Iterable[str]) -> Memory: ...
    def forget(
        self, memory_ids: str | Iterable[str], *, dry_run: bool = False, derived: bool = False
    ) -> Receipt: ...

    # Reading

    def get(self, memory_id: str) -> Memory: ...
    def find(
        self,
        text: str | None = None,
        *,
        kind: str | Iterable[str] | None = None,
        status: str | Iterable[str] | None = ...,
        tags: Iterable[str | Sequence[str]] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        since: Time | None = None,
        until: Time | None = None,
        valid_at: Time | None = None,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | Iterable[str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page: ...
    def scopes(self, scope: ScopeLike | None = None, *, include_shared: bool = False) -> dict[Scope, int]: ...
    def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        kind: str | Iterable[str] | None = None,
        tags: Iterable[str | Sequence[str]] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        include_superseded: bool = False,
        preset: str | None = None,
        config: RecallConfig | Mapping[str, object] | None = None,
        expand: bool | Expand | ExpandOptions | None = None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None = None,
        withhold: float = 0.0,
        rng: Random | None = None,
        explain: bool = False,
    ) -> Recalled: ...
    def rank(
        self,
        query: str,
        *,
        limit: int | None = None,
        kind: str | Iterable[str] | None = None,
        tags: Iterable[str | Sequence[str]] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        include_superseded: bool = False,
        preset: str | None = None,
        config: RecallConfig | Mapping[str, object] | None = None,
        expand: bool | Expand | ExpandOptions | None = None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None = None,
    ) -> Ranked: ...
    def search_memory(
        self,
        query: str,
        search_type: str = "both",
        limit: int = 5,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> tuple[Hit, ...]: ...
    def stream(
        self,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        turns: int = 2,
        inline: bool = False,
    ) -> Stream: ...
    def find_conflicts(
        self,
        memory_id: str | None = None,
        *,
        threshold: float = ...,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        progress: Progress | None = None,
    ) -> list[Conflict]: ...

    # Links

    def link(
        self, src: str, dst: str, rel: str = "related", strength: float = 1.0, *, dangling: bool = False
    ) -> Link: ...
    def unlink(self, src: str, dst: str, rel: str | None = None) -> int: ...
    def neighbors(
        self,
        memory_id: str,
        rel: str | None = None,
        direction: Direction = "both",
        depth: int = 1,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> Graph: ...
    def subgraph(
        self,
        memory_ids: Iterable[str],
        depth: int = 1,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> Graph: ...
    def path(
        self,
        a: str,
        b: str,
        max_depth: int = 6,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Link]: ...

    # The past

    def history(
        self,
        memory_id: str | None = None,
        *,
        limit: int | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Event]: ...
    def blame(
        self, memory_id: str, *, scope: ScopeLike | None = None, include_shared: bool = False
    ) -> dict[str, Event]: ...
    def event(self, event_id: str) -> Event: ...
    def undo(self, event_id: str, reason: str | None = None) -> Event: ...
    def as_of(self, time: Time) -> MemoryBank:
        """The bank as it was at a moment; for reading only. What was forgotten since stays forgotten."""
        ...

    # Learning and upkeep

    def learn(
        self,
        task: str,
        outcome: str | bool | float,
        *,
        used: str | Iterable[str] = (),
        steps: Iterable[str] = (),
        metrics: Mapping[str, float] | None = None,
        task_type: str | None = None,
        domain: str | None = None,
        lesson: str | None = None,
        scope: ScopeLike | None = None,
        agent: str | None = None,
        recalled: Recalled | None = None,
    ) -> Learned: ...
    def recommend(
        self,
        task: str,
        k: int = 3,
        *,
        domain: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = True,
    ) -> list[Recommendation]: ...
    def outcomes(
        self, memory_id: str | None = None, *, scope: ScopeLike | None = None, include_shared: bool = False
    ) -> list[Outcome]: ...
    def stats(self, *, scope: ScopeLike | None = None, include_shared: bool = False) -> dict[str, Any]: ...
    def utility(self, *, scope: ScopeLike | None = None, include_shared: bool = False) -> list[Effect]: ...
    def maintain(
        self,
        config: MaintainConfig | None = None,
        *,
        dry_run: bool = False,
        judge: Judge | Callable[[Sequence[Case]], Sequence[str]] | None = None,
        distil: Callable[[Sequence[Sequence[str]]], Sequence[str | None]] | None = None,
        progress: Progress | None = None,
    ) -> MaintainReport: ...
    def pending_judgements(self) -> list[Case]: ...
    def resolve_judgement(self, a: str, b: str, decision: str, by: str | None = None) -> int: ...

    # The bank as a whole

    def setting(self, key: str) -> Any: ...
    def settings(self, prefix: str = "") -> dict[str, Any]: ...
    def set_setting(self, key: str, value: Any) -> Event: ...
    def status(self) -> BankStatus: ...
    def versions(self) -> dict[str, int]: ...
    def events(self, since: Mapping[str, int] | None = None) -> Iterator[Event]: ...
    def apply(self, events: Iterable[Event], *, partial: bool = False) -> Applied: ...
    def close(self) -> None: ...
