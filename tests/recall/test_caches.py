"""What is kept between recalls saves work and never serves what is no longer true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import Clock

from skep.bank import Bank
from skep.embedding.hashing import HashingEmbedder


class Counting(HashingEmbedder):
    """Says which texts it was asked to embed."""

    def __init__(self) -> None:
        super().__init__(64)
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return super().embed(texts)


def test_a_query_is_embedded_once_though_the_bank_changes(clock: Clock) -> None:
    embedder = Counting()
    with Bank.open(":memory:", embedder=embedder, now=clock) as bank:
        bank.remember("The cache lives on port 6379")
        assert bank.recall("cache port")
        new = bank.remember("The cache port was changed to 6380").memory
        found = bank.recall("cache port", limit=10)

    assert new.id in [hit.memory.id for hit in found.hits]
    assert embedder.asked.count("cache port") == 1


def test_a_setting_or_a_memory_written_by_another_process_is_seen_at_once(
    bank_path: Path, clock: Clock
) -> None:
    with (
        Bank.open(bank_path, embedder=HashingEmbedder(64), now=clock) as one,
        Bank.open(bank_path, embedder=HashingEmbedder(64), now=clock) as other,
    ):
        one.remember("The deploy key rotates on Monday")
        assert len(other.recall("deploy key").hits) == 1
        one.remember("The deploy key rotates weekly")
        assert len(other.recall("deploy key").hits) == 2
        one.set_setting("recall/config", {"limit": 1})
        assert len(other.recall("deploy key").hits) == 1


def test_what_expires_leaves_the_answers_when_its_time_comes(bank: Bank, clock: Clock) -> None:
    bank.remember("The maintenance window is open", ttl=100)
    assert bank.recall("maintenance window")
    clock.pass_seconds(101)
    assert not bank.recall("maintenance window")


def test_what_expired_while_its_query_was_embedded_is_not_kept(clock: Clock) -> None:
    class Tardy(HashingEmbedder):
        """Takes five seconds for a query."""

        def embed(self, texts: Sequence[str]) -> Any:
            clock.pass_seconds(5 if list(texts) == ["maintenance window"] else 0)
            return super().embed(texts)

    with Bank.open(":memory:", embedder=Tardy(64), now=clock) as bank:
        bank.remember("The maintenance window is open", ttl=3)
        assert bank.recall("maintenance window")
        assert not bank.recall("maintenance window")
