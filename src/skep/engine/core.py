"""The engine: what every room above needs of an open bank."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from skep import forking
from skep.clock import Now, system_now
from skep.config import Settings
from skep.embedding import Opener, open_embedder
from skep.embedding.base import Embedder
from skep.engine.embeddings import Embeddings
from skep.errors import BusyError, DiskFullError, ForgottenError, NotFoundError
from skep.loading import undisturbed
from skep.model import Event, Memory
from skep.storage.sqlite import Plan, SqliteStore
from skep.validation import clean_id

if TYPE_CHECKING:
    from os import PathLike

    from skep.storage.segments import SegmentIndex
    from skep.storage.tables import Changes

Sign = Callable[[Event], bytes]
_set = msgspec.structs.force_setattr
CHANGES = frozenset(
    ("revise", "retract", "restore", "evidence", "mark", "supersede", "merge", "link", "unlink", "undo")
)
"""Kinds of events that change what somebody wrote; a confirmation and a dispute name their author themselves."""


class Engine:
    """The store, the index and the embedder of one bank, and the one way to write to it."""

    def __init__(
        self,
        store: SqliteStore,
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
        self.store.clock = now
        self.settings = settings
        self.now = now
        self.frozen = frozen
        """A view of the past: nothing may be written, nor derived on disk."""
        self.sign: Sign | None = None
        self.author: Callable[[], str | None] | None = None
        """Who acts, where several share the bank: named in every change to a memory (`by`)."""
        self.embeddings = Embeddings(
            store,
            embedder,
            spec,
            system_now if frozen else now,
            settings=settings,
            adopts=adopts,
            opener=opener,
        )
        self._index_folder = index_folder
        self._index: SegmentIndex | None = None
        self._uses: Counter[str] = Counter()
        self._recalls = 0
        self._use_lock = threading.Lock()
        self.erased: set[str] = set()
        """What was forgotten through this engine: whoever still holds a copy of it shows it no more."""
        forking.watch(self)

    def forked(self) -> None:
        """In a child: what was counted so far is the parent's to write."""
        self._use_lock = threading.Lock()
        self._uses, self._recalls = Counter(), 0

    @property
    def index(self) -> SegmentIndex:
        """The derived index of words and vectors, up to date."""
        if self._index is None:
            self.embeddings.before_reading()
            with self.store.connection.lock:  # two threads may ask for it first at the same time
                if self._index is None:
                    self._index = self._opened()
        return self._index

    def _opened(self) -> SegmentIndex:
        with undisturbed():
            from skep.storage.segments import SegmentIndex

        return SegmentIndex(
            self._index_folder,
            self.store,
            read_only=self.frozen or self.store.read_only,
            lock=self.store.connection.lock,
        )

    def write(
        self,
        plans: Sequence[Plan],
        *,
        check: Callable[[], None] | None = None,
        accept: Callable[[Changes], None] | None = None,
    ) -> tuple[list[Event], Changes]:
        """Write events and all they mean; slow embedding is left to the queue."""
        self.embeddings.adopt()
        by = self.author() if self.author is not None else None
        if by is not None:
            plans = [_named(plan, by) for plan in plans]
        events, changes = self.store.write(
            plans, now=self.now(), embed=self.embeddings.in_place, sign=self.sign, check=check, accept=accept
        )
        if changes.waiting:
            self.embeddings.work()
        self.embeddings.begin()
        if self.settings.pure_reads:
            self.flush_uses()
        return events, changes

    def revise(self, memory_id: str, changes: dict[str, Any]) -> Memory:
        """Write a revision; the memory as it then is, or an error that says what became of it."""

        def known(done: Changes) -> None:
            if done.unknown:
                self._missing(memory_id)

        _events, done = self.write([("revise", {"memory": memory_id, "changes": changes})], accept=known)
        found = done.revised.get(memory_id)
        return self.memory(memory_id) if found is None or found.expires_at is not None else found

    def as_stored(self, changes: Changes) -> list[Memory]:
        """The new memories of a write, as reading them back would give them."""
        embedder = changes.embedder
        made = [memory for _row, memory, _text in changes.created]
        if (
            changes.waiting
            or embedder is None
            or (changes.beyond and any(m.expires_at is not None for m in made))
        ):
            found = self.store.memories([row for row, _m, _t in changes.created])
            return [found[row] for row, _m, _t in changes.created]
        for memory in made:  # nobody has seen them yet, so they need not be copied
            _set(memory, "embedder", embedder)
        return made

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
                with self.store.connection.impatient():
                    self.store.write([("use", {"counts": counts, "at": now})], now=now)
            except (BusyError, DiskFullError):
                with (
                    self._use_lock
                ):  # statistics only: a reader never waits for a writer; counted the next time
                    self._uses.update(counts)

    def position(self) -> tuple[int, int]:
        """Where the bank stands; equal positions mean that every read gives the same answer."""
        return self.store.position()

    def close(self) -> None:
        """Stop the workers, write what is still in memory, release the file."""
        self.embeddings.stop()
        try:
            if not (self.frozen or self.store.read_only or self.settings.pure_reads):
                self.flush_uses()
        finally:
            self.store.close()

    def setting(self, key: str) -> Any:
        """A setting of the bank."""
        return self.store.setting(key)


def _named(plan: Plan, by: str) -> Plan:
    """A change to a memory, with the name of whoever makes it."""
    kind, body = plan
    if kind not in CHANGES:
        return plan
    if callable(body):
        return kind, lambda ids: {"by": by, **body(ids)}
    return kind, {"by": by, **body}
