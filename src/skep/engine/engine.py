"""One open bank put together: store, index and embedder behind one door; and forgetting, which reaches all three.

Every room above calls the `Engine` to read and write, and touches nothing inside it. `forget` erases memories from
rows, log, words, vectors, index segments and the backups the bank made. `moved_with` finds the events by which merges
led links to another memory, so that forgetting can take them back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import msgspec

from skep import runtime
from skep.clock import Now, system_now
from skep.config import Settings
from skep.embedding.embedder import Embedder, Opener, open_embedder
from skep.engine.embeddings import Embeddings
from skep.errors import BusyError, DiskFullError, ForgottenError, NotFoundError, SkepError, VersionError
from skep.events import VERSIONED, mentioned, voided
from skep.model import Event, Link, Memory, Receipt
from skep.storage.event_log import Log, scrubbed_body
from skep.storage.sqlite_store import SqliteStore
from skep.storage.store import Plan, Store
from skep.validation import clean_id

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from skep.index.index import SegmentIndex
    from skep.storage.memory_tables import Changes

    Floats = NDArray[np.float32]

Sign = Callable[[Event], bytes]
CHANGES = frozenset(
    ("revise", "retract", "restore", "evidence", "mark", "supersede", "merge", "link", "unlink", "undo")
)
"""Kinds of events that change what somebody wrote; a confirmation and a dispute name their author themselves."""


class Nearest(NamedTuple):
    """The stored memories nearest to a new one, as the search before its write found them."""

    vector: Floats
    """That of the new memory."""
    memories: Sequence[Memory]
    vectors: Floats
    """One row for each of them."""
    head: int
    """The newest change that was searched."""


class Reader(Protocol):
    """Says what later texts do to earlier ones by reading both; see `semantics.pair_reader`."""

    def known(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """What it said of pairs, nan for those that were not read."""
        ...

    def __call__(self, pairs: Sequence[tuple[str, str]], worth: Floats, most: int = 8) -> Floats:
        """The same; those that are worth most are read now."""
        ...

    def read_near(self, rows: Sequence[int], *, behind: bool = False) -> None:
        """Read new memories with those near to them."""
        ...

    def read_with(self, memory: Memory, nearest: Nearest) -> None:
        """The same for one memory whose neighbours were found before it was written."""
        ...


class Engine:
    """The store, the index and the embedder of one bank, and the one way to write to it."""

    guard: Callable[[list[Plan], str], list[Plan]] | None = None
    """In a hive: refuses what an agent may not do, and weighs what it says by the trust in it."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        *,
        spec: str | None,
        settings: Settings,
        now: Now,
        index_folder: str | PathLike[str] | None = None,
        frozen: bool = False,
        adopts: bool = True,
        opener: Opener = open_embedder,
    ) -> None:
        self.store = store
        """For the hive and for functions of the storage room that take a whole store; others call the engine."""
        store.clock = now
        self.log, self.lock = store.log, store.lock
        self.leases = store.leases
        # What rooms above read and write of the store, under the engine's own name; see `Store` for each.
        self.snapshot, self.transaction, self.writing = store.snapshot, store.transaction, store.writing
        self.get, self.memories, self.find = store.get, store.memories, store.find
        self.size, self.trials, self.procedures = store.size, store.trials, store.procedures
        self.due, self.stale_memories, self.changed_memories = (
            store.due,
            store.stale_memories,
            store.changed_memories,
        )
        self.forgotten, self.scopes = store.forgotten, store.scopes
        self.is_forgotten, self.rows_of, self.few_of_scope = (
            store.is_forgotten,
            store.rows_of,
            store.few_of_scope,
        )
        self.admitted, self.admitted_ids, self.around = store.admitted, store.admitted_ids, store.around
        self.texts_of, self.use_counts, self.trust_of = store.texts_of, store.use_counts, store.trust_of
        self.links, self.links_to, self.judged = store.links, store.links_to, store.judged
        self.ids_of, self.present, self.link_sources = store.ids_of, store.present, store.link_sources
        self.heirs, self.contradicted, self.replaced_by = store.heirs, store.contradicted, store.replaced_by
        self.setting, self.settings_of, self.successor = store.setting, store.settings_of, store.successor
        self.settings_under, self.mark, self.set_mark = store.settings_under, store.mark, store.set_mark
        self.changes_of, self.digest, self.renew_name = store.changes_of, store.digest, store.renew_name
        self.note, self.set_note = store.note, store.set_note
        self.head, self.last_seq, self.turn = store.head, store.last_seq, store.turn
        self.position, self.data_version, self.identity = store.position, store.data_version, store.identity
        self.next_boundary, self.active_space = store.next_boundary, store.active_space
        self.building_space = store.building_space
        self.waiting, self.readings = store.vectors.waiting, store.readings
        self.apply, self.copy_to_memory, self.copy_to = store.apply, store.copy_to_memory, store.copy_to
        self.backup, self.backups, self.drop_backup = store.backup, store.backups, store.drop_backup
        self.alone_with_copies = store.alone_with_copies
        self.leftover, self.truncate_wal = store.leftover, store.truncate_wal
        self.limit_memory = store.limit_memory
        self.examine, self.mend, self.counts = store.examine, store.mend, store.counts
        self.export_lines = store.export_lines
        self.settings = settings
        self.now = now
        self.frozen = frozen
        """A view of the past: nothing may be written, nor derived on disk."""
        self.sign: Sign | None = None
        self.author: Callable[[], str | None] | None = None
        """Gives the name of the one who acts, where several share the bank; it is in every change to a memory."""
        self.embeddings = Embeddings(
            store,
            embedder,
            spec,
            system_now if frozen else now,
            settings=settings,
            adopts=adopts,
            opener=opener,
        )
        self.index_folder = index_folder
        self.reader: Reader | None = None
        """Reads pairs of texts together, where vectors come from a model."""
        self._uses: Counter[str] = Counter()
        self._recalls = 0
        self._use_lock = threading.Lock()
        self.erased: set[str] = set()
        """Memories forgotten through this engine: whoever still holds a copy of one shows it no more."""
        runtime.watch(self)

    def forked(self) -> None:
        """In a child: what was counted so far is the parent's to write."""
        self._use_lock = threading.Lock()
        self._uses, self._recalls = Counter(), 0

    @property
    def file(self) -> str | None:
        """The name of the bank's file; None for a bank in memory."""
        return self.store.file

    @property
    def path(self) -> Path | None:
        """The bank's file; None for a bank in memory."""
        return self.store.path

    @property
    def moved(self) -> bool:
        """True if the file that was opened is no longer the one under its name."""
        return self.store.moved

    @property
    def read_only(self) -> bool:
        """True if nothing can be written."""
        return self.store.read_only

    @property
    def name(self) -> str:
        """The actor's name in the file; in a copy that has not written yet, that of the original."""
        return self.store.name

    @property
    def actor(self) -> str:
        """The name under which this file writes."""
        return self.store.actor

    @cached_property
    def index(self) -> SegmentIndex:
        """The derived index of words and vectors."""
        self.embeddings.before_reading()
        with self.lock:  # two threads may ask for it first at the same time
            if "index" not in self.__dict__:
                self.__dict__["index"] = self._opened()
            return self.__dict__["index"]

    def _opened(self) -> SegmentIndex:
        from skep.index.index import SegmentIndex

        read_only = self.frozen or self.store.read_only
        return SegmentIndex(self.index_folder, self.store, read_only=read_only, lock=self.lock)

    def write(
        self,
        plans: Sequence[Plan],
        *,
        check: Callable[[], None] | None = None,
        nearest: Nearest | None = None,
    ) -> tuple[list[Event], Changes]:
        """Write events and all they mean; slow embedding is left to the queue.

        Args:
            plans: The events to be.
            check: Runs inside the transaction, before anything is written; may raise to refuse.
            nearest: The neighbours of the one memory that is written, if they are known; the reader of pairs looks for
                them itself where somebody wrote since.
        """
        self.embeddings.adopt()
        by = self.author() if self.author is not None else None
        if by is not None:
            plans = [_named(plan, by) for plan in plans]
            if self.guard is not None:
                plans = self.guard(plans, by)
        events, changes = self.store.write(
            plans, now=self.now(), embed=self.embeddings.in_place, sign=self.sign, check=check
        )
        if changes.waiting:
            self.embeddings.work()
        elif self.reader is not None and (changes.created or changes.retexted):
            if nearest is not None and nearest.head == changes.head:
                self.reader.read_with(changes.created[0][1], nearest)
            else:
                self.reader.read_near([*(row for row, _memory, _text in changes.created), *changes.retexted])
        self.embeddings.begin()
        if self.settings.pure_reads:
            self.flush_uses()
        return events, changes

    def revise(self, memory_id: str, changes: dict[str, Any], expected_version: int | None = None) -> Memory:
        """Write a revision; the memory as it then is, or an error that says what became of it."""

        def check() -> None:
            if expected_version is None:
                self.known(memory_id)
            elif (memory := self.memory(memory_id)).version != expected_version:
                counted = [event for event in self.log.of(memory_id) if event.kind in VERSIONED]
                raise VersionError(memory, expected_version, tuple(counted[max(expected_version, 1) - 1 :]))

        self.write([("revise", {"memory": memory_id, "changes": changes})], check=check)
        return self.memory(memory_id)

    def as_stored(self, changes: Changes) -> list[Memory]:
        """The new memories of a write, as reading them back would give them."""
        embedder = changes.embedder
        made = [memory for _row, memory, _text in changes.created]
        if embedder is not None and not changes.waiting and all(m.expires_at is None for m in made):
            return [msgspec.structs.replace(memory, embedder=embedder) for memory in made]
        rows = [row for row, _memory, _text in changes.created]
        found = self.store.memories(rows)
        return [found[row] for row in rows]

    def memory(self, memory_id: str) -> Memory:
        """A memory by id, or an error that says what became of it."""
        self.embeddings.begin()
        found = self.store.get(clean_id(memory_id))
        return self._missing(memory_id) if found is None else found

    def validity(self, memory_id: str) -> tuple[float | None, float | None]:
        """Since and until when a memory holds, or an error that says what became of it."""
        found = self.store.validity(clean_id(memory_id))
        return self._missing(memory_id) if found is None else found

    def known(self, *memory_ids: str, field: str = "memory_id") -> None:
        """Raise unless every id names a memory; `field` is the argument that holds them."""
        for memory_id in memory_ids:
            self.validity(clean_id(memory_id, field))

    def _missing(self, memory_id: str) -> NoReturn:
        if self.frozen and not self.store.log.of(memory_id):
            raise NotFoundError(f"there was no memory {memory_id!r} at that time")
        if self.store.is_forgotten(memory_id):
            raise ForgottenError(f"{memory_id} was forgotten; nothing of it is left")
        raise NotFoundError(f"there is no memory {memory_id!r}; `skep list` shows what there is")

    def note_uses(self, memory_ids: Sequence[str]) -> None:
        """Count that memories were handed out. Written to the log in batches: reading stays cheap."""
        if self.frozen or self.store.read_only:
            return
        with self._use_lock:
            self._uses.update(memory_ids)
            self._recalls += 1
            due = self._recalls >= self.settings.flush_uses_every
        if due and not self.settings.pure_reads:
            self.flush_uses()

    def flush_uses(self) -> None:
        """Write the use counters that are still in memory."""
        with self._use_lock:
            counts, self._uses, self._recalls = dict(self._uses), Counter(), 0
        if counts:
            now = self.now()
            try:
                with self.store.impatient():
                    self.store.write([("use", {"counts": counts, "at": now})], now=now)
            except (BusyError, DiskFullError):
                with (
                    self._use_lock
                ):  # statistics only: a reader never waits for a writer; counted the next time
                    self._uses.update(counts)

    def keep_readings(self, outputs: Mapping[int, bytes]) -> bool:
        """Put what the reader said into the bank; False where somebody else writes, or nothing can be written."""
        if self.read_only or self.frozen:
            return False
        try:
            with self.store.impatient(), self.transaction():
                self.readings.put(outputs)
        except (BusyError, DiskFullError):
            return False
        return True

    def close(self) -> None:
        """Stop the workers, write what is still in memory, release the file."""
        self.embeddings.stop()
        try:
            if not (self.frozen or self.store.read_only or self.settings.pure_reads):
                self.flush_uses()
        finally:
            self.store.close()


