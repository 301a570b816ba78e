"""The embedder at work on one open bank, the failures it had, and the queue of texts that wait for it.

The engine holds one `Embeddings`. Vectors of two embedders never meet: each has its own space, and exactly one space is
active. A small write is embedded in place; a large one is stored with drafts, where the embedder has any, and a
background thread embeds it. When the embedder of a bank changes, the old space answers until the new one is complete.
It reads and writes vectors through the store, never memories.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from skep import runtime
from skep.clock import Now
from skep.config import Settings
from skep.embedding.embedder import (
    Calibration,
    Embedder,
    Opener,
    embedded,
    guarded,
    open_embedder,
    sampled,
    spec_of,
)
from skep.embedding.embedding_queue import Pending
from skep.errors import (
    BusyError,
    EmbedderMismatchError,
    EmbedderUnavailableError,
    EmbeddingError,
    SkepError,
    StorageError,
)
from skep.model import NOT_READ, WORDS_ALONE
from skep.storage.store import Store
from skep.storage.vectors import Made, Space, packed, unpacked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.embedding_queue import EmbedWorker
    from skep.storage.queries import Present


OUTAGE_SECONDS = 30.0
"""Seconds for which an embedder that failed is not asked again by a question."""


class Outages:
    """The last failure of each embedder, by fingerprint, so that not every question waits for one that is down.

    Single assignments: safe to share between threads.
    """

    def __init__(self, now: Now) -> None:
        self._now = now
        self._until: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def note(self, name: str, error: str, *, lasting: bool = True) -> None:
        """An embedder failed. Where that was the fault of one text, it is not lasting and the next may ask."""
        self._said[name] = error
        if lasting:
            self._until[name] = self._now() + OUTAGE_SECONDS

    def over(self, name: str) -> None:
        """It answered."""
        if self._said:
            self._said.pop(name, None)
            self._until.pop(name, None)

    def now(self, name: str) -> str | None:
        """The error of an embedder that failed, while it need not be asked again."""
        until = self._until.get(name)
        if until is None:
            return None
        if not until - OUTAGE_SECONDS <= self._now() < until:  # a clock set back does not prolong it
            self._until.pop(name, None)
            return None
        return self._said.get(name)

    def last(self) -> str | None:
        """The error of the last embedder to fail, until it answers again."""
        said = list(self._said.values())
        return said[-1] if said else None


QUERIES = 256
"""Queries whose vectors are kept."""
QUERY_SECONDS = 5.0
"""Seconds that a question waits for a service; without an answer it goes by words."""
LASTING = (EmbedderUnavailableError, EmbedderMismatchError)
"""Failures that are not the fault of one text: for a while, nothing else is asked."""
UNNAMED = ""
"""An embedder that cannot name itself yet, because its service has to be asked for the length of its vectors."""
Progress = Callable[[int, int], None]
"""Called with the number of texts that are done and the number of all."""


class Asked(NamedTuple):
    """The vector of a question, and a note where it is missing or meets vectors that are not the model's own yet."""

    vector: NDArray[np.float32] | None
    reason: str = ""
    passing: bool = False
    """True where the next answer may differ though nothing is written: it is not to be remembered."""
    space: str = ""
    """The fingerprint of the model that made the vector."""


