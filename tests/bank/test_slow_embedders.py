"""Slow embedders and services that are down: nothing waits for them, nothing is lost, and every answer says so."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Clock
from tests.embedding.slow import NotInstant
from tests.embedding.stub import KEY, Reply, Stub, serving

from skep.bank.bank import Bank
from skep.clock import Now, system_now
from skep.config import Settings
from skep.embedding.embedder import open_embedder
from skep.embedding.remote import OLLAMA, OPENAI, RemoteEmbedder
from skep.embedding.static_table import HashingEmbedder
from skep.engine.embeddings import LEASE_SECONDS, OUTAGE_SECONDS
from skep.errors import ConflictError, EmbedderUnavailableError, EmbeddingError

QUIET = Settings(embed_when_read=False)
"""No worker in the background, so that a test says when something is embedded."""


class Slow(NotInstant):
    """An embedder that is not instant; it says when it is called, and waits to be let go."""

    def __init__(self, dim: int = 48, *, held: bool = False) -> None:
        super().__init__(dim)
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.begun, self.go_on = threading.Event(), threading.Event()
        if not held:
            self.go_on.set()

    def embed(self, texts: Sequence[str]) -> Any:
        self.calls.append(threading.current_thread().name)
        self.begun.set()
        self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        return super().embed(texts)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


def without_worker(path: Path | str, embedder: Any, clock: Now) -> Bank:
    bank = Bank.open(path, embedder=embedder, now=clock, settings=QUIET)
    bank.engine.embeddings.work = lambda **_: None  # type: ignore[method-assign]
    return bank


def remote(stub: Stub, **options: Any) -> RemoteEmbedder:
    settings: dict[str, Any] = {"dim": 4, "api_key": KEY, "base_url": stub.url, "sleep": lambda _: None}
    return RemoteEmbedder(OPENAI, "m", **(settings | options))


def emptied(bank: Bank) -> None:
    """Wait until the worker has embedded all there is, and recall uses it."""
    done = threading.Event()
    look = threading.Event()
    for _ in range(1500):
        status = bank.status()
        if not (status.pending or bank.engine.store.building_space()):
            done.set()
            break
        look.wait(0.02)
    assert done.is_set(), bank.status()


# Writing


@pytest.mark.parametrize("policy", ["warn", "supersede", "raise", "ignore"])
def test_remember_never_waits_for_a_slow_embedder(clock: Clock, policy: Any) -> None:
    slow = Slow()
    with without_worker(":memory:", slow, clock) as bank:
        bank.remember("the kettle is on the second shelf", on_conflict="ignore")
        done = bank.remember("invoices are sent on Mondays", on_conflict=policy)

        assert (done.memory.status, done.action, slow.calls) == ("pending", "stored", [])
        assert ("compared by words alone" in done.reason) == (policy != "ignore")


def test_with_an_instant_embedder_nothing_is_said_of_words(plain_bank: Bank) -> None:
    plain_bank.remember("the kettle is blue")

    assert plain_bank.remember("the kettle is red").reason == ""


def test_conflicts_are_found_by_words_while_the_embedder_is_slow(clock: Clock) -> None:
    slow = Slow()
    with without_worker(":memory:", slow, clock) as bank:
        old = bank.remember("The deploy script uses port 8080").memory
        warned = bank.remember("The deploy script uses port 9090")
        assert [(c.existing.id, c.kind in ("update", "contradiction")) for c in warned.conflicts] == [
            (old.id, True)
        ]
        with pytest.raises(ConflictError):
            bank.remember("The deploy script uses port 7070", on_conflict="raise")
        again = bank.remember("The deploy script uses port 9090", on_conflict="supersede")

        assert (again.action, again.memory.id) == ("confirmed", warned.memory.id)
        assert bank.get(old.id).superseded_by == warned.memory.id
        assert slow.calls == []


def test_stored_memories_are_compared_by_the_vectors_they_have(clock: Clock) -> None:
    slow = Slow()
    with without_worker(":memory:", slow, clock) as bank:
        bank.remember("the kettle is blue", on_conflict="ignore")
        bank.remember("the kettle is blue", on_conflict="ignore")
        bank.reembed()
        slow.calls.clear()

        assert [conflict.kind for conflict in bank.find_conflicts()] == ["duplicate"]
        assert slow.calls == []


def test_a_memory_is_stored_while_its_service_is_down(clock: Clock, stub: Stub) -> None:
    stub.always = (503, {}, {"error": "overloaded"})
    with without_worker(":memory:", remote(stub), clock) as bank:
        bank.remember("the first one", on_conflict="ignore")
        bank.remember("keep this, please")

        assert (bank.status().memories, bank.status().pending, stub.requests) == (2, 2, [])
        assert bank.reembed() == 0
        assert "overloaded" in (bank.status().embed_error or "")
        stub.always = None
        assert bank.reembed() == 2
        assert bank.status().embed_error is None


def test_a_model_whose_dimension_must_be_asked_may_be_down_from_the_start(
    bank_path: Path, clock: Clock, stub: Stub
) -> None:
    stub.always = (503, {}, {})

    def opened() -> Bank:
        embedder = RemoteEmbedder(OLLAMA, "mine", base_url=stub.url, sleep=lambda _: None)
        return without_worker(bank_path, embedder, clock)

    with opened() as bank:
        bank.remember("the kettle is blue")
        assert bank.status().memories == 1
        assert "503" in bank.recall("kettle").reason
        with pytest.raises(EmbedderUnavailableError, match="503"):
            bank.reembed()
    stub.always = None
    with opened() as bank:
        assert bank.reembed() == 1
        assert bank.status().embedder == "ollama-mine-4"


def test_a_dimension_that_was_asked_once_is_not_asked_again(
    bank_path: Path, clock: Clock, stub: Stub
) -> None:
    def opener(spec: str, *, known_dim: int | None = None) -> Any:
        return open_embedder(spec, known_dim=known_dim, base_url=stub.url)

    for _ in range(2):
        with Bank.open(bank_path, embedder="ollama:mine", opener=opener, now=clock, settings=QUIET) as bank:
            assert bank.status().embedder == "ollama-mine-4"
    with Bank.open(bank_path, embedder="ollama:mine", opener=opener, now=clock, settings=QUIET) as bank:
        bank.remember("the kettle is blue", on_conflict="ignore")
    stub.requests.clear()
    stub.always = (503, {}, {})
    with Bank.open(bank_path, opener=opener, now=clock, settings=QUIET) as bank:
        assert bank.engine.embeddings.embedder.fingerprint == "ollama-mine-4"
        assert stub.requests == []


# Reading


USELESS: dict[str, Reply] = {
    "busy": (503, {"Retry-After": "60"}, {}),
    "no key": (401, {}, {"error": "no"}),
    "elsewhere": (302, {"Location": "http://127.0.0.1:1/"}, {}),
    "html": (200, {}, b"<html>"),
    "short": (200, {}, {"data": [{"index": 0, "embedding": [1.0, 2.0]}]}),
    "nan": (200, {}, b'{"data": [{"index": 0, "embedding": [1, 2, NaN, 0]}]}'),
    "too few": (200, {}, {"data": []}),
    "silent": (0, {}, {}),
}


@pytest.mark.parametrize("how", USELESS)
def test_recall_answers_by_words_while_the_service_is_down_and_says_so(
    clock: Clock, stub: Stub, how: str
) -> None:
    with without_worker(":memory:", remote(stub), clock) as bank:
        bank.remember("the red fox jumps over the fence", on_conflict="ignore")
        bank.reembed()
        stub.requests.clear()
        stub.always = USELESS[how]
        found = bank.recall("red fox", explain=True)

        assert [hit.memory.text for hit in found] == ["the red fox jumps over the fence"]
        assert found.reason.startswith("words alone: ")
        assert [stage.note for stage in found.trace if stage.name == "embedder"] == [found.reason]
        assert bank.status().embed_error in found.reason
        assert KEY not in found.reason
        most = 2 if how == "silent" else 1  # a kept connection that is gone is opened once more
        assert len(stub.requests) <= most, "a question does not try again"


def test_a_service_that_is_down_is_not_asked_by_every_question(clock: Clock, stub: Stub) -> None:
    with without_worker(":memory:", remote(stub), clock) as bank:
        bank.remember("the red fox jumps over the fence", on_conflict="ignore")
        bank.reembed()
        stub.requests.clear()
        stub.always = (503, {}, {})
        for query in ("red fox", "fox jumps", "the fence", "red fox"):
            assert "503" in bank.recall(query).reason
        assert bank.search_memory("red fox")
        assert bank.recommend("jump a fence") == []
        assert len(stub.requests) == 1

        stub.always = None
        clock.pass_seconds(OUTAGE_SECONDS - 1)
        assert "503" in bank.recall("fox").reason
        clock.pass_seconds(2)
        assert bank.recall("red fox").reason == "", "what was answered by words is not kept"
        assert bank.status().embed_error is None


def test_a_question_that_is_refused_does_not_silence_the_others(clock: Clock, stub: Stub) -> None:
    with without_worker(":memory:", remote(stub), clock) as bank:
        bank.remember("the red fox jumps over the fence", on_conflict="ignore")
        bank.reembed()
        stub.script = [(400, {}, {"error": "too long"})]

        assert "too long" in bank.recall("fox").reason
        assert "words alone" not in bank.recall("red fox").reason


def test_recall_by_meaning_alone_falls_back_to_words_too(clock: Clock) -> None:
    slow = Slow()
    with without_worker(":memory:", slow, clock) as bank:
        bank.remember("the red fox jumps over the fence", on_conflict="ignore")
        bank.reembed()
        slow.error = ConnectionError("net")
        found = bank.recall("red fox", preset="semantic")

        assert len(found) == 1
        assert found.reason == "words alone: slow-48 failed: ConnectionError: net"


def test_without_the_model_every_answer_says_so(bank_path: Path, clock: Clock) -> None:
    with without_worker(bank_path, Slow(), clock) as bank:
        bank.remember("the red fox jumps over the fence", on_conflict="ignore")
        bank.reembed()
    with Bank.open(bank_path, now=clock) as bank:
        found = bank.recall("red fox")
        assert len(found) == 1
        assert "slow-48) is not at hand: open the bank with it" in found.reason


def test_a_known_question_is_answered_by_meaning_even_now(clock: Clock) -> None:
    slow = Slow()
    with without_worker(":memory:", slow, clock) as bank:
        bank.remember("the red fox jumps over the fence", on_conflict="ignore")
        bank.reembed()
        bank.recall("red fox")
        bank.remember("something else", on_conflict="ignore")
        slow.error = ConnectionError("net")

        assert "words alone" not in bank.recall("red fox").reason


# The worker


@pytest.mark.parametrize(
    "use",
    [
        lambda bank, memory: bank.recall("bulk"),
        lambda bank, memory: bank.find("bulk"),
        lambda bank, memory: bank.get(memory),
        lambda bank, memory: bank.set_setting("a", 1),
    ],
    ids=["recall", "find", "get", "write"],
)
def test_the_first_use_after_opening_starts_the_worker(
    bank_path: Path, use: Callable[[Bank, str], object]
) -> None:
    with without_worker(bank_path, Slow(), system_now) as bank:
        memory = bank.remember_many([f"bulk {i}" for i in range(70)])[0].memory.id
    with Bank.open(bank_path, embedder=Slow()) as bank:
        assert bank.status().pending == 70
        use(bank, memory)
        emptied(bank)


def test_a_new_model_is_built_while_the_bank_is_only_read(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder="hash:64") as bank:
        bank.remember_many([f"bulk {i}" for i in range(70)])
    with Bank.open(bank_path, embedder=Slow()) as bank:
        assert len(bank.find("bulk")) == 50, "a use that does not look at vectors comes first"
        assert "words alone" not in bank.recall("bulk").reason
        emptied(bank)
        assert bank.status().embedder == "slow-48"
        assert "words alone" not in bank.recall("bulk 7").reason


@pytest.mark.parametrize("dim", [48, 64])
@pytest.mark.parametrize("verb", ["recall", "rank"])
def test_a_question_embedded_by_the_model_before_is_put_to_the_one_that_took_over_meanwhile(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch, dim: int, verb: str
) -> None:
    with Bank.open(bank_path, embedder="hash:64") as bank:
        bank.remember_many([f"bulk {i}" for i in range(70)])
    slow = Slow(dim, held=True)
    with Bank.open(bank_path, embedder=slow) as bank:
        embeddings = bank.engine.embeddings
        ask, spaces = embeddings.asked, list[str]()

        def asked(text: str, *state: Any) -> Any:
            found = ask(text, *state)
            spaces.append(found.space)
            if len(spaces) == 1:
                slow.go_on.set()
                emptied(bank)
            return found

        monkeypatch.setattr(embeddings, "asked", asked)
        found = getattr(bank, verb)("bulk 7", preset="hybrid")

    assert spaces == [HashingEmbedder(64).fingerprint, slow.fingerprint]
    assert (len(found), "words alone" in found.reason) == (5, False)


@pytest.mark.parametrize("spec", ["slow", "hash:32"])
def test_a_new_model_that_was_complete_when_its_process_died_is_used(bank_path: Path, spec: str) -> None:
    embedder: Any = Slow() if spec == "slow" else spec
    with Bank.open(bank_path, embedder="hash:64") as bank:
        bank.remember("the kettle is blue")
    with Bank.open(bank_path, embedder=embedder, settings=QUIET) as bank:
        bank.engine.embeddings.switch = lambda: False  # type: ignore[method-assign]
        bank.reembed()
        assert (bank.status().reembedding, bank.engine.store.building_space() is None) == (0, False)
    with Bank.open(bank_path, embedder=embedder) as bank:
        bank.find("kettle")
        emptied(bank)


def test_what_another_process_queues_is_embedded_too(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=Slow()) as bank:
        bank.recall("nothing yet")
        with without_worker(bank_path, Slow(), system_now) as other:
            other.remember("queued elsewhere", on_conflict="ignore")
        emptied(bank)


def test_reading_alone_starts_nothing_where_it_must_not(bank_path: Path) -> None:
    with without_worker(bank_path, Slow(), system_now) as bank:
        bank.remember("waits", on_conflict="ignore")
    slow = Slow()
    with Bank.open(bank_path, embedder=slow, read_only=True) as bank:
        assert bank.find("waits").memories
        assert bank.engine.embeddings._workers == {}
    with Bank.open(bank_path, embedder=slow, settings=QUIET) as bank:
        assert bank.recall("waits")
        assert bank.engine.embeddings._workers == {}
    assert set(slow.calls) <= {threading.current_thread().name}


def test_closing_does_not_wait_for_an_embedder_that_hangs_and_gives_its_batch_back(bank_path: Path) -> None:
    stuck = Slow(held=True)
    bank = Bank.open(bank_path, embedder=stuck, settings=Settings(close_seconds=0.01))
    bank.remember("waits", on_conflict="ignore")
    assert stuck.begun.wait(10)
    bank.close()
    try:
        with without_worker(bank_path, Slow(), system_now) as bank:
            assert bank.engine.embeddings.drain() == 1, "nobody has to wait for the lease"
    finally:
        stuck.go_on.set()


def test_what_was_just_written_is_embedded_before_the_bank_is_closed(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=Slow(), settings=QUIET) as bank:
        bank.remember("one", on_conflict="ignore")
    with Bank.open(bank_path, settings=QUIET) as bank:
        assert bank.status().pending == 0


def test_a_worker_that_is_gone_is_started_again_by_a_write(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=Slow()) as bank:
        bank.remember("one", on_conflict="ignore")
        emptied(bank)
        (worker,) = bank.engine.embeddings._workers.values()
        assert worker.stop(30)
        bank.remember("two", on_conflict="ignore")
        emptied(bank)


def test_what_an_embedder_raises_is_shown_and_tried_again(clock: Clock) -> None:
    slow = Slow()
    slow.error = ConnectionError("net")
    with Bank.open(":memory:", embedder=slow, now=clock) as bank:
        bank.remember("one", on_conflict="ignore")
        assert slow.begun.wait(10)
        (worker,) = bank.engine.embeddings._workers.values()
        worker.stop(30)
        assert bank.status().embed_error == "slow-48 failed: ConnectionError: net"
        slow.error = None
        clock.pass_seconds(60)
        bank.remember("two", on_conflict="ignore")
        emptied(bank)
        assert bank.status().embed_error is None


KILLED = """
import sys, time
from skep import Bank
from skep.embedding.static_table import HashingEmbedder

