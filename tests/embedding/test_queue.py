"""The queue: nothing is lost, one bad text harms no other, and time is never wasted on a dead service."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedding.slow import NotInstant

from skep import Bank
from skep.config import Settings
from skep.embedding.embedding_queue import BackOff, EmbedWorker, Pending, Step
from skep.embedding.static_table import HashingEmbedder
from skep.errors import BusyError, EmbedderUnavailableError, EmbeddingError

ROOT = Path(__file__).parents[2]


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
        self.released = False

    def release(self) -> None:
        self.released = True

    def pending(self, limit: int, now: float) -> list[Pending] | None:
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

        def pending(self, limit: int, now: float) -> list[Pending] | None:
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


class Odd(Embedding):
    """Raises something that is not ours: always for some texts, or as often as told."""

    def __init__(self, error: Exception, *, times: int = 0, text: str | None = None) -> None:
        super().__init__()
        self.error, self.times, self.text = error, times, text

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.batches.append(len(texts))
        self.times -= 1
        if self.times >= 0 or (self.text is not None and self.text in texts):
            raise self.error
        return HashingEmbedder.embed(self, texts)


@pytest.mark.parametrize(
    "error", [ConnectionError("net"), TimeoutError("late"), KeyError("k"), RuntimeError("boom")]
)
def test_the_thread_outlives_whatever_an_embedder_raises(error: Exception) -> None:
    source, clock = MemorySource(texts(3)), Clock()

    def sleep(seconds: float) -> None:
        clock.time += seconds

    queue = EmbedWorker(source, Odd(error, times=2), clock=clock, sleep=sleep)
    queue.start()
    assert source.emptied.wait(10)
    queue.stop()

    assert {0, 1, 2} == set(source.vectors)
    assert all(type(error).__name__ in said for said in source.errors.values())


def test_a_text_that_breaks_an_embedder_is_found_at_the_second_try() -> None:
    source, clock = MemorySource(texts(64)), Clock()
    embedder = Odd(RuntimeError("boom"), text="text 33")
    queue = worker(source, embedder, clock)

    assert Step(0, 64, unavailable=True) == queue.run_once()
    assert embedder.batches == [64], "it may only be down"
    clock.time += 10
    assert Step(63, 1) == queue.run_once()
    assert set(range(64)) - {33} == set(source.vectors)


def test_an_embedder_that_always_breaks_is_not_asked_once_per_text() -> None:
    source, clock = MemorySource(texts(64)), Clock()
    embedder = Odd(RuntimeError("boom"), times=1000)
    queue = worker(source, embedder, clock)
    queue.run_once()
    clock.time += 10
    embedder.batches.clear()

    assert Step(0, 64, unavailable=True) == queue.run_once()
    assert len(embedder.batches) <= 1 + 2 * 6


def test_the_time_a_service_asks_for_is_waited() -> None:
    class Limited(Embedding):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            error = EmbedderUnavailableError("too many requests")
            error.retry_after = 90.0
            raise error

    source, clock = MemorySource(texts(1)), Clock()
    worker(source, Limited(), clock).run_once()

    assert source.retry_at[0] == clock.time + 90


def test_in_the_background_a_service_is_asked_once_a_time() -> None:
    class Once(Embedding):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            raise AssertionError("tries again by itself")

        def embed_once(self, texts: Sequence[str], seconds: float | None = None) -> np.ndarray:
            return HashingEmbedder.embed(self, texts)

    source = MemorySource(texts(2))

    assert Step(2, 0) == EmbedWorker(source, Once(), clock=Clock(), patient=False).run_once()


def test_a_batch_that_is_not_finished_when_told_to_stop_is_offered_to_others() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Stuck(Embedding):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            begun.set()
            go_on.wait(30)
            return HashingEmbedder.embed(self, texts)

    source = MemorySource(texts(1))
    queue = worker(source, Stuck())
    queue.start()
    assert begun.wait(10)

    assert not queue.stop(timeout=0.01)
    assert source.released
    source.released = False
    assert not queue.stop(timeout=0.01)
    assert not source.released, "once: the bank may be closed by the time the process ends"
    go_on.set()
    assert queue.stop(timeout=30)


def test_new_work_gets_one_look_even_if_the_end_comes_first() -> None:
    source = MemorySource(texts(100))
    queue = worker(source, Embedding())
    queue.wake()
    queue.stop()
    queue._run()

    assert len(source.vectors) == 64
    queue._run()
    assert len(source.vectors) == 64, "and no more than one"


def test_the_thread_ends_when_there_will_never_be_more_to_do() -> None:
    class Gone(MemorySource):
        def pending(self, limit: int, now: float) -> list[Pending] | None:
            return None

    queue = worker(Gone({}), Embedding())
    queue.start()
    thread = queue._thread
    assert thread is not None
    thread.join(10)

    assert not queue.running


LEFT_OPEN = """
import sys, time
from skep import Bank
from tests.embedding.slow import NotInstant

class Model(NotInstant):
    def embed(self, texts):
        print("reading", flush=True)
        time.sleep(0.3)
        return super().embed(texts)

bank = Bank.open(sys.argv[1], embedder=Model(32))
bank.remember("Anna moved to Oslo", on_conflict="ignore")
"""


def test_a_process_that_leaves_a_bank_open_ends_quietly_with_its_batch_done(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"

    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, str(path)], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert (done.returncode, done.stderr) == (0, "")
    with Bank.open(path, embedder=NotInstant(32), settings=Settings(embed_when_read=False)) as bank:
        assert bank.status().pending == 0
