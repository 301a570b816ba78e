"""Rows to segments: what is done in bulk is what would be done one by one, and takes little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.index import segment_builder
from skep.index.bm25 import key_of
from skep.index.columns import COLUMNS
from skep.index.index import SegmentIndex
from skep.index.quantisation import turn
from skep.text.terms import terms

from .bank import DIM, FakeBank, make_row

ROWS = 6000
BYTES_PER_ROW = 2300
"""Of the peak of building a segment of short texts."""
texts = st.lists(
    st.sampled_from(["dog", "the", "foo_bar", "v2.3.1", "走る", "...", "it's", "a/b"]), max_size=9
)


@given(st.lists(texts.map(" ".join), max_size=12), st.sampled_from([1, 3, 1000]), st.booleans())
def test_terms_counted_in_bulk_are_those_of_each_text(given: list[str], chunks: int, compiled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_builder, "CHUNKS", chunks)
        patch.setattr(segment_builder, "SIGNS", 40 * chunks)
        if not compiled:
            patch.setattr(runtime, "native", None)
        counter = segment_builder.Counter()
        for start in range(0, len(given), 4):
            counter.add(given[start : start + 4])
        found = counter.finish()

    wanted = [terms(text) for text in given]
    assert found.lengths.tolist() == [len(each) for each in wanted]
    assert found.keys[found.terms].tolist() == [key_of(term) for each in wanted for term in each]
    assert (np.diff(found.keys.astype(np.float64)) > 0).all()


def test_long_texts_are_sealed_before_their_chunks_fill_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_builder, "SIGNS", 100)
    counter = segment_builder.Counter()
    for letter in "abc":
        counter.add([letter * 60])
        assert len(counter._numbers) == 1  # pyright: ignore[reportPrivateUsage]
    assert counter.finish().lengths.tolist() == [1, 1, 1]


def test_columns_of_many_rows_are_those_of_each() -> None:
    rows = [
        make_row(
            number,
            number,
            "",
            None,
            kind=("fact", "episode", "unheard-of")[number % 3],
            status=("active", "retracted")[number % 2],
            domain=(None, "billing")[number % 2],
            user=(None, "ana", "bo")[number % 3],
            project=(None, "p")[number % 2],
            valid_from=(None, 5.0)[number % 2],
            expires_at=(None, 7.5, -1.0)[number % 3],
            created_at=float(number),
        )
        for number in range(12)
    ]
    for name, column in COLUMNS.items():
        many = column.values([[getattr(row, field) for row in rows] for field in column.fields])
        assert many.dtype == np.dtype(column.dtype), name
        assert many.tolist() == [column.value(row) for row in rows], name


@pytest.mark.parametrize("dim", [1, 2, 5, 64, 96, 256, 300])
def test_turning_is_exact_whatever_the_number_of_rows(dim: int) -> None:
    rng = np.random.default_rng(dim)
    rows = rng.standard_normal((300, dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1)[:, None]

    turned = turn(rows)

    assert np.array_equal(turned, np.concatenate([turn(row[None]) for row in rows]))
    assert np.allclose(np.linalg.norm(turned, axis=1), 1, atol=1e-3)
    assert np.allclose(turned @ turned.T, rows @ rows.T, atol=1e-3)


def test_building_takes_little_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    vectors = np.random.default_rng(7).standard_normal((ROWS, DIM))
    bank = FakeBank()
    for number in range(ROWS):
        bank.put(number, " ".join(f"w{number * k % 4999}" for k in range(1, 20)), vectors[number])
    index = SegmentIndex(tmp_path_factory.mktemp("index"), bank)
    tracemalloc.start()
    try:
        index.refresh()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert index.stats().segments == 1
    assert peak <= ROWS * BYTES_PER_ROW
    assert bank.reads == 1
