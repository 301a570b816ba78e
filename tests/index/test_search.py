from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from skep import runtime
from skep.errors import EmbedderMismatchError
from skep.filters import Filter
from skep.index import vector_search
from skep.index.index import SegmentIndex

from .bank import FakeBank, assert_same, expected, unit

DIMS = [16, 64, 100, 256, 384, 768]
ALL = Filter(statuses=())


def clustered(count: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    """Vectors in clusters, the same for every seed, with a mean in common and a falling spectrum."""
    fall = np.arange(1, dim + 1) ** -0.4
    centres = (np.random.default_rng(0).standard_normal((40, dim)) + 0.5) * fall
    random = np.random.default_rng([1, seed])
    rows = centres[random.integers(40, size=count)] + 0.8 * random.standard_normal((count, dim)) * fall
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def filled(count: int, dim: int, tmp_path: Path | None, limit: int = 500) -> tuple[FakeBank, SegmentIndex]:
    bank = FakeBank(dim)
    words = ["dog", "cat", "bird", "fish", "tree", "river", "stone", "cloud"]
    random = np.random.default_rng(1)
    for row, vector in enumerate(clustered(count, dim), 1):
        text = " ".join(words[i] for i in random.integers(8, size=random.integers(1, 9)))
        bank.put(
            row, text, vector.tolist(), tags=("odd",) if row % 2 else ("rare",) if row % 100 == 0 else ()
        )
    index = SegmentIndex(tmp_path, bank, tail_limit=limit)
    index.refresh()
    return bank, index


@pytest.mark.parametrize("dim", DIMS)
def test_the_nearest_are_found_in_any_dimension(dim: int) -> None:
    bank, index = filled(4000, dim, None)
    stored = np.stack([np.frombuffer(row.vector or b"", "<f4") for row in bank.live])
    share = 0.0
    for query in clustered(20, dim, seed=5):
        cosine = stored @ query
        right = (np.argsort(-cosine)[:50] + 1).tolist()
        pool = index.similar(query, ALL, 50)
        share += len(set(right) & set(pool.rows.tolist())) / 50 / 20
        np.testing.assert_allclose(pool.cosine, cosine[pool.rows - 1], atol=5e-4)
    assert share >= 0.995


def test_a_close_group_does_not_hide_the_rest() -> None:
    bank = FakeBank(64)
    rows = clustered(6000, 64)
    rows[:700] = rows[0] + 0.01 * np.random.default_rng(3).standard_normal((700, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for row, vector in enumerate(rows, 1):
        bank.put(row, "", vector.tolist())
    index = SegmentIndex(None, bank, tail_limit=500)
    index.refresh()

    found = index.similar(rows[0], ALL, 900).rows.tolist()

    right = set((np.argsort(-(rows @ rows[0]))[:900] + 1).tolist())
    assert len(right & set(found)) >= 0.97 * 900


@pytest.mark.parametrize(
    ("tags", "count"), [((("odd",),), 3000), ((("rare",),), 60), ((("odd", "rare"),), 3060)]
)
def test_broad_and_selective_filters_find_exactly_their_rows(tags: Any, count: int) -> None:
    bank, index = filled(6000, 64, None)
    where = Filter(tags=tags)
    query = clustered(1, 64, seed=9)[0]
    words, cosine = expected(bank, ["dog", "river"], query, where)

    pool = index.search(["dog", "river"], query, where, k_words=20, k_vectors=20)

    assert (len(words), count) == (pool.words_total, pool.vectors_total)
    assert set(pool.rows.tolist()) <= set(cosine)
    best = sorted(cosine, key=lambda row: -cosine[row])[:20]
    assert len(set(best) & set(pool.rows.tolist())) >= 19


@pytest.mark.parametrize(
    "terms", [["dog"], ["dog", "cat", "bird"], ["dog", "unheard"], ["stone", "dog", "dog"]]
)
def test_words_rank_as_the_book_says_however_common_they_are(terms: list[str]) -> None:
    bank, index = filled(3000, 16, None)
    words = expected(bank, terms, None, ALL).words
    best = sorted(words, key=lambda row: (-np.float32(words[row]), row))[:50]

    pool = index.search(terms, None, ALL, k_words=50, k_vectors=0)

    assert len(words) == pool.words_total
    assert min(words[row] for row in best) == pytest.approx(
        min(words[row] for row in pool.rows.tolist()), rel=1e-5
    )
    assert np.isnan(pool.cosine).all()


def test_scores_and_order_do_not_depend_on_how_the_bank_is_cut(tmp_path: Path) -> None:
    bank, cut = filled(1900, 32, tmp_path, limit=150)
    for row in range(1, 1900, 7):
        bank.change(row, importance=0.9)
    for row in range(3, 1900, 50):
        bank.forget(row)
    cut.refresh()
    whole = SegmentIndex(None, bank)
    whole.refresh()
    assert cut.stats().segments > 1 or cut.stats().tail

    for query in clustered(5, 32, seed=3):
        left = cut.search(["dog", "tree"], query, ALL, k_words=30, k_vectors=30)
        right = whole.search(["dog", "tree"], query, ALL, k_words=30, k_vectors=30)
        assert_same(left, right)
        assert (left.words_total, left.vectors_total) == (right.words_total, right.vectors_total)


def test_deleting_the_folder_gives_the_same_order_after_rebuilding(tmp_path: Path) -> None:
    _, index = filled(1900, 32, tmp_path, limit=150)
    query = clustered(1, 32, seed=3)[0]
    before = index.search(["dog", "tree"], query, ALL, k_words=30, k_vectors=30)

    index.drop()
    assert list(tmp_path.glob("*.seg")) == []
    index.refresh()

    after = index.search(["dog", "tree"], query, ALL, k_words=30, k_vectors=30)
    assert_same(before, after)


def test_rows_without_a_vector_are_found_by_their_words() -> None:
    bank = FakeBank(4)
    bank.put(1, "dog", None, status="pending")
    bank.put(2, "cat", [1, 0, 0, 0])
    bank.put(3, "dog", [0, 0, 0, 0])
    index = SegmentIndex(None, bank, tail_limit=1)
    index.refresh()

    pool = index.search(["dog"], np.array([1, 0, 0, 0], dtype=np.float32), Filter(), k_words=5, k_vectors=5)

    assert pool.rows.tolist() == [1, 2, 3]
    np.testing.assert_array_equal([np.nan, 1.0, np.nan], pool.cosine)
    assert (pool.words_total, pool.vectors_total) == (2, 1)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("few", [50, 2000])
def test_rows_without_a_vector_do_not_displace_those_that_point_away(
    monkeypatch: pytest.MonkeyPatch, few: int, *, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr(runtime, "native", None)
    elif runtime.native is None:
        pytest.skip("not built: `pip install ./native` needs a C compiler and Python's headers")
    monkeypatch.setattr(vector_search, "FEW", few)
    bank = FakeBank(16)
    random = np.random.default_rng(2)
    for row in range(1, 601):
        bank.put(row, "a dog", None if row % 5 else (random.random(16) + 0.1).tolist())
    query = -np.ones(16, dtype=np.float32)
    index = SegmentIndex(None, bank, tail_limit=500)
    index.refresh()
    by_book = expected(bank, [], query, ALL).cosine
    assert max(by_book.values()) < 0
    for k in (1, 20, 100, 600):
        found = index.search([], query, ALL, k_words=0, k_vectors=k)
        nearest = sorted(by_book, key=lambda row: -by_book[row])[:k]
        assert found.rows.tolist() == sorted(nearest)


def test_however_many_are_asked_for_there_are_no_more_than_there_are() -> None:
    _, index = filled(3000, 16, None)
    query = clustered(1, 16, 3)[0]
    all_rows = index.search(["dog"], query, ALL, k_words=3000, k_vectors=3000).rows.tolist()
    assert all_rows == list(range(1, 3001))
    assert index.search(["dog"], query, ALL, k_words=1 << 70, k_vectors=1 << 70).rows.tolist() == all_rows


def test_ties_go_to_the_smaller_row() -> None:
    bank = FakeBank(4)
    for row in (9, 2, 7, 4, 5):
        bank.put(row, "dog", [1, 0, 0, 0])
    index = SegmentIndex(None, bank, tail_limit=2)
    index.refresh()

    pool = index.search(["dog"], np.array([1, 0, 0, 0], dtype=np.float32), ALL, k_words=2, k_vectors=3)

    assert pool.rows.tolist() == [2, 4, 5]


def test_a_query_without_direction_searches_by_words_alone() -> None:
    bank, index = filled(100, 16, None)

    pool = index.search(["dog"], np.zeros(16, dtype=np.float32), ALL, k_words=5, k_vectors=5)

    assert np.isnan(pool.cosine).all()
    assert pool.vectors_total == 0
    assert len(pool.rows) == min(5, pool.words_total)
    assert bank.head() == index.refresh()


def test_a_query_of_another_dimension_is_refused() -> None:
    _, index = filled(10, 16, None)

    with pytest.raises(EmbedderMismatchError, match="16"):
        index.similar(np.ones(8, dtype=np.float32), ALL, 5)


def test_an_empty_bank_answers_with_nothing(tmp_path: Path) -> None:
    index = SegmentIndex(tmp_path, FakeBank(16))
    index.refresh()

    pool = index.search(["dog"], np.ones(16, dtype=np.float32), ALL, k_words=5, k_vectors=5)

    assert (len(pool.rows), pool.words_total, pool.vectors_total) == (0, 0, 0)
    assert index.stats().rows == 0


def test_a_bank_without_vectors_answers_by_words(tmp_path: Path) -> None:
    bank = FakeBank(0)
    for row in range(1, 20):
        bank.put(row, "dog" if row % 2 else "cat")
    index = SegmentIndex(tmp_path, bank, tail_limit=4)
    index.refresh()

    pool = index.search(["cat"], np.ones(3, dtype=np.float32), ALL, k_words=50, k_vectors=5)

    assert list(range(2, 20, 2)) == pool.rows.tolist()


def test_vectors_come_back_to_closely(tmp_path: Path) -> None:
    bank, index = filled(400, 64, tmp_path, limit=100)
    rows = np.array([5, 300, 399, 12345], dtype=np.int64)

    found = index.vectors(rows)

    for row, vector in zip(rows.tolist()[:3], found, strict=False):
        there = unit(np.frombuffer(bank.rows[row].vector or b"", "<f4"))
        np.testing.assert_allclose(vector, there, atol=3e-4)
    assert not found[3].any()


def test_impacts_add_up_to_the_score_and_unknown_rows_give_zeros(tmp_path: Path) -> None:
    _, index = filled(400, 16, tmp_path, limit=100)
    terms = ["dog", "tree", "unheard"]
    pool = index.search(terms, None, ALL, k_words=400, k_vectors=0)
    rows = np.concatenate([pool.rows[::-1], [-1]])

    parts = index.impacts(terms, rows)

    assert (len(rows), 3) == parts.shape
    np.testing.assert_allclose(parts[:-1].sum(axis=1), pool.words[::-1], rtol=1e-5)
    assert not parts[-1].any()
    assert not parts[:, 2].any()


def test_idf_is_that_of_the_whole_bank(tmp_path: Path) -> None:
    bank, index = filled(400, 16, tmp_path, limit=100)
    for row in range(1, 100):
        bank.change(row, text="zebra")
    index.refresh()

    rare, unheard = index.idf(["zebra", "unheard"])

    assert rare == pytest.approx(np.log(1 + (400 - 99 + 0.5) / 99.5))
    assert unheard == pytest.approx(np.log(1 + 400.5 / 0.5))


def test_lookup_keeps_the_order_asked_for(tmp_path: Path) -> None:
    _, index = filled(400, 16, tmp_path, limit=100)
    rows = np.array([300, 7, 400, 999_999], dtype=np.int64)

    pool = index.lookup(rows, ["dog"], np.ones(16, dtype=np.float32))

    assert rows.tolist() == pool.rows.tolist()
    assert pool.created_at[:3].tolist() == [300.0, 7.0, 400.0]
    assert np.isnan(pool.cosine[3])
    assert pool.words[3] == 0


def test_identical_vectors_do_not_hide_others() -> None:
    bank = FakeBank(16)
    same, other = [1.0] * 16, [1.0] * 15 + [0.5]
    for row in range(1, 5000):
        bank.put(row, "", same)
    bank.put(5000, "", other)
    index = SegmentIndex(None, bank)
    index.refresh()

    pool = index.similar(np.array(other, dtype=np.float32), ALL, 3)

    assert pool.rows.tolist() == [1, 2, 5000]


def test_rows_that_an_empty_index_does_not_know_score_nothing_and_have_defaults() -> None:
    index = SegmentIndex(None, FakeBank(4), tail_limit=1)

    user, created = index.columns(("user", "created_at"), np.array([1, 2]))

    assert user.tolist() == [0, 0]
    assert len(created) == 2
    pool = index.lookup(np.array([1, 2]), ["dog"], np.ones(4, np.float32))
    assert pool.rows.tolist() == [1, 2]
    assert pool.words.tolist() == [0, 0]
