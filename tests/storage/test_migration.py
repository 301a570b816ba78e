"""Banks of older versions: taken on whole, read where they cannot be changed, and never written by two versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from tests.storage.older import make_older

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.errors import NewerVersionError, NotABankError
from skep.model import Memory
from skep.storage.doctor import examine
from skep.storage.schema import VERSION
from skep.storage.sqlite_store import SqliteStore


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32))


def filled(path: Path) -> tuple[Memory, ...]:
    with opened(path) as bank:
        first = bank.remember("the cache drops the token", tags=("infra",), on_conflict="ignore").memory
        bank.remember_many({"text": f"note {n} on the ledger", "tags": ("books",)} for n in range(100))
        bank.revise(first.id, importance=0.9)
        gone = bank.remember("nobody needs this", on_conflict="ignore").memory
        bank.retract(gone.id)
        bank.set_setting("colour", "red")
        return everything(bank)


def everything(bank: Bank) -> tuple[Memory, ...]:
    return bank.find(status=("active", "retracted"), limit=200).memories


def findings(path: Path) -> list[str]:
    store = SqliteStore.open(path, Settings())
    found = [f"{one.check}: {one.message}" for one in examine(store, deep=True) if one.level != "ok"]
    store.close()
    return found


@pytest.mark.parametrize("version", [7, 8])
def test_an_older_bank_keeps_everything_and_goes_on(bank_path: Path, version: int) -> None:
    before = filled(bank_path)
    make_older(bank_path, version)

    with opened(bank_path) as bank:
        assert bank.status().schema == VERSION
        assert everything(bank) == before
        assert [event.kind for event in bank.history(before[-1].id)] == ["remember", "revise"]
        added = bank.remember("the queue drops the token", tags=("infra",), on_conflict="ignore").memory
        assert {m.text for m in bank.find(text="drops token").memories} == {added.text, before[-1].text}
        assert len(bank.find(tags=("infra",)).memories) == 2
        bank.revise(before[-1].id, text="the cache keeps the token")
        assert [m.text for m in bank.find(text="drops token").memories] == [added.text]
        bank.forget(added.id)
        assert bank.find(text="drops token").memories == ()
        assert bank.find(tags=("infra",)).memories == (bank.get(before[-1].id),)
        names = "SELECT group_concat(name) FROM sqlite_schema WHERE name IN ('mentions', 'subjects')"
        assert bank.engine.store.connection.one(names) == "subjects"
    assert findings(bank_path) == []


@pytest.mark.parametrize("version", [7, 8])
def test_an_older_bank_that_cannot_be_changed_is_read_as_it_is(bank_path: Path, version: int) -> None:
    before = filled(bank_path)
    make_older(bank_path, version)
    with Bank.open(bank_path, embedder=HashingEmbedder(32), read_only=True) as bank:
        assert bank.status().schema == version
        assert everything(bank) == before
        assert [event.kind for event in bank.history(before[-1].id)] == ["remember", "revise"]
        assert bank.find(text="drops token").memories == (before[-1],)
        assert bank.as_of(2e9).get(before[-1].id).text == before[-1].text
        child = os.fork()
        if not child:
            os._exit(0 if len(bank.history(before[-1].id)) == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert not bank_path.with_name(f"bank.skep.before-v{VERSION}").exists()


READER = """
import sys
from skep import Bank
from skep.embedding.static_table import HashingEmbedder

with Bank.open(sys.argv[1], embedder=HashingEmbedder(32), read_only=True) as bank:
    for asked in sys.stdin:
        first = bank.recall(asked)[0].memory
        kinds = [event.kind for event in bank.history(first.id)]
        print(bank.status().schema, first.text, *kinds, sep="|", flush=True)
