"""Texts that were read are kept for as long as they are true, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import NotFoundError
from skep.storage import queries


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(16))


def statements(bank: Bank, rows: list[int]) -> tuple[dict[int, str], int]:
    """The texts of rows, and how many statements that took."""
    seen: list[str] = []
    connection = bank.engine.store.connection
    connection.trace = lambda sql, _bindings: seen.append(sql)
    try:
        return bank.engine.store.texts_of(rows), sum("title, text" in sql for sql in seen)
    finally:
        connection.trace = None


def test_a_text_is_read_once_until_a_memory_changes_here_or_elsewhere(tmp_path: Path) -> None:
    with opened(tmp_path / "bank.skep") as bank, opened(tmp_path / "bank.skep") as other:
        first, second = (bank.remember(text).memory for text in ("tea is green", "the sky is wide"))
        rows = list(bank.engine.store.rows_of([first.id, second.id]).values())

        assert statements(bank, rows[:1]) == ({rows[0]: "tea is green"}, 1)
        assert statements(bank, rows) == ({rows[0]: "tea is green", rows[1]: "the sky is wide"}, 1)
        assert statements(bank, rows)[1] == 0
        assert statements(bank, [*rows, 99]) == (statements(bank, rows)[0], 1)
        bank.revise(first.id, text="tea is black")
        assert statements(bank, rows) == ({rows[0]: "tea is black", rows[1]: "the sky is wide"}, 1)
        other.revise(second.id, title="Weather")
        assert statements(bank, rows)[0][rows[1]] == "Weather\nthe sky is wide"
        other.forget(first.id)
        assert "tea" not in statements(bank, rows)[0].get(rows[0], "")


def test_what_is_written_and_taken_back_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "bank.skep") as bank:
        memory = bank.remember("tea is green").memory
        (row,) = bank.engine.store.rows_of([memory.id]).values()
        assert statements(bank, [row])[0] == {row: "tea is green"}

        def in_vain() -> None:
            with bank.engine.store.connection.transaction():
                bank.revise(memory.id, text="tea is black")
                assert statements(bank, [row])[0] == {row: "tea is black"}
                bank.get("nobody-1")

        with pytest.raises(NotFoundError):
            in_vain()

        assert statements(bank, [row])[0] == {row: "tea is green"}


def test_many_texts_at_once_and_too_many_characters_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "KEPT_CHARS", 20)
    with opened(tmp_path / "bank.skep") as bank:
        ids = [done.memory.id for done in bank.remember_many(["tea is green", "the sky is wide", "it rains"])]
        rows = list(bank.engine.store.rows_of(ids).values())
        many = [*rows, *range(1000, 1000 + queries.FEW)]

        assert [statements(bank, many)[1] for _ in range(2)] == [1, 1]
        assert [statements(bank, rows[:1])[1] for _ in range(2)] == [1, 0]
        assert [statements(bank, rows[1:])[1] for _ in range(2)] == [1, 1]
