"""Changing the model is a non-event: recall goes on, and vectors of two models never meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.conftest import Clock
from tests.embedding.slow import NotInstant

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import EmbedderUnavailableError


class Slow(NotInstant):
    """An embedder that is not instant, and may be out of reach."""

    def __init__(self, dim: int = 48) -> None:
        super().__init__(dim)
        self.down = False
        self.calls = 0

    def embed(self, texts: Sequence[str]) -> Any:
        self.calls += 1
        if self.down:
            raise EmbedderUnavailableError("the service is down")
        return super().embed(texts)


def bank_without_worker(path: Path | str, embedder: Any, clock: Clock) -> Bank:
    bank = Bank.open(path, embedder=embedder, now=clock)
    bank.engine.embeddings.work = lambda **_: None  # type: ignore[method-assign]
    return bank


def test_a_slow_embedder_does_not_hold_up_remember(clock: Clock) -> None:
    slow = Slow()
    with bank_without_worker(":memory:", slow, clock) as bank:
        memory = bank.remember("the kettle is on the second shelf", on_conflict="ignore").memory

        assert (memory.status, memory.embedder, slow.calls) == ("pending", None, 0)
        assert bank.status().pending == 1
        assert [hit.memory.status for hit in bank.recall("kettle shelf")] == ["pending"]

        assert bank.reembed() == 1
        assert bank.get(memory.id).status == "active"
        assert bank.status().pending == 0
        assert len(bank.recall("kettle", preset="semantic")) == 1


def test_the_background_worker_embeds_by_itself(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=Slow()) as bank:
        bank.remember_many([f"note {i}" for i in range(10)])
        worker = next(iter(bank.engine.embeddings._workers.values()))
        worker.stop(timeout=30)
        worker.flush()
        assert bank.status().pending == 0


def test_a_failing_service_is_retried_later_and_shown(clock: Clock) -> None:
    slow = Slow()
    slow.down = True
    with bank_without_worker(":memory:", slow, clock) as bank:
        bank.remember("waits", on_conflict="ignore")
        assert bank.reembed() == 0
        assert bank.status().embed_error == "the service is down"
        slow.down = False
        assert bank.engine.embeddings.drain() == 0, "the queue tries it again in its time"
        assert bank.reembed() == 1, "who asks for it does not wait for that"
        assert (bank.status().pending, bank.status().embed_error) == (0, None)


def test_a_revised_text_is_embedded_again(clock: Clock) -> None:
    with bank_without_worker(":memory:", Slow(), clock) as bank:
        memory = bank.remember("red apple", on_conflict="ignore").memory
        bank.reembed()
        bank.revise(memory.id, text="blue whale")
        assert bank.get(memory.id).status == "pending"
        bank.reembed()
        (hit,) = bank.recall("blue whale", preset="semantic")
        assert hit.signals["semantic"] > 0.9


def test_recall_uses_the_old_vectors_until_the_new_ones_are_complete(bank_path: Path, clock: Clock) -> None:
    with Bank.open(bank_path, embedder="hash:64", now=clock) as bank:
        bank.remember_many([f"note about topic{i}" for i in range(30)])
        assert bank.status().embedder == HashingEmbedder(64).fingerprint

    slow = Slow(48)
    with bank_without_worker(bank_path, slow, clock) as bank:
        assert len(bank.recall("topic7", preset="semantic")) == 5
        assert bank.status().embedder == HashingEmbedder(64).fingerprint
        assert bank.status().reembedding == 30
        added = bank.remember("note about topic99", on_conflict="ignore").memory
        assert added.status == "active", "the old space is still served"
        bank.engine.embeddings._worker(bank.engine.store.building_space()).run_once()  # type: ignore[arg-type]

    with bank_without_worker(bank_path, slow, clock) as bank:
        assert bank.reembed() <= 31, "resumes where it was"
        status = bank.status()
        assert (status.embedder, status.reembedding, status.pending) == ("slow-48", 0, 0)
        assert bank.recall("topic99", preset="semantic")[0].memory.id == added.id
        assert {48 * 2} == {len(v) for v in bank.engine.store.vectors_of(range(1, 32)).values()}


def test_without_the_old_embedder_recall_goes_by_words_and_says_so(bank_path: Path, clock: Clock) -> None:
    with bank_without_worker(bank_path, Slow(32), clock) as bank:
        bank.remember("the kettle is blue", on_conflict="ignore")
        bank.reembed()
    with bank_without_worker(bank_path, Slow(48), clock) as bank:
        found = bank.recall("kettle", explain=True)
        assert [hit.memory.text for hit in found] == ["the kettle is blue"]
        assert any("words alone" in stage.note for stage in found.trace)


def test_progress_is_reported(clock: Clock) -> None:
    with bank_without_worker(":memory:", Slow(), clock) as bank:
        bank.remember_many([f"n{i}" for i in range(150)])
        seen: list[tuple[int, int]] = []
        bank.reembed(lambda done, total: seen.append((done, total)))
        assert seen[-1] == (150, 150)
        assert len(seen) >= 3


def test_wrong_dimensions_are_refused(clock: Clock) -> None:
    class Liar(Slow):
        def embed(self, texts: Sequence[str]) -> Any:
            return np.zeros((len(texts), 7), dtype=np.float32)

    with bank_without_worker(":memory:", Liar(), clock) as bank:
        bank.remember("x", on_conflict="ignore")
        assert bank.reembed() == 0
        assert bank.status().pending == 1
        assert "1 x 7 for 1 text of 48 dimensions" in (bank.status().embed_error or "")
