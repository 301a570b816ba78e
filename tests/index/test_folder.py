"""What may happen to the folder of an index: others write it, it breaks, it vanishes, it cannot be written."""

from __future__ import annotations

import errno
import math
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from skep.filters import Filter
from skep.index import catch_up, segment_files
from skep.index.bm25 import key_of
from skep.index.index import SegmentIndex
from skep.index.quantisation import encode
from skep.index.segment_files import Holding
from skep.text.terms import terms

from .bank import FakeBank, expected

ALL = Filter(statuses=())
QUERY = np.array([1, 2, 0, -1, 0, 1, 0, 0], dtype=np.float32)
SECRET = "xylophone"


def filled(count: int = 60) -> FakeBank:
    bank = FakeBank(8)
    for row in range(1, count + 1):
        put(bank, row)
    return bank


def put(bank: FakeBank, row: int) -> None:
    shade = random.Random(row)
    text = " ".join(shade.choice(["dog", "cat", "river"]) for _ in range(shade.randint(1, 5)))
    bank.put(row, text, [shade.gauss(0, 1) for _ in range(8)], tags=("even",) if row % 2 == 0 else ())


def assert_right(index: SegmentIndex, bank: FakeBank) -> None:
    index.refresh()
    words, cosine = expected(bank, ["dog"], QUERY, ALL)
    pool = index.search(["dog"], QUERY, ALL, k_words=1000, k_vectors=1000)
    assert sorted({*words, *cosine}) == pool.rows.tolist()
    for row, score, near in zip(pool.rows.tolist(), pool.words, pool.cosine, strict=True):
        assert score == pytest.approx(words.get(row, 0.0), rel=1e-4)
        assert near == pytest.approx(cosine[row], abs=1e-3)


def built(folder: Path, bank: FakeBank, limit: int = 10) -> SegmentIndex:
    index = SegmentIndex(folder, bank, tail_limit=limit)
    index.refresh()
    return index


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def flip(place: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 0x55
        path.write_bytes(data)

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: os.truncate(path, 0),
    "cut": cut_in_half,
    "lengthened": append,
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)) and None,
    "text": lambda path: path.write_text("hello") and None,
    "flipped-first": flip(0.0),
    "flipped-header": flip(0.02),
}


