"""Neighbours in time: read off the index or asked of the store, they are the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.filters import Filter
from skep.index import columns
from skep.model import CURRENT
from skep.retrieval.sources import BankSources

SCOPES = (None, {"user": "ana"}, {"user": "ana", "session": "one"}, {"project": "hive"}, {"user": "bo"})


def filled(path: Path, clock: Clock, seed: int) -> Bank:
    """Five conversations, with pauses, equal times, other kinds, and memories that were replaced or forgotten."""
    draw = random.Random(seed)
    bank = Bank.open(path, embedder=HashingEmbedder(32), now=clock)
    start = clock()
    rows = [
        {
            "text": f"Turn {number} of the talk about {draw.choice(('tea', 'rain', 'trains'))}",
            "created_at": start - draw.choice((600, 3600, 5000)) * draw.randrange(60),
            "scope": draw.choice(SCOPES),
            "kind": draw.choice(("episode", "episode", "episode", "fact")),
            "agent": draw.choice(("one", "two")),
        }
        for number in range(150)
    ]
    done = bank.remember_many(rows)
    bank.engine.index.refresh()
    for memory in (each.memory for each in draw.sample(done, 8)):
        bank.forget(memory.id)
    for each in draw.sample(bank.find(limit=200).memories, 8):
        bank.revise(each.id, text=each.text + ", as told again")
    bank.remember("One more turn, newer than the segments", scope=SCOPES[1], on_conflict="ignore")
    bank.engine.index.refresh()
    return bank


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("window", [1, 2, 3])
def test_the_index_and_the_store_know_the_same_neighbours(
    bank_path: Path, clock: Clock, seed: int, window: int
) -> None:
    with filled(bank_path, clock, seed) as bank:
        sources = BankSources(bank.engine, bank.engine.active_space())
        every = np.array([row for row, _ in bank.engine.store.find(Filter(), limit=1000)], dtype=np.int64)
        for where in (Filter(statuses=CURRENT, now=clock()), Filter(agents=("one",), now=clock())):
            read = bank.engine.index.around(every, window, 3600.0, where)
            assert read is not None
            assert (read >= 0).any()
            assert (read == sources.around_in_store(every, window, where)).all()


def test_a_question_about_many_scopes_of_a_large_bank_is_left_to_the_store(
    bank_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(bank_path, clock, 1) as bank:
        sources = BankSources(bank.engine, bank.engine.active_space())
        every = np.array([row for row, _ in bank.engine.store.find(Filter(), limit=1000)], dtype=np.int64)
        near = sources.around(every, 2, Filter(now=clock()))
        bank.remember("A turn that makes what was kept untrue", on_conflict="ignore")
        bank.engine.index.refresh()
        monkeypatch.setattr(columns, "MOST", 100)

        assert bank.engine.index.around(every, 2, 3600.0, Filter(now=clock())) is None
        assert (sources.around(every, 2, Filter(now=clock())) == near).all()
