"""The queue for slow embedders: takes what is pending, embeds it in batches, and survives failures.

The worker holds no state that matters. What is pending, how often it was tried and when it may be tried again
lives with the source, so that a crash loses nothing: the next worker finds the same work.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from skep.clock import Now, system_now
from skep.embedding.base import Embedder
from skep.errors import EmbedderUnavailableError, EmbeddingError, SkepError

if TYPE_CHECKING:
    from skep.embedding.base import Vectors

Pending = tuple[int, str, int]
"""Row, text, and how often embedding it has failed before."""


class Source(Protocol):
    """Where pending texts come from and vectors go. Called from the worker's thread."""

    def pending(self, limit: int, now: float) -> list[Pending]:
        """At most `limit` texts without a vector whose time to be tried has come, oldest first."""
        ...

    def store_vectors(self, rows: Sequence[int], vectors: Vectors, fingerprint: str) -> None:
        """Keep the vectors. Rows that are gone or have a new text by now are passed over."""
        ...

    def record_failure(self, rows: Sequence[int], error: str, retry_at: float) -> None:
        """Count one more failure for each row, and offer none of them again before `retry_at`."""
        ...


class BackOff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a failed text waits: doubling, up to a limit, spread so that workers do not march in step."""

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
    """What one pass did."""

    embedded: int = 0
    failed: int = 0
    unavailable: bool = False
    """Whether the embedder did not answer at all, so that going on at once is no use."""

    def __add__(self, other: Step) -> Step:
        """Both together."""
        return Step(
            self.embedded + other.embedded, self.failed + other.failed, self.unavailable or other.unavailable
        )

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.embedded or self.failed)


class EmbedWorker:
    """Embeds what a source has pending, inline by `run_once` and `flush`, or in a daemon thread by `start`.

    Args:
        source: What to embed, and where the vectors go.
        embedder: Any embedder; meant for those that are not instant.
        batch: Texts per call of the embedder.
        clock: Seconds since the epoch.
        sleep: Called with seconds between passes of the thread. None waits on an event, so that `stop` and
            `wake` take effect at once.
        chance: Numbers in [0, 1) that spread the retries.
        back_off: How long a failed text waits.
        idle: Seconds between looks at an empty queue.
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
    ) -> None:
        self._source = source
        self._embedder = embedder
        self._batch = batch
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._back_off = back_off or BackOff()
        self._idle = idle
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.last_error: str | None = None
        """What the embedder said when it last failed; None once it works again."""

    def run_once(self) -> Step:
        """Embed one batch. A text that cannot be embedded fails alone; its neighbours do not."""
        with self._lock:
            work = self._source.pending(self._batch, self._clock())
            return self._attempt(work) if work else Step()

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
            self._thread = threading.Thread(target=self._run, name="skep-embed", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Say that there is new work, so that the thread does not wait out its pause."""
        self._woken.set()

    def stop(self, timeout: float | None = 5.0) -> bool:
        """Finish the batch in hand and end the thread; True if it has ended."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.running

    @property
    def running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        outages = 0
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                step = self.run_once()
            except SkepError as error:  # the source is busy or gone; look again later
                self.last_error = str(error)
                step = Step(unavailable=True)
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

    def _attempt(self, work: Sequence[Pending]) -> Step:
        """Embed, and on a refusal halve until the text at fault stands alone."""
        try:
            vectors = self._embedder.embed([text for _, text, _ in work])
        except EmbedderUnavailableError as error:
            return self._give_up(work, error, unavailable=True)
        except (EmbeddingError, ValueError) as error:
            if len(work) == 1:
                return self._give_up(work, error)
            middle = len(work) // 2
            return self._attempt(work[:middle]) + self._attempt(work[middle:])
        self._source.store_vectors([row for row, _, _ in work], vectors, self._embedder.fingerprint)
        self.last_error = None
        return Step(len(work), 0)

    def _give_up(self, work: Sequence[Pending], error: Exception, *, unavailable: bool = False) -> Step:
        """Set a later time for each text, by how often it has failed."""
        self.last_error = str(error)
        now = self._clock()
        by_attempts: dict[int, list[int]] = {}
        for row, _, attempts in work:
            by_attempts.setdefault(attempts, []).append(row)
        for attempts, rows in sorted(by_attempts.items()):
            retry_at = now + self._back_off.delay(attempts, self._chance())
            self._source.record_failure(rows, str(error), retry_at)
        return Step(0, len(work), unavailable)
