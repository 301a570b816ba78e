"""One connection, many threads, and a fork: what is cached stays true, and no lock stays shut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.errors import BusyError
from skep.filters import Filter
from skep.index.index import SegmentIndex
from skep.storage import sqlite_file
from skep.storage.sqlite_connection import Connection
from skep.storage.sqlite_file import connect
from skep.storage.sqlite_store import SqliteStore
from skep.storage.vectors import Space

NOW = 1_750_000_000.0
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.fixture
def store(bank_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(bank_path, Settings())
    yield opened
    opened.close()


def count(store: SqliteStore, table: str) -> int:
    return store.connection.one(f"SELECT count(*) FROM {table}")


def refuse(_texts: Sequence[str], _spaces: Sequence[Space]) -> dict[int, list[bytes]]:
    raise ValueError("no vectors today")


def test_a_write_that_fails_inside_a_snapshot_leaves_nothing(store: SqliteStore) -> None:
    with store.connection.snapshot():
        assert store.last_seq() == 0
        with pytest.raises(ValueError, match="no vectors"):
            store.write([("remember", {"text": "half of something"})], now=NOW, embed=refuse)
    assert count(store, "event_log") == count(store, "memories") == 0


def test_a_part_of_a_transaction_can_fail_alone(store: SqliteStore) -> None:
    with store.writing():
        store.write([("remember", {"text": "the first"})], now=NOW)
        with pytest.raises(ValueError, match="no vectors"):
            store.write([("remember", {"text": "the second"})], now=NOW, embed=refuse)
        store.write([("remember", {"text": "the third"})], now=NOW)
    assert [m.text for _row, m in store.find(Filter(statuses=()), limit=9)] == ["the third", "the first"]
    assert count(store, "event_log") == 2


def test_what_was_rolled_back_is_not_served_from_memory(store: SqliteStore) -> None:
    store.write([("setting", {"key": "colour", "value": "red"})], now=NOW)

    def change_and_fail() -> None:
        with store.connection.transaction():
            store.write([("setting", {"key": "colour", "value": "blue"})], now=NOW)
            store.write([("remember", {"text": "a note", "valid_from": NOW + 50})], now=NOW)
            assert (store.setting("colour"), store.head(), store.last_seq()) == ("blue", 1, 3)
            assert store.next_boundary(NOW) == NOW + 50
            raise KeyError

    with pytest.raises(KeyError):
        change_and_fail()
    assert (store.setting("colour"), store.head(), store.last_seq()) == ("red", 0, 1)
    assert store.next_boundary(NOW) == float("inf")


def in_child(code: str, path: Path) -> str:
    """What a script prints whose child has 20 seconds; a child that hangs is ended."""
    head = f"""
import os, signal, sys, threading
from skep import Bank
from skep.embedding.static_table import HashingEmbedder
path = {str(path)!r}
bank = Bank.open(path, embedder=HashingEmbedder(32))
def child_says(act):
    read, write = os.pipe()
    go_read, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os.read(go_read, 1)
        os.write(write, str(act()).encode())
        os._exit(0)
    os.close(write)
    def answer():
        os.write(go, b"!")
        said = os.read(read, 1000).decode()
        os.waitpid(pid, 0)
        return said or "nothing"
    return answer
"""
    script = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", head + code]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_fork
def test_a_child_sees_what_its_parent_writes_after_the_fork(bank_path: Path) -> None:
    code = """
store = bank.engine.store
bank.remember("one note", on_conflict="ignore")
bank.set_setting("k", 1)
head, k = store.head(), store.setting("k")
store.connection.db.pragma("data_version")
answer = child_says(lambda: (store.connection.path and store.head() - head, store.setting("k")))
bank.remember("another note", on_conflict="ignore")
bank.set_setting("k", 2)
print(answer())
"""
    assert in_child(code, bank_path) == "(1, 2)"


@needs_fork
def test_a_child_makes_no_empty_bank_where_its_parents_was_moved_away(bank_path: Path) -> None:
    code = """
from skep.errors import MovedError
bank.remember("one note", on_conflict="ignore")
def act():
    try:
        return bank.recall("note").hits
    except MovedError:
        return "moved"
answer = child_says(act)
os.rename(path, path + ".away")
print(answer(), os.path.exists(path))
"""
    assert in_child(code, bank_path) == "moved False"


@needs_fork
def test_a_child_opens_a_relative_name_from_the_folder_where_its_parent_did(bank_path: Path) -> None:
    code = """
