"""What is kept between recalls saves work and never serves what is no longer true."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Clock

from skep.bank import Bank
from skep.embedding.hashing import HashingEmbedder
from skep.errors import InvalidInputError


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


def test_a_reranker_may_take_its_time_while_others_recall_and_write(bank: Bank) -> None:
    bank.remember("The deploy key rotates on Monday")
    bank.remember("The deploy key is kept in the vault")
    answers: list[int] = []

    def slow(_query: str, texts: Sequence[str]) -> list[float]:
        other = threading.Thread(target=lambda: answers.append(len(bank.recall("vault key").hits)))
        other.start()
        other.join(30)
        bank.remember("The deploy key was rotated by hand")
        return [float("vault" in text) for text in texts]

    found = bank.recall("deploy key", reranker=slow)

    assert answers == [1]
    assert found[0].memory.text == "The deploy key is kept in the vault"


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")]])
def test_a_reranker_that_gives_no_score_for_a_text_is_told_so(bank: Bank, scores: list[float]) -> None:
    bank.remember_many(["The deploy key rotates on Monday", "The deploy key is kept in the vault"])
    with pytest.raises(InvalidInputError, match="one number for each"):
        bank.recall("deploy key", reranker=lambda _query, _texts: scores)


def test_the_scale_of_a_reranker_is_its_own(bank: Bank) -> None:
    bank.remember_many(["The deploy key rotates on Monday", "The deploy key is kept in the vault"])
    found = bank.recall("deploy key", reranker=lambda _query, texts: [-9.0 - i for i in range(len(texts))])
    assert [hit.score for hit in found] == [-9.0, -10.0]
