"""Neighbours found in one pass are those that comparing everything with everything finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.maintenance.planted import planted

from skep.bank.bank import Bank
from skep.embedding.static_table import StaticEmbedder
from skep.engine.engine import Engine
from skep.filters import Filter
from skep.index import catch_up
from skep.index import neighbour_join as join_module
from skep.index.index import SegmentIndex
from skep.model import CURRENT, Memory
from skep.semantics.find_conflicts import neighbours, raw_bar, sharing_words
from skep.text.terms import query_terms


def filled(bank: Bank, count: int) -> list[Memory]:
    texts = sorted({each.text for each in planted(count, 11)})[:count]
    bank.remember_many(
        [{"text": text, "kind": "fact" if n % 5 else "episode"} for n, text in enumerate(texts)]
    )
    return list(bank.find(limit=10_000))


def indexed(bank: Bank, folder: Path, tail: int) -> Engine:
    """The engine of a bank, with an index whose tail holds no more than so many rows."""
    bank.engine._index = SegmentIndex(folder, bank.engine.store, tail_limit=tail)  # pyright: ignore
    bank.engine.index.refresh()
    return bank.engine


def by_hand(memories: list[Memory], threshold: float) -> dict[str, dict[str, float]]:
    embedder = StaticEmbedder()
    vectors = embedder.embed([memory.text for memory in memories])
    near: dict[str, dict[str, float]] = {}
    for one, a in zip(memories, vectors, strict=True):
        here = near.setdefault(one.id, {})
        for other, b in zip(memories, vectors, strict=True):
            similarity = embedder.calibrate(float(a @ b))
            if other.id != one.id and other.kind == one.kind and similarity >= threshold:
                here[other.id] = similarity
    return near


@pytest.mark.parametrize("threshold", [0.3, 0.8])
@pytest.mark.parametrize("tail", [64, 4096])
def test_the_pass_finds_what_comparing_all_with_all_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threshold: float, tail: int
) -> None:
    monkeypatch.setattr(join_module, "BLOCK", 50)
    monkeypatch.setattr(join_module, "ASKED", 70)
    monkeypatch.setattr(catch_up, "WORTH_SHARING", 1 << 20)
    with Bank.open(tmp_path / "bank.skep") as bank:
        memories = filled(bank, 300)
        engine = indexed(bank, tmp_path / "index", tail)
        assert (engine.index.stats().segments > 0) == (tail == 64)
        found = neighbours(engine, memories, threshold=threshold, limit=1000)
        wanted = by_hand(memories, threshold)

    for memory in memories:
        here = {other.id: similarity for other, similarity in found[memory.id]}
        sure = {i for i, similarity in wanted[memory.id].items() if similarity > threshold + 0.01}
        assert sure <= here.keys()
        assert all(here[i] == pytest.approx(wanted[memory.id].get(i, threshold), abs=0.01) for i in here)
        assert list(here.values()) == sorted(here.values(), reverse=True)


def test_only_the_nearest_are_kept_even_where_thousands_are_near(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_module, "MANY", 500)
    monkeypatch.setattr(join_module, "BLOCK", 40)
    bank.remember_many([f"The sensor in room {n} reports {n % 7} degrees" for n in range(200)])
    bank.engine.index.refresh()
    memories = list(bank.find(limit=1000))
    few = neighbours(bank.engine, memories, threshold=0.3, limit=3)
    many = neighbours(bank.engine, memories, threshold=0.3, limit=1000)
    for memory in memories:
        assert [s for _, s in few[memory.id]] == pytest.approx([s for _, s in many[memory.id][:3]])


def test_memories_of_other_scopes_and_without_vectors_are_no_neighbours(bank: Bank) -> None:
    for user in ("ana", "bo"):
        bank.remember("The door code is 1234", scope={"user": user}, on_conflict="ignore")
    bank.engine.index.refresh()
    memories = list(bank.find(limit=10))
    assert neighbours(bank.engine, memories, threshold=0.5, limit=5) == {m.id: [] for m in memories}
    assert neighbours(bank.engine, [], threshold=0.5, limit=5) == {}


def test_short_texts_that_share_their_frame_are_found_by_words(bank: Bank) -> None:
    for text in ("My favourite band is Pearl Jam", "My favourite band is Paramore", "The kettle is broken"):
        bank.remember(text, on_conflict="ignore")
    bank.engine.index.refresh()
    memories = list(bank.find(limit=10))
    alike = sharing_words(bank.engine, memories, least=0.5, limit=8, longest=12)
    pairs = {frozenset((i, other.id)) for i, found in alike.items() for other, _ in found}
    assert [{bank.get(i).text for i in pair} for pair in pairs] == [
        {"My favourite band is Pearl Jam", "My favourite band is Paramore"}
    ]


def test_the_raw_bar_lies_just_below_the_similarity(bank: Bank) -> None:
    bar = raw_bar(bank.engine, 0.8)
    assert bank.engine.embeddings.calibrate(bar) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("tail", [64, 4096])
@pytest.mark.parametrize("threshold", [0.6, 0.8])
def test_a_lens_loses_no_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threshold: float, tail: int
) -> None:
    monkeypatch.setattr(join_module, "TURN", 300)
    monkeypatch.setattr(join_module, "WASTE", 1.0)
    with Bank.open(tmp_path / "bank.skep") as bank:
        memories = filled(bank, 600)
        engine = indexed(bank, tmp_path / "index", tail)
        ground: list[tuple[int, ...]] = []
        grind = join_module._foremost  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(
            join_module,
            "_foremost",
            lambda *args: ground.append(args[0].shape) or grind(*args),  # type: ignore[func-returns-value]
        )
        plain = neighbours(engine, memories, threshold=threshold, limit=1000)
        assert not ground
        monkeypatch.setattr(join_module, "FEW", 10)
        seen = neighbours(engine, memories, threshold=threshold, limit=1000)
        assert ground

    def ids(found: dict[str, list[tuple[Memory, float]]]) -> dict[str, set[str]]:
        return {i: {other.id for other, _ in others} for i, others in found.items()}

    assert any(plain.values())
    assert ids(plain) == ids(seen)


@pytest.mark.parametrize("tail", [64, 4096])
def test_words_of_many_queries_are_searched_as_those_of_one(tmp_path: Path, tail: int) -> None:
    with Bank.open(tmp_path / "bank.skep") as bank:
        memories = filled(bank, 300)
        for memory in memories[::9]:
            bank.retract(memory.id)
        engine = indexed(bank, tmp_path / "index", tail)
        where = Filter(kinds=("fact",), statuses=CURRENT)
        queries = [query_terms(memory.text) for memory in memories] + [[], ["nobody-said-this"]]
        at_once = engine.index.best_by_words(queries, where, 7)
        one_by_one = [
            engine.index.search(terms, None, where, k_words=7, k_vectors=0).rows.tolist() for terms in queries
        ]
    assert [sorted(rows.tolist()) for rows in at_once] == one_by_one
    assert any(len(rows) == 7 for rows in at_once)


def test_an_identifier_counts_as_one_word_so_that_its_parts_do_not_hide_what_is_shared(bank: Bank) -> None:
    bank.remember("Use ruff for linting", on_conflict="ignore")
    bank.maintain()
    bank.remember("Use flake8 for linting", on_conflict="ignore")
    report = bank.maintain()
    assert report.queued == 1
