"""Scopes of candidates: read off the index, they are what the memories say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Clock
from tests.recall.test_neighbours import filled

from skep.bank.bank import Bank
from skep.filters import Filter
from skep.retrieval.sources import BankSources


def classes(values: Sequence[Hashable]) -> list[list[int]]:
    """Which positions have equal values, whatever those are."""
    found: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, value in enumerate(values):
        found[value].append(place)
    return sorted(found.values())


def every_row(bank: Bank) -> np.ndarray:
    return np.array([row for row, _ in bank.engine.store.find(Filter(), limit=1000)], dtype=np.int64)


@pytest.mark.parametrize("seed", range(2))
def test_the_index_knows_whose_each_memory_is(bank_path: Path, clock: Clock, seed: int) -> None:
    with filled(bank_path, clock, seed) as bank:
        sources, rows = BankSources(bank.engine, bank.engine.active_space()), every_row(bank)
        listed = [memory.scope for memory in sources.memories(rows)]

        found = sources.scopes(rows)

        assert classes(found.place.tolist()) == classes([(s.user, s.project) for s in listed])
        assert ((found.place == 0) == [s.user is None and s.project is None for s in listed]).all()
        in_session = [s if s.session else None for s in listed]
        assert classes(found.talk.tolist()) == classes(in_session)
        assert ((found.talk == 0) == [s is None for s in in_session]).all()


def test_rows_the_index_does_not_know_belong_to_nobody(bank_path: Path, clock: Clock) -> None:
    with filled(bank_path, clock, 0) as bank:
        sources, unknown = (
            BankSources(bank.engine, bank.engine.active_space()),
            np.array([999_999], dtype=np.int64),
        )

        assert sources.scopes(unknown).place.tolist() == [0]
        assert sources.scopes(unknown).talk.tolist() == [0]
