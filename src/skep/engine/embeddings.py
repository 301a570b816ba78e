"""The embedder at work on a bank: in place when it is instant, by the queue when it is slow, in the shadow when it
changed. Vectors of two embedders never meet: each has its own space, and exactly one space is active."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skep import forking
from skep.clock import Now
from skep.embedding import open_embedder
from skep.embedding.base import Embedder
from skep.errors import EmbedderMismatchError, EmbeddingError, SkepError
from skep.storage.sqlite import SqliteStore
from skep.storage.vectors import Space

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.queue import EmbedWorker

STEPS = 1001
"""Points at which a scale is read off, and so many cosines are calibrated one by one."""
QUERIES = 256
"""How many queries' vectors are kept."""
LEASE_SECONDS = 120.0
"""For how long rows handed to one process are kept from the others; a crash costs this much delay."""
Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


class Embeddings:
    """What a bank does with its embedder."""

    def __init__(
        self,
        store: SqliteStore,
        embedder: Embedder,
        spec: str | None,
        now: Now,
        *,
        adopts: bool = True,
        pure_reads: bool = False,
    ) -> None:
        self.store = store
        self._pure_reads = pure_reads
        self._now = now
        self.embedder = embedder
        self.spec = spec
        self._old: tuple[str, Embedder | None] | None = None
        """The fingerprint of a space that another embedder made, and that embedder, if it can be had."""
        self._adopted = not adopts
        self._workers: dict[int, EmbedWorker] = {}
        self._scale: tuple[str, Any, Any] | None = None
        self._lock = threading.Lock()
        """Of the workers. Whoever needs the connection as well takes that first: it may be held already."""
        self._asked_lock = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()
        """Vectors of recent queries: they depend on the text and the embedder alone, so no write makes them wrong."""
        forking.watch(self)

    def forked(self) -> None:
        """In a child: the threads that work or hold a lock are not here."""
        self._workers = {}
        self._lock = threading.Lock()
        self._asked_lock = threading.Lock()

    def adopt(self) -> None:
        """Give the embedder its space; done before the first write or search, so that opening costs nothing."""
        if not self._adopted:
            self.store.adopt(self.embedder.fingerprint, self.embedder.dim, self.spec)
            self._adopted = True

    def before_reading(self) -> None:
        """The same for a reader, which may be one that leaves the file alone."""
        if not self._pure_reads:
            self.adopt()

    def for_space(self, space: Space) -> Embedder | None:
        """The embedder that made a space; None if it cannot be had any more."""
        if space.fingerprint == self.embedder.fingerprint:
            return self.embedder
        old = self._old
        if old is None or old[0] != space.fingerprint:
            old = self._old = (space.fingerprint, _opened(space))
        return old[1]

    def query_vector(self, text: str) -> NDArray[np.float32] | None:
        """The vector of a query in the active space; None when the embedder of that space is not at hand."""
        self.before_reading()
        space = self.store.active_space()
        embedder = self.for_space(space) if space is not None else None
        if embedder is None:
            return None
        key = (embedder.fingerprint, text)
        with self._asked_lock:
            known = self._asked.get(key)
            if known is not None:
                self._asked.move_to_end(key)
                return known
        import numpy as np

        vector = np.array(
            embedder.embed([text])[0], dtype=np.float32
        )  # what it gave may be used again by its owner
        vector.flags.writeable = False
        with self._asked_lock:
            self._asked[key] = vector
            if len(self._asked) > QUERIES:
                self._asked.popitem(last=False)
        return vector

    def _just_asked(self, embedder: Embedder, text: str) -> NDArray[np.float32] | None:
        """The vector of a text that was searched with, as one is before it is written."""
        with self._asked_lock:
            return self._asked.get((embedder.fingerprint, text))

    def at_hand(self) -> bool:
        """Whether queries can be embedded with the model that made the stored vectors."""
        space = self.store.active_space()
        return space is None or self.for_space(space) is not None

    def calibrate(self, cosine: float) -> float:
        """A raw cosine of the active space on the common scale."""
        space = self.store.active_space()
        embedder = self.for_space(space) if space is not None else None
        return embedder.calibrate(cosine) if embedder is not None else cosine

    def calibrate_many(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same for an array; nan stays nan."""
        import numpy as np

        space = self.store.active_space()
        embedder = self.for_space(space) if space is not None else None
        if embedder is None:
            return cosines
        calibration = getattr(embedder, "calibration", None)
        if calibration is not None and hasattr(calibration, "many"):
            return calibration.many(cosines).astype(np.float32)
        if cosines.size > STEPS:  # a scale of one's own, read off at many points: asking it each time is slow
            if self._scale is None or self._scale[0] != embedder.fingerprint:
                points = np.linspace(-1.0, 1.0, STEPS)
                read = np.array([embedder.calibrate(point) for point in points.tolist()])
                self._scale = (embedder.fingerprint, points, read)
            return _read_off(cosines, *self._scale[1:])
        flat = [c if c != c else embedder.calibrate(c) for c in cosines.ravel().tolist()]  # noqa: PLR0124
        return np.array(flat, dtype=np.float32).reshape(cosines.shape)

    def in_place(self, texts: Sequence[str]) -> Mapping[int, Sequence[bytes]]:
        """Vectors of new texts, for every space whose embedder is instant; the rest is left to the queue."""
        made: dict[int, Sequence[bytes]] = {}
        for space in self.store.spaces():
            embedder = self.for_space(space)
            if embedder is None or not embedder.instant:
                continue
            known = self._just_asked(embedder, texts[0]) if len(texts) == 1 else None
            if known is not None and known.shape == (space.dim,):
                made[space.number] = [known.astype("<f4", copy=False).tobytes()]
            else:
                made[space.number] = _packed(embedder, texts, space)
        return made

    def backlog(self) -> int:
        """How many memories wait for a vector in the active space."""
        space = self.store.active_space()
        return self.store.vectors.waiting(space.number) if space else 0

    def drain(self, progress: Progress | None = None) -> int:
        """Embed everything that waits, here and now; how many were embedded. Resumes where a crash left off."""
        self.adopt()
        done = 0
        for space in self.store.vectors.spaces():
            total = self.store.vectors.waiting(space.number)
            if not total or self.for_space(space) is None:
                continue
            worker = self._worker(space)
            finished = 0
            while not (step := worker.run_once()).idle:
                finished += step.embedded
                if progress is not None:
                    progress(min(finished, total), total)
            done += finished
        self.switch()
        return done

    def switch(self) -> bool:
        """Let recall use the new space once it is complete."""
        building = self.store.building_space()
        return building is not None and self.store.activate(building.number)

    def work(self) -> None:
        """Start the background workers that the queue needs, if any."""
        if self.store.read_only:
            return
        with self.store.connection.lock, self._lock:
            for space in self.store.vectors.spaces():
                if space.number in self._workers or not self.store.vectors.waiting(space.number):
                    continue
                if self.for_space(space) is not None:
                    worker = self._worker(space)
                    self._workers[space.number] = worker
                    worker.start()
            for worker in self._workers.values():
                worker.wake()

    def stop(self) -> None:
        """End the background workers; what they have not done stays queued."""
        with self._lock:
            workers, self._workers = self._workers, {}
        for worker in workers.values():  # outside the lock: it ends only after a write that may wait for us
            worker.stop()

    def _worker(self, space: Space) -> EmbedWorker:
        from skep.embedding.queue import EmbedWorker

        embedder = self.for_space(space)
        if embedder is None:
            raise EmbedderMismatchError(
                f"the embedder {space.fingerprint!r} is not at hand; open the bank with it, or run `skep reembed`"
            )
        return EmbedWorker(_Queue(self, space), embedder, clock=self._now)

    def last_error(self) -> str | None:
        """Why embedding last failed."""
        space = self.store.building_space() or self.store.active_space()
        return self.store.vectors.last_error(space.number) if space else None


class _Queue:
    """The queue of one space, as the worker sees it."""

    def __init__(self, embeddings: Embeddings, space: Space) -> None:
        self._embeddings = embeddings
        self._store = embeddings.store
        self._space = space
        self._claimed: dict[int, str] = {}

    def pending(self, limit: int, now: float) -> list[tuple[int, str, int]]:
        with self._store.connection.transaction():
            claimed = self._store.vectors.claim(self._space.number, limit, now, LEASE_SECONDS)
        self._claimed = {row: text for row, text, _attempts in claimed}
        return claimed

    def store_vectors(self, rows: Sequence[int], vectors: Any, fingerprint: str) -> None:
        if fingerprint != self._space.fingerprint:
            raise EmbedderMismatchError(
                f"vectors of {fingerprint!r} do not belong in {self._space.fingerprint!r}"
            )
        if vectors.shape[1] != self._space.dim:
            raise EmbeddingError(f"expected {self._space.dim} dimensions, got {vectors.shape[1]}")
        packed = [row.tobytes() for row in vectors.astype("<f4")]
        self._store.put_vectors(self._space.number, rows, packed, [self._claimed[row] for row in rows])
        if not self._store.vectors.waiting(self._space.number):
            self._embeddings.switch()

    def record_failure(self, rows: Sequence[int], error: str, retry_at: float) -> None:
        with self._store.connection.transaction():
            self._store.vectors.failed(self._space.number, rows, error, retry_at)


def _read_off(
    cosines: NDArray[np.float32], points: NDArray[np.float64], read: NDArray[np.float64]
) -> NDArray[np.float32]:
    """What `np.interp` gives, without searching: the points are evenly spaced from -1 to 1."""
    import numpy as np

    last = len(points) - 2
    exact = np.minimum(np.maximum(cosines.astype(np.float64), -1.0), 1.0)
    left = np.minimum((np.fmax(exact, -1.0) + 1.0) * ((last + 1) / 2), last).astype(np.intp)
    rise = np.diff(read) / np.diff(points)
    return (rise[left] * (exact - points[left]) + read[left]).astype(np.float32)


def _opened(space: Space) -> Embedder | None:
    if space.spec is None:
        return None
    try:
        embedder = open_embedder(space.spec)
    except SkepError:
        return None
    return embedder if embedder.fingerprint == space.fingerprint else None


def _packed(embedder: Embedder, texts: Sequence[str], space: Space) -> list[bytes]:
    vectors = embedder.embed(texts)
    if vectors.shape != (len(texts), space.dim):
        raise EmbeddingError(
            f"{embedder.fingerprint} gave {vectors.shape}, expected {(len(texts), space.dim)}"
        )
    return [row.tobytes() for row in vectors.astype("<f4", copy=False)]
