"""The worker that embeds texts that wait for a slow embedder, in batches, in the background, and through failures.

The engine makes one per space and gives it a source. The worker holds no state that matters: the waiting texts, the
number of tries and the time of the next one live with the source, so that a crash loses nothing. It calls nothing but
its source and its embedder.
"""

from __future__ import annotations

import atexit
import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import msgspec

from skep.clock import Now, system_now
from skep.embedding.embedder import Embedder, embedded
from skep.errors import EmbedderFailedError, EmbedderMismatchError, EmbedderUnavailableError, EmbeddingError

if TYPE_CHECKING:
    from skep.embedding.embedder import Vectors


Pending = tuple[int, str, int]
"""Row, text, and the number of times that embedding it has failed."""


class Source(Protocol):
    """The queue of one space: gives pending texts and takes vectors. Called from the worker's thread."""

    def pending(self, limit: int, now: float) -> list[Pending] | None:
        """At most `limit` texts without a vector whose time to be tried has come, oldest first; None if never again."""
        ...

    def store_vectors(self, rows: Sequence[int], vectors: Vectors, fingerprint: str) -> None:
        """Keep the vectors. Rows that are gone or have a new text by now are passed over."""
        ...

    def record_failure(self, rows: Sequence[int], error: str, retry_at: float) -> None:
        """Count one more failure for each row, and offer none of them again before `retry_at`."""
        ...

    def release(self) -> None:
        """Offer again what was handed out last and is not done: whoever asked for it will not finish."""
        ...


class BackOff(msgspec.Struct, frozen=True, kw_only=True):
    """The pause of a failed text: doubling, up to a limit, spread so that workers do not march in step."""

    first: float = 2.0
    longest: float = 600.0
    spread: float = 0.25

    def delay(self, attempts: int, chance: float) -> float:
        """Seconds to wait after `attempts` earlier failures; `chance` in [0, 1) spreads them.

        >>> BackOff(spread=0).delay(3, 0.5)
        16.0
        """
        plain = min(self.longest, self.first * 2.0 ** min(attempts, 40))
        return plain * (1 + self.spread * (2 * chance - 1))


class Step(msgspec.Struct, frozen=True):
    """The counts of one pass."""

    embedded: int = 0
    failed: int = 0
    unavailable: bool = False
    """True where the embedder did not answer at all, so that going on at once is no use."""
    over: bool = False
    """True where there will never be any more to do."""

    def __add__(self, other: Step) -> Step:
        """Both together."""
        return Step(
            self.embedded + other.embedded,
            self.failed + other.failed,
            self.unavailable or other.unavailable,
            self.over or other.over,
        )

    @property
    def idle(self) -> bool:
        """True where there was nothing to do."""
        return not (self.embedded or self.failed)


