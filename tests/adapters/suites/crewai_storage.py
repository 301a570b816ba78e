"""CrewAI's LanceDB storage with skep's storage in its place."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

import crewai.memory.storage.lancedb_storage as module

from skep.adapters.crewai import BankStorage
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

OPEN: list[Bank] = []


class LanceDBStorage(BankStorage):
    """A storage in the bank beside a path."""

    def __init__(self, path: Any = None, **_options: Any) -> None:
        embedder = HashingEmbedder(32)
        place = ":memory:" if path is None else f"{Path(path)}.skep"
        OPEN.append(Bank.open(place, embedder=embedder))
        super().__init__(OPEN[-1], embedder=embedder)


@atexit.register
def _close() -> None:
    for bank in OPEN:
        bank.close()


module.LanceDBStorage = LanceDBStorage
