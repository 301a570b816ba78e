"""The index knows the ids of its rows, whatever they look like, and forgets them with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.index.columns import Ids, as_arrays, from_arrays, joined, numbered
from skep.index.index import SegmentIndex
from skep.index.segment_files import open_file

from .bank import FakeBank

names = st.one_of(
    st.builds("{}-{}".format, st.sampled_from(["k3v9qx2m7a", "é", "a-b", ""]), st.integers(0, 1 << 62)),
    st.builds(
        "{}-{}".format,
        st.just("one"),
        st.sampled_from(["01", "+1", "1_0", " 1", "", "-1", "٣", str(1 << 80)]),
    ),
    st.text(max_size=5),
)


@given(st.lists(names, max_size=20), st.lists(names, max_size=20))
def test_ids_come_back_as_they_were(one: list[str], other: list[str]) -> None:
    every = [*one, *other]
    ids = joined([numbered(one), numbered(other)])
    assert ids.told() == every
    at = np.arange(len(every))[::-2]
    picked = ids.pick(at)
    assert picked.told() == [every[i] for i in at]
    assert len(picked.names) <= len(at)
    assert from_arrays(as_arrays(picked)).told() == picked.told()
    assert from_arrays(as_arrays(ids)).told(at) == [every[i] for i in at]


def test_ids_of_one_actor_take_four_bytes_a_row() -> None:
    arrays = as_arrays(numbered([f"k3v9qx2m7a-{i}" for i in range(1000)]))
    assert sum(array.nbytes for array in arrays.values()) < 4 * 1000 + 64
    assert as_arrays(Ids(("a",), np.zeros(1, np.uint32), np.array([1 << 40])))["ids.counters"].itemsize == 8


def put(bank: FakeBank, rows: Sequence[int], actor: str) -> None:
    for row in rows:
        bank.put(row, f"word{row}", [row, 1, 1, 1], id=f"{actor}-{row}")


@pytest.fixture
def bank() -> FakeBank:
    made = FakeBank(4)
    put(made, range(1, 41), "one")
    return made


def told(index: SegmentIndex, rows: Sequence[int]) -> list[str]:
    return index.ids(np.array(rows, dtype=np.int64))


def test_segments_that_are_merged_and_the_tail_keep_their_ids(tmp_path: Path, bank: FakeBank) -> None:
    index = SegmentIndex(tmp_path, bank, tail_limit=8)
    index.refresh()
    for first in range(41, 101, 10):
        put(bank, range(first, first + 10), "two" if first % 20 == 1 else "three")
        index.refresh()
    put(bank, [101, 102], "late")
    bank.change(7, importance=0.9)
    index.refresh()

    assert index.stats().tail
    asked = [102, 7, 1, 55, 999, 77, 101]
    assert told(index, asked) == [bank.rows[row].id if row in bank.rows else "" for row in asked]
    again = SegmentIndex(tmp_path, bank, tail_limit=8)
    again.refresh()
    assert told(again, asked) == told(index, asked)


@given(st.lists(st.one_of(names, st.just("x" * 200 + "-7"), st.just("\udc80-8")), max_size=20), st.randoms())
def test_compiled_loops_and_numpy_tell_the_same_ids(ids: list[str], rng: Random) -> None:
    bank = FakeBank(0)
    index = SegmentIndex(None, bank, tail_limit=4)
    rows = rng.sample(range(1, 60), len(ids))
    for row, each in zip(rows, ids, strict=True):  # segments of a few rows each, and a tail
        bank.put(row, "word", id=each)
        index.refresh()
    for row in rows[::3]:
        bank.change(row, importance=0.9)
    for row in rows[1::5]:
        bank.forget(row)
    index.refresh()

    kept = {row.row: row.id for row in bank.live}
    asked = rng.sample(range(62), 62)
    expected = [kept.get(row, "") for row in asked]
    assert told(index, asked) == expected
    with pytest.MonkeyPatch.context() as without:
        without.setattr(runtime, "native", None)
        assert told(index, asked) == expected


def test_what_is_erased_leaves_no_id_and_no_name(tmp_path: Path, bank: FakeBank) -> None:
    put(bank, [41], "xylophone")
    index = SegmentIndex(tmp_path, bank, tail_limit=8)
    index.refresh()
    assert told(index, [41]) == ["xylophone-41"]
    assert any(b"xylophone" in path.read_bytes() for path in tmp_path.glob("*.seg"))

    bank.forget(41)
    index.erase([41])

    assert told(index, [41, 40]) == ["", "one-40"]
    for path in tmp_path.glob("*.seg"):
        assert b"xylophone" not in path.read_bytes()
        owner = index._upkeep.shelf.owner  # pyright: ignore[reportPrivateUsage]
        assert 41 not in open_file(str(path), "segment", owner).arrays()["ids.counters"]


def test_damaged_ids_are_not_told(tmp_path: Path, bank: FakeBank) -> None:
    SegmentIndex(tmp_path, bank, tail_limit=8).refresh()
    index = SegmentIndex(tmp_path, bank, tail_limit=8)
    (path,) = tmp_path.glob("*.seg")
    owner = index._upkeep.shelf.owner  # pyright: ignore[reportPrivateUsage]
    (place,) = (
        e.offset for e in open_file(str(path), "segment", owner).header.arrays if e.name == "ids.counters"
    )
    with path.open("r+b") as file:
        file.seek(place + 4 * 3)
        file.write(b"\x63")
    index.refresh()

    assert index.damaged() == [path.name]
    assert told(index, range(1, 41)) == [f"one-{row}" for row in range(1, 41)]
    assert index.damaged() == []