class EmbedWorker:
    """Embeds what a source has pending, inline by `run_once` and `flush`, or in a daemon thread by `start`.

    Args:
        source: Gives the texts and takes the vectors.
        embedder: Any embedder; meant for those that are not instant.
        batch: Texts per call of the embedder.
        clock: Seconds since the epoch.
        sleep: Called with seconds between passes of the thread. None waits on an event, so that `stop` and
            `wake` take effect at once.
        chance: Numbers in [0, 1) that spread the retries.
        back_off: The pauses of failed texts.
        idle: Seconds between looks at an empty queue.
        patient: True to ask a busy service again within a call, as `Embedder.embed` does. In the background it is
            not: the queue has pauses of its own, which end when the worker is stopped.
    """

    def __init__(
        self,
        source: Source,
        embedder: Embedder,
        *,
        batch: int = 64,
        clock: Now = system_now,
        sleep: Callable[[float], None] | None = None,
        chance: Callable[[], float] = random.random,
        back_off: BackOff | None = None,
        idle: float = 1.0,
        patient: bool = True,
    ) -> None:
        self.source = source
        self._embedder = embedder
        once = None if patient else getattr(embedder, "embed_once", None)
        self._embed: Callable[[Sequence[str]], Any] = embedder.embed if once is None else once
        self._batch = batch
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._back_off = back_off or BackOff()
        self._idle = idle
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._queued = threading.Event()
        """Set while there is new work that no pass has looked for yet."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._released = False
        self.last_error: str | None = None
        """The error of the embedder when it last failed; None once it works again."""

    def run_once(self) -> Step:
        """Embed one batch. A text that cannot be embedded fails alone; its neighbours do not."""
        with self._lock:
            work = self.source.pending(self._batch, self._clock())
            return self._attempt(work) if work else Step(over=work is None)

    def flush(self) -> Step:
        """Embed everything that is due now, or until the embedder does not answer."""
        total = Step()
        while not (step := self.run_once()).idle:
            total += step
            if step.unavailable:
                break
        return total

    def start(self) -> None:
        """Work in a daemon thread until `stop`. Starting twice is harmless."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._released = False
            self._thread = threading.Thread(target=self._run, name="skep-embed", daemon=True)
            self._thread.start()
            _started.add(self)

    def wake(self) -> None:
        """Say that there is new work: the thread does not wait out its pause, nor end before it has looked."""
        self._queued.set()
        self._woken.set()

    def stop(self, timeout: float | None = 5.0) -> bool:
        """Finish the batch in hand and end the thread; True if it has ended. If not, the batch is others' to do."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout)
        if self.running and not self._released:
            self._released = True  # once: at the end of the process the bank may be closed
            self.source.release()
        return not self.running

    @property
    def running(self) -> bool:
        """True while the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        outages = 0
        while not self._stopping.is_set() or self._queued.is_set():
            self._woken.clear()
            self._queued.clear()
            try:
                step = self.run_once()
            except Exception as error:  # noqa: BLE001 - the root of a thread: said, and looked at again later
                self.last_error = str(error) or type(error).__name__
                step = Step(unavailable=True)
            if step.over:
                return
            outages = outages + 1 if step.unavailable else 0
            if outages:
                self._pause(self._stopping, self._back_off.delay(outages - 1, self._chance()))
            elif not step.embedded:
                self._pause(self._woken, self._idle)

    def _pause(self, until: threading.Event, seconds: float) -> None:
        if self._stopping.is_set():
            return
        if self._sleep is None:
            until.wait(seconds)
        else:
            self._sleep(seconds)

    def _attempt(self, work: Sequence[Pending], *, halve: bool = True) -> Step:
        """Embed, and where one text may be at fault halve until it stands alone.

        An embedder of somebody else's may raise anything. The first time it is taken to be down; after that the text at
        fault is looked for, but no further than it takes to see that all of them fail.
        """
        name = self._embedder.fingerprint
        try:
            texts = [text for _, text, _ in work]
            vectors = embedded(lambda: self._embed(texts), len(work), self._embedder.dim, name)
        except EmbeddingError as error:
            unforeseen = isinstance(error, EmbedderFailedError | EmbedderMismatchError)
            down = unforeseen or isinstance(error, EmbedderUnavailableError)
            tried = any(attempts for _, _, attempts in work)
            if len(work) == 1 or not halve or (down and not (unforeseen and tried)):
                return self._give_up(work, error, unavailable=down)
            middle = len(work) // 2
            step = self._attempt(work[:middle])
            step += self._attempt(work[middle:], halve=not unforeseen or step.embedded > 0)
            return msgspec.structs.replace(step, unavailable=False) if unforeseen and step.embedded else step
        self.last_error = None
        self.source.store_vectors([row for row, _, _ in work], vectors, name)
        return Step(len(work), 0)

    def _give_up(self, work: Sequence[Pending], error: EmbeddingError, *, unavailable: bool = False) -> Step:
        """Set a later time for each text, by how often it has failed and by what the service asked for."""
        self.last_error = str(error)
        asked = getattr(error, "retry_after", None) or 0.0
        now = self._clock()
        by_attempts: dict[int, list[int]] = {}
        for row, _, attempts in work:
            by_attempts.setdefault(attempts, []).append(row)
        for attempts, rows in sorted(by_attempts.items()):
            delay = max(self._back_off.delay(attempts, self._chance()), min(asked, self._back_off.longest))
            self.source.record_failure(rows, str(error), now + delay)
        return Step(0, len(work), unavailable)


_started: WeakSet[EmbedWorker] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """At the end of a process that left a bank open: finish the batches in hand.

    A thread that is inside a model's own code when the interpreter goes away takes the process down with it.
    """
    for worker in list(_started):
        worker.stop()
