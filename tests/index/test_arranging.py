from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from skep.filters import Filter
from skep.index import segment_builder
from skep.index.index import SegmentIndex
from skep.index.quantisation import encode, no_codes
from skep.index.segment_builder import FEW, arranged

from .bank import FakeBank
from .test_search import clustered

ALL = Filter(statuses=())


def test_rows_that_are_alike_become_neighbours() -> None:
    rows = clustered(FEW, 64)
    order = arranged(encode(rows))
    assert order is not None
    assert sorted(order.tolist()) == list(range(FEW))
    place = np.argsort(order)
    nearest = np.argpartition(-(rows[:20] @ rows.T), 100, axis=1)[:, :100]
    pieces = [len(np.unique(place[near] // 64)) for near in nearest]
    before = [len(np.unique(near // 64)) for near in nearest]
    assert sum(pieces) < sum(before) / 2


def test_few_rows_and_rows_without_vectors_stay_as_they_are() -> None:
    assert arranged(None) is None
    assert arranged(encode(clustered(FEW - 1, 16))) is None
    assert arranged(no_codes(FEW, 16)) is None


def test_rows_that_are_all_the_same_or_shorter_than_the_axes_are_arranged_too() -> None:
    for rows in (np.ones((FEW, 40), np.float32), clustered(FEW, 3)):
        order = arranged(encode(rows))
        assert order is not None
        assert sorted(order.tolist()) == list(range(FEW))


@pytest.mark.parametrize("missing", [0, 7])
def test_rows_are_found_whatever_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    monkeypatch.setattr(segment_builder, "FEW", 2)
    monkeypatch.setattr(segment_builder, "LEAF", 1)
    bank = FakeBank(16)
    vectors = clustered(60, 16)
    for row, vector in enumerate(vectors, 10):
        if not missing or row % missing:
            bank.put(row, f"word{row}", vector.tolist(), created_at=float(row))
    SegmentIndex(tmp_path, bank, tail_limit=5).refresh()
    index = SegmentIndex(tmp_path, bank, tail_limit=5)
    rows = np.array([69, 9, 11, 70, 14, 10, 12])
    known = [row in bank.rows for row in rows.tolist()]
    pool = index.lookup(rows, ["word11"], vectors[1])
    assert (~np.isnan(pool.cosine)).tolist() == known
    assert np.flatnonzero(pool.words).tolist() == [2]
    assert pool.created_at.tolist() == [
        float(row) if there else 0.0 for row, there in zip(rows, known, strict=True)
    ]
    bank.change(11, text="other")
    bank.forget(12)
    index.refresh()
    index.erase([12])
    assert index.stats().rows == len(bank.live)
    assert not index.lookup(rows, ["word11"], None).words.any()
    found = index.search(["word13", "other", "word12"], None, ALL, k_words=5, k_vectors=0).rows
    assert found.tolist() == [11, 13]
