"""Copies of a bank: made by several at a time, reached by forget wherever they came from, never destroyed unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skep import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.engine import engine as engine_module
from skep.engine.engine import Engine
from skep.errors import InvalidInputError, NotFoundError, StorageError, SyncError

COPIER = """
import sys
from skep import Bank
with Bank.open(sys.argv[1]) as bank:
    for _ in range(8):
        bank.backup(sys.argv[2])
"""
SECRET = "The vault opens with zwiebelkuchen"


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(16))


def holders(folder: Path) -> list[str]:
    """The files in which the secret stands."""
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and b"zwiebelkuchen" in p.read_bytes())


def test_several_processes_copy_to_one_place_at_once(tmp_path: Path) -> None:
    path, copy = tmp_path / "bank.skep", tmp_path / "copy.skep"
    with opened(path) as bank:
        bank.remember_many([f"note {number} " + "on the ledger " * 20 for number in range(500)])
    copiers = [subprocess.Popen([sys.executable, "-c", COPIER, str(path), str(copy)]) for _ in range(3)]
    assert [copier.wait(timeout=120) for copier in copiers] == [0, 0, 0]
    assert not list(tmp_path.glob("*.partial*"))
    with opened(copy) as bank:
        assert bank.status().memories == 500
        assert not [finding for finding in bank.doctor() if finding.level == "error"]


def test_forget_reaches_copies_made_after_the_one_that_was_put_back(tmp_path: Path) -> None:
    path, moved = tmp_path / "bank.skep", tmp_path / "moved.skep"
    with opened(path) as bank:
        secret = bank.remember(SECRET).memory.id
        first = bank.backup(tmp_path / "first.skep")
        bank.remember("something else")
        bank.backup(tmp_path / "second.skep")
    first.rename(moved)
    Bank.put_back(moved, path)
    with opened(path) as bank:
        receipt = bank.forget(secret)
        assert receipt.erased["backups"] == 3  # what was replaced, the copy it came from, and the later one
        assert [line.split(":")[0] for line in receipt.unreached] == [str(first)]
    assert holders(tmp_path) == []


def test_a_copy_that_was_written_to_is_not_replaced(tmp_path: Path) -> None:
    copy = tmp_path / "copy.skep"
    with opened(tmp_path / "bank.skep") as bank:
        memory = bank.remember("in both").memory.id
        bank.backup(copy)
        with opened(copy) as other:
            assert len(other.recall("in both")) == 1
        bank.backup(copy)  # reading it leaves it a copy
        bank.forget(memory)
        bank.backup(copy)  # and so does what forget writes into it
        with opened(copy) as other:
            other.remember("only in the copy")
        with pytest.raises(InvalidInputError, match="holds by now what this bank does not"):
            bank.backup(copy)
        with opened(copy) as other:
            assert [found.text for found in other.find()] == ["only in the copy"]
            other.export(tmp_path / "out.jsonl")
        bank.import_(tmp_path / "out.jsonl")
        bank.backup(copy)


def test_what_took_the_place_of_a_copy_is_not_replaced(tmp_path: Path) -> None:
    copy = tmp_path / "copy.skep"
    with opened(tmp_path / "bank.skep") as bank:
        bank.remember("one")
        bank.backup(copy)
        copy.unlink()
        opened(copy).close()
        with pytest.raises(InvalidInputError, match="holds by now"):
            bank.backup(copy)
        copy.write_text("a letter")
        with pytest.raises(InvalidInputError, match="no backup this bank has made"):
            bank.backup(copy)
        assert copy.read_text() == "a letter"


def test_forget_clears_away_what_a_killed_backup_left(tmp_path: Path) -> None:
    copy = tmp_path / "copy.skep"
    with opened(tmp_path / "bank.skep") as bank:
        secret = bank.remember(SECRET).memory.id
        bank.backup(copy)
        Path(f"{copy}.partial-0a1b2c3d").write_bytes(copy.read_bytes()[:-4096])
        bank.forget(secret)
    assert holders(tmp_path) == []
    assert not list(tmp_path.glob("*.partial*"))


def test_a_malformed_event_far_into_an_export_keeps_out_the_whole(tmp_path: Path) -> None:
    export = tmp_path / "out.jsonl"
    with opened(tmp_path / "bank.skep") as bank:
        bank.remember_many([f"note {number}" for number in range(2100)])
        bank.export(export)
    lines = export.read_text().splitlines()
    event = json.loads(lines[-1])
    event["body"]["confidence"] = 7
    export.write_text("\n".join([*lines[:-1], json.dumps(event)]))
    with opened(tmp_path / "other.skep") as bank:
        with pytest.raises(SyncError, match="malformed"):
            bank.import_(export)
        assert bank.status().events == 0


def test_a_backup_that_failed_and_a_copy_that_was_deleted_are_not_looked_for(tmp_path: Path) -> None:
    copy = tmp_path / "copy.skep"
    with opened(tmp_path / "bank.skep") as bank:
        one, two = (bank.remember(text).memory.id for text in ("one thing", "another matter"))
        with pytest.raises(StorageError, match="folder that exists"):
            bank.backup(tmp_path / "nowhere" / "copy.skep")
        assert bank.forget(one).unreached == ()
        bank.backup(copy)
        with pytest.raises(InvalidInputError, match="still there"):
            bank.drop_backup(copy)
        copy.unlink()
        assert "--gone" in bank.forget(two).unreached[0]
        bank.drop_backup(copy)
        assert bank.backups() == []
        assert bank.forget(two).unreached == ()
        with pytest.raises(NotFoundError, match="no copy"):
            bank.drop_backup(copy)


def test_an_export_is_written_into_a_pipe_or_through_a_link_and_replaces_neither(tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "out.jsonl"
    os.mkfifo(pipe)
    file.write_text("an earlier export")
    link.symlink_to(file)
    with opened(tmp_path / "bank.skep") as bank:
        bank.remember("one thing")
        reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
        assert bank.export(pipe) == bank.export(link) == 1
    assert reader.communicate(timeout=30)[0] == file.read_bytes()
    assert pipe.is_fifo()
    assert link.is_symlink()


BUSY = """
import sys
from skep import Bank
with Bank.open(sys.argv[1]) as bank:
    bank.remember("the first")
    print("ready", flush=True)
    while True:
        bank.remember("another", on_conflict="ignore")