class Slow(HashingEmbedder):
    instant = False
    fingerprint = "slow-48"
    def embed(self, texts):
        if len(sys.argv) > 2:
            print("begun", flush=True)
            time.sleep(600)
        return super().embed(texts)

bank = Bank.open(sys.argv[1], embedder=Slow(48))
bank.reembed(lambda done, total: (sys.argv.append("hang"), None))
"""


def test_reembed_takes_over_what_a_killed_process_was_given(bank_path: Path, clock: Clock) -> None:
    with Bank.open(bank_path, embedder="hash:64") as bank:
        bank.remember_many([f"fact {i}" for i in range(100)])
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(bank_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.wait()
    process.stdout.close()
    with Bank.open(bank_path, embedder=Slow(), settings=QUIET) as bank:
        assert bank.status().reembedding == 36
        assert bank.engine.embeddings.drain() == 0, "they are leased"
        assert bank.reembed() == 36
        assert (bank.status().reembedding, bank.status().embedder) == (0, "slow-48")


def test_the_queue_takes_over_when_the_lease_has_ended(bank_path: Path, clock: Clock) -> None:
    with without_worker(bank_path, Slow(), clock) as bank:
        bank.remember("one", on_conflict="ignore")
        space = bank.engine.store.active_space()
        assert space is not None
        bank.engine.embeddings._worker(space).source.pending(64, clock())
        assert bank.engine.embeddings.drain() == 0
        clock.pass_seconds(LEASE_SECONDS + 1)
        assert bank.engine.embeddings.drain() == 1


def test_reembed_stops_at_a_service_that_is_down_and_goes_on_later(clock: Clock) -> None:
    slow = Slow()
    with without_worker(":memory:", slow, clock) as bank:
        bank.remember_many([f"fact {i}" for i in range(200)])
        slow.error = EmbedderUnavailableError("the service is down")
        assert bank.reembed() == 0
        assert len(slow.calls) == 1
        assert (bank.status().pending, bank.status().embed_error) == (200, "the service is down")
        slow.error = None
        assert bank.reembed() == 200


def test_one_refused_text_is_tried_once_by_reembed(clock: Clock) -> None:
    class Picky(Slow):
        def embed(self, texts: Sequence[str]) -> Any:
            if "fact 7" in texts:
                raise EmbeddingError("refused")
            return super().embed(texts)

    with without_worker(":memory:", Picky(), clock) as bank:
        bank.remember_many([f"fact {i}" for i in range(10)])
        assert bank.reembed() == 9
        assert bank.reembed() == 0
        assert (bank.status().pending, bank.status().embed_error) == (1, "refused")


# What comes in


class Odd(HashingEmbedder):
    """Gives what it is told to."""

    gives: Callable[[Sequence[str]], Any] | None = None
    slow = False

    @property
    def instant(self) -> bool:
        return not self.slow

    def embed(self, texts: Sequence[str]) -> Any:
        return super().embed(texts) if self.gives is None else self.gives(texts)


@pytest.mark.parametrize("slow", [False, True], ids=["instant", "slow"])
@pytest.mark.parametrize(
    "gives",
    [
        lambda texts: np.full((len(texts), 32), np.nan, np.float32),
        lambda texts: np.zeros((0, 32), np.float32),
        lambda texts: np.ones((len(texts), 3), np.float32),
        lambda texts: None,
        lambda texts: 1 / 0,
    ],
    ids=["nan", "no rows", "short", "none", "raises"],
)
def test_a_memory_whose_embedder_gives_nonsense_waits_and_is_found_by_words(
    clock: Clock, gives: Any, slow: bool
) -> None:
    odd = Odd(32)
    odd.gives, odd.slow = gives, slow
    with without_worker(":memory:", odd, clock) as bank:
        memory = bank.remember("the kettle is blue").memory
        assert memory.status == "pending"
        assert [hit.memory.id for hit in bank.recall("blue kettle")] == [memory.id]
        assert bank.reembed() == 0
        assert odd.fingerprint in (bank.status().embed_error or "")

        odd.gives = None
        clock.pass_seconds(3600)
        assert bank.reembed() == 1
        assert bank.recall("blue kettle").reason == ""


def test_an_embedder_may_give_lists(clock: Clock) -> None:
    odd = Odd(32)
    odd.gives = lambda texts: HashingEmbedder(32).embed(texts).tolist()
    with without_worker(":memory:", odd, clock) as bank:
        assert bank.remember("the kettle is blue").memory.status == "active"
        assert bank.recall("kettle", preset="semantic")


class Unnamed(Slow):
    """An embedder whose service has to be asked for its name and its scale; it looks whether the bank is held then."""

    bank: Bank | None = None

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self.held: list[str] = []

    def _look(self, what: str) -> None:
        if self.bank is None or what in self.asked:
            return  # a service is asked once
        self.asked.add(what)
        lock, free = self.bank.engine.store.connection.lock, threading.Event()

        def take() -> None:
            if lock.acquire(timeout=1):
                lock.release()
                free.set()

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        if not free.is_set():
            self.held.append(what)

    @property
    def fingerprint(self) -> str:
        self._look("name")
        return super().fingerprint

    def calibrate(self, cosine: float) -> float:
        self._look("scale")
        return super().calibrate(cosine)


@pytest.mark.parametrize(
    "verb", ["remember", "recall", "rank", "find_conflicts", "maintain", "status", "similar"]
)
@pytest.mark.parametrize("pure", [True, False])
def test_nobody_waits_while_a_service_is_asked_for_its_name_or_scale(
    tmp_path: Path, verb: str, pure: bool
) -> None:
    with Bank.open(tmp_path / "bank.skep", embedder=Slow()) as bank:
        for text in ("The office is in Oslo", "The office is not in Oslo", "The cat is black"):
            bank.remember(text, on_conflict="ignore")
        bank.reembed()
    unnamed = Unnamed()
    with Bank.open(tmp_path / "bank.skep", embedder=unnamed, settings=Settings(pure_reads=pure)) as bank:
        unnamed.bank = bank
        verbs: dict[str, Callable[[], object]] = {
            "remember": lambda: bank.remember("The office is in Bergen"),
            "recall": lambda: bank.recall("where is the office"),
            "rank": lambda: bank.rank("where is the office", preset="rrf"),
            "find_conflicts": lambda: list(bank.find_conflicts()),
            "maintain": bank.maintain,
            "status": bank.status,
            "similar": lambda: bank.recall("office", preset="semantic"),
        }
        verbs[verb]()
    assert unnamed.held == []