os.chdir(os.path.dirname(path))
bank.close()
bank = Bank.open(os.path.basename(path), embedder=HashingEmbedder(32))
bank.remember("one note", on_conflict="ignore")
os.mkdir("elsewhere")
os.chdir("elsewhere")
answer = child_says(lambda: [hit.memory.text for hit in bank.recall("note").hits])
print(answer(), os.listdir())
"""
    assert in_child(code, bank_path) == "['one note'] []"


@needs_fork
def test_what_a_child_writes_outlives_its_parent(bank_path: Path) -> None:
    code = """
bank.remember("from the parent", on_conflict="ignore")
beside = Bank.open(path, embedder=HashingEmbedder(32))
beside.recall("parent")
closed = Bank.open(path, embedder=HashingEmbedder(32))
closed.close()
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    bank.remember("while the parent is there", on_conflict="ignore")
    os.write(write, b"!")
    os.read(go_read, 1)
    for i in range(5):
        bank.remember(f"after it left {i}", on_conflict="ignore")
    os._exit(0)
os.read(read, 1)
bank.close()
beside.close()
os.write(go, b"!")
os.waitpid(pid, 0)
with Bank.open(path, embedder=HashingEmbedder(32)) as again:
    print(again.status().memories)
"""
    assert in_child("go_read, go = os.pipe()\n" + code, bank_path) == "7"


@needs_fork
def test_a_fork_in_the_middle_of_a_write_is_refused_in_the_child_and_harms_nothing(bank_path: Path) -> None:
    code = """
from skep import runtime
runtime.PATIENCE = 0.05
begun, done = threading.Event(), threading.Event()
def write():
    with bank.engine.store.writing():
        bank.remember("half way", on_conflict="ignore")
        begun.set()
        done.wait()
thread = threading.Thread(target=write)
thread.start()
begun.wait()
def act():
    try:
        return len(bank.recall("half way").hits)
    except Exception as error:
        return type(error).__name__ + (" fork between calls" in str(error)) * ", and what to do"
answer = child_says(act)
said = answer()
done.set()
thread.join()
print(said, len(bank.recall("half way").hits))
"""
    assert in_child(code, bank_path) == "StorageError, and what to do 1"


@needs_fork
@pytest.mark.parametrize(
    "lock", ["store.connection.lock", "embeddings._lock", "embeddings._asked_lock", "_use_lock"]
)
def test_a_lock_that_another_thread_held_is_free_in_a_child(bank_path: Path, lock: str) -> None:
    code = f"""
bank.remember("a note about forks", on_conflict="ignore")
bank.recall("forks")
held, done = threading.Event(), threading.Event()
def hold():
    with bank.engine.{lock}:
        held.set()
        done.wait(1)
thread = threading.Thread(target=hold)
thread.start()
held.wait()
def act():
    found = len(bank.recall("a note about something else").hits)
    bank.engine.embeddings.work()
    return found
answer = child_says(act)
print(answer())
done.set()
thread.join()
"""
    assert in_child(code, bank_path) == "1"


@needs_fork
def test_a_child_does_not_count_its_parents_uses_again(bank_path: Path) -> None:
    code = """
memory = bank.remember("a note about uses", on_conflict="ignore").memory
bank.recall("uses")
def act():
    bank.close()
    return "closed"
answer = child_says(act)
answer()
bank.close()
with Bank.open(path, embedder=HashingEmbedder(32)) as again:
    print(again.get(memory.id).uses)
