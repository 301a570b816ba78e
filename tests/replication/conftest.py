"""Empty banks on a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

EMBEDDER = HashingEmbedder(64)


@pytest.fixture
def banks(clock: Any) -> Iterator[Callable[[], Bank]]:
    """Makes empty banks in memory."""
    made: list[Bank] = []

    def make() -> Bank:
        bank = Bank.open(":memory:", embedder=EMBEDDER, now=clock)
        made.append(bank)
        return bank

    yield make
    for bank in made:
        bank.close()