def _named(plan: Plan, by: str) -> Plan:
    """A change to a memory, with the name of whoever makes it."""
    kind, body = plan
    if kind not in CHANGES:
        return plan
    if callable(body):
        return kind, lambda ids: {"by": by, **body(ids)}
    return kind, {"by": by, **body}


Ends = tuple[str, str, str]


def went_along(log: Log, merge: Event) -> list[Event]:
    """The events that were written with a merge, and what later merges made of its links."""
    about = {event.id: event for name in mentioned(merge) for event in log.of(name)}
    moved = [event for event in about.values() if event.body.get("along") == merge.id]
    return [*moved, *_led_on(log, moved)]


def moved_with(log: Log, memory_id: str) -> list[Event]:
    """The events in force by which links to a copy were moved when it was merged, and then led on."""
    merges = [
        event for event in log.of(memory_id) if event.kind == "merge" and event.body["loser"] == memory_id
    ]
    if not merges:
        return []
    void = voided(log.undos())
    moved = [
        event for merge in merges for event in went_along(log, merge) if event.kind in ("link", "unlink")
    ]
    return [event for event in {event.id: event for event in moved}.values() if event.id not in void]


def _led_on(log: Log, moved: Sequence[Event]) -> list[Event]:
    """The links that stand where later merges led these to; a link that was there for another reason too stays."""
    waiting = [event for event in moved if event.kind == "link"]
    found: dict[str, Event] = {}
    void = voided(log.undos()) if waiting else set[str]()
    while waiting:
        link = waiting.pop()
        ends = _ends(link)
        about = {event.id: event for name in ends[:2] for event in log.of(name) if event.id not in void}
        same = {event.id for event in about.values() if event.kind == "link" and _ends(event) == ends}
        if same - found.keys() - {event.id for event in moved}:
            continue
        for merge in about.values():
            loser = merge.body["loser"] if merge.kind == "merge" else None
            if loser in ends[:2]:
                onward = _led_by(log, merge, ends)
                waiting += [event for event in onward if event.id not in found]
                found |= {event.id: event for event in onward}
    return list(found.values())


