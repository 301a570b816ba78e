"""`rank` gives the ids and scores of `recall`, in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Clock

from skep.bank.async_bank import AsyncBank
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import ConfigError, InvalidInputError
from skep.model import Ranked, Recalled
from skep.retrieval.recall_config import PRESETS


def longest(_query: str, texts: Sequence[str]) -> list[float]:
    return [float(len(text)) for text in texts]


WORDS: dict[str, Any] = {
    "preset": "semantic",
    "config": {"k_words": 50, "k_vectors": 0, "weights": {"lexical": 1.0}},
}
WAYS: tuple[dict[str, Any], ...] = (
    *({"preset": name} for name in PRESETS),
    {},
    WORDS,
    {"preset": "rrf", "include_superseded": True},
    {"preset": "hybrid", "expand": True},
    {"preset": "hybrid", "tags": ["even"]},
    {"preset": "rrf", "kind": "episode"},
    {"preset": "semantic", "min_confidence": 0.5, "limit": 3},
    {"preset": "rrf", "config": {"dynamic_k": True}},
    {"preset": "default", "config": {"bar": "likely"}},
    {"preset": "rrf", "config": {"coverage": 0.5, "title": 0.5, "conversation": True}},
    {"preset": "hybrid", "config": {"temporal": "boost", "temporal_boost": 0.4}},
    {"preset": "rrf", "reranker": longest},
)
QUESTIONS = (
    "which port has the cache",
    "the cache",
    "what about 2025",
    "deploy key",
    "zzz",
    "is it staging?",
)


def named(way: dict[str, Any]) -> str:
    return (
        ", ".join(f"{key}={'...' if callable(value) else value}" for key, value in way.items()) or "deployed"
    )


def same(order: Ranked, found: Recalled) -> bool:
    """Whether an order is that of an answer, and says the same where it is short."""
    return (
        order.ids == tuple(hit.memory.id for hit in found.hits)
        and order.scores == tuple(hit.score for hit in found.hits)
        and order.reason == found.reason
    )


def fill(bank: Bank, count: int = 40) -> list[str]:
    """Memories that share words, some linked and some replaced."""
    things = ("cache", "deploy key", "staging database", "kettle")
    made = [
        bank.remember(
            f"The {things[i % 4]} number {i} has port {6000 + i % 7}",
            title=f"note {i}" if i % 5 == 0 else None,
            kind="episode" if i % 3 == 0 else "fact",
            tags=["even"] if i % 2 == 0 else [],
            importance=i / count,
            confidence=0.3 + 0.6 * (i % 4) / 3,
        ).memory.id
        for i in range(count)
    ]
    bank.link(made[0], made[3], rel="related")
    bank.supersede(made[4], bank.remember("The cache number 4 has port 7001").memory.id)
    bank.retract(made[8])
    return made


@pytest.fixture
def filled(bank_path: Path, clock: Clock) -> Iterator[Bank]:
    with Bank.open(bank_path, embedder=HashingEmbedder(64), now=clock) as bank:
        fill(bank)
        yield bank


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_the_order_is_that_of_recall(filled: Bank, clock: Clock, way: dict[str, Any]) -> None:
    for question in QUESTIONS:
        before = filled.rank(question, **way)
        found = filled.recall(question, **way)
        assert same(before, found)
        assert before == filled.rank(question, **way)
        clock.pass_seconds(7)
        again = filled.recall(question, **way)
        assert same(filled.rank(question, **way), again)


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_the_order_is_that_of_recall_from_segments_and_what_is_newer(
    bank_path: Path, clock: Clock, way: dict[str, Any]
) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(64), now=clock) as bank:
        fill(bank, 150)
    with Bank.open(bank_path, embedder=HashingEmbedder(64), now=clock) as bank:
        bank.recall("cache")
        assert bank.engine.index.stats().segments
        new = bank.remember("An umbrella hangs behind the door").memory
        bank.forget(bank.rank("kettle", preset="rrf").ids[:1])

        assert new.id in bank.rank("umbrella", preset="rrf").ids
        for question in QUESTIONS:
            assert same(bank.rank(question, **way), bank.recall(question, **way))


@given(
    texts=st.lists(st.text("abc dé", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=12),
    question=st.text("abc dé", min_size=1, max_size=12).filter(str.strip),
    preset=st.sampled_from(sorted(PRESETS)),
    config=st.fixed_dictionaries(
        {},
        optional={
            "k_words": st.integers(1, 5),
            "k_vectors": st.integers(0, 5),
            "select": st.sampled_from(["none", "mmr", "diversity"]),
            "bar": st.sampled_from(["weak", "likely"]),
            "conversation": st.booleans(),
            "updates": st.booleans(),
        },
    ),
    limit=st.integers(1, 8),
)
def test_whatever_is_asked_the_order_is_that_of_recall(
    texts: Sequence[str], question: str, preset: str, config: dict[str, Any], limit: int
) -> None:
    with Bank.open(":memory:", embedder=HashingEmbedder(32), now=Clock()) as bank:
        bank.remember_many({"text": text} for text in texts)
        order = bank.rank(question, preset=preset, config=config, limit=limit)
        assert same(order, bank.recall(question, preset=preset, config=config, limit=limit))


def test_an_order_counts_no_use(filled: Bank) -> None:
    for preset in (None, "rrf"):
        order = filled.rank("cache port", preset=preset)
        filled.engine.flush_uses()
        assert [filled.get(each).uses for each in order.ids] == [0] * len(order)


def test_an_order_is_a_sequence_of_ids_with_scores(filled: Bank) -> None:
    order = filled.rank("cache port", preset="rrf", limit=3)
    assert list(order) == list(zip(order.ids, order.scores, strict=True))
    assert order[0] == (order.ids[0], order.scores[0])
    assert len(order) == 3
    assert order


def test_an_empty_order_says_why(bank: Bank) -> None:
    order = bank.rank("anything", preset="rrf")
    assert not order
    assert order.reason == bank.recall("anything", preset="rrf").reason != ""


def test_the_order_of_a_moment_in_the_past(filled: Bank, clock: Clock) -> None:
    then = clock.now
    clock.pass_days(2)
    new = filled.remember("The cache has a second port").memory
    order = filled.rank("cache second port", preset="rrf", as_of=then)
    assert new.id not in order.ids
    assert same(order, filled.recall("cache second port", preset="rrf", as_of=then))


def test_a_deployed_config_counts_as_it_does_in_recall(filled: Bank) -> None:
    filled.set_setting("recall/config", {"limit": 2, "kinds": ["episode"], "updates": False})
    order = filled.rank("cache port")
    assert len(order) == 2
    assert same(order, filled.recall("cache port"))


def test_an_update_comes_first_as_it_does_in_recall(bank: Bank, clock: Clock) -> None:
    old = bank.remember("The snack budget for the movie night is $50").memory.id
    clock.pass_days(1)
    new = bank.remember("Drinks on Friday cost up to $75").memory.id
    asked = "What is the snack budget for the movie night?"
    assert bank.rank(asked).ids == (old, new)

    bank.link(new, old, "updates")

    order = bank.rank(asked)
    assert order.ids == (new, old)
    assert same(order, bank.recall(asked))


def test_what_recall_refuses_is_refused(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        bank.rank("x", limit=0)
    with pytest.raises(InvalidInputError, match="query"):
        bank.rank("")
    with pytest.raises(ConfigError, match="did you mean"):
        bank.rank("x", preset="rff")


def test_the_order_may_be_awaited(bank_path: Path) -> None:
    async def asked() -> tuple[Ranked, Recalled]:
        bank = await AsyncBank.open(bank_path, embedder=HashingEmbedder(64), now=Clock())
        async with bank:
            await bank.remember("The cache lives on port 6379")
            return await bank.rank("cache", preset="rrf"), await bank.recall("cache", preset="rrf")

    assert same(*asyncio.run(asked()))


def test_an_order_is_plain_json() -> None:
    order = Ranked(ids=("a-1",), scores=(0.5,), reason="")
    assert msgspec.json.encode(order) == b'{"ids":["a-1"],"scores":[0.5],"reason":""}'


class Failing(HashingEmbedder):
    """A service that answers until it is told to stop."""

    down = False

    @property
    def instant(self) -> bool:
        return False

    def embed(self, texts: Sequence[str]) -> Any:
        if self.down:
            raise ConnectionError("nobody there")
        return super().embed(texts)


def test_an_order_by_words_alone_says_so_as_recall_does(bank_path: Path, clock: Clock) -> None:
    service = Failing(64)
    with Bank.open(bank_path, embedder=service, now=clock) as bank:
        bank.remember("The cache lives on port 6379")
        bank.remember("The kettle is blue")
        bank.reembed()
        service.down = True
        order = bank.rank("which cache", preset="rrf")

        assert "words alone" in order.reason
        assert same(order, bank.recall("which cache", preset="rrf"))