"""
    assert in_child(code, bank_path) == "1"


def test_reading_a_copied_file_writes_nothing_to_it(bank_path: Path, tmp_path: Path) -> None:
    with opened(bank_path) as bank:
        bank.remember("kept in two places", on_conflict="ignore")
        original = bank.actor
    copy = tmp_path / "copy.skep"
    shutil.copy(bank_path, copy)
    before = copy.read_bytes()
    with opened(copy) as bank:
        assert bank.status().memories == 1
        assert bank.find("places").memories
        assert bank.status().actor == original
    assert copy.read_bytes() == before
    with opened(copy) as one, opened(copy) as other:
        first = one.remember("written in the copy", on_conflict="ignore").memory
        second = other.remember("written beside it", on_conflict="ignore").memory
        assert one.actor == other.actor != original
    assert first.id.rpartition("-")[0] == second.id.rpartition("-")[0] != original
    with opened(copy) as again:
        assert again.status().actor == again.actor == first.id.rpartition("-")[0]


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32), settings=Settings(pure_reads=True))


def test_copies_of_a_bank_that_was_never_written_draw_names_of_their_own(
    bank_path: Path, tmp_path: Path
) -> None:
    SqliteStore.open(bank_path, Settings()).close()
    shutil.copy(bank_path, tmp_path / "copy.skep")
    names: set[str] = set()
    for path in (bank_path, tmp_path / "copy.skep"):
        store = SqliteStore.open(path, Settings())
        names.add(store.write([("remember", {"text": "hello"})], now=NOW)[0][0].actor)
        store.close()
    assert len(names) == 2


def test_what_another_process_left_to_erase_is_erased_by_the_next_write_here(
    store: SqliteStore, bank_path: Path
) -> None:
    other = SqliteStore.open(bank_path, Settings())
    secret = other.write([("remember", {"text": "xyzzysecret"})], now=NOW)[0][0].id
    with store.connection.snapshot():
        assert store.last_seq() == 1
        other.write([("forget", {"memories": [secret]})], now=NOW)
        assert not other.truncate_wal(0.0)
    other.connection.close()  # as if it had crashed
    wal = bank_path.with_name(bank_path.name + "-wal")
    assert b"xyzzysecret" in wal.read_bytes()
    store.write([("remember", {"text": "something else"})], now=NOW)
    assert b"xyzzysecret" not in wal.read_bytes() + bank_path.read_bytes()
    assert not store.leftover()


def test_threads_that_ask_for_the_index_first_get_the_same_one(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(bank_path) as bank:
        bank.remember("shared", on_conflict="ignore")
        engine = bank.engine
        engine.__dict__.pop("index", None)
        made: list[int] = []
        make = engine._opened  # pyright: ignore[reportPrivateUsage]

        def slowly() -> SegmentIndex:
            made.append(1)
            threading.Event().wait(0.1)  # long enough for the others to look
            return make()

        monkeypatch.setattr(engine, "_opened", slowly)
        threads = [threading.Thread(target=lambda: engine.index) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(made) == 1


class Watched:
    """A handle, or what it gave, that notes whatever is asked of it while the lock is not held."""

    def __init__(self, held: Any, lock: Any, noted: list[str]) -> None:
        self.held, self.lock, self.noted = held, lock, noted

    def __getattr__(self, name: str) -> Any:
        if name != "in_transaction" and not self.lock._is_owned():
            self.noted.append(name)
        found = getattr(self.held, name)
        return self._calling(found) if callable(found) else found

    def _calling(self, found: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            answer = found(*(each.held if isinstance(each, Watched) else each for each in given), **named)
            cursor = answer is self.held or type(answer).__name__ == "Cursor"
            return Watched(answer, self.lock, self.noted) if cursor else answer

        return call

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        if not self.lock._is_owned():
            self.noted.append("next")
        return next(self.held)


def test_nobody_asks_sqlite_anything_without_the_lock(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite takes none of its own: two threads at once would ruin the connection."""
    noted: list[str] = []
    connected = Connection._connect  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Connection, "_connect", lambda self: Watched(connected(self), self.lock, noted))
    with Bank.open(bank_path, embedder=HashingEmbedder(16), now=lambda: NOW) as bank:
        noted.clear()  # nobody else has it while it is opened
        one, other = (bank.remember(text).memory for text in ("the tea is green", "the tea is black"))
        bank.remember_many({"text": f"number {n}", "tags": ["n"]} for n in range(30))
        bank.recall("tea", expand=True)
        bank.rank("tea", preset="semantic", tags=["n"])
        bank.find("tea", limit=1)
        bank.link(one.id, other.id)
        bank.revise(one.id, importance=0.9)
        bank.supersede(one.id, other.id)
        bank.history(one.id)
        bank.find_conflicts()
        bank.forget(one.id)
        bank.maintain()
        bank.stats()
        bank.doctor()
        bank.engine.flush_uses()

        assert noted == []


def test_a_bank_that_another_process_makes_meanwhile_is_not_taken_for_something_else(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is looked at first: what tells a bank from another file is read at one moment."""
    bank_path.touch()
    made: list[str] = []

    def make(_cursor: object, sql: str, _bindings: object) -> bool:
        if not made and sql.startswith("SELECT count(*)"):
            made.append(sql)
            with contextlib.suppress(BusyError):  # it has to wait until all was read
                connect(str(bank_path), busy_seconds=0.0).close()
        return True

    check = sqlite_file._check  # pyright: ignore[reportPrivateUsage]

    def watched(connection: Connection) -> None:
        if not made:
            connection.db.exec_trace = make
        check(connection)
        connection.db.exec_trace = None

    monkeypatch.setattr(sqlite_file, "_check", watched)
    connect(str(bank_path), busy_seconds=5.0).close()
    assert made
    with Bank.open(bank_path) as bank:
        assert bank.remember("it is one").memory.text == "it is one"