"""


@pytest.mark.parametrize("version", [7, 8])
def test_who_reads_an_older_bank_reads_on_when_another_process_migrates_it(
    bank_path: Path, version: int
) -> None:
    filled(bank_path)
    make_older(bank_path, version)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(bank_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with reader:
        assert reader.stdin is not None
        assert reader.stdout is not None

        def asked(question: str) -> str:
            print(question, file=reader.stdin, flush=True)
            return reader.stdout.readline().strip()  # type: ignore[union-attr]

        assert asked("cache token") == f"{version}|the cache drops the token|remember|revise"
        with opened(bank_path) as bank:
            new = bank.remember("the quay floods in spring", on_conflict="ignore").memory
            assert asked("quay floods") == f"{VERSION}|the quay floods in spring|remember"
            bank.revise(new.id, text="the quay floods in autumn")
            assert asked("quay floods") == f"{VERSION}|the quay floods in autumn|remember|revise"
        assert asked("cache token") == f"{VERSION}|the cache drops the token|remember|revise"
        reader.stdin.close()
    assert reader.returncode == 0


def test_who_reads_an_older_bank_is_told_when_a_skep_that_is_newer_migrates_it(bank_path: Path) -> None:
    filled(bank_path)
    make_older(bank_path, 7)
    with Bank.open(bank_path, embedder=HashingEmbedder(32), read_only=True) as reader:
        assert reader.recall("cache token")
        newer = apsw.Connection(str(bank_path))
        newer.pragma("user_version", VERSION + 1)
        newer.close()
        with pytest.raises(NewerVersionError, match="upgrade skep"):
            reader.recall("the cache drops the token")


def test_a_process_of_an_older_version_cannot_go_on_writing(bank_path: Path) -> None:
    filled(bank_path)
    make_older(bank_path, 7)
    older = apsw.Connection(str(bank_path))
    write = "INSERT INTO log(seq, actor, counter, hlc, kind, body) VALUES(9000, 'a', 1, 1, 'use', '{}')"
    older.execute(f"BEGIN; {write}; ROLLBACK")

    with opened(bank_path) as bank:
        bank.remember("written by the newer one", on_conflict="ignore")
        with pytest.raises(apsw.SQLError, match="no such table: log"):
            older.execute(write)
    older.close()


def test_the_newest_rows_of_an_older_bank_are_found_by_word_and_tag(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        bank.remember_many({"text": f"note {n}", "tags": ["books"]} for n in range(9))
    make_older(bank_path, 7)
    for read_only in (True, False):
        with Bank.open(bank_path, embedder=HashingEmbedder(32), read_only=read_only) as bank:
            assert len(bank.find("note")) == len(bank.find(tags=["books"])) == 9
            assert [memory.text for memory in bank.find("note 8")] == ["note 8"]
    assert findings(bank_path) == []


def test_an_event_that_damage_has_left_twice_does_not_keep_an_older_bank_from_opening(
    bank_path: Path,
) -> None:
    filled(bank_path)
    make_older(bank_path, 7)
    older = apsw.Connection(str(bank_path))
    columns = "actor, counter, hlc, kind, body, signature"
    older.execute(f"INSERT INTO log({columns}) SELECT {columns} FROM log WHERE seq = 3")
    older.close()

    with opened(bank_path) as bank:
        assert len(list(bank.events())) == len({event.id for event in bank.events()})


def test_several_processes_that_open_an_older_bank_at_once_all_get_it(bank_path: Path) -> None:
    before = filled(bank_path)
    make_older(bank_path, 7)
    code = "import sys; from skep import Bank; Bank.open(sys.argv[1]).remember('from ' + sys.argv[2])"
    openers = [subprocess.Popen([sys.executable, "-c", code, str(bank_path), str(n)]) for n in range(6)]
    assert [opener.wait(timeout=120) for opener in openers] == [0] * 6
    with opened(bank_path) as bank:
        assert bank.status().schema == VERSION
        assert tuple(m for m in everything(bank) if not m.text.startswith("from")) == before
        assert {m.text for m in bank.find("from")} == {f"from {n}" for n in range(6)}
        assert [copy.name for copy in bank.engine.store.backups()] == [f"{bank_path.name}.before-v{VERSION}"]
    assert findings(bank_path) == []


def test_an_older_bank_is_copied_even_where_a_copy_of_another_state_stands(bank_path: Path) -> None:
    filled(bank_path)
    make_older(bank_path, 7)
    opened(bank_path).close()
    with opened(bank_path) as bank:
        bank.remember("written later")
    make_older(bank_path, 7)
    opened(bank_path).close()
    first = Path(f"{bank_path}.before-v{VERSION}")
    for copy, held in ((first, 0), (first.with_name(f"{first.name}-2"), 1)):
        with Bank.open(copy, embedder=HashingEmbedder(32), read_only=True) as bank:
            assert len(bank.find("written later")) == held


def test_the_copy_of_a_migration_that_was_interrupted_serves_the_next(bank_path: Path) -> None:
    filled(bank_path)
    make_older(bank_path, 7)
    old = bank_path.read_bytes()
    opened(bank_path).close()
    bank_path.write_bytes(old)
    opened(bank_path).close()
    assert len(list(bank_path.parent.glob("*.before-*"))) == 1


def test_an_older_bank_ends_with_the_tables_of_a_new_one(bank_path: Path, tmp_path: Path) -> None:
    def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
        opened(path).close()
        connection = apsw.Connection(str(path))
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
        found = {name: list(connection.execute(f"PRAGMA table_xinfo({name})")) for name in names}
        found |= {
            name: list(connection.execute(f"PRAGMA index_xinfo({name})")) for name in names if not found[name]
        }
        connection.close()
        return found

    filled(bank_path)
    make_older(bank_path, 7)
    assert tables(bank_path) == tables(tmp_path / "new.skep")


def test_a_bank_from_before_the_first_release_is_refused_with_the_way_out(bank_path: Path) -> None:
    filled(bank_path)
    older = apsw.Connection(str(bank_path))
    older.pragma("user_version", 6)
    older.close()
    with pytest.raises(NotABankError, match="skep export --salvage"):
        opened(bank_path)
