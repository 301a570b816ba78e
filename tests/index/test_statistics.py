"""The statistics behind the scores are the bank's own, however often segments were put on top of one another."""

from __future__ import annotations

import numpy as np

from skep.filters import Filter
from skep.index.index import SegmentIndex

from .bank import FakeBank


def test_a_row_replaced_once_is_taken_out_of_the_statistics_once() -> None:
    bank = FakeBank()
    index = SegmentIndex(None, bank, tail_limit=3)
    for row in range(1, 41):
        bank.put(row, "dog", None)
    index.refresh()
    for row in range(
        41, 61
    ):  # each portion makes a segment of its own; the first is only buried in, never merged
        bank.put(row - 40, "cat", None)
        bank.put(row, "cat", None)
        index.refresh()
    assert index.stats().segments > 1
    whole = SegmentIndex(None, bank, tail_limit=1000)
    whole.refresh()
    np.testing.assert_array_equal(index.idf(["dog", "cat"]), whole.idf(["dog", "cat"]))
    for term in ("dog", "cat"):
        mine, theirs = (
            each.search([term], None, Filter(statuses=()), k_words=100, k_vectors=0)
            for each in (index, whole)
        )
        np.testing.assert_array_equal(mine.words, theirs.words)