class Embeddings:
    """The embedder of a bank: vectors of questions and of new texts, the queue and its workers, the change of model."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        spec: str | None,
        now: Now,
        *,
        settings: Settings | None = None,
        adopts: bool = True,
        opener: Opener = open_embedder,
    ) -> None:
        self.store = store
        self._settings = settings or Settings()
        self._now = now
        self.embedder = embedder
        self.spec = spec
        self.opener = opener
        self.outages = Outages(now)
        self._fingerprint: str | None = None
        self._old: tuple[str, Embedder | None, str] | None = None
        """The fingerprint of a space that another embedder made, and that embedder, or why it cannot be had."""
        self._adopted = not adopts
        self._begun = False
        self._workers: dict[int, EmbedWorker] = {}
        self._measured: set[str] = set()
        """Embedders that are not instant and have told their scale."""
        self._scales: dict[str, Calibration] = {}
        """The scales of embedders that have no `calibration`, by fingerprint."""
        self._lock = threading.Lock()
        """Of the workers. Whoever needs the connection as well takes that first: it may be held already."""
        self._asked_lock = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()
        """Vectors of recent queries: they depend on the text and the embedder alone, so no write makes them wrong."""
        self.filled: Callable[[Sequence[int]], None] | None = None
        """Called with the rows that a worker has embedded."""
        runtime.watch(self)

    def forked(self) -> None:
        """In a child: the threads that work or hold a lock are not here."""
        self._workers = {}
        self._begun = False
        self._lock = threading.Lock()
        self._asked_lock = threading.Lock()

    @property
    def name(self) -> str | None:
        """The fingerprint of the embedder; None while its service has to be asked for it and does not answer."""
        if self._fingerprint is None and self.outages.now(UNNAMED) is None:
            try:
                self._fingerprint = self.embedder.fingerprint
            except EmbeddingError as error:
                self.outages.note(UNNAMED, str(error))
                return None
            self.outages.over(UNNAMED)
        return self._fingerprint

    def adopt(self) -> None:
        """Give the embedder its space; done before the first write or search, so that opening costs nothing."""
        if not self._adopted:
            name = self.name
            if name is None:
                return  # what is written meanwhile is queued when the space is made
            building = self.store.adopt(name, self.embedder.dim, self.spec)
            self._adopted = True
            if building is not None:
                self._begun = False
                self.at_hand()

    def keep(self) -> None:
        """Stay with the embedder, where its vectors are the active ones: a change that is under way is given up."""
        self.adopt()
        active = self.store.active_space()
        if active is not None and active.fingerprint == self.name:
            self.store.keep_active()

    def before_reading(self) -> None:
        """`adopt` for a reader, which may be one that leaves the file alone."""
        if not (self._adopted or self._settings.pure_reads):
            self.adopt()
        if not self._begun:
            self.begin()

    def begin(self) -> None:
        """On the first use: start the background workers, so that a bank that is only read embeds what waits, too."""
        if not self._begun:
            self._begun = True
            if self._settings.embed_when_read:
                self.work(queued=False)

    def for_space(self, space: Space) -> Embedder | None:
        """The embedder that made a space; None if it cannot be had any more."""
        if space.fingerprint == (self._fingerprint or self.name):
            return self.embedder
        old = self._old
        if old is None or old[0] != space.fingerprint:
            old = self._old = (space.fingerprint, *_opened(space, self.opener))
        return old[1]

    def absence(self, space: Space) -> str:
        """The reason why the embedder of a space cannot be had; empty if it can."""
        if self.for_space(space) is not None or self._old is None:
            return ""
        return f"the model behind the stored vectors ({space.fingerprint}) is not at hand: {self._old[2]}"

    @property
    def model(self) -> bool:
        """True where a model made the vectors that answer now, and not a table of words: its cosines weigh more.

        It asks the store for the active space: call it inside a snapshot, where that costs nothing.
        """
        space = self.store.active_space()
        embedder = self.for_space(space) if space is not None else None
        return not (embedder or self.embedder).instant

    def ready(self) -> bool:
        """Get ready for a question, before anything is held; True where that may have to wait for its vector."""
        self.before_reading()
        old = self._old
        return not self.embedder.instant or (old is not None and old[1] is not None and not old[1].instant)

    def query_vector(self, text: str) -> NDArray[np.float32] | None:
        """The vector of a query in the active space; None when there is none to be had."""
        return self.asked(text).vector

    def asked(self, text: str, present: Present | None = None) -> Asked:
        """The vector of a query in the active space, or why the question goes by words. Never raises."""
        self.before_reading()
        if present is None:
            present = self.store.present()
        space = present.active
        if space is None:
            said = self.outages.now(UNNAMED)
            return Asked(None, _words_alone(said), passing=True) if said else Asked(None)
        embedder = self.for_space(space)
        if embedder is None:
            return Asked(
                None, f"{_words_alone(self.absence(space))}; until `skep reembed` has changed the model"
            )
        found = self._ask(embedder, space, text)
        note = "" if found.vector is None else self._progress(present)
        return found._replace(reason=note, passing=True) if note else found

    def _progress(self, present: Present) -> str:
        """A note on what the model has not read yet, and what stands in for it; empty where it has read everything."""
        active = present.active
        building = next((space for space in present.spaces if space.state == "building"), None)
        if building is not None and active is not None:
            left = self.store.vectors.waiting(building.number)
            return f"{_memories(left)} {NOT_READ} {building.name} yet; {active.name} answers until then"
        if active is None or self.embedder.instant or not present.waiting:
            return ""
        left = self.store.vectors.waiting(active.number)
        stand_in = "words and rough vectors" if hasattr(self.for_space(active), "draft") else "words"
        return f"{_memories(left)} {NOT_READ} {active.name} yet and found by {stand_in} until then"

    def at_once(self, text: str, memory_id: str = "") -> NDArray[np.float32] | None:
        """The vector of a memory for comparing it with others; None where only a slow embedder could make it.

        Of an embedder that is not instant the stored vector is used. A memory that is not stored yet has no id.
        """
        self.before_reading()
        space = self.store.active_space()
        embedder = self.for_space(space) if space is not None else None
        if space is None or embedder is None:
            return None
        kept = None
        if memory_id and not embedder.instant:
            rows = self.store.rows_of([memory_id]).values()
            kept = next(iter(self.store.vectors_of(list(rows)).values()), None)
        if kept is None:
            return self._ask(embedder, space, text).vector if _small(embedder, [text]) else None
        return unpacked([kept], space.dim)[0] if self._scaled(embedder, space.fingerprint) else None

    def _ask(self, embedder: Embedder, space: Space, text: str) -> Asked:
        key = (space.fingerprint, text)
        with self._asked_lock:
            known = self._asked.get(key)
            if known is not None:
                self._asked.move_to_end(key)
                return Asked(known, "", False, key[0])
        said = self.outages.now(space.fingerprint)
        if said is not None:
            return Asked(None, _words_alone(said), passing=True)
        once = getattr(embedder, "embed_once", None)
        ask = partial(embedder.embed, [text]) if once is None else partial(once, [text], QUERY_SECONDS)
        try:
            rows = embedded(ask, 1, space.dim, space.fingerprint)
        except EmbeddingError as error:
            self._note(space.fingerprint, error)
            return Asked(None, _words_alone(str(error)), passing=True)
        vector = rows[0].copy()  # what it gave may be used again by its owner
        self.outages.over(space.fingerprint)
        if not self._scaled(embedder, space.fingerprint):
            return Asked(None, _words_alone(self.outages.last() or ""), passing=True)
        vector.setflags(write=False)
        with self._asked_lock:
            self._asked[key] = vector
            if len(self._asked) > QUERIES:
                self._asked.popitem(last=False)
        return Asked(vector, "", False, space.fingerprint)

    def _note(self, name: str, error: EmbeddingError) -> None:
        """Note that an embedder failed."""
        self.outages.note(name, str(error), lasting=isinstance(error, LASTING))

    def _scaled(self, embedder: Embedder, name: str) -> bool:
        """True where cosines can be put on the common scale. A service is asked for its scale once."""
        if embedder.instant or name in self._measured:
            return True
        if self.outages.now(name) is not None:
            return False
        try:
            guarded(name, lambda: embedder.calibrate(0.0))
        except EmbeddingError as error:
            self._note(name, error)
            return False
        self._measured.add(name)
        return True

    def at_hand(self) -> bool:
        """True where queries can be embedded with the model that made the stored vectors."""
        space = self.store.active_space()
        return space is None or self.for_space(space) is not None

    def _scale_of(self, space: Space | None) -> Embedder | None:
        """The embedder of a space; None where its scale cannot be had, and cosines are taken as they are."""
        embedder = self.for_space(space) if space is not None else None
        if space is None or embedder is None or not self._scaled(embedder, space.fingerprint):
            return None
        return embedder

    def calibrate(self, cosine: float) -> float:
        """A raw cosine of the active space on the common scale."""
        embedder = self._scale_of(self.store.active_space())
        return embedder.calibrate(cosine) if embedder is not None else cosine

    def _scale(self, embedder: Embedder) -> Calibration:
        """The scale of an embedder; one of another kind than ours is read off at many points, once."""
        own = getattr(embedder, "calibration", None)
        if isinstance(own, Calibration):
            return own
        name = embedder.fingerprint
        if name not in self._scales:
            self._scales[name] = sampled(embedder.calibrate)
        return self._scales[name]

    def scale(self, space: Space | None) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """The map from raw cosines of a space to the common scale; nan stays nan."""
        embedder = self._scale_of(space)
        return (lambda cosines: cosines) if embedder is None else self._scale(embedder).many

    def calibrate_many(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """Raw cosines of the active space on the common scale; nan stays nan."""
        return self.scale(self.store.active_space())(cosines)

    def in_place(self, texts: Sequence[str], spaces: Sequence[Space]) -> Mapping[int, Made]:
        """Vectors of new texts, for each space whose embedder makes them at once; drafts where it can only do that.

        Texts of a space that is missing here are left to the queue. So are those that an embedder fails at: a memory is
        stored whatever its embedder does.
        """
        made: dict[int, Made] = {}
        for space in spaces:
            embedder = self.for_space(space)
            if embedder is None:
                continue
            # One that was searched with just now, as texts are before they are written. Nobody waits for a dict.
            known = self._asked.get((space.fingerprint, texts[0])) if len(texts) == 1 else None
            if known is not None and known.shape == (space.dim,):
                made[space.number] = Made(packed(known[None]))
                continue
            small = _small(embedder, texts)
            embed = embedder.embed if small else getattr(embedder, "draft", None)
            if embed is None or (not small and space.state != "active"):
                continue
            try:
                rows = embedded(partial(embed, texts), len(texts), space.dim, space.fingerprint)
                made[space.number] = Made(packed(rows), drafts=not small)
            except EmbeddingError as error:
                self._note(space.fingerprint, error)
        return made

    def backlog(self) -> int:
        """The number of memories that wait for a vector in the active space."""
        space = self.store.active_space()
        return self.store.vectors.waiting(space.number) if space else 0

    def drain(self, progress: Progress | None = None, *, insist: bool = False) -> int:
        """Embed everything that waits, here and now, and give its number. Resumes where a crash left off.

        Args:
            progress: Called after each batch.
            insist: Also embed texts that failed a moment ago, and texts that another process was given and may have
                died over. Without it, those wait for their time.
        """
        self.adopt()
        if insist and not self._adopted:
            raise EmbedderUnavailableError(
                f"{self.outages.last()}; the length of its vectors cannot be asked for: start it and try again, or"
                " name the length, as in 'ollama:MODEL@768'"
            )
        paused = self.stop()  # what a worker has in hand is done by it, or handed back
        begun, self._begun = self._begun, True  # whoever reads meanwhile starts no worker
        done = 0
        try:
            for space in self.store.vectors.spaces():
                total = self.store.vectors.waiting(space.number)
                if not total or self.for_space(space) is None:
                    continue
                worker = self._worker(space, insist=insist)
                finished = 0
                while not (step := worker.run_once()).idle:
                    finished += step.embedded
                    if progress is not None:
                        progress(min(finished, total), total)
                    if step.unavailable:
                        break
                done += finished
            self.switch()
        finally:
            self._begun = begun
            if paused:
                self.work(queued=False)
        return done

    def drain_few(self) -> None:
        """Embed what waits in the active space where a caller may wait for that; otherwise leave it to words."""
        space = self.store.active_space()
        embedder = self.for_space(space) if space is not None else None
        if space is None or embedder is None:
            return
        if embedder.instant or _small(embedder, ["x" * 64] * self.store.vectors.waiting(space.number)):
            self.drain()

    def switch(self) -> bool:
        """Let recall use the new space once it is complete."""
        building = self.store.building_space()
        return building is not None and self.store.activate(building.number)

    def work(self, *, queued: bool = True) -> None:
        """Start the background workers that the queue needs, if any.

        A slow embedder has one from then on, because other processes may queue something, too.

        Args:
            queued: True where there is something new. Closing the bank gives the worker time for one look at that.
        """
        if self.store.read_only:
            return
        if self._fingerprint is None:  # its service is asked for it while nothing is held
            for space in self.store.present().spaces:
                self.for_space(space)
        with self.store.lock, self._lock:
            for space in self.store.present().spaces:
                worker = self._workers.get(space.number)
                if worker is None:
                    embedder = self.for_space(space)
                    if embedder is None:
                        continue
                    idle = space.state == "active" and embedder.instant
                    if idle and not self.store.vectors.waiting(space.number):
                        continue
                    worker = self._workers[space.number] = self._worker(space)
                if queued:
                    worker.wake()
                worker.start()

    def stop(self) -> bool:
        """End the background workers, and say if there were any. Texts that they have not embedded stay queued."""
        with self._lock:
            workers, self._workers = self._workers, {}
        for worker in workers.values():  # outside the lock: it ends only after a write that may wait for us
            worker.stop(self._settings.close_seconds)
        return bool(workers)

    def _worker(self, space: Space, *, insist: bool = False) -> EmbedWorker:
        from skep.embedding.embedding_queue import EmbedWorker

        embedder = self.for_space(space)
        if embedder is None:
            raise EmbedderMismatchError(
                f"the embedder {space.fingerprint!r} is not at hand; open the bank with it, or run `skep reembed`"
            )

        def stored(rows: Sequence[int], complete: bool) -> None:
            self.outages.over(space.fingerprint)
            if complete:
                self.switch()
            if self.filled is not None and rows:
                self.filled(rows)

        source = (Insisting if insist else Waiting)(self.store, space, stored)
        return EmbedWorker(source, embedder, clock=self._now, patient=insist)

    def last_error(self) -> str | None:
        """The reason why embedding last failed; None once it works again."""
        space = self.store.building_space() or self.store.active_space()
        said = self.store.vectors.last_error(space.number) if space else None
        with self._lock:
            working = [worker.last_error for worker in self._workers.values() if worker.last_error]
        return said or self.outages.last() or next(iter(working), None)


def _opened(space: Space, opener: Opener) -> tuple[Embedder | None, str]:
    """The embedder that a space names, or None and why."""
    spec = spec_of(space.spec, space.fingerprint)
    if spec is None:
        return None, "open the bank with it"
    try:
        embedder = opener(spec, known_dim=space.dim)
        if embedder.fingerprint == space.fingerprint:
            return embedder, ""
    except SkepError as error:
        return None, str(error)
    return None, f"{spec} is another model by now, {embedder.fingerprint}"


def _small(embedder: Embedder, texts: Sequence[str]) -> bool:
    """True where a caller may wait for the vectors of these texts."""
    at_once = getattr(embedder, "at_once", None)
    return embedder.instant or (at_once is not None and at_once(texts))


def _memories(count: int) -> str:
    return f"{count} memor{'y' if count == 1 else 'ies'}"


def _words_alone(why: str) -> str:
    return f"{WORDS_ALONE}: {why}"


LEASE_SECONDS = 120.0
"""Seconds for which rows handed to one process are kept from the others; a crash costs this much delay."""


class Waiting:
    """The queue of one space.

    Args:
        store: The bank.
        space: The space.
        stored: Called after vectors were stored, with their rows and whether nothing waits any more.
    """

    def __init__(self, store: Store, space: Space, stored: Callable[[Sequence[int], bool], None]) -> None:
        self._store = store
        self._space = space
        self._stored = stored
        self._claimed: dict[int, str] = {}
        self._lease_end = 0.0

    def pending(self, limit: int, now: float) -> list[Pending] | None:
        """See `Source`. Looking costs no write; a space that was given up has nothing any more."""
        if self._store.vectors.due(self._space.number, now):
            return self._claim(limit, now)
        space = next(
            (space for space in self._store.present().spaces if space.number == self._space.number), None
        )
        if space is None:
            return None
        if space.state == "building" and not self._store.vectors.waiting(space.number):
            self._stored((), True)  # whoever made the last vector did not live to say so
        return []

    def _claim(self, limit: int, now: float, *, after: int = -1, which: str = "due") -> list[Pending]:
        with self._store.transaction():
            claimed = self._store.vectors.claim(
                self._space.number, limit, now, LEASE_SECONDS, after=after, which=which
            )
        self._claimed = {row: text for row, text, _attempts in claimed}
        self._lease_end = now + LEASE_SECONDS
        return claimed

    def release(self) -> None:
        """Give back what was handed out and not done, so that the next one need not wait for it."""
        try:
            with self._store.impatient(), self._store.transaction():
                self._store.vectors.release(self._space.number, self._claimed, self._lease_end)
        except (BusyError, StorageError):
            return  # somebody writes, or nobody can: it comes free by itself when the lease ends

    def store_vectors(self, rows: Sequence[int], vectors: Any, fingerprint: str) -> None:
        """See `Source`."""
        if fingerprint != self._space.fingerprint:
            raise EmbedderMismatchError(
                f"vectors of {fingerprint!r} do not belong in {self._space.fingerprint!r}"
            )
        if vectors.shape[1] != self._space.dim:
            raise EmbeddingError(f"expected {self._space.dim} dimensions, got {vectors.shape[1]}")
        self._store.put_vectors(
            self._space.number, rows, packed(vectors), [self._claimed[row] for row in rows]
        )
        self._stored(rows, not self._store.vectors.waiting(self._space.number))

    def record_failure(self, rows: Sequence[int], error: str, retry_at: float) -> None:
        """See `Source`."""
        with self._store.transaction():
            self._store.vectors.failed(self._space.number, rows, error, retry_at)


class Insisting(Waiting):
    """The queue of one space for a caller who waits: each row once, whatever the time it was to be tried again.

    First what is nobody's, or failed before; then what another process was given, which may be dead by now. If it is
    not, those rows are embedded twice, to the same vectors.
    """

    def __init__(self, store: Store, space: Space, stored: Callable[[Sequence[int], bool], None]) -> None:
        super().__init__(store, space, stored)
        self._passes = ["due or failed", "not failed"]
        self._last = -1

    def pending(self, limit: int, now: float) -> list[Pending]:
        """See `Source`."""
        while self._passes:
            claimed = self._claim(limit, now, after=self._last, which=self._passes[0])
            if claimed:
                self._last = claimed[-1][0]
                return claimed
            self._passes.pop(0)
            self._last = -1
        return []
