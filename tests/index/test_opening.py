"""What a process reads on opening is there for the next one: small banks are indexed on disk too."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.index.catch_up import WORTH_SHARING
from skep.index.index import SegmentIndex
from skep.index.segment_files import Holding

from .test_folder import SECRET, assert_right, filled, put


def test_the_second_process_reads_no_row_that_the_first_one_read(tmp_path: Path) -> None:
    bank = filled(WORTH_SHARING)
    first = SegmentIndex(tmp_path / "index", bank)
    first.refresh()
    reads = bank.reads

    second = SegmentIndex(tmp_path / "index", bank)
    second.refresh()

    assert (first.stats().segments, first.stats().tail) == (1, 0)
    assert (second.stats().segments, second.stats().tail) == (1, 0)
    assert bank.reads == reads
    assert_right(second, bank)


def test_fewer_rows_are_not_worth_a_file(tmp_path: Path) -> None:
    bank = filled(WORTH_SHARING - 1)
    index = SegmentIndex(tmp_path / "index", bank)

    assert_right(index, bank)

    assert index.stats().tail == WORTH_SHARING - 1
    assert list((tmp_path).rglob("*.seg")) == []


def test_many_changes_of_few_rows_are_few_rows(tmp_path: Path) -> None:
    bank = filled(10)
    for _ in range(WORTH_SHARING):
        bank.change(3, importance=0.5)
    index = SegmentIndex(tmp_path / "index", bank)

    assert_right(index, bank)

    assert (index.stats().segments, index.stats().tail) == (0, 10)


def test_what_comes_later_stays_in_memory_until_somebody_opens_the_bank(tmp_path: Path) -> None:
    bank = filled(WORTH_SHARING)
    index = SegmentIndex(tmp_path / "index", bank)
    index.refresh()
    for row in range(WORTH_SHARING + 1, 2 * WORTH_SHARING + 1):
        put(bank, row)
        index.refresh()
    assert (index.stats().segments, index.stats().tail) == (1, WORTH_SHARING)

    again = SegmentIndex(tmp_path / "index", bank)

    assert_right(again, bank)
    assert again.stats().tail == 0
    assert_right(index, bank)


def test_a_process_that_opens_while_another_builds_does_not_wait(tmp_path: Path) -> None:
    bank = filled(WORTH_SHARING)
    with Holding(tmp_path, 0) as lock:
        assert lock.held
        index = SegmentIndex(tmp_path, bank)
        assert_right(index, bank)

    assert index.stats().tail == WORTH_SHARING
    assert list(tmp_path.glob("*.seg")) == []


@pytest.mark.parametrize("read_only", [True, False])
def test_where_nothing_can_be_written_it_stays_in_memory(tmp_path: Path, read_only: bool) -> None:
    folder = tmp_path / "index"
    if not read_only:
        folder.write_text("in the way")
    bank = filled(WORTH_SHARING)

    index = SegmentIndex(folder, bank, read_only=read_only)

    assert_right(index, bank)
    assert list(tmp_path.rglob("*.seg")) == []


def test_what_was_forgotten_before_or_after_leaves_no_trace(tmp_path: Path) -> None:
    bank = filled(WORTH_SHARING)
    bank.put(900, f"{SECRET} one", [1.0] * 8)
    bank.put(901, f"{SECRET} two", [1.0] * 8)
    bank.forget(900)
    index = SegmentIndex(tmp_path, bank)
    index.refresh()

    bank.forget(901)
    assert index.erase([901]) == 1

    other = SegmentIndex(tmp_path, bank)
    assert_right(other, bank)
    assert (other.idf([SECRET]) == other.idf(["never heard of"])).all()
