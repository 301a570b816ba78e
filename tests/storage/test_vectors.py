"""Vectors as they are stored: unit length, half precision, and those of older banks beside them."""

from __future__ import annotations

from pathlib import Path

import apsw
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.storage.vectors import packed, unpacked


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
    with apsw.Connection(str(bank_path)) as older:  # the first banks held vectors in single precision
        whole = [
            (np.frombuffer(vector, "<f2").astype("<f4").tobytes(), key)
            for key, vector in older.execute("SELECT key, vector FROM halves")
        ]
        older.executemany("UPDATE halves SET vector = ? WHERE key = ?", whole)

    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        assert asked(bank) == before
        new = bank.remember("the cache of the ledger", on_conflict="ignore").memory
        assert asked(bank)[0][0] == new.text
    with apsw.Connection(str(bank_path)) as connection:
        sizes = connection.execute(
            "SELECT length(vector), count(*) FROM halves GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert sizes == [(2 * 32, 1), (4 * 32, 40)]
