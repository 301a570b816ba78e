"""Vectors as they are stored: unit length, half precision, and those of older banks beside them."""

from __future__ import annotations

from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.older import make_older

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.runtime import native
from skep.storage.vectors import NEAR_UNIT, packed, packed_one, unpacked

compiled = pytest.mark.skipif(native is None, reason="needs the compiled core")


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 1536), scale=st.integers(-18, 16))
def test_a_stored_vector_points_where_it_did_whatever_its_length(seed: int, dim: int, scale: int) -> None:
    given_ = np.random.default_rng(seed).normal(size=(3, dim)).astype(np.float32) * np.float32(10.0**scale)
    stored = packed(given_)
    back = unpacked(stored, dim)

    assert {len(row) for row in stored} == {2 * dim}
    exact = given_.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    lengths = np.linalg.norm(back.astype(np.float64), axis=1)
    assert ((exact * back).sum(axis=1) / lengths > 1 - 1e-6).all()
    assert (np.abs(lengths**2 - 1) < 0.51).all()


def test_a_row_of_zeros_stays_one_beside_others() -> None:
    rows = np.array([[0, 0, 0], [3e-30, 0, 0], [0, 5e18, 0]], dtype=np.float32)

    assert unpacked(packed(rows), 3).tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_a_vector_is_stored_alike_by_itself_and_among_others() -> None:
    rows = np.random.default_rng(3).normal(size=(6, 24)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= np.array([[1.0], [0.9], [1.2], [1e-4], [300.0], [0.0]], dtype=np.float32)
    assert [packed(row[None]) for row in rows[:3]] == [[one] for one in packed(rows[:3])]
    assert [packed(row[None]) for row in rows[3:]] == [[one] for one in packed(rows[3:])]


@compiled
@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 1536), spread=st.integers(0, 12))
def test_one_row_in_one_pass_is_what_numpy_makes_of_it(seed: int, dim: int, spread: int) -> None:
    chance = np.random.default_rng(seed)
    row = chance.normal(size=(1, dim)) * 10.0 ** -chance.uniform(0, spread, size=(1, dim))
    row = (row / np.linalg.norm(row)).astype(np.float32)

    assert [packed_one(row, dim)] == packed(row)


@compiled
def test_a_length_at_the_bound_is_judged_by_numpy_alone() -> None:
    chance = np.random.default_rng(0)
    for at in range(1000):
        row = chance.normal(size=(1, int(chance.integers(300, 1500))))
        square = (1 + NEAR_UNIT, 1 - NEAR_UNIT)[at % 2] * (1 + 3e-8 * chance.normal())
        row = (row / np.linalg.norm(row) * np.sqrt(square)).astype(np.float32)

        assert packed_one(row, row.shape[1]) in (None, *packed(row))


@compiled
def test_every_half_and_what_lies_between_two_is_rounded_as_numpy_rounds() -> None:
    halves = np.arange(0x3C01, dtype=np.uint16).view("<f2").astype(np.float32)  # from 0 to 1
    middles = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    beside = [np.nextafter(middles, np.float32(side)) for side in (-1, 2)]
    every = np.concatenate([halves, middles, *beside, np.array([1e-45, 1e-38, 1.2], np.float32)])
    rest = np.sqrt(np.maximum(0, 1 - every.astype(np.float64) ** 2)).astype(np.float32)

    for row in np.concatenate([np.stack([every, rest], 1), np.stack([-every, rest], 1)])[:, None, :]:
        assert native.halved(row, 2, NEAR_UNIT) == row.astype("<f2").tobytes()


@compiled
@pytest.mark.parametrize(
    "given_",
    [
        [[0.6, 0.8]],
        np.array([0.6, 0.8], np.float32),
        np.array([[0.6, 0.8]]),
        np.array([[0.6, 0.8]], ">f4"),
        np.array([[0.6, 0.8]], np.float32).view(np.int32),
        np.array([[0.6, 0.8], [0.6, 0.8]], np.float32),
        np.array([[0.6, 0.8, 0.0]], np.float32),
        np.array([[0.6, 0.0, 0.8, 0.0]], np.float32)[:, ::2],
        np.array([[6.0, 8.0]], np.float32),
        np.array([[0.0, 0.0]], np.float32),
        np.array([[np.nan, 1.0]], np.float32),
        np.array([[np.inf, 1.0]], np.float32),
        np.array([[3e38, 3e38]], np.float32),
        np.empty((1, 0), np.float32),
        None,
        "ab",
    ],
    ids=str,
)
def test_what_is_not_one_sound_row_is_left_to_be_looked_at(given_: object) -> None:
    assert packed_one(given_, 2) is None


@compiled
def test_a_row_is_halved_by_sound_numbers_alone() -> None:
    row = np.array([[0.6, 0.8]], np.float32)
    for wrong in ((row,), (row, 2), (row, "2", 0.5), (row, 2, "x")):
        with pytest.raises(TypeError):
            native.halved(*wrong)
    for near in (-0.1, 1.0, np.nan):
        with pytest.raises(ValueError, match="near"):
            native.halved(row, 2, near)


def test_what_is_missing_or_of_another_length_is_a_row_of_zeros() -> None:
    whole = np.array([0.5, -0.25], "<f4").tobytes()
    half = np.array([0.5, -0.25], "<f2").tobytes()

    assert unpacked([None, whole, half, b"12", b""], 2).tolist() == [
        [0, 0],
        [0.5, -0.25],
        [0.5, -0.25],
        [0, 0],
        [0, 0],
    ]


def test_vectors_of_an_older_bank_answer_beside_new_ones(bank_path: Path) -> None:
    def asked(bank: Bank) -> list[tuple[str, float]]:
        hits = bank.recall("the cache of the ledger", preset="semantic", limit=5)
        return [(hit.memory.text, round(hit.score, 3)) for hit in hits]

    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        bank.remember_many({"text": f"note {n} on the ledger and its cache"} for n in range(40))
        before = asked(bank)
    make_older(bank_path, 5)

    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        assert asked(bank) == before
        new = bank.remember("the cache of the ledger", on_conflict="ignore").memory
        assert asked(bank)[0][0] == new.text
    with apsw.Connection(str(bank_path)) as connection:
        sizes = connection.execute(
            "SELECT length(vector), count(*) FROM halves GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert sizes == [(2 * 32, 1), (4 * 32, 40)]
