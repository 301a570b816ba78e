"""A recall sees one moment, whatever others write meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.filters import Filter
from skep.recall.recaller import Recaller


def test_forgetting_while_others_recall_breaks_no_answer(bank: Bank) -> None:
    ids = [m.memory.id for m in bank.remember_many([f"shared note number {i}" for i in range(60)])]
    errors: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                for hit in bank.recall("shared note", limit=20):
                    assert hit.memory.text
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for memory_id in ids[:40]:
        bank.forget(memory_id)
    done.set()
    for reader in readers:
        reader.join()
    assert errors == []


class Slow(HashingEmbedder):
    """Not instant, so that a queue and its workers are needed."""

    @property
    def instant(self) -> bool:
        return False


@pytest.mark.parametrize("call", ["recall", "work"])
def test_whoever_is_writing_may_recall_and_start_workers_while_another_does(
    bank_path: Path, call: str
) -> None:
    bank = Bank.open(bank_path, embedder=Slow(32))
    bank.remember("shared note", on_conflict="ignore")
    engine = bank.engine
    recaller = Recaller(engine)
    question = recaller.question(Filter(), 5, deployed={})
    calls = {
        "recall": lambda: recaller.answer("shared note", question, engine.now(), count_uses=False),
        "work": engine.embeddings.work,
    }
    entered, finished = threading.Event(), threading.Event()

    def other() -> None:
        entered.set()
        calls[call]()

    def writer() -> None:
        with engine.store.writing():
            waiting = threading.Thread(target=other, daemon=True)
            waiting.start()
            entered.wait()
            waiting.join(0.2)  # it now waits for the end of this transaction, with whatever it has taken
            calls[call]()
        waiting.join(10)
        finished.set()

    threading.Thread(target=writer, daemon=True).start()
    assert finished.wait(20), "two locks were taken in two orders"
    bank.close()


def test_what_an_embedder_uses_again_is_not_kept(clock: Clock) -> None:
    class Reusing(HashingEmbedder):
        """Gives the same array every time, filled anew."""

        room = np.zeros((8, 32), dtype=np.float32)

        def embed(self, texts: Sequence[str]) -> Any:
            self.room[: len(texts)] = super().embed(texts)
            return self.room[: len(texts)]

    with Bank.open(":memory:", embedder=Reusing(32), now=clock) as bank:
        embeddings = bank.engine.embeddings
        first = embeddings.query_vector("alpha")
        assert first is not None
        before = first.copy()
        embeddings.query_vector("something else")
        np.testing.assert_array_equal(embeddings.query_vector("alpha"), before)
