"""Bad disks: a clear error or self-repair, never silent loss."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import apsw
import pytest

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.errors import (
    BankNotFoundError,
    CorruptBankError,
    DiskFullError,
    NewerVersionError,
    NotABankError,
    ReadOnlyError,
    SkepError,
    StorageError,
)
from skep.storage.schema import VERSION
from skep.storage.sqlite_store import SqliteStore


def filled(path: Path, count: int = 300) -> list[str]:
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        bank.remember_many([f"note {i} about topic{i % 9}" for i in range(count)])
        bank.recall("topic1")
        return [m.text for m in bank.find(limit=10_000)]


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(64))


def test_a_full_disk_is_a_clear_error_and_loses_nothing(bank_path: Path) -> None:
    before = filled(bank_path)
    with opened(bank_path) as bank:
        connection = bank.engine.store.connection
        connection.db.pragma("max_page_count", connection.db.pragma("page_count"))
        with pytest.raises(DiskFullError, match="free some"):  # noqa: PT012
            for number in range(2000):
                bank.remember(f"one too many {number} " + "x" * 2000, on_conflict="ignore")
        connection.db.pragma("max_page_count", 1 << 30)
        now = {m.text for m in bank.find(limit=10_000)}
        assert set(before) <= now
        assert bank.remember("there is room again").memory.status == "active"
        assert [f for f in bank.doctor(deep=True) if f.level == "error"] == []


def test_a_deleted_index_is_rebuilt(bank_path: Path) -> None:
    filled(bank_path)
    shutil.rmtree(bank_path.with_name(bank_path.name + ".index"), ignore_errors=True)
    with opened(bank_path) as bank:
        assert "topic3" in bank.recall("topic3")[0].memory.text


def test_garbage_in_the_index_is_noticed_and_rebuilt(bank_path: Path) -> None:
    filled(bank_path, 6000)
    folder = bank_path.with_name(bank_path.name + ".index")
    files = [f for f in folder.rglob("*") if f.is_file() and f.stat().st_size > 0]
    assert files
    for file in files:
        data = bytearray(file.read_bytes())
        data[: min(64, len(data))] = os.urandom(min(64, len(data)))
        file.write_bytes(data)
    with opened(bank_path) as bank:
        assert "topic3" in bank.recall("topic3")[0].memory.text


def test_a_truncated_index_is_noticed_and_rebuilt(bank_path: Path) -> None:
    filled(bank_path, 6000)
    for file in bank_path.with_name(bank_path.name + ".index").rglob("*"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)
    with opened(bank_path) as bank:
        assert "topic3" in bank.recall("topic3")[0].memory.text


def test_a_file_that_is_something_else_is_refused_untouched(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes, not a bank\n" * 100)
    before = text.read_bytes()
    with pytest.raises(NotABankError, match="not a skep bank"):
        Bank.open(text)
    assert before == text.read_bytes()


def test_another_sqlite_file_is_refused_untouched(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE t(x)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(NotABankError, match="SQLite file, but not"):
        Bank.open(other)
    assert before == other.read_bytes()


def test_a_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotABankError, match="folder"):
        Bank.open(tmp_path)
    with pytest.raises(BankNotFoundError, match="skep init"):
        Bank.open(tmp_path / "none.skep", create=False)
    assert not (tmp_path / "none.skep").exists()


def test_a_bank_of_a_newer_version_is_refused(bank_path: Path) -> None:
    filled(bank_path, 3)
    connection = apsw.Connection(str(bank_path))
    connection.pragma("user_version", VERSION + 1)
    connection.close()
    with pytest.raises(NewerVersionError, match="upgrade skep"):
        opened(bank_path)


def test_a_damaged_file_is_an_error_or_still_whole_and_never_a_surprise(bank_path: Path) -> None:
    before = set(filled(bank_path))
    data = bank_path.read_bytes()
    for number in range(12):
        damaged = bytearray(data)
        start = 4096 * (1 + number * (len(data) // 4096 - 2) // 12)
        damaged[start : start + 4096] = os.urandom(4096)
        bank_path.write_bytes(damaged)
        for extra in ("-wal", "-shm"):
            bank_path.with_name(bank_path.name + extra).unlink(missing_ok=True)
        try:
            with opened(bank_path) as bank:
                found = {m.text for m in bank.find(limit=10_000)}
                sick = any(f.level == "error" for f in bank.doctor(deep=True))
                assert sick or found == before
        except SkepError as error:
            assert isinstance(error, CorruptBankError | NotABankError) or "skep doctor" in str(error)  # noqa: PT017


def test_a_truncated_file_is_a_clear_error(bank_path: Path) -> None:
    filled(bank_path)
    os.truncate(bank_path, bank_path.stat().st_size // 2)
    with pytest.raises(SkepError), opened(bank_path) as bank:  # noqa: PT012
        assert [f for f in bank.doctor(deep=True) if f.level == "error"]
        raise CorruptBankError("doctor saw it")


def test_a_bank_opened_for_reading_refuses_to_write(bank_path: Path) -> None:
    filled(bank_path)
    with Bank.open(bank_path, embedder=HashingEmbedder(64), read_only=True) as bank:
        assert len(bank.recall("topic1")) == 5
        with pytest.raises(ReadOnlyError, match="reading only"):
            bank.remember("no")


def test_files_are_private_to_their_owner(bank_path: Path) -> None:
    filled(bank_path, 6000)
    for path in [bank_path, *bank_path.with_name(bank_path.name + ".index").rglob("*")]:
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_copied_bank_draws_a_name_of_its_own(bank_path: Path, tmp_path: Path) -> None:
    filled(bank_path, 5)
    shutil.copy(bank_path, tmp_path / "copy.skep")
    with opened(bank_path) as one, opened(tmp_path / "copy.skep") as two:
        assert one.actor != two.actor
        one.remember("mine", on_conflict="ignore")
        two.remember("yours", on_conflict="ignore")
        one.apply(two.events(one.versions()))
        assert one.status().memories == 7


def test_an_older_bank_is_migrated_after_a_copy(bank_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.storage import sqlite_file

    filled(bank_path, 5)
    next_one = VERSION + 1
    monkeypatch.setattr(
        sqlite_file, "STEPS", {**sqlite_file.STEPS, next_one: "CREATE TABLE of_the_future(x);"}
    )
    monkeypatch.setattr(sqlite_file, "VERSION", next_one)
    with opened(bank_path) as bank:
        assert bank.status().memories == 5
        assert bank.status().schema == next_one
    copy = SqliteStore.open(f"{bank_path}.before-v{next_one}", Settings(), read_only=True)
    assert copy.connection.db.pragma("user_version") == VERSION
    copy.close()


def test_a_migration_that_fails_changes_nothing(bank_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.storage import sqlite_file

    filled(bank_path, 5)
    with monkeypatch.context() as patch:
        broken = "CREATE TABLE fine(x); CREATE TABLE broken("
        patch.setattr(sqlite_file, "STEPS", {**sqlite_file.STEPS, VERSION + 1: broken})
        patch.setattr(sqlite_file, "VERSION", VERSION + 1)
        with pytest.raises(StorageError):
            opened(bank_path)
    with opened(bank_path) as bank:
        assert (bank.status().memories, bank.status().schema) == (5, VERSION)
