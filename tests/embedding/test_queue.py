"""The queue: nothing is lost, one bad text harms no other, and time is never wasted on a dead service."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.embedding.hashing import HashingEmbedder
from skep.embedding.queue import BackOff, EmbedWorker, Pending, Step
from skep.errors import BusyError, EmbedderUnavailableError, EmbeddingError


class MemorySource:
    """A source over dictionaries, as the store is one over tables."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts = texts
        self.vectors: dict[int, np.ndarray] = {}
        self.fingerprints: set[str] = set()
        self.attempts: dict[int, int] = dict.fromkeys(texts, 0)
        self.retry_at: dict[int, float] = dict.fromkeys(texts, 0.0)
        self.errors: dict[int, str] = {}
        self.emptied = threading.Event()

    def pending(self, limit: int, now: float) -> list[Pending]:
        due = [r for r in sorted(self.texts) if r not in self.vectors and self.retry_at[r] <= now]
        if not due:
            self.emptied.set()
        return [(row, self.texts[row], self.attempts[row]) for row in due[:limit]]

    def store_vectors(self, rows: Sequence[int], vectors: np.ndarray, fingerprint: str) -> None:
        self.fingerprints.add(fingerprint)
        self.vectors.update(zip(rows, vectors, strict=True))

    def record_failure(self, rows: Sequence[int], error: str, retry_at: float) -> None:
        for row in rows:
            self.attempts[row] += 1
            self.retry_at[row] = retry_at
            self.errors[row] = error


class Embedding(HashingEmbedder):
    """Refuses texts with POISON in them; can be down."""

    def __init__(self, *, down: int = 0) -> None:
        super().__init__(16)
        self.down = down
        self.batches: list[int] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.batches.append(len(texts))
        if self.down:
            self.down -= 1
            raise EmbedderUnavailableError("no answer")
        if any("POISON" in text for text in texts):
            raise EmbeddingError("refused")
        return super().embed(texts)


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def texts(count: int, poison: Sequence[int] = ()) -> dict[int, str]:
    return {row: f"POISON {row}" if row in poison else f"text {row}" for row in range(count)}


def worker(
    source: MemorySource, embedder: Embedding, clock: Clock | None = None, *, batch: int = 64
) -> EmbedWorker:
    return EmbedWorker(source, embedder, batch=batch, clock=clock or Clock(), chance=lambda: 0.5)


def test_everything_pending_is_embedded_in_batches() -> None:
    source, embedder = MemorySource(texts(150)), Embedding()

    assert Step(150, 0) == worker(source, embedder).flush()
    assert embedder.batches == [64, 64, 22]
    assert {embedder.fingerprint} == source.fingerprints
    np.testing.assert_array_equal(source.vectors[7], HashingEmbedder(16).embed(["text 7"])[0])


def test_an_empty_queue_is_idle_and_asks_the_embedder_nothing() -> None:
    embedder = Embedding()

    assert worker(MemorySource({}), embedder).run_once().idle
    assert embedder.batches == []


@given(st.sets(st.integers(0, 63), max_size=8))
def test_a_refused_text_fails_alone(poison: set[int]) -> None:
    source = MemorySource(texts(64, sorted(poison)))

    assert Step(64 - len(poison), len(poison)) == worker(source, Embedding()).run_once()
    assert poison == set(source.errors)
    assert set(range(64)) - poison == set(source.vectors)


def test_isolating_one_refused_text_takes_few_calls() -> None:
    embedder = Embedding()
    worker(MemorySource(texts(64, [17])), embedder).run_once()

    assert len(embedder.batches) == 1 + 2 * 6


def test_a_failed_text_waits_twice_as_long_each_time() -> None:
    source, clock = MemorySource({1: "POISON"}), Clock()
    queue = worker(source, Embedding(), clock)
    waits: list[float] = []
    for _ in range(4):
        queue.run_once()
        waits.append(source.retry_at[1] - clock.time)
        assert queue.run_once().idle
        clock.time = source.retry_at[1]

    assert waits == [2, 4, 8, 16]


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_stay_positive_and_bounded(attempts: int, chance: float) -> None:
    assert 1 <= BackOff().delay(attempts, chance) <= 600 * 1.25


def test_when_the_service_is_down_the_batch_is_not_halved_and_flush_stops() -> None:
    source, embedder = MemorySource(texts(200)), Embedding(down=1)
    queue = worker(source, embedder)

    assert Step(0, 64, unavailable=True) == queue.flush()
    assert (embedder.batches, queue.last_error) == ([64], "no answer")


def test_once_the_service_is_back_everything_is_embedded() -> None:
    source, embedder, clock = MemorySource(texts(100)), Embedding(down=2), Clock()
    queue = worker(source, embedder, clock)
    queue.flush()
    queue.flush()
    clock.time += 3600
    queue.flush()

    assert (len(source.vectors), queue.last_error) == (100, None)


def test_a_new_worker_goes_on_where_a_dead_one_stopped() -> None:
    source = MemorySource(texts(100))
    worker(source, Embedding(), batch=30).run_once()

    assert Step(70, 0) == worker(source, Embedding()).flush()


def test_the_thread_embeds_in_the_background_and_stops_when_told() -> None:
    source = MemorySource(texts(100))
    queue = worker(source, Embedding(), batch=10)
    queue.start()
    queue.start()
    assert source.emptied.wait(10)

    assert queue.running
    assert queue.stop()
    assert (len(source.vectors), queue.running) == (100, False)


def test_waking_the_thread_ends_its_pause() -> None:
    source = MemorySource(texts(1))
    queue = EmbedWorker(source, Embedding(), clock=Clock(), idle=3600)
    queue.start()
    assert source.emptied.wait(10)
    source.emptied.clear()
    source.retry_at[1], source.attempts[1], source.texts[1] = 0.0, 0, "new"
    queue.wake()

    assert source.emptied.wait(10)
    assert queue.stop()
    assert {0, 1} == set(source.vectors)


def test_the_thread_outlives_a_busy_source_and_a_dead_service() -> None:
    class BusySource(MemorySource):
        refusals = 2

        def pending(self, limit: int, now: float) -> list[Pending]:
            if self.refusals:
                self.refusals -= 1
                raise BusyError("locked")
            return super().pending(limit, now)

    source, clock = BusySource(texts(3)), Clock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.time += seconds

    queue = EmbedWorker(source, Embedding(down=2), clock=clock, sleep=sleep, chance=lambda: 0.5)
    queue.start()
    assert source.emptied.wait(10)
    queue.stop()

    assert {0, 1, 2} == set(source.vectors)
    assert slept[:4] == [2, 4, 8, 16]


def test_stopping_before_starting_is_harmless() -> None:
    assert worker(MemorySource({}), Embedding()).stop()


def test_an_unforeseen_error_is_not_swallowed() -> None:
    class Broken(Embedding):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        worker(MemorySource(texts(1)), Broken()).run_once()
