"""What changed after a change: new rows are found by their number, altered ones by an index that holds no others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.storage.older import make_older

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.storage import queries
from skep.storage.doctor import examine, mend
from skep.storage.schema import VERSION


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32))


def busy(bank: Bank, draw: random.Random, steps: int) -> None:
    """New memories and changed ones in any order; some many at a time, some again and again."""
    for step in range(steps):
        ids = [memory.id for memory in bank.find(limit=1000).memories]
        kind = draw.choice(("one", "many", "revise", "again", "touch", "forget") if ids else ("one", "many"))
        if kind == "one":
            bank.remember(f"note {step}", on_conflict="ignore")
        elif kind == "many":
            bank.remember_many(f"note {step} part {n}" for n in range(draw.randint(1, 9)))
        elif kind == "revise":
            for each in draw.sample(ids, min(len(ids), 3)):
                bank.revise(each, importance=draw.random())
        elif kind == "again":
            for _ in range(12):
                bank.revise(ids[-1], text=f"said otherwise {draw.random()}")
        elif kind == "touch":
            store = bank.engine.store
            with store.writing():
                store.tables.touch(draw.sample(range(1, len(ids) + 1), len(ids) // 2))
        elif step % 3 == 0:
            bank.forget(draw.choice(ids))


def agrees(bank: Bank) -> None:
    """Whatever is asked for, the answer is that of a look at every row."""
    store = bank.engine.store
    every = sorted(store.connection.rows("SELECT changed, row, forgotten, status FROM memories"))
    assert store.head() == (every[-1][0] if every else 0)
    for after in range(store.head() + 1):
        expected = [(changed, row) for changed, row, *_ in every if changed > after]
        assert [(row.seq, row.row) for row in store.changed_since(after)] == expected
        if not store.read_only:  # who only reads writes no segments, and so does not ask
            assert store.erased_since(after) == any(gone for changed, _, gone, _ in every if changed > after)
        rows = sorted(row for changed, row, gone, _ in every if changed > after and not gone)
        found = store.changed_memories(after, ("fact",))
        assert [memory.id for memory in found] == [store.memories([row])[row].id for row in rows]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("batch", [3, 1000])
def test_what_changed_is_what_a_look_at_every_row_says(
    bank_path: Path, seed: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "BATCH", batch)
    draw = random.Random(seed)
    with opened(bank_path) as bank:
        busy(bank, draw, 14)
        agrees(bank)
    make_older(bank_path, draw.choice((5, 6)))
    with Bank.open(bank_path, embedder=HashingEmbedder(32), read_only=True) as bank:
        agrees(bank)
    with opened(bank_path) as bank:
        agrees(bank)
        busy(bank, draw, 8)
        agrees(bank)
        assert bank.engine.store.connection.rows("PRAGMA integrity_check") == [("ok",)]
        assert [found for found in bank.doctor(deep=True) if found.level == "error"] == []


def test_another_process_may_write_between_a_look_at_the_head_and_the_rows(bank_path: Path) -> None:
    with opened(bank_path) as bank, opened(bank_path) as other:
        bank.remember_many(f"note {n}" for n in range(20))
        rows = bank.engine.store.changed_since(15)
        other.remember_many(f"later note {n}" for n in range(30))
        assert [row.seq for row in rows] == [16, 17, 18, 19, 20]


def test_a_new_memory_is_in_no_index_of_changes(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        first = bank.remember_many(f"note {n}" for n in range(50))[0].memory
        connection = bank.engine.store.connection
        assert connection.rows("SELECT row FROM altered") == []
        bank.revise(first.id, importance=0.9)
        bank.revise(first.id, importance=0.8)
        assert connection.rows("SELECT row, changed FROM altered") == [(1, 52)]


def test_what_changed_is_found_without_a_look_at_every_row(bank_path: Path) -> None:
    steps: list[int] = []

    def note(event: dict[str, Any]) -> bool:
        steps[-1] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        return True

    for count in (200, 3000):
        with opened(bank_path) as bank:
            bank.remember_many(f"note {n}" for n in range(count))
            store = bank.engine.store
            with store.writing():
                store.tables.touch(
                    range(1, count, 2)
                )  # the last in the way, if rows were gone through from the end
            first = bank.remember("the last but one", on_conflict="ignore").memory
            bank.revise(first.id, importance=0.7)
            steps.append(0)
            store.connection.db.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
            after = store.head() - 2
            assert len(list(store.changed_since(after))) == 1
            assert len(store.changed_memories(after, ("fact",))) == 1
            store._head = None  # pyright: ignore[reportPrivateUsage]
            assert store.head() == after + 2
            store.connection.db.trace_v2(0, None)
        bank_path.unlink()
    assert steps[1] <= steps[0] + 20


def test_a_process_of_an_older_version_cannot_go_on_writing_but_may_read(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        bank.remember("written by the older one", on_conflict="ignore")
    make_older(bank_path, 6)
    older = apsw.Connection(str(bank_path))
    columns = "seq, actor, counter, hlc, kind, body, signature"
    write = f"INSERT INTO events({columns}) VALUES(1000, 'a', 1, 1, 'use', '{{}}', NULL)"
    older.execute(f"BEGIN; {write}; ROLLBACK")

    with opened(bank_path) as bank:
        assert bank.status().schema == VERSION
        bank.remember("written by the newer one", on_conflict="ignore")
        with pytest.raises(apsw.ConstraintError, match="a newer skep has changed the form of this bank"):
            older.execute(write)
        assert older.execute("SELECT count(*) FROM events").fetchall() == [(2,)]
        assert older.execute("SELECT row FROM memories WHERE changed > 1").fetchall() == [(2,)]
    older.close()


def test_a_step_to_this_version_writes_little_whatever_the_size(bank_path: Path) -> None:
    written: list[int] = []
    for count in (100, 4000):
        with opened(bank_path) as bank:
            bank.remember_many(f"note {n} on the ledger" for n in range(count))
        make_older(bank_path, 6)
        with opened(bank_path):
            written.append(bank_path.with_name(f"{bank_path.name}-wal").stat().st_size)
        bank_path.unlink()
    assert written[1] < 2 * written[0]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE memories SET born = changed WHERE row = 3",
        "UPDATE memories SET changed = changed + 20, born = changed + 20 WHERE row = 30",
    ],
)
def test_the_doctor_sees_and_mends_changes_that_would_not_be_noticed(bank_path: Path, damage: str) -> None:
    with opened(bank_path) as bank:
        memory = bank.remember_many(f"note {n}" for n in range(40))[2].memory
        bank.revise(memory.id, importance=0.9)
        store = bank.engine.store
        assert [found.level for found in examine(store) if found.check == "changes"] == ["ok"]
        with store.writing():
            store.connection.execute(damage)
        assert [found.level for found in examine(store) if found.check == "changes"] == ["error"]
        mend(store)
        assert [found.level for found in examine(store) if found.check == "changes"] == ["ok"]
        agrees(bank)
        assert store.connection.rows("PRAGMA integrity_check") == [("ok",)]