"""


def test_copies_and_views_end_while_another_process_keeps_writing(tmp_path: Path) -> None:
    path = tmp_path / "bank.skep"
    with opened(path) as bank:
        bank.remember_many(
            [f"note {number} " + "on the ledger " * 400 for number in range(2000)]
        )  # several steps
    with subprocess.Popen([sys.executable, "-c", BUSY, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            with opened(path) as bank:
                bank.backup(tmp_path / "copy.skep")
                assert len(bank.as_of(4e9).find("the first")) == 1
            assert writer.poll() is None  # it was at work all the time
        finally:
            writer.kill()
    with opened(tmp_path / "copy.skep") as bank:
        assert bank.status().memories > 2000
        assert not [finding for finding in bank.doctor(deep=True) if finding.level == "error"]


def test_threads_go_on_while_one_of_them_copies_or_looks_the_bank_over(tmp_path: Path) -> None:
    with opened(tmp_path / "bank.skep") as bank:
        bank.remember_many([f"note {number} " + "on the ledger " * 100 for number in range(2000)])
        over, written = threading.Event(), 0

        def look() -> None:
            try:
                for _ in range(3):
                    bank.backup(tmp_path / "copy.skep")
                    bank.doctor()
            finally:
                over.set()

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            while not over.is_set():
                bank.remember("another", on_conflict="ignore")
                written += 1
            looking.result()
        assert bank.status().memories == 2000 + written


def test_what_is_forgotten_while_a_copy_is_made_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, path = tmp_path / "copy.skep", tmp_path / "bank.skep"
    with opened(path) as bank, opened(path) as other:
        secret = bank.remember(SECRET).memory.id
        bank.remember("something else")
        bank.backup(copy)
        fsync = os.fsync

        def slowly(descriptor: int) -> None:
            monkeypatch.undo()  # the new copy is complete, the old one still stands there
            other.forget(secret)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", slowly)
        bank.backup(copy)
    assert holders(tmp_path) == []
    with opened(copy) as bank:
        assert [found.text for found in bank.find()] == ["something else"]


def test_what_was_forgotten_before_a_copy_was_there_is_erased_from_it_whatever_is_forgotten_in_it_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, path = tmp_path / "copy.skep", tmp_path / "bank.skep"
    with opened(path) as bank, opened(path) as other:
        secret = bank.remember(SECRET).memory.id
        also = bank.remember("something else").memory.id
        bank.remember("what stays")
        fsync = os.fsync

        def slowly(descriptor: int) -> None:
            monkeypatch.setattr(os, "fsync", fsync)  # there is no copy yet that this could reach
            other.forget(secret)
            fsync(descriptor)

        meanwhile = engine_module.forget_meanwhile

        def later(engine: Engine, target: Path) -> None:
            assert other.forget(also).erased["backups"] == 1
            meanwhile(engine, target)

        monkeypatch.setattr(os, "fsync", slowly)
        monkeypatch.setattr(engine_module, "forget_meanwhile", later)
        bank.backup(copy)
    assert holders(tmp_path) == []
    with opened(copy) as bank:
        assert [found.text for found in bank.find()] == ["what stays"]


def test_a_copy_of_a_bank_that_holds_single_events_of_another_is_replaced(tmp_path: Path) -> None:
    copy = tmp_path / "copy.skep"
    with opened(tmp_path / "bank.skep") as bank, opened(tmp_path / "other.skep") as other:
        for name in ("Oslo", "Bergen", "Tromsø"):
            other.remember(f"The ferry to {name} is late", on_conflict="ignore")
        last = list(other.events())[-1]
        bank.apply([last], partial=True)
        bank.backup(copy)
        bank.remember("something else")
        bank.backup(copy)
    with opened(copy) as bank:
        assert len(bank.find()) == 2


FORGETTER = """
import sys
from skep import Bank
from skep.embedding.static_table import HashingEmbedder
with Bank.open(sys.argv[1], embedder=HashingEmbedder(16)) as bank:
    for number in range(12):
        memory = bank.remember(f"{sys.argv[3]} {number}", on_conflict="ignore").memory.id
        bank.backup(sys.argv[2])
        gone = [path for path in bank.forget(memory).unreached if "copy.skep" in path]
        assert not gone, gone
