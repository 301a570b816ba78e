"""Bank: one memory in one file. A façade: it checks what comes in, and hands the work to the room it belongs to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from skep.clock import Now, pack, system_now
from skep.config import Settings, find_bank
from skep.embedding import default_embedder, open_embedder
from skep.embedding.base import Embedder
from skep.engine import Engine, Progress
from skep.engine.forgetting import clean_derived, forget
from skep.errors import InvalidInputError, NotFoundError, UndoError
from skep.model import (
    CURRENT,
    STATUSES,
    Conflict,
    Event,
    Graph,
    Link,
    Memory,
    OnConflict,
    Recalled,
    Receipt,
    Remembered,
    Scope,
)
from skep.semantics import conflicts as conflict_search
from skep.semantics import links as graph
from skep.semantics import writing
from skep.storage.base import Filter
from skep.storage.doctor import Finding, examine, mend
from skep.storage.fold import fold, mentioned
from skep.storage.sqlite import Applied, Plan, SqliteStore
from skep.storage.transfer import batches, export_lines, read_lines
from skep.validation import (
    Time,
    body_of,
    clean_choice,
    clean_number,
    clean_scope,
    clean_tags,
    clean_text,
    clean_time,
    refuse_unknown,
)
from skep.words import query_terms

if TYPE_CHECKING:
    from skep.recall.search import Recaller

ScopeLike = Scope | Mapping[str, str | None]
BULK = 2000
"""Memories per transaction in bulk work."""
FINAL = ("forget", "use")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the memories that `find` found, newest first; `cursor` leads to the rest."""

    memories: tuple[Memory, ...]
    cursor: str | None = None

    def __len__(self) -> int:
        return len(self.memories)

    def __iter__(self) -> Iterator[Memory]:
        return iter(self.memories)


class BankStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a bank is doing."""

    path: str | None
    memories: int
    """Those a recall may return."""
    pending: int
    by_status: dict[str, int]
    by_kind: dict[str, int]
    events: int
    links: int
    actor: str
    embedder: str
    reembedding: int
    """How many memories still have to be embedded by a new model; recall uses the old one until then."""
    embed_error: str | None
    size_bytes: int
    index_bytes: int
    versions: dict[str, int]
    schema: int
    held: int


class Bank:
    """One memory. Open it with `Bank.open`, and close it or use it in a `with`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._past: tuple[float, Bank] | None = None
        self._recaller: Recaller | None = None

    # Opening

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        embedder: Embedder | str | None = None,
        settings: Settings | None = None,
        now: Now = system_now,
        create: bool = True,
        read_only: bool = False,
    ) -> Self:
        """Open a bank, creating it if it is not there.

        Args:
            path: The file. By default `SKEP_BANK`, the project's `.skep` folder if one is found upward, or the
                user's data folder. `":memory:"` keeps everything in memory.
            embedder: What turns text into vectors: an object, or a spec such as `"static"` or `"ollama:nomic"`.
                By default the one the bank was made with, or the bundled one.
            settings: Limits and defaults.
            now: The clock, in seconds since the epoch.
            create: Whether to create a missing file.
            read_only: Open for reading alone.
        """
        settings = settings or Settings()
        where = path if str(path) == ":memory:" else find_bank(path, os.environ, Path.cwd())
        store = SqliteStore.open(str(where), settings, create=create, read_only=read_only)
        spec = embedder if isinstance(embedder, str) else None
        if embedder is None:
            embedder, spec = _own_embedder(store)
        elif isinstance(embedder, str):
            embedder = open_embedder(embedder)
        folder = None if store.path is None else store.path.with_name(store.path.name + ".index")
        return cls(Engine(store, embedder, spec=spec, settings=settings, now=now, index_folder=folder))

    def close(self) -> None:
        """Write what is still in memory and release the file."""
        if self._past is not None:
            self._past[1].close()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def engine(self) -> Engine:
        """The parts this bank is made of, for the rooms built on top of it."""
        return self._engine

    @property
    def actor(self) -> str:
        """The name under which this bank writes to the log."""
        return self._engine.store.actor

    @property
    def file(self) -> Path | None:
        """Where it is kept; None for a bank in memory."""
        return self._engine.store.path

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
        ttl: float | None = None,
        evidence: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        on_conflict: OnConflict = "warn",
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
    ) -> Remembered:
        """Store one memory; it is durable when this returns.

        Args:
            text: What to remember, in plain words.
            kind: `fact`, `episode`, `procedure` or `document`.
            title: A short heading, searched like the text.
            domain: The field it belongs to, such as `billing`.
            agent: Who learnt it.
            scope: Whom it is for: any of user, project, session. Nothing means everybody.
            tags: Labels to filter by.
            source: Where it comes from, such as a path or an address.
            confidence: How sure, 0 to 1; 0.8 if not said.
            importance: How much it matters, 0 to 1; 0.5 if not said.
            polarity: +1 or -1 where the text states or denies something, for the search for contradictions.
            pinned: Maintenance never touches it.
            level: 0 for what was observed, higher for summaries.
            created_at: When it was learnt, if not now.
            valid_from: Since when it holds.
            valid_to: Until when it holds.
            ttl: Seconds after which it expires.
            evidence: Ids of the memories that support it.
            metadata: Anything else, as JSON.
            on_conflict: What to do when it contradicts or repeats what is stored: `ignore` does not look, `warn`
                stores and reports, `supersede` replaces what is outdated and confirms what is repeated, `raise`
                refuses.
            contradiction_fn: Asked about pairs on which the built-in rules say nothing.
        """
        clean_choice("on_conflict", on_conflict, ("ignore", "warn", "supersede", "raise"))
        given = {
            "text": text,
            "kind": kind,
            "title": title,
            "domain": domain,
            "agent": agent,
            "scope": scope,
            "tags": tags or None,
            "source": source,
            "confidence": confidence,
            "importance": importance,
            "polarity": polarity,
            "pinned": pinned,
            "level": level,
            "created_at": created_at,
            "valid_from": valid_from,
            "valid_to": valid_to,
            "ttl": ttl,
            "evidence": evidence or None,
            "metadata": metadata,
        }
        body = body_of(given, self._engine.settings)
        return writing.remember(
            self._engine, body, on_conflict=on_conflict, contradiction_fn=contradiction_fn
        )

    def remember_many(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        on_conflict: OnConflict = "ignore",
        progress: Progress | None = None,
    ) -> list[Remembered]:
        """Store many memories: texts, or mappings with the arguments of `remember`.

        Every item is checked before the first is written. Conflicts are not looked for unless asked; `maintain`
        finds them later at a fraction of the cost.
        """
        clean_choice("on_conflict", on_conflict, ("ignore", "warn", "supersede", "raise"))
        bodies: list[dict[str, Any]] = []
        for number, item in enumerate(items):
            try:
                bodies.append(body_of({"text": item} if isinstance(item, str) else item, self._engine.settings))
            except InvalidInputError as error:
                error.args = (f"item {number}: {error}",)
                raise
        if on_conflict != "ignore":
            return [writing.remember(self._engine, body, on_conflict=on_conflict) for body in bodies]
        stored: list[Remembered] = []
        for start in range(0, len(bodies), BULK):
            _events, changes = self._engine.write([("remember", body) for body in bodies[start : start + BULK]])
            found = self._engine.store.memories([row for row, _id, _text in changes.created])
            stored += [Remembered(memory=found[row]) for row, _id, _text in changes.created]
            if progress is not None:
                progress(len(stored), len(bodies))
        return stored

    def revise(self, memory_id: str, **changes: Any) -> Memory:
        """Change fields of a memory; what it said before stays in its history. None clears a field."""
        self._engine.known(memory_id)
        body = body_of(changes, self._engine.settings, partial=True)
        if not body:
            raise InvalidInputError("nothing to revise; pass at least one field, such as text=...")
        self._engine.write([("revise", {"memory": memory_id, "changes": body})])
        return self._engine.memory(memory_id)

    def retract(self, memory_id: str, reason: str | None = None) -> Memory:
        """Take a memory back: out of every recall, kept in history; `restore` brings it back."""
        self._engine.known(memory_id)
        state = fold(memory_id, self._engine.store.log.of(memory_id))
        body: dict[str, Any] = {"memory": memory_id, "observed": list(state.dots) if state else []}
        self._write("retract", body, reason)
        return self._engine.memory(memory_id)

    def restore(self, memory_id: str, reason: str | None = None) -> Memory:
        """Make a memory current again after it was superseded, merged, retracted, deprecated or expired."""
        memory = self._engine.memory(memory_id)
        if memory.status in CURRENT:
            return memory
        self._write("restore", {"memory": memory_id}, reason)
        return self._engine.memory(memory_id)

    def supersede(self, old: str, new: str, reason: str | None = None) -> Memory:
        """Say that a newer memory replaces an older one; the older stays in history."""
        self._engine.known(old, new)
        graph.refuse_cycle(old, new, self._engine.store.get)
        self._write("supersede", {"old": old, "new": new}, reason)
        return self._engine.memory(old)

    def merge(self, loser: str, winner: str, reason: str | None = None) -> Memory:
        """Fold a duplicate into the memory that is kept, with its evidence; nothing is deleted."""
        self._engine.known(loser, winner)
        graph.refuse_cycle(loser, winner, self._engine.store.get)
        evidence = list(dict.fromkeys((loser, *self._engine.memory(loser).evidence)))
        self._write("merge", {"loser": loser, "winner": winner, "evidence": evidence}, reason)
        return self._engine.memory(winner)

    def mark(self, memory_id: str, status: str, reason: str | None = None) -> Memory:
        """Set a memory aside (`deprecated`, `quarantined`, `expired`) or make it `active` again."""
        self._engine.known(memory_id)
        clean_choice("status", status, ("active", "deprecated", "quarantined", "expired"))
        self._write("mark", {"memory": memory_id, "status": status}, reason)
        return self._engine.memory(memory_id)

    def confirm(self, memory_id: str, by: str | None = None) -> Memory:
        """Note that somebody independent says the same."""
        self._engine.known(memory_id)
        self._write("confirm", {"memory": memory_id, "by": by or self.actor})
        return self._engine.memory(memory_id)

    def dispute(self, memory_id: str, by: str) -> Memory:
        """Note that another memory (or somebody) contradicts it; its confidence halves."""
        self._engine.known(memory_id)
        self._write("dispute", {"memory": memory_id, "by": clean_text("by", by, 500)})
        return self._engine.memory(memory_id)

    def support(self, memory_id: str, sources: Iterable[str]) -> Memory:
        """Note evidence for a memory; each source counts once."""
        self._engine.known(memory_id)
        names = list(clean_tags("sources", sources, self._engine.settings))
        self._write("evidence", {"memory": memory_id, "sources": names})
        return self._engine.memory(memory_id)

    def forget(self, memory_ids: str | Iterable[str], *, dry_run: bool = False) -> Receipt:
        """Erase memories for good, from rows, log, words, vectors, segments and the backups this bank made.

        Replicas erase them too when they next sync. Nothing brings them back.
        """
        ids = (memory_ids,) if isinstance(memory_ids, str) else tuple(dict.fromkeys(memory_ids))
        if not ids:
            raise InvalidInputError("nothing to forget; pass the id of a memory")
        return forget(self._engine, ids, dry_run=dry_run)

    def _write(self, kind: str, body: dict[str, Any], reason: str | None = None) -> Event:
        if reason is not None:
            body["reason"] = clean_text("reason", reason, self._engine.settings.text_limit)
        events, _ = self._engine.write([(kind, body)])
        return events[0]

    # Links

    def link(self, src: str, dst: str, rel: str = "related", strength: float = 1.0) -> Link:
        """Link two memories; the same link twice is one link."""
        self._engine.known(src, dst)
        if src == dst:
            raise InvalidInputError(f"{src} cannot be linked to itself; pass two different memories", field="dst")
        rel = clean_text("rel", rel, self._engine.settings.label_limit)
        strength = clean_number("strength", strength, 0.0, 1.0)
        found = self._engine.store.links(src, rel=rel, direction="out")
        wanted = Link(src=src, dst=dst, rel=rel, strength=strength)
        if wanted not in found:
            self._write("link", {"src": src, "dst": dst, "rel": rel, "strength": strength})
        return wanted

    def unlink(self, src: str, dst: str, rel: str | None = None) -> int:
        """Remove the links from one memory to another; how many there were."""
        stored = [
            link
            for link in self._engine.store.links(src, rel=rel, direction="out")
            if link.dst == dst and link.rel not in ("supersedes", "duplicate_of")
        ]
        plans: list[Plan] = [("unlink", {"src": src, "dst": dst, "rel": link.rel}) for link in stored]
        if plans:
            self._engine.write(plans)
        return len(plans)

    def neighbors(
        self,
        memory_id: str,
        rel: str | None = None,
        direction: graph.Direction = "both",
        depth: int = 1,
    ) -> Graph:
        """The memories within `depth` links of one, and the links; targets that are gone are listed as dangling."""
        self._engine.known(memory_id)
        depth = int(clean_number("depth", depth, 1, 100))
        distance, crossed = graph.walk([memory_id], self._links_of, rel=rel, direction=direction, depth=depth)
        found = {i: self._engine.store.get(i) for i in distance if i != memory_id}
        return Graph(
            memories={i: m for i, m in found.items() if m is not None},
            links=tuple(crossed),
            dangling=tuple(i for i, m in found.items() if m is None),
        )

    def subgraph(self, memory_ids: Iterable[str], depth: int = 1) -> Graph:
        """Memories, their surroundings, and the links among them."""
        ids = tuple(memory_ids)
        self._engine.known(*ids)
        return graph.graph_of(ids, self._links_of, self._engine.store.get, depth=depth)

    def path(self, a: str, b: str, max_depth: int = 6) -> list[Link]:
        """The fewest links that lead from one memory to another; empty when none do."""
        self._engine.known(a, b)
        return graph.shortest_path(a, b, self._links_of, max_depth=max_depth)

    def _links_of(self, memory_id: str, rel: str | None, direction: graph.Direction) -> list[Link]:
        return self._engine.store.links(memory_id, rel=rel, direction=direction)

    # Reading

    def get(self, memory_id: str) -> Memory:
        """One memory by id, whatever its status."""
        return self._engine.memory(memory_id)

    def find(
        self,
        text: str | None = None,
        *,
        kind: str | Iterable[str] | None = None,
        status: str | Iterable[str] | None = CURRENT,
        tags: Iterable[str] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        since: Time | None = None,
        until: Time | None = None,
        valid_at: Time | None = None,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Memories that meet every condition, newest first, a page at a time. `text` asks for all of its words.

        `status=None` finds every status.
        """
        where = self._filter(
            kind=kind,
            status=STATUSES if status is None else status,
            tags=tags,
            domain=domain,
            agent=agent,
            scope=scope,
            include_shared=include_shared,
            since=since,
            until=until,
            valid_at=valid_at,
            min_confidence=min_confidence,
            min_importance=min_importance,
        )
        limit = int(clean_number("limit", limit, 1, 10_000))
        if cursor is not None and not cursor.isdigit():
            raise InvalidInputError(f"cursor {cursor!r} is not one that `find` gave", field="cursor")
        words = query_terms(text) if text else ()
        found = self._engine.store.find(
            where, limit=limit + 1, before_row=int(cursor) if cursor else None, terms=words
        )
        more = str(found[limit - 1][0]) if len(found) > limit else None
        return Page(memories=tuple(memory for _row, memory in found[:limit]), cursor=more)

    def _filter(self, **given: Any) -> Filter:
        """A checked filter."""
        label = self._engine.settings.label_limit

        def several(name: str, choices: tuple[str, ...] | None = None) -> tuple[str, ...]:
            value = given.get(name)
            if value is None:
                return ()
            values = (value,) if isinstance(value, str) else tuple(value)
            return tuple(
                clean_choice(name, v, choices) if choices else clean_text(name, v, label) for v in values
            )

        def moment(name: str) -> float | None:
            return None if given.get(name) is None else clean_time(name, given[name])

        def unit(name: str) -> float | None:
            return None if given.get(name) is None else clean_number(name, given[name], 0.0, 1.0)

        from skep.model import KINDS

        scope = given.get("scope")
        return Filter(
            scope=None if scope is None else clean_scope("scope", scope, label, asked=True),
            include_shared=bool(given.get("include_shared")),
            kinds=several("kind", KINDS),
            statuses=several("status", STATUSES) or CURRENT,
            tags=tuple((tag,) for tag in clean_tags("tags", given.get("tags") or (), self._engine.settings)),
            domains=several("domain"),
            agents=several("agent"),
            since=moment("since"),
            until=moment("until"),
            valid_at=moment("valid_at"),
            min_confidence=unit("min_confidence"),
            min_importance=unit("min_importance"),
            now=self._engine.now(),
        )

    def find_conflicts(
        self,
        memory_id: str | None = None,
        *,
        threshold: float = conflict_search.CANDIDATE,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        scope: ScopeLike | None = None,
        progress: Progress | None = None,
    ) -> list[Conflict]:
        """Duplicates, contradictions and updates among what is stored: of one memory, or in the whole bank."""
        threshold = clean_number("threshold", threshold, 0.0, 1.0)
        if memory_id is not None:
            memory = self._engine.memory(memory_id)
            return conflict_search.find_for(
                self._engine, memory, threshold=threshold, contradiction_fn=contradiction_fn
            )
        where = self._filter(scope=scope)
        memories = [memory for _row, memory in self._engine.store.find(where, limit=1 << 40)]
        return list(
            conflict_search.scan(
                self._engine, memories, threshold=threshold, contradiction_fn=contradiction_fn, progress=progress
            )
        )

    # History

    def history(self, memory_id: str | None = None, *, limit: int = 100) -> list[Event]:
        """What happened to a memory, oldest first; without an id, what happened last in the bank, newest first."""
        if memory_id is None:
            return self._engine.store.log.newest(limit)
        events = self._engine.store.log.of(memory_id)
        if not events:
            raise NotFoundError(f"there is no memory {memory_id!r}")
        return events

    def blame(self, memory_id: str) -> dict[str, Event]:
        """Per field of a memory, the event that last set it."""
        self._engine.known(memory_id)
        events = {event.id: event for event in self._engine.store.log.of(memory_id)}
        state = fold(memory_id, events.values())
        return {field: events[event_id] for field, event_id in (state.blame if state else {}).items()}

    def event(self, event_id: str) -> Event:
        """One event by id."""
        event = self._engine.store.log.get(event_id)
        if event is None:
            raise NotFoundError(f"there is no event {event_id!r}; `skep history` lists them")
        return event

    def undo(self, event_id: str, reason: str | None = None) -> Event:
        """Make one event as if it had never been. Undoing an undo brings it back. A forget is final."""
        event = self.event(event_id)
        if event.kind in FINAL:
            raise UndoError(f"{event_id} is a {event.kind}, which cannot be undone")
        if any(self._engine.store.is_forgotten(subject) for subject in mentioned(event)):
            raise UndoError(f"{event_id} speaks of a memory that was forgotten; nothing of it is left")
        return self._write("undo", {"event": event_id, "mentions": list(mentioned(event))}, reason)

    def as_of(self, time: Time) -> Bank:
        """The bank as it was at a moment; for reading only. What was forgotten since stays forgotten."""
        moment = clean_time("time", time)
        if self._past is not None and self._past[0] == moment:
            return self._past[1]
        if self._past is not None:
            self._past[1].close()
            self._past = None
        mine = self._engine
        store = mine.store.copy_to_memory()
        store.rewind(pack(moment) | 0xFFFF)
        folder = None if self.file is None else self.file.with_name(self.file.name + ".index")
        engine = Engine(
            store,
            mine.embeddings.embedder,
            spec=mine.embeddings.spec,
            settings=mine.settings,
            now=lambda: moment,
            index_folder=folder,
            frozen=True,
        )
        if mine.embeddings.embedder.instant:
            engine.embeddings.drain()
        store.read_only = True
        past = Bank(engine)
        self._past = (moment, past)
        return past

    # Recall

    def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        kind: str | Iterable[str] | None = None,
        tags: Iterable[str] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        include_superseded: bool = False,
        preset: str | None = None,
        config: Mapping[str, Any] | None = None,
        expand: Any = None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None = None,
        explain: bool = False,
    ) -> Recalled:
        """The memories that answer a question, best first; none if nothing does, and the reason why.

        Args:
            query: A question or a few words.
            limit: At most this many.
            kind: Only these kinds.
            tags: Only memories with all of these tags.
            domain: Only this domain.
            agent: Only what this agent wrote.
            scope: Only memories of exactly this scope; `"*"` in a part stands for anything.
            include_shared: With a scope: also memories that have none.
            min_confidence: Only memories at least this sure today.
            min_importance: Only memories at least this important.
            since: Only memories made at or after this time.
            until: Only memories made before this time.
            as_of: Answer as the bank would have at that time.
            include_superseded: Also memories that were replaced.
            preset: A named way to rank; see `docs/reference/recall-config.md`.
            config: Fields of a recall config that override the bank's and the preset's.
            expand: Walk links outward from the hits; True, or a mapping with relations, depth, cap, decay.
            reranker: Called with the query and the texts of the short list; gives scores.
            explain: Also return what every stage did.
        """
        query = clean_text("query", query, self._engine.settings.text_limit)
        limit = int(clean_number("limit", limit, 1, 10_000))
        if as_of is not None:
            return self.as_of(as_of).recall(
                query, limit=limit, kind=kind, tags=tags, domain=domain, agent=agent, scope=scope,
                include_shared=include_shared, min_confidence=min_confidence, min_importance=min_importance,
                since=since, until=until, include_superseded=include_superseded, preset=preset, config=config,
                expand=expand, reranker=reranker, explain=explain,
            )  # fmt: skip
        where = self._filter(
            kind=kind,
            status=(*CURRENT, "superseded", "merged") if include_superseded else CURRENT,
            tags=tags,
            domain=domain,
            agent=agent,
            scope=scope,
            include_shared=include_shared,
            since=since,
            until=until,
            valid_at=self._engine.now(),
            min_confidence=min_confidence,
            min_importance=min_importance,
        )
        return self._recall.run(
            query, where, limit=limit, preset=preset, config=config, expand=expand, reranker=reranker, explain=explain
        )

    @property
    def _recall(self) -> Recaller:
        if self._recaller is None:
            from skep.recall.search import Recaller

            self._recaller = Recaller(self._engine)
        return self._recaller

    # Settings, replication, whole-file work

    def setting(self, key: str) -> Any:
        """A setting kept in the bank; None if it is not set."""
        return self._engine.store.setting(key)

    def settings(self, prefix: str = "") -> dict[str, Any]:
        """Every setting whose key starts with a prefix."""
        return self._engine.store.settings_under(prefix)

    def set_setting(self, key: str, value: Any) -> Event:
        """Keep a value in the bank, in the log like everything else; the last writer wins. None removes it."""
        return self._write("setting", {"key": clean_text("key", key, 500), "value": msgspec.to_builtins(value)})

    def versions(self) -> dict[str, int]:
        """Per actor, the counter up to which every event is here."""
        return self._engine.store.log.versions()

    def events(self, since: Mapping[str, int] | None = None) -> Iterator[Event]:
        """The events that a replica with these versions lacks."""
        return self._engine.store.log.lacking(since or {})

    def apply(self, events: Iterable[Event]) -> Applied:
        """Take events of another replica; each counts once, whatever the order."""
        self._engine.embeddings.adopt()
        applied = self._engine.store.apply(events, now=self._engine.now(), embed=self._engine.embeddings.in_place)
        clean_derived(self._engine, applied.forgotten_rows)
        self._engine.embeddings.work()
        return applied

    def status(self) -> BankStatus:
        """Counts, sizes, the embedder and its backlog."""
        return _status(self._engine)

    def export(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
        """Write everything to a file of JSON lines, links and history included; the number of events."""
        target = Path(path)
        partial = target.with_name(target.name + ".partial")
        total = self._engine.store.log.last_seq()
        count = -1
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            for line in export_lines(self._engine.store):
                file.write(line + b"\n")
                count += 1
                if progress is not None and count % 1000 == 0:
                    progress(max(0, count), total)
        os.replace(partial, target)
        return count

    def export_lines(self) -> Iterator[bytes]:
        """The lines of an export."""
        return export_lines(self._engine.store)

    def import_preview(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """What importing a file would bring, without doing it."""
        mine = self.versions()
        with Path(path).open("rb") as file:
            events = list(read_lines(file, where=Path(path).name))
        new = sum(event.counter > mine.get(event.actor, 0) for event in events)
        return {"new": new, "known": len(events) - new}

    def import_(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Applied:
        """Take in an export; what is already here is left as it is. A damaged file changes nothing."""
        source = Path(path)
        if not source.is_file():
            raise NotFoundError(f"there is no file {source}")
        with source.open("rb") as file:
            events = list(read_lines(file, where=source.name))
        done = Applied()
        for number, group in enumerate(batches(events, BULK)):
            applied = self.apply(group)
            done = Applied(
                new=done.new + applied.new, known=done.known + applied.known, held=applied.held, erased=applied.erased
            )
            if progress is not None:
                progress(min(len(events), (number + 1) * BULK), len(events))
        return done

    def backup(self, path: str | os.PathLike[str]) -> Path:
        """Copy the bank to a file while it is in use; `forget` reaches the copy too."""
        target = Path(path)
        if self.file is not None and target.resolve() == self.file.resolve():
            raise InvalidInputError("a bank cannot be backed up onto itself; choose another path", field="path")
        self._engine.store.backup(target, self._engine.now())
        return target

    def reembed(self, progress: Progress | None = None) -> int:
        """Embed everything that waits, with a new model or after failures; how many were embedded."""
        return self._engine.embeddings.drain(progress)

    def doctor(self, *, deep: bool = False) -> list[Finding]:
        """What was looked at, what is wrong, and how to mend it."""
        return [*examine(self._engine.store, deep=deep), *_index_findings(self._engine)]

    def mend(self) -> list[str]:
        """Rebuild from the log what can be rebuilt; what was done."""
        done = mend(self._engine.store)
        self._engine.index.drop()
        self._engine.index.refresh()
        return [*done, "rebuilt the index of words and vectors"]


def _own_embedder(store: SqliteStore) -> tuple[Embedder, str | None]:
    """The embedder a bank was made with, if it can be had by name; else the bundled one."""
    space = store.active_space()
    if space is not None and space.spec is not None:
        return open_embedder(space.spec), space.spec
    return default_embedder(), "static"


def _index_findings(engine: Engine) -> list[Finding]:
    engine.index.refresh()
    stats = engine.index.stats()
    rows = engine.store.connection.one("SELECT count(*) FROM memories WHERE forgotten = 0")
    if stats.rows == rows:
        return [Finding(check="index", level="ok", message=f"{rows} memories in {stats.segments} segments and the tail")]
    return [
        Finding(
            check="index",
            level="error",
            message=f"the index knows {stats.rows} of {rows} memories",
            fix="skep doctor --mend",
        )
    ]


def _status(engine: Engine) -> BankStatus:
    from skep.storage.counts import counts

    found = counts(engine.store)
    space = engine.store.active_space()
    building = engine.store.building_space()
    return BankStatus(
        path=str(engine.store.path) if engine.store.path else None,
        memories=found.by_status.get("active", 0) + found.by_status.get("pending", 0),
        pending=found.by_status.get("pending", 0),
        by_status=found.by_status,
        by_kind=found.by_kind,
        events=found.events,
        links=found.links,
        actor=engine.store.actor,
        embedder=space.fingerprint if space else engine.embeddings.embedder.fingerprint,
        reembedding=engine.store.vectors.waiting(building.number) if building else 0,
        embed_error=engine.embeddings.last_error(),
        size_bytes=found.size_bytes,
        index_bytes=found.index_bytes,
        versions=engine.store.log.versions(),
        schema=found.schema,
        held=found.held,
    )


__all__ = ["Bank", "BankStatus", "Page", "refuse_unknown"]