def _led_by(log: Log, merge: Event, ends: Ends) -> list[Event]:
    """The links by which a merge replaced one that led to its copy or came from it."""
    loser, winner = merge.body["loser"], merge.body["winner"]
    there = tuple(winner if name == loser else name for name in ends)
    return [
        event
        for event in log.of(winner)
        if event.kind == "link" and event.body.get("along") == merge.id and _ends(event) == there
    ]


def _ends(link: Event) -> Ends:
    return link.body["src"], link.body["dst"], link.body["rel"]


COPY_SECONDS = 5.0
"""Seconds that a copy is waited for that somebody else writes to."""


LinksOf = Callable[[str], Iterable[Link]]
"""The links that touch a memory."""


def derived_from(links_of: LinksOf, memory_ids: Sequence[str]) -> tuple[str, ...]:
    """Memories that were derived from these and may repeat them."""
    links = [link for memory_id in memory_ids for link in links_of(memory_id) if link.dst == memory_id]
    found = dict.fromkeys(link.src for link in links if link.rel == "derived_from")
    return tuple(name for name in found if name not in memory_ids)


def copies_of(links_of: LinksOf, memory_ids: Sequence[str]) -> tuple[str, ...]:
    """Memories that say the same as these: merged with them, in either direction."""
    links = [link for memory_id in memory_ids for link in links_of(memory_id)]
    found = dict.fromkeys(end for link in links if link.rel == "duplicate_of" for end in (link.src, link.dst))
    return tuple(name for name in found if name not in memory_ids)