"""


def test_several_processes_copy_and_erase_from_the_copy_at_once(tmp_path: Path) -> None:
    path, copy = tmp_path / "bank.skep", tmp_path / "copy.skep"
    with opened(path) as bank:
        bank.remember("what stays")
    command = [sys.executable, "-c", FORGETTER, str(path), str(copy)]
    running = [
        subprocess.Popen([*command, f"{name} zwiebelkuchen"], stderr=subprocess.PIPE)
        for name in ("my", "your", "their")
    ]
    said = [process.communicate()[1].decode() for process in running]
    assert said == [""] * len(running)
    assert holders(tmp_path) == []
    with opened(copy) as bank:
        assert [found.text for found in bank.find()] == ["what stays"]
        assert not [finding for finding in bank.doctor(deep=True) if finding.level == "error"]


def test_what_a_killed_process_left_beside_a_copy_does_not_ruin_the_next(tmp_path: Path) -> None:
    copy, log = tmp_path / "copy.skep", tmp_path / "copy.skep-wal"
    with opened(tmp_path / "bank.skep") as bank:
        bank.remember("what stays")
        bank.backup(copy)
        before = copy.read_bytes()
        with opened(copy) as killed:
            killed.engine.store.set_mark("job", 1)
            left = log.read_bytes()
        assert left
        copy.write_bytes(before)
        log.write_bytes(left)
        for number in range(50):
            bank.remember(f"note {number}", on_conflict="ignore")
        bank.backup(copy)
    assert not log.exists()
    with opened(copy) as bank:
        assert bank.status().memories == 51
