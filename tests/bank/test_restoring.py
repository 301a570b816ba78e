"""A damaged or lost bank: a copy is put in its place, or what can be read is saved."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from skep import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import CorruptBankError, InvalidInputError, NotABankError, NotFoundError, SkepError
from skep.storage.sqlite_connection import Connection

WRITER = """
import os, signal, sys
from skep import Bank
bank = Bank.open(sys.argv[1])
for number in range(200):
    bank.remember(f"Later {number}", on_conflict="ignore")
os.kill(os.getpid(), signal.SIGKILL)
"""


def filled(path: Path, count: int = 3) -> Bank:
    bank = Bank.open(path, embedder=HashingEmbedder(16))
    bank.remember_many([f"memory number {number} about topic {number * 7}" for number in range(count)])
    return bank


def damaged(sound: bytes, seed: int, *, flips: int, first: int) -> bytes:
    """The same with some bytes flipped."""
    data, rng = bytearray(sound), random.Random(seed)
    for _ in range(flips):
        data[rng.randrange(first, len(data))] ^= 0xFF
    return bytes(data)


def texts(bank: Bank) -> set[str]:
    return {memory.text for memory in bank.find(limit=10_000)}


def test_a_copy_takes_the_place_of_a_bank_whose_log_was_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        bank.remember("base one")
        kept = bank.backup(tmp_path / "copy.skep")
    killed = subprocess.run([sys.executable, "-c", WRITER, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert os.path.getsize(f"{path}-wal") > 0

    aside = Bank.put_back(kept, path)

    assert aside is not None
    with Bank.open(path) as bank:
        assert texts(bank) == {"base one"}
        assert all(finding.level == "ok" for finding in bank.doctor(deep=True))
    with Bank.open(aside) as old:
        assert len(texts(old)) == 201


def test_what_was_replaced_is_reached_by_forget(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with filled(path) as bank:
        secret = bank.remember("the code is s3cret").memory.id
        kept = bank.backup(tmp_path / "copy.skep")
    aside = Bank.put_back(kept, path)
    assert aside is not None
    with Bank.open(path, embedder=HashingEmbedder(16)) as bank:
        bank.forget(secret)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"s3cret" not in file.read_bytes(), file


def test_a_copy_is_put_where_nothing_was(tmp_path: Path) -> None:
    with filled(tmp_path / "bank.skep") as bank:
        kept = bank.backup(tmp_path / "copy.skep")
    assert Bank.put_back(kept, tmp_path / "new" / "bank.skep") is None
    with Bank.open(tmp_path / "new" / "bank.skep", create=False) as bank:
        assert len(texts(bank)) == 3


def test_a_bad_copy_leaves_the_bank_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with filled(path) as bank:
        kept = bank.backup(tmp_path / "copy.skep")
    before = path.read_bytes()
    data = bytearray(kept.read_bytes())
    data[4096:12288] = bytes(8192)
    kept.write_bytes(data)
    (tmp_path / "text").write_text("no bank at all")
    for copy, error in (
        (kept, CorruptBankError),
        (tmp_path / "text", NotABankError),
        (tmp_path / "nothing", NotFoundError),
        (path, InvalidInputError),
    ):
        with pytest.raises(error):
            Bank.put_back(copy, path)
        assert path.read_bytes() == before


def test_what_can_be_read_of_a_damaged_bank_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with filled(path, 2000) as bank:
        everything = texts(bank)
    sound = path.read_bytes()
    saved = 0
    for seed in range(6):
        path.write_bytes(damaged(sound, seed, flips=20, first=4096))
        out = tmp_path / f"out{seed}.jsonl"
        try:
            Bank.salvage(path, out)
        except SkepError:
            continue  # the root of the log was hit
        with Bank.open(":memory:", embedder=HashingEmbedder(16)) as new:
            new.import_(out)
            found = texts(new)
            assert all(finding.level != "error" for finding in new.doctor(deep=True))
        assert len(found & everything) > 1900
        saved += 1
    assert saved >= 3


def end_of(data: bytes, root: int, size: int = 4096) -> int:
    """Where the last page of a table or an index begins."""
    start = (root - 1) * size
    while data[start] in (2, 5):  # it leads on
        start = (int.from_bytes(data[start + 8 : start + 12], "big") - 1) * size
    return start


@pytest.mark.parametrize("tables", ["'log'", "'log', 'runs', 'sqlite_autoindex_runs_1'"])
def test_what_can_be_read_is_saved_though_the_end_of_the_log_and_where_events_stand_are_lost(
    tmp_path: Path, tables: str
) -> None:
    path = tmp_path / "bank.skep"
    filled(path, 2000).close()
    connection = apsw.Connection(str(path))
    roots = f"SELECT rootpage FROM sqlite_schema WHERE name IN ({tables})"
    found = [root for (root,) in connection.execute(roots)]
    connection.close()
    data = bytearray(path.read_bytes())
    for start in [end_of(data, root) for root in found]:
        data[start : start + 4096] = bytes(4096)
    path.write_bytes(data)

    saved, lost = Bank.salvage(path, tmp_path / "out.jsonl")
    assert saved > 1900
    assert saved + lost == 2000


@pytest.mark.parametrize("part", [0.99, 0.9, 0.5])
def test_what_is_left_of_a_bank_that_was_cut_short_is_saved_and_the_rest_is_counted(
    tmp_path: Path, part: float
) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path, embedder=HashingEmbedder(16)) as bank:
        for turn in range(40):  # so that the log lies between everything else, to the end of the file
            bank.remember_many([f"memory {number} of turn {turn}" for number in range(50)])
        everything = texts(bank)
    os.truncate(path, int(path.stat().st_size * part))
    before = path.read_bytes()

    saved, lost = Bank.salvage(path, tmp_path / "out.jsonl")

    assert saved > 2000 * part * 0.7
    assert (lost > 0) == (saved < 2000)
    assert 1900 < saved + lost <= 2000
    assert path.read_bytes() == before
    with Bank.open(":memory:", embedder=HashingEmbedder(16)) as new:
        assert new.import_(tmp_path / "out.jsonl").new == saved
        assert len(texts(new)) == saved
        assert texts(new) <= everything


def test_nothing_but_salvaging_reads_a_bank_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    filled(path, 2000).close()
    os.truncate(path, path.stat().st_size * 9 // 10)
    for ask in (
        lambda: Bank.open(path),
        lambda: Bank.open(path, read_only=True),
        lambda: Bank.put_back(path, tmp_path / "other.skep"),
    ):
        with pytest.raises(CorruptBankError):
            ask()
    with pytest.raises(apsw.ReadOnlyError):
        Connection(str(path), busy_seconds=1.0, read_only=True, cut_short=True).db.execute(
            "DELETE FROM event_log"
        )
    with pytest.raises(CorruptBankError):
        Connection(str(path), busy_seconds=1.0, cut_short=True).rows("SELECT seq FROM event_log LIMIT 1")


def test_where_nothing_can_be_read_salvaging_does_not_name_itself(tmp_path: Path) -> None:
    path, out = tmp_path / "bank.skep", tmp_path / "out.jsonl"
    filled(path, 100).close()
    sound = path.read_bytes()
    for length in (100, 512, 4096, 8192, 12288):
        path.write_bytes(sound[:length])
        with pytest.raises(SkepError, match="backup") as told:
            Bank.salvage(path, out)
        assert "salvage" not in str(told.value), length
        assert "newer" not in str(told.value), length
    path.write_bytes(sound[:4096] + bytes(len(sound) - 4096))
    with pytest.raises(CorruptBankError, match="nothing can be read"):
        Bank.salvage(path, out)
    assert not out.exists()


def test_another_programs_file_is_not_salvaged(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE things(name)")
    other.close()
    with pytest.raises(NotABankError, match="not a skep bank"):
        Bank.salvage(tmp_path / "other.db", tmp_path / "out.jsonl")


def test_damage_is_named_whatever_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    filled(path, 300).close()
    sound = path.read_bytes()
    named = 0
    for seed in range(12):
        path.write_bytes(damaged(sound, seed, flips=40, first=100))
        for ask in (Bank.status, lambda b: b.doctor(deep=True), texts, lambda b: list(b.export_lines())):
            try:
                with Bank.open(path, embedder=HashingEmbedder(16)) as bank:
                    ask(bank)
            except SkepError as error:
                named += "damaged" in str(error)
    assert named > 5


@pytest.mark.parametrize("create", [True, False])
def test_a_bank_that_was_emptied_is_not_taken_for_a_new_one(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "bank.skep"
    with filled(path, 300) as bank:
        bank.recall("memory")
        bank.engine.index.refresh()
    (tmp_path / "bank.skep.index").mkdir(exist_ok=True)
    path.write_bytes(b"")
    with pytest.raises(NotABankError, match="--restore"):
        Bank.open(path, create=create)
    assert path.read_bytes() == b""


def test_an_empty_file_may_become_a_bank(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    path.touch()
    filled(path).close()
    with Bank.open(path, create=False) as bank:
        assert bank.status().memories == 3


def broken(path: Path, sql: str) -> Path:
    filled(path, 8).close()
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()
    return path


@pytest.mark.parametrize("damage", ["hlc = 'x'", "body = '[]'", "body = '{bad'", "body = '{\"text\": 5}'"])
def test_what_was_salvaged_can_be_imported_whatever_one_event_has_become(tmp_path: Path, damage: str) -> None:
    path = broken(tmp_path / "bank.skep", f"UPDATE event_log SET {damage} WHERE seq = 3")
    assert Bank.salvage(path, tmp_path / "saved.jsonl") == (7, 1)
    with Bank.open(tmp_path / "new.skep", embedder=HashingEmbedder(16)) as bank:
        assert bank.import_(tmp_path / "saved.jsonl").new == bank.status().memories == 7


@pytest.mark.parametrize("key", ["actor", "bank"])
def test_a_bank_that_lost_its_name_says_what_to_do(tmp_path: Path, key: str) -> None:
    path = broken(tmp_path / "bank.skep", f"DELETE FROM meta WHERE key = '{key}'")
    with pytest.raises(CorruptBankError, match="--salvage"):
        Bank.open(path)


def test_doctor_finds_a_damaged_row_and_mends_it_from_the_log(tmp_path: Path) -> None:
    path = broken(tmp_path / "bank.skep", "UPDATE memories SET tags = '\"x' WHERE row = 3")
    with Bank.open(path, embedder=HashingEmbedder(16)) as bank:
        bad = [finding for finding in bank.doctor(deep=True) if finding.level == "error"]
        assert {finding.check for finding in bad} == {"replay", "index"}
        assert all("--mend" in finding.fix for finding in bad)
        with pytest.raises(CorruptBankError, match="--mend"):
            bank.recall("topic 14")
        bank.mend()
        assert not [finding for finding in bank.doctor(deep=True) if finding.level == "error"]
        assert (
            bank.recall("memory number 2 about topic 14")[0].memory.text == "memory number 2 about topic 14"
        )


def test_an_export_never_destroys_a_bank(tmp_path: Path) -> None:
    path, other = tmp_path / "bank.skep", tmp_path / "other.skep"
    filled(other).close()
    with filled(path) as bank:
        for target in (path, other):
            before = target.read_bytes()
            with pytest.raises(InvalidInputError, match="destroy"):
                bank.export(target)
            assert target.read_bytes() == before
        assert bank.export(tmp_path / "out.jsonl") == bank.export(tmp_path / "out.jsonl")
    assert not list(tmp_path.glob("*.partial"))


def test_a_view_of_the_past_is_no_bank_to_copy_or_write(tmp_path: Path) -> None:
    now = [1.75e9]
    with Bank.open(tmp_path / "bank.skep", now=lambda: now[0]) as bank:
        bank.remember("first")
        now[0] += 100
        later = bank.remember("second thing").memory.id
        view = bank.as_of(1.75e9 + 50)
        with pytest.raises(InvalidInputError, match="view of the past"):
            view.backup(tmp_path / "copy.skep")
        with pytest.raises(SkepError, match="view of the past"):
            view.remember("third")
        with pytest.raises(NotFoundError, match="at that time"):
            view.get(later)
        assert not (tmp_path / "copy.skep").exists()
