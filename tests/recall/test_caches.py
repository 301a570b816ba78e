"""What is kept between recalls saves work and never serves what is no longer true."""

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


def test_an_answer_by_the_hour_moves_with_the_clock(bank: Bank, clock: Clock) -> None:
    bank.remember("The nightly import has finished")
    question = "what happened in the last hour?"
    clock.pass_seconds(3590)
    assert len(bank.recall(question, config={"temporal": "filter"})) == 1
    clock.pass_seconds(20)

    assert not bank.recall(question, config={"temporal": "filter"})


@pytest.mark.parametrize(
    ("question", "seconds", "kept"),
    [
        ("what happened in the last hour?", 3600, False),
        ("what happened in the last 30 minutes?", 1800, False),
        ("what happened since the last 2 hours?", 7200, False),
        ("what happened today?", None, True),
        ("what happened this morning?", None, True),
    ],
)
def test_no_kept_answer_outlives_the_time_it_is_about(
    bank: Bank, clock: Clock, question: str, seconds: int | None, kept: bool
) -> None:
    config = {"temporal": "filter"}
    bank.remember("The nightly import has finished")
    clock.now += seconds - 0.5 if seconds else 86_400 - clock.now % 86_400 - 0.5
    recaller = bank._recall
    for _ in range(2):
        assert len(bank.recall(question, config=config)) == 1
    assert recaller.cache_hits == int(kept)
    clock.pass_seconds(0.5 if seconds is None else 1)

    assert not bank.recall(question, config=config)


@pytest.mark.parametrize("question", ["what are the office hours?", "which job runs 24 hours a day?"])
def test_a_question_that_only_speaks_of_hours_is_kept_like_any_other(bank: Bank, question: str) -> None:
    bank.remember("The office hours are nine to five, and one job runs 24 hours a day")
    assert bank.recall(question) == bank.recall(question)
    assert bank._recall.cache_hits == 1


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

    assert answers == [2]
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


def test_a_scale_of_ones_own_is_read_off_for_many_cosines_as_it_is_for_few(clock: Clock) -> None:
    class Own(Counting):
        def __init__(self) -> None:
            super().__init__()
            del self.calibration

        def calibrate(self, cosine: float) -> float:
            return max(0.0, cosine) ** 2

    with Bank.open(":memory:", embedder=Own(), now=clock) as bank:
        bank.remember("The cache lives on port 6379")
        many = np.linspace(-1.0, 1.0, 4001, dtype=np.float32)
        many[7] = np.nan
        scaled = bank.engine.embeddings.calibrate_many(many)

    assert np.isnan(scaled[7])
    assert np.allclose(np.delete(scaled, 7), np.maximum(np.delete(many, 7), 0.0) ** 2, atol=1e-5)


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


def test_age_alone_takes_nothing_out_of_an_answer(bank: Bank, clock: Clock) -> None:
    bank.remember("The gateway port is 80", confidence=0.7)
    for _ in range(3):
        clock.pass_days(200)
        assert len(bank.recall("gateway port", min_confidence=0.7)) == 1


def test_what_a_caller_does_to_an_answer_is_not_served_to_the_next(bank: Bank) -> None:
    bank.remember("The gateway port is 80", metadata={"seen": ["ana"]})
    first = bank.recall("gateway port")
    kept = dict(first[0].signals)
    for found in (first, bank.recall("gateway port")):
        found[0].signals.clear()
        found[0].memory.metadata["seen"].append("bob")

    again = bank.recall("gateway port")

    assert (again[0].signals, again[0].memory.metadata) == (kept, {"seen": ["ana"]})


def test_a_reranker_that_empties_what_it_is_given_is_told_what_it_should_have_done(bank: Bank) -> None:
    bank.remember("The gateway port is 80")

    def careless(_query: str, texts: Any) -> list[float]:
        texts.clear()
        return []

    with pytest.raises(InvalidInputError, match="one number for each of the 1 texts"):
        bank.recall("gateway port", reranker=careless)