def repeating(links_of: LinksOf, memory_ids: Iterable[str], goes: Callable[[str], bool]) -> list[str]:
    """The memories, and of all that may repeat them, by whatever chain, those that may go."""
    found = dict.fromkeys(memory_ids)
    waiting = list(found)
    while waiting:
        more = dict.fromkeys((*derived_from(links_of, waiting), *copies_of(links_of, waiting)))
        waiting = [i for i in more if i not in found and goes(i)]
        found |= dict.fromkeys(waiting)
    return list(found)


def forget(
    engine: Engine, memory_ids: Sequence[str], *, dry_run: bool = False, derived: bool = False
) -> Receipt:
    """Erase memories for good; nothing brings them back, no replica and no undo."""
    if derived:
        memory_ids = repeating(engine.links, memory_ids, lambda i: engine.get(i) is not None)
    erased_before = [i for i in memory_ids if engine.store.is_forgotten(i)]
    engine.known(*(i for i in memory_ids if i not in erased_before))
    named, copies = derived_from(engine.links, memory_ids), copies_of(engine.links, memory_ids)
    if dry_run:
        return Receipt(
            memories=tuple(memory_ids),
            erased=_would_erase(engine, memory_ids),
            dry_run=True,
            derived=named,
            copies=copies,
        )
    with engine.store.writing():  # what replaced what is looked at and passed on at one moment
        plans = [*passed_on(engine.store, memory_ids), ("forget", {"memories": list(memory_ids)})]
        events, changes = engine.write(plans)
    engine.erased.update(memory_ids)
    erased = dict(changes.erased)
    erased["segments"] = clean_derived(engine, changes.forgotten_rows)
    if erased_before:  # a crash or an absent disk may have left something the last time
        erased["segments"] += clean_derived(engine, list(engine.store.rows_of(erased_before).values()))
    reached, unreached = forget_in_backups(engine, memory_ids)
    if engine.store.leftover():
        unreached.append(
            f"{engine.store.path}-wal: another program is reading the bank; the text goes with the next write, close,"
            " maintain or doctor after it has finished"
        )
    erased["backups"] = reached
    return Receipt(
        memories=tuple(memory_ids),
        erased=erased,
        event=events[-1].id,
        derived=named,
        copies=copies,
        unreached=tuple(unreached),
    )


