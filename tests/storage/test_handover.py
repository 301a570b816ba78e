"""Texts cut up while they were written: the index built from them is the one built from the bank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.index.catch_up import Upkeep
from skep.storage import full_text
from skep.storage.full_text import FEW

SIZE = 5000
"""More than fit into memory before they become a segment."""


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(16))


def note(number: int) -> dict[str, object]:
    return {
        "text": f"note {number} on the {number % 97}th foo_bar-{number % 13}",
        "tags": (f"t{number % 7}",),
    }


def handed(bank: Bank) -> int:
    return sum(len(batch.sizes) for batch in bank.engine.store.tables.handover._batches)  # pyright: ignore


def assert_same_index(bank: Bank, tmp_path: Path) -> None:
    """The index of this bank, whose texts were handed over, against one that nothing is handed to."""
    bank.engine.index.refresh()
    path = bank.engine.store.path
    assert path is not None
    with opened(path) as other:
        fresh = Upkeep(tmp_path / "other.index", other.engine.store, tail_limit=4096, read_only=False)
        fresh.refresh()
    mine = bank.engine.index._upkeep.table  # pyright: ignore[reportPrivateUsage]
    assert mine.live == fresh.table.live
    assert [segment.count for segment in mine.segments] == [segment.count for segment in fresh.table.segments]
    for one, two in zip(mine.segments, fresh.table.segments, strict=True):
        for name in one.words._fields:
            np.testing.assert_array_equal(getattr(one.words, name), getattr(two.words, name), err_msg=name)
        np.testing.assert_array_equal(one.lengths, two.lengths)


def test_what_was_written_in_bulk_is_indexed_as_it_stands(bank_path: Path, tmp_path: Path) -> None:
    with opened(bank_path) as bank:
        for start in range(0, SIZE, 1000):
            bank.remember_many([note(number) for number in range(start, start + 1000)])
        assert handed(bank) == SIZE
        assert_same_index(bank, tmp_path)
        assert handed(bank) == 0


def test_rows_that_were_changed_since_are_read_again(bank_path: Path, tmp_path: Path) -> None:
    with opened(bank_path) as bank:
        done = bank.remember_many([note(number) for number in range(SIZE)])
        bank.revise(done[700].memory.id, text="an entirely other thing")
        bank.revise(done[800].memory.id, importance=0.9)
        with opened(bank_path) as other:
            other.remember_many([note(number) for number in range(10_000, 10_000 + FEW)])
            other.revise(done[1700].memory.id, text="said elsewhere")
        bank.remember("one by itself", on_conflict="ignore")
        bank.remember_many([note(number) for number in range(20_000, 20_000 + FEW)])
        assert_same_index(bank, tmp_path)
        assert bank.recall("entirely other thing")[0].memory.id == done[700].memory.id
        assert bank.recall("said elsewhere")[0].memory.id == done[1700].memory.id


def taken_back(bank: Bank) -> None:
    with bank.engine.store.writing():
        bank.remember_many([{"text": f"never said {number}"} for number in range(FEW)])
        raise RuntimeError


def test_what_was_rolled_back_is_not_handed_over(bank_path: Path, tmp_path: Path) -> None:
    with opened(bank_path) as bank:
        bank.remember("the first", on_conflict="ignore")
        with pytest.raises(RuntimeError):
            taken_back(bank)
        assert handed(bank) == 0
        bank.remember_many([note(number) for number in range(SIZE)])
        assert_same_index(bank, tmp_path)
        assert not [hit for hit in bank.recall("never said").hits if "never" in hit.memory.text]


@pytest.mark.parametrize("limit", ["CHUNKS", "SIGNS"])
def test_what_was_rolled_back_takes_no_room(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    notes = [note(number) for number in range(FEW)]
    signs = sum(len(str(each["text"])) for each in notes)
    monkeypatch.setattr(full_text, limit, FEW // 2 if limit == "CHUNKS" else signs)
    with opened(bank_path) as bank:
        with pytest.raises(RuntimeError):
            taken_back(bank)
        bank.remember_many(notes)
        assert handed(bank) == FEW


def test_a_batch_that_was_cut_up_before_somebody_took_the_rest_is_let_go(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        bank.remember_many([note(number) for number in range(FEW)])
        mine = bank.engine.store.tables.handover
        _, late = mine.cut(["a b"] * FEW, 1000, 1000)
        assert late is not None
        taken = mine.take()
        assert taken is not None
        mine.keep(late)
        assert handed(bank) == 0
        assert taken.pieces([1, 2], [1, 2]) is not None
        assert taken.pieces([1, 2], [1, 3]) is None
        assert taken.pieces([2, 3], [1, 2]) is None
        assert taken.pieces([FEW], [FEW]) is not None
        assert taken.pieces([FEW, FEW + 1], [FEW, FEW + 1]) is None


def test_no_more_is_kept_than_there_is_room_for(
    bank_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_text, "ROWS", 3 * FEW)
    with opened(bank_path) as bank:
        for start in range(0, SIZE, FEW):
            bank.remember_many([note(number) for number in range(start, start + FEW)])
        assert handed(bank) == 3 * FEW
        assert_same_index(bank, tmp_path)


def test_no_more_text_is_kept_than_there_is_room_for(
    bank_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [note(number) for number in range(SIZE)]
    monkeypatch.setattr(full_text, "SIGNS", sum(len(str(each["text"])) for each in texts[: 2 * FEW]))
    with opened(bank_path) as bank:
        for start in range(0, SIZE, FEW):
            bank.remember_many(texts[start : start + FEW])
        assert handed(bank) == 2 * FEW
        assert_same_index(bank, tmp_path)
        bank.remember_many([{"text": f"more of it {number}"} for number in range(FEW)])
        assert handed(bank) == FEW