@pytest.mark.parametrize("pattern", ["*.seg", "*.frame", "manifest.json", "*"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_noticed_and_built_again(
    tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    bank = filled()
    built(tmp_path, bank)
    for path in [path for path in tmp_path.glob(pattern) if path.name != "lock"]:
        damage(path)

    index = SegmentIndex(tmp_path, bank, tail_limit=10)

    assert_right(index, bank)
    assert_right(built(tmp_path, bank), bank)
    assert index.damaged() == []


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_byte_anywhere_never_raises_and_is_named(tmp_path: Path, seed: int) -> None:
    bank = filled()
    built(tmp_path, bank)
    segment = max(tmp_path.glob("*.seg"), key=lambda path: path.stat().st_size)
    flip(random.Random(seed).random())(segment)

    index = SegmentIndex(tmp_path, bank, tail_limit=10)
    index.refresh()
    index.search(["dog", "river"], QUERY, Filter(tags=(("even",),)), k_words=50, k_vectors=50)
    index.search(["cat"], QUERY, ALL, k_words=50, k_vectors=50)
    bank.forget(3)
    index.refresh()
    pool = index.search(["cat"], QUERY, ALL, k_words=50, k_vectors=50)

    assert set(pool.rows.tolist()) <= {row.row for row in bank.live}
    if index.damaged():
        index.drop()
    assert_right(index, bank)


def test_damage_that_shows_while_catching_up_has_the_index_built_again(tmp_path: Path) -> None:
    bank = filled()
    built(tmp_path, bank)
    index = SegmentIndex(tmp_path, bank, tail_limit=10)
    index.refresh()
    for segment in tmp_path.glob("*.seg"):
        with segment.open("r+b") as file:
            header = msgspec.json.decode(file.read()[16:].partition(b"]]}")[0] + b"]]}")
            places = {name: (place, shape[0]) for name, _, shape, place, _ in header["arrays"]}
            place, count = places["words.doc_offsets"]
            file.seek(place)
            file.write(np.arange(count, 0, -1, dtype="<i8").tobytes())
    bank.forget(3)

    index.refresh()

    assert index.damaged() == []
    assert_right(index, bank)


@pytest.mark.parametrize("read_only", [False, True])
def test_files_that_are_cut_off_while_in_use_are_built_again(tmp_path: Path, read_only: bool) -> None:
    bank = filled()
    built(tmp_path, bank)
    index = SegmentIndex(tmp_path, bank, tail_limit=10, read_only=read_only)
    index.refresh(1)
    for file in [*tmp_path.glob("*.seg"), *tmp_path.glob("*.frame")]:
        os.truncate(file, 100)

    assert index.refresh(1) == bank.head()

    assert_right(index, bank)
    assert index.damaged() == []


def test_a_file_that_was_cut_off_is_damage(tmp_path: Path) -> None:
    bank = filled()
    index = built(tmp_path, bank)
    (first, *_) = tmp_path.glob("*.seg")
    os.truncate(first, 100)

    assert index.damaged() == [first.name]


def overwrite(segment: Path, name: str) -> None:
    """Turn every bit of one array of a segment."""
    data = bytearray(segment.read_bytes())
    header = msgspec.json.decode(bytes(data[16:]).partition(b"]]}")[0] + b"]]}")
    (entry,) = (entry for entry in header["arrays"] if entry[0] == name)
    size = math.prod(entry[2]) * np.dtype(entry[1]).itemsize
    start = entry[3]
    data[start : start + size] = bytes(255 - byte for byte in data[start : start + size])
    segment.write_bytes(data)


@pytest.mark.parametrize("name", ["codes.high", "codes.scale", "lengths", "words.keys", "words.docs"])
def test_nothing_damaged_is_merged_or_rewritten(tmp_path: Path, name: str) -> None:
    bank = filled()
    built(tmp_path / "merged", bank)
    shutil.copytree(tmp_path / "merged", tmp_path / "rewritten")
    for segment in tmp_path.glob("*/*.seg"):
        overwrite(segment, name)

    rewritten = SegmentIndex(tmp_path / "rewritten", bank, tail_limit=10)
    bank.forget(3)
    assert rewritten.erase([3]) > 0
    merged = SegmentIndex(tmp_path / "merged", bank, tail_limit=10)
    for row in range(61, 161):
        put(bank, row)

    for index in (merged, rewritten):
        assert_right(index, bank)
        assert index.damaged() == []


def test_an_index_of_another_format_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = filled()
    with monkeypatch.context() as before:
        before.setattr(segment_files, "VERSION", segment_files.VERSION - 1)
        before.setattr(catch_up, "VERSION", segment_files.VERSION)
        built(tmp_path, bank)
    old = {path.name for path in tmp_path.glob("*.seg")}

    index = built(tmp_path, bank)

    assert bank.reads > 1
    assert_right(index, bank)
    assert old.isdisjoint(path.name for path in tmp_path.glob("*.seg"))


def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    built(folder, filled())

    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_is_read_when_nothing_changed(tmp_path: Path) -> None:
    bank = filled()
    index = built(tmp_path, bank)
    reads = bank.reads

    assert bank.head() == index.refresh() == index.refresh()
    assert reads == bank.reads


def test_a_second_process_finds_the_index_ready(tmp_path: Path) -> None:
    bank = filled()
    first = built(tmp_path, bank)
    reads = bank.reads

    second = built(tmp_path, bank)

    assert bank.reads - reads <= 1
    assert first.stats().segments == second.stats().segments
    assert_right(second, bank)


def test_the_tail_becomes_a_segment_and_small_segments_are_merged(tmp_path: Path) -> None:
    bank = filled(10)
    index = built(tmp_path, bank, limit=10)
    for row in range(11, 400):
        put(bank, row)
        index.refresh()

    stats = index.stats()

    assert stats.tail <= 10
    assert 1 <= stats.segments <= 6
    assert stats.segments == len(list(tmp_path.glob("*.seg")))
    assert_right(index, bank)


def test_while_another_process_builds_the_tail_grows_and_answers(tmp_path: Path) -> None:
    bank = filled(10)
    index = built(tmp_path, bank, limit=10)
    with Holding(tmp_path, 0) as lock:
        assert lock.held
        for row in range(11, 40):
            put(bank, row)
            index.refresh()
        assert index.stats().tail > 10
        assert_right(index, bank)

    put(bank, 40)
    index.refresh()

    assert index.stats().tail == 0
    assert_right(index, bank)


def test_what_another_process_wrote_is_taken_over(tmp_path: Path) -> None:
    bank = filled(10)
    left, right = built(tmp_path, bank), built(tmp_path, bank)
    for row in range(11, 30):
        put(bank, row)
        left.refresh()
    files = set(tmp_path.glob("*.seg"))

    right.refresh()
    bank.forget(3)
    right.refresh()

    assert files == set(tmp_path.glob("*.seg"))
    assert left.stats().segments == right.stats().segments
    assert_right(right, bank)
    assert_right(left, bank)


def test_a_large_backlog_that_another_process_holds_up_is_indexed_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "PATIENCE", 0.01)
    bank = filled()
    index = SegmentIndex(tmp_path, bank, tail_limit=10)

    with Holding(tmp_path, 0):
        assert_right(index, bank)

    assert list(tmp_path.glob("*.seg")) == []


@pytest.mark.parametrize("memory", [True, False])
def test_without_a_writable_folder_everything_stays_in_memory(tmp_path: Path, memory: bool) -> None:
    bank = filled()
    index = SegmentIndex(None if memory else tmp_path, bank, tail_limit=10, read_only=True)

    assert_right(index, bank)
    for row in range(61, 120):
        put(bank, row)
        index.refresh()

    assert_right(index, bank)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("in the way")
    bank = filled()

    assert_right(SegmentIndex(tmp_path / "index", bank, tail_limit=10), bank)


def test_a_read_only_index_uses_what_is_there_and_writes_nothing(tmp_path: Path) -> None:
    bank = filled()
    built(tmp_path, bank)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    reads = bank.reads
    index = SegmentIndex(tmp_path, bank, tail_limit=10, read_only=True)

    index.refresh()
    assert bank.reads - reads <= 1
    for row in range(61, 100):
        put(bank, row)
    bank.forget(5)

    assert_right(index, bank)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_full_disk_is_lived_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = filled()
    index = SegmentIndex(tmp_path, bank, tail_limit=10)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(segment_files, "_write_all", full)
    assert_right(index, bank)
    assert [path.name for path in tmp_path.iterdir() if path.name != "lock"] == []
    monkeypatch.undo()

    assert_right(built(tmp_path, bank), bank)
    assert list(tmp_path.glob("*.seg"))


def test_the_folder_may_vanish_while_it_is_in_use(tmp_path: Path) -> None:
    bank = filled()
    folder = tmp_path / "index"
    index = built(folder, bank)
    shutil.rmtree(folder)

    assert_right(index, bank)
    for row in range(61, 90):
        put(bank, row)
        index.refresh()

    assert_right(index, bank)
    assert_right(built(folder, bank), bank)
    assert list(folder.glob("*.seg"))


def test_another_bank_another_embedder_or_an_older_copy_is_not_mistaken_for_this_one(tmp_path: Path) -> None:
    built(tmp_path, filled())
    other = FakeBank(8, identity="bank-2")
    for row in range(1, 20):
        put(other, row)
    assert_right(built(tmp_path, other), other)

    changed = filled()
    changed.print = "fake-2"
    assert_right(built(tmp_path, changed), changed)

    older = filled(30)
    older.print = "fake-2"
    assert_right(built(tmp_path, older), older)


def test_a_new_embedder_is_noticed_without_opening_again(tmp_path: Path) -> None:
    bank = filled()
    index = built(tmp_path, bank)
    turned = np.arange(8, dtype="<f4").tobytes()
    bank.rows = {row: msgspec.structs.replace(held, vector=turned) for row, held in bank.rows.items()}
    bank.print = "fake-2"

    assert_right(index, bank)
    assert_right(built(tmp_path, bank), bank)


def test_erasing_leaves_no_trace_of_words_or_vectors_on_disk(tmp_path: Path) -> None:
    bank = filled()
    bank.put(7, f"the {SECRET} plays", [9, 1, 7, 3, 5, 2, 8, 6])
    code = encode(np.frombuffer(bank.rows[7].vector or b"", "<f4")[None]).high.tobytes()
    index = built(tmp_path, bank)
    traces = [key_of(terms(SECRET)[0]).to_bytes(8, "little"), code]
    assert all(any(trace in path.read_bytes() for path in tmp_path.glob("*.seg")) for trace in traces)
    other = built(tmp_path, bank)

    bank.forget(7)
    index.refresh()
    rewritten = index.erase([7])

    assert rewritten >= 1
    assert not any(trace in path.read_bytes() for path in tmp_path.iterdir() for trace in traces)
    assert index.erase([7]) == 0
    assert_right(index, bank)
    assert_right(other, bank)
    assert_right(built(tmp_path, bank), bank)


def test_erasing_keeps_the_tail_and_what_it_hides(tmp_path: Path) -> None:
    bank = filled()
    index = built(tmp_path, bank, limit=10)
    bank.change(20, text="river river")
    bank.forget(21)
    put(bank, 61)
    index.refresh()
    assert index.stats().tail == 2

    bank.forget(22)
    index.refresh()
    index.erase([22])

    assert index.stats().tail == 2
    assert_right(index, bank)
    assert_right(built(tmp_path, bank), bank)


def test_what_a_dead_builder_left_behind_is_swept_away(tmp_path: Path) -> None:
    bank = filled()
    built(tmp_path, bank)
    for name in ("0123.seg", "4567.frame", ".0123.seg.99.tmp"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not ours")

    index = built(tmp_path, bank)
    for row in range(61, 80):
        put(bank, row)
    index.refresh()

    names = {path.name for path in tmp_path.iterdir()}
    assert not names & {"0123.seg", "4567.frame", ".0123.seg.99.tmp"}
    assert "notes.txt" in names


BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from index.test_folder import filled, built, assert_right
print("go", flush=True)
while True:
    index = built(Path(sys.argv[2]), filled(300), 10)
    assert_right(index, filled(300))
    if sys.argv[3] == "once":
        break
    index.drop()
"""


def start_builder(folder: Path, how: str) -> subprocess.Popen[str]:
    here = Path(__file__).parent.parent
    command = [sys.executable, "-c", BUILD, str(here), str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_builder_killed_at_any_moment_leaves_an_index_that_works(tmp_path: Path) -> None:
    bank = filled(300)
    for wait in range(8):
        builder = start_builder(tmp_path, "forever")
        assert builder.stdout is not None
        assert builder.stdout.readline() == "go\n"
        try:
            builder.wait(timeout=0.002 + 0.013 * wait)
        except subprocess.TimeoutExpired:
            builder.kill()
        builder.wait()
        builder.stdout.close()
        assert_right(built(tmp_path, bank), bank)


def test_several_processes_may_build_at_once(tmp_path: Path) -> None:
    builders = [start_builder(tmp_path, "once") for _ in range(4)]

    for builder in builders:
        assert builder.communicate()[0] == "go\n"
        assert builder.returncode == 0

    bank = filled(300)
    assert_right(built(tmp_path, bank), bank)
    assert not list(tmp_path.glob("*.tmp"))