def passed_on(store: Store | Engine, memory_ids: Sequence[str]) -> list[Plan]:
    """Events after which what the erased ones had replaced is replaced by what replaced them.

    Of a chain a, b, c only c shows, also once b is gone. What was replaced by the last of its chain stands again, and
    what led to it before it was merged leads to it again. Such a merge brings no evidence: nobody has said anything
    anew. Called in the transaction that forgets.
    """
    gone = set(memory_ids)
    plans: list[Plan] = []
    for memory_id in memory_ids:
        heir, merged = _heir(store, memory_id, gone)
        for old, how in store.replaced_by(memory_id):
            if old in gone or old == heir:
                continue
            if heir is None:
                plans += [
                    ("undo", {"event": event.id, "mentions": list(mentioned(event))})
                    for event in moved_with(store.log, old)
                ]
            elif merged and how == "merged":
                plans.append(("merge", {"loser": old, "winner": heir}))
            else:
                plans.append(("supersede", {"old": old, "new": heir}))
    return plans


def _heir(store: Store | Engine, memory_id: str, gone: set[str]) -> tuple[str | None, bool]:
    """The first of a memory's successors that stays, and whether all on the way there were merged."""
    merged, seen = True, {memory_id}
    while (next_ := store.successor(memory_id)) is not None:
        memory_id, how = next_
        merged = merged and how == "merged"
        if memory_id in seen:
            break
        if memory_id not in gone:
            return memory_id, merged
        seen.add(memory_id)
    return None, False


def clean_derived(engine: Engine, rows: Sequence[int]) -> int:
    """Take forgotten rows out of the index and the write-ahead log; the number of segments rewritten."""
    if not rows:
        return 0
    engine.index.refresh()
    rewritten = engine.index.erase(rows)
    engine.store.truncate_wal()
    return rewritten


def _would_erase(engine: Engine, memory_ids: Sequence[str]) -> dict[str, int]:
    store = engine.store
    rows = store.rows_of(memory_ids)
    return {
        "rows": len(rows),
        "words": len(rows),
        "log": sum(
            scrubbed_body(event) != event.body
            for memory_id in memory_ids
            for event in store.log.of(memory_id)
        ),
        "vectors": sum(
            len(store.vectors.get(space.number, rows.values())) for space in store.vectors.spaces()
        ),
        "links": sum(len(store.links(memory_id, direction="out")) for memory_id in memory_ids),
        "backups": sum(path.exists() for path in store.backups()),
    }


def forget_in_backups(engine: Engine, memory_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Erase from every copy this bank has made; how many held any, and which could not be reached."""
    from skep.storage.bank_export import clear

    reached = 0
    unreached: list[str] = []
    for path in engine.store.backups():
        clear(path)
        if not path.exists():
            unreached.append(
                f"{path}: it is not there now; forget again when it is, or, if it was deleted, say so with `skep backup"
                " --gone`"
            )
            continue
        try:
            with engine.store.alone_with_copies():
                reached += _forget_in_copy(engine, path, memory_ids)
        except SkepError as error:
            unreached.append(f"{path}: {error}")
    return reached, unreached


def forget_meanwhile(engine: Engine, copy: Path) -> None:
    """Erase from a new copy what was forgotten while it was made."""
    from skep.storage.backup import forgotten_since

    with engine.store.alone_with_copies():
        gone = forgotten_since(copy, engine.store)
        if gone:
            _forget_in_copy(engine, copy, gone)


def _forget_in_copy(engine: Engine, path: Path, memory_ids: Sequence[str]) -> int:
    """Erase from one copy; 1 if it held any of them. The copy stays a single file.

    Nobody can write to the bank meanwhile, so a copy that somebody else writes to is not waited for long.
    """
    patience = min(engine.settings.busy_seconds, COPY_SECONDS)
    settings = msgspec.structs.replace(engine.settings, busy_seconds=patience)
    store = SqliteStore.open(path, settings, create=False, copies=False)
    try:
        held = [i for i in store.rows_of(memory_ids) if not store.is_forgotten(i)]
        if held:
            with store.writing():
                store.write([*passed_on(store, held), ("forget", {"memories": held})], now=engine.now())
            store.truncate_wal()
        return bool(held)
    finally:
        store.close_as_one_file()
